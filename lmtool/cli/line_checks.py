"""What precedes Hydra: checks of a command line, the earlier line of `resume=`, and torchrun's several processes."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from lmtool.cli.arguments import INFO, CommandLine
from lmtool.cli.help_pages import EXPERIMENT, MULTIRUN, config_dir_of
from lmtool.cli.hydra_rules import require_allowed_word
from lmtool.cli.line_settings import LineSettings
from lmtool.config.overrides import key_of, quoted, swept_values, value_of
from lmtool.config.rules import require_folder
from lmtool.config.yaml_files import require_experiment
from lmtool.errors import UserError
from lmtool.runs.resume import TrainingStart
from lmtool.sweeps import restart

KEY = "resume"
FOLDERS = ("hydra.run.dir", "hydra.sweep.dir")


def require_possible(line: CommandLine) -> None:
    """Raise UserError for a deleted setting, a group that is chosen twice or a folder that cannot be used."""
    settings = LineSettings(line)
    presets = config_dir_of(line.flags)
    if presets is not None:
        require_folder("--config-dir", presets)
    if presets is not None and not presets.is_dir():
        raise UserError(f"--config-dir {presets}: no such folder; name one that holds GROUP/NAME.yaml")
    one_job = line.multirun and any(flag.partition("=")[0] in ("--cfg", "-c", *INFO) for flag in line.flags)
    for word in line.overrides:
        key = key_of(word)
        if one_job and swept_values(word):
            raise UserError(f"{word}: --cfg and --info show one job: choose one value")
        if word.startswith("~"):
            _require_deletable(word, key, settings)
        elif word.startswith(f"{EXPERIMENT}="):
            raise UserError(f"{word}: an experiment is appended: write +{word}")
        elif word.startswith("+") and key in settings.groups:
            raise UserError(f"{word}: {key}={settings.groups[key]} is chosen already: write {word.lstrip('+')}")
        elif key == EXPERIMENT:
            for name in word.partition("=")[2].split(","):
                if name in (files := settings.files(EXPERIMENT)):
                    require_experiment(files[name], {group for job in settings.jobs for group in job.groups})
        elif key in FOLDERS and "=" in word:
            _require_folder(word, key)
        elif key == "hydra.searchpath" and "=" in word:
            _require_search_path(word)


def _require_deletable(word: str, key: str, settings: LineSettings) -> None:
    """Raise UserError unless a Hydra setting or dictionary item is deleted."""
    parent = settings.type_of(key.rpartition(".")[0]) if "." in key else None
    if not key.startswith(("hydra.", "hydra/")) and not (parent is not None and parent.names and parent.is_free):
        raise UserError(f"{word}: a setting cannot be left out; give it another value, as {key}=...")


def _require_search_path(word: str) -> None:
    """Raise UserError for a missing folder; Hydra only warns in two lines."""
    try:
        entries = OverridesParser.create().parse_override(word).value()
    except HydraException:
        return  # composing the line will report it
    for entry in entries if isinstance(entries, list) else []:
        scheme, _, rest = str(entry).rpartition("://")
        if scheme in ("", "file") and "${" not in rest and not Path(rest).is_dir():
            raise UserError(f"{word}: no such folder {rest}; name one that holds GROUP/NAME.yaml, as file://FOLDER")


def _require_folder(word: str, key: str) -> None:
    value = value_of(word)
    if not value:
        raise UserError(f"{word}: name a folder; . is the one you are in")
    if "${" in value:
        return  # known once it is composed
    path = Path(value)
    try:
        existing = next(parent for parent in (path, *path.parents) if parent.exists())
        is_folder = existing.is_dir()
    except OSError as error:
        raise UserError(f"{key}={value}: {error.strerror}: choose another folder") from error
    if not is_folder:
        raise UserError(f"{key}={value}: {existing} is a file: choose another folder")


def with_earlier_words(line: CommandLine) -> CommandLine:
    """Return the line that started a run or sweep, then this line's overrides; without resume=, this line.

    A --config-dir is used again; a folder of options, whose Python files are run, must be named again. Raises UserError
    if the folder holds nothing to resume, and for overrides that contradict resume=.
    """
    word = line.given(KEY)
    if line.verb is None or word is None or not value_of(word):
        return line
    folder = value_of(word)
    new = [word for word in line.overrides if key_of(word) != KEY]
    if line.multirun:
        overrides, config_dir = restart.words_of(line.verb, Path(folder), new)
        flags = line.flags if any(flag in MULTIRUN for flag in line.flags) else [*line.flags, MULTIRUN[1]]
        line = replace(line, flags=flags)
    else:
        overrides, config_dir = _training(folder, new)
    for word in overrides:
        if word.startswith("-"):
            raise UserError(f"{folder} is damaged: the line that it was started with has {word!r} among its settings")
        if word not in new and not (key_of(word) in FOLDERS and Path(value_of(word)) == Path(folder)):
            require_allowed_word(word)
    flags = line.flags if config_dir_of(line.flags) or not config_dir else [*line.flags, "--config-dir", config_dir]
    return replace(line, flags=flags, overrides=overrides)


def _training(folder: str, new: list[str]) -> tuple[list[str], str | None]:
    begun = TrainingStart.open(Path(folder))
    if any(key_of(word) == "hydra.run.dir" for word in new):
        raise UserError(f"resume={folder}: the training continues in that folder; leave hydra.run.dir out")
    replaced = {key_of(word) for word in new} | {KEY, "hydra.run.dir"}
    earlier = [word for word in begun.overrides if key_of(word) not in replaced]
    return [*earlier, *new, f"{KEY}={quoted(folder)}", f"hydra.run.dir={quoted(folder)}"], begun.config_dir


def only_the_first_writes(line: CommandLine) -> CommandLine:
    """Return this process's line; higher ranks get a temporary output folder, removed when the process ends.

    Raises UserError for commands that several processes cannot run together.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return line
    if line.verb != "train" or line.multirun:
        raise UserError("torchrun starts several processes, which can only train one model together: leave it out")
    if os.environ.get("RANK", "0") == "0":
        return line
    folder = tempfile.mkdtemp(prefix="lmtool-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    overrides = [word for word in line.overrides if key_of(word) != "hydra.run.dir"]
    return replace(line, overrides=[*overrides, f"hydra.run.dir={quoted(folder)}", "hydra.output_subdir=null"])

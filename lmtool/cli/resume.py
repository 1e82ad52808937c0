"""`resume=`: the command line that a training or a sweep was started with, then what the new line adds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lmtool.cli.arguments import CommandLine
from lmtool.cli.help_pages import MULTIRUN, config_dir_of
from lmtool.config.overrides import key_of, quoted, value_of
from lmtool.errors import UserError, for_terminal
from lmtool.runs.resume import TrainingStart
from lmtool.sweeps import restart

KEY = "resume"


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
    _require_options_named(folder, overrides, new)
    for word in overrides:
        if word not in new and (word.startswith("-") or for_terminal(word) != word):
            raise UserError(f"{folder} is damaged: the line that it was started with has {word!r} among its settings")
    overrides = [word for word in overrides if key_of(word) != "options" or word in new]
    flags = line.flags if config_dir_of(line.flags) or not config_dir else [*line.flags, "--config-dir", config_dir]
    return replace(line, flags=flags, overrides=overrides)


def _training(folder: str, new: list[str]) -> tuple[list[str], str | None]:
    begun = TrainingStart.open(Path(folder))
    if any(key_of(word) == "hydra.run.dir" for word in new):
        raise UserError(f"resume={folder}: the training continues in that folder; leave hydra.run.dir out")
    replaced = {key_of(word) for word in new} | {KEY, "hydra.run.dir"}
    earlier = [word for word in begun.overrides if key_of(word) not in replaced]
    return [*earlier, *new, f"{KEY}={quoted(folder)}", f"hydra.run.dir={quoted(folder)}"], begun.config_dir


def _require_options_named(folder: str, overrides: list[str], new: list[str]) -> None:
    earlier = next((word for word in overrides if key_of(word) == "options"), None)
    if earlier is not None and value_of(earlier) and not any(key_of(word) == "options" for word in new):
        raise UserError(
            f"resume={folder}: it was started with {earlier}, a folder whose Python files are run: name it again"
        )

"""`resume=`: the command line that a training or a sweep was started with, then what the new line adds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lmtool.cli.arguments import MULTIRUN, CommandLine
from lmtool.cli.help_pages import config_dir_of
from lmtool.config.overrides import key_of, quoted, value_of
from lmtool.errors import UserError
from lmtool.runs.resume import Begun
from lmtool.sweeps import restart

KEY = "resume"


def with_earlier_words(line: CommandLine) -> CommandLine:
    """The line that a run or sweep was started with, with this line's overrides after it; others come back as they are.

    A --config-dir is used again; a folder of options, whose Python files are run, must be named again. Raises UserError
    where the folder holds nothing to resume, and for settings that cannot stand beside resume=.
    """
    word = line.given(KEY)
    if line.verb is None or word is None or not value_of(word):
        return line
    folder = value_of(word)
    own = [word for word in line.overrides if key_of(word) != KEY]
    if line.multirun:
        overrides, config_dir = restart.words_of(line.verb, Path(folder), own)
        flags = line.flags if any(flag in MULTIRUN for flag in line.flags) else [*line.flags, MULTIRUN[1]]
        line = replace(line, flags=flags)
    else:
        overrides, config_dir = _training(folder, own)
    _require_options_named(folder, overrides, own)
    kept = [word for word in overrides if key_of(word) != "options" or word in own]
    flags = line.flags if config_dir_of(line.flags) or not config_dir else [*line.flags, "--config-dir", config_dir]
    return replace(line, flags=flags, overrides=kept)


def _training(folder: str, own: list[str]) -> tuple[list[str], str | None]:
    begun = Begun.open(Path(folder))
    if any(key_of(word) == "hydra.run.dir" for word in own):
        raise UserError(f"resume={folder}: the training continues in that folder; leave hydra.run.dir out")
    replaced = {key_of(word) for word in own} | {KEY, "hydra.run.dir"}
    kept = [word for word in begun.overrides if key_of(word) not in replaced]
    return [*kept, *own, f"{KEY}={quoted(folder)}", f"hydra.run.dir={quoted(folder)}"], begun.config_dir


def _require_options_named(folder: str, overrides: list[str], own: list[str]) -> None:
    earlier = next((word for word in overrides if key_of(word) == "options"), None)
    if earlier is not None and value_of(earlier) and not any(key_of(word) == "options" for word in own):
        raise UserError(
            f"resume={folder}: it was started with {earlier}, a folder whose Python files are run: name it again"
        )

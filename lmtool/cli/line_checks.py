"""Checks of a command line before Hydra composes it."""

from __future__ import annotations

from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from lmtool.cli.arguments import CommandLine
from lmtool.cli.help_pages import config_dir_of
from lmtool.cli.line_settings import LineSettings
from lmtool.config.overrides import key_of, value_of
from lmtool.errors import UserError

FOLDERS = ("hydra.run.dir", "hydra.sweep.dir")


def require_possible(line: CommandLine) -> None:
    """Raise UserError for a deleted setting, a group that is chosen twice or a folder that cannot be used."""
    settings = LineSettings(line)
    presets = config_dir_of(line.flags)
    if presets is not None and not presets.is_dir():
        raise UserError(f"--config-dir {presets}: no such folder; name one that holds GROUP/NAME.yaml")
    for word in line.overrides:
        key = key_of(word)
        if word.startswith("~"):
            _require_deletable(word, key, settings)
        elif word.startswith("+") and key in settings.groups:
            raise UserError(f"{word}: {key}={settings.groups[key]} is chosen already: write {word.lstrip('+')}")
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

"""The help pages, made from the YAML files, their comments, and the ranges of the dataclasses.

Neither Hydra nor numpy is imported here, so that a page appears without delay.
"""

from __future__ import annotations

import os
import platform
import re
from itertools import zip_longest
from pathlib import Path

from lmtool import __version__
from lmtool.commands import bare_setting, own_types, verbs
from lmtool.config.options import HOMES, conf_dir, meant, yaml_files
from lmtool.config.types import SettingType, option_types
from lmtool.config.yaml_files import Setting, YamlFile, opening, read, text_of
from lmtool.errors import UserError
from lmtool.system.process import processor
from lmtool.system.terminal import nearest

COMPLETION = "the shell's script for completing verbs, groups and keys"
SWEEPS = (
    "-m runs every combination of comma-separated values, one after the other, or at once with hydra/launcher=joblib,",
    "submitit_local or submitit_slurm; hydra/sweeper=optuna searches; -m resume=DIR resumes a sweep.",
)


# Options of Hydra's plugins, each with lmtool's extra that installs it.
PLUGINS: dict[str, dict[str, str | None]] = {
    "hydra/launcher": {"basic": None, "joblib": "joblib", "submitit_local": "submitit", "submitit_slurm": "submitit"},
    "hydra/sweeper": {"basic": None, "optuna": "optuna"},
}
EXPERIMENT = "experiment"
CONFIG_DIR = ("--config-dir", "-cd")
MULTIRUN = ("-m", "--multirun")


class NoOptionError(UserError):
    """Error for an option that its group lacks."""

    def __init__(self, message: str, group: str, option: str) -> None:
        super().__init__(message)
        self.group = group
        self.option = option


def config_dir_of(words: list[str]) -> Path | None:
    """Return the folder of --config-dir on a line."""
    folder = flag_value(words, *CONFIG_DIR)
    return Path(folder) if folder else None


def flag_value(words: list[str], *names: str) -> str | None:
    """Return the value of the first of these flags, which may be the next word."""
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else after
    return None


def is_group(name: str, words: list[str]) -> bool:
    """Return whether a name is a group: has options."""
    return bool(yaml_files(name, beside=config_dir_of(words)))


def keys_of(verb: str) -> set[str]:
    """Return a verb's top-level keys, including `hydra` and groups."""
    texts = [read(conf_dir() / f"{name}.yaml") for name in ("common", verb)]
    return {"hydra"}.union(*({setting.path[0] for setting in text.settings} | text.groups.keys() for text in texts))


def chosen_groups(verb: str, words: list[str]) -> dict[str, str]:
    """Return a line's groups, each with its option: the line's choices, else the defaults; in a sweep the first of
    several.

    Raises UserError for an option that does not exist.
    """
    beside = config_dir_of(words)
    given = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("-"))
    if any(flag in MULTIRUN for flag in words):
        given = {key: value.partition(",")[0] for key, value in given.items()}
    given = {key: value.strip("'\"") for key, value in given.items()}
    experiment = given.get(f"+{EXPERIMENT}")
    if experiment is not None:
        require_option(EXPERIMENT, experiment, words)
        chosen = read(yaml_files(EXPERIMENT, beside=beside)[experiment]).groups
        overridden = {group: option for group, option in chosen.items() if not group.startswith("hydra/")}
        for group, option in overridden.items():
            require_option(group, option, words)
        given = overridden | given
    groups: dict[str, str] = {}
    waiting = [read(conf_dir() / f"{verb}.yaml")]
    while waiting:
        for group, default in waiting.pop(0).groups.items():
            groups[group] = option = given.get(group, default)
            require_option(group, option, words)
            waiting.append(option_text(group, option, words))
    return groups


def require_option(group: str, option: str, words: list[str]) -> None:
    """Raise NoOptionError, with the existing names, unless the group has the option."""
    names = yaml_files(group, beside=config_dir_of(words))
    if not names:
        raise NoOptionError(f"no group {group!r}, of {group}={option}{nearest(group, HOMES)}", group, option)
    if option not in names:
        hint = meant(group, option, beside=config_dir_of(words))
        raise NoOptionError(f"no {group}={option}{hint}", group, option)


def option_text(group: str, option: str, words: list[str]) -> YamlFile:
    """Read the YAML file of an option, with the keys of the files it is based on."""
    files = yaml_files(group, beside=config_dir_of(words))
    return read(files[option], files)


def options_of(group: str, words: list[str] | None = None) -> dict[str, str]:
    """List a group's options, each with the first sentence of its YAML file's description."""
    files = yaml_files(group, beside=config_dir_of(words or []))
    about = {name: opening(text_of(path)).description for name, path in files.items()}
    return {name: re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)[0] for name, text in about.items()}


def overview() -> str:
    """Return the `lmtool --help` page."""
    lines = ["lmtool: train, evaluate, mix and compare the language models that came before Transformers", ""]
    lines += ["Usage: lmtool <verb> [group=option] [key=value] [-m]", "", "Verbs:"]
    about = {verb: opening(text_of(conf_dir() / f"{verb}.yaml")) for verb in verbs()}
    lines += [f"  {verb:<11} {about[verb].title}" for verb in verbs()]
    lines += [f"  completion  {COMPLETION}", "", "Examples:"]
    lines += [f"  {about[verb].examples[0]}" for verb in verbs()]
    lines += [
        "",
        "lmtool <verb> --help shows the verb's groups and options; lmtool <verb> --cfg job all settings.",
        "LMTOOL_DATA names the folder of raw corpora; options=FOLDER adds custom options, --config-dir DIR",
        "YAML presets.",
        *SWEEPS,
    ]
    return "\n".join(lines)


def version_page() -> str:
    """Return the `lmtool --version` page: what a report of a problem needs. None of the packages is imported."""
    from importlib.metadata import PackageNotFoundError, version

    def of(package: str) -> str:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            return f"{package} missing"

    packages = ", ".join(map(of, ("torch", "numpy", "numba", "hydra-core")))
    python = f"Python {platform.python_version()}, {platform.platform()}"
    return "\n".join([f"lmtool {__version__}", python, packages, f"{processor()}, {os.cpu_count()} cores"])


def completion_page() -> str:
    """Return the `lmtool completion --help` page."""
    return f"""lmtool completion SHELL: {COMPLETION}

Tab then completes verbs, groups, options, keys, their values, files and folders.

Examples:
  eval "$(lmtool completion bash)"       # in ~/.bashrc
  eval "$(lmtool completion zsh)"        # in ~/.zshrc
  lmtool completion fish | source        # in ~/.config/fish/config.fish"""


def verb_page(verb: str, words: list[str]) -> str:
    """Return the `lmtool <verb> --help` page; overrides on the line choose the options shown in full."""
    if verb == "completion":
        return completion_page()
    if verb not in verbs():
        raise UserError(f"no verb {verb!r}{nearest(verb, verbs())}")
    groups = chosen_groups(verb, words)
    bare = bare_setting(verb)
    text = read(conf_dir() / f"{verb}.yaml")
    usage = f"lmtool {verb}" + (f" [{bare[0].upper()}{'...' * bare[1]}]" if bare else "")
    lines = [f"{usage}: {text.title}", "", text.description, ""]
    for group, chosen in groups.items():
        lines.append(f"{group}= one of")
        lines += [
            f"  {'*' if name == chosen else ' '} {name:<20} {about}" for name, about in options_of(group, words).items()
        ]
        lines.append("")
    if verb == "train":
        lines += [f"+{EXPERIMENT}= complete settings by name"]
        lines += [f"    {name:<20} {about}" for name, about in options_of(EXPERIMENT, words).items()] + [""]
    lines += ["Keys (* marks the options chosen above):" if groups else "Keys:", ""]
    top = SettingType(fields=own_types(verb))
    lines += [_line(item, "", top) for name in ("common", verb) for item in read(conf_dir() / f"{name}.yaml").settings]
    for group, option in groups.items():
        file = option_text(group, option, words)
        types = SettingType(fields=option_types(group, file.kind or option))
        lines += ["", f"{group}={option}"]
        lines += [_line(item, f"{group}.", types) for item in file.settings]
    lines += ["", *SWEEPS, "", "Examples:"] + [f"  {example}" for example in text.examples]
    return "\n".join(lines)


def _line(setting: Setting, prefix: str, types: SettingType) -> str:
    depth = len(setting.path) - 1
    key = "  " * depth + setting.path[-1] if depth else f"{prefix}{setting.path[0]}"
    line = f"  {key}:{' ' * bool(setting.value)}{setting.value}"
    type_ = types.below(list(setting.path))
    bounds = type_.bounds if type_ is not None else ""
    said = f"{setting.meaning} [{bounds}]" if setting.meaning and bounds else setting.meaning or bounds
    return f"{line:<36} # {said}" if said else line

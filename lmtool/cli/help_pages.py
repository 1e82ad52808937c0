"""The help pages, made from the YAML files, their comments, and the ranges of the dataclasses.

Neither Hydra nor numpy is imported here, so that a page appears without delay.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from lmtool import __version__
from lmtool.commands import bare_setting, verb_setting_types, verbs
from lmtool.config.options import EXPERIMENT, conf_dir, yaml_files
from lmtool.config.types import SettingType, option_types
from lmtool.config.yaml_files import Setting, complete_choices, read_opening, read_option, read_yaml, read_yaml_text
from lmtool.errors import UserError
from lmtool.requests.arguments import CommandLine
from lmtool.system.process import processor
from lmtool.system.terminal import nearest

COMPLETION = "the shell's script for completing verbs, groups and keys"
SWEEPS = (
    "-m runs every combination of comma-separated values, one after the other, or at once with hydra/launcher=joblib,",
    "submitit_local or submitit_slurm; hydra/sweeper=optuna searches; -m resume=DIR resumes a sweep.",
)


def read_choices(line: CommandLine) -> dict[str, str]:
    """Return the option of each group of a line, in a sweep the first of several."""
    assert line.verb is not None, "groups are those of a verb"
    texts = dict(word.split("=", 1) for word in line.overrides if "=" in word)
    given = {key: (text.partition(",")[0] if line.multirun else text).strip("'\"") for key, text in texts.items()}
    return complete_choices(line.verb, given, line.folders)


def line_types(verb: str, choices: Mapping[str, str], folders: Sequence[Path] = ()) -> SettingType:
    """Return the settings of a verb and of the chosen options, as the fields of one type."""
    types = verb_setting_types(verb)
    for group, option in choices.items():
        kind = read_option(group, option, folders).kind or option
        types[group] = SettingType(fields=option_types(group, kind))
    return SettingType(fields=types)


def describe_options(group: str, folders: Sequence[Path] = ()) -> dict[str, str]:
    """List a group's options, each with the first sentence of its YAML file's description."""
    openings = {name: read_opening(read_yaml_text(path)) for name, path in yaml_files(group, folders).items()}
    return {name: re.split(r"(?<=\.) (?=[A-Z])", file.description, maxsplit=1)[0] for name, file in openings.items()}


def overview() -> str:
    """Return the `lmtool --help` page."""
    lines = ["lmtool: train, evaluate, mix and compare the language models that came before Transformers", ""]
    lines += ["Usage: lmtool <verb> [group=option] [key=value] [-m]", "", "Verbs:"]
    openings = {verb: read_opening(read_yaml_text(conf_dir() / f"{verb}.yaml")) for verb in verbs()}
    lines += [f"  {verb:<11} {openings[verb].title}" for verb in verbs()]
    lines += [f"  completion  {COMPLETION}", "", "Examples:"]
    lines += [f"  {openings[verb].examples[0]}" for verb in verbs()]
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
    import platform
    from importlib.metadata import version

    packages = ", ".join(f"{package} {version(package)}" for package in ("torch", "numpy", "numba", "hydra-core"))
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


def verb_page(line: CommandLine) -> str:
    """Return the `lmtool <verb> --help` page; overrides on the line choose the options shown in full."""
    verb = line.verb or "help"
    if verb == "completion":
        return completion_page()
    if verb not in verbs():
        raise UserError(f"no verb {verb!r}{nearest(verb, verbs())}")
    choices, folders = read_choices(line), line.folders
    types, bare = line_types(verb, choices, folders), bare_setting(verb)
    file = read_yaml(conf_dir() / f"{verb}.yaml")
    usage = f"lmtool {verb}" + (f" [{bare[0].upper()}{'...' * bare[1]}]" if bare else "")
    lines = [f"{usage}: {file.title}", "", file.description]
    for group, option in choices.items():
        descriptions = describe_options(group, folders).items()
        lines += ["", f"{group}= one of"]
        lines += [f"  {'*' if name == option else ' '} {name:<20} {text}" for name, text in descriptions]
    if verb == "train":
        lines += ["", f"+{EXPERIMENT}= complete settings by name"]
        lines += [f"    {name:<20} {text}" for name, text in describe_options(EXPERIMENT, folders).items()]
    lines += ["", "Keys (* marks the options chosen above):" if choices else "Keys:", ""]
    lines += [
        _format_setting(item, "", types)
        for name in ("common", verb)
        for item in read_yaml(conf_dir() / f"{name}.yaml").settings
    ]
    for group, option in choices.items():
        lines += ["", f"{group}={option}"]
        lines += [_format_setting(item, f"{group}.", types) for item in read_option(group, option, folders).settings]
    lines += ["", *SWEEPS, "", "Examples:", *(f"  {example}" for example in file.examples)]
    return "\n".join(lines)


def _format_setting(setting: Setting, prefix: str, types: SettingType) -> str:
    depth, key = len(setting.path) - 1, prefix + ".".join(setting.path)
    name = "  " * depth + setting.path[-1] if depth else key
    line = f"  {name}:{' ' * bool(setting.value)}{setting.value}"
    type_ = types.below(key.split("."))
    bounds = type_.bounds if type_ is not None else ""
    comment = f"{setting.meaning} [{bounds}]" if setting.meaning and bounds else setting.meaning or bounds
    return f"{line:<36} # {comment}" if comment else line

"""Shell completion: `eval "$(lmtool completion bash)"`, and the same for zsh and fish.

The shell runs `lmtool completion query <line>`; candidates are read from the YAML files and the options' source,
without Hydra, which takes a tenth of a second.
"""

from __future__ import annotations

import os
import re
import shlex
import sys

from lmtool.cli.arguments import USUAL_FLAGS, CommandLine
from lmtool.cli.help_pages import (
    CONFIG_DIR,
    EXPERIMENT,
    MULTIRUN,
    PLUGINS,
    completion_page,
)
from lmtool.cli.line_settings import HYDRA_TEXTS, LineSettings
from lmtool.commands import bare_setting, verbs
from lmtool.config.options import CHOSEN, conf_dir, folder_in_use
from lmtool.config.types import SettingType
from lmtool.config.yaml_files import Setting, read
from lmtool.errors import UserError

SCRIPTS = {
    "bash": """_lmtool() {
    local found line="${COMP_LINE:0:$COMP_POINT}"
    COMPREPLY=()
    # bash splits words at "=" and ":"; "$2" is the part of the last one that candidates replace.
    while IFS= read -r found; do COMPREPLY+=("$found"); done < <(lmtool completion query "$line" "$2" 2>/dev/null)
    if [[ "${COMPREPLY[0]}" == *[=./] || "$line" == *=\\[* ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o bashdefault -o default -F _lmtool lmtool
""",
    "zsh": """#compdef lmtool
_lmtool() {
    local -a found
    found=("${(@f)$(lmtool completion query "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then
        compadd -U -Q -S '' -- $found
    else
        compset -P '*='
        _files
    fi
}
compdef _lmtool lmtool
""",
    "fish": """function __lmtool_candidates
    set -l found (lmtool completion query (commandline -cp | string collect) 2>/dev/null | string unescape)
    if test -n "$found[1]"
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c lmtool -f -a '(__lmtool_candidates)'
""",
}
# Values of settings that are names, by the last part of their keys.
NAMES = {
    **dict.fromkeys(("split", "fit_split", "tune_on"), ("train", "valid", "test")),
    "device": ("auto", "cpu", "cuda", "mps"),
}
SPECIAL = re.compile(r"([^\w@%+=:,./~\[\]-])")  # characters escaped by a backslash in all three shells


def run(words: list[str]) -> int:
    """Print the script of `lmtool completion <shell>`, the candidates for the last word of `query <line> [<part>]`, or
    the --help page.

    part: the end of the last word that candidates replace. Raises UserError for an unknown shell.
    """
    if words[:1] == ["query"]:
        line, *parts = words[1:] or [""]
        kept = len(_last_word(line)) - len(parts[0]) if parts else 0
        sys.stdout.writelines(f"{candidate[kept:]}\n" for candidate in candidates(line))
        return 0
    if len(words) == 1 and words[0] in SCRIPTS:
        sys.stdout.write(SCRIPTS[words[0]])
        return 0
    if words[:1] in (["--help"], ["-h"]):
        print(completion_page())
        return 0
    raise UserError(f"{' '.join(['completion', *words])}: name a shell, one of {', '.join(SCRIPTS)}")


def candidates(line: str) -> list[str]:
    """Return candidates in the shell's syntax for the last word of a line that begins with the program's name; none if
    the word is in quotes, which the shell's own completion handles.
    """
    typed = _last_word(line)
    try:
        words = shlex.split(line[: len(line) - len(typed)])[1:]
        (last,) = shlex.split(typed) or [""]
    except ValueError:  # an open quote
        return []
    found = [name for name in _whole_words(words, last) if name.startswith(last)]
    return [typed + SPECIAL.sub(r"\\\1", name[len(last) :]) for name in found]


def _last_word(line: str) -> str:
    """Return the end of a line after its last unescaped white space."""
    match = re.search(r"(?:\\.|[^\s\\])*\\?\Z", line)
    return match[0] if match else ""


def _whole_words(words: list[str], last: str) -> list[str]:
    verb = next((word for word in words if word in verbs()), None)
    flag, equals, value = last.partition("=")
    if words and words[-1] in CONFIG_DIR:
        return _paths(last)
    if flag in CONFIG_DIR and equals:
        return [f"{flag}={path}" for path in _paths(value)]
    if last.startswith("-"):
        return list(USUAL_FLAGS)
    if verb is None:
        return [*verbs(), "completion"]
    overrides = [word for word in words if word != verb]
    options = next((word.partition("=")[2] for word in words if word.startswith("options=")), None)
    try:
        with folder_in_use(options or None):
            settings = LineSettings(CommandLine(verb, [], overrides))
            return _with_value(settings, last) if equals else _keys(settings, last)
    except UserError:  # a mistake earlier on the line, which running it will report
        return []


def _keys(settings: LineSettings, last: str) -> list[str]:
    """Return groups and keys, each with its = or ., and paths if the verb takes them without a key."""
    names = [name for group in settings.groups for name in (f"{group}=", f"{group}.")]
    if settings.verb == "train":
        names.append(f"+{EXPERIMENT}=")
    if last.startswith("h"):
        names += [f"{key}=" for key in (*HYDRA_TEXTS, *PLUGINS)]
    for prefix, found in _settings(settings, last):
        parents = {setting.path[:-1] for setting in found}
        names += [prefix + ".".join(setting.path) + "=" for setting in found if setting.path not in parents]
    return names + (_paths(last) if bare_setting(settings.verb) == ("paths", True) else [])


def _settings(settings: LineSettings, last: str) -> list[tuple[str, list[Setting]]]:
    """Return (key prefix, YAML settings) of the top level and of each group whose prefix the last word has."""
    top = [item for name in ("common", settings.verb) for item in read(conf_dir() / f"{name}.yaml").settings]
    chosen = [(group, option) for group, option in settings.groups.items() if last.startswith(f"{group}.")]
    return [("", top), *((f"{group}.", list(settings.text(group, option).settings)) for group, option in chosen)]


def _with_value(settings: LineSettings, last: str) -> list[str]:
    """Return a key with each of its values; in a list or sweep, complete the text after the last comma."""
    key, _, value = last.partition("=")
    group = key.lstrip("+")
    type = settings.type_of(group) or SettingType()
    several = value.startswith("[") or type.item is not None or any(flag in settings.words for flag in MULTIRUN)
    start = max(value.rfind("["), value.rfind(",")) + 1 if several else 0
    if group in PLUGINS:
        values = list(PLUGINS[group])
    elif settings.is_group(group):
        values = list(settings.files(group))
    elif group in CHOSEN.values():
        values = [name for name, setting in CHOSEN.items() if setting == group for name in settings.files(name)]
    else:
        values = _values(group, type, value[start:])
    return [f"{key}={value[:start]}{name}" for name in values]


def _values(key: str, type: SettingType, text: str) -> list[str]:
    """Return a setting's values, or paths that begin with a text."""
    names = NAMES.get(key.rpartition(".")[2])
    if names or type.values:
        return list(names or type.values)
    if "bool" in type.names:
        return ["true", "false"]
    return _paths(text) if type.may_be_text else []


def _paths(text: str) -> list[str]:
    """Return the files and folders that begin with a text, folders with a slash; `~/` is kept."""
    folder, name = os.path.split(text)
    prefix = text[: len(text) - len(name)]
    try:
        entries = sorted(os.scandir(os.path.expanduser(folder) or "."), key=lambda entry: entry.name)
    except OSError:
        return []
    shown = [entry for entry in entries if not entry.name.startswith(".") or name.startswith(".")]
    return [f"{prefix}{entry.name}{'/' if entry.is_dir() else ''}" for entry in shown]

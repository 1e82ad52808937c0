"""Shell completion: `eval "$(lmtool completion bash)"`, and the same for zsh and fish.

The shell runs `lmtool completion query <line>`; candidates are read from the YAML files and the options' source,
without Hydra, which takes a tenth of a second.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import sys
from contextlib import suppress

from lmtool.cli import help_pages
from lmtool.cli.help_pages import line_types, read_choices
from lmtool.commands import bare_setting, verbs
from lmtool.config.options import EXPERIMENT, GROUP_SETTINGS, PLUGINS, conf_dir, folder_in_use, yaml_files
from lmtool.config.request import HYDRA_TEXTS, OUT
from lmtool.config.types import SettingType
from lmtool.config.yaml_files import read_option, read_yaml
from lmtool.errors import UserError
from lmtool.requests.arguments import USUAL_FLAGS, CommandLine, split_line

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
SPLITS, DEVICES = ("train", "valid", "test"), ("auto", "cpu", "cuda", "mps")
NAMES = {"split": SPLITS, "fit_split": SPLITS, "tune_on": ("cloze", *SPLITS), "device": DEVICES}  # by the end of a key
SPECIAL = re.compile(r"([^\w@%+=:,./~\[\]-])")  # characters escaped by a backslash in all three shells


def run(words: list[str]) -> int:
    """Print the script of `lmtool completion <shell>`, the candidates for the last word of `query <line> [<part>]`, or
    the --help page. part: the end of the last word that candidates replace.
    """
    if words[:1] == ["query"]:
        line, *parts = words[1:] or [""]
        kept = len(_last_word(line)) - len(parts[0]) if parts else 0
        sys.stdout.writelines(f"{candidate[kept:]}\n" for candidate in candidates(line))
    elif len(words) == 1 and words[0] in SCRIPTS:
        sys.stdout.write(SCRIPTS[words[0]])
    elif words[:1] in (["--help"], ["-h"]):
        print(help_pages.completion_page())
    else:
        raise UserError(f"{' '.join(['completion', *words])}: name a shell, one of {', '.join(SCRIPTS)}")
    return 0


def candidates(line: str) -> list[str]:
    """Return candidates in the shell's syntax for the last word of a line that begins with the program's name; none if
    the word is in quotes, which the shell's own completion handles.
    """
    last_word = _last_word(line)
    try:
        words = shlex.split(line[: len(line) - len(last_word)])[1:]
        (last,) = shlex.split(last_word) or [""]
    except ValueError:  # an open quote
        return []
    found = [name for name in _whole_words(words, last) if name.startswith(last)]
    return [last_word + SPECIAL.sub(r"\\\1", name[len(last) :]) for name in found]


def _last_word(line: str) -> str:
    """Return the end of a line after its last unescaped white space."""
    match = re.search(r"(?:\\.|[^\s\\])*\\?\Z", line)
    return match[0] if match else ""


def _whole_words(words: list[str], last: str) -> list[str]:
    key, equals, value = last.partition("=")
    if words and words[-1] in ("--config-dir", "-cd"):
        return _paths(last)
    if last.startswith("-"):
        return [f"{key}={path}" for path in _paths(value)] if equals else list(USUAL_FLAGS)
    try:
        line = split_line(words)
    except UserError:  # a mistake earlier on the line, which running it will report
        line = CommandLine(next((word for word in words if word in verbs()), None), {}, [])
    if line.verb is None:
        return [*verbs(), "completion"]
    options = (line.last_override("options") or "").partition("=")[2]
    with suppress(UserError), folder_in_use(options or None):
        try:
            choices = read_choices(line)
        except UserError:
            choices = {}
        return _values(line, choices, last) if equals else _keys(line, choices, last)
    return []


def _keys(line: CommandLine, choices: dict[str, str], last: str) -> list[str]:
    """Return groups and keys, each with its = or ., and paths if the verb takes them without a key."""
    verb = str(line.verb)
    names = [f"{OUT}=", *(name for group in choices for name in (f"{group}=", f"{group}."))]
    names += [f"+{EXPERIMENT}="] if verb == "train" else []
    names += [f"{key}=" for key in (*HYDRA_TEXTS, *PLUGINS)] if last.startswith("h") else []
    files = [("", read_yaml(conf_dir() / f"{name}.yaml")) for name in ("common", verb)]
    inside = [group for group in choices if last.startswith(f"{group}.")]
    files += [(f"{group}.", read_option(group, choices[group], line.folders)) for group in inside]
    for prefix, file in files:
        parents = {setting.path[:-1] for setting in file.settings}
        names += [prefix + ".".join(setting.path) + "=" for setting in file.settings if setting.path not in parents]
    return names + (_paths(last) if bare_setting(verb) == ("paths", True) else [])


def _values(line: CommandLine, choices: dict[str, str], last: str) -> list[str]:
    """Return a key with each of its values; in a list or sweep, complete the text after the last comma."""
    key, _, value = last.partition("=")
    name = key.lstrip("+")
    own = {group: option for group, option in choices.items() if name.startswith(f"{group}.")}
    type_ = line_types(str(line.verb), own, line.folders).below(name.split(".")) or SettingType()
    several = value.startswith("[") or type_.item is not None or line.multirun
    start = max(value.rfind("["), value.rfind(",")) + 1 if several else 0
    group = next((group for group, setting in GROUP_SETTINGS.items() if setting == name), name)
    known = NAMES.get(name.rpartition(".")[2]) or type_.values or ("true", "false") * ("bool" in type_.names)
    found = list(PLUGINS.get(group) or yaml_files(group, line.folders) or known)
    if not found and (type_.may_be_text or name in (OUT, *HYDRA_TEXTS)):
        found = _paths(value[start:])
    return [f"{key}={value[:start]}{each}" for each in found]


def _paths(text: str) -> list[str]:
    """Return the files and folders that begin with a text, folders with a slash; `~/` is kept."""
    start = os.path.expanduser(text)
    found = sorted(glob.glob(f"{glob.escape(start)}*"))
    return [f"{text}{path[len(start) :]}{'/' * os.path.isdir(path)}" for path in found]

"""Shell completion: `eval "$(lmtool completion bash)"`, and the same for zsh and fish.

The shell runs `lmtool completion query <line>`; candidates are read from the YAML files, without Hydra, which takes a
tenth of a second.
"""

from __future__ import annotations

import sys

from lmtool.cli.help_pages import EXPERIMENT, VERBS, chosen_groups, config_dir_of, option_text
from lmtool.cli.yaml_text import Entry, read
from lmtool.config.options import conf_dir, folder_in_use, yaml_files
from lmtool.errors import UserError

SCRIPTS = {
    "bash": """_lmtool() {
    local IFS=$'\\n' word="${COMP_LINE:0:$COMP_POINT}"
    COMPREPLY=($(lmtool completion query "$word" 2>/dev/null))
    local last="${word##* }"
    # bash splits words at "=": return only what follows the last one.
    if [[ "$last" == *=* ]]; then COMPREPLY=("${COMPREPLY[@]#"${last%=*}="}"); fi
    [[ "${COMPREPLY[0]}" == *[=.] ]] && compopt -o nospace
}
complete -F _lmtool lmtool
""",
    "zsh": """#compdef lmtool
_lmtool() {
    local -a found
    found=("${(@f)$(lmtool completion query "$LBUFFER" 2>/dev/null)}")
    compadd -Q -S '' -- $found
}
compdef _lmtool lmtool
""",
    "fish": """complete -c lmtool -f -a '(lmtool completion query (commandline -cp) 2>/dev/null)'
""",
}
FLAGS = ("-m", "--multirun", "--help", "--cfg", "--config-dir")


def run(words: list[str]) -> int:
    """`lmtool completion <shell>` prints the shell's script; `query <line>` prints the candidates for its last word.

    Raises UserError for an unknown shell.
    """
    if words[:1] == ["query"]:
        print("\n".join(candidates(" ".join(words[1:]))))
        return 0
    if len(words) == 1 and words[0] in SCRIPTS:
        sys.stdout.write(SCRIPTS[words[0]])
        return 0
    raise UserError(f"completion {' '.join(words)}: name a shell, one of {', '.join(SCRIPTS)}")


def candidates(line: str) -> list[str]:
    """The candidates for the last word of a line, which begins with the program's name."""
    words = line.split()[1:]
    verb = next((word for word in words if word in VERBS), None)
    last = "" if not words or line.endswith(" ") else words.pop()
    if verb is None or verb not in words:
        return [name for name in (*VERBS, "completion") if name.startswith(last)]
    if last.startswith("-"):
        return [flag for flag in FLAGS if flag.startswith(last)]
    options = next((word.partition("=")[2] for word in words if word.startswith("options=")), None)
    try:
        with folder_in_use(options):
            return [name for name in _settings(verb, words, last) if name.startswith(last)]
    except UserError:  # a mistake earlier on the line, which running it will report
        return []


def _settings(verb: str, words: list[str], last: str) -> list[str]:
    """Groups, options and keys, as whole words."""
    groups = chosen_groups(verb, words)
    key, equals, _ = last.partition("=")
    if equals:
        group = key.lstrip("+")
        is_group = group in groups or group == EXPERIMENT
        values = yaml_files(group, beside=config_dir_of(words)) if is_group else _values(verb, words, key)
        return [f"{key}={value}" for value in values]
    names = [name for group in groups for name in (f"{group}=", f"{group}.")]
    if verb == "train":
        names.append(f"+{EXPERIMENT}=")
    for prefix, entries in _keys(verb, words, groups):
        if not prefix or last.startswith(prefix):
            parents = {entry.path[:-1] for entry in entries}
            names += [prefix + ".".join(entry.path) + "=" for entry in entries if entry.path not in parents]
    return names


def _keys(verb: str, words: list[str], groups: dict[str, str]) -> list[tuple[str, list[Entry]]]:
    top = [entry for name in ("common", verb) for entry in read(conf_dir() / f"{name}.yaml").entries]
    return [("", top), *((f"{g}.", option_text(g, option, words).entries) for g, option in groups.items())]


def _values(verb: str, words: list[str], key: str) -> list[str]:
    """true and false for a boolean setting."""
    for prefix, entries in _keys(verb, words, chosen_groups(verb, words)):
        for entry in entries:
            if prefix + ".".join(entry.path) == key and entry.value in ("true", "false"):
                return ["true", "false"]
    return []

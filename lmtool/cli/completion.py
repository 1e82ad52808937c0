"""Shell completion: `eval "$(lmtool completion bash)"`, and the same for zsh and fish.

The shell asks `lmtool completion query <line>`; verbs are ours, groups, options and keys are Hydra's answer.
"""

from __future__ import annotations

import sys

from lmtool import config
from lmtool.cli import help_pages
from lmtool.errors import UserError

SCRIPTS = {
    "bash": """_lmtool() {
    local IFS=$'\\n' word="${COMP_LINE:0:$COMP_POINT}"
    COMPREPLY=($(lmtool completion query "$word" 2>/dev/null))
    local last="${word##* }"
    # bash cuts words at "=": give back only what comes after the last one.
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


def run(words: list[str]) -> int:
    """`lmtool completion <shell>` prints the shell's script; `query <line>` prints what may come next."""
    if words[:1] == ["query"]:
        print("\n".join(candidates(" ".join(words[1:]))))
        return 0
    if len(words) == 1 and words[0] in SCRIPTS:
        sys.stdout.write(SCRIPTS[words[0]])
        return 0
    raise UserError(f"completion {' '.join(words)}: name a shell, one of {', '.join(SCRIPTS)}")


def candidates(line: str) -> list[str]:
    """What may stand where the line (which begins with the program's name) ends."""
    words = line.split()[1:]
    verb = next((word for word in words if word in help_pages.VERBS), None)
    last = "" if not words or line.endswith(" ") else words[-1]
    if verb is None or (last == verb and not line.endswith(" ")):
        return [name for name in (*help_pages.VERBS, "completion") if name.startswith(last)]
    if last.startswith("-"):
        return [flag for flag in ("-m", "--multirun", "--help", "--cfg") if flag.startswith(last)]
    words.remove(verb)
    rest = " ".join(words) + ("" if last else " ")
    return _hydra_candidates(verb, rest.lstrip(), last)


def _hydra_candidates(verb: str, line: str, last: str) -> list[str]:
    from hydra._internal.core_plugins.bash_completion import BashCompletion
    from hydra.core.global_hydra import GlobalHydra
    from hydra.initialize import initialize_config_dir

    config.register()
    with initialize_config_dir(str(help_pages.conf_dir()), version_base="1.3"):
        found = BashCompletion(GlobalHydra.instance().config_loader())._query(config_name=verb, line=line)
    # Hydra's own settings and our schemas are of no use to a person at a prompt.
    shown = [name for name in found if not name.startswith(("hydra", "schema_")) and "=schema_" not in name]
    return [name for name in shown if name.startswith(last)]

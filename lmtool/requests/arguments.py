"""The words of a command line: the verb, Hydra's flags and the overrides.

A word without a key gets the key that its verb declares: `lmtool predict "the cat sat on"` means
`text='the cat sat on'`. Only the standard library is imported here, since the help pages parse lines too.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from lmtool.commands import bare_setting, top_level_keys, verbs
from lmtool.config.grammar import override_key, quote_text
from lmtool.errors import UserError
from lmtool.system.terminal import close_words, nearest

# Hydra's forms: key=value, +key=value, ++key=value, group@package=option, ~key and ~key=value.
SETTING = re.compile(r"(?:\+{0,2}(\w+)[\w./@:-]*=|~(\w+)[\w./@:-]*(?:=|$))")
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
# Hydra's flags: None without a value, else the values that they allow, empty for any. --info may stand alone.
FLAGS: dict[str, tuple[str, ...] | None] = {
    **dict.fromkeys(("--multirun", "--help", "--version", "--resolve")),
    **{"--cfg": ("job", "hydra", "all"), "--info": INFO, "--config-dir": ()},
}
SHORT = {"-m": "--multirun", "-h": "--help", "-c": "--cfg", "-i": "--info", "-cd": "--config-dir"}
USUAL_FLAGS = ("--multirun", "--help", "--cfg", "--config-dir", "--version")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A line without the program's name. flags: Hydra's flags by their long names, with their values or ""."""

    verb: str | None
    flags: dict[str, str]
    overrides: list[str]

    @property
    def multirun(self) -> bool:
        """Whether the line asks for a sweep."""
        return "--multirun" in self.flags or "hydra.mode=MULTIRUN" in self.overrides

    @property
    def folders(self) -> list[Path]:
        """The folder of --config-dir, if there is one."""
        return [Path(folder)] if (folder := self.flags.get("--config-dir")) else []

    def last_override(self, key: str) -> str | None:
        """Return a line's last override of a key."""
        return next((word for word in reversed(self.overrides) if override_key(word) == key and "=" in word), None)


def split_line(words: list[str]) -> CommandLine:
    """Parse a line: the verb is the first word that is neither a flag nor an override."""
    verb: str | None = None
    flags: dict[str, str] = {}
    overrides: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if is_flag(word):
            name, equals, value = word.partition("=")
            flag = SHORT.get(name, name)
            if flag not in FLAGS:
                raise UserError(f"no flag {name}{_suggest_flag(word, verb)}")
            choices = FLAGS[flag]
            if choices is not None and not equals:
                if rest and not is_flag(rest[0]) and (flag != "--info" or rest[0] in INFO):
                    value = rest.pop(0)
                elif flag == "--info":
                    value = "all"
                else:
                    raise UserError(f"{flag} needs a value after it; one that starts with a dash is {flag}=-VALUE")
            if choices and value not in choices:
                raise UserError(f"{flag} {value}: must be one of {', '.join(choices)}")
            flags[flag] = os.path.expanduser(value) if flag == "--config-dir" else value * (choices is not None)
        elif verb is None and "=" not in word and word[0:1] not in ("+", "~"):
            verb = word
        else:
            overrides.append(word)
    known = (*verbs(), "help", "completion")
    if verb is not None and verb not in known:
        raise UserError(f"no verb {verb!r}{nearest(verb, known)}; see lmtool --help")
    return CommandLine(verb, flags, add_bare_key(verb, overrides) if verb in verbs() else overrides)


def _suggest_flag(word: str, verb: str | None) -> str:
    """Suggest a flag of similar spelling for an unknown one, else a setting, as in `--model ngram` of other tools."""
    flag, _, value = word.partition("=")
    name = flag.strip("-")
    if close := close_words(name, [known.strip("-") for known in USUAL_FLAGS]):
        return f"; did you mean --{close[0]}?"
    if verb == "neighbors":
        return f"; to subtract a word, write minus={name or 'WORD'}"
    hint = f"; settings have no dashes: write {name.replace('-', '_')}={value or 'value'}"
    if verb in verbs() and bare_setting(verb) == ("text", False):
        hint += f"; or, for text that begins with a dash, text={word}"
    return hint


def add_bare_key(verb: str, words: list[str]) -> list[str]:
    """Return a verb's words as overrides; a word without a key gets the key that the verb declares.

    If the verb declares none, the words are returned unchanged.
    """
    bare = bare_setting(verb)
    if bare is None:
        return words
    key, several = bare
    known = top_level_keys(verb)
    settings = [word for word in words if _is_setting(word, known)]
    free = [_decode_utf8(word) for word in words if not _is_setting(word, known)]
    if not free:
        return words
    for word in free:
        if any("\ud800" <= letter <= "\udfff" for letter in word):  # how Python keeps bytes that it cannot decode
            raise UserError(f"{key}: {word!r} is not UTF-8 text")
    if several:
        return [*settings, f"{key}=[{','.join(map(quote_text, free))}]"]
    if len(free) > 1:
        raise UserError(f'{key}: {free[0]!r} and {free[1]!r} are two texts: put quotes around both together, as "a b"')
    return [*settings, f"{key}={quote_text(free[0])}"]


def _decode_utf8(word: str) -> str:
    """Decode text that a non-UTF-8 locale passed as bytes; return it unchanged if not UTF-8."""
    try:
        return word.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        return word


def _is_setting(word: str, known: set[str]) -> bool:
    """Return whether a word has the form of an override. A word with white space needs a known key, else it is text;
    without, the key may be misspelt (`text=a=b` gives a text that looks like an override).
    """
    setting = SETTING.match(word)
    return setting is not None and ((setting[1] or setting[2]) in known or re.search(r"\s", word) is None)


def is_flag(word: str) -> bool:
    """Return whether a word is a Hydra flag: it begins with a dash and, unlike text, has no white space."""
    return word.startswith("-") and re.search(r"\s", word) is None

"""What a verb is given without a key: `lmtool predict "the cat sat on"` is `text='the cat sat on'`.

Only the standard library is imported here: the help pages need these words too.
"""

from __future__ import annotations

import re

from lmtool.cli.help_pages import VERBS, keys_of
from lmtool.errors import UserError

# Hydra's forms: key=value, +key=value, ++key=value, group@package=option, ~key and ~key=value.
SETTING = re.compile(r"(?:\+{0,2}(\w+)[\w./@:-]*=|~(\w+)[\w./@:-]*(?:=|$))")


def as_settings(verb: str, words: list[str]) -> list[str]:
    """The words of a line after its verb with what is no setting made one, for the key that the verb declares.

    A verb that declares none has its words back as they are. Raises UserError for a second text and for one that is
    no UTF-8.
    """
    declared = VERBS[verb].argument if verb in VERBS else None
    if declared is None:
        return words
    key = declared.removesuffix("...")
    known = keys_of(verb)
    settings = [word for word in words if _is_setting(word, known)]
    free = [word for word in words if not _is_setting(word, known)]
    if not free:
        return words
    for word in free:
        if any("\ud800" <= letter <= "\udfff" for letter in word):  # how Python keeps bytes that it cannot decode
            raise UserError(f"{key}: {word.encode('utf-8', 'surrogateescape')!r} is no UTF-8 text")
    if key != declared:
        return [*settings, f"{key}=[{','.join(map(quoted, free))}]"]
    if len(free) > 1:
        raise UserError(f'{key}: {free[0]!r} and {free[1]!r} are two: put one pair of quotes around it all, as "a b"')
    return [*settings, f"{key}={quoted(free[0])}"]


def _is_setting(word: str, known: set[str]) -> bool:
    """Whether a word has the form of a setting: with white space in it only if the key is known; without, a key may be
    misspelt, and `text=a=b` says that it is not.
    """
    found = SETTING.match(word)
    return found is not None and ((found[1] or found[2]) in known or re.search(r"\s", word) is None)


def is_flag(word: str) -> bool:
    """Whether a word of the line is one of Hydra's flags; text may begin with a dash too, but goes on after a space."""
    return word.startswith("-") and re.search(r"\s", word) is None


def quoted(text: str) -> str:
    """A value of Hydra's override grammar that means the text itself, whatever stands in it.

    In quotes only a quote and the backslashes before one are special; `${` would begin an interpolation of OmegaConf's.
    """
    text = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
    text = re.sub(r"(\\+)(?='|\Z)", r"\1\1", text)
    return "'" + text.replace("'", "\\'") + "'"

"""Notes on characters of a text that are easily missed: invisible ones, normal forms, and letters of one language."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable

from lmtool.config.data import DataConfig, Normalize, Spaces
from lmtool.data.text_rules import FORMS, is_unusual_space

DOTLESS_I = "\u0131"
SHOWN, BEFORE = 20, 10  # characters of an example, and how many of them before the first unusual one


def notes_on_words(words: Iterable[tuple[str, int]], data: DataConfig, changed: int, total: int) -> list[str]:
    """Return notes on the words of a data set.

    words: those of all splits with their counts, as they are in the store. changed: number of those that were not in
    the normal form, of `total`.
    """
    rules, notes = data.vocabulary, []
    words = [(word, count) for word, count in words if count and not word.isascii()]
    if changed:
        notes.append(f"{changed:,} of {total:,} words were not in {FORMS[data.normalize]}: they are written in it")
    if data.normalize is Normalize.none:
        decomposed = sum(count for word, count in words if not unicodedata.is_normalized("NFC", word))
        if decomposed:
            notes.append(f"{decomposed:,} words are not in NFC: data.normalize=nfc makes equal what looks so")
    if data.spaces is Spaces.ascii and not rules.unit.is_character and (spaces := unusual_spaces(words)):
        notes.append(
            f"within words are {spaces}: data.spaces=unicode separates words at the spaces and leaves out the rest"
        )
    dotless = sum(count for word, count in words if DOTLESS_I in word)
    if dotless and rules.lowercase is True:
        what = f"{dotless:,} words have a dotless i, as in Turkish"
        notes.append(f"{what}: data.vocabulary.lowercase=tr (or az) turns I into it, and \u0130 into i")
    return notes


def unusual_spaces(words: Iterable[tuple[str, int]]) -> str:
    """Return which white space and invisible characters are within words, given with their counts, in how many, and an
    example; empty if there are none.
    """
    found: Counter[str] = Counter()
    example = ""
    for word, count in words:
        for character in set(word):
            if is_unusual_space(character):
                found[character] += count
                example = example or word
    named = (f"{unicodedata.name(character, 'control')} in {count:,}" for character, count in found.most_common())
    return f"{', '.join(named)}, e.g. {_shown(example)}" if found else ""


def _shown(word: str) -> str:
    """Return the beginning of a word with its white space and invisible characters as <U+00A0>."""
    first = max(0, min(k for k, character in enumerate(word) if is_unusual_space(character)) - BEFORE)
    return "".join(f"<U+{ord(c):04X}>" if is_unusual_space(c) else c for c in word[first : first + SHOWN])

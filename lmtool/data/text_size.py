"""The size of a text in characters and words, from its ids."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lmtool.data.text_rules import count_characters, graphemes
from lmtool.data.tokenizer import EOS_ID, NEWLINE, RESERVED, Ids, is_white
from lmtool.system.arrays import pieces_of

IDS_AT_ONCE = 1 << 20


def text_size(ids: Ids, types: list[str], *, chars: bool) -> tuple[int, int]:
    """Return the number of characters of a text, and of its words and sentence ends, given its provisional ids.

    The characters are `len(" ".join(words)) + 1` in NFC for each line that has words or is a sentence, regardless of
    its white space. chars: whether tokens are characters.
    """
    letters = [0, *(0 if is_white(word) else count_characters(word) for word in types[EOS_ID + 1 :])]
    characters, words = map(int, _text_size(ids, np.array(letters, dtype=np.int64), chars))
    return characters - (_composed(ids, types) if chars else 0), words


def _composed(ids: Ids, types: list[str]) -> int:
    """Return the number of characters by which NFC shortens a text of code points, given their ids."""
    letters = types[len(RESERVED) :]
    joins = any(len(graphemes(before + letter)) == 1 for letter in letters for before in ("a", "\u1100", "\uac00"))
    if not joins or any(len(letter) > 1 for letter in letters):
        return 0
    points = np.array([NEWLINE] * len(RESERVED) + list(map(ord, letters)), dtype=np.uint32)
    composed, rest = 0, ""
    for piece in pieces_of(ids, IDS_AT_ONCE):
        text = rest + points[piece].tobytes().decode("utf-32-le", "surrogatepass")
        end = max(text.rfind("\n"), text.rfind(" ")) + 1
        composed += end - count_characters(text[:end])
        rest = text[end:]
    return composed + len(rest) - count_characters(rest)


@numba.njit(cache=True, nogil=True)
def _text_size(ids: Any, letters: Any, chars: Any) -> Any:
    """Return the numbers of text_size, in one pass over ids on disk (tests/data/test_characters.py has a plain form).

    letters: int64 `[types]`, number of characters of each type, 0 for white space and `</s>`.
    """
    characters = words = ends = 0
    in_word = has_words = False
    for token in ids:
        size = letters[token]
        if size > 0:
            if not (chars and in_word):
                words += 1
                characters += 1  # the space or the line end after it
            characters += size
            has_words = True
        elif token == EOS_ID:
            ends += 1
            characters += not has_words
            has_words = False
        in_word = size > 0
    return characters, words + ends

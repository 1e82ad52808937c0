"""Constants of ARPA files, and the compiled parser of the lines of their sections."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lmtool.data.word_table import find_word
from lmtool.language_model import LN10

ZERO = -99.0  # the format's log10 of 0
COMMENT = "# lmtool "  # before the JSON of values for which the format has no place

# Errors in a line that the parser finds.
GOOD, NO_NUMBER, FEW_WORDS, MANY_WORDS, UNKNOWN_WORD, POSITIVE, CARRIAGE_RETURN, LARGE = range(8)
MESSAGES = {
    NO_NUMBER: "should begin with log10 p, a number",
    FEW_WORDS: "has fewer words than the n-grams of its section",
    MANY_WORDS: "has more than its words and one number after them",
    UNKNOWN_WORD: "has a word that is not among the 1-grams",
    POSITIVE: "has a positive log10 p, but no probability is above 1",
    LARGE: "has a log10 back-off weight above 99, which is not a weight",
    CARRIAGE_RETURN: "ends in CR LF: convert the file to LF, as with dos2unix",
}


@numba.njit(cache=True, nogil=True)
def _number(block: Any, first: int, last: int) -> Any:
    """Return the decimal number in bytes `first` to before `last`, NaN if it is not one."""
    at = first
    negative = False
    if at < last and (block[at] == 45 or block[at] == 43):
        negative = block[at] == 45
        at += 1
    if last - at == 3 and block[at] == 105 and block[at + 1] == 110 and block[at + 2] == 102:  # inf
        return -np.inf if negative else np.inf
    value, scale, digits = 0.0, 0, 0
    point = False
    while at < last and (48 <= block[at] <= 57 or (block[at] == 46 and not point)):
        if block[at] == 46:
            point = True
        else:
            value = value * 10.0 + (block[at] - 48)
            digits += 1
            scale -= 1 if point else 0
        at += 1
    if digits == 0:
        return np.nan
    if at < last and (block[at] == 101 or block[at] == 69):  # e, E
        at += 1
        down = False
        if at < last and (block[at] == 45 or block[at] == 43):
            down = block[at] == 45
            at += 1
        exponent = 0
        if at == last:
            return np.nan
        while at < last and 48 <= block[at] <= 57:
            exponent = min(exponent * 10 + (block[at] - 48), 1000)
            at += 1
        scale += -exponent if down else exponent
    if at != last:
        return np.nan
    value = value / 10.0**-scale if scale < 0 else value * 10.0**scale
    return -value if negative else value


@numba.njit(cache=True, nogil=True)
def parse_lines(
    block: Any, at: int, slots: Any, starts: Any, arena: Any, words: Any, values: Any
) -> tuple[Any, Any, Any]:
    """Read lines into words `[M, k]` and values `[2, M]`, log p and log back-off weight in nats.

    Stops at a blank line, at a line that begins with a backslash or is wrong, after M lines, and at the block's end.

    Returns the position after the last line read, the number of lines read, and the error of the next one, or GOOD.
    """
    size, k = words.shape
    row = 0
    while row < size and at < len(block):
        end = at
        while block[end] != 10:
            end += 1
        if end == at or block[at] == 92:  # an empty line, or a backslash
            return at, row, GOOD
        if block[end - 1] == 13:
            return at, row, CARRIAGE_RETURN
        column = 0
        first = at
        while first < end:
            last = first
            while last < end and block[last] != 9 and block[last] != 32:
                last += 1
            if last > first:
                if column == 0 or column == k + 1:
                    value = _number(block, first, last)
                    if np.isnan(value) or np.isposinf(value):
                        return at, row, NO_NUMBER if column == 0 else MANY_WORDS
                    if column == 0 and value > 0:
                        return at, row, POSITIVE
                    if value > -ZERO:
                        return at, row, LARGE
                    values[1 if column else 0, row] = value * LN10 if value > ZERO else -np.inf
                elif column > k + 1:
                    return at, row, MANY_WORDS
                else:
                    word = find_word(block, first, last, slots, starts, arena)
                    if word < 0:
                        return at, row, UNKNOWN_WORD
                    words[row, column - 1] = word
                column += 1
            first = last + 1
        if column < k + 1:
            return at, row, FEW_WORDS
        row += 1
        at = end + 1
    return at, row, GOOD

"""The lines of files of counts, words and after them a whole number, read and written by compiled code."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

SPACE, TAB, LINE_FEED, RETURN = 32, 9, 10, 13
GOOD, NO_COUNT = range(2)
DIGITS = 15  # of a count, at most


@numba.njit(cache=True, nogil=True)
def parse_counts(block: Any, at: int, spans: Any, counts: Any) -> tuple[Any, Any, Any, Any]:
    """Read lines from byte `at` on; of those with k words, the spans of words int64 `[M, k, 2]` and the counts `[M]`.

    Stops after M such lines, at the block's end, and at a line that has no word, or does not end with a whole number.
    Returns the position after the last line read, the lines read, those with k words, and the error of the next one.
    """
    size, k = spans.shape[0], spans.shape[1]
    lines, row = 0, 0
    while row < size and at < len(block):
        end = at
        while block[end] != LINE_FEED:
            end += 1
        words = -1  # the last token is the count
        first, last = at, at
        i = at
        while i < end:
            while i < end and (block[i] == SPACE or block[i] == TAB or block[i] == RETURN):
                i += 1
            begin = i
            while i < end and block[i] != SPACE and block[i] != TAB and block[i] != RETURN:
                i += 1
            if begin < i:
                if 0 <= words < k:
                    spans[row, words, 0] = first
                    spans[row, words, 1] = last
                words += 1
                first, last = begin, i
        if words >= 0:
            value = np.int64(0)
            for j in range(first, last):
                if not 48 <= block[j] <= 57 or last - first > DIGITS:
                    return at, lines, row, NO_COUNT
                value = value * 10 + (block[j] - 48)
            if words == 0:
                return at, lines, row, NO_COUNT
            if words == k:
                counts[row] = value
                row += 1
        lines += 1
        at = end + 1
    return at, lines, row, GOOD


@numba.njit(cache=True, nogil=True)
def format_counts(words: Any, counts: Any, starts: Any, arena: Any, out: Any) -> Any:
    """Write n-grams `[M, k]` with counts `[M]` as lines into `out`; returns the number of bytes.

    starts, arena: where the UTF-8 bytes of each word begin, and these.
    """
    at = 0
    for i in range(len(words)):
        for j in range(words.shape[1]):
            for b in range(starts[words[i, j]], starts[words[i, j] + 1]):
                out[at] = arena[b]
                at += 1
            out[at] = TAB if j == words.shape[1] - 1 else SPACE
            at += 1
        ten = np.int64(1)
        while counts[i] // ten >= 10:
            ten *= 10
        while ten > 0:
            out[at] = 48 + (counts[i] // ten) % 10
            at += 1
            ten //= 10
        out[at] = LINE_FEED
        at += 1
    return at

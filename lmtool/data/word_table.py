"""Words by the bytes of their UTF-8, for compiled code: a hash table, with open addressing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.data.tokeniser import hash_bytes


def joined(words: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each word begins in the bytes of all, and where the last ends, `[W + 1]`; and these bytes."""
    encoded = [word.encode() for word in words]
    starts = np.cumsum([0, *(len(word) for word in encoded)])
    return starts, np.frombuffer(b"".join(encoded) + b"\0", dtype=np.uint8)


class WordTable:
    """From the bytes of words, all different, to their numbers."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        self.starts, self.arena = joined(words)
        self.slots = np.full(1 << max(2 * len(words), 2).bit_length(), -1, dtype=np.int64)
        _fill(self.slots, self.starts, self.arena)


@numba.njit(cache=True, nogil=True)
def _fill(slots: Any, starts: Any, arena: Any) -> None:
    mask = np.uint64(len(slots) - 1)
    for word in range(len(starts) - 1):
        slot = hash_bytes(arena, starts[word], starts[word + 1]) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = word


@numba.njit(cache=True, nogil=True)
def find_word(block: Any, first: int, last: int, slots: Any, starts: Any, arena: Any) -> Any:
    """The number of the word in bytes `first` to before `last`, -1 for none; then the arrays of a WordTable."""
    mask = np.uint64(len(slots) - 1)
    slot = hash_bytes(block, first, last) & mask
    while slots[slot] >= 0:
        word = slots[slot]
        if starts[word + 1] - starts[word] == last - first:
            same = True
            for i in range(last - first):
                if arena[starts[word] + i] != block[first + i]:
                    same = False
                    break
            if same:
                return word
        slot = (slot + np.uint64(1)) & mask
    return np.int64(-1)


@numba.njit(cache=True, nogil=True)
def find_words(block: Any, spans: Any, slots: Any, starts: Any, arena: Any, numbers: Any) -> None:
    """The numbers `[M, k]` of the words in spans `[M, k, 2]` of a block, -1 for none."""
    for i in range(spans.shape[0]):
        for j in range(spans.shape[1]):
            numbers[i, j] = find_word(block, spans[i, j, 0], spans[i, j, 1], slots, starts, arena)

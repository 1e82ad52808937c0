"""Contexts and targets of tokens, by index arithmetic: never stored, made when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from lmtool.language_model import IntArray

Array = npt.NDArray[Any]
FAR = 255  # tokens from the sentence's start that are told apart
BLOCK = 1 << 16  # tokens that are read from a store in one piece
GROUP = 64  # blocks whose examples are shuffled together: 4 million, some 50 MB


class Windows:
    """Tokens in memory, whose contexts can be made.

    padded: ids `[N + 1]`, `<s>` the last of them, which index -1 finds. position: `[N]`, how many tokens of its
    sentence stand before each token, at most FAR.
    """

    def __init__(self, padded: Array, position: npt.NDArray[np.uint8]) -> None:
        self.padded = padded
        self.position = position

    def __call__(self, index: IntArray, size: int) -> tuple[IntArray, IntArray]:
        """Contexts `[B, size]` and targets `[B]` of the tokens at `index` `[B]`; size at most FAR.

        A context is the `size` tokens before its target, `<s>` in front of the sentence's first.
        """
        back = np.arange(size, 0, -1)  # distance of each context word from the target
        where = np.where(back <= self.position[index][:, None], index[:, None] - back, -1)  # [B, size]
        return self.padded[where].astype(np.int64), self.padded[index].astype(np.int64)


class StoredTokens:
    """A split that stays in its store and is read block by block: for training on what memory does not hold.

    ids: the dataset `[N]`, open. eos: the id that ends sentences, None for text without. bos: that of `<s>`.
    """

    def __init__(self, ids: h5py.Dataset, eos: int | None, bos: int) -> None:
        self._ids = ids
        self._eos = eos
        self._bos = bos
        self.tokens = len(ids)
        self.blocks = -(-self.tokens // BLOCK)

    def group_sizes(self) -> list[int]:
        """How many examples each group of an order is sure to have, whichever blocks are in it."""
        smallest = self.tokens // self.blocks
        return [min(GROUP, self.blocks - first) * smallest for first in range(0, self.blocks, GROUP)]

    def groups(self, order: IntArray, size: int, skip: int = 0) -> Iterator[tuple[Windows, IntArray]]:
        """The groups of an order of the blocks, without the first `skip`: windows, and the places of its examples.

        order: `[blocks]`, a permutation. size: of the contexts that will be asked for, at most FAR.
        """
        for first in range(skip * GROUP, self.blocks, GROUP):
            yield self._read([self._limits(block) for block in order[first : first + GROUP].tolist()], size)

    def windows(self, index: IntArray, size: int) -> tuple[IntArray, IntArray]:
        """As Windows, for tokens anywhere: each is read by itself."""
        windows, places = self._read([(at, at + 1) for at in index.tolist()], size)
        return windows(places, size)

    def _limits(self, block: int) -> tuple[int, int]:
        return self.tokens * block // self.blocks, self.tokens * (block + 1) // self.blocks

    def _read(self, limits: list[tuple[int, int]], size: int) -> tuple[Windows, IntArray]:
        """The tokens from each first to before each last, with `size` tokens in front of each piece."""
        begins = [max(0, first - size) for first, _ in limits]
        lengths = np.array([last - begin for begin, (_, last) in zip(begins, limits, strict=True)])
        ends = np.cumsum(lengths)
        padded = np.empty(ends[-1] + 1, dtype=self._ids.dtype)
        padded[-1] = self._bos
        places = []
        for begin, (first, last), end in zip(begins, limits, ends.tolist(), strict=True):
            padded[end - (last - begin) : end] = self._ids[begin:last]
            places.append(np.arange(end - (last - first), end))
        # A piece's first token counts as a sentence's first: what stands in front of it is too far off to matter, or
        # nothing does.
        is_first = np.zeros(ends[-1], dtype=bool)
        is_first[ends - lengths] = True
        if self._eos is not None:
            is_first[1:] |= padded[:-2] == self._eos
        return Windows(padded, positions(np.flatnonzero(is_first), int(ends[-1]))), np.concatenate(places)


def positions(starts: IntArray, tokens: int) -> npt.NDArray[np.uint8]:
    """How many tokens of its sentence stand before each of so many tokens, at most FAR; starts: where sentences
    begin, ascending, 0 the first.
    """
    found = np.empty(tokens, dtype=np.uint8)
    step = 1 << 22  # bounds what is made on the way
    for first in range(0, tokens, step):
        last = min(first + step, tokens)
        here = starts[np.searchsorted(starts, first, side="right") - 1 : np.searchsorted(starts, last, side="left")]
        lengths = np.diff(np.append(np.maximum(here, first), last))
        found[first:last] = np.minimum(np.arange(first, last) - np.repeat(here, lengths), FAR)
    return found

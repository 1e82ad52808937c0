"""Contexts and targets of tokens, by index arithmetic: made when they are needed, never stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from lmtool.errors import UserError
from lmtool.system.arrays import IntArray
from lmtool.system.parallel import read_ahead

Array = npt.NDArray[Any]
FAR = 255  # the largest distance from the sentence's start that is kept
BLOCK = 1 << 16  # tokens that are read from a store at once
PIECE = 1 << 22  # tokens whose positions are found at once
GROUP = 64  # blocks whose examples are shuffled together: 4 million, some 50 MB


def context_reset_mask(starts: IntArray, share: float) -> npt.NDArray[np.bool_]:
    """Which of the sentences that begin at tokens `starts` `[S]` begin anew: about this share of any number of them.

    By the fraction of the token's number times the golden ratio, which is spread evenly (Knuth 1973, section 6.4), so
    that it is the same for the same text however it is read.
    """
    spread = starts.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (spread >> np.uint64(11)).astype(np.float64) < share * 2.0**53


class Windows:
    """Tokens in memory, with what their contexts are made from.

    padded: ids `[N + 1]`, the last of them `<s>`, so that index -1 gives it. position: uint8 `[N]`, the number of
    tokens before each token in its sentence, at most FAR; or int64 and without a limit, for contexts of more.
    """

    def __init__(self, padded: Array, position: npt.NDArray[np.uint8] | IntArray) -> None:
        self.padded = padded
        self.position = position

    def __call__(self, index: IntArray, size: int) -> tuple[IntArray, IntArray]:
        """Contexts int64 `[B, size]` and targets int64 `[B]` of the tokens at `index` `[B]`; size at most FAR, unless
        the positions have no limit.

        A context is the `size` tokens before its target in the sentence, left-padded with `<s>`.
        """
        back = np.arange(size, 0, -1)  # distance of each context word from the target
        where = np.where(back <= self.position[index][:, None], index[:, None] - back, -1)  # [B, size]
        return self.padded[where].astype(np.int64), self.padded[index].astype(np.int64)


class StoredTokens:
    """A split that stays in its store and is read block by block: for training on what does not fit into memory.

    ids: the dataset `[N]`, open. eos: the id that ends sentences, None for text without. bos: the id of `<s>`.
    reset_share: share of the sentences whose context does not reach what precedes them; 1 for all.
    """

    def __init__(self, ids: h5py.Dataset, eos: int | None, bos: int, reset_share: float = 1.0) -> None:
        self._ids, self._reset_share = ids, reset_share
        self._eos = eos
        self._bos = bos
        self.tokens = len(ids)
        self.blocks = -(-self.tokens // BLOCK)

    def group_sizes(self) -> list[int]:
        """The number of examples that each group of blocks has at least, whichever blocks are in it."""
        smallest = self.tokens // self.blocks
        return [min(GROUP, self.blocks - first) * smallest for first in range(0, self.blocks, GROUP)]

    def groups(self, order: IntArray, size: int, skip: int = 0) -> Iterator[tuple[Windows, IntArray]]:
        """The groups of blocks in an order, without the first `skip`: their windows, and the indices of their examples.

        order: `[blocks]`, a permutation. size: of the contexts, at most FAR.
        """
        yield from read_ahead(
            self._read([self._limits(block) for block in order[first : first + GROUP].tolist()], size)
            for first in range(skip * GROUP, self.blocks, GROUP)
        )

    def windows(self, index: IntArray, size: int) -> tuple[IntArray, IntArray]:
        """Contexts int64 `[B, size]` and targets int64 `[B]` of the tokens at `index` `[B]`, each read by itself."""
        windows, examples = self._read([(token, token + 1) for token in index.tolist()], size)
        return windows(examples, size)

    def _limits(self, block: int) -> tuple[int, int]:
        return self.tokens * block // self.blocks, self.tokens * (block + 1) // self.blocks

    def _read(self, limits: list[tuple[int, int]], size: int) -> tuple[Windows, IntArray]:
        """The tokens from each first to before each last, with the `size` tokens before each piece."""
        starts = [max(0, first - size) for first, _ in limits]
        lengths = np.array([last - start for start, (_, last) in zip(starts, limits, strict=True)])
        ends = np.cumsum(lengths)
        padded = np.empty(ends[-1] + 1, dtype=self._ids.dtype)
        padded[-1] = self._bos
        examples = []
        for start, (first, last), end in zip(starts, limits, ends.tolist(), strict=True):
            try:
                padded[end - (last - start) : end] = self._ids[start:last]
            except OSError as error:
                raise UserError(f"the store cannot be read: {error}; start again with resume=") from error
            examples.append(np.arange(end - (last - first), end))
        if (largest := padded.max()) > self._bos:
            raise UserError(f"the store is damaged: id {largest:,} of {self._bos + 1:,} words; delete it")
        # A piece's first token counts as a sentence's first: no context reaches what comes before it.
        is_first = np.zeros(ends[-1], dtype=bool)
        is_first[ends - lengths] = True
        if self._eos is not None:
            ends_before = np.flatnonzero(padded[:-2] == self._eos) + 1
            piece = np.searchsorted(ends, ends_before, side="right")
            place = ends_before - (ends - lengths)[piece] + np.array(starts)[piece]  # in the text
            is_first[ends_before[context_reset_mask(place, self._reset_share)]] = True
        return Windows(padded, positions(np.flatnonzero(is_first), int(ends[-1]))), np.concatenate(examples)


def positions(starts: IntArray, tokens: int) -> npt.NDArray[np.uint8]:
    """uint8 `[tokens]`: the number of tokens before each token in its sentence, at most FAR.

    starts: where sentences begin, ascending, 0 the first.
    """
    position = np.empty(tokens, dtype=np.uint8)
    for first in range(0, tokens, PIECE):
        last = min(first + PIECE, tokens)
        here = starts[np.searchsorted(starts, first, side="right") - 1 : np.searchsorted(starts, last, side="left")]
        lengths = np.diff(np.append(np.maximum(here, first), last))
        position[first:last] = np.minimum(np.arange(first, last) - np.repeat(here, lengths), FAR)
    return position

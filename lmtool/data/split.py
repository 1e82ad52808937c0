"""A split in memory or in its store, with contexts and targets made by index arithmetic when needed, never stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import h5py
import numpy as np
import numpy.typing as npt
from numba import njit

from lmtool.errors import UserError
from lmtool.system.arrays import Array, IntArray
from lmtool.system.parallel import read_ahead

MAX_POSITION = 255  # tokens; larger distances from the start of a sentence are not distinguished
BLOCK_TOKENS = 1 << 16  # tokens read from a store together
GROUP_BLOCKS = 64  # blocks whose examples are shuffled together: 4 million, about 50 MB
CHUNK_TOKENS = 1 << 22  # tokens whose positions are found together: bounds memory


def context_reset_mask(starts: IntArray, share: float) -> npt.NDArray[np.bool_]:
    """Return for each of the sentences that begin at tokens `starts` `[S]` whether its context is reset.

    In any number of sentences, about this share is reset. The choice is by the fraction of the token's number times the
    golden ratio, which is spread evenly (Knuth 1973, section 6.4): it is the same however the text is read.
    """
    spread = starts.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (spread >> np.uint64(11)).astype(np.float64) < share * 2.0**53


def positions(starts: IntArray, tokens: int) -> npt.NDArray[np.uint8]:
    """Return the number of tokens before each token since the last of `starts`, at most MAX_POSITION: uint8."""
    position = np.empty(tokens, dtype=np.uint8)
    for first in range(0, tokens, CHUNK_TOKENS):
        last = min(first + CHUNK_TOKENS, tokens)
        here = starts[np.searchsorted(starts, first, side="right") - 1 : np.searchsorted(starts, last, side="left")]
        lengths = np.diff(np.append(np.maximum(here, first), last))
        position[first:last] = np.minimum(np.arange(first, last) - np.repeat(here, lengths), MAX_POSITION)
    return position


@dataclass(frozen=True, eq=False)
class Windows:
    """Tokens in memory, with the arrays from which their contexts are made.

    padded: ids `[N + 1]`; the last is `<s>`, so that index -1 gives it. position: uint8 `[N]`, the number of tokens
    before each token in its sentence, at most MAX_POSITION.
    """

    padded: Array
    position: npt.NDArray[np.uint8]

    def __call__(self, index: IntArray, size: int) -> tuple[IntArray, IntArray]:
        """Return contexts int64 `[B, size]` and targets int64 `[B]` of the tokens at `index` `[B]`: the `size` tokens,
        at most MAX_POSITION, before each target in the sentence, left-padded with `<s>`.
        """
        return self.at(index, self.position[index], size)

    def at(self, index: IntArray, position: Array, size: int) -> tuple[IntArray, IntArray]:
        """Return contexts and targets, as a call does, of tokens at `index` with these positions `[B]`."""
        targets = self.padded[index].astype(np.int64)  # raises IndexError for an index out of range
        contexts = np.full((len(targets), size), self.padded[-1], np.int64)
        _copy_contexts(self.padded, index, position, contexts)
        return contexts, targets


@njit(cache=True, nogil=True)
def _copy_contexts(padded: Array, index: Array, position: Array, contexts: Array) -> None:
    """Write the words of each context that are in the sentence; indexing took 4 times as long."""
    size = contexts.shape[1]
    for b in range(len(index)):
        before = min(size, np.int64(position[b]))
        for c in range(size - before, size):
            contexts[b, c] = padded[index[b] - size + c]


@dataclass(frozen=True)
class Split:
    """The predicted tokens of one split, N of them in S sentences.

    ids: `[N]`, of the smallest unsigned type that fits; every word and, in text with sentences, one `</s>` after each
    sentence.
    offsets: int64 `[S + 1]`, where sentences begin, and N; `[0, N]` without sentences.
    oov_positions: int64, the positions of words outside the vocabulary, whose id is that of `<unk>`.
    characters: number of characters of its words, counting one between two words and one per line; 0 if unknown.
    bos: the id of `<s>`.
    independent_sentences: whether sentences are independent of each other, instead of running text.
    documents: int64, where texts begin that are independent of each other, and N; None for one running text.
    words: number of words and sentence ends, whatever the tokens are; None if unknown.
    oov_words: the words at oov_positions; None if unknown, as in a store.
    """

    ids: Array
    offsets: IntArray
    oov_positions: IntArray
    characters: int
    bos: int
    independent_sentences: bool = False
    documents: IntArray | None = None
    words: int | None = None
    oov_words: Sequence[str] | None = None

    @property
    def tokens(self) -> int:
        """N, the number of predicted tokens."""
        return len(self.ids)

    @property
    def text_offsets(self) -> IntArray:
        """Where independent texts begin, and N: int64 `[D + 1]`."""
        return np.unique([0, self.tokens]) if self.documents is None else self.documents

    def as_stream(self, across_sentences: bool, reset_share: float = 0.0) -> Split:
        """Return the text as one stream, or one per document, if contexts may cross sentences, else unchanged.

        reset_share: share of the sentences whose context is reset nevertheless.
        """
        if not across_sentences or self.independent_sentences or len(self.offsets) <= 2:
            return self
        if self.documents is not None or not reset_share:
            return self._joined
        starts = self.offsets[1:-1]
        chosen = starts[context_reset_mask(starts, reset_share)]
        return replace(self, offsets=np.concatenate([self.offsets[:1], chosen, self.offsets[-1:]]))

    @cached_property
    def _joined(self) -> Split:
        # Kept, so that the stream's in_memory is made only once.
        return replace(self, offsets=self.offsets[[0, -1]] if self.documents is None else self.documents)

    @cached_property
    def in_memory(self) -> Windows:
        """The tokens in memory, with the arrays from which contexts are made."""
        padded = np.append(self.ids, np.asarray(self.bos, dtype=self.ids.dtype))
        return Windows(padded, positions(self.offsets[:-1], self.tokens))

    def full_windows(self, size: int, name: str = "train") -> IntArray:
        """Return the positions of the tokens with at least `size` tokens before them in their sentence, int64.

        Raises UserError, with the split's name, if there are none, or for more than MAX_POSITION.
        """
        found = np.flatnonzero(self.in_memory.position >= size) if size <= MAX_POSITION else np.empty(0, np.int64)
        if not len(found):
            few = f"at most {MAX_POSITION}" if size > MAX_POSITION else f"no sentence of {name} has {size + 1:,} tokens"
            raise UserError(f"model.full_windows=true with model.context_size={size}: {few}; lower it")
        return found

    def windows(self, index: IntArray, size: int | None) -> tuple[IntArray, IntArray]:
        """Return contexts int64 `[B, size]`, left-padded with `<s>`, and targets int64 `[B]` of tokens at index `[B]`.

        size: number of words per context; None for all words before and at least one `<s>`.
        """
        if size is not None and size <= MAX_POSITION:
            return self.in_memory(index, size)
        position = index - self.offsets[np.searchsorted(self.offsets, index, side="right") - 1]
        return self.in_memory.at(index, position, int(position.max(initial=0)) + 1 if size is None else size)

    def occurrences(self, ngram: IntArray) -> tuple[int, Array]:
        """Return how often an n-gram of words, int64 `[n]`, occurs in one sentence, and the words that follow it there.

        Its first word may be `<s>`; the n-gram of no words occurs before each token.
        """
        words = ngram[1:] if (at_start := len(ngram) > 0 and int(ngram[0]) == self.bos) else ngram
        begins = self.offsets[:-1][np.diff(self.offsets) >= len(words)] if at_start else np.arange(self.tokens)
        if len(words) and not at_start:
            begins = np.flatnonzero(self.ids[: max(self.tokens - len(words) + 1, 0)] == words[0])
        for k, word in enumerate(words):
            begins = begins[self.ids[begins + k] == word]
        ends, limits = begins + len(words), self.offsets[np.searchsorted(self.offsets, begins, side="right")]
        return int((ends <= limits).sum()), self.ids[ends[ends < limits]]

    def contexts(self, start: int, stop: int, size: int | None) -> IntArray:
        """Return contexts int64 `[stop - start, size]` of the tokens from `start` to before `stop`."""
        return self.windows(np.arange(start, stop), size)[0]


class StoredTokens:
    """A split that stays in its store and is read block by block, to train on text that does not fit into memory.

    ids: the open dataset `[N]`. eos: the id that ends sentences; None for text without sentences. bos: the id of `<s>`.
    reset_share: share of the sentences whose context does not reach what precedes them; 1 for all.
    """

    def __init__(self, ids: h5py.Dataset, eos: int | None, bos: int, reset_share: float = 1.0) -> None:
        self._ids, self._eos, self._bos, self._reset_share = ids, eos, bos, reset_share
        self.tokens, self.blocks = len(ids), -(-len(ids) // BLOCK_TOKENS)

    def group_sizes(self) -> list[int]:
        """Return the minimum number of examples in each group of blocks, whichever blocks are in it."""
        smallest = self.tokens // self.blocks
        return [min(GROUP_BLOCKS, self.blocks - first) * smallest for first in range(0, self.blocks, GROUP_BLOCKS)]

    def groups(self, order: IntArray, size: int, skip: int = 0) -> Iterator[tuple[Windows, IntArray]]:
        """Yield the groups of blocks in an order, except the first `skip`: windows, and the indices of examples."""
        ends = [self.tokens * block // self.blocks for block in range(self.blocks + 1)]
        yield from read_ahead(
            self._read([(ends[k], ends[k + 1]) for k in order[first : first + GROUP_BLOCKS].tolist()], size)
            for first in range(skip * GROUP_BLOCKS, self.blocks, GROUP_BLOCKS)
        )

    def windows(self, index: IntArray, size: int) -> tuple[IntArray, IntArray]:
        """Return contexts int64 `[B, size]` and targets int64 `[B]` of the tokens at `index` `[B]`, read one by one."""
        windows, examples = self._read([(token, token + 1) for token in index.tolist()], size)
        return windows(examples, size)

    def _read(self, limits: list[tuple[int, int]], size: int) -> tuple[Windows, IntArray]:
        """Read the tokens from each first to before each last, with the `size` tokens before each piece."""
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
        # The first token of a piece is treated as the first of a sentence: no context reaches further back.
        is_first = np.zeros(ends[-1], dtype=bool)
        is_first[ends - lengths] = True
        if self._eos is not None:
            ends_before = np.flatnonzero(padded[:-2] == self._eos) + 1
            piece = np.searchsorted(ends, ends_before, side="right")
            place = ends_before - (ends - lengths)[piece] + np.array(starts)[piece]  # position in the text
            is_first[ends_before[context_reset_mask(place, self._reset_share)]] = True
        return Windows(padded, positions(np.flatnonzero(is_first), int(ends[-1]))), np.concatenate(examples)

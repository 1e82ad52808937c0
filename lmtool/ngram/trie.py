"""The n-grams of a text or a model as a trie: each one below its first words, numbered order by order.

Node g of order 1 is the word g. The nodes of order k+1 follow those of order k, sorted by the node of their first
k words and then by their last word, so that the children of a node are consecutive and their words ascend. Two
numbers a node suffice: its last word, and where its children begin. Both are packed into few bits, and the trie can
be searched where it lies in a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.packed import Packed, read, read_short, width_of, words_needed
from lmtool.ngram.storage import Storage
from lmtool.system.parallel import cut_evenly, run

Array = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]
BLOCK = 5  # log2 of the nodes that share one base of their starts


class Nodes(NamedTuple):
    """The arrays of a trie as the kernels take them.

    first: `[n + 1]`, the first node of each order, and how many there are. words: of the nodes from order 2 on.
    unigram_starts: `[V]`, first child of each word. base and starts: first child of the nodes of orders 2 to n-1,
    as the base of their block and what is to be added; one more stands at their end.
    """

    first: Array
    words: Array
    word_width: int
    unigram_starts: Array
    base: Array
    starts: Array
    start_width: int

    @property
    def starting(self) -> tuple[Array, Array, Array, int]:
        """What says where children begin."""
        return self.unigram_starts, self.base, self.starts, self.start_width

    @property
    def searching(self) -> tuple[Array, Array, Array, int, Array, int, int]:
        """What `child` and its like take first."""
        return *self.starting, self.words, self.word_width, int(self.first[-1])


# The kernels below take the arrays of Nodes one by one: taking them out of a tuple counts references, which costs more
# than the search and makes threads wait for each other.


@numba.njit(cache=True, nogil=True, inline="always")
def first_child(unigram_starts: Any, base: Any, starts: Any, start_width: int, node: int) -> Any:
    """Where the children of a node begin; those of the node before it end there."""
    inner = node - len(unigram_starts)
    if inner < 0:
        return unigram_starts[node]
    return base[inner >> BLOCK] + read(starts, start_width, inner)


@numba.njit(cache=True, nogil=True)
def child(
    unigram_starts: Any,
    base: Any,
    starts: Any,
    start_width: int,
    words: Any,
    word_width: int,
    total: int,
    node: int,
    word: int,
) -> Any:
    """The child of an inner node that ends in `word`, -1 where there is none. total: all nodes."""
    size = len(unigram_starts)
    low = first_child(unigram_starts, base, starts, start_width, node)
    length = first_child(unigram_starts, base, starts, start_width, node + 1) - low
    if low < size or length < 0 or low + length > total:
        return np.int64(-1)  # only in a damaged file
    low -= size
    # The last of the children whose word is not above the one that is looked for; no branch to mispredict.
    while length > 1:
        half = length >> 1
        below = (read(words, word_width, low + half) - word - 1) >> 63  # all ones or all zeros
        low += half & below
        length -= half
    if length == 1 and read(words, word_width, low) == word:
        return low + size
    return np.int64(-1)


@numba.njit(cache=True, nogil=True)
def children(
    unigram_starts: Any,
    base: Any,
    starts: Any,
    start_width: int,
    words: Any,
    word_width: int,
    total: int,
    asked: Any,
) -> None:
    """`child` of many: asked `[B, 3]` holds nodes and words in its first two columns, which become the children.

    All searches take each step together. No step waits for another search, so that the processor works on many at a
    time: several times as fast as one after the other. The third column is scratch.
    """
    size = len(unigram_starts)
    halves = words.view(np.uint32)
    longest = np.int64(1)
    for i in range(len(asked)):
        node = asked[i, 0]
        begin = first_child(unigram_starts, base, starts, start_width, node)
        count = first_child(unigram_starts, base, starts, start_width, node + 1) - begin
        if begin < size or count < 0 or begin + count > total:  # only in a damaged file
            begin, count = np.int64(size), np.int64(0)
        asked[i, 0] = begin - size
        asked[i, 2] = count
        longest = max(longest, count)
    while longest > 1:
        for i in range(len(asked)):
            half = asked[i, 2] >> 1
            middle = read_short(halves, word_width, asked[i, 0] + half)
            below = (middle - asked[i, 1] - 1) >> 63  # all ones or all zeros: no branch to mispredict
            asked[i, 0] += half & below
            asked[i, 2] -= half
        longest -= longest >> 1
    for i in range(len(asked)):
        low = asked[i, 0]
        here = asked[i, 2] == 1 and read(words, word_width, low) == asked[i, 1]
        asked[i, 0] = low + size if here else -1


@numba.njit(cache=True, nogil=True)
def _find_all(
    unigram_starts: Any,
    base: Any,
    starts: Any,
    start_width: int,
    words: Any,
    word_width: int,
    total: int,
    grams: Any,
    out: Any,
) -> None:
    asked = np.empty((4096, 3), np.int64)
    for first in range(0, len(grams), len(asked)):
        count = min(len(asked), len(grams) - first)
        for i in range(count):
            out[first + i] = grams[first + i, 0]
        for j in range(1, grams.shape[1]):
            for i in range(count):
                asked[i, 0] = max(out[first + i], 0)
                asked[i, 1] = grams[first + i, j]
            children(unigram_starts, base, starts, start_width, words, word_width, total, asked[:count])
            for i in range(count):
                out[first + i] = asked[i, 0] if out[first + i] >= 0 else -1


@numba.njit(cache=True, nogil=True)
def _first_children(unigram_starts: Any, base: Any, starts: Any, start_width: int, first: int, out: Any) -> None:
    for i in range(len(out)):
        out[i] = first_child(unigram_starts, base, starts, start_width, first + i)


@numba.njit(cache=True, nogil=True)
def _begins(keys: Any, word_width: int, begins: Any) -> None:
    """Where the keys of each context begin, `[contexts + 1]`, for keys context << word_width | word that ascend."""
    context = np.int64(0)
    begins[0] = 0
    for i in range(len(keys)):
        this = np.int64(keys[i] >> np.uint64(word_width))
        while context < this:
            context += 1
            begins[context] = i
    while context < len(begins) - 1:
        context += 1
        begins[context] = len(keys)


@numba.njit(cache=True, nogil=True)
def _largest_span(starts: Any) -> Any:
    largest = np.int64(0)
    for i in range(len(starts)):
        span = np.int64(starts[i]) - np.int64(starts[(i >> BLOCK) << BLOCK])
        largest = max(largest, span)
    return largest


@numba.njit(cache=True, nogil=True)
def _parents(
    unigram_starts: Any, base: Any, starts: Any, start_width: int, first: int, size: int, children: Any, out: Any
) -> None:
    for i in range(len(children)):
        # The last node whose children begin at or before this one.
        low: Any = np.int64(0)
        high: Any = np.int64(size)
        while high - low > 1:
            middle = (low + high) >> 1
            if first_child(unigram_starts, base, starts, start_width, first + middle) <= children[i]:
                low = middle
            else:
                high = middle
        out[i] = low


@dataclass(frozen=True, slots=True)
class Trie:
    """A trie of orders 1 to n over V words."""

    nodes: Nodes

    @property
    def order(self) -> int:
        """n."""
        return len(self.nodes.first) - 1

    @property
    def vocabulary_size(self) -> int:
        """V, all of them nodes."""
        return int(self.nodes.first[1])

    @property
    def sizes(self) -> list[int]:
        """How many nodes there are of each order."""
        return [int(size) for size in np.diff(self.nodes.first)]

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(part.nbytes for part in self.nodes if isinstance(part, np.ndarray))

    def first(self, order: int) -> int:
        """The first node of an order; that of order n+1 is how many nodes there are."""
        return int(self.nodes.first[order - 1])

    def begins(self, order: int, first: int, last: int) -> IntArray:
        """Where the children of nodes `first` to before `last` of an order below n begin, and where they end.

        `[last - first + 1]`, counted within the next order; the nodes are counted within theirs.
        """
        out = np.empty(last - first + 1, dtype=np.int64)
        _first_children(*self.nodes.starting, self.first(order) + first, out)
        return out - self.first(order + 1)

    def find(self, grams: Array) -> IntArray:
        """The nodes of n-grams `[M, k]` of words, -1 for those that are none, as `[M]`."""
        out = np.empty(len(grams), dtype=np.int64)
        pieces = [(a, b) for a, b in cut_evenly(len(grams)) if a < b]
        run((_find_all, *self.nodes.searching, grams[a:b], out[a:b]) for a, b in pieces)
        return out

    def parents(self, order: int, nodes: IntArray) -> IntArray:
        """The first words of nodes of an order above 1, as nodes within the order below."""
        out = np.empty(len(nodes), dtype=np.int64)
        first, size = self.first(order - 1), self.sizes[order - 2]
        _parents(*self.nodes.starting, first, size, nodes + self.first(order), out)
        return out

    def words(self, order: int, first: int, last: int) -> IntArray:
        """The last words of nodes `first` to before `last` of an order."""
        if order == 1:
            return np.arange(first, last)
        at = self.first(order) - self.vocabulary_size
        bits = self.nodes.words
        return Packed(bits, self.nodes.word_width, len(bits) * 64).get(at + first, at + last)

    def upto(self, order: int) -> Trie:
        """The trie without its orders above `order`; shares the arrays."""
        return Trie(self.nodes._replace(first=self.nodes.first[: order + 1]))


class TrieBuilder:
    """Takes the n-grams order by order, sorted, and packs them."""

    def __init__(self, vocabulary_size: int, storage: Storage | None = None) -> None:
        self.storage = storage or Storage()
        self.size = vocabulary_size
        self.word_width = width_of(vocabulary_size - 1)
        self.sizes = [vocabulary_size]
        self._words = np.zeros(words_needed(0, self.word_width), dtype=np.uint64)  # for a trie of single words too
        self._begins: list[Array] = []

    @property
    def key_width(self) -> int:
        """How many bits the keys of the next order use."""
        return self.word_width + width_of(max(self.sizes[-1] - 1, 0))

    def add(self, keys: Array) -> None:
        """The next order: keys `[M]` uint64, node of the first words within its order << word_width | last word."""
        begins = self.storage.empty(self.sizes[-1] + 1, np.uint32)
        _begins(keys, self.word_width, begins)
        self._begins.append(begins)
        done = sum(self.sizes) - self.size
        grown = self.storage.zeros(words_needed(done + len(keys), self.word_width), np.uint64)
        grown[: len(self._words)] = self._words
        self._words = grown
        packed = Packed(self._words, self.word_width, done + len(keys))
        mask = np.uint64((1 << self.word_width) - 1)
        for at in range(0, len(keys), 1 << 20):
            packed.put(done + at, keys[at : at + (1 << 20)] & mask)
        self.sizes.append(len(keys))

    def done(self) -> Trie:
        """The trie of what was added; more can be added after it, to another trie."""
        first = np.cumsum([0, *self.sizes])
        unigrams = np.full(self.size, self.size, dtype=np.int64)
        if self._begins:
            unigrams = self._begins[0][:-1] + first[1]
        inner = self.storage.empty(sum(self.sizes[1:-1]) + 1, np.uint32)  # first child of each node from order 2 on
        at = 0
        for k in range(2, len(self.sizes)):
            begins = self._begins[k - 1]
            np.add(begins[:-1], first[k], out=inner[at : at + len(begins) - 1], casting="unsafe")
            at += len(begins) - 1
        inner[at] = first[-1]
        starts = Packed.zeros(len(inner), int(_largest_span(inner)), self.storage)
        base = inner[:: 1 << BLOCK].astype(np.int64)
        for at in range(0, len(inner), 1 << 20):
            part = inner[at : at + (1 << 20)]
            bases = np.repeat(base[at >> BLOCK : (at + len(part) - 1 >> BLOCK) + 1], 1 << BLOCK)
            starts.put(at, part - bases[: len(part)])
        return Trie(Nodes(first, self._words, self.word_width, unigrams, base, starts.bits, starts.width))

"""The n-grams of a text or a model as a trie: each n-gram is a child of its first words, numbered order by order.

Node g of order 1 is the word g. The nodes of order k+1 follow those of order k, sorted by the node of their first
k words and then by their last word, so that the children of a node are consecutive and their words ascend. Two
numbers per node suffice: its last word, and where its children begin. Both are packed into few bits, and the trie can
be searched in its file, memory-mapped.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np

from lmtool.ngram.counting.sorting import sort_keys
from lmtool.ngram.tables.packed import Packed, cells_needed, width_of
from lmtool.ngram.tables.storage import Storage, whole_numbers_below
from lmtool.ngram.tables.trie_search import find_contexts, find_followers, find_parents, first_children, pack_starts
from lmtool.system.arrays import Array, IntArray, release
from lmtool.system.parallel import cut_evenly, run

NODES_PER_PIECE = 1 << 20  # nodes checked at once
NGRAMS_PER_BLOCK = 1 << 17  # n-grams of whole contexts per block


class Nodes(NamedTuple):
    """The arrays of a trie of orders 1 to n, in the form that the kernels take.

    first: int64 `[n + 1]`, the first node of each order, and the number of nodes. words: last words of the nodes from
    order 2 on, uint64, packed in word_width bits each. unigram_starts: int64 `[V]`, the first child of each word.
    blocks and starts: the first child of each node of orders 2 to n-1, and the number of nodes (see pack_starts).
    """

    first: Array
    words: Array
    word_width: int
    unigram_starts: Array
    blocks: Array
    starts: Array


@dataclass(frozen=True, slots=True)
class Trie:
    """A trie of orders 1 to n over V words."""

    nodes: Nodes

    @property
    def order(self) -> int:
        return len(self.nodes.first) - 1

    @property
    def vocabulary_size(self) -> int:
        return int(self.nodes.first[1])

    @property
    def sizes(self) -> list[int]:
        return [int(size) for size in np.diff(self.nodes.first)]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.nodes if isinstance(part, np.ndarray))

    def is_sound(self) -> bool:
        """Return whether the children of each node are nodes of the next order, and all words are below V.

        If so, no search leaves the arrays, whose sizes have been compared. Pages of a file are released once checked.
        """
        for k in range(2, self.order + 1):
            end, contexts, total = 0, self.sizes[k - 2], self.sizes[k - 1]
            for first in range(0, contexts, NODES_PER_PIECE):
                begins = self.begins(k - 1, first, min(first + NODES_PER_PIECE, contexts))
                if begins[0] != end or (np.diff(begins) < 0).any():
                    return False
                end = int(begins[-1])
                release(self.nodes.starts)
            pieces = ((first, min(first + NODES_PER_PIECE, total)) for first in range(0, total, NODES_PER_PIECE))
            if end != total or any(self.words(k, *piece).max() >= self.vocabulary_size for piece in pieces):
                return False
            release(self.nodes.words)
        return True

    def first(self, order: int) -> int:
        """Return the first node of an order; for n+1, the number of nodes."""
        return int(self.nodes.first[order - 1])

    def span(self, order: int) -> slice:
        """Return the range of an order's nodes."""
        return slice(self.first(order), self.first(order + 1))

    def first_from(self, order: int, word: int) -> int:
        """Return the first node of an order, counted within it, whose first word is `word` or a later one."""
        node = word
        for k in range(1, order):
            node = int(self.begins(k, node, node)[0]) if node < self.sizes[k - 1] else self.sizes[k]
        return node

    def begins(self, order: int, first: int, last: int) -> IntArray:
        """Return the starts of the children of nodes `first` to `last`, counted within the next order."""
        out = np.empty(last - first + 1, dtype=np.int64)
        first_children(self.nodes, self.first(order) + first, out)
        return out - self.first(order + 1)

    def find(self, grams: Array) -> IntArray:
        """Return the nodes `[M]` of n-grams `[M, k]` of words, -1 for those that are not in the trie."""
        nodes: IntArray = grams[:, 0].astype(np.int64)
        for j in range(1, grams.shape[1]):
            nodes = self.find_followers(nodes, grams[:, j].astype(np.int64))
        return nodes

    def find_contexts(self, contexts: IntArray, bos: int, length: int) -> IntArray:
        """Return the nodes of the last 1, 2, ... L = `length` words of contexts `[N, C]`, or marks, `[N, L]`."""
        out = np.empty((len(contexts), length), dtype=np.int64)
        find_contexts(self.nodes, bos, contexts, out)
        return out

    def find_followers(self, contexts: IntArray, words: IntArray) -> IntArray:
        """Return the nodes of context nodes `[N]` (or SHORT or UNSEEN) followed by words `[N]`, -1 if none, `[N]`."""
        out = np.empty(len(contexts), dtype=np.int64)
        cuts = [slice(a, b) for a, b in cut_evenly(len(contexts)) if a < b]
        run((find_followers, self.nodes, contexts[cut], words[cut], out[cut]) for cut in cuts)
        return out

    def suffixes(self) -> list[IntArray]:
        """Return for each order k from 2 on the nodes `[M]` of its n-grams' last k-1 words, or -1."""
        found: list[IntArray] = []
        for k in range(2, self.order + 1):
            found.append(self.suffixes_of_order(k, found[-1] if found else None))
        return found

    def suffixes_of_order(self, order: int, shorter: IntArray | None) -> IntArray:
        """Return the nodes of an order's n-grams without their first words, `[M]`, given those of the order below."""
        size = self.sizes[order - 1]
        if shorter is None:
            return self.words(2, 0, size)
        out = np.empty(size, dtype=np.int64)

        def search(first: int, last: int) -> None:
            begins = self.begins(order - 1, first, last)
            a, b = int(begins[0]), int(begins[-1])
            context = np.repeat(shorter[first:last], np.diff(begins))
            find_followers(self.nodes, context, self.words(order, a, b), out[a:b])

        run((search, first, last) for first, last in self.context_blocks(order))
        return out

    def parents(self, order: int, nodes: IntArray) -> IntArray:
        """Return the contexts of n-grams `[M]` of an order above 1, as nodes within the order below, `[M]`."""
        out = np.empty(len(nodes), dtype=np.int64)
        first, size = self.first(order - 1), self.sizes[order - 2]
        find_parents(self.nodes, first, size, nodes + self.first(order), out)
        return out

    def contexts(self, order: int) -> IntArray:
        """Return the contexts of all n-grams of an order above 1, as nodes within the order below."""
        begins = self.begins(order - 1, 0, self.sizes[order - 2])
        return np.repeat(np.arange(len(begins) - 1), np.diff(begins))

    def context_blocks(self, order: int) -> list[tuple[int, int]]:
        """Return ranges (first, last + 1) of the contexts of an order, each with about NGRAMS_PER_BLOCK n-grams."""
        contexts, total = self.sizes[order - 2], self.sizes[order - 1]
        ends = np.unique(np.append(self.parents(order, np.arange(0, total, NGRAMS_PER_BLOCK)), contexts))
        ends[0] = 0
        return list(itertools.pairwise(ends.tolist())) if len(ends) > 1 else [(0, contexts)]

    def words(self, order: int, first: int, last: int) -> IntArray:
        """Return the last words of nodes `first` to before `last` of an order."""
        if order == 1:
            return np.arange(first, last)
        at = self.first(order) - self.vocabulary_size
        bits = self.nodes.words
        return Packed(bits, self.nodes.word_width, len(bits) * 64)[at + first : at + last]

    def ngrams(self, order: int, first: int, last: int) -> IntArray:
        """Return all words of n-grams `first` to before `last` of an order k, `[last - first, k]`."""
        return self.ngrams_at(order, np.arange(first, last))

    def ngrams_at(self, order: int, node: IntArray) -> IntArray:
        """Return all words of ascending nodes `[M]` of an order k, counted within it, as `[M, k]`."""
        grams = np.empty((len(node), order), dtype=np.int64)
        for j in range(order, 0, -1):
            low, high = (int(node[0]), int(node[-1]) + 1) if len(node) else (0, 0)  # ascending
            grams[:, j - 1] = self.words(j, low, high)[node - low]
            if j > 1:
                node = self.parents(j, node)
        return grams

    def upto(self, order: int) -> Trie:
        """Return the trie without its orders above `order`; it shares the arrays."""
        return Trie(self.nodes._replace(first=self.nodes.first[: order + 1]))


class TrieBuilder:
    """Packs n-grams into a trie, order by order: single words first, then the keys of each longer order."""

    def __init__(self, vocabulary_size: int, storage: Storage | None = None) -> None:
        """storage: where the arrays go; memory if None."""
        self.storage = storage or Storage()
        self.size = vocabulary_size
        self.word_width = width_of(vocabulary_size - 1)
        self.sizes = [vocabulary_size]
        self._words = np.zeros(cells_needed(0, self.word_width), dtype=np.uint64)  # for a trie of single words too
        self.begins: list[Array] = []
        self._made: Trie | None = None

    def keys(self, contexts: Array, words: Array) -> Array:
        """Return the keys uint64 `[M]` of n-grams, which order them by the node of the context, then the word."""
        return (contexts.astype(np.uint64) << np.uint64(self.word_width)) | words.astype(np.uint64)

    def parts(self, ngrams: IntArray) -> tuple[Array, IntArray, IntArray]:
        """Return the keys of n-grams `[M, k]` of the next order, and the nodes within order k-1 of their first and last
        k-1 words, negative if these were not added.
        """
        trie = self.finish()
        contexts, suffixes = (trie.find(part) - trie.first(trie.order) for part in (ngrams[:, :-1], ngrams[:, 1:]))
        return self.keys(contexts, ngrams[:, -1]), contexts, suffixes

    def add_unsorted(self, keys: Array) -> tuple[Array, IntArray]:
        """Add the next order, given keys in any order, some equal; they are overwritten.

        Returns the numbers of the keys by ascending keys, and at which of these each n-gram begins.
        """
        bits = self.word_width + width_of(max(self.sizes[-1] - 1, 0))
        keys, place = sort_keys(keys, np.arange(len(keys), dtype=whole_numbers_below(len(keys))), bits)
        begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
        self.add(keys if len(begins) == len(keys) else keys[begins])
        return place, begins

    def add(self, keys: Array) -> None:
        """Add the next order. keys: distinct and ascending, `[M]`, in the form that `keys` returns."""
        contexts = self.sizes[-1]
        begins = self.storage.empty(contexts + 1, whole_numbers_below(len(keys) + 1))
        begins[0] = 0
        for first, last in self.storage.pieces(len(keys)):
            cuts = [(first + a, first + b) for a, b in cut_evenly(last - first) if a < b]
            run((_begins, keys, self.word_width, a, b, begins) for a, b in cuts)
        after = int(keys[-1]) >> self.word_width if len(keys) else 0
        begins[after + 1 :] = len(keys)  # where the children of the last context end, and of those without any
        self.begins.append(begins)
        done = sum(self.sizes) - self.size
        grown = self.storage.zeros(cells_needed(done + len(keys), self.word_width), np.uint64)
        for first, last in self.storage.pieces(len(self._words)):
            grown[first:last] = self._words[first:last]
        self._words = grown
        packed = Packed(self._words, self.word_width, done + len(keys))
        for first, last in self.storage.pieces(len(keys)):
            packed.put(done + first, keys[first:last])  # a key's lowest bits are the word
        self.sizes.append(len(keys))
        self._made = None

    def finish(self) -> Trie:
        """Return the trie of the orders so far. More orders may be added for another one."""
        if self._made is not None:
            return self._made
        first = np.cumsum([0, *self.sizes])
        unigrams = np.full(self.size, self.size, dtype=np.int64)
        if self.begins:
            unigrams = self.begins[0][:-1].astype(np.int64) + first[1]
        # The first child of each node from order 2 on.
        inner = self.storage.empty(sum(self.sizes[1:-1]) + 1, whole_numbers_below(int(first[-1]) + 1))
        at = 0
        for k in range(2, len(self.sizes)):
            begins = self.begins[k - 1]
            for a, b in self.storage.pieces(len(begins) - 1):
                inner[at + a : at + b] = begins[a:b]
                inner[at + a : at + b] += inner.dtype.type(first[k])
            at += len(begins) - 1
        inner[at] = first[-1]
        self._made = Trie(Nodes(first, self._words, self.word_width, unigrams, *pack_starts(inner, self.storage)))
        return self._made


@numba.njit(cache=True, nogil=True)
def _begins(keys: Any, word_width: int, first: int, last: int, begins: Any) -> None:
    """Write where the ascending keys of a context begin, for the contexts that keys `first` to before `last` reach."""
    context = np.int64(keys[first - 1] >> np.uint64(word_width)) if first > 0 else np.int64(0)
    for i in range(first, last):
        this = np.int64(keys[i] >> np.uint64(word_width))
        while context < this:
            context += 1
            begins[context] = i

"""Step 1: the n-grams of a text and how often each occurs.

An n-gram of order k is its first k-1 words, which are a node of the trie, and its last word: together one key of at
most 64 bits, whatever the order. One sort an order finds the distinct n-grams, numbers them, and says which of them
ends at each place of the text, which is all that the next order needs. Where memory does not suffice, the keys are
sorted in runs that go to disk and are merged (`merging`); the result is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numba
import numpy as np
import numpy.typing as npt

from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.ngram.external_sort import sort_in_runs
from lmtool.ngram.packed import Packed
from lmtool.ngram.sorting import sort_keys
from lmtool.ngram.storage import Storage
from lmtool.ngram.trie import Trie, TrieBuilder
from lmtool.system.parallel import cut_evenly, run

Array = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]

MAX_ORDER = 16
NONE = np.uint32(0xFFFFFFFF)  # no n-gram ends here: the sentence is younger than that


class Text(Protocol):
    """What is read of a split: ids `[N]` of its predicted tokens, offsets `[S + 1]` of its sentences."""

    @property
    def ids(self) -> Array: ...

    @property
    def offsets(self) -> IntArray: ...


@dataclass(frozen=True, slots=True)
class Counts:
    """The n-grams of orders 1 to n of a text.

    suffix: for each order from 2 on, the last k-1 words of each n-gram, as a node within order k-1. count: for
    each order how often each n-gram occurs; unseen words occur 0 times, `<s>` once a sentence.
    newest_word: the word whose first occurrence comes last in the text. KenLM's estimator leaves its
    unigram out of the counts of counts, and whoever wants KenLM's numbers needs to know which it was.
    """

    trie: Trie
    suffix: list[Packed]
    count: list[Packed]
    bos: int
    newest_word: int

    @property
    def order(self) -> int:
        """n."""
        return self.trie.order

    def from_start(self, order: int) -> int:
        """The n-grams of an order that begin with `<s>` are those from this one on: `<s>` is the last word."""
        node = self.bos
        for k in range(1, order):
            node = int(self.trie.begins(k, node, node)[0]) if node < self.trie.sizes[k - 1] else self.trie.sizes[k]
        return node

    def upto(self, order: int) -> Counts:
        """The counts of a model of a lower order."""
        return Counts(self.trie.upto(order), self.suffix[: order - 1], self.count[:order], self.bos, self.newest_word)


def count_ngrams(text: Text, vocabulary: Vocabulary, order: int, *, storage: Storage | None = None) -> Counts:
    """Count the n-grams of orders 1 to `order`, each sentence with one `<s>` before it.

    Unigrams are all V words of the vocabulary, the unseen ones with count 0. storage: what memory may be used;
    all that it takes, if None. Raises UserError where the order is out of range, the text is empty or too long, or
    the disk fills.
    """
    if not 1 <= order <= MAX_ORDER:
        raise UserError(f"model.order={order}: must be from 1 to {MAX_ORDER}")
    if len(text.ids) == 0:
        raise UserError("the train split has no tokens: there is nothing to count")
    total = len(text.ids) + len(text.offsets) - 1
    if total >= int(NONE):
        raise UserError(f"{total:,} tokens: n-grams of at most {int(NONE) - 1:,} tokens can be counted; use less text")
    size, bos = len(vocabulary), vocabulary.bos
    storage = (storage or Storage()).unless_enough_for(total)
    words = storage.empty(total, np.uint32)
    _insert_starts(text.ids, text.offsets, bos, words)
    seen = np.zeros(size, dtype=np.int64)
    newest = int(_count_words(words, seen))
    trie = TrieBuilder(size, storage)
    suffix: list[Packed] = []
    count = [Packed.of(seen)]
    row = words  # the n-gram of the current order that ends at each place
    for k in range(2, order + 1):
        what = words, row, bos, trie.word_width, trie.key_width, k == order
        found = _sort_at_once(*what) if storage.memory is None else sort_in_runs(*what, storage)
        keys, suffixes, counts, row = found
        trie.add(keys)
        suffix.append(Packed.of(suffixes, trie.sizes[-2] - 1, storage))
        count.append(Packed.of(counts, storage=storage))
        del found, keys, suffixes, counts
        storage.release()
    return Counts(trie.done(), suffix, count, bos, newest)


def _sort_at_once(
    words: Array, row: Array, bos: int, word_width: int, key_width: int, last: bool
) -> tuple[Array, Array, Array, Array]:
    """The n-grams of the next order: keys, suffixes, counts, and, unless it is the last, which of them ends where."""
    keys, where = keys_of(words, row, bos, word_width, 0, len(words))
    keys, where = sort_keys(keys, where, key_width)
    next_row = np.full(0 if last else len(words), NONE, dtype=np.uint32)
    keys, suffixes, counts = collapse(keys, where, row, next_row)
    return keys, suffixes, counts, next_row


def keys_of(words: Array, row: Array, bos: int, word_width: int, first: int, last: int) -> tuple[Array, Array]:
    """The keys of the n-grams that end at places `first` to before `last`, in the order of the text, and the places."""
    keys = np.empty(last - first, dtype=np.uint64)
    where = np.empty(last - first, dtype=np.uint32)
    found = _keys(words, row, bos, word_width, first, last, keys, where)
    return keys[:found], where[:found]


def collapse(keys: Array, where: Array, row: Array, next_row: Array) -> tuple[Array, Array, Array]:
    """Equal neighbours among sorted keys become one: the distinct keys, their suffixes and how many there were.

    row: the n-gram one shorter that ends at each place, which is the suffix of the longer one. next_row: is told
    at each place of `where` which distinct key stands there, unless it is empty.
    """
    cuts = cut_evenly(len(keys))
    distinct = run([(_distinct, keys, a, b) for a, b in cuts])
    before = np.cumsum([0, *distinct])
    kept = np.empty(before[-1], dtype=np.uint64)
    suffixes = np.empty(before[-1], dtype=np.uint32)
    ends = np.empty(before[-1], dtype=np.uint32)  # how many keys stand up to the last of each
    calls = [
        (_collapse, keys, where, a, b, before[t], row, next_row, kept, suffixes, ends) for t, (a, b) in enumerate(cuts)
    ]
    run(calls)
    counts = np.diff(ends, prepend=np.uint32(0))
    return kept, suffixes, counts


@numba.njit(cache=True, nogil=True)
def _insert_starts(ids: Any, offsets: Any, bos: int, words: Any) -> None:
    """The text with `<s>` before each sentence."""
    at = 0
    for s in range(len(offsets) - 1):
        words[at] = bos
        at += 1
        for i in range(offsets[s], offsets[s + 1]):
            words[at] = ids[i]
            at += 1


@numba.njit(cache=True, nogil=True)
def _count_words(words: Any, count: Any) -> Any:
    """Add up how often each word occurs; returns the one that is the last to occur for the first time."""
    newest = np.int64(0)
    for i in range(len(words)):
        word = np.int64(words[i])
        if count[word] == 0:
            newest = word
        count[word] += 1
    return newest


@numba.njit(cache=True, nogil=True)
def _keys(words: Any, row: Any, bos: int, word_width: int, first: int, last: int, keys: Any, where: Any) -> Any:
    found = 0
    for i in range(max(first, 1), last):
        context = row[i - 1]
        if context != NONE and words[i] != bos:
            keys[found] = (np.uint64(context) << np.uint64(word_width)) | np.uint64(words[i])
            where[found] = i
            found += 1
    return found


@numba.njit(cache=True, nogil=True)
def _distinct(keys: Any, first: int, last: int) -> Any:
    """How many keys from `first` to before `last` differ from the one before them."""
    found = 0
    for i in range(first, last):
        if i == 0 or keys[i] != keys[i - 1]:
            found += 1
    return found


@numba.njit(cache=True, nogil=True)
def _collapse(
    keys: Any,
    where: Any,
    first: int,
    last: int,
    before: int,
    row: Any,
    next_row: Any,
    kept: Any,
    suffixes: Any,
    ends: Any,
) -> None:
    at = before - 1
    for i in range(first, last):
        if i == 0 or keys[i] != keys[i - 1]:
            at += 1
            kept[at] = keys[i]
            suffixes[at] = row[where[i]]
        if len(next_row) > 0:
            next_row[where[i]] = at
        # The last key of a run of equal ones says where the run ends, also across a cut.
        if i == len(keys) - 1 or keys[i + 1] != keys[i]:
            ends[at] = i + 1

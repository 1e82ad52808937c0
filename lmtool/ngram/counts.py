"""Step 1: the n-grams of a text and how often each occurs.

One sort per order finds the distinct n-grams, numbers them, and says which of them ends at each position of the text,
which is all that the next order needs: in memory (lmtool.ngram.sorting), or where that does not suffice in runs on disk
(lmtool.ngram.external_sort), with the same result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numba
import numpy as np
import numpy.typing as npt

from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.ngram.external_sort import sort_in_runs
from lmtool.ngram.packed import Packed
from lmtool.ngram.sorting import NO_NGRAM, sort_in_memory
from lmtool.ngram.storage import Storage
from lmtool.ngram.trie import Trie, TrieBuilder

Array = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]

MAX_ORDER = 16


class Text(Protocol):
    """A text of S sentences: ids `[N]` of its predicted tokens, offsets int64 `[S + 1]` of the sentences."""

    @property
    def ids(self) -> Array: ...

    @property
    def offsets(self) -> IntArray: ...


@dataclass(frozen=True, slots=True)
class Counts:
    """The n-grams of orders 1 to n of a text.

    suffix: for each order k from 2 on, the last k-1 words of each n-gram, as a node within order k-1. count: for each
    order, how often each n-gram occurs; words that are not in the text 0 times, `<s>` once per sentence. bos, unk: the
    ids of `<s>` and `<unk>`. newest: the words `[at most n - 1]` of the n-gram that KenLM comes to last, whose last
    word is the one that first occurs last in the text; KenLM counts it in another way (see kenlm_count_of_counts).
    """

    trie: Trie
    suffix: list[Packed]
    count: list[Packed]
    bos: int
    unk: int
    newest: IntArray

    @property
    def order(self) -> int:
        """n."""
        return self.trie.order

    def from_start(self, order: int) -> int:
        """The first n-gram of an order that begins with `<s>`; all later ones do, as `<s>` is the last word."""
        return self.trie.first_from(order, self.bos)

    def upto(self, order: int) -> Counts:
        """The counts of a model of a lower order."""
        return replace(self, trie=self.trie.upto(order), suffix=self.suffix[: order - 1], count=self.count[:order])


def count_ngrams(text: Text, vocabulary: Vocabulary, order: int, *, storage: Storage | None = None) -> Counts:
    """Count the n-grams of orders 1 to `order`, with one `<s>` before each sentence.

    The unigrams are all V words of the vocabulary, the unseen ones with count 0. storage: what memory may be used;
    without a limit if None. Raises UserError where the order is not from 1 to MAX_ORDER, the text is empty or too long,
    or the disk is full.
    """
    if not 1 <= order <= MAX_ORDER:
        raise UserError(f"model.order={order}: must be from 1 to {MAX_ORDER}")
    if len(text.ids) == 0:
        raise UserError("the train split has no tokens: choose a data set with text in train")
    total = len(text.ids) + len(text.offsets) - 1
    if total >= int(NO_NGRAM):
        limit = int(NO_NGRAM) - 1
        raise UserError(f"the train split has {total:,} tokens: at most {limit:,} can be counted; use less text")
    size, bos = len(vocabulary), vocabulary.bos
    storage = (storage or Storage()).unless_enough_for(total)
    words = storage.empty(total, np.uint32)
    _insert_starts(text.ids, text.offsets, bos, words)
    word_counts = np.zeros(size, dtype=np.int64)
    first_places = np.full(size, -1, dtype=np.int64)
    _count_words(words, word_counts, first_places)
    newest = newest_ngram(words, first_places, vocabulary, order - 1)
    trie = TrieBuilder(size, storage)
    suffix: list[Packed] = []
    count = [Packed.of(word_counts)]
    row = words  # the n-gram of the current order that ends at each position
    for k in range(2, order + 1):
        inputs = words, row, bos, trie.word_width, trie.key_width, k == order
        if storage.memory is None:
            keys, suffixes, counts, row = sort_in_memory(*inputs)
        else:
            keys, suffixes, counts, row = sort_in_runs(*inputs, storage, storage.memory)
        del inputs  # it holds the row of the order before
        trie.add(keys)
        suffix.append(Packed.of(suffixes, trie.sizes[-2] - 1, storage))
        count.append(Packed.of(counts, storage=storage))
        del keys, suffixes, counts
        storage.release()
    return Counts(trie.finish(), suffix, count, bos, vocabulary.unk, newest)


@numba.njit(cache=True, nogil=True)
def _insert_starts(ids: Any, offsets: Any, bos: int, words: Any) -> None:
    """Fill `words` with the text, `<s>` before each sentence."""
    at = 0
    for s in range(len(offsets) - 1):
        words[at] = bos
        at += 1
        for i in range(offsets[s], offsets[s + 1]):
            words[at] = ids[i]
            at += 1


@numba.njit(cache=True, nogil=True)
def _count_words(words: Any, count: Any, first_places: Any) -> None:
    """Count each word, and find where it first occurs."""
    for i in range(len(words)):
        word = np.int64(words[i])
        if count[word] == 0:
            first_places[word] = i
        count[word] += 1


def newest_ngram(words: Array, first_places: IntArray, vocabulary: Vocabulary, length: int) -> IntArray:
    """The words of the n-gram that KenLM sorts last: `length` of them, fewer where a sentence begins.

    It numbers words by where they first occur, `[V]` (-1: nowhere), `<s>` and `</s>` before all others, and sorts
    n-grams by the last word, then by the one before it, and so on.
    """
    numbers = first_places.copy()
    numbers[vocabulary.bos] = -1
    if vocabulary.eos is not None:
        numbers[vocabulary.eos] = -1
    newest = int(numbers.argmax())
    place = int(_last_place(words, numbers, newest, vocabulary.bos, length, first_places[newest]))
    ngram = words[max(place + 1 - length, 0) : place + 1].astype(np.int64)
    return from_last_start(ngram, vocabulary.bos)


def from_last_start(words: IntArray, bos: int) -> IntArray:
    """The words from the last `<s>` on; all where there is none."""
    starts = np.flatnonzero(words == bos)
    return words[starts[-1] :] if len(starts) else words


@numba.njit(cache=True, nogil=True)
def _last_place(words: Any, numbers: Any, newest: int, bos: int, length: int, first: int) -> Any:
    """Where the last of the n-grams ends whose last word is `newest`; `first`: its first occurrence."""
    best = first
    for i in range(first + 1, len(words)):
        if words[i] != newest:
            continue
        for j in range(1, length):
            one, other = words[i - j], words[best - j]
            if numbers[one] > numbers[other]:
                best = i
            if one != other or one == bos:
                break
    return best

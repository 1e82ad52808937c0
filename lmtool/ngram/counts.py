"""Step 1: the n-grams of a text and how often each occurs.

An n-gram of order k is the pair (its first k-1 words, its last word). The first k-1 words are an n-gram of
order k-1 and have a row there, so that (row x V + last word) is one 64-bit key whatever the order, and one sort
an order both finds the distinct n-grams and numbers them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MAX_ORDER = 16


class Text(Protocol):
    """What is read of a split: ids `[N]` of its predicted tokens, offsets `[S + 1]` of its sentences."""

    @property
    def ids(self) -> npt.NDArray[Any]: ...

    @property
    def offsets(self) -> IntArray: ...


@dataclass(frozen=True, slots=True)
class OrderCounts:
    """The n-grams of one order, sorted by key; M of them.

    keys: `[M]`, row of the first k-1 words x V + last word; for order 1 the word itself.
    suffix: `[M]`, row of the last k-1 words among the n-grams of order k-1 (zeros for order 1).
    count: `[M]`, occurrences in the text. from_start: `[M]`, whether the first word is `<s>`.
    """

    keys: IntArray
    suffix: IntArray
    count: IntArray
    from_start: BoolArray


@dataclass(frozen=True, slots=True)
class Counts:
    """The n-grams of orders 1 to n of a text.

    newest_word: the word whose first occurrence comes last in the text. KenLM's estimator leaves its
    unigram out of the counts of counts, and whoever wants KenLM's numbers needs to know which it was.
    """

    orders: list[OrderCounts]
    vocabulary_size: int
    bos: int
    newest_word: int

    def context(self, order: int) -> IntArray:
        """For each n-gram of an order of 2 or more, the row of its first words one order below."""
        return self.orders[order - 1].keys // self.vocabulary_size


def count_ngrams(text: Text, vocabulary: Vocabulary, order: int) -> Counts:
    """Count the n-grams of orders 1 to `order`, each sentence with one `<s>` before it.

    Unigrams are all V words of the vocabulary, the unseen ones with count 0. Raises UserError where the
    order is out of range, the text is empty, or keys of 64 bits do not suffice.
    """
    if not 1 <= order <= MAX_ORDER:
        raise UserError(f"model.order={order}: must be from 1 to {MAX_ORDER}")
    if len(text.ids) == 0:
        raise UserError("the train split has no tokens: there is nothing to count")
    size = len(vocabulary)
    words, position = _with_starts(text, vocabulary.bos)
    if len(words) * size >= 2**63:
        raise UserError(f"{len(words):,} tokens of {size:,} types: their n-grams have no 64-bit keys; use less text")
    count = np.bincount(words, minlength=size)
    everything = np.arange(size, dtype=np.int64)
    orders = [OrderCounts(everything, np.zeros(size, dtype=np.int64), count, everything == vocabulary.bos)]
    row = words  # row of the n-gram of the current order that ends at each position
    for k in range(2, order + 1):
        ends = np.flatnonzero(position >= k - 1)  # where n-grams of order k end
        key = row[ends - 1] * size + words[ends]
        keys, first, inverse, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        from_start = orders[-1].from_start[keys // size]
        orders.append(OrderCounts(keys, row[ends[first]], count, from_start))
        row = np.full(len(words), -1, dtype=np.int64)
        row[ends] = inverse
    types, first = np.unique(words, return_index=True)
    return Counts(orders, size, vocabulary.bos, int(types[first.argmax()]))


def _with_starts(text: Text, bos: int) -> tuple[IntArray, IntArray]:
    """The text with `<s>` before each sentence, and each word's distance from the `<s>` before it."""
    starts = text.offsets[:-1]
    words = np.insert(text.ids.astype(np.int64), starts, bos)
    at = starts + np.arange(len(starts))  # where the <s> stand
    position = np.arange(len(words)) - np.repeat(at, np.diff(np.append(at, len(words))))
    return words, position

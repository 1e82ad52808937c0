"""Count the n-grams of each source of a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lmtool.data.split import Split
from lmtool.ngram.counting.counts import Counts
from lmtool.system.arrays import IntArray

TOKENS_PER_PIECE = 1 << 20  # counted at once


class Entries(NamedTuple):
    """E counts of n-grams of one order, each in one source.

    ngram: node within its order, ascending; source: number of the source; occurrences: above 0; all int64 `[E]`.
    """

    ngram: IntArray
    source: IntArray
    occurrences: IntArray


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """The counts in each source of the n-grams that are not the suffix of a longer one: those of the highest order, and
    those that begin with `<s>`.

    names: of the S sources. entries: of each order from 1 on.
    """

    names: list[str]
    entries: list[Entries]

    @classmethod
    def of_one(cls, counts: Counts) -> SourceCounts:
        """Return the counts with the whole text as one source."""
        entries = []
        for k in range(1, counts.order + 1):
            first, packed = 0 if k == counts.order else counts.from_start(k), counts.count[k - 1]
            node, count = np.arange(first, packed.length), packed.get(first, packed.length)
            predicted = (count > 0) & ((node != counts.bos) if k == 1 else True)
            entries.append(Entries(node[predicted], np.zeros(int(predicted.sum()), dtype=np.int64), count[predicted]))
        return cls(["train"], entries)


def count_sources(counts: Counts, text: Split, sources: Mapping[str, tuple[int, int]]) -> SourceCounts:
    """Return the counts of each source of a text.

    counts: of the whole text. sources: the first token of each one and the end of its tokens; empty for one source.
    """
    if not sources:
        return SourceCounts.of_one(counts)
    found: list[list[Entries]] = [[] for _ in range(counts.order)]
    for number, (first, last) in enumerate(sources.values()):
        for at in range(first, last, TOKENS_PER_PIECE):
            windows = text.windows(np.arange(at, min(at + TOKENS_PER_PIECE, last)), counts.order - 1)
            for order, nodes in _longest(counts, *windows):
                node, count = np.unique(nodes, return_counts=True)
                found[order - 1].append(Entries(node, np.full(len(node), number), count))
    return SourceCounts(list(sources), [_merged(parts, len(sources)) for parts in found])


def _longest(counts: Counts, contexts: IntArray, targets: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Yield each order and the nodes of the longest n-grams of that order that end with N tokens, within their sentence
    and one `<s>`.
    """
    ngrams = np.column_stack([contexts, targets])
    padding = (contexts == counts.bos).sum(axis=1)  # one <s> of it is part of the n-gram
    for order in range(1, counts.order + 1):
        here = np.maximum(padding - 1, 0) == counts.order - order
        yield order, counts.trie.find(ngrams[here, -order:]) - counts.trie.first(order)


def _merged(parts: list[Entries], sources: int) -> Entries:
    """Return the entries of all parts, ascending, with the counts of equal n-grams and sources added up."""
    node, source, count = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    keys, place = np.unique(node * sources + source, return_inverse=True)
    return Entries(keys // sources, keys % sources, np.bincount(place, count, len(keys)).astype(np.int64))

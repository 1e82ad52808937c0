"""How often each of several sources of a text has its n-grams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lmtool.data.corpus import Split
from lmtool.ngram.counting.counts import Counts
from lmtool.system.arrays import IntArray

PIECE = 1 << 20  # tokens counted at once


class Entries(NamedTuple):
    """Counts of n-grams of one order in one source each, E of them.

    ngram: its node within its order, ascending; source: its number; occurrences: above 0; all int64 `[E]`.
    """

    ngram: IntArray
    source: IntArray
    occurrences: IntArray


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """The n-grams that no longer one ends with: of the highest order, and those that begin with `<s>`.

    names: of the S sources. entries: of each order from 1 on.
    """

    names: list[str]
    entries: list[Entries]

    @classmethod
    def of_one(cls, counts: Counts) -> SourceCounts:
        """The whole text as one source."""
        entries = []
        for k in range(1, counts.order + 1):
            first, packed = 0 if k == counts.order else counts.from_start(k), counts.count[k - 1]
            node, count = np.arange(first, packed.length), packed.get(first, packed.length)
            predicted = (count > 0) & ((node != counts.bos) if k == 1 else True)
            entries.append(Entries(node[predicted], np.zeros(int(predicted.sum()), dtype=np.int64), count[predicted]))
        return cls(["train"], entries)


def count_sources(counts: Counts, text: Split, sources: Mapping[str, tuple[int, int]]) -> SourceCounts:
    """The counts of each source of a text.

    counts: of the whole text. sources: for each one, where its tokens begin and where they end; none for one source.
    """
    if not sources:
        return SourceCounts.of_one(counts)
    found: list[list[Entries]] = [[] for _ in range(counts.order)]
    for number, (first, last) in enumerate(sources.values()):
        for at in range(first, last, PIECE):
            windows = text.windows(np.arange(at, min(at + PIECE, last)), counts.order - 1)
            for order, nodes in _longest(counts, *windows):
                node, count = np.unique(nodes, return_counts=True)
                found[order - 1].append(Entries(node, np.full(len(node), number), count))
    return SourceCounts(list(sources), [_merged(parts, len(sources)) for parts in found])


def _longest(counts: Counts, contexts: IntArray, targets: IntArray) -> Iterator[tuple[int, IntArray]]:
    """The longest n-grams that end with N tokens, within their sentence and one `<s>`: of each order, their nodes."""
    ngrams = np.column_stack([contexts, targets])
    padding = (contexts == counts.bos).sum(axis=1)  # of which one <s> is part of the n-gram
    for order in range(1, counts.order + 1):
        here = np.maximum(padding - 1, 0) == counts.order - order
        yield order, counts.trie.find(ngrams[here, -order:]) - counts.trie.first(order)


def _merged(parts: list[Entries], sources: int) -> Entries:
    """The entries of all parts, ascending, those of one n-gram and source added up."""
    node, source, count = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    keys, place = np.unique(node * sources + source, return_inverse=True)
    return Entries(keys // sources, keys % sources, np.bincount(place, count, len(keys)).astype(np.int64))

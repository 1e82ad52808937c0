"""The n-grams of a trie without their first words: where each one's shorter form is."""

from __future__ import annotations

import numpy as np

from lmtool.ngram.query.scoring import find_followers
from lmtool.ngram.tables.trie import Trie
from lmtool.system.arrays import IntArray
from lmtool.system.parallel import run


def suffixes_of(trie: Trie) -> list[IntArray]:
    """For each order k from 2 on, the nodes `[M]` of its n-grams' last k-1 words, -1 for those that are not there."""
    found: list[IntArray] = []
    for k in range(2, trie.order + 1):
        found.append(suffixes(trie, k, found[-1] if found else None))
    return found


def suffixes(trie: Trie, order: int, shorter: IntArray | None) -> IntArray:
    """The nodes of one order's n-grams without their first words, `[M]`, with one search for each n-gram.

    shorter: the same of the order below; None for order 2, where the suffix is the word itself.
    """
    size = trie.sizes[order - 1]
    if shorter is None:
        return trie.words(2, 0, size)
    out = np.full(size, -1, dtype=np.int64)

    def search(first: int, last: int) -> None:
        begins = trie.begins(order - 1, first, last)
        a, b = int(begins[0]), int(begins[-1])
        context = np.repeat(shorter[first:last], np.diff(begins))
        find_followers(*trie.nodes.searching, context, trie.words(order, a, b), out[a:b])

    run((search, first, last) for first, last in trie.context_blocks(order))
    return out

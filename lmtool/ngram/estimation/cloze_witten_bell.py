"""Witten-Bell over the candidates of a cloze question alone, as in the report of CS287 HW3.

    p(w|h) = (c(hw) + N p(w|h')) / (C + N)

is normalized at every order over the question's K candidates: C is the sum of their c(hw), and N is how many of them
were seen after h; below the unigrams is 1/K. If none was seen after h, p(w|h) = p(w|h'). Candidates out of vocabulary
count as one and share its probability.
"""

from __future__ import annotations

import numpy as np

from lmtool.data.cloze import unk_sharers
from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.tables.backoff import log
from lmtool.system.arrays import FloatArray, IntArray


def local_witten_bell(counts: Counts, contexts: IntArray, candidates: IntArray) -> FloatArray:
    """Return log p `[Q, K]` in nats of candidates `[Q, K]` after contexts `[Q, n - 1]`; each row sums to one."""
    questions, choices = candidates.shape
    p = np.full((questions, choices), 1 / choices)
    sharers = unk_sharers(candidates, counts.unk)
    nodes = counts.trie.find_contexts(contexts, counts.bos, counts.order - 1)
    for k in range(1, counts.order + 1):
        c = np.zeros((questions, choices))
        if k == 1:
            c = counts.count[0].all()[candidates] * (candidates != counts.bos).astype(float)
        else:
            gram = counts.trie.find_followers(np.repeat(nodes[:, k - 2], choices), candidates.reshape(-1))
            seen = gram >= 0
            c.reshape(-1)[seen] = counts.count[k - 1].at(gram[seen] - counts.trie.first(k))
        c, seen_types = c / sharers, (c > 0) / sharers
        total, types = c.sum(axis=1, keepdims=True), seen_types.sum(axis=1, keepdims=True)
        p = np.where(total > 0, (c + types * p) / np.maximum(total + types, 1), p)
    return log(p)

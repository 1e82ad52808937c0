"""Merged counts of several sources -> back-off table, with weights and discounts as they are.

    p(w|h) = (mass(hw) - off(hw)) / mass(h.) + off(h.) / mass(h.) p(w|h')

with the masses of lmtool.ngram.estimation.merging; below the unigrams is the uniform distribution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.counting.source_counts import SourceCounts
from lmtool.ngram.estimation.estimate import further_types, table_of
from lmtool.ngram.estimation.merging import OrderMasses, merged_masses
from lmtool.ngram.smoothers.base import MergingSmoother
from lmtool.ngram.tables.backoff import BackoffTable, log
from lmtool.system.arrays import FloatArray

BoolArray = npt.NDArray[np.bool_]


def estimate_merged(counts: Counts, smoother: MergingSmoother, cutoffs: list[int] | None) -> BackoffTable:
    """The model of all orders. cutoffs: one per order, of the counts in all sources together, or None.

    Raises UserError where memory does not suffice.
    """
    sources = counts.sources or SourceCounts.of_one(counts)
    masses = merged_masses(counts, sources, smoother.weights_of(sources.names), smoother.values)
    trie = counts.trie
    log_prob = np.empty(sum(trie.sizes), dtype=np.float32)
    log_backoff = np.empty(sum(trie.sizes[:-1]), dtype=np.float32)
    mask = np.ones(len(log_prob), dtype=bool)
    unknown = further_types(counts, smoother)
    uniform = masses[0].left[0] / masses[0].total[0] / (trie.vocabulary_size - 1 + unknown)
    p = (masses[0].mass - masses[0].off) / masses[0].total[0] + uniform
    p[counts.bos] = 0.0
    log_prob[: len(p)] = log(p)
    for k in range(2, counts.order + 1):
        nodes = slice(trie.first(k), trie.first(k + 1))
        if cutoffs is not None and cutoffs[k - 1]:
            mask[nodes] = counts.count[k - 1].all() > cutoffs[k - 1]
        p, weight = _probabilities(masses[k - 1], p[counts.suffix[k - 2].all()], trie.contexts(k), mask[nodes])
        log_prob[nodes], log_backoff[trie.first(k - 1) : trie.first(k)] = log(p), log(weight)
    table = table_of(smoother, trie, log_prob, log_backoff, counts.bos, uniform if unknown else 0.0)
    return table if mask.all() else table.select(mask)


def _probabilities(
    order: OrderMasses, lower: FloatArray, context: Any, kept: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """p(w|h) `[M]` and the weights of the shorter contexts `[C]`; what is not kept leaves its share to these."""
    total = np.where(order.total > 0, order.total, 1.0)
    share = np.where(kept, order.mass - order.off, 0.0) / total[context]
    weight = order.left / total + np.bincount(
        context[~kept], ((order.mass - order.off) / total[context])[~kept], len(total)
    )
    weight[order.total <= 0] = 1.0  # nothing follows, or only what the sources of weight 0 have
    return share + weight[context] * lower, weight

"""Entropy pruning (Stolcke 1998, eq. 3 to 6): removes the n-grams whose removal changes the model least.

Removing hw changes the model by this relative entropy:

    D = -p(h) { p(w|h) [log p(w|h') + log backoff'(h) - log p(w|h)] + [log backoff'(h) - log backoff(h)] left(h) }

with backoff'(h) the back-off weight after the removal and left(h) the mass of words unseen after h. hw is removed if
exp(D) - 1, the relative change of perplexity, is below a threshold; n-grams of the highest order first, and never the
context of one that stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.data.vocabulary import Vocabulary
from lmtool.ngram.estimation.estimate import Selection, keep_contexts
from lmtool.ngram.query.sums import log_lower, recompute_backoffs
from lmtool.ngram.tables.backoff import BackoffTable, log
from lmtool.ngram.tables.trie import Trie
from lmtool.system.arrays import FloatArray, IntArray

FloatArray32 = npt.NDArray[np.float32]
CLOSE_ENOUGH = 0.998  # fraction of the wanted size at which the search ends
FIRST_THRESHOLD, STEP = 1e-7, 8.0  # STEP: factor between thresholds until one is too low and one high enough
MIN_THRESHOLD = 1e-30  # the lowest one above 0 that is tried
MAX_STEPS = 60


def prune_by_entropy(table: BackoffTable, threshold: float, vocabulary: Vocabulary) -> BackoffTable:
    """Return the table without n-grams whose removal changes perplexity relatively by less than `threshold`.

    At the start of a context, the probability of `</s>` stands for that of `<s>`, as in SRILM; without `</s>`, the
    number of sentences per token does, or 1 if the vocabulary has no counts, and 0 in text without sentences.
    """
    return _keep(table, select_ngrams(table.trie, _relative_changes(table, vocabulary), threshold))


def prune_low_probabilities(table: BackoffTable) -> BackoffTable:
    """Return the table without n-grams less likely than by backing off, except contexts of others, as by SRILM's
    -prune-lowprobs: an automaton with back-off arcs then has no better path around an n-gram.
    """
    trie = table.trie

    def gain(k: int) -> Any:
        log_backoff = table.log_backoff[trie.span(k - 1)][trie.contexts(k)]
        return table.log_prob[trie.span(k)] - log_backoff - log_lower(table, k, None)

    left = select_ngrams(trie, ((k, gain(k)) for k in range(table.order, 1, -1)), 0.0)
    return table if left.mask.all() else prune_low_probabilities(_keep(table, left))  # the weights of _keep are new


def prune_to_size_by_entropy(table: BackoffTable, size: int, vocabulary: Vocabulary) -> tuple[BackoffTable, float]:
    """Return the table of at most `size` n-grams, including all 1-grams, and its threshold of prune_by_entropy."""
    orders = list(_relative_changes(table, vocabulary))
    threshold, selection = largest_within(size, lambda threshold: select_ngrams(table.trie, orders, threshold))
    return _keep(table, selection), threshold


def largest_within(size: int, select: Callable[[float], Selection]) -> tuple[float, Selection]:
    """Return the lowest threshold found that keeps at most `size` n-grams, 1-grams included, and these n-grams.

    select: returns the n-grams that a threshold keeps; a higher threshold keeps fewer.
    """
    best = select(0.0)
    if best.size <= size:
        return 0.0, best
    low, low_size = 0.0, best.size
    high, selection = FIRST_THRESHOLD, select(FIRST_THRESHOLD)
    while selection.size > size:
        low, low_size = high, selection.size
        high *= STEP
        selection = select(high)
    while low == 0.0:  # 0 has no logarithm
        lower = high / STEP
        if lower < MIN_THRESHOLD:
            return high, selection
        below = select(lower)
        if below.size > size:
            low, low_size = lower, below.size
        else:
            high, selection = lower, below
    for step in range(MAX_STEPS):
        if selection.size >= CLOSE_ENOUGH * size or high / low < 1 + 1e-9:
            break
        share = math.log(low_size / size) / math.log(low_size / selection.size)
        # False position in logarithms; every third step is half-way, since one end may stay for long.
        share = min(max(share, 0.02), 0.98) if step % 3 < 2 else 0.5
        middle = low * (high / low) ** share
        between = select(middle)
        if between.size > size:
            low, low_size = middle, between.size
        else:
            high, selection = middle, between
    return high, selection


def select_ngrams(trie: Trie, orders: Iterable[tuple[int, FloatArray]], threshold: float) -> Selection:
    """Return the n-grams that stay, given the relative changes of orders n to 2; all 1-grams stay."""
    mask = np.ones(int(trie.nodes.first[-1]), dtype=bool)
    for k, changes in orders:
        mask[trie.span(k)] = changes >= threshold
        if k < trie.order:
            keep_contexts(trie, k, mask)
    return Selection(mask)


def _keep(table: BackoffTable, selection: Selection) -> BackoffTable:
    """Return the table of the n-grams that stay, with new back-off weights."""
    return recompute_backoffs(replace(table.select(selection.mask), suffix_closed=False))


def _relative_changes(table: BackoffTable, vocabulary: Vocabulary) -> Iterator[tuple[int, FloatArray]]:
    """Yield orders n to 2, each with the relative change of perplexity from removing each n-gram, `[N]`."""
    suffixes = table.trie.suffixes() if table.suffix_closed else None
    marginals = log_marginals(table, vocabulary)
    for k in range(table.order, 1, -1):
        context = table.trie.contexts(k)
        log_prob = table.log_prob[table.trie.span(k)]
        change = divergences(log_prob, log_lower(table, k, suffixes), context, table.sizes[k - 2])
        log_h = marginals[table.trie.span(k - 1)]
        yield k, relative_changes(change, log_h[context])


def divergences(log_prob: FloatArray32, log_lower: FloatArray, context: IntArray, contexts: int) -> FloatArray:
    """Return D / -p(h), the braces of D, of n-grams hw `[N]`, given all n-grams of their C contexts.

    log_prob: log p(w|h), float32 `[N]`, as the table stores it. log_lower: log p(w|h') `[N]`. context: the number of
    each one's context, int64 `[N]`, the words of a context ascending. contexts: C.
    """
    p, lower = np.exp(log_prob.astype(np.float64)), np.exp(log_lower)
    left = np.maximum(1.0 - np.bincount(context, p, contexts), 0.0)
    rest = np.maximum(1.0 - np.bincount(context, lower, contexts), 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        old = log(left / rest)[context]
        new = log((left[context] + p) / (rest[context] + lower))
        moved = np.where(left[context] > 0, (new - old) * left[context], 0.0)
        change: FloatArray = p * (log(lower) + new - log(p)) + moved
    return change


def relative_changes(change: FloatArray, log_h: FloatArray) -> FloatArray:
    """Return the relative change of perplexity if n-grams hw are removed, `[N]`; nan (always removed) if unknown.

    change: as in `divergences`. log_h: log p(h) `[N]`.
    """
    with np.errstate(invalid="ignore"):
        changes: FloatArray = np.expm1(-np.exp(log_h) * change)
    return changes


def log_marginals(table: BackoffTable, vocabulary: Vocabulary) -> FloatArray:
    """Return log p(h) of each node as a context: the sum of log p of its words, each after the words before it."""
    marginals = table.log_prob[:].astype(np.float64)
    start = log(vocabulary.counts[-1] / max(vocabulary.counts[:-1].sum(), 1))
    marginals[table.bos] = start if vocabulary.eos is None else marginals[vocabulary.eos]
    for k in range(2, table.order + 1):
        shorter = marginals[table.trie.span(k - 1)]
        marginals[table.trie.span(k)] += shorter[table.trie.contexts(k)]
    return marginals

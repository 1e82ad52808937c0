"""Tune a smoother's parameters, those of all orders together, by maximum likelihood on held-out text.

Chen & Goodman (1998) tune their smoothers so; the report of CS287 HW3 did it by hand. The probability of a token under
an interpolated model depends on a few numbers per order: the n-gram's count and the sums over its context. So the
likelihood of a held-out text and its gradient take milliseconds, and L-BFGS finds the optimum in seconds. The
smoother's formulas are evaluated on tensors instead of arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lmtool.data.split import Split
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.estimation._held_out import HeldOut, minimize
from lmtool.ngram.estimation._merging_tuning import tune_merged
from lmtool.ngram.estimation.adjusted_counts import adjusted_counts, count_of_counts, kenlm_count_of_counts
from lmtool.ngram.estimation.formulas import contexts_of, num_unseen_types
from lmtool.ngram.smoothers.base import Contexts, Form, MergingSmoother, Smoother
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import FloatArray, IntArray

# Share of its range that a tuned parameter keeps from its bounds: at a discount of 0 or a lambda of 1, the optimum for
# held-out text without unseen words, unseen words would have probability 0.
BOUND_MARGIN = 1e-9


@dataclass(frozen=True, slots=True)
class Tuned:
    """Perplexity of the held-out text before and after tuning."""

    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Observed:
    """What the likelihood of N held-out tokens depends on in one order: a(hw) int64 `[N]`, the sums of Contexts float64
    `[4, N]`, and whether the context was seen, bool `[N]`.
    """

    a: IntArray
    contexts: FloatArray
    seen: Any


def fit_and_tune(counts: Counts, smoother: Smoother, held_out: Split, storage: Storage) -> Tuned:
    """Estimate smoother.values, then tune them to the highest likelihood of the held-out text.

    Raises UserError if the smoother is not interpolated.
    """
    if isinstance(smoother, MergingSmoother):
        return Tuned(*tune_merged(counts, smoother, held_out))
    if smoother.form is not Form.interpolated:
        raise UserError("only interpolated smoothers can be tuned: set smoother.interpolate=true")
    import torch

    tokens = HeldOut.of(counts, held_out)
    observed = [_observe(counts, smoother, k, tokens, storage) for k in range(1, counts.order + 1)]
    types = counts.trie.vocabulary_size - 1 + num_unseen_types(counts, smoother)
    low, high = (torch.tensor(bound, dtype=torch.float64) for bound in (smoother.low, smoother.high))
    span = high - low
    start = torch.tensor(smoother.values, dtype=torch.float64)
    fraction = ((start - low) / span.clamp(min=1e-12)).clamp(1e-4, 1 - 1e-4)
    logits = torch.logit(fraction).requires_grad_(True)  # unconstrained
    tensors = [
        (torch.from_numpy(o.a), Contexts(*torch.from_numpy(o.contexts)), torch.from_numpy(o.seen)) for o in observed
    ]

    def bounded() -> Any:
        return low + span * (BOUND_MARGIN + (1 - 2 * BOUND_MARGIN) * torch.sigmoid(logits))

    def loss() -> Any:
        p = torch.full((held_out.tokens,), 1.0 / types, dtype=torch.float64)
        for k, (a, h, seen) in enumerate(tensors, start=1):
            share = smoother.numerator(k, a) / smoother.denominator(k, h)
            p = torch.where(seen, share + smoother.weight(k, h) * p, p)
        return -p.log().mean()

    def loss_of_logits() -> Any:
        smoother.values = bounded()
        return loss()

    smoother.values = start
    with torch.no_grad():
        before = float(loss().exp())
    minimize([logits], loss_of_logits, max_iter=300, tolerance_grad=1e-9, tolerance_change=1e-12)
    with torch.no_grad():
        after = float(loss_of_logits().exp())
        smoother.values = smoother.values.numpy() if after < before else start.numpy()
    return Tuned(before, min(before, after))


def _observe(counts: Counts, smoother: Smoother, k: int, tokens: HeldOut, storage: Storage) -> Observed:
    """Return what order k knows of the held-out tokens, after fitting the smoother's parameters of that order."""
    a = adjusted_counts(counts, k, smoother.counting, storage)
    n = count_of_counts(a)
    smoother.fit(k, n, kenlm_count_of_counts(n, counts, a, k))
    context, ngram = tokens.context[k - 1], tokens.ngram[k - 1]
    distinct, place = np.unique(context[context >= 0], return_inverse=True)
    sums = np.ones((4, len(context)))
    sums[:, context >= 0] = _context_sums(counts, k, a, distinct)[:, place]
    token_counts = np.zeros(len(ngram), dtype=np.int64)
    token_counts[ngram >= 0] = a.at(ngram[ngram >= 0])
    seen = (context >= 0) & (sums[0] > 0)
    sums[0, ~seen] = 1.0  # no division by zero if the shorter context decides
    return Observed(token_counts, sums, seen)


def _context_sums(counts: Counts, k: int, a: Packed, contexts: IntArray) -> FloatArray:
    """Return the sums of Contexts, float64 `[4, D]`, for ascending contexts `[D]`, nodes within order k-1."""
    trie, sums = counts.trie, np.empty((4, len(contexts)))
    for first, last in trie.context_blocks(k) if k > 1 else [(0, 1)]:
        begins = trie.begins(k - 1, first, last) if k > 1 else np.array([0, a.length])
        h = contexts_of(a.get(int(begins[0]), int(begins[-1])), begins - begins[0])
        here = slice(*np.searchsorted(contexts, (first, last)).tolist())
        some = contexts[here] - first
        sums[:, here] = h.total[some], h.ones[some], h.twos[some], h.more[some]
    return sums

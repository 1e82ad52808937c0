"""A smoother's parameters, those of all orders together, by maximum likelihood on held-out text.

Chen & Goodman (1998) tune their smoothers so; the report of CS287 HW3 did it by hand. The probability of a token under
an interpolated model depends on a few numbers per order: the n-gram's count and the sums over its context. So the
likelihood of a held-out text and its gradient take milliseconds, and L-BFGS finds the optimum in seconds. The
smoother's formulas are evaluated on tensors in place of arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from lmtool.data.split import Split
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.estimation.adjusted_counts import adjusted_counts, count_of_counts, kenlm_count_of_counts
from lmtool.ngram.estimation.estimate import contexts_of, further_types
from lmtool.ngram.smoothers.base import Contexts, Form, MergingSmoother, Smoother
from lmtool.ngram.tables.packed import read
from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import FloatArray, IntArray

# Share of its range that a tuned parameter stays off its bounds: at a discount of 0 or a lambda of 1, which held-out
# text without unseen words asks for, unseen words would have probability 0.
INSIDE = 1e-9


@dataclass(frozen=True, slots=True)
class Tuned:
    """Perplexity of the held-out text before and after tuning."""

    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Observed:
    """What one order knows of N held-out tokens: a(hw) int64 `[N]`, the sums of Contexts float64 `[4, N]`, and whether
    the context was seen, bool `[N]`.
    """

    a: IntArray
    contexts: FloatArray
    seen: Any


def fit_and_tune(counts: Counts, smoother: Smoother, held_out: Split, storage: Storage) -> Tuned:
    """Estimate smoother.values, then tune them to the highest likelihood of the held-out text.

    Raises UserError for a smoother that is not interpolated.
    """
    if isinstance(smoother, MergingSmoother):
        from lmtool.ngram.estimation.merging_tuning import tune_merged

        return Tuned(*tune_merged(counts, smoother, held_out))
    if smoother.form is not Form.interpolated:
        raise UserError("only interpolated smoothers can be tuned: set smoother.interpolate=true")
    import torch

    windows = held_out.windows(np.arange(held_out.tokens), counts.order - 1)
    observed = [_observe(counts, smoother, k, windows, storage) for k in range(1, counts.order + 1)]
    types = counts.trie.vocabulary_size - 1 + further_types(counts, smoother)
    low, high = (torch.tensor(bound, dtype=torch.float64) for bound in (smoother.low, smoother.high))
    span = high - low
    start = torch.tensor(smoother.values, dtype=torch.float64)
    fraction = ((start - low) / span.clamp(min=1e-12)).clamp(1e-4, 1 - 1e-4)
    logits = torch.logit(fraction).requires_grad_(True)  # unconstrained
    tensors = [
        (torch.from_numpy(o.a), Contexts(*torch.from_numpy(o.contexts)), torch.from_numpy(o.seen)) for o in observed
    ]

    def bounded() -> Any:
        return low + span * (INSIDE + (1 - 2 * INSIDE) * torch.sigmoid(logits))

    def loss() -> Any:
        p = torch.full((held_out.tokens,), 1.0 / types, dtype=torch.float64)
        for k, (a, h, seen) in enumerate(tensors, start=1):
            share = smoother.numerator(k, a) / smoother.denominator(k, h)
            p = torch.where(seen, share + smoother.weight(k, h) * p, p)
        return -p.log().mean()

    smoother.values = start
    with torch.no_grad():
        before = float(loss().exp())
    optimizer = torch.optim.LBFGS(
        [logits], max_iter=300, tolerance_grad=1e-9, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> Any:
        optimizer.zero_grad()
        smoother.values = bounded()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        smoother.values = bounded()
        after = float(loss().exp())
        smoother.values = smoother.values.numpy() if after < before else start.numpy()
    return Tuned(before, min(before, after))


def _observe(
    counts: Counts, smoother: Smoother, k: int, windows: tuple[IntArray, IntArray], storage: Storage
) -> Observed:
    """What order k knows of the held-out tokens; also fits the smoother's parameters of that order."""
    contexts, targets = windows
    trie = counts.trie
    a = adjusted_counts(counts, k, smoother.counting, storage)
    n = count_of_counts(a)
    smoother.fit(k, n, kenlm_count_of_counts(n, counts, a, k))
    if k == 1:
        unigrams = a.all()
        h = contexts_of(unigrams, np.array([0, len(unigrams)]))
        sums = np.concatenate([h.total, h.ones, h.twos, h.more])
        return Observed(unigrams[targets], np.repeat(sums[:, None], len(targets), axis=1), np.ones(len(targets), bool))
    node = trie.find_contexts(contexts, counts.bos, k - 1)[:, -1].copy()
    gram = trie.find_followers(node, targets)
    distinct, place = np.unique(node[node >= 0], return_inverse=True)
    token_sums = np.ones((4, len(targets)))
    if len(distinct):
        within = distinct - trie.first(k - 1)
        begins = trie.begins(k - 1, 0, trie.sizes[k - 2])
        ranges = np.stack([begins[within], begins[within + 1]], axis=1)
        sums = np.zeros((4, len(distinct)))
        _sum_ranges(a.bits, a.width, ranges, sums)
        token_sums[:, node >= 0] = sums[:, place]
    token_counts = np.zeros(len(targets), dtype=np.int64)
    if (gram >= 0).any():
        token_counts[gram >= 0] = a.at(gram[gram >= 0] - trie.first(k))
    seen = (node >= 0) & (token_sums[0] > 0)
    token_sums[0, ~seen] = 1.0  # no division by zero where the shorter context decides
    return Observed(token_counts, token_sums, seen)


@numba.njit(cache=True, nogil=True)
def _sum_ranges(bits: Any, width: int, ranges: Any, sums: Any) -> None:
    """The sums of Contexts `[4, C]` over the n-grams of ranges `[C, 2]`."""
    for c in range(len(ranges)):
        for i in range(ranges[c, 0], ranges[c, 1]):
            a = read(bits, width, i)
            sums[0, c] += a
            if a > 0:
                sums[min(a, 3), c] += 1

"""Tune a smoother's parameters, those of all orders together, by maximum likelihood on held-out text.

Chen & Goodman (1998) tune their smoothers so; the report of CS287 HW3 did it by hand. The probability of a token under
an interpolated model depends on a few numbers per order: the n-gram's count and the sums over its context. So the
likelihood of a held-out text and its gradient take milliseconds, and L-BFGS finds the optimum in seconds. The
likelihood may have several maxima, e.g. where an estimated discount is at its bound; so L-BFGS starts there and from
the middle of all ranges. The smoother's formulas are evaluated on tensors instead of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lmtool.data.split import Split
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts, SourceCounts
from lmtool.ngram.estimation._merging import loss_and_gradient
from lmtool.ngram.estimation.formulas import (
    adjusted_counts,
    contexts_of,
    fit_order,
    num_unseen_types,
)
from lmtool.ngram.smoothers.base import Contexts, Form, MergingSmoother, Smoother
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from torch import Tensor

# Share of its range that a tuned parameter keeps from its bounds: at a discount of 0 or a lambda of 1, the optimum for
# held-out text without unseen words, unseen words would have probability 0.
BOUND_MARGIN = 1e-9
MAX_STEPS = 200  # of L-BFGS for merged counts
MIN_GAIN = 1e-7  # of the perplexity, relative, by which another start must be better to be chosen
MIN_CHANGE = 1e-6  # of the mean log p of a token in a step: the last step changes it by less


@dataclass(frozen=True, slots=True)
class Tuned:
    """Perplexity of the held-out text before and after tuning."""

    before: float
    after: float


def held_out_nodes(counts: Counts, text: Split) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the nodes of N held-out tokens in each order k from 1 to n: of their contexts, within order k-1, and of
    their n-grams, within order k; both int64 `[N]`, -1 if they are not in the counts.
    """
    trie, words = counts.trie, text.ids.astype(np.int64)
    yield np.zeros_like(words), words
    starts = text.offsets[:-1][np.diff(text.offsets) > 0]
    ngram = words
    for k in range(2, counts.order + 1):
        # In running text the context of a word is the n-gram of the order below that ends in the word before it.
        context = np.append(np.int64(-1), ngram)[:-1]
        context[starts] = counts.bos if k == 2 else -1
        ngram = trie.find_followers(context, words)
        yield np.where(context >= 0, context - trie.first(k - 1), -1), np.where(ngram >= 0, ngram - trie.first(k), -1)


def fit_and_tune(counts: Counts, smoother: Smoother, held_out: Split, storage: Storage) -> Tuned:
    """Estimate smoother.values, then tune them to the highest likelihood of the held-out text.

    Raises UserError if the smoother is not interpolated.
    """
    if isinstance(smoother, MergingSmoother):
        return _tune_merged(counts, smoother, held_out)
    if smoother.form is not Form.interpolated:
        raise UserError("only interpolated smoothers can be tuned: set smoother.interpolate=true")
    import torch

    tensors = [
        (torch.from_numpy(a), Contexts(*torch.from_numpy(sums)), torch.from_numpy(seen))
        for k, nodes in enumerate(held_out_nodes(counts, held_out), start=1)
        for a, sums, seen in [_observe(counts, smoother, k, *nodes, storage)]
    ]
    types = counts.trie.vocabulary_size - 1 + num_unseen_types(counts, smoother)
    low, high = (torch.tensor(bound, dtype=torch.float64) for bound in (smoother.low, smoother.high))
    span = high - low
    start = torch.tensor(smoother.values, dtype=torch.float64)
    fraction = ((start - low) / span.clamp(min=1e-12)).clamp(1e-4, 1 - 1e-4)

    def bounded(logits: Any) -> Any:  # logits are unconstrained
        return low + span * (BOUND_MARGIN + (1 - 2 * BOUND_MARGIN) * torch.sigmoid(logits))

    def loss() -> Any:
        p = torch.full((held_out.tokens,), 1.0 / types, dtype=torch.float64)
        for k, (a, h, seen) in enumerate(tensors, start=1):
            share = smoother.numerator(k, a) / smoother.denominator(k, h)
            p = torch.where(seen, share + smoother.weight(k, h) * p, p)
        return -p.log().mean()

    def loss_of(logits: Any) -> Any:
        smoother.values = bounded(logits)
        return loss()

    smoother.values = start
    with torch.no_grad():
        before = after = float(loss().exp())
    best = start
    for begin in (fraction, torch.full_like(fraction, 0.5)):
        logits = torch.logit(begin).requires_grad_(True)
        _minimize([logits], partial(loss_of, logits), max_iter=300, tolerance_grad=1e-9, tolerance_change=1e-12)
        with torch.no_grad():
            found = float(loss_of(logits).exp())
            if found < after * (1 - MIN_GAIN):
                after, best = found, smoother.values
    smoother.values = best.numpy()
    return Tuned(before, after)


def _observe(
    counts: Counts, smoother: Smoother, k: int, context: IntArray, ngram: IntArray, storage: Storage
) -> tuple[IntArray, FloatArray, Any]:
    """Return what the likelihood of N held-out tokens depends on in order k, after fitting the smoother to that order:
    a(hw) int64 `[N]`, the sums of Contexts float64 `[4, N]`, and whether the context was seen, bool `[N]`.
    """
    a = adjusted_counts(counts, k, smoother.counting, storage)
    fit_order(counts, smoother, k, a)
    distinct, place = np.unique(context[context >= 0], return_inverse=True)
    sums = np.ones((4, len(context)))
    sums[:, context >= 0] = _context_sums(counts, k, a, distinct)[:, place]
    token_counts = np.zeros(len(ngram), dtype=np.int64)
    token_counts[ngram >= 0] = a.at(ngram[ngram >= 0])
    seen = (context >= 0) & (sums[0] > 0)
    sums[0, ~seen] = 1.0  # no division by zero if the shorter context decides
    return token_counts, sums, seen


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


def _tune_merged(counts: Counts, smoother: MergingSmoother, text: Split) -> Tuned:
    """Tune the smoother's values, and its weights unless they are fixed, to the highest likelihood of held-out text."""
    import torch

    sources = counts.sources or SourceCounts.of_one(counts)
    types = counts.trie.vocabulary_size - 1 + num_unseen_types(counts, smoother)
    fixed = counts, sources, list(held_out_nodes(counts, text)), types
    low, high = (torch.tensor(bound, dtype=torch.float64) for bound in (smoother.low, smoother.high))
    fraction = (torch.from_numpy(smoother.values) - low) / (high - low)
    # Unconstrained: weights = softmax(scores), values = low + (high - low) sigmoid(logits).
    given = torch.from_numpy(smoother.weights_of(sources.names)).log()
    losses: list[float] = []

    def loss(scores: Any, logits: Any) -> Any:
        weights, values = torch.softmax(scores, 0), low + (high - low) * torch.sigmoid(logits)
        value, by_weight, by_value = loss_and_gradient(*fixed, weights.detach().numpy(), values.detach().numpy())
        losses.append(value)
        linear = (weights * torch.from_numpy(by_weight)).sum() + (values * torch.from_numpy(by_value)).sum()
        return value + (linear - linear.detach())  # has the gradient that autograd cannot compute

    after = math.inf
    for begin in (fraction.clamp(1e-4, 1 - 1e-4), torch.full_like(fraction, 0.5)):
        scores, logits = given.clone().requires_grad_(True), torch.logit(begin).requires_grad_(True)
        tuned = [scores, logits] if smoother.fixed_weights is None else [logits]
        limits = {"max_iter": MAX_STEPS, "tolerance_grad": 1e-7, "tolerance_change": MIN_CHANGE}
        _minimize(tuned, partial(loss, scores, logits), **limits)
        with torch.no_grad():
            weights, values = (torch.softmax(scores, 0), low + (high - low) * torch.sigmoid(logits))
        found = loss_and_gradient(*fixed, weights.numpy(), values.numpy())[0]
        if found < after - MIN_GAIN:
            after, smoother.weights, smoother.values = found, weights.numpy(), values.numpy()
    return Tuned(float(np.exp(losses[0])), float(np.exp(after)))


def _minimize(parameters: list[Tensor], loss: Callable[[], Tensor], **limits: Any) -> None:
    """Minimize `loss` by L-BFGS, changing the parameters in place. limits: max_iter and tolerances of torch's LBFGS."""
    import torch

    optimizer = torch.optim.LBFGS(parameters, line_search_fn="strong_wolfe", **limits)

    def closure() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]

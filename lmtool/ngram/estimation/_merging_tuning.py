"""Tune source weights and discounts by maximum likelihood on held-out text (pocolm, Povey 2016).

The probability of a token depends on the masses of a few n-grams and contexts, and these on those of longer n-grams,
down to the weights and discounts. The gradient of the likelihood goes back the same way, and L-BFGS finds the optimum.
Each kernel `_through_x` is the derivative of a kernel of _merging.py; tests/ngram/test_count_merging.py compares them
with finite differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from lmtool.data.split import Split
from lmtool.ngram.counting.counts import Counts, SourceCounts
from lmtool.ngram.estimation._held_out import HeldOut, minimize
from lmtool.ngram.estimation._merging import NO_CONTRIBUTOR, NUM_TOP, OrderMasses, merged_masses
from lmtool.ngram.estimation.formulas import num_unseen_types
from lmtool.ngram.smoothers.base import MergingSmoother
from lmtool.ngram.tables.packed import read
from lmtool.system.arrays import FloatArray

MAX_STEPS = 200  # of L-BFGS
MIN_CHANGE = 1e-6  # of the mean log p of a token in a step: the last step changes it by less


def tune_merged(counts: Counts, smoother: MergingSmoother, text: Split) -> tuple[float, float]:
    """Tune the smoother's weights and values to the highest likelihood of held-out text.

    Returns its perplexity before and after.
    """
    import torch

    sources = counts.sources or SourceCounts.of_one(counts)
    types = counts.trie.vocabulary_size - 1 + num_unseen_types(counts, smoother)
    fixed = counts, sources, HeldOut.of(counts, text), types
    low, high = (torch.tensor(bound, dtype=torch.float64) for bound in (smoother.low, smoother.high))
    fraction = (torch.from_numpy(smoother.values) - low) / (high - low)
    # Unconstrained: weights = softmax(scores), values = low + (high - low) sigmoid(logits).
    scores = torch.from_numpy(smoother.weights_of(sources.names)).log().requires_grad_(True)
    logits = torch.logit(fraction.clamp(1e-4, 1 - 1e-4)).requires_grad_(True)
    losses: list[float] = []

    def loss() -> Any:
        weights, values = torch.softmax(scores, 0), low + (high - low) * torch.sigmoid(logits)
        value, by_weight, by_value = loss_and_gradient(*fixed, weights.detach().numpy(), values.detach().numpy())
        losses.append(value)
        linear = (weights * torch.from_numpy(by_weight)).sum() + (values * torch.from_numpy(by_value)).sum()
        return value + (linear - linear.detach())  # has the gradient that autograd cannot compute

    minimize([scores, logits], loss, max_iter=MAX_STEPS, tolerance_grad=1e-7, tolerance_change=MIN_CHANGE)
    with torch.no_grad():
        smoother.weights = torch.softmax(scores, 0).numpy()
        smoother.values = (low + (high - low) * torch.sigmoid(logits)).numpy()
    after = loss_and_gradient(*fixed, smoother.weights, smoother.values)[0]
    return float(np.exp(losses[0])), float(np.exp(after))


@dataclass(frozen=True, slots=True)
class OrderGradient:
    """Derivatives of the loss with respect to mass and off of n-grams, `[M]`, and total and left of contexts, `[C]`."""

    mass: FloatArray
    off: FloatArray
    total: FloatArray
    left: FloatArray

    @classmethod
    def zeros(cls, masses: OrderMasses) -> OrderGradient:
        """Return derivatives of 0."""
        return cls(*(np.zeros(len(part)) for part in (masses.mass, masses.off, masses.total, masses.left)))


def loss_and_gradient(
    counts: Counts, sources: SourceCounts, held_out: HeldOut, types: int, weights: FloatArray, values: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Return the mean -log p of held-out tokens, and its derivatives: of weights `[S]` and of discounts `[n, 4]`.

    types: of the uniform distribution below the unigrams.
    """
    masses = merged_masses(counts, sources, weights, values)
    tokens = len(held_out.context[0])
    p = [np.full(tokens, 1.0 / types)]
    nodes = list(zip(held_out.context, held_out.ngram, strict=True))
    for where, order in zip(nodes, masses, strict=True):
        p.append(np.empty(tokens))
        _probabilities(*where, order.mass, order.off, order.total, order.left, p[-2], p[-1])
    gradients = [OrderGradient.zeros(order) for order in masses]
    by_p = -1.0 / p[-1] / tokens
    for k in range(counts.order - 1, -1, -1):
        order, by = masses[k], gradients[k]
        into = by.mass, by.off, by.total, by.left
        _through_probabilities(*nodes[k], order.total, order.left, p[k], p[k + 1], by_p, *into)
    by_weight, by_value = through_masses(counts, sources, values, masses, gradients)
    return float(-np.log(p[-1]).mean()), by_weight, by_value


def through_masses(
    counts: Counts,
    sources: SourceCounts,
    discounts: FloatArray,
    masses: list[OrderMasses],
    gradients: list[OrderGradient],
) -> tuple[FloatArray, FloatArray]:
    """Return the derivatives of the loss with respect to weights `[S]` and discounts `[n, 4]`, back through
    merged_masses.

    gradients: with respect to the masses that the loss depends on directly; changed to the whole derivatives.
    """
    by_weight, by_discount = np.zeros(len(sources.names)), np.zeros(discounts.shape)
    for k in range(1, counts.order + 1):
        here, by = masses[k - 1], gradients[k - 1]
        by_top = np.empty_like(here.top)
        _through_contexts(here.begins, by.total, by.left, by.mass, by.off)
        _through_discount(here.mass, here.top, discounts[k - 1], by.mass, by.off, by_top, by_discount[k - 1])
        raw = _through_entries(*sources.entries[k - 1], here.contributor, by.mass, by_top, by_weight)
        if k < counts.order:
            suffix = counts.suffix[k - 1]
            _through_longer(suffix.bits, suffix.width, by.mass, gradients[k].off)
            _through_top(here.contributor, by_top, raw, gradients[k].off)
    return by_weight, by_discount


@numba.njit(cache=True, nogil=True)
def _probabilities(context: Any, ngram: Any, mass: Any, off: Any, total: Any, left: Any, lower: Any, p: Any) -> None:
    """Compute p `[N]` of tokens in one order from those in the order below."""
    for i in range(len(p)):
        c, g = context[i], ngram[i]
        p[i] = lower[i]
        if c >= 0 and total[c] > 0:
            p[i] = left[c] * lower[i]
            if g >= 0:
                p[i] += mass[g] - off[g]
            p[i] /= total[c]


@numba.njit(cache=True, nogil=True)
def _through_probabilities(
    context: Any,
    ngram: Any,
    total: Any,
    left: Any,
    lower: Any,
    p: Any,
    by_p: Any,
    by_mass: Any,
    by_off: Any,
    by_total: Any,
    by_left: Any,
) -> None:
    """Add the derivatives with respect to all that p depends on; by_p becomes that with respect to `lower`."""
    for i in range(len(p)):
        c, g = context[i], ngram[i]
        if c >= 0 and total[c] > 0:
            by = by_p[i] / total[c]
            if g >= 0:
                by_mass[g] += by
                by_off[g] -= by
            by_left[c] += by * lower[i]
            by_total[c] -= by * p[i]
            by_p[i] = by * left[c]


@numba.njit(cache=True, nogil=True)
def _through_contexts(begins: Any, by_total: Any, by_left: Any, by_mass: Any, by_off: Any) -> None:
    for c in range(len(begins) - 1):
        for i in range(begins[c], begins[c + 1]):
            by_mass[i] += by_total[c]
            by_off[i] += by_left[c]


@numba.njit(cache=True, nogil=True)
def _through_discount(
    mass: Any, top: Any, discounts: Any, by_mass: Any, by_off: Any, by_top: Any, by_discount: Any
) -> None:
    for i in range(len(mass)):
        by, rest = by_off[i], mass[i]
        for r in range(NUM_TOP):
            by_top[i, r] = by * (discounts[r] - discounts[NUM_TOP])
            by_discount[r] += by * top[i, r]
            rest -= top[i, r]
        by_discount[NUM_TOP] += by * max(rest, 0.0)
        by_mass[i] += by * discounts[NUM_TOP]


@numba.njit(cache=True, nogil=True)
def _through_entries(
    nodes: Any, sources: Any, counts: Any, contributor: Any, by_mass: Any, by_top: Any, by_weight: Any
) -> Any:
    """Return which n-grams have entries, whose contributors are sources: bool `[M]`."""
    raw = np.zeros(len(by_mass), np.bool_)
    for e in range(len(nodes)):
        node = nodes[e]
        by_weight[sources[e]] += counts[e] * by_mass[node]
        if not raw[node]:
            raw[node] = True
            for r in range(NUM_TOP):
                if contributor[node, r] != NO_CONTRIBUTOR:
                    by_weight[contributor[node, r]] += by_top[node, r]
    return raw


@numba.njit(cache=True, nogil=True)
def _through_longer(bits: Any, width: int, by_mass: Any, by_longer: Any) -> None:
    for i in range(len(by_longer)):
        by_longer[i] += by_mass[read(bits, width, i)]


@numba.njit(cache=True, nogil=True)
def _through_top(contributor: Any, by_top: Any, raw: Any, by_longer: Any) -> None:
    for i in range(len(raw)):
        if not raw[i]:
            for r in range(NUM_TOP):
                if contributor[i, r] != NO_CONTRIBUTOR:
                    by_longer[contributor[i, r]] += by_top[i, r]

"""The weights of sources and the discounts of all orders by maximum likelihood on held-out text (pocolm, Povey 2016).

The probability of a token depends on the masses of a few n-grams and contexts, and these on those of longer n-grams,
down to the weights and discounts: the gradient of the likelihood goes the same way back, and L-BFGS finds the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from lmtool.data.split import Split
from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.counting.source_counts import SourceCounts
from lmtool.ngram.estimation.estimate import further_types
from lmtool.ngram.estimation.merging import OrderGradient, merged_masses, through_masses
from lmtool.ngram.smoothers.base import MergingSmoother
from lmtool.system.arrays import FloatArray, IntArray

STEPS = 200  # of L-BFGS, at most
SMALL = 1e-6  # a step that changes the mean log p of a token by less is the last one


@dataclass(frozen=True, slots=True)
class HeldOut:
    """N held-out tokens. context, ngram: their nodes of each order from 1 to n, int64 `[N]`, within the order below and
    within the order; -1 for what was never seen. types: of the uniform distribution below the unigrams.
    """

    context: list[IntArray]
    ngram: list[IntArray]
    types: int

    @classmethod
    def of(cls, counts: Counts, text: Split, types: int) -> HeldOut:
        """Those of a text."""
        contexts, targets = text.windows(np.arange(text.tokens), counts.order - 1)
        trie = counts.trie
        found = cls([np.zeros_like(targets)], [targets], types)
        nodes = trie.find_contexts(contexts, counts.bos, counts.order - 1)
        for k in range(2, counts.order + 1):
            node = nodes[:, k - 2].copy()
            ngram = trie.find_followers(node, targets)
            found.context.append(np.where(node >= 0, node - trie.first(k - 1), -1))
            found.ngram.append(np.where(ngram >= 0, ngram - trie.first(k), -1))
        return found


def tune_merged(counts: Counts, smoother: MergingSmoother, text: Split) -> tuple[float, float]:
    """Tune the smoother's weights and values to the highest likelihood of held-out text.

    Returns its perplexity before and after.
    """
    import torch

    sources = counts.sources or SourceCounts.of_one(counts)
    held_out = HeldOut.of(counts, text, counts.trie.vocabulary_size - 1 + further_types(counts, smoother))
    low, high = (torch.tensor(bound, dtype=torch.float64) for bound in (smoother.low, smoother.high))
    fraction = (torch.from_numpy(smoother.values) - low) / (high - low)
    # Unconstrained: weights = softmax(scores), values = low + (high - low) sigmoid(logits).
    scores = torch.from_numpy(smoother.weights_of(sources.names)).log().requires_grad_(True)
    logits = torch.logit(fraction.clamp(1e-4, 1 - 1e-4)).requires_grad_(True)
    optimizer = torch.optim.LBFGS(
        [scores, logits], max_iter=STEPS, tolerance_grad=1e-7, tolerance_change=SMALL, line_search_fn="strong_wolfe"
    )
    losses: list[float] = []

    def closure() -> Any:
        optimizer.zero_grad()
        weights, values = torch.softmax(scores, 0), low + (high - low) * torch.sigmoid(logits)
        loss, by_weight, by_value = loss_and_gradient(
            counts, sources, held_out, weights.detach().numpy(), values.detach().numpy()
        )
        torch.autograd.backward([weights, values], [torch.from_numpy(by_weight), torch.from_numpy(by_value)])
        losses.append(loss)
        return torch.tensor(loss, dtype=torch.float64)

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        smoother.weights = torch.softmax(scores, 0).numpy()
        smoother.values = (low + (high - low) * torch.sigmoid(logits)).numpy()
    after = loss_and_gradient(counts, sources, held_out, smoother.weights, smoother.values)[0]
    return float(np.exp(losses[0])), float(np.exp(after))


def loss_and_gradient(
    counts: Counts, sources: SourceCounts, held_out: HeldOut, weights: FloatArray, values: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """The mean -log p of held-out tokens, and its derivatives by weights `[S]` and discounts `[n, 4]`."""
    masses = merged_masses(counts, sources, weights, values)
    tokens = len(held_out.context[0])
    p = [np.full(tokens, 1.0 / held_out.types)]
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


@numba.njit(cache=True, nogil=True)
def _probabilities(context: Any, ngram: Any, mass: Any, off: Any, total: Any, left: Any, lower: Any, p: Any) -> None:
    """p `[N]` of tokens under one order, of those under the order below."""
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
    """Adds the derivatives by what p depends on; by_p becomes those by `lower`."""
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

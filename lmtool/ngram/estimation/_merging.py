"""Merge the counts of several sources, given their weights and the discounts; and the gradient of the likelihood of
held-out text with respect to both (pocolm, Povey 2016). smoothers/count_merging.py is the option.

    p(w|h) = (mass(hw) - off(hw)) / mass(h.) + off(h.) / mass(h.) p(w|h')

Legend: M n-grams of an order, C their contexts, S sources, E entries of a source's count. An n-gram has contributions,
each a number of 0 or more; its mass is their sum, and what is discounted from it depends on the three largest:

    mass(hw) = x1 + x2 + ...                                    x1 >= x2 >= x3 >= ...
    off(hw) = D1 x1 + D2 x2 + D3 x3 + D4 (x4 + x5 + ...)

In the highest order, and for n-grams that begin with `<s>`, each occurrence contributes the weight of its source.
In lower orders, each n-gram vhw contributes off(vhw): its discount is what falls to the shorter context.

The probability of a token depends on the masses of a few n-grams and contexts, and these on those of longer n-grams,
down to the weights and discounts; the gradient goes back the same way. Each kernel `_through_x` is the derivative of
the kernel `_x` or `_add_x`; tests/ngram/test_count_merging.py compares them with finite differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np

from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts, SourceCounts
from lmtool.ngram.tables.packed import read
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.system.process import memory_available
from lmtool.system.terminal import size_text

NUM_TOP = 3  # number of contributions with their own discount; all others share the last one
BYTES_PER_NGRAM = 120  # bytes per n-gram of the masses and their gradient
NO_CONTRIBUTOR = np.iinfo(np.int64).max


class OrderMasses(NamedTuple):
    """The masses of one order.

    mass, off: float64 `[M]`.
    top: float64 `[M, NUM_TOP]`, the largest contributions, or 0 if there are fewer.
    contributor: int64 `[M, NUM_TOP]`, their source or longer n-gram, or NO_CONTRIBUTOR.
    begins: int64 `[C + 1]`, where the n-grams of each context begin.
    total, left: float64 `[C]`, the sums of mass and off over the words after each context.
    """

    mass: FloatArray
    off: FloatArray
    top: FloatArray
    contributor: IntArray
    begins: IntArray
    total: FloatArray
    left: FloatArray


def merged_masses(
    counts: Counts, sources: SourceCounts, weights: FloatArray, discounts: FloatArray
) -> list[OrderMasses]:
    """Return the masses of orders 1 to n. weights: of the sources, `[S]`. discounts: D1 to D4 per order, `[n, 4]`."""
    ngrams = sum(counts.trie.sizes)
    needed, free = BYTES_PER_NGRAM * ngrams, memory_available()
    if free is not None and needed > free:
        sizes = f"{size_text(needed)}, and {size_text(free)} are free"
        raise UserError(f"merging {ngrams:,} n-grams takes {sizes}: use a lower model.order or less text")
    masses: list[OrderMasses] = []
    for k in range(counts.order, 0, -1):
        size = counts.trie.sizes[k - 1]
        mass, off, top = np.zeros(size), np.empty(size), np.zeros((size, NUM_TOP))
        contributor = np.full((size, NUM_TOP), NO_CONTRIBUTOR)
        _add_entries(*sources.entries[k - 1], weights, mass, top, contributor)
        if masses:
            suffix = counts.suffix[k - 1]
            _add_longer(suffix.bits, suffix.width, masses[-1].off, mass, top, contributor)
        begins = np.array([0, size]) if k == 1 else counts.trie.begins(k - 1, 0, counts.trie.sizes[k - 2])
        total, left = np.zeros(len(begins) - 1), np.zeros(len(begins) - 1)
        masses.append(OrderMasses(mass, off, top, contributor, begins, total, left))
        _discount(masses[-1], discounts[k - 1])
    return masses[::-1]


@numba.njit(cache=True, nogil=True, inline="always")
def _insert(top: Any, contributor: Any, node: Any, value: Any, who: Any) -> None:
    # The plain form sorts all contributions of an n-gram, as tests/ngram/test_count_merging.py does; only the largest
    # are kept here, since an n-gram may have millions.
    if value > top[node, 2]:
        at = 2
        while at > 0 and value > top[node, at - 1]:
            top[node, at] = top[node, at - 1]
            contributor[node, at] = contributor[node, at - 1]
            at -= 1
        top[node, at] = value
        contributor[node, at] = who


@numba.njit(cache=True, nogil=True)
def _add_entries(nodes: Any, sources: Any, counts: Any, weights: Any, mass: Any, top: Any, contributor: Any) -> None:
    for e in range(len(nodes)):
        weight = weights[sources[e]]
        mass[nodes[e]] += counts[e] * weight
        for _ in range(min(counts[e], NUM_TOP)):
            _insert(top, contributor, nodes[e], weight, sources[e])


@numba.njit(cache=True, nogil=True)
def _add_longer(bits: Any, width: int, off: Any, mass: Any, top: Any, contributor: Any) -> None:
    for i in range(len(off)):
        node = read(bits, width, i)
        mass[node] += off[i]
        _insert(top, contributor, node, off[i], i)


@numba.njit(cache=True, nogil=True)
def _discount(order: Any, discounts: Any) -> None:
    """Compute off, and the sums of it and mass."""
    mass, off, top, _, begins, total, left = order
    d1, d2, d3, d4 = discounts
    for c in range(len(total)):
        for i in range(begins[c], begins[c + 1]):
            rest = max(mass[i] - top[i, 0] - top[i, 1] - top[i, 2], 0.0)
            off[i] = d1 * top[i, 0] + d2 * top[i, 1] + d3 * top[i, 2] + d4 * rest
            total[c] += mass[i]
            left[c] += off[i]


def loss_and_gradient(
    counts: Counts,
    sources: SourceCounts,
    nodes: list[tuple[IntArray, IntArray]],
    types: int,
    weights: FloatArray,
    values: FloatArray,
    loss: Callable[[FloatArray], tuple[float, FloatArray]],
) -> tuple[float, FloatArray, FloatArray]:
    """Return the loss of held-out tokens, and its derivatives: of weights `[S]` and of discounts `[n, 4]`.

    nodes: of the tokens in each order (tuning.held_out_nodes). types: number of types of the uniform distribution.
    loss: as in Smoother.gradient.
    """
    masses = merged_masses(counts, sources, weights, values)
    tokens = len(nodes[0][0])
    p = [np.full(tokens, 1.0 / types)]
    for where, order in zip(nodes, masses, strict=True):
        p.append(np.empty(tokens))
        _score_tokens(*where, order, p[-2], p[-1])
    # With respect to mass, off, total and left of each order, first as far as the loss depends on them directly.
    gradients = [tuple(np.zeros_like(part) for part in (o.mass, o.off, o.total, o.left)) for o in masses]
    value, by_p = loss(p[-1])
    for k in range(counts.order - 1, -1, -1):
        _through_score_tokens(*nodes[k], masses[k], p[k], p[k + 1], by_p, gradients[k])
    by_weight, by_value = np.zeros(len(weights)), np.zeros(values.shape)
    for k, (order, gradient) in enumerate(zip(masses, gradients, strict=True), start=1):
        by_mass, by_top = gradient[0], np.empty_like(order.top)
        _through_discount(order, values[k - 1], gradient, by_top, by_value[k - 1])
        raw = _through_entries(*sources.entries[k - 1], order.contributor, by_mass, by_top, by_weight)
        if k < counts.order:
            suffix, by_longer = counts.suffix[k - 1], gradients[k][1]
            _through_longer(suffix.bits, suffix.width, order.contributor, raw, by_mass, by_top, by_longer)
    return value, by_weight, by_value


@numba.njit(cache=True, nogil=True)
def _score_tokens(context: Any, ngram: Any, order: Any, lower: Any, p: Any) -> None:
    """Compute p `[N]` of tokens in one order from those in the order below."""
    mass, off, total, left = order.mass, order.off, order.total, order.left
    for i in range(len(p)):
        c, g = context[i], ngram[i]
        p[i] = lower[i]
        if c >= 0 and total[c] > 0:
            p[i] = left[c] * lower[i]
            if g >= 0:
                p[i] += mass[g] - off[g]
            p[i] /= total[c]


@numba.njit(cache=True, nogil=True)
def _through_score_tokens(context: Any, ngram: Any, order: Any, lower: Any, p: Any, by_p: Any, gradient: Any) -> None:
    """Add the derivatives with respect to all that p depends on; by_p becomes that with respect to `lower`."""
    total, left = order.total, order.left
    by_mass, by_off, by_total, by_left = gradient
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
def _through_discount(order: Any, discounts: Any, gradient: Any, by_top: Any, by_discount: Any) -> None:
    mass, _, top, _, begins, _, _ = order
    by_mass, by_off, by_total, by_left = gradient
    for c in range(len(by_total)):
        for i in range(begins[c], begins[c + 1]):
            by_mass[i] += by_total[c]
            by_off[i] += by_left[c]
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
def _through_longer(
    bits: Any, width: int, contributor: Any, raw: Any, by_mass: Any, by_top: Any, by_longer: Any
) -> None:
    for i in range(len(by_longer)):
        by_longer[i] += by_mass[read(bits, width, i)]
    for i in range(len(raw)):
        if not raw[i]:
            for r in range(NUM_TOP):
                if contributor[i, r] != NO_CONTRIBUTOR:
                    by_longer[contributor[i, r]] += by_top[i, r]

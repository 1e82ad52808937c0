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

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts, SourceCounts
from lmtool.ngram.tables.packed import read
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.system.process import memory_available
from lmtool.system.terminal import size_text

Array = npt.NDArray[Any]
NUM_TOP = 3  # number of contributions with their own discount; all others share the last one
BYTES_PER_NGRAM = 120  # of the masses and their gradient
NO_CONTRIBUTOR = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class OrderMasses:
    """The masses of one order.

    mass, off: float64 `[M]`. top: float64 `[M, NUM_TOP]`, the largest contributions, or 0 if there are fewer.
    contributor: int64 `[M, NUM_TOP]`, their source or longer n-gram, or NO_CONTRIBUTOR. begins: int64 `[C + 1]`, where
    the n-grams of each context begin. total, left: float64 `[C]`, the sums of mass and off over the words after each
    context.
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
    _require_memory(counts)
    found: list[OrderMasses] = []
    longer: OrderMasses | None = None
    for k in range(counts.order, 0, -1):
        size = counts.trie.sizes[k - 1]
        mass, top = np.zeros(size), np.zeros((size, NUM_TOP))
        contributor = np.full((size, NUM_TOP), NO_CONTRIBUTOR)
        _add_entries(*sources.entries[k - 1], weights, mass, top, contributor)
        if longer is not None:
            suffix = counts.suffix[k - 1]
            _add_longer(suffix.bits, suffix.width, longer.off, mass, top, contributor)
        off = np.empty(size)
        _discount(mass, top, discounts[k - 1], off)
        begins = np.array([0, size]) if k == 1 else counts.trie.begins(k - 1, 0, counts.trie.sizes[k - 2])
        total, left = np.empty(len(begins) - 1), np.empty(len(begins) - 1)
        _sum_contexts(mass, off, begins, total, left)
        longer = OrderMasses(mass, off, top, contributor, begins, total, left)
        found.append(longer)
    return found[::-1]


def _require_memory(counts: Counts) -> None:
    needed, free = BYTES_PER_NGRAM * sum(counts.trie.sizes), memory_available()
    if free is not None and needed > free:
        sizes = f"{size_text(needed)}, and {size_text(free)} are free"
        raise UserError(
            f"merging {sum(counts.trie.sizes):,} n-grams takes {sizes}: use a lower model.order or less text"
        )


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
def _discount(mass: Any, top: Any, discounts: Any, off: Any) -> None:
    d1, d2, d3, d4 = discounts
    for i in range(len(mass)):
        rest = max(mass[i] - top[i, 0] - top[i, 1] - top[i, 2], 0.0)
        off[i] = d1 * top[i, 0] + d2 * top[i, 1] + d3 * top[i, 2] + d4 * rest


@numba.njit(cache=True, nogil=True)
def _sum_contexts(mass: Any, off: Any, begins: Any, total: Any, left: Any) -> None:
    for c in range(len(begins) - 1):
        total[c] = 0.0
        left[c] = 0.0
        for i in range(begins[c], begins[c + 1]):
            total[c] += mass[i]
            left[c] += off[i]


def loss_and_gradient(
    counts: Counts,
    sources: SourceCounts,
    nodes: list[tuple[IntArray, IntArray]],
    types: int,
    weights: FloatArray,
    values: FloatArray,
) -> tuple[float, FloatArray, FloatArray]:
    """Return the mean -log p of held-out tokens, and its derivatives: of weights `[S]` and of discounts `[n, 4]`.

    nodes: of the tokens in each order, as tuning.held_out_nodes yields them. types: of the uniform distribution.
    """
    masses = merged_masses(counts, sources, weights, values)
    tokens = len(nodes[0][0])
    p = [np.full(tokens, 1.0 / types)]
    for where, order in zip(nodes, masses, strict=True):
        p.append(np.empty(tokens))
        _score_tokens(*where, order.mass, order.off, order.total, order.left, p[-2], p[-1])
    gradients = [[np.zeros_like(part) for part in (o.mass, o.off, o.total, o.left)] for o in masses]
    by_p = -1.0 / p[-1] / tokens
    for k in range(counts.order - 1, -1, -1):
        order = masses[k]
        _through_score_tokens(*nodes[k], order.total, order.left, p[k], p[k + 1], by_p, *gradients[k])
    by_weight, by_value = _through_masses(counts, sources, values, masses, gradients)
    return float(-np.log(p[-1]).mean()), by_weight, by_value


def _through_masses(
    counts: Counts,
    sources: SourceCounts,
    discounts: FloatArray,
    masses: list[OrderMasses],
    gradients: list[list[FloatArray]],
) -> tuple[FloatArray, FloatArray]:
    """Return the derivatives of the loss with respect to weights `[S]` and discounts `[n, 4]`.

    gradients: with respect to mass, off, total and left of each order as far as the loss depends on them directly;
    changed to the whole derivatives.
    """
    by_weight, by_discount = np.zeros(len(sources.names)), np.zeros(discounts.shape)
    for k in range(1, counts.order + 1):
        here, (by_mass, by_off, by_total, by_left) = masses[k - 1], gradients[k - 1]
        by_top = np.empty_like(here.top)
        _through_contexts(here.begins, by_total, by_left, by_mass, by_off)
        _through_discount(here.mass, here.top, discounts[k - 1], by_mass, by_off, by_top, by_discount[k - 1])
        raw = _through_entries(*sources.entries[k - 1], here.contributor, by_mass, by_top, by_weight)
        if k < counts.order:
            suffix, by_longer = counts.suffix[k - 1], gradients[k][1]
            _through_longer(suffix.bits, suffix.width, by_mass, by_longer)
            _through_top(here.contributor, by_top, raw, by_longer)
    return by_weight, by_discount


@numba.njit(cache=True, nogil=True)
def _score_tokens(context: Any, ngram: Any, mass: Any, off: Any, total: Any, left: Any, lower: Any, p: Any) -> None:
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
def _through_score_tokens(
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

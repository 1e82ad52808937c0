"""The masses of n-grams when the counts of several sources are merged (smoothers.count_merging), and their gradient.

Legend: M n-grams of an order, C their contexts, S sources, E entries of a source's count. An n-gram has contributions,
each a number of 0 or more; its mass is their sum, and what is discounted from it depends on the three largest:

    mass(hw) = x1 + x2 + ...                                    x1 >= x2 >= x3 >= ...
    off(hw) = D1 x1 + D2 x2 + D3 x3 + D4 (x4 + x5 + ...)

In the highest order, and for n-grams that begin with `<s>`, each occurrence contributes the weight of its source.
Below, each n-gram vhw contributes off(vhw): what was discounted there is what a shorter context is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.counting.source_counts import SourceCounts
from lmtool.ngram.tables.packed import read
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.system.memory import memory_available

Array = npt.NDArray[Any]
TOP = 3  # contributions that have a discount of their own; all others share the last one
BYTES_PER_NGRAM = 120  # that the masses and their gradient take
NOBODY = np.iinfo(np.int64).max  # in place of a contributor


@dataclass(frozen=True, slots=True)
class OrderMasses:
    """One order. mass, off: float64 `[M]`. top: float64 `[M, TOP]`, the largest contributions, 0 where there are fewer.
    contributor: int64 `[M, TOP]`, the source or the longer n-gram that they come from; NOBODY where there are fewer.
    begins: int64 `[C + 1]`, where the n-grams of each context begin. total, left: float64 `[C]`, the sums of mass and
    off over the words after each context.
    """

    mass: FloatArray
    off: FloatArray
    top: FloatArray
    contributor: IntArray
    begins: IntArray
    total: FloatArray
    left: FloatArray


@dataclass(frozen=True, slots=True)
class OrderGradient:
    """The derivatives of a number by mass and off of n-grams, `[M]`, and by total and left of contexts, `[C]`."""

    mass: FloatArray
    off: FloatArray
    total: FloatArray
    left: FloatArray

    @classmethod
    def zeros(cls, masses: OrderMasses) -> OrderGradient:
        """All 0."""
        return cls(*(np.zeros(len(part)) for part in (masses.mass, masses.off, masses.total, masses.left)))


def merged_masses(
    counts: Counts, sources: SourceCounts, weights: FloatArray, discounts: FloatArray
) -> list[OrderMasses]:
    """The masses of orders 1 to n. weights: of the sources, `[S]`. discounts: D1 to D4 of each order, `[n, 4]`."""
    _require_memory(counts)
    found: list[OrderMasses] = []
    longer: OrderMasses | None = None
    for k in range(counts.order, 0, -1):
        size = counts.trie.sizes[k - 1]
        mass, top = np.zeros(size), np.zeros((size, TOP))
        contributor = np.full((size, TOP), NOBODY)
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
        sizes = f"{needed / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB are free"
        raise UserError(
            f"merging {sum(counts.trie.sizes):,} n-grams takes {sizes}: take a lower model.order or less text"
        )


def through_masses(
    counts: Counts,
    sources: SourceCounts,
    discounts: FloatArray,
    masses: list[OrderMasses],
    gradients: list[OrderGradient],
) -> tuple[FloatArray, FloatArray]:
    """The derivatives of a number by the weights `[S]` and the discounts `[n, 4]`, back through merged_masses.

    gradients: by what masses holds, where the number depends on it directly; changed to the whole derivatives.
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


@numba.njit(cache=True, nogil=True, inline="always")
def _insert(top: Any, contributor: Any, node: Any, value: Any, who: Any) -> None:
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
        for _ in range(min(counts[e], TOP)):
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
        for r in range(TOP):
            by_top[i, r] = by * (discounts[r] - discounts[TOP])
            by_discount[r] += by * top[i, r]
            rest -= top[i, r]
        by_discount[TOP] += by * max(rest, 0.0)
        by_mass[i] += by * discounts[TOP]


@numba.njit(cache=True, nogil=True)
def _through_entries(
    nodes: Any, sources: Any, counts: Any, contributor: Any, by_mass: Any, by_top: Any, by_weight: Any
) -> Any:
    """Returns which n-grams have entries, whose contributors are sources: bool `[M]`."""
    raw = np.zeros(len(by_mass), np.bool_)
    for e in range(len(nodes)):
        node = nodes[e]
        by_weight[sources[e]] += counts[e] * by_mass[node]
        if not raw[node]:
            raw[node] = True
            for r in range(TOP):
                if contributor[node, r] != NOBODY:
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
            for r in range(TOP):
                if contributor[i, r] != NOBODY:
                    by_longer[contributor[i, r]] += by_top[i, r]

"""Log-probabilities and back-off weights in 4 to 8 bits (Federico & Bertoldi 2006, section 3.2; KenLM's -q and -b).

The values of each order are sorted and cut into bins of equal population; the mean of a bin is its level, and each
value is stored as the number of the nearest level. A few rounds of Lloyd's algorithm, in which the mean of the values
nearest to a level becomes the level, give separate levels to rare values far from the others: the sums of distributions
are then closer to one. 0, the weight of an n-gram that nothing follows, and minus infinity have separate levels, and
an order with no more distinct values than levels keeps its values exactly. Unigrams, a small part of the n-grams, stay
float32.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import overload

from lmtool.ngram.tables.packed import Packed, interpret, read
from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import Array, IntArray

LLOYD_ROUNDS = 10  # the means of bins of equal population are the first
EXACT = (-np.inf, 0.0)  # values that have separate levels, if they occur


class Codes(NamedTuple):
    """Quantized values of n-grams as the kernels take them; see QuantizedValues."""

    unigrams: Array
    levels: Array
    bits: Array
    width: int


def code_of(values: Any, order: Any, node: Any) -> Any:
    """Return the argument of `decode` for a node, int64: the number of its level, or the node if values are float32.

    For compiled code. values: float32 values of all nodes, or Codes. order: the order of the node's n-gram.
    """
    return interpret(_code_of, values, order, node)


def decode(values: Any, order: Any, code: Any) -> Any:
    """Return the value of a node for which code_of returned `code`, natural, float32; for compiled code.

    For many nodes, all codes should be read before the first is decoded: independent reads from memory overlap, and a
    dependent read after each of them would leave room for fewer.
    """
    return interpret(_decode, values, order, code)


@overload(code_of, jit_options={"forceinline": True})
def _code_of(values: Any, order: Any, node: Any) -> Any:
    def plain(values: Any, order: Any, node: Any) -> Any:
        return node

    def packed(values: Any, order: Any, node: Any) -> Any:
        if order == 1:
            return node
        return read(values.bits, values.width, node - len(values.unigrams))

    def in_bytes(values: Any, order: Any, node: Any) -> Any:
        if order == 1:
            return node
        return np.int64(values.bits[np.uint64(node - len(values.unigrams))])

    if isinstance(values, numba.types.Array):
        return plain
    return in_bytes if values.types[values.fields.index("bits")].dtype == numba.types.uint8 else packed


@overload(decode, jit_options={"forceinline": True})
def _decode(values: Any, order: Any, code: Any) -> Any:
    def plain(values: Any, order: Any, code: Any) -> Any:
        return values[code]

    def quantized(values: Any, order: Any, code: Any) -> Any:
        if order == 1:
            return values.unigrams[code]
        return values.levels[np.uint64((order - 2 << values.width) + code)]

    return plain if isinstance(values, numba.types.Array) else quantized


@numba.njit(cache=True, nogil=True, forceinline=True)
def value_of(values: Any, order: Any, node: Any) -> Any:
    """Return the log-probability or log back-off weight of a node of an order, natural, float32."""
    return decode(values, order, code_of(values, order, node))


@dataclass(frozen=True, slots=True)
class QuantizedValues:
    """Quantized values of the n-grams of orders 1 to m.

    unigrams: float32 `[V]`. levels: float32 `[m - 1, 2^width]`, those of each order from 2 on, ascending; the last is
    repeated to fill the row. codes: the number of the level of each node after the unigrams. sizes: n-grams per order.
    """

    unigrams: Array
    levels: Array
    codes: Packed
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.unigrams) + self.codes.length

    @property
    def width(self) -> int:
        return self.codes.width

    @property
    def arrays(self) -> Codes:
        bits = self.codes.bits.view(np.uint8) if self.width == 8 and sys.byteorder == "little" else self.codes.bits
        return Codes(self.unigrams, self.levels.reshape(-1), bits, self.width)

    def __getitem__(self, nodes: slice) -> Array:
        """Return the values of a range of nodes, float32."""
        first, last, _ = nodes.indices(len(self))
        values = np.empty(max(last - first, 0), dtype=np.float32)
        ends = np.cumsum([0, *self.sizes]).tolist()
        for order, (begin, end) in enumerate(itertools.pairwise(ends), start=1):
            a, b = max(first, begin), min(last, end)
            if a >= b:
                continue
            size = len(self.unigrams)
            part = self.unigrams[a:b] if order == 1 else self.levels[order - 2][self.codes[a - size : b - size]]
            values[a - first : b - first] = part
        return values


def quantize(values: Array, sizes: list[int], width: int, storage: Storage) -> QuantizedValues:
    """Quantize the values of nodes of orders 1 to m, float32, into codes of `width` bits. sizes: n-grams per order.

    Raises ValueError for NaN and for plus infinity, which are not log-probabilities or weights.
    """
    ends = np.cumsum([0, *(sizes or [0])]).tolist()
    codes = Packed.zeros(ends[-1] - ends[1], (1 << width) - 1, storage)
    levels = np.zeros((len(ends) - 2, 1 << width), dtype=np.float32)
    for row, (first, last) in enumerate(itertools.pairwise(ends[1:])):
        chosen = choose_levels(values[first:last], 1 << width, storage)
        levels[row, : len(chosen)] = chosen
        levels[row, len(chosen) :] = chosen[-1] if len(chosen) else 0.0
        for a, b in storage.pieces(last - first):
            codes.put(first - ends[1] + a, nearest_levels(values[first + a : first + b], chosen))
    return QuantizedValues(np.array(values[: ends[1]]), levels, codes, tuple(sizes))


def choose_levels(values: Array, count: int, storage: Storage) -> Array:
    """Return at most `count` ascending levels for values `[N]`, float32: means, and the numbers of EXACT that occur."""
    ascending = storage.empty(len(values), np.float32)
    for a, b in storage.pieces(len(values)):
        ascending[a:b] = values[a:b]
    ascending.sort()
    if len(values) and not ascending[-1] < np.inf:  # NaN is sorted last
        raise ValueError("log-probabilities and back-off weights must be numbers or minus infinity")
    exact = []
    for level in EXACT:
        first, last = (int(np.searchsorted(ascending, level, side)) for side in ("left", "right"))
        if first < last:
            exact.append(level)
            ascending[first : len(ascending) - last + first] = ascending[last:]
            ascending = ascending[: len(ascending) - last + first]
    return np.unique(np.array([*exact, *_means(ascending, count - len(exact))], dtype=np.float32))


def _means(ascending: Array, count: int) -> list[float]:
    """Return the means of at most `count` bins of equal population of ascending values."""
    means = _first_distinct(ascending, count + 1)
    if len(means) <= count:
        return means
    cuts = [len(ascending) * k // count for k in range(count + 1)]
    for _ in range(LLOYD_ROUNDS):
        bins = [ascending[a:b] for a, b in itertools.pairwise(cuts) if a < b]
        means = [float(part.mean(dtype=np.float64)) for part in bins]
        cuts = [0, *np.searchsorted(ascending, _middles(means)).tolist(), len(ascending)]
    return means


def _middles(levels: Sequence[float] | Array) -> Array:
    """Return the midpoints between levels, ascending, float32: a value above one is nearer to the next level."""
    both = np.asarray(levels, dtype=np.float64)
    return ((both[1:] + both[:-1]) / 2).astype(np.float32)


def _first_distinct(values: Array, most: int) -> list[float]:
    """Return the first `most` distinct values of ascending ones."""
    found: list[float] = []
    at = 0
    while at < len(values) and len(found) < most:
        found.append(float(values[at]))
        at = int(np.searchsorted(values, values[at], "right"))
    return found


def nearest_levels(values: Array, levels: Array) -> IntArray:
    """Return the numbers `[N]` of the levels nearest to values `[N]`; a level of EXACT is only for an equal value."""
    is_exact = np.isin(levels, EXACT)
    regular, place = levels[~is_exact], np.flatnonzero(~is_exact)
    numbers = np.zeros(len(values), dtype=np.int64)
    if len(regular):
        numbers = place[np.searchsorted(_middles(regular), values)]
    for number in np.flatnonzero(is_exact):
        numbers[values == levels[number]] = number
    return numbers

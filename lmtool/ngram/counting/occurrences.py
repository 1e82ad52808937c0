"""Sort the occurrences of n-grams order by order, so that equal ones come together, and count them.

If the occurrences of all n-grams of order k-1 are in the order of their numbers, a stable sort by the word before each
puts those of order k in order: by the first word, then by the number of the rest, the suffix. So an order takes one
pass of a radix sort, with a whole word as its digit: most words of a text are among a few frequent ones, whose places
stay in the cache. In files it takes two passes, of half a word each, so that few pages are written to at a time.

An occurrence carries what later orders need, so that nothing is looked up in the text: from its lowest bit on, the
words before the n-gram, the nearest first; in its highest bits, suffix << word width | last word.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np

from lmtool.errors import UserError
from lmtool.ngram.counting.sorting import digit_places
from lmtool.ngram.tables.packed import CELL, Packed, borrow, prefetch, read, width_of
from lmtool.ngram.tables.storage import Storage, whole_numbers_below
from lmtool.system.arrays import Array
from lmtool.system.parallel import Call, cut_evenly, run

Pieces = list[tuple[int, int]]  # range of each thread: first, last + 1
MAX_WORD_BITS = 20  # maximum bits of a word for sorting in one pass
PER_STEP = 1 << 20  # occurrences of each thread between two checks of the memory in use
AHEAD = 24  # occurrences whose places are fetched into the cache before they are written: 1.2 times as fast
SPARE_CELLS = 2  # read after the last occurrence, for nothing


class Rows(NamedTuple):
    """Occurrences: cells uint64, `each` of them per occurrence; the high bits begin at bit `low` of its last cell."""

    cells: Array
    each: int
    low: int


class Occurrences:
    """The sorted occurrences of the n-grams of one order k, which is 2 at first and increases after each count."""

    def __init__(self, words: Array, bos: int, order: int, vocabulary_size: int, storage: Storage) -> None:
        """words: the text, `[T]`, `<s>` before each sentence. order: the highest, at least 2. bos: the last word."""
        self.bos, self.order, self.size, self.storage = bos, order, vocabulary_size, storage
        self.width, self.k = width_of(vocabulary_size - 1), 0
        self.in_one_pass = storage.memory is None and self.width <= MAX_WORD_BITS
        self.digit = self.width if self.in_one_pass else -(-self.width // 2)  # bits
        self.kind = whole_numbers_below(max(vocabulary_size, len(words)))
        pieces, counts = self._pieces(len(words))
        self._in_steps(pieces, lambda t, a, b: (_count_words, words, bos, a, b, counts[t]))
        # The number of a 1-gram is its word; its suffix and its context are the empty n-gram, number 0.
        self._sort(pieces, counts, 1 - self.width, lambda _, *to: (_scatter_words, words, bos, self.width, *to))
        self.starts, self.ends = np.zeros(vocabulary_size, dtype=np.int64), np.ones(1, dtype=self.kind)
        self.count()
        self.starts, self.ends = np.arange(vocabulary_size), np.full(vocabulary_size, vocabulary_size, dtype=self.kind)

    def count(self) -> tuple[Array, Array, Array]:
        """Return the U n-grams of order k: keys uint64 (see TrieBuilder.keys), suffixes, counts `[U]`; k increases."""
        pieces, before = self._pieces(self.total)
        if self.k > 1:  # all occurrences of an n-gram are counted by one thread
            where = self.rows, self.bounds
            pieces = [(int(_start(*where, a)), int(_start(*where, b))) for a, b in pieces]
        extended = self.bos if self.k < self.order else 0  # the words below it; no word is before <s>
        here = self.rows, self.bounds, self.width, extended
        found = np.zeros((len(pieces) + 1, 1), dtype=np.int64)
        self._in_steps(pieces, lambda t, a, b: (_count_ngrams, *here, a, b, found[t + 1], before[t]))
        size = self.size if self.k == 1 else int(found.sum())
        numbers = np.cumsum(found, axis=0) - 1  # number of the n-gram before each piece
        keys, suffixes = self.storage.empty(size, np.uint64), self.storage.empty(size, self.kind)
        counts = self.storage.zeros(size, self.kind)
        ngrams = self.k, self.starts, self.ends, keys, suffixes, counts
        bits = 0 if self.k == 1 else width_of(size - 1)
        self._sort(pieces, before, bits, lambda t, *to: (_extend, *here, numbers[t], *ngrams, *to))
        return keys, suffixes, counts

    def follow(self, begins: Array, suffixes: Packed) -> None:
        """Prepare the next count, given the starts of the last n-grams by context, and their suffixes."""
        self.starts, self.ends = begins[self.starts].astype(np.int64), self.storage.empty(suffixes.length, self.kind)
        packed = suffixes.bits, suffixes.width
        self._in_steps(cut_evenly(suffixes.length), lambda _, a, b: (_find_ends, begins, *packed, a, b, self.ends))

    def _pieces(self, total: int) -> tuple[Pieces, Array]:
        """Return pieces of range(total) for the threads, and zeros to count words in each: V, rounded up to digits."""
        pieces = cut_evenly(total)
        return pieces, np.zeros((len(pieces), -(-self.size >> self.digit) << self.digit), dtype=np.int64)

    def _in_steps(self, pieces: Pieces, call: Callable[[int, int, int], Call]) -> None:
        """Run call(thread, first, last) over all pieces, and keep within the memory limit."""
        for first, last in self.storage.pieces(max(b - a for a, b in pieces), PER_STEP):
            run([call(t, a + first, min(a + last, b)) for t, (a, b) in enumerate(pieces) if a + first < b])

    def _sort(self, pieces: Pieces, counts: Array, number_bits: int, call: Callable[..., Call]) -> None:
        """Sort the occurrences of order k+1; k increases.

        pieces: pieces of the occurrences of order k. counts: counts of the words before these. number_bits: bits of the
        n-grams of order k. call: extends the occurrences of a part of a piece and writes them to the places of their
        digits.
        """
        self.k += 1
        if self.k <= self.order and number_bits + self.width > CELL:
            ngrams = f"the n-grams of order {self.k} need more than {CELL} bits"
            raise UserError(f"model.order={self.order}: {ngrams}; use less text")
        digits = counts.reshape(len(pieces), -1, 1 << self.digit)  # the higher one, the lower one
        total, places = digits.sum(axis=0), digit_places(digits.sum(axis=1))
        self.total = int(total.sum())
        self.bounds = np.append(0, np.cumsum(total))[: self.size + 1]  # where the occurrences of each first word begin
        low = (1 << self.digit) - 1, self.width if self.in_one_pass else 0  # the digit's mask; bits not needed any more
        rows = self._empty(self.order - self.k + (not self.in_one_pass), number_bits)
        self._in_steps(pieces, lambda t, a, b: call(t, a, b, *low, places[t], rows))
        if not self.in_one_pass:
            # Each thread takes occurrences of some lower digits, so that the counts of their higher ones are known.
            ends = np.append(0, np.cumsum(total.sum(axis=0)))
            cuts = np.searchsorted(ends, [0, *(b for _, b in cut_evenly(self.total))])
            places = digit_places(np.stack([total[:, a:b].sum(axis=1) for a, b in itertools.pairwise(cuts)]))
            pieces = list(itertools.pairwise(ends[cuts].tolist()))
            high, source, rows = (self.width, self.digit), rows, self._empty(self.order - self.k, number_bits)
            self._in_steps(pieces, lambda t, a, b: (_scatter_again, source, *high, a, b, places[t], rows))
        self.rows = rows

    def _empty(self, words: int, number_bits: int) -> Rows:
        """Return rows for all occurrences, with `words` words before each."""
        high = number_bits + self.width
        each = -(-(words * self.width + high) // CELL)
        return Rows(self.storage.empty(self.total * each + SPARE_CELLS, np.uint64), each, CELL - high)


# In the kernels, numbers are uint64: each index of int64 would be compared with 0 first.
U = np.uint64
ZERO, ONE, LAST_BIT = U(0), U(1), U(CELL - 1)


@numba.njit(cache=True, nogil=True)
def _count_words(words: Any, bos: int, first: int, last: int, counts: Any) -> None:
    for i in range(first, last):
        if words[i] != bos:
            counts[words[i]] += 1


@numba.njit(cache=True, nogil=True)
def _scatter_words(
    words: Any, bos: int, width: int, first: int, last: int, mask: int, drop: int, places: Any, rows: Any
) -> None:
    rows = borrow(rows)
    window, w = np.zeros(rows.each + 2, dtype=np.uint64), U(width)  # the word, the one before it, ...
    for i in range(max(first - len(window) * CELL, 0), last):
        for c in range(len(window) - 1, 0, -1):
            window[c] = window[c] << w | window[c - 1] >> (U(CELL) - w)
        window[0] = window[0] << w | U(words[i])
        if i >= first and words[i] != bos:
            prefetch(rows.cells, places[words[min(i + AHEAD, last - 1)] & mask] * rows.each)
            place = places[words[i] & mask]
            places[words[i] & mask] = place + 1
            _put(window, ZERO, U(drop), ZERO, rows, U(place))


@numba.njit(cache=True, nogil=True, forceinline=True)
def _put(cells: Any, at: Any, drop: Any, high: Any, rows: Any, place: Any) -> None:
    """Write the occurrence that begins at cell `at`, without its lowest bits and with other high bits."""
    each, back = U(rows.each), LAST_BIT - drop
    to, top = place * each, each - ONE
    if top > ZERO:
        rows.cells[to] = cells[at] >> drop | (cells[at + ONE] << ONE) << back
        for c in range(ONE, top):  # seldom entered
            rows.cells[to + c] = cells[at + c] >> drop | (cells[at + c + ONE] << ONE) << back
    rest = cells[at + top] >> drop | (cells[at + top + ONE] << ONE) << back
    rows.cells[to + top] = rest & ((ONE << U(rows.low)) - ONE) | high << U(rows.low)


@numba.njit(cache=True, nogil=True)
def _scatter_again(source: Any, width: int, shift: int, first: int, last: int, places: Any, rows: Any) -> None:
    source, rows = borrow(source), borrow(rows)
    each, mask = U(source.each), (ONE << U(width)) - ONE
    for i in range(U(first), U(last)):
        digit = (source.cells[i * each] & mask) >> U(shift)
        place = places[digit]
        places[digit] = place + 1
        high = source.cells[i * each + each - ONE] >> U(source.low)
        _put(source.cells, i * each, U(width), high, rows, U(place))


@numba.njit(cache=True, nogil=True)
def _start(rows: Any, bounds: Any, i: int) -> int:
    """Return the first occurrence from number i on that is the first one of its n-gram, or the number of them all."""
    cells, each, low = borrow(rows)
    end = bounds[np.searchsorted(bounds, i)]  # end of the first word's range, or i itself
    while i < end and cells[i * each - 1] >> U(low) == cells[i * each + each - 1] >> U(low):
        i += 1
    return i


@numba.njit(cache=True, nogil=True)
def _count_ngrams(
    rows: Any, bounds: Any, width: int, extended: int, first: int, last: int, num_distinct: Any, counts: Any
) -> None:
    """Add to the number of n-grams, and to the counts of the words before those of first words below `extended`."""
    cells, each, low = borrow(rows)
    each, low, mask, distinct = U(each), U(low), (ONE << U(width)) - ONE, ZERO
    word = U(np.searchsorted(bounds, first, side="right") - 1)
    end = U(bounds[word + ONE])
    before = ~ZERO if bounds[word] == first else cells[U(first) * each - ONE] >> low
    for i in range(U(first), U(last)):
        if i == end:
            while U(bounds[word + ONE]) == i:
                word += ONE
            end, before = U(bounds[word + ONE]), ~ZERO
        high = cells[i * each + each - ONE] >> low
        distinct += U(high != before)
        before = high
        if word < U(extended):
            counts[cells[i * each] & mask] += 1
    num_distinct[0] += distinct


@numba.njit(cache=True, nogil=True)
def _extend(
    rows: Any,
    bounds: Any,
    width: int,
    extended: int,
    number: Any,
    order: int,
    starts: Any,
    ends: Any,
    keys: Any,
    suffixes: Any,
    counts: Any,
    first: int,
    last: int,
    digit: int,
    drop: int,
    places: Any,
    longer: Any,
) -> None:
    """Write the n-grams and, of those whose first word is below `extended`, the occurrences with the word before.

    number: number of the previous n-gram. starts: the first n-gram one shorter that begins with each word, `[V]`. ends:
    for each n-gram one shorter, the end of those that begin with its suffix and are as long: an n-gram's context is the
    first one of its word whose end lies after its suffix.
    """
    (cells, each, low), longer = borrow(rows), borrow(longer)
    each, low, w, mask, node = U(each), U(low), U(width), (ONE << U(width)) - ONE, U(number[0])
    # A 1-gram's word is also its number, and is written once; its own suffix is 0.
    number_from, number_to = (ZERO if order == 2 else w), (ZERO if order == 1 else w)
    word = U(np.searchsorted(bounds, first, side="right") - 1)
    end, context = U(bounds[word + ONE]), U(starts[word])
    before = ~ZERO if bounds[word] == first else cells[U(first) * each - ONE] >> low
    for i in range(U(first), U(last)):
        if i == end:
            while U(bounds[word + ONE]) == i:
                word += ONE
            end, context, before = U(bounds[word + ONE]), U(starts[word]), ~ZERO
        high = word if order == 1 else cells[i * each + each - ONE] >> low
        suffix = high >> number_from
        # No branch asks whether the n-gram is a new one, which the processor could not predict.
        node = word if order == 1 else node + U(high != before)
        before = high
        context += U(ends[context] <= suffix)
        while ends[context] <= suffix:
            context += ONE
        keys[node] = context << w | (high & mask)
        suffixes[node] = suffix
        counts[node] += ONE
        if word < U(extended):
            ahead = cells[min(i + U(AHEAD), U(last) - ONE) * each] & U(digit)
            prefetch(longer.cells, U(places[ahead]) * U(longer.each))
            this = cells[i * each] & U(digit)
            place = places[this]
            places[this] = place + 1
            _put(cells, i * each, U(drop), node << number_to | (high & mask), longer, U(place))
    number[0] = node


@numba.njit(cache=True, nogil=True)
def _find_ends(begins: Any, bits: Any, width: int, first: int, last: int, ends: Any) -> None:
    for i in range(U(first), U(last)):
        ends[i] = begins[U(read(bits, width, i)) + ONE]

"""Step 2: counts -> back-off table, for every smoother in the same way.

A smoother says, for an n-gram hw that was seen and its context h, what share of the probability is its own, and what
weight is left for the shorter context h'. From that, order by order,

    interpolated     p(w|h) = share(hw) + weight(h) p(w|h')                  (Chen & Goodman 1998, eq. 4)
    backed off       p(w|h) = share(hw) where hw was seen, else backoff(h) p(w|h'), with backoff(h) such that the
                     probabilities of all words sum to one                   (Katz 1987, eq. 2)

and the unigrams fall back on the uniform distribution. The n-grams of an order are taken block by block, whole
contexts at a time, so that what is computed on the way stays small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.language_model import FloatArray, IntArray
from lmtool.ngram.counts import Counts
from lmtool.ngram.packed import Packed, read
from lmtool.ngram.storage import Storage
from lmtool.ngram.table import BackoffTable, log
from lmtool.ngram.trie import Trie
from lmtool.system.parallel import run

Array = npt.NDArray[Any]
BLOCK = 1 << 17  # n-grams in a block, about
LEAST_LEFT = 3e-6  # what a context must at least leave to words unseen after it (SRILM's Prob_Epsilon)
LARGEST = 10  # the largest r whose count of counts a smoother is told


class Form(Enum):
    """How a longer context and a shorter one go together."""

    interpolated = "interpolated"
    backed_off = "backed off"
    scores = "scores"  # backed off with the smoother's weight as it is: no probabilities


class Counting(Enum):
    """What a(hw) is."""

    occurrences = "occurrences"  # how often hw occurs
    # The same for the highest order and for n-grams that begin with <s>, which nothing stands before; else the number
    # of different words that stand before hw (Kneser & Ney 1995).
    continuations = "continuations"
    # The same for the highest order and for n-grams that begin with <s>; else 0: lower orders have no say.
    longest = "longest"


@dataclass(frozen=True, slots=True)
class Contexts:
    """What is known of C contexts h: arrays `[C]` of numpy, or of torch when parameters are tuned.

    total: a(h.), the sum of a(hw) over the words w. ones, twos, more: how many words have a(hw) = 1, 2, 3 or more.
    """

    total: Any
    ones: Any
    twos: Any
    more: Any

    @property
    def types(self) -> Any:
        """N_1+(h.): how many different words follow h."""
        return self.ones + self.twos + self.more


class Smoother:
    """What tells one smoother from another: a class below this one says what differs from what stands here.

    k is the order of hw, from 1 to n. unknown: the uniform distribution has one type more than the words that can be
    predicted, and its share is kept for types that are in no vocabulary. missing: what is to be added to the
    log-probability for a context that was never seen. values: parameters `[n, P]` that are given, estimated or tuned;
    low and high: their bounds, `[P]`. notes: what had to be done that the user should know.
    """

    form = Form.interpolated
    counting = Counting.occurrences
    unknown = False
    missing = 0.0
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __init__(self, order: int) -> None:
        self.values: Any = np.zeros((order, len(self.low)))
        self.notes: list[str] = []

    def fit(self, k: int, n: IntArray, newest: int) -> None:
        """Estimate the parameters of order k unless they were given; there are none to estimate if not said.

        n: counts of counts; n[r] n-grams of the order have a = r, r up to LARGEST. newest: a of the unigram that
        KenLM does not count, 0 where there is none.
        """

    def kept(self, k: int, a: Any) -> Any:
        """The numerator of share(hw), from a(hw); 0 where a is 0."""
        return a

    def norm(self, k: int, h: Contexts) -> Any:
        """The denominator of share(hw)."""
        return h.total

    def weight(self, k: int, h: Contexts) -> Any:
        """The weight of the shorter context; a form that backs off finds it from the sums."""
        return 0.0 * h.total


def estimate(
    counts: Counts,
    smoother: Smoother,
    *,
    cutoffs: list[int] | None = None,
    fit: bool = True,
    storage: Storage | None = None,
) -> BackoffTable:
    """Estimate the model of all orders.

    cutoffs: for each order the count up to which n-grams are left out, as KenLM's --prune; what they had falls to
    the shorter context. fit: estimate the smoother's parameters first.
    """
    trie, storage = counts.trie, storage or Storage()
    log_prob = storage.empty(sum(trie.sizes), np.float32)
    log_backoff = storage.empty(sum(trie.sizes[:-1]), np.float32)
    kept = np.ones(len(log_prob), dtype=bool) if cutoffs and any(cutoffs) else None
    lower, unseen = np.empty(0), 0.0
    for k in range(1, counts.order + 1):
        a = adjusted_counts(counts, k, smoother.counting, storage)
        if fit:
            smoother.fit(k, count_of_counts(a), newest_count(counts, a, k))
        here = slice(trie.first(k), trie.first(k + 1))
        if kept is not None and cutoffs and cutoffs[k - 1]:
            kept[here] = counts.count[k - 1].all() > cutoffs[k - 1]
        if k == 1:
            lower, unseen = unigrams(counts, smoother, a.all())
            log_prob[here] = log(lower)
            continue
        probability = storage.empty(trie.sizes[k - 1] if k < counts.order else 0, np.float64)
        order = _Order(
            k=k,
            trie=trie,
            smoother=smoother,
            a=a,
            suffix=counts.suffix[k - 2],
            lower=lower,
            kept=None if kept is None else kept[here],
            probability=probability,
            log_prob=log_prob[here],
            log_backoff=log_backoff[trie.first(k - 1) : trie.first(k)],
        )
        run([(_estimate_block, order, *bounds) for bounds in blocks(trie, k)])
        lower = probability
        storage.release()
    table = BackoffTable(
        trie=trie,
        log_prob=log_prob,
        log_backoff=log_backoff,
        bos=counts.bos,
        unseen=math.log(unseen) if unseen > 0 else -math.inf,
        missing=smoother.missing,
        normalised=smoother.form is not Form.scores,
        suffix_closed=True,
        notes=tuple(smoother.notes),
    )
    return table if kept is None else table.keep(kept)


@dataclass(frozen=True, slots=True)
class _Order:
    """What the blocks of order k share: what is read, and the three arrays that are written."""

    k: int
    trie: Trie
    smoother: Smoother
    a: Packed
    suffix: Packed
    lower: FloatArray
    kept: Array | None
    probability: FloatArray
    log_prob: Array
    log_backoff: Array


def _estimate_block(order: _Order, first_context: int, last_context: int) -> None:
    """The n-grams of order k whose contexts are nodes `first_context` to before `last_context` of order k-1."""
    k, smoother = order.k, order.smoother
    begins = order.trie.begins(k - 1, first_context, last_context)
    here = slice(int(begins[0]), int(begins[-1]))
    begins -= begins[0]
    context = np.repeat(np.arange(len(begins) - 1), np.diff(begins))  # of each n-gram
    a = order.a.get(here.start, here.stop)
    h = contexts_of(a, begins)
    with np.errstate(divide="ignore", invalid="ignore"):  # contexts that nothing follows
        norm = smoother.norm(k, h)
        share = smoother.kept(k, a) / norm[context]
        empty = 1.0 if smoother.form is not Form.scores else math.exp(smoother.missing)
        weight = np.where(begins[1:] > begins[:-1], smoother.weight(k, h), empty)
    lower = order.lower[order.suffix.get(here.start, here.stop)]  # p(w|h')
    if order.kept is not None:
        dropped = ~order.kept[here]
        weight += np.bincount(context[dropped], share[dropped], len(weight))
        share[dropped] = 0.0
    if smoother.form is Form.interpolated:
        p = share + weight[context] * lower
    elif smoother.form is Form.scores:
        p = np.where(share > 0, share, weight[context] * lower)
    else:
        share = share * make_room(share, norm, h.types < order.trie.vocabulary_size - 1, context)[context]
        own = share > 0
        weight, scale = backoff_weights(share, np.where(own, lower, 0.0), context, len(weight))
        p = np.where(own, share * scale[context], weight[context] * lower)
    order.probability[here] = p if len(order.probability) else 0.0
    order.log_prob[here] = log(p)
    order.log_backoff[first_context:last_context] = log(weight)


def make_room(share: FloatArray, norm: FloatArray, some_unseen: Array, context: IntArray) -> FloatArray:
    """What to multiply the shares of each context with so that something is left for words unseen after it.

    Where no discount left anything, the denominator grows by one, and by one again while it does not help (D. Paul's
    way, says SRILM, which does it so).
    """
    total = np.bincount(context, share, len(norm))
    full = (total > 1.0 - LEAST_LEFT) & some_unseen
    more = np.where(full, np.ceil(total * norm / (1.0 - LEAST_LEFT) - norm), 0.0)
    return np.where(full, norm / np.maximum(norm + more, 1.0), 1.0)


def backoff_weights(
    share: FloatArray, lower: FloatArray, context: IntArray, size: int
) -> tuple[FloatArray, FloatArray]:
    """What each of `size` contexts leaves to words unseen after it over what these have in the shorter context.

    Where no word is unseen, what would be left goes to those seen: the second array `[size]` says how much they grow.
    """
    left = 1.0 - np.bincount(context, share, size)
    rest = 1.0 - np.bincount(context, lower, size)
    all_seen = rest < 1e-9
    weight = np.maximum(left, 0.0) / np.where(all_seen, 1.0, rest)
    return np.where(all_seen, 0.0, weight), np.where(all_seen, 1.0 / np.maximum(1.0 - left, 1e-300), 1.0)


def unigrams(counts: Counts, smoother: Smoother, a: IntArray) -> tuple[FloatArray, float]:
    """Unigram probabilities `[V]` (0 for `<s>`) and what is left for each type that is in no vocabulary.

    A form that backs off gives what it has left to the words that were never seen, or to all if there are none.
    """
    h = contexts_of(a, np.array([0, len(a)]))
    share: FloatArray = smoother.kept(1, a) / smoother.norm(1, h)
    predicted = np.arange(len(a)) != counts.bos
    types = predicted.sum() + smoother.unknown
    if smoother.form is Form.interpolated:
        weight = float(np.broadcast_to(smoother.weight(1, h), 1)[0])
        p = np.where(predicted, share + weight / types, 0.0)
        return p, weight / types if smoother.unknown else 0.0
    if smoother.form is Form.backed_off:
        left = max(1.0 - share.sum(), 0.0)
        takers = predicted & (a == 0) if (predicted & (a == 0)).any() else predicted
        share = share + np.where(takers, left / takers.sum(), 0.0)
    return np.where(predicted, share, 0.0), 0.0


def adjusted_counts(counts: Counts, k: int, counting: Counting, storage: Storage) -> Packed:
    """a of every n-gram of order k; 0 for the unigram `<s>`, which is never predicted."""
    raw = counts.count[k - 1]
    if k == counts.order or counting is Counting.occurrences:
        if k > 1:
            return raw
        a: Array = raw.all()
    else:
        start = counts.from_start(k)
        a = storage.empty(raw.length, np.uint32)
        a[:start] = 0
        if counting is Counting.continuations:
            _count_suffixes(counts.suffix[k - 1].bits, counts.suffix[k - 1].width, counts.suffix[k - 1].length, a)
        a[start:] = raw.get(start, raw.length)
    if k == 1:
        a[counts.bos] = 0
    return Packed.of(a, storage=storage)


def count_of_counts(a: Packed) -> IntArray:
    """n_0 to n_LARGEST, `[LARGEST + 1]`: how many n-grams have each adjusted count."""
    counted = np.zeros(LARGEST + 2, dtype=np.int64)
    _histogram(a.bits, a.width, a.length, counted)
    return counted[: LARGEST + 1]


def newest_count(counts: Counts, a: Packed, k: int) -> int:
    """a of the unigram that KenLM leaves out of its counts of counts; 0 for other orders, which have none."""
    return int(a.get(counts.newest_word, counts.newest_word + 1)[0]) if k == 1 < counts.order else 0


def contexts_of(a: IntArray, begins: IntArray) -> Contexts:
    """The sums over each context's n-grams, which are those from begins[c] to before begins[c + 1]."""
    found = np.zeros((4, len(begins) - 1), dtype=np.float64)
    _sum_contexts(a, begins, found)
    return Contexts(*found)


def blocks(trie: Trie, k: int) -> list[tuple[int, int]]:
    """The contexts of order k's n-grams in pieces of about BLOCK n-grams, as (first, last + 1)."""
    contexts, total = trie.sizes[k - 2], trie.sizes[k - 1]
    wanted = np.arange(0, total, BLOCK)
    ends = np.unique(np.append(trie.parents(k, wanted), contexts))
    ends[0] = 0
    return list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)) if len(ends) > 1 else [(0, contexts)]


@numba.njit(cache=True, nogil=True)
def _sum_contexts(a: Any, begins: Any, found: Any) -> None:
    for c in range(len(begins) - 1):
        for i in range(begins[c], begins[c + 1]):
            found[0, c] += a[i]
            if a[i] > 0:
                found[min(a[i], 3), c] += 1


@numba.njit(cache=True, nogil=True)
def _histogram(bits: Any, width: int, length: int, counted: Any) -> None:
    last = len(counted) - 1
    for i in range(length):
        counted[min(read(bits, width, i), last)] += 1


@numba.njit(cache=True, nogil=True)
def _count_suffixes(bits: Any, width: int, length: int, a: Any) -> None:
    for i in range(length):
        a[read(bits, width, i)] += 1

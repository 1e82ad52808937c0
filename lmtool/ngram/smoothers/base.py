"""The contract of smoothers: numerator, denominator and weight of the shorter context, from counts.

For an n-gram hw, its context h and the shorter context h' (h without its first word), the estimator
(lmtool.ngram.estimation.estimate) combines them order by order:

    interpolated   p(w|h) = numerator(hw) / denominator(h) + weight(h) p(w|h')
    backed off     p(w|h) = numerator(hw) / denominator(h) if hw was seen, else backoff(h) p(w|h')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lmtool.errors import UserError

if TYPE_CHECKING:
    from lmtool.ngram.counting.counts import Counts
    from lmtool.system.arrays import FloatArray, IntArray

MAX_R = 10  # largest r of the counts of counts n_r that Smoother.fit gets
TUNED = "tuned"  # value of a setting whose parameters are tuned on held-out text


class Combination(Enum):
    """How the estimates after a context and after the shorter context are combined."""

    interpolated = "interpolated"
    backed_off = "backed off"
    # p(w|h) of n-grams that were seen as if interpolated, of others as if backed off: SRILM's -interpolate
    seen_interpolated = "interpolated if seen, else backed off"
    scores = "scores"  # backed off with the smoother's weight unchanged, so that scores do not sum to one


class Counting(Enum):
    """Which number of an n-gram hw is its adjusted count a(hw)."""

    occurrences = "occurrences"  # c(hw): how often hw occurs
    # c(hw) in the highest order and for n-grams that begin with <s>, which have no left context; in lower orders the
    # number of distinct words that precede hw (Kneser & Ney 1995).
    continuations = "continuations"
    # c(hw) in the highest order and for n-grams that begin with <s>; 0 in lower orders, which have no influence.
    longest = "longest"
    # The sum of the tables of all longer n-grams vhw, and c(hw) as with `continuations`; see Smoother.tables.
    tables = "tables"


@dataclass(frozen=True, slots=True)
class Contexts:
    """Sums over the n-grams hw of each of C contexts h: float64 arrays `[C]`, or tensors when parameters are tuned.

    total: a(h.), the sum of a(hw) over w. types: N1+(h.), the number of words w with a(hw) > 0, or the sum of the
    tables with Counting.tables. ones, twos: N1(h.), N2(h.), the number of words w with a(hw) = 1, = 2; 0 with tables.
    """

    total: Any
    types: Any
    ones: Any
    twos: Any


def add_note(notes: list[str], k: int, text: str) -> None:
    """Add a note about order k; orders with equal notes share one."""
    for place, (orders, _, said) in enumerate(note.partition(": ") for note in notes):
        if said == text:
            notes[place] = f"orders {orders.split(' ', 1)[1]}, {k}: {text}"
            return
    notes.append(f"order {k}: {text}")


def values_of_orders(key: str, given: Any, order: int) -> list[Any]:
    """Return one entry for each order: the entries of a list, or one entry repeated."""
    entries = given if isinstance(given, list) else [given] * order
    if len(entries) != order:
        raise UserError(f"{key}={given}: must have one entry per order, {order} of model.order")
    return entries


class Smoother:
    """A smoother of n-grams of orders 1 to n: maximum likelihood, unless a subclass overrides it.

    Arguments named k are the order of hw, from 1 to n.

    combination, counting: as their classes define.
    unknown: whether one extra type shares the uniform base distribution; it stands for each word outside the
    vocabulary. It has an effect only if `<unk>` is a word of the text.
    missing: log back-off weight (nats) of contexts not in the training text.
    interpolates_unigrams: whether unigrams are interpolated, with the uniform distribution, though others back off.
    values: the parameters, float64 `[n, P]`, given, estimated by `fit` or tuned.
    bounds: lowest and highest value of each of the P parameters, by name; two equal bounds fix it.
    notes: what the user should know about the estimation.
    notes_on_values: notes about the values that `fit` estimates; tuning replaces the values and removes the notes.
    by_source: whether the smoother needs the counts of each source of the text.
    weights: weights of these sources, float64 `[S]`, once they are given or tuned.
    """

    combination = Combination.interpolated
    counting = Counting.occurrences
    unknown = False
    interpolates_unigrams = False
    missing = 0.0
    bounds: Mapping[str, tuple[float, float]] = MappingProxyType({})
    by_source = False
    weights: FloatArray | None = None

    def __init__(self, order: int) -> None:
        """order: the longest n-grams, n words."""
        import numpy as np  # not at the top, so that settings classes load fast (lmtool.config.options)

        self.values: Any = np.zeros((order, len(self.bounds)))
        self.notes: list[str] = []
        self.notes_on_values: list[str] = []

    @property
    def normalized(self) -> bool:
        """Whether the estimates are probabilities, which sum to one over the words."""
        return self.combination is not Combination.scores

    def values_by_name(self) -> list[dict[str, float]]:
        """Return the `order` and the parameters, by name, of each order that has any influence."""
        free = {name: column for column, (name, (low, high)) in enumerate(self.bounds.items()) if low < high}
        orders = range(1, len(self.values) + 1)
        return [
            {"order": k} | {name: float(self.values[k - 1, column]) for name, column in free.items()}
            for k in (orders[-1:] if self.counting is Counting.longest else orders)
        ]

    def fit(self, k: int, n: IntArray, n_kenlm: IntArray) -> None:
        """Estimate the parameters of order k from its counts of counts, unless they were given.

        n: int64 `[MAX_R + 1]`; n[r] n-grams of the order have a = r. n_kenlm: n as KenLM counts, which differs by one
        n-gram.
        """

    def tables(self, counts: Counts) -> list[FloatArray]:
        """Return a(hw) and the tables of the n-grams of each order, float64 `[M, 2]`, for Counting.tables.

        The tables of an n-gram are what it adds to a of the shorter one: one for each n-gram in Kneser-Ney smoothing,
        more in a Pitman-Yor process, or what is discounted from its count.
        """
        raise NotImplementedError

    def gradient(
        self, counts: Counts, nodes: list[Any], types: int, loss: Callable[[FloatArray], tuple[float, FloatArray]]
    ) -> Callable[..., Any] | None:
        """Return a function that computes the loss of held-out tokens and its derivatives by weights and values, given
        these; None if automatic differentiation of the methods below suffices, as for a that does not depend on the
        values.

        nodes: of the tokens in each order, as tuning.held_out_nodes yields them. types: of the uniform distribution.
        loss: returns the loss of probabilities `[N]` of the tokens, and its derivatives by them.
        """
        return None

    def numerator(self, k: int, a: Any) -> Any:
        """Return the discounted counts `[N]` of n-grams with adjusted counts a, int64 `[N]`; 0 if a is 0.

        With Counting.tables a is float64 `[N, 2]`, as `tables` returns it.
        """
        return a

    def denominator(self, k: int, h: Contexts) -> Any:
        """Return the numbers `[C]` by which the discounted counts after contexts h are divided."""
        return h.total

    def weight(self, k: int, h: Contexts) -> Any:
        """Return the weights `[C]` of the shorter contexts. Combination.backed_off normalizes instead."""
        return 0.0 * h.total

r"""Witten-Bell smoothing: a word new after a context is as probable as new words have been there so far.

.. math::

    p(w|h) = \frac{c(hw) + N_{1+}(h\,\bullet)\,p(w|h')}{c(h\,\bullet) + N_{1+}(h\,\bullet)}

:math:`N_{1+}(h\,\bullet)` is the number of distinct words after h: so many times the word after h was a new one.
Without `interpolate`, :math:`c(hw) / (c(h\,\bullet) + N_{1+}(h\,\bullet))` is that of words seen after h, and the
others share what is left as p(w|h').

Source: Witten & Bell (1991), "The zero-frequency problem", IEEE Transactions on Information Theory 37, method C; as in
    Chen & Goodman (1998), *Witten-Bell Smoothing*.
Complexity: O(N) to estimate the N n-grams of all orders, no parameters; p(w|h) as of `model=ngram`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import MISSING
from lmtool.data.vocabulary import Vocabulary
from lmtool.ngram.smoothers.base import Contexts, Form, Smoother
from lmtool.system.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from lmtool.ngram.counting.counts import Counts


@dataclass(slots=True)
class WittenBellConfig(SmootherConfig):
    """interpolate: false to back off. local_cloze: score cloze questions with the counts of their candidates, too."""

    interpolate: bool = MISSING
    local_cloze: bool = MISSING

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Witten-Bell smoothing for n-grams of up to `order` words."""
        return WittenBell(order, interpolate=self.interpolate)

    def scores_candidates_alone(self) -> bool:
        """local_cloze."""
        return self.local_cloze

    def cloze_log_prob(self, counts: Counts, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """log p `[Q, K]` in nats of candidates `[Q, K]` after contexts `[Q, n - 1]`, from the candidates' counts alone.

        Each row sums to one; the formula is in lmtool.ngram.cloze_witten_bell.
        """
        from lmtool.ngram.cloze_witten_bell import local_witten_bell

        return local_witten_bell(counts, contexts, candidates)


class WittenBell(Smoother):
    """No parameters."""

    def __init__(self, order: int, *, interpolate: bool = True) -> None:
        """interpolate: False to back off."""
        Smoother.__init__(self, order)
        self.form = Form.interpolated if interpolate else Form.backed_off

    def denominator(self, k: int, h: Contexts) -> Any:
        """c(h.) + N1+(h.), `[C]`."""
        return h.total + h.types

    def weight(self, k: int, h: Contexts) -> Any:
        """N1+(h.) / (c(h.) + N1+(h.)), `[C]`."""
        return h.types / (h.total + h.types)

"""Good-Turing discounting with Katz's back-off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmtool.config.groups import SmootherConfig
from lmtool.config.rules import setting
from lmtool.ngram.smoothers.base import MAX_R, Form, Smoother

if TYPE_CHECKING:
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.system.arrays import IntArray


@dataclass(slots=True)
class GoodTuringConfig(SmootherConfig):
    r"""Good-Turing discounting with Katz's back-off: small counts are discounted by their counts of counts.

    .. math::

        p(w|h) &= \begin{cases} d_r\,c(hw) / c(h\,\bullet) & \text{if } r = c(hw) > 0 \\
            \alpha(h)\,p(w|h') & \text{otherwise} \end{cases} \\
        d_r &= \frac{r^*/r - A}{1 - A} \text{ for } r \le k, \quad 1 \text{ above}
            \qquad r^* = (r + 1) \frac{n_{r+1}}{n_r} \qquad A = (k + 1) \frac{n_{k+1}}{n_1} \\
        \alpha(h) &= \frac{1 - \sum_{w:\,c(hw) > 0} p(w|h)}{1 - \sum_{w:\,c(hw) > 0} p(w|h')}

    n_r is the number of n-grams of the order with count r, k the setting `gt_max`, or `gt_max_unigram`. A count whose
    d_r is not above 0 and at most 1 is not discounted, and a note says so. If the counts of a context, unigrams
    included, leave nothing to unseen words, its denominator is increased by one until they do, as in SRILM.

    Source: Katz (1987), "Estimation of probabilities from sparse data for the language model component of a speech
        recognizer", IEEE TASSP 35; after Good (1953), Biometrika 40; as in Chen & Goodman (1998), *Katz Smoothing*.
    Complexity: O(N) to estimate the N n-grams of all orders, k ratios for each order; p(w|h) as of `model=ngram`.
    """

    kind: str = "good_turing"
    gt_max: int = setting(min=0, max=MAX_R - 1, was="largest")
    gt_max_unigram: int = setting(min=0, max=MAX_R - 1, was="largest_unigram")

    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Return Good-Turing discounting for n-grams of up to `order` words."""
        return GoodTuring(order, gt_max=self.gt_max, gt_max_unigram=self.gt_max_unigram)


class GoodTuring(Smoother):
    """values: `[n, MAX_R + 1]`, d_r of each order; d_r = 1 for the last and all larger r."""

    form = Form.backed_off
    low, high = (0.0,) * (MAX_R + 1), (1.0,) * (MAX_R + 1)

    def __init__(self, order: int, *, gt_max: int, gt_max_unigram: int) -> None:
        """gt_max: r up to which counts are discounted, below MAX_R. gt_max_unigram: the same for unigrams."""
        Smoother.__init__(self, order)
        self.values += 1.0
        self.gt_max = [gt_max_unigram, *[gt_max] * (order - 1)]

    def fit(self, k: int, n: IntArray, n_kenlm: IntArray) -> None:
        """Estimate d_r of order k from its counts of counts n."""
        self.values[k - 1, : self.gt_max[k - 1] + 1] = discount_ratios(n, self.gt_max[k - 1], k, self.notes)

    def numerator(self, k: int, a: Any) -> Any:
        """Return d_r r of counts r `[N]`."""
        return self.values[k - 1][a.clip(max=MAX_R)] * a


def discount_ratios(n: IntArray, gt_max: int, k: int, notes: list[str]) -> list[float]:
    """Return d_0 (not used) to d_largest of order k from its counts of counts n.

    If these determine no d_r above 0 and at most 1, d_r is 1, and a note says so.
    """
    ratios = [1.0] * (gt_max + 1)
    undiscounted: list[int] = []
    common = (gt_max + 1) * n[gt_max + 1] / n[1] if n[1] else 1.0
    for r in range(1, gt_max + 1):
        d = ((r + 1) * n[r + 1] / (r * n[r]) - common) / (1 - common) if n[r] and common != 1 else -1.0
        if 0 < d <= 1:
            ratios[r] = float(d)
        else:
            undiscounted.append(r)
    if undiscounted:
        notes.append(
            f"order {k}: the counts of counts do not determine the discount of counts "
            f"{', '.join(map(str, undiscounted))}; fallback: no discount"
        )
    return ratios

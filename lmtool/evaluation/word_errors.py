"""Word errors, and the weight of the language model's score that makes fewest of them in n-best lists."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from lmtool.data.text_form import split_words
from lmtool.system.arrays import FloatArray, IntArray


def word_errors(hypothesis: str, reference: str) -> int:
    """The fewest substitutions, insertions and deletions that turn one line of words into the other (Levenshtein)."""
    place: dict[str, int] = {}
    ids = [[place.setdefault(word, len(place)) for word in split_words(line)] for line in (hypothesis, reference)]
    return int(_distance(np.array(ids[0], dtype=np.int64), np.array(ids[1], dtype=np.int64)))


@numba.njit(cache=True, nogil=True)
def _distance(a: Any, b: Any) -> Any:
    row = np.arange(len(b) + 1)
    for i in range(len(a)):
        diagonal = row[0]
        row[0] = i + 1
        for j in range(len(b)):
            here = min(diagonal + (a[i] != b[j]), row[j] + 1, row[j + 1] + 1)
            diagonal = row[j + 1]
            row[j + 1] = here
    return row[len(b)]


def chosen(total: FloatArray, log_prob: FloatArray, offsets: IntArray, weight: float) -> IntArray:
    """The best hypothesis of each list, `[L]`, by total + weight * log_prob; of equally good ones the first."""
    new = total + weight * log_prob
    return np.array([a + int(new[a:b].argmax()) for a, b in itertools.pairwise(offsets.tolist())])


@dataclass(frozen=True, slots=True)
class Tuned:
    """A weight, the errors of the hypotheses that it chooses, and the range of weights that choose the same ones."""

    weight: float
    errors: int
    between: tuple[float, float]


def best_weight(total: FloatArray, log_prob: FloatArray, errors: IntArray, offsets: IntArray) -> Tuned:
    """The weight of 0 or more with the fewest errors: exact, by the line search of Och (2003).

    total, log_prob and errors: `[H]`; offsets: `[L + 1]`. The score of a hypothesis is linear in the weight, so that a
    list's best hypothesis changes only where two lines cross; all crossings are visited. Of the ranges with the fewest
    errors the widest finite one is taken, and its middle; if there is only one without end, its beginning + 1.
    """
    events: list[tuple[float, int]] = []
    start = 0
    for first, last in itertools.pairwise(offsets.tolist()):
        y, slope, wrong = total[first:last], log_prob[first:last], errors[first:last]
        here = int(np.lexsort((-np.arange(len(y)), slope, y))[-1])
        start += int(wrong[here])
        while True:
            steeper = np.flatnonzero(slope > slope[here])
            if not len(steeper):
                break
            crossing = np.maximum((y[here] - y[steeper]) / (slope[steeper] - slope[here]), 0.0)
            nearest = crossing.min()
            there = steeper[crossing == nearest]
            following = int(there[slope[there].argmax()])
            events.append((float(nearest), int(wrong[following] - wrong[here])))
            here = following
    events.sort()
    places = [0.0, *(at for at, _ in events), np.inf]
    counts = np.cumsum([start, *(change for _, change in events)])
    widths = np.diff(places)
    real = widths > 0
    fewest = int(counts[real].min())
    fitting = np.flatnonzero(real & (counts == fewest))
    finite = fitting[np.isfinite(widths[fitting])]
    at = int(finite[widths[finite].argmax()]) if len(finite) else int(fitting[-1])
    low, high = places[at], places[at + 1]
    return Tuned((low + high) / 2 if np.isfinite(high) else low + 1.0, fewest, (low, high))

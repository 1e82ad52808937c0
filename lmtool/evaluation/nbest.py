"""N-best lists: reading, scoring with a language model, writing best first; word errors, and tuning the model's weight.

There are two formats, recognized by the first line:

- Moses: `id ||| hypothesis ||| features ||| total`; features and total may be missing (total then counts as 0). Written
  with ` lmtool= X` after the features, and the new total.
- Kaldi: `utterance-k hypothesis`, and in another file `utterance-k cost` (lower is better; 0 without that file).
  Written as the same two files.

A hypothesis may be empty; a line may not.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numba
import numpy as np

from lmtool.data.readers import read_text
from lmtool.data.tokenizer import split_words
from lmtool.errors import UserError, prefix_user_errors
from lmtool.system.arrays import FloatArray, IntArray, decimal
from lmtool.system.files import atomic_write

BAR = "|||"
NUMBER = re.compile("[0-9]+")  # no other digits of Unicode, such as \u00b2
MAX_DIGITS = 18  # digits in the number of a list
LINES = 64  # lines searched around the origin, half of all; and points from which the search continues
WHITE = " \t\n\v\f\r"  # separates words: only ASCII white space, as in training


Point = tuple[float, float]  # a weight and a word penalty


@dataclass(frozen=True, slots=True)
class NBest:
    """H hypotheses in L lists, in the order of their lines.

    lists: the id of each list.
    offsets: int64 `[L + 1]`, where lists begin, and H.
    texts: the words of each hypothesis.
    total: float64 `[H]`, the scores in the file, higher is better.
    fields: the fields of each line, for writing.
    """

    path: str
    moses: bool
    lists: list[str]
    offsets: IntArray
    texts: list[str]
    total: FloatArray
    fields: list[list[str]]


def read_nbest(path: str, costs: str | None) -> NBest:
    """Read lists of either format. costs: the second file of Kaldi's format."""
    lines = read_text(path).removesuffix("\n").split("\n")
    moses = BAR in lines[0]
    if moses and costs is not None:
        raise UserError(f"costs={costs}: {path} has its scores in its own lines")
    cost_of = {} if costs is None else _read_costs(costs)
    names: list[str] = []  # id of the list of each hypothesis
    total: list[float] = []
    all_fields: list[list[str]] = []
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        if not line.strip(WHITE):
            raise UserError(f"{where} is empty: each line of an n-best list is a hypothesis; remove it")
        if moses:
            fields = [field.strip(WHITE) for field in line.split(BAR)]
            if len(fields) < 2 or not fields[0]:
                raise UserError(f"{where}: should be id ||| hypothesis ||| features ||| total")
            names.append(fields[0])
            total.append(_number(fields[3], where) if len(fields) > 3 else 0.0)
        else:
            key, _, rest = line.strip(WHITE).partition(" ")
            name, _, rank = key.rpartition("-")
            if not name or not NUMBER.fullmatch(rank):
                rule = "should be utterance-number, as Kaldi writes it (or use |||, as Moses)"
                raise UserError(f"{where}: {key!r} {rule}")
            if costs is not None and key not in cost_of:
                raise UserError(f"{costs} has no cost of {key} ({where})")
            fields = [key, rest.strip(WHITE)]
            names.append(name)
            total.append(-cost_of.get(key, 0.0))
        all_fields.append(fields)
    sizes = [(name, len(list(group))) for name, group in itertools.groupby(names)]
    split_up, times = Counter(name for name, _ in sizes).most_common(1)[0]
    if times > 1:
        raise UserError(f"{path}: the list of {split_up} is continued after another list: sort the lines")
    offsets = np.cumsum([0, *(size for _, size in sizes)])
    texts = [fields[1] for fields in all_fields]
    return NBest(path, moses, [name for name, _ in sizes], offsets, texts, np.array(total), all_fields)


def _read_costs(path: str) -> dict[str, float]:
    cost_of: dict[str, float] = {}
    for number, line in enumerate(read_text(path).removesuffix("\n").split("\n"), start=1):
        fields = split_words(line)
        if len(fields) != 2:
            raise UserError(f"{path}, line {number}: should be utterance-number cost")
        if fields[0] in cost_of:
            raise UserError(f"{path}, line {number}: {fields[0]} has a cost already; remove one")
        cost_of[fields[0]] = _number(fields[1], f"{path}, line {number}")
    return cost_of


def _number(text: str, where: str) -> float:
    value = decimal(text)
    if not np.isfinite(value):
        raise UserError(f"{where}: {text!r} is not a number")
    return value


def read_references(path: str, nbest: NBest) -> list[str]:
    """Return each list's reference: the line `id words`, or, if all ids are numbers, that line, counted from 0."""
    lines = read_text(path).rstrip("\n").split("\n")
    if nbest.moses and all(NUMBER.fullmatch(name) for name in nbest.lists):
        missing = [name for name in nbest.lists if len(name) > MAX_DIGITS or int(name) >= len(lines)]
        if missing:
            raise UserError(f"{path} has {len(lines)} lines, none for list {missing[0]} (they count from 0)")
        return [lines[int(name)] for name in nbest.lists]
    references = {key: rest for key, _, rest in (line.partition(" ") for line in lines)}
    for name in nbest.lists:
        if name not in references:
            raise UserError(f"{path} has no line that begins with {name}")
    return [references[name] for name in nbest.lists]


def hypothesis_log_prob(
    nbest: NBest, score: Callable[[list[str]], list[FloatArray]], floor: float = -math.inf
) -> FloatArray:
    """Return the natural log p `[H]` of each hypothesis as a sentence. floor: log p of tokens of probability 0."""
    distinct = list(dict.fromkeys(nbest.texts))
    with prefix_user_errors(nbest.path):
        scores = (np.where(np.isneginf(log_prob), floor, log_prob) for log_prob in score(distinct))
        score_of_text = dict(zip(distinct, (math.fsum(log_prob.tolist()) for log_prob in scores), strict=True))
    return np.array([score_of_text[text] for text in nbest.texts])


def rank(nbest: NBest, new_total: FloatArray) -> IntArray:
    """Return the hypotheses `[H]`, list by list, best first, those with equal totals in the order of the file."""
    orders = [np.argsort(-new_total[a:b], kind="stable") + a for a, b in itertools.pairwise(nbest.offsets.tolist())]
    return np.concatenate(orders)


def write_nbest(folder: Path, nbest: NBest, log_prob: FloatArray, new_total: FloatArray) -> list[Path]:
    """Write the lists with their new totals `[H]`, best first, the best hypothesis of each to best.txt, and the lists'
    ids in the same order to best-ids.txt; return the paths. log_prob: natural log p by the language model, `[H]`.
    """
    order = rank(nbest, new_total).tolist()
    files: dict[str, list[str]] = {}
    if nbest.moses:
        lines = files["nbest.txt"] = []
        for k in order:
            name, hypothesis, *rest = nbest.fields[k]
            features = f"{rest[0] if rest else ''} lmtool= {log_prob[k]:.9g}".strip()
            lines.append(f" {BAR} ".join([name, hypothesis, features, f"{new_total[k]:.9g}", *rest[2:]]))
    else:
        files["nbest.txt"] = [" ".join(nbest.fields[k]).rstrip(" ") for k in order]
        files["nbest-costs.txt"] = [f"{nbest.fields[k][0]} {-new_total[k]:.9g}" for k in order]
    firsts = [order[at] for at in nbest.offsets[:-1].tolist()]
    files |= {"best.txt": [nbest.texts[k] for k in firsts], "best-ids.txt": nbest.lists}
    for name, lines in files.items():
        with atomic_write(folder / name) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [folder / name for name in files]


def word_errors(hypothesis: str, reference: str) -> int:
    """Return the minimum number of substitutions, insertions and deletions between two lines of words (Levenshtein)."""
    place: dict[str, int] = {}
    ids = [[place.setdefault(word, len(place)) for word in split_words(line)] for line in (hypothesis, reference)]
    return int(_distance(np.array(ids[0], dtype=np.int64), np.array(ids[1], dtype=np.int64)))


@numba.njit(cache=True, nogil=True)
def _distance(a: Any, b: Any) -> Any:
    # Levenshtein's table, of which one row is kept. Compiled for lists of hundreds of hypotheses.
    row = np.arange(len(b) + 1)
    for i in range(len(a)):
        diagonal = row[0]
        row[0] = i + 1
        for j in range(len(b)):
            here = min(diagonal + (a[i] != b[j]), row[j] + 1, row[j + 1] + 1)
            diagonal = row[j + 1]
            row[j + 1] = here
    return row[len(b)]


def best_hypotheses(total: FloatArray, log_prob: FloatArray, offsets: IntArray, weight: float) -> IntArray:
    """Return the best hypothesis of each list, `[L]`, by total + weight * log_prob; among equals, the first."""
    new = total + weight * log_prob
    return np.array([a + int(new[a:b].argmax()) for a, b in itertools.pairwise(offsets.tolist())])


def best_weight(
    total: FloatArray, feature: FloatArray, errors: IntArray, offsets: IntArray, least: float = 0.0
) -> tuple[float, int]:
    """Return the weight of a feature, `least` or more, with the fewest errors, and their number: exact (Och 2003).

    total, feature and errors: `[H]`; offsets: `[L + 1]`. The score of a hypothesis is linear in the weight, so that a
    list's best hypothesis changes only where two lines cross; all crossings are visited. The weight is the middle of
    the widest finite range with the fewest errors; if all are unbounded, 1 from the end of one. least: may be -inf.
    """
    crossings, changes = np.empty(len(total)), np.empty(len(total), dtype=np.int64)
    start, count = _crossings(total, feature, errors, offsets, least, crossings, changes)
    order = np.argsort(crossings[:count])
    places = np.array([least, *crossings[:count][order], np.inf])
    counts = np.cumsum([start, *changes[:count][order]])
    widths = np.diff(places)
    fewest = counts[widths > 0].min()
    fitting = np.flatnonzero((widths > 0) & (counts == fewest))
    finite = fitting[np.isfinite(widths[fitting])]
    at = finite[widths[finite].argmax()] if len(finite) else fitting[-1]
    low, high = places[at], places[at + 1]
    if np.isinf(low):
        weight = 0.0 if np.isinf(high) else high - 1.0
    else:
        weight = (low + high) / 2 if np.isfinite(high) else low + 1.0
    return float(weight), int(fewest)


@numba.njit(cache=True, nogil=True)
def _crossings(y: Any, slope: Any, errors: Any, offsets: Any, least: Any, at: Any, change: Any) -> Any:
    """Fill in the weights where a list's best hypothesis changes, and changes of errors; return those at `least`."""
    start = count = 0
    for k in range(len(offsets) - 1):
        lines, here = range(offsets[k], offsets[k + 1]), offsets[k]
        for j in lines:
            ahead, beyond = y[j] - y[here], slope[j] - slope[here]
            if np.isinf(least):
                ahead, beyond = -beyond, ahead
            else:
                ahead += least * beyond
            if ahead > 0 or (ahead == 0 and beyond > 0):
                here = j
        start += errors[here]
        following = here
        while following >= 0:
            nearest, following = np.inf, -1
            for j in lines:
                if slope[j] > slope[here]:
                    crossing = max((y[here] - y[j]) / (slope[j] - slope[here]), least)
                    if crossing < nearest or (crossing == nearest and slope[j] > slope[following]):
                        nearest, following = crossing, j
            if following >= 0:
                at[count], change[count] = nearest, errors[following] - errors[here]
                here, count = following, count + 1
    return start, count


def tuned_weights(
    total: FloatArray,
    log_prob: FloatArray,
    words: IntArray,
    errors: IntArray,
    offsets: IntArray,
    weight: float | None,
    penalty: float | None,
) -> tuple[float, float]:
    """Return the weight and penalty of total + weight log_prob - penalty words, tuned if None, for few errors.

    words: `[H]`, number of words in each hypothesis; the other arrays: as in best_weight, which tunes one weight.
    Tuning the two in turn ends in local optima. Therefore lines of many angles and weights are searched exactly (Och
    2003), and then further lines from the best points of LINES of them, while errors decrease. A penalty that brings no
    gain is 0.
    """

    def along(start: Point, w: float, p: float) -> tuple[int, Point]:
        """Return the fewest errors on a line of weights and penalties, from a start in a direction, and the point."""
        feature, least = w * log_prob - p * words, -start[0] / w if w else -np.inf
        t = best_weight(total + start[0] * log_prob - start[1] * words, feature, errors, offsets, least)[0]
        point = max(start[0] + t * w, 0.0), start[1] + t * p
        return at(point), point

    def at(point: Point) -> int:
        return int(errors[best_hypotheses(total - point[1] * words, log_prob, offsets, point[0])].sum())

    first = (at((weight, 0.0)), (weight, 0.0)) if weight is not None else along((0.0, penalty or 0.0), 1.0, 0.0)
    if penalty is not None or not words.std():
        return first[1][0], penalty or 0.0
    if weight is not None:
        return min(first, along((weight, 0.0), 0.0, 1.0), key=itemgetter(0))[1]
    spread, *spreads = (float(x.std()) or 1.0 for x in (total, log_prob, words))
    weight_spread, penalty_spread = (spread / each for each in spreads)
    angles = np.pi / 2 * np.arange(1 - LINES, LINES) / LINES
    found = [along((0.0, 0.0), weight_spread * math.cos(a), penalty_spread * math.sin(a)) for a in angles.tolist()]
    found += [along((weight_spread * math.tan(a), 0.0), 0.0, 1.0) for a in angles[LINES - 1 :].tolist()]
    best = first
    for fewest, point in [first, *sorted(found, key=itemgetter(0))[:LINES]]:
        before = fewest + 1
        while fewest < before:
            before = fewest
            for w, p in ((1.0, 0.0), (0.0, 1.0), (weight_spread, penalty_spread), (weight_spread, -penalty_spread)):
                fewest, point = min((fewest, point), along(point, w, p), key=itemgetter(0))
        best = min(best, (fewest, point), key=itemgetter(0))
    return min(along(best[1], 1.0, 0.0), best, key=itemgetter(0))[1]  # in the middle of its range

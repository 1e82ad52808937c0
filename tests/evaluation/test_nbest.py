"""N-best lists: both forms there and back, word errors, and the weight and the word penalty with the fewest of them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmtool.data.text_form import TextForm
from lmtool.data.text_rules import TextRules
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.evaluation.nbest import (
    best_weight,
    hypothesis_log_prob,
    rank,
    read_nbest,
    read_references,
    tuned_weights,
    word_errors,
    write_nbest,
)
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.text_model import TextModel
from tests.commands.test_ensemble import Fixed

MOSES = """0 ||| a b ||| d= 0 lm= -2 ||| -1.5 ||| 0-0
0 ||| a ||| d= 0 lm= -1 ||| -2 ||| 0-0
3 ||| b b ||| d= 1 lm= -3 ||| -0.5 ||| 0-1
"""
KALDI = "u-1-1 a b\nu-1-2\nv-1 b\n"
COSTS = "u-1-2 3.5\nu-1-1 2\nv-1 -1\n"


def files(tmp_path: Path, **texts: str) -> list[str]:
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return [str(tmp_path / name) for name in texts]


def test_moses_there_and_back(tmp_path: Path) -> None:
    found = read_nbest(files(tmp_path, lists=MOSES)[0], None)
    assert (found.lists, found.texts) == (["0", "3"], ["a b", "a", "b b"])
    np.testing.assert_array_equal(found.total, [-1.5, -2, -0.5])
    log_prob = np.array([-4.0, -1.0, -3.0])
    new = found.total + 0.5 * log_prob
    np.testing.assert_array_equal(rank(found, new), [1, 0, 2])
    write_nbest(tmp_path, found, log_prob, new)
    assert (tmp_path / "nbest.txt").read_text() == (
        "0 ||| a ||| d= 0 lm= -1 lmtool= -1 ||| -2.5 ||| 0-0\n"
        "0 ||| a b ||| d= 0 lm= -2 lmtool= -4 ||| -3.5 ||| 0-0\n"
        "3 ||| b b ||| d= 1 lm= -3 lmtool= -3 ||| -2 ||| 0-1\n"
    )
    assert (tmp_path / "best.txt").read_text() == "a\nb b\n"  # as jiwer and sacrebleu read it: no ids
    assert (tmp_path / "best-ids.txt").read_text() == "0\n3\n"
    assert read_nbest(str(tmp_path / "nbest.txt"), None).total.tolist() == [-2.5, -3.5, -2]
    assert read_references(files(tmp_path, right="x\n\n\nb a\n")[0], found) == ["x", "b a"]


def test_moses_without_features(tmp_path: Path) -> None:
    found = read_nbest(files(tmp_path, lists="u ||| a\nv |||\n")[0], None)
    assert (found.lists, found.texts, found.total.tolist()) == (["u", "v"], ["a", ""], [0, 0])
    write_nbest(tmp_path, found, np.array([-1.0, -2.0]), np.array([-1.0, -2.0]))
    assert (tmp_path / "nbest.txt").read_text() == "u ||| a ||| lmtool= -1 ||| -1\nv |||  ||| lmtool= -2 ||| -2\n"
    assert read_references(files(tmp_path, right="v c\nu a b\n")[0], found) == ["a b", "c"]


def test_references_by_name_where_some_ids_are_numbers(tmp_path: Path) -> None:
    found = read_nbest(files(tmp_path, lists="0 ||| a\nu ||| b\n")[0], None)
    assert read_references(files(tmp_path, right="u d\n0 c\n")[0], found) == ["c", "d"]


def test_kaldi_there_and_back(tmp_path: Path) -> None:
    lists, costs = files(tmp_path, lists=KALDI, costs=COSTS)
    found = read_nbest(lists, costs)
    assert (found.lists, found.texts) == (["u-1", "v"], ["a b", "", "b"])
    np.testing.assert_array_equal(found.total, [-2, -3.5, 1])
    write_nbest(tmp_path, found, np.array([-4.0, -1.0, -3.0]), np.array([-6.0, -4.5, -2.0]))
    assert (tmp_path / "nbest.txt").read_text() == "u-1-2\nu-1-1 a b\nv-1 b\n"
    assert (tmp_path / "nbest-costs.txt").read_text() == "u-1-2 4.5\nu-1-1 6\nv-1 2\n"
    assert (tmp_path / "best.txt").read_text() == "\nb\n"
    assert (tmp_path / "best-ids.txt").read_text() == "u-1\nv\n"
    assert read_nbest(lists, None).total.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("lists", "costs", "said"),
    [
        (MOSES.replace("\n", "\n\n", 1), None, "line 2 is empty"),
        (KALDI.replace("\n", "\n \n", 1), None, "line 2 is empty"),
        (MOSES.replace("-1.5", "x"), None, "line 1: 'x' is not a number"),
        (MOSES.replace("-1.5", "nan"), None, "line 1: 'nan' is not a number"),
        (MOSES + "a b c\n", None, "line 4: should be id ||| hypothesis"),
        (MOSES + MOSES, None, "the list of 0 is continued after another list"),
        (MOSES, COSTS, "has its scores in its own lines"),
        (KALDI + "w a\n", None, "line 4: 'w' should be utterance-number"),
        (KALDI, COSTS.replace("v-1", "w-1"), "has no cost of v-1"),
        (KALDI, COSTS + "x\n", "line 4: should be utterance-number cost"),
    ],
)
def test_bad_lists(lists: str, costs: str | None, said: str, tmp_path: Path) -> None:
    paths = files(tmp_path, lists=lists, **({} if costs is None else {"costs": costs}))
    with pytest.raises(UserError) as error:
        read_nbest(paths[0], paths[1] if costs else None)
    assert said in str(error.value)


def test_references_that_are_missing(tmp_path: Path) -> None:
    (path,) = files(tmp_path, lists=MOSES)
    with pytest.raises(UserError, match="has 3 lines, none for list 3"):
        read_references(files(tmp_path, right="a\nb\nc\n")[0], read_nbest(path, None))
    with pytest.raises(UserError, match="no line that begins with v"):
        read_references(files(tmp_path, right="u-1 a\n")[0], read_nbest(files(tmp_path, lists=KALDI)[0], None))


def text_model() -> TextModel:
    """a, a word with a no-break space, `<unk>` and `</s>` with 1/2, 1/4, 1/8, 1/8 after every word."""
    words = ("a", "b\N{NO-BREAK SPACE}c", "<unk>", "</s>", "<s>")
    vocabulary = Vocabulary(words, np.array([4, 2, 1, 1, 0]), 3, 2)
    model = Fixed([[1 / 2, 1 / 4, 1 / 8, 1 / 8, 1e-300]] * 5, 1)
    return TextModel(model, TextForm(vocabulary, rules=TextRules(lowercase=True)))


def test_hypotheses_are_scored_as_sentences(tmp_path: Path) -> None:
    # A no-break space separates no words, as in preprocess, and <unk> stands for all words that are not known.
    lists = "0 ||| a b\N{NO-BREAK SPACE}c\n0 ||| A\ta\n1 ||| b c ||| x= 1\n1 ||| A\ta\n2 ||| \n"
    found = read_nbest(files(tmp_path, lists=lists)[0], None)
    log_prob = hypothesis_log_prob(found, text_model().score)
    np.testing.assert_allclose(np.exp(log_prob), [1 / 64, 1 / 32, 1 / 512, 1 / 32, 1 / 8])


def test_no_break_spaces_stay_where_they_stand(tmp_path: Path) -> None:
    found = read_nbest(files(tmp_path, lists="0 ||| \N{NO-BREAK SPACE}a\N{NO-BREAK SPACE}\n")[0], None)
    assert found.texts == ["\N{NO-BREAK SPACE}a\N{NO-BREAK SPACE}"]
    write_nbest(tmp_path, found, np.zeros(1), np.zeros(1))
    assert (tmp_path / "best.txt").read_text() == "\N{NO-BREAK SPACE}a\N{NO-BREAK SPACE}\n"


def test_marks_of_sentences_in_a_hypothesis_are_words(tmp_path: Path) -> None:
    found = read_nbest(files(tmp_path, lists="0 ||| <s> a </s>\n0 ||| zzz a zzz\n")[0], None)
    first, second = hypothesis_log_prob(found, text_model().score)
    assert first == second


@pytest.mark.parametrize(
    ("hypothesis", "reference", "errors"),
    [
        ("a b c", "a b c", 0),
        ("", "a b", 2),
        ("a b", "", 2),
        ("a x c", "a b c", 1),
        ("b c d", "a b c", 2),  # not three substitutions: one insertion, one deletion
        ("k i t t e n", "s i t t i n g", 3),
        ("ab c", "a bc", 2),  # words, not letters
        ("a b\N{NO-BREAK SPACE}c", "a b c", 2),  # a no-break space is part of a word
    ],
)
def test_word_errors(hypothesis: str, reference: str, errors: int) -> None:
    assert word_errors(hypothesis, reference) == word_errors(reference, hypothesis) == errors


def test_the_weight_by_hand() -> None:
    # Scores 0 - 4w and -1 - 2w cross at w = 1/2, -1 - 2w and -4 - w at w = 3: errors 5 below, 1 between, 3 above.
    score, lists = (np.array([0.0, -1, -4]), np.array([-4.0, -2, -1])), np.array([0, 3])
    assert best_weight(*score, np.array([5, 1, 3]), lists) == (1.75, 1)
    assert best_weight(*score, np.array([5, 3, 1]), lists) == (4.0, 1)
    # With negative weights too, the first one is best below 1/2.
    assert best_weight(*score, np.array([1, 5, 3]), lists, least=-np.inf) == (-0.5, 1)
    assert best_weight(*score, np.array([5, 1, 3]), lists, least=-1.0) == (1.75, 1)
    flat = best_weight(np.array([2.0, 1]), np.array([3.0, 3]), np.array([4, 0]), np.array([0, 2]), least=-np.inf)
    assert flat == (0.0, 4)  # equal slopes: the better total, whatever the weight


def test_the_weight_and_the_penalty_by_hand() -> None:
    # Scores w log p - p n + total. List 0: -3w - 3p (right) and -w - p: right for p < -w. List 1: -2w - 2p (right) and
    # 1 - 8w - 4p: right for p > (1 - 6w) / 2. With p = 0, list 0 is wrong and w > 1/6 makes list 1 right: w = 1/6 + 1.
    # Then -3 < p < -7/6 makes both right: p = -25/12. With it w < 25/12 and w > 31/36: w = 53/36.
    lists = np.array([0.0, 0, 0, 1]), np.array([-3.0, -1, -2, -8]), np.array([3, 1, 2, 4]), np.array([0, 2, 0, 2])
    offsets = np.array([0, 2, 4])
    assert tuned_weights(*lists, offsets, None, 0.0) == pytest.approx((7 / 6, 0))
    assert tuned_weights(*lists, offsets, None, None) == pytest.approx((53 / 36, -25 / 12))
    # One of them given: -5/2 < p < -1 with w = 1; 5/6 < w < 2 with p = -2.
    assert tuned_weights(*lists, offsets, 1.0, None) == pytest.approx((1, -7 / 4))
    assert tuned_weights(*lists, offsets, None, -2.0) == pytest.approx((17 / 12, -2))
    assert tuned_weights(*lists, offsets, 0.5, 3.0) == (0.5, 3.0)
    # A penalty that does not decrease the errors stays 0.
    assert tuned_weights(*lists[:3], np.array([1, 1, 0, 0]), offsets, None, None)[1] == 0


def test_numbers_that_only_unicode_calls_digits(tmp_path: Path) -> None:
    for name in ("\u00b2", "9" * 5000):
        (tmp_path / "n").write_text(f"{name} ||| a\n", encoding="utf-8")
        (tmp_path / "r").write_text("a b\n")
        with pytest.raises(UserError, match=r"has no line that begins with|has 1 lines, none for list 999"):
            read_references(str(tmp_path / "r"), read_nbest(str(tmp_path / "n"), None))
    (tmp_path / "n").write_text("u-\u00b2 a\n", encoding="utf-8")
    with pytest.raises(UserError, match="should be utterance-number"):
        read_nbest(str(tmp_path / "n"), None)
    for total in ("1_0", "\uff11", "nan", "inf", ""):
        (tmp_path / "n").write_text(f"0 ||| a ||| x ||| {total}\n", encoding="utf-8")
        with pytest.raises(UserError, match=r"line 1: .* is not a number"):
            read_nbest(str(tmp_path / "n"), None)


def test_costs_by_ascii_white_space_and_once_each(tmp_path: Path) -> None:
    (tmp_path / "n").write_text("u\u00a0v-1 a\n", encoding="utf-8")
    (tmp_path / "c").write_text("u\u00a0v-1 2.5\n", encoding="utf-8")
    assert read_nbest(str(tmp_path / "n"), str(tmp_path / "c")).total.tolist() == [-2.5]
    (tmp_path / "c").write_text("u\u00a0v-1 2.5\nu\u00a0v-1 3\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"line 2: u.*v-1 has a cost already"):
        read_nbest(str(tmp_path / "n"), str(tmp_path / "c"))


Lists = tuple[FloatArray, FloatArray, IntArray, IntArray, IntArray]


def errors_of(lists: Lists, weight: float, penalty: float) -> int:
    """Errors of the best hypotheses, the first of equal ones, by a plain loop."""
    total, log_prob, words, errors, offsets = lists
    score = total + weight * log_prob - penalty * words
    return sum(int(errors[a + int(np.argmax(score[a:b]))]) for a, b in itertools.pairwise(offsets.tolist()))


def speech(seed: int, lists: int = 40, hypotheses: int = 12) -> Lists:
    """Lists as of a recognizer: noisy scores, in which too short hypotheses are too good, and so is a flat model's."""
    rng = np.random.default_rng(seed)
    count = lists * hypotheses
    words = rng.integers(4, 12, count)
    errors = rng.poisson(2, count) + np.abs(words - np.repeat(rng.integers(6, 10, lists), hypotheses)) // 2
    log_prob = -2.5 * words - 1.2 * errors + rng.normal(0, 3, count)
    total = -11.0 * words - 4.0 * errors + rng.normal(0, 20, count)
    return total, log_prob, words, errors, np.arange(0, count + 1, hypotheses)


@pytest.mark.parametrize("seed", range(8))
def test_no_point_of_a_fine_grid_makes_fewer_errors(seed: int) -> None:
    lists = speech(seed)
    total, log_prob, words, errors, offsets = lists
    weight, penalty = tuned_weights(*lists, None, None)
    found = errors_of(lists, weight, penalty)
    assert weight >= 0
    weights, penalties = np.meshgrid(np.arange(0, 30, 0.25), np.arange(-60, 60, 0.5))
    points = np.stack([weights.ravel(), penalties.ravel()])  # [2, P]
    grid = np.zeros(points.shape[1], dtype=np.int64)
    for a, b in itertools.pairwise(offsets.tolist()):
        score = total[a:b, None] + np.stack([log_prob[a:b], -words[a:b]], axis=1) @ points
        grid += errors[a:b][score.argmax(axis=0)]
    assert found <= grid.min()


def test_a_local_optimum_of_the_search_in_turn_is_left() -> None:
    # One number after the other stays at a point from which neither alone decreases the errors.
    stuck = 0
    for seed in range(24):
        lists = speech(seed)
        total, log_prob, words, errors, offsets = lists
        weight, penalty = best_weight(total, log_prob, errors, offsets)[0], 0.0
        for _ in range(10):
            left = total + weight * log_prob
            penalty = best_weight(left, -words.astype(float), errors, offsets, least=-np.inf)[0]
            weight = best_weight(total - penalty * words, log_prob, errors, offsets)[0]
        stuck += errors_of(lists, *tuned_weights(*lists, None, None)) < errors_of(lists, weight, penalty)
    assert stuck > 4


def test_the_search_of_one_number_is_exact_in_ties_and_empty_ranges() -> None:
    """Try, for small whole numbers, a grid that holds every crossing and the middle of every range."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        offsets = np.append(0, rng.integers(1, 5, 4).cumsum())
        total, feature = (rng.integers(-3, 4, offsets[-1]).astype(float) for _ in range(2))
        errors = rng.integers(0, 4, offsets[-1])
        for least in (0.0, -1.0, -np.inf):
            weight, fewest = best_weight(total, feature, errors, offsets, least=least)
            ratios = {a / b for a in range(-6, 7) for b in range(1, 7)}
            places = sorted({r for r in ratios if r > least} | ({least} if np.isfinite(least) else set()))
            middles = [(x + y) / 2 for x, y in itertools.pairwise(places)] + [places[-1] + 1]
            middles += [places[0] - 1] if np.isinf(least) else []
            zeros = np.zeros(len(errors), dtype=int)
            of_middles = [errors_of((total, feature, zeros, errors, offsets), w, 0.0) for w in middles]
            assert fewest == min(of_middles)
            assert errors_of((total, feature, zeros, errors, offsets), weight, 0.0) == fewest


def test_the_same_lists_in_other_units_have_the_same_optimum() -> None:
    lists = speech(3)
    total, log_prob, words, errors, offsets = lists
    weight, penalty = tuned_weights(*lists, None, None)
    scaled = 1e-3 * total, 1e3 * log_prob, words, errors, offsets
    found = tuned_weights(*scaled, None, None)
    assert errors_of(scaled, *found) == errors_of(lists, weight, penalty)
    assert found == pytest.approx((1e-6 * weight, 1e-3 * penalty), rel=1e-6)


def test_lists_without_scores_and_of_one_length(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    offsets = np.arange(0, 41, 4)
    log_prob, errors = rng.normal(size=40), rng.integers(0, 5, 40)
    nothing: Any = np.zeros(40)
    weight, penalty = tuned_weights(nothing, log_prob, np.full(40, 6), errors, offsets, None, None)
    assert penalty == 0 and weight > 0

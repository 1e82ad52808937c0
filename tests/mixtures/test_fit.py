"""How the weights of mixtures are fitted, by hand, and log-linear ones where the best lie on their bounds, at 0."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lmtool.data.cloze import Cloze
from lmtool.data.corpus import Corpus
from lmtool.data.vocabulary import SpecialTokens
from lmtool.errors import UserError
from lmtool.mixtures import fit
from lmtool.mixtures.fit import FittedMixture, build_mixture, fit_mixture
from lmtool.mixtures.linear import TOLERANCE, fit_weights, mix
from lmtool.mixtures.log_linear import (
    Chunks,
    LogLinear,
    bounded_optimum,
    combine,
    fit_log_linear,
    likelihood,
    without_lone_reserves,
)
from tests.commands.test_ensemble import Classes, Fixed
from tests.mixtures.test_mixtures import Alike, text

TEXTS = {"valid": [0, 0, 0, 1], "test": [1, 1, 1, 0], "runs": [0, 0, 0, 0, 1]}
CORPUS: Any = SimpleNamespace(
    name="words", path="words.h5", splits=list(TEXTS), split=lambda name: text(TEXTS[name], bos=2),
    cloze=lambda name: None, vocabulary=SimpleNamespace(unk=1, bos=2, special_tokens=SpecialTokens(2, None, 1)),
    require_split=lambda name, setting: Corpus.require_split(CORPUS, name, setting),
)  # fmt: skip
FIRST, SECOND, EVEN = ([[p, 1 - p]] * 3 for p in (0.9, 0.1, 0.5))


def fitted(models: list[Any], log_prob: np.ndarray | None = None, **changes: object) -> tuple[FittedMixture, str]:
    """Fit a mixture with these settings, except for the changes; return it and the printed text."""
    values: dict[str, object] = dict(method="linear", cache=None, weights=None, fit_on="text", split="test", over=None)
    values |= dict(cache_size=2, cache_theta=None, fit_split="valid", fit_contexts=100)
    said: list[str] = []
    config: Any = SimpleNamespace(**(values | changes))
    return fit_mixture(config, models, CORPUS, log_prob, said.append), "\n".join(said)


def test_linear_weights_of_the_split_to_fit_on() -> None:
    # Three of four tokens at 0.9 and 0.1: 3 / (0.1 + 0.8 w) = 1 / (0.9 - 0.8 w) at w = 13 / 16.
    for split, weight in (("valid", 13 / 16), ("test", 3 / 16)):
        found, said = fitted([Fixed(FIRST, 1), Fixed(SECOND, 1)], fit_split=split)
        np.testing.assert_allclose(found.weights, [weight, 1 - weight], atol=1e-4)
        assert found.mixture == {"method": "linear"} and found.result["fit"]["split"] == split
        assert found.result["fit"]["converged"] and said.startswith(f"EM on {split}: ")
    # Log-probabilities that are known are not computed again.
    known = np.log([[0.9, 0.1, 0.1, 0.1], [0.1, 0.9, 0.9, 0.9]])
    found, _ = fitted([Fixed(FIRST, 1), Fixed(SECOND, 1)], known)
    np.testing.assert_allclose(found.weights, [3 / 16, 13 / 16], atol=1e-4)
    with pytest.raises(UserError, match=r"fit_split=dev: words\.h5 has only valid, test, runs"):
        fitted([Fixed(FIRST, 1), Fixed(SECOND, 1)], fit_split="dev")


def test_weights_that_are_known_are_not_fitted() -> None:
    models = [Fixed(FIRST, 1), Alike(SECOND, 1)]
    found, said = fitted(models, weights=[0.3, 0.7])
    assert (found.weights.tolist(), found.mixture, found.result, said) == ([0.3, 0.7], {"method": "linear"}, {}, "")
    found, _ = fitted(models, weights=[0.3, 0.5, 0.2], cache="unigram")
    assert found.mixture == {"method": "linear", "cache": {"kind": "unigram", "size": 2}} and not found.result
    found, _ = fitted(models, weights=[0.3, 0.5, 0.2], cache="neural", cache_theta=0.5)
    assert found.weights.tolist() == [0.3, 0.5, 0.2] and not found.result
    assert found.mixture["cache"] == {"kind": "neural", "size": 2, "theta": 0.5, "encoder": 1}
    found, _ = fitted(models, weights=[0.3, 0.7], method="log_linear")
    assert (found.weights.tolist(), found.mixture) == ([0.3, 0.7], {"method": "log_linear"})
    # Nor do they need a text to fit them on.
    for changes in ({}, {"cache": "unigram"}, {"cache": "neural", "cache_theta": 0.5}):
        weights = [0.3, 0.5, 0.2] if changes else [0.3, 0.7]
        assert fitted(models, weights=weights, fit_split="none", **changes)[0].weights.tolist() == weights
    # Theta is looked for with the weights as they are.
    found, said = fitted(models, weights=[0.3, 0.5, 0.2], cache="neural")
    assert found.weights.tolist() == [0.3, 0.5, 0.2] and found.result.keys() == {"theta"} and "EM" not in said
    assert said.startswith("theta of the cache with the highest likelihood of valid: ")
    assert found.mixture["cache"]["theta"] == found.result["theta"] > 0


def test_the_weight_of_a_cache_leaves_out_the_first_token() -> None:
    # After it the model gives 0.5 four times and the cache 1, 1, 1, 0: 1.5 / (1 - 0.5 w) = 1 / w at w = 1/2.
    found, said = fitted([Fixed(EVEN, 1)], cache="unigram", fit_split="runs")
    np.testing.assert_allclose(found.weights, [0.5, 0.5], atol=1e-4)
    assert found.mixture["cache"] == {"kind": "unigram", "size": 2} and "EM on runs" in said
    # A theta of 0 makes the neural cache the same.
    found, _ = fitted([Alike(EVEN, 1)], cache="neural", cache_theta=0.0, fit_split="runs")
    np.testing.assert_allclose(found.weights, [0.5, 0.5], atol=1e-4)
    with pytest.raises(UserError, match="requires a neural run"):
        fitted([Fixed(EVEN, 1)], cache="neural")


@pytest.mark.parametrize(("best", "found"), [(3.7, 3.75), (4.6, 4.5), (20, 8.75), (-9, -2.75), (0, 0)])
def test_theta_is_looked_for_among_powers_of_two(best: float, found: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # |h|^2 = 4: from a quarter of 1/4 on, in steps of a factor of 2, then of its roots.
    monkeypatch.setattr(fit, "neural_cache", lambda hidden, ids, size, thetas: np.array(thetas)[:, None])
    hidden = np.array([[2.0, 0.0, 0.0], [0.0, -2.0, 0.0]], dtype=np.float32)
    theta = fit._best_theta(hidden, text([0, 1]), 5, lambda row: -abs(float(np.log2(row[0] * 4)) - best))
    assert theta == pytest.approx(0.25 * 2**found)
    # Where |h|^2 is 1/2500, from a quarter of 2500 on.
    theta = fit._best_theta(hidden / 100, text([0, 1]), 5, lambda row: -abs(float(np.log2(row[0] / 2500)) - best))
    assert theta == pytest.approx(2500 * 2**found)


def test_weights_by_class_of_context() -> None:
    models = [Fixed(FIRST, 1), Classes(SECOND, 1)]
    found, said = fitted(models, method="classes")
    assert found.mixture["method"] == "classes" and found.mixture["classifier"] == 1
    np.testing.assert_allclose(found.weights, [13 / 16, 3 / 16], atol=1e-4)
    table = np.array(found.mixture["class_weights"])
    assert table.shape == (2, 2) and found.result["class_weights"] == table.tolist() and "words of context seen" in said
    assert said.startswith("EM on valid, by class: at most ") and "nats of the optimum" in said
    rows = [line.split() for line in said.splitlines()[2:]]
    assert [row[:2] for row in rows] == [["0", "4"], ["1", "0"]]  # all four contexts are of class 0
    assert [float(weight) for weight in rows[0][2:]] == pytest.approx([13 / 16, 3 / 16], abs=1e-3)
    with pytest.raises(UserError, match="needs an n-gram run"):
        fitted([Fixed(FIRST, 1)], method="classes")


def test_log_linear_contexts_are_evenly_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "CONTEXTS_PER_CHUNK", 2)
    models: list[Any] = [Fixed(FIRST, 1), Fixed(SECOND, 1)]
    for contexts, places in ((3, [0, 2, 4]), (2, [0, 4]), (100, [0, 1, 2, 3, 4])):
        config: Any = SimpleNamespace(fit_split="runs", fit_contexts=contexts)
        chunks, count = fit._text_chunks(config, models, CORPUS, progress=False)
        assert count == len(places)
        targets = np.concatenate([targets for _, targets in chunks()])
        assert targets.tolist() == [TEXTS["runs"][place] for place in places]
    found, said = fitted(models, method="log_linear")
    assert found.result["fit"]["contexts"] == 4 and "Newton's method on 4 contexts of valid" in said


def test_log_linear_contexts_of_a_member_that_reads_across_sentences() -> None:
    # Two sentences of word 0 and </s>, which is 1: before the third token stands </s> for one member, <s> for another.
    table = [[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]
    one, across = Fixed(table, 1), Fixed(table, 1)
    across.across_sentences = True
    split = replace(text([0, 1, 0, 1], bos=2), offsets=np.array([0, 2, 4]))
    marks = SimpleNamespace(special_tokens=SpecialTokens(2, 1, 0))
    corpus: Any = SimpleNamespace(require_split=print, split=lambda name: split, vocabulary=marks)
    config: Any = SimpleNamespace(fit_split="valid", fit_contexts=100)
    chunks, _ = fit._text_chunks(config, [one, across], corpus, progress=False)
    log_dist, _ = next(chunks())
    np.testing.assert_allclose(np.exp(log_dist[:, :, 0]), [[0.5, 0.9, 0.5, 0.9], [0.5, 0.9, 0.2, 0.9]])


def test_what_cannot_be_fitted() -> None:
    dynamic: Any = Fixed(FIRST, 1)
    dynamic.dynamic = True
    for changes in ({"method": "classes"}, {"cache": "unigram"}, {"method": "log_linear"}):
        with pytest.raises(UserError, match="can only be mixed linearly, and without another cache"):
            fitted([dynamic, Fixed(SECOND, 1)], **changes)
    with pytest.raises(UserError, match="fit_on=cloze: words has no questions with answers for valid"):
        fitted([Fixed(FIRST, 1)], method="log_linear", fit_on="cloze")


def test_log_linear_weights_of_questions_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # After 0 and 1, of p = (3/4, 1/4): eight answers in ten are word 0, whose log odds are ln 4 = w ln 3.
    answers = np.array([0] * 8 + [1] * 2)
    questions = Cloze(np.arange(10) % 2, np.arange(11), np.tile([0, 2], (10, 1)), answers)
    monkeypatch.setattr(CORPUS, "cloze", lambda name: questions)
    found, said = fitted([Fixed([[0.6, 0.2, 0.2]] * 2, 1)], method="log_linear", fit_on="cloze")
    np.testing.assert_allclose(found.weights, [np.log(4) / np.log(3)], atol=1e-4)
    assert found.result["fit"]["questions"] == 10 and "Newton's method on 10 questions of valid" in said


def test_linear_weights_of_questions_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # Six answers in ten are word 0. Over words 0 and 2 the members have (3/4, 1/4) and (1/5, 4/5), which mix to 3/5 at
    # w = 8/11; the whole distributions do at (0.6 w + 0.1 (1 - w)) / (0.8 w + 0.5 (1 - w)) = 3/5, which is w = 5/8.
    answers = np.array([0] * 6 + [1] * 4)
    questions = Cloze(np.arange(10) % 2, np.arange(11), np.tile([0, 2], (10, 1)), answers)
    monkeypatch.setattr(CORPUS, "cloze", lambda name: questions)
    members = [Fixed([row] * 2, 1) for row in ([0.6, 0.2, 0.2], [0.1, 0.5, 0.4])]
    for over, weight, point in (("candidates", 8 / 11, "the optimum"), (None, 5 / 8, "a stationary point")):
        found, said = fitted(members, fit_on="cloze", over=over)
        np.testing.assert_allclose(found.weights, [weight, 1 - weight], atol=1e-4)
        assert found.result["fit"]["converged"] and found.result["fit"]["questions"] == 10
        assert said.startswith("EM on 10 questions of valid: ") and said.endswith(point)
        mixture: Any = build_mixture(members, found.weights, found.mixture, CORPUS.vocabulary)
        log_prob = mixture.log_prob_choices(np.array([[0]]), np.array([[0, 2]]))
        np.testing.assert_allclose(np.exp(log_prob[0, 0] - np.logaddexp(*log_prob[0])), 3 / 5, atol=1e-4)


def test_weights_of_ratios_are_a_maximum_of_the_likelihood() -> None:
    rng = np.random.default_rng(3)
    log_prob = np.log(rng.dirichlet(np.ones(9), (3, 200)))  # [M, Q, V], of which the first 4 words are candidates
    log_prob[:, :, 0] += 2 * (np.arange(200) % 3 == np.arange(3)[:, None])  # each member is good at a third of them
    right, totals = log_prob[:, :, 0], np.logaddexp.reduce(log_prob[:, :, :4], axis=2)

    def value(weights: np.ndarray) -> float:
        return float((mix(right, weights) - mix(totals, weights)).mean())

    values = [value(fit_weights(right, totals, iterations=steps).weights) for steps in range(1, 30)]
    assert (np.diff(values) >= -1e-12).all() and values[-1] > values[0]
    found = fit_weights(right, totals)
    assert found.gap <= TOLERANCE and (found.weights > 0.01).all()
    for change in rng.normal(scale=1e-3, size=(20, 3)):
        assert value(np.abs(found.weights + change)) <= value(found.weights) + 1e-12


@pytest.mark.parametrize("answers", [[-1, 1], [-1, -1]])
def test_questions_to_fit_on_have_all_their_answers(answers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    questions = Cloze(np.array([0, 1]), np.array([0, 1, 2]), np.array([[0, 1]] * 2), np.array(answers))
    monkeypatch.setattr(CORPUS, "cloze", lambda name: questions)
    with pytest.raises(UserError, match="fit_on=cloze: words has no questions with answers for valid"):
        fitted([Fixed(FIRST, 1)], method="log_linear", fit_on="cloze")


def one_chunk(log_dist: np.ndarray, targets: np.ndarray) -> Chunks:
    return lambda: iter([(log_dist, targets)])


def members_of_no_use(words: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Four members `[4, 200, V]` and targets `[200]` drawn from the first. The second and the fourth are noise, but low
    at the targets; the last word, never a target, has probability 0 under the fourth alone.
    """
    rng = np.random.default_rng(5)
    first, second, third, fourth = rng.dirichlet(np.ones(words), (4, 200))
    targets = np.array([rng.choice(words - 1, p=row[:-1] / row[:-1].sum()) for row in first])
    for noise in (second, fourth):
        noise[np.arange(200), targets] /= 3
    fourth[:, -1] = 0
    with np.errstate(divide="ignore"):
        return np.log([p / p.sum(axis=1, keepdims=True) for p in (first, second, third, fourth)]), targets


def test_conditions_of_the_optimum_hold() -> None:
    log_dist, targets = members_of_no_use()
    chunks = one_chunk(log_dist[:3], targets)
    fit = fit_log_linear(chunks, 3)
    assert fit.gap <= 1e-9 and fit.iterations < 12
    assert fit.weights[0] > 0.5 and fit.weights[1] == 0
    gradient = likelihood(fit.weights, chunks).gradient
    assert gradient[1] < 0  # a weight above 0 would cost likelihood
    positive = fit.weights > 0
    np.testing.assert_allclose(gradient[positive], 0, atol=1e-5)


def test_a_member_that_goes_takes_its_zeros_with_it() -> None:
    # However small its weight, the fourth member moves the probability of the last word to the others, so no minimum
    # weight is optimal. It is left out, the first has the weight that it has alone, and the gain that the zeros would
    # have given is reported.
    log_dist, targets = members_of_no_use()
    both, first = one_chunk(log_dist[[0, 3]], targets), one_chunk(log_dist[:1], targets)
    fit, alone = fit_log_linear(both, 2), fit_log_linear(first, 1)
    assert fit.weights.tolist() == [pytest.approx(alone.weights[0], abs=1e-3), 0]
    assert fit.value == combine(log_dist[[0, 3]], fit.weights)[np.arange(200), targets].mean()
    least = likelihood(np.array([0.9, 1e-12]), both).value
    assert alone.gap <= 1e-9 < least - fit.value <= fit.gap
    assert fit_log_linear(both, 2, iterations=6).iterations == 6 < fit.iterations  # of both searches


def test_nothing_kept_for_other_types_is_no_gain() -> None:
    # Were the last word <s>, the fourth member would only keep nothing for types outside the vocabulary.
    log_dist, targets = members_of_no_use()
    equal = without_lone_reserves(log_dist[[0, 3]])
    assert np.isneginf(equal[:, :, -1]).all() and (equal[:, :, :-1] == log_dist[[0, 3], :, :-1]).all()
    fit = fit_log_linear(one_chunk(equal, targets), 2)
    assert fit.gap <= 1e-9 and fit.weights[1] == 0
    kept = without_lone_reserves(log_dist[[0, 1]])
    assert (kept == log_dist[[0, 1]]).all()
    with np.errstate(divide="ignore"):
        mixture = LogLinear([Fixed(np.exp(log_dist[k, :1]), 1) for k in (0, 3)], fit.weights)
    assert mixture.log_dist(np.array([[0]]))[0, -1] == -np.inf


def test_no_member_is_of_use() -> None:
    log_dist, targets = members_of_no_use()
    fit = fit_log_linear(one_chunk(log_dist[1:2], targets), 1)
    assert fit.gap <= 1e-9 and fit.weights.tolist() == [0]


def test_the_same_member_twice() -> None:
    log_dist, targets = members_of_no_use()
    fit = fit_log_linear(one_chunk(log_dist[[0, 0, 2]], targets), 3)
    alone = fit_log_linear(one_chunk(log_dist[[0, 2]], targets), 2)
    assert fit.gap <= 1e-9
    assert fit.weights[:2].sum() == pytest.approx(alone.weights[0], abs=1e-3)


def test_too_few_steps_are_told() -> None:
    log_dist, targets = members_of_no_use()
    for most in (1, 2, 3):
        fit = fit_log_linear(one_chunk(log_dist[:3], targets), 3, iterations=most)
        assert fit.gap > 1e-9 and fit.iterations == most


def two_words(first: float, targets: list[int]) -> Chunks:
    """One member that gives the first of two words probability `first` before each target."""
    return one_chunk(np.log(np.full((1, len(targets), 2), [first, 1 - first])), np.array(targets))


def test_the_gap_by_hand() -> None:
    # p = (3/4, 1/4) to the power of w, whose log odds are a = w ln 3; one of two targets is the first word. At w = 1
    # the gradient is ln 3 (1/2 - 3/4), the Hessian -3/16 ln^2 3; the step of -4 / (3 ln 3) ends at the bound, 0, where
    # the quadratic model has gained ln 3 / 4 - 3/32 ln^2 3.
    fit = fit_log_linear(two_words(3 / 4, [0, 1]), 1, iterations=1)
    assert (fit.weights.tolist(), fit.iterations) == ([1], 1)
    assert fit.value == pytest.approx((math.log(3 / 4) + math.log(1 / 4)) / 2)
    assert fit.gap == pytest.approx(math.log(3) / 4 - 3 / 32 * math.log(3) ** 2)


def test_a_step_that_loses_is_halved() -> None:
    # The member is surer than its nine hits in ten allow: its log odds are 5, and those of the optimum ln 9. Newton's
    # step from w = 1 ends at the bound, 0, which is worse; half of it is better.
    sure = 1 / (1 + math.exp(-5))
    fit = fit_log_linear(two_words(sure, [0] * 9 + [1]), 1)
    assert fit.weights[0] == pytest.approx(math.log(9) / 5, abs=1e-5)
    assert fit.value == pytest.approx(0.9 * math.log(0.9) + 0.1 * math.log(0.1)) and fit.gap <= 1e-9
    assert fit.iterations < 10


def test_a_step_that_gains_nothing_ends_the_search() -> None:
    # Seven of ten are the first word: at w = 1 a gradient of ln 3 (0.7 - 0.75) and a Hessian of -3/16 ln^2 3, so that
    # the step would gain 0.05^2 / (2 3/16). But all later reads give a lower likelihood, wherever the step ends.
    reads = iter([two_words(3 / 4, [0] * 7 + [1] * 3), *[two_words(3 / 4, [1, 1])] * 99])
    fit = fit_log_linear(lambda: next(reads)(), 1)
    assert (fit.weights.tolist(), fit.iterations, fit.gap) == ([1], 1, pytest.approx(1 / 150))
    assert fit.value == pytest.approx(0.7 * math.log(3 / 4) + 0.3 * math.log(1 / 4))


def test_a_variable_that_becomes_negative_is_fixed_again() -> None:
    # x1 is freed first, to 2; with x2 free the optimum is (-3, 10), beyond the bound. On the line there from (2, 0), x1
    # is 0 at (0, 4); of x2 alone 1.5 x - 0.15 x^2 is highest at 5, and there the gradient of x1 is 2 - 2.5.
    x = bounded_optimum(np.array([[1, 0.5], [0.5, 0.3]]), np.array([2, 1.5]))
    assert x.tolist() == [0, pytest.approx(5)]
    # x3 takes part in nothing.
    curvature = np.array([[1, 0.5, 0], [0.5, 0.3, 0], [0, 0, 4]])
    assert bounded_optimum(curvature, np.array([2, 1.5, 1])).tolist() == [0, pytest.approx(5), pytest.approx(0.25)]
    assert bounded_optimum(curvature, np.array([-2, 0, -1])).tolist() == [0, 0, 0]
    # In whatever unit the likelihood is.
    for unit in (1e-15, 1e12):
        found = bounded_optimum(unit * curvature, unit * np.array([2, 1.5, 1]))
        assert found.tolist() == [0, pytest.approx(5), pytest.approx(0.25)]


@pytest.mark.parametrize("seed", range(6))
def test_bounded_optimum_is_the_best_of_all_choices_of_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(4, 3 if seed % 2 else 6))  # singular where 3
    assert_best(root @ root.T, root @ rng.normal(size=root.shape[1]))


def test_bounded_optimum_of_variables_that_are_much_alike() -> None:
    # Such ones become negative again and again, several at once.
    rng = np.random.default_rng(0)
    for _ in range(100):
        root = 1 + 0.3 * rng.normal(size=(4, 6))
        assert_best(root @ root.T, root @ (1 + rng.normal(size=6)))


def assert_best(curvature: np.ndarray, slope: np.ndarray) -> None:
    """Assert that bounded_optimum is not worse than the optimum of any choice of variables inside their bounds."""
    x = bounded_optimum(curvature, slope)
    found = slope @ x - x @ curvature @ x / 2
    best = 0.0
    for free in chain.from_iterable(combinations(range(4), size) for size in range(1, 5)):
        at = np.zeros(4)
        at[list(free)] = np.linalg.lstsq(curvature[np.ix_(free, free)], slope[list(free)], rcond=1e-12)[0]
        if (at >= 0).all():
            best = max(best, slope @ at - at @ curvature @ at / 2)
    assert (x >= 0).all() and found == pytest.approx(best, abs=1e-9)

"""How the weights of mixtures are fitted, over models of two words whose optimum is worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lmtool.config.verbs import CacheKind, FitOn, MixMethod
from lmtool.data.cloze import Cloze
from lmtool.data.vocabulary import SpecialTokens
from lmtool.errors import UserError
from lmtool.mixtures import fit
from lmtool.mixtures.fit import FittedMixture, fit_mixture
from tests.commands.test_ensemble import Classes, Fixed
from tests.mixtures.test_mixtures import Alike, text

TEXTS = {"valid": [0, 0, 0, 1], "test": [1, 1, 1, 0], "runs": [0, 0, 0, 0, 1]}
CORPUS: Any = SimpleNamespace(
    name="words", path="words.h5", splits=list(TEXTS), split=lambda name: text(TEXTS[name], bos=2),
    cloze=lambda name: None, vocabulary=SimpleNamespace(unk=1, bos=2, special_tokens=SpecialTokens(2, None, 1)),
)  # fmt: skip
FIRST, SECOND, EVEN = ([[p, 1 - p]] * 3 for p in (0.9, 0.1, 0.5))


def fitted(models: list[Any], log_prob: np.ndarray | None = None, **changes: object) -> tuple[FittedMixture, str]:
    """Fit a mixture with these settings, except for the changes; return it and the printed text."""
    values: dict[str, object] = dict(method=MixMethod.linear, cache=None, weights=None, fit_on=FitOn.text, split="test")
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
    found, _ = fitted(models, weights=[0.3, 0.5, 0.2], cache=CacheKind.unigram)
    assert found.mixture == {"method": "linear", "cache": {"kind": "unigram", "size": 2}} and not found.result
    found, _ = fitted(models, weights=[0.3, 0.5, 0.2], cache=CacheKind.neural, cache_theta=0.5)
    assert found.weights.tolist() == [0.3, 0.5, 0.2] and not found.result
    assert found.mixture["cache"] == {"kind": "neural", "size": 2, "theta": 0.5, "encoder": 1}
    found, _ = fitted(models, weights=[0.3, 0.7], method=MixMethod.log_linear)
    assert (found.weights.tolist(), found.mixture) == ([0.3, 0.7], {"method": "log_linear"})
    # Nor do they need a text to fit them on.
    for changes in ({}, {"cache": CacheKind.unigram}, {"cache": CacheKind.neural, "cache_theta": 0.5}):
        weights = [0.3, 0.5, 0.2] if changes else [0.3, 0.7]
        assert fitted(models, weights=weights, fit_split="none", **changes)[0].weights.tolist() == weights
    # Theta is looked for with the weights as they are.
    found, said = fitted(models, weights=[0.3, 0.5, 0.2], cache=CacheKind.neural)
    assert found.weights.tolist() == [0.3, 0.5, 0.2] and found.result.keys() == {"theta"} and "EM" not in said
    assert said.startswith("theta of the cache with the highest likelihood of valid: ")
    assert found.mixture["cache"]["theta"] == found.result["theta"] > 0


def test_the_weight_of_a_cache_leaves_out_the_first_token() -> None:
    # After it the model gives 0.5 four times and the cache 1, 1, 1, 0: 1.5 / (1 - 0.5 w) = 1 / w at w = 1/2.
    found, said = fitted([Fixed(EVEN, 1)], cache=CacheKind.unigram, fit_split="runs")
    np.testing.assert_allclose(found.weights, [0.5, 0.5], atol=1e-4)
    assert found.mixture["cache"] == {"kind": "unigram", "size": 2} and "EM on runs" in said
    # A theta of 0 makes the neural cache the same.
    found, _ = fitted([Alike(EVEN, 1)], cache=CacheKind.neural, cache_theta=0.0, fit_split="runs")
    np.testing.assert_allclose(found.weights, [0.5, 0.5], atol=1e-4)
    with pytest.raises(UserError, match="requires a neural run"):
        fitted([Fixed(EVEN, 1)], cache=CacheKind.neural)


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
    found, said = fitted(models, method=MixMethod.classes)
    assert found.mixture["method"] == "classes" and found.mixture["classifier"] == 1
    np.testing.assert_allclose(found.weights, [13 / 16, 3 / 16], atol=1e-4)
    table = np.array(found.mixture["class_weights"])
    assert table.shape == (2, 2) and found.result["class_weights"] == table.tolist() and "words of context seen" in said
    assert said.startswith("EM on valid, by class: at most ") and "nats of the optimum" in said
    rows = [line.split() for line in said.splitlines()[2:]]
    assert [row[:2] for row in rows] == [["0", "4"], ["1", "0"]]  # all four contexts are of class 0
    assert [float(weight) for weight in rows[0][2:]] == pytest.approx([13 / 16, 3 / 16], abs=1e-3)
    with pytest.raises(UserError, match="needs an n-gram run"):
        fitted([Fixed(FIRST, 1)], method=MixMethod.classes)


def test_log_linear_contexts_are_evenly_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "CONTEXTS_PER_CHUNK", 2)
    models: list[Any] = [Fixed(FIRST, 1), Fixed(SECOND, 1)]
    for contexts, places in ((3, [0, 2, 4]), (2, [0, 4]), (100, [0, 1, 2, 3, 4])):
        config: Any = SimpleNamespace(fit_split="runs", fit_contexts=contexts)
        chunks, count = fit._text_chunks(config, models, CORPUS, progress=False)
        assert count == len(places)
        targets = np.concatenate([targets for _, targets in chunks()])
        assert targets.tolist() == [TEXTS["runs"][place] for place in places]
    found, said = fitted(models, method=MixMethod.log_linear)
    assert found.result["fit"]["contexts"] == 4 and "Newton's method on 4 contexts of valid" in said


def test_log_linear_contexts_of_a_member_that_reads_across_sentences() -> None:
    # Two sentences of word 0 and </s>, which is 1: before the third token stands </s> for one member, <s> for another.
    table = [[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]
    one, across = Fixed(table, 1), Fixed(table, 1)
    across.across_sentences = True
    split = replace(text([0, 1, 0, 1], bos=2), offsets=np.array([0, 2, 4]))
    marks = SimpleNamespace(special_tokens=SpecialTokens(2, 1, 0))
    corpus: Any = SimpleNamespace(splits=["valid"], split=lambda name: split, vocabulary=marks)
    config: Any = SimpleNamespace(fit_split="valid", fit_contexts=100)
    chunks, _ = fit._text_chunks(config, [one, across], corpus, progress=False)
    log_dist, _ = next(chunks())
    np.testing.assert_allclose(np.exp(log_dist[:, :, 0]), [[0.5, 0.9, 0.5, 0.9], [0.5, 0.9, 0.2, 0.9]])


def test_what_cannot_be_fitted() -> None:
    dynamic: Any = Fixed(FIRST, 1)
    dynamic.dynamic = True
    for changes in ({"method": MixMethod.classes}, {"cache": CacheKind.unigram}, {"method": MixMethod.log_linear}):
        with pytest.raises(UserError, match="can only be mixed linearly, and without another cache"):
            fitted([dynamic, Fixed(SECOND, 1)], **changes)
    with pytest.raises(UserError, match="fit_on=cloze: words has no questions with answers for fit_split=valid"):
        fitted([Fixed(FIRST, 1)], method=MixMethod.log_linear, fit_on=FitOn.cloze)


def test_log_linear_weights_of_questions_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # After 0 and 1, of p = (3/4, 1/4): eight answers in ten are word 0, whose log odds are ln 4 = w ln 3.
    answers = np.array([0] * 8 + [1] * 2)
    questions = Cloze(np.arange(10) % 2, np.arange(11), np.tile([0, 2], (10, 1)), answers)
    monkeypatch.setattr(CORPUS, "cloze", lambda name: questions)
    found, said = fitted([Fixed([[0.6, 0.2, 0.2]] * 2, 1)], method=MixMethod.log_linear, fit_on=FitOn.cloze)
    np.testing.assert_allclose(found.weights, [np.log(4) / np.log(3)], atol=1e-4)
    assert found.result["fit"]["questions"] == 10 and "Newton's method on 10 questions of valid" in said


@pytest.mark.parametrize("answers", [[-1, 1], [-1, -1]])
def test_questions_to_fit_on_have_all_their_answers(answers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    questions = Cloze(np.array([0, 1]), np.array([0, 1, 2]), np.array([[0, 1]] * 2), np.array(answers))
    monkeypatch.setattr(CORPUS, "cloze", lambda name: questions)
    with pytest.raises(UserError, match="fit_on=cloze: words has no questions with answers for fit_split=valid"):
        fitted([Fixed(FIRST, 1)], method=MixMethod.log_linear, fit_on=FitOn.cloze)

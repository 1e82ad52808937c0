"""Mixtures: weights by EM against closed forms, and a mixture as a language model."""

from __future__ import annotations

import numpy as np
import pytest

from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.language_model import LanguageModel
from lmtool.mixtures.cache import CachedMixture, NeuralCache, UnigramCache
from lmtool.mixtures.fit import build_mixture
from lmtool.mixtures.linear import ClassMixture, Mixture, fit_weights, mix
from lmtool.mixtures.log_linear import LogLinear


def test_disjoint_models_get_the_shares_of_their_tokens() -> None:
    # Each token is possible under one model alone: the likelihood w1^3 w2 is largest at 3/4, 1/4.
    with np.errstate(divide="ignore"):
        log_prob = np.log(np.array([[0.3, 0.2, 0.1, 0.0], [0.0, 0.0, 0.0, 0.9]]))
    fit = fit_weights(log_prob)
    np.testing.assert_allclose(fit.weights, [0.75, 0.25], atol=1e-9)
    assert fit.gap <= 1e-9


def test_the_gap_bounds_what_is_left() -> None:
    rng = np.random.default_rng(3)
    log_prob = np.log(rng.dirichlet(np.ones(3), size=500).T)
    rough = fit_weights(log_prob, iterations=3)
    best = np.mean(mix(log_prob, fit_weights(log_prob, tolerance=1e-12).weights))
    left = best - np.mean(mix(log_prob, rough.weights))
    assert 0 < left <= rough.gap and rough.iterations == 3


def test_a_token_that_no_model_allows() -> None:
    with pytest.raises(UserError, match="token 1 of fit_split has probability zero"):
        fit_weights(np.array([[-1.0, -np.inf], [-2.0, -np.inf]]))


class Fixed(LanguageModel):
    """p(w|h) that depends on the last word alone."""

    context_size = vocabulary_size = 0
    across_sentences = dynamic = False
    normalized = True

    def __init__(self, table: list[list[float]], context_size: int) -> None:
        self.table = np.log(np.array(table))
        self.context_size, self.vocabulary_size = context_size, max(self.table.shape)

    def log_dist(self, contexts: np.ndarray) -> np.ndarray:
        assert contexts.shape[1] == self.context_size
        return self.table[contexts[:, -1]]


class Classes(Fixed):
    """One that has n-grams."""

    context_classes = 2

    def context_lengths(self, contexts: np.ndarray) -> np.ndarray:
        return np.zeros(len(contexts), dtype=np.int64)


class Hidden(Fixed):
    """One that has hidden units."""

    hidden_dim = 2

    def hidden(self, contexts: np.ndarray) -> np.ndarray:
        return np.ones((len(contexts), 2), dtype=np.float32)


VOCABULARY = Vocabulary(("a", "<unk>"), np.array([3, 1]), None, 1)
EVEN = [[0.5, 0.5], [0.5, 0.5]]


def test_mixtures_come_again_from_what_run_json_keeps() -> None:
    members, weights = [Fixed(EVEN, 1), Classes(EVEN, 1), Hidden(EVEN, 1)], np.full(3, 1 / 3)

    def build(**mixture: object) -> object:
        return build_mixture(members, np.full(4, 1 / 4) if "cache" in mixture else weights, mixture, VOCABULARY)

    assert type(build(method="linear")) is Mixture
    assert isinstance(build(method="log_linear"), LogLinear)
    classes = build(method="classes", classifier=1, class_weights=[[0.2, 0.3, 0.5]] * 2)
    assert isinstance(classes, ClassMixture) and classes.classifier is members[1]
    cached = build(method="linear", cache={"kind": "unigram", "size": 5})
    assert isinstance(cached, CachedMixture) and cached.cache == UnigramCache(5)
    cached = build(method="linear", cache={"kind": "neural", "size": 5, "theta": 0.5, "encoder": 2})
    assert isinstance(cached, CachedMixture) and cached.cache == NeuralCache(5, 0.5, members[2])
    for damaged, said in (
        ({"method": "other"}, "method other is not known"),
        ({"method": "classes", "classifier": 0, "class_weights": EVEN}, "member 0 has no n-grams"),
        ({"method": "linear", "cache": {"kind": "neural", "size": 5, "theta": 1, "encoder": 1}}, "no hidden units"),
    ):
        with pytest.raises(ValueError, match=said):
            build(**damaged)


def test_mixture_shows_each_member_its_own_context() -> None:
    mixture = Mixture([Fixed([[0.9, 0.1], [0.5, 0.5]], 1), Fixed([[0.2, 0.8], [0.6, 0.4]], 3)], np.array([0.5, 0.5]))
    assert mixture.context_size == 3
    contexts = np.array([[1, 1, 0], [0, 0, 1]])
    want = np.log([[0.55, 0.45], [0.55, 0.45]])
    np.testing.assert_allclose(mixture.log_dist(contexts), want)
    np.testing.assert_allclose(mixture.log_prob(contexts, np.array([0, 1])), [want[0, 0], want[1, 1]])
    np.testing.assert_allclose(mixture.log_prob_candidates(contexts, np.array([[1, 0], [0, 0]]))[0], want[0, ::-1])

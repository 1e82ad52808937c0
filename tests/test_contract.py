"""Every model, count-based, neural and mixtures of both, keeps the LanguageModel contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lmtool.config.groups import EncoderConfig
from lmtool.data.corpus import Corpus
from lmtool.data.derived_corpus import limit_words
from lmtool.data.vocabulary import SpecialTokens
from lmtool.language_model import LanguageModel
from lmtool.mixtures.cache import CachedMixture, NeuralCache, UnigramCache
from lmtool.mixtures.linear import ClassMixture, Mixture
from lmtool.mixtures.log_linear import LogLinear
from lmtool.mixtures.vocabularies import OverVocabulary
from lmtool.neural.build import build_neural
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from tests.options import (
    COUNTED,
    ENCODERS,
    LAYERS,
    RECURRENT,
    SMOOTHERS,
    encoder,
    output_settings,
    settings_of,
    smoother,
    tree_of,
)


def ngram(corpus: Corpus, order: int, name: str = "modified_kneser_ney", kind: str = "ngram") -> Any:
    """N-grams of a kind, by a form of a smoother."""
    units = settings_of("model", kind, {"classes": 5}, order=order).units(corpus)
    counts = count_ngrams(units.corpus.text("train"), units.corpus.vocabulary, order)
    return units.model(estimate(counts, smoother(name, order, units.corpus.vocabulary)))


def nplm(corpus: Corpus, output: str = "softmax", **changes: Any) -> LanguageModel:
    return network(corpus, encoder("nplm", **{"layer_norm": True, "dropout": 0.3} | changes), output)


def network(corpus: Corpus, model: EncoderConfig, output: str = "softmax") -> LanguageModel:
    torch.manual_seed(7)
    counts = corpus.vocabulary.counts[:-1]
    layer = output_settings(output, 6, len(counts))
    return build_neural(model, layer, corpus.vocabulary, tree_of(output, counts) if layer.needs_tree else None)


def lstm(corpus: Corpus, **changes: Any) -> LanguageModel:
    return network(corpus, encoder("lstm", **{"dropout": 0.3, "hidden_dim": None, "tied": None} | changes))


class Decaying(LanguageModel):
    """A recurrent model: h_t = h_{t-1} / 2 + e(w_t), p = softmax(U h); the bits of h are its state."""

    context_size = None
    vocabulary_size = 0
    state_size = 3

    def __init__(self, corpus: Corpus) -> None:
        rng = np.random.default_rng(1)
        self.vocabulary_size, self.bos = len(corpus.vocabulary), corpus.vocabulary.bos
        self.embeddings = rng.normal(size=(self.vocabulary_size, 3))
        self.output = rng.normal(size=(self.vocabulary_size - 1, 3))

    def _read(self, contexts: np.ndarray) -> np.ndarray:
        words = self._checked_contexts("log_dist", contexts)
        h = np.zeros((len(words), 3))
        for t in range(words.shape[1]):
            h = h * np.where((words[:, t] == self.bos)[:, None], 0.0, 0.5) + self.embeddings[words[:, t]]
        return h

    def _log_softmax(self, h: np.ndarray) -> np.ndarray:
        scores = h @ self.output.T
        log_p = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        return np.concatenate([log_p, np.full((len(h), 1), -np.inf)], axis=1)

    def log_dist(self, contexts: np.ndarray) -> np.ndarray:
        return self._log_softmax(self._read(contexts))

    def begin(self, special_tokens: SpecialTokens, *, sentence_start: bool = True) -> np.ndarray:
        return self.embeddings[special_tokens.bos if sentence_start else special_tokens.unk].view(np.int64)

    def advance(
        self, states: np.ndarray, words: np.ndarray, special_tokens: SpecialTokens
    ) -> tuple[np.ndarray, np.ndarray]:
        h = np.ascontiguousarray(states).view(np.float64)
        after = (h / 2 + self.embeddings[words]).view(np.int64)
        if special_tokens.eos is not None:
            after[words == special_tokens.eos] = self.begin(special_tokens)
        return self._log_softmax(h)[np.arange(len(words)), words], after


def class_mixture(corpus: Corpus, other: LanguageModel | None = None) -> LanguageModel:
    members, classifier = [other or nplm(corpus)], ngram(corpus, 3)
    weights = np.array([[0.1, 0.9], [0.5, 0.5], [0.8, 0.2]])
    return ClassMixture([*members, classifier], weights, classifier, corpus.vocabulary.special_tokens)


def over_vocabulary(corpus: Corpus) -> LanguageModel:
    """Of two thirds of the words, so that the others share p(<unk>)."""
    known = limit_words(corpus, corpus.vocabulary.words[::3] + corpus.vocabulary.words[1::3])
    return OverVocabulary(ngram(known, 3), known.vocabulary, corpus.vocabulary)


def mixture(*weights: float) -> Callable[..., LanguageModel]:
    return lambda *members: Mixture(members, np.array(weights))


def across(corpus: Corpus) -> LanguageModel:
    return nplm(corpus, across_sentences=True)


def with_tokens(kind: Any, corpus: Corpus) -> LanguageModel:
    """Of n-grams and of a network that reads across sentences."""
    return kind([ngram(corpus, 3), across(corpus)], np.array([0.6, 0.4]), corpus.vocabulary.special_tokens)


MODELS: dict[str, Callable[[Corpus], LanguageModel]] = {
    **{name: lambda corpus, name=name: ngram(corpus, 3, name) for name in SMOOTHERS},
    **{name: lambda corpus, name=name: ngram(corpus, 4, kind=name) for name in COUNTED},
    **{f"{name}, order 1": lambda corpus, name=name: ngram(corpus, 1, kind=name) for name in COUNTED},
    **{f"output={name}": lambda corpus, name=name: nplm(corpus, name) for name in LAYERS},
    **{name: lambda corpus, name=name: network(corpus, encoder(name, dropout=0.3)) for name in ENCODERS + RECURRENT},
    "nce, tied": lambda corpus: nplm(corpus, "nce", tied=True),
    "nplm, tied, direct": lambda corpus: nplm(corpus, tied=True, direct_connections=True),
    "nplm, two layers": lambda corpus: nplm(corpus, layers=2, input_dropout=0.2),
    "nplm, no layers": lambda corpus: nplm(corpus, "hierarchical, morin_bengio", layers=0),
    "nplm, across": lambda corpus: nplm(corpus, fofe_window=9, across_sentences=True),
    "lstm, two layers": lambda corpus: lstm(corpus, hidden_dim=5, layers=2),
    "lstm, across": lambda corpus: lstm(corpus, across_sentences=True),
    "decaying": Decaying,
    "mixture": lambda corpus: mixture(0.25, 0.75)(ngram(corpus, 2), nplm(corpus, tied=True)),
    "mixture, decaying": lambda corpus: mixture(0.4, 0.6)(ngram(corpus, 3), Decaying(corpus)),
    "mixture, lstm": lambda corpus: mixture(0.4, 0.6)(ngram(corpus, 3), lstm(corpus)),
    "mixture, classes": class_mixture,
    "mixture, across": lambda corpus: with_tokens(Mixture, corpus),
    "mixture, classes, across": lambda corpus: class_mixture(corpus, across(corpus)),
    "mixture of mixtures": lambda corpus: mixture(0.5, 0.5)(class_mixture(corpus), ngram(corpus, 1)),
    "log_linear": lambda corpus: LogLinear([ngram(corpus, 4), nplm(corpus)], np.array([0.4, 0.7])),
    "log_linear, decaying": lambda corpus: LogLinear([ngram(corpus, 3), Decaying(corpus)], np.array([0.4, 0.7])),
    "log_linear, across": lambda corpus: with_tokens(LogLinear, corpus),
    "over_vocabulary": over_vocabulary,
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, toy: Corpus) -> LanguageModel:
    return MODELS[request.param](toy)


def test_contract(model: LanguageModel, toy: Corpus, request: pytest.FixtureRequest) -> None:
    assert isinstance(model, LanguageModel)
    assert model.normalized is ("stupid_backoff" not in request.node.name) and model.dynamic is False
    assert model.across_sentences is ("across" in request.node.name)
    valid, size = toy.split("valid"), len(toy.vocabulary)
    contexts = valid.as_stream(model.across_sentences).contexts(0, valid.tokens, model.context_size)
    targets = valid.ids.astype(np.int64)
    dist = model.log_dist(contexts)
    assert dist.shape == (valid.tokens, size) and dist.dtype == np.float64
    if model.normalized:
        np.testing.assert_allclose(np.logaddexp.reduce(dist, axis=1), 0, atol=1e-6)  # float32 inside
    p = model.probabilities(contexts)
    assert p.shape == dist.shape and p.dtype in (np.float32, np.float64)
    np.testing.assert_allclose(p, np.exp(dist), rtol=5e-6, atol=0)
    log_prob = model.log_prob(contexts, targets)
    assert log_prob.shape == (valid.tokens,) and log_prob.dtype == np.float64
    np.testing.assert_allclose(log_prob, dist[np.arange(valid.tokens), targets], rtol=1e-6)
    candidates = np.random.default_rng(0).integers(0, size - 1, (valid.tokens, 5))
    np.testing.assert_allclose(
        model.log_prob_candidates(contexts, candidates), np.take_along_axis(dist, candidates, axis=1), rtol=1e-6
    )
    np.testing.assert_allclose(model.score_text(valid), log_prob, rtol=1e-6)


def test_explain(model: LanguageModel, toy: Corpus) -> None:
    """The factors of a back-off, and the terms of a mixture, give p; other models say the rank."""
    text = toy.split("valid").as_stream(model.across_sentences)
    contexts, targets = text.windows(np.arange(text.tokens), model.context_size)
    columns, p = model.explain(contexts.tolist(), targets.tolist()), np.exp(model.log_prob(contexts, targets))
    assert {column.shape for column in columns.values()} == {(text.tokens,)}
    if {"order", "p 1"} <= columns.keys():
        found = columns["p 1"]
        for k in range(2, 2 + sum(name.startswith("share") for name in columns)):
            share, weight = columns[f"share {k}"], columns[f"weight {k}"]
            assert (np.nan_to_num(share) > -1e-7).all() and (columns["order"][share > 0] >= k).all()
            found = np.nan_to_num(share) + np.nan_to_num(weight, nan=1.0) * found
        found *= columns.get("p in class", 1)
    elif "order" in columns:
        weights = [np.ones(text.tokens), *(values for name, values in columns.items() if name.startswith("back-off"))]
        found = columns["stored p"] * np.nanprod(weights, axis=0) * columns.get("p in class", 1)
    elif "p 1" in columns:
        found = columns["p 1"] * columns["weight 1"] + columns["p 2"] * columns["weight 2"]
    else:
        above = model.log_dist(contexts)[:, :-1] - np.log(p)[:, None]
        assert ((above > 1e-5).sum(axis=1) < columns["rank"]).all()  # equal p have one rank
        assert ((above > -1e-5).sum(axis=1) >= columns["rank"]).all()
        return
    np.testing.assert_allclose(found, p, rtol=1e-6)


def test_what_fits(model: LanguageModel, toy: Corpus) -> None:
    """Any integer type, lists and tensors; no contexts, and no candidates."""
    valid, size = toy.split("valid").as_stream(model.across_sentences), len(toy.vocabulary)
    contexts, targets = valid.windows(np.arange(8), model.context_size)
    wanted = model.log_prob(contexts, targets)
    for convert in (np.int32, np.uint16, torch.from_numpy, lambda array: array.tolist(), np.asfortranarray):
        np.testing.assert_array_equal(model.log_prob(convert(contexts), convert(targets)), wanted)
    contexts.setflags(write=False)
    np.testing.assert_array_equal(model.log_prob(contexts, targets), wanted)
    none = contexts[:0]
    assert model.log_prob(none, targets[:0]).shape == (0,) and model.log_dist(none).shape == (0, size)
    assert model.probabilities(none).shape == (0, size)
    assert model.log_prob_candidates(none, np.empty((0, 3), dtype=int)).shape == (0, 3)
    assert model.log_prob_candidates(contexts, np.empty((8, 0), dtype=int)).shape == (8, 0)


def refuses(model: LanguageModel, contexts: np.ndarray, targets: np.ndarray, size: int) -> None:
    """It raises ValueError, naming the argument, for all that does not fit; contexts `[N, C]` and targets `[N]` do."""
    candidates, first = targets[:, None], np.arange(contexts.shape[1]) == 0
    longer = np.concatenate([contexts, candidates], axis=1)
    wrong = [contexts[0], contexts[None], "text", [[0], [0, 0]]]
    if model.context_size is not None:
        wrong += [longer]
    if model.context_size:
        wrong += [contexts[:, 1:]]
    if contexts.shape[1]:
        wrong += [
            contexts.astype(float),
            *(np.where(first, id_, contexts) for id_ in (-1, -100, size)),
        ]
    for bad in wrong:
        for method, others in (("log_prob", [targets]), ("log_dist", []), ("log_prob_candidates", [candidates])):
            with pytest.raises(ValueError, match="contexts "):
                getattr(model, method)(bad, *others)
    for number in (-1, -100, size, 2**62):
        with pytest.raises(ValueError, match=r"(targets|candidates) must be integers .*; got a m"):
            model.log_prob(contexts, np.full_like(targets, number))
        with pytest.raises(ValueError, match=r"candidates must be integers .*; got a m"):
            model.log_prob_candidates(contexts, np.full_like(candidates, number))
    for bad in (targets[1:], candidates, targets.astype(float), targets > 0, "text", None):
        with pytest.raises(ValueError, match="targets must be integers"):
            model.log_prob(contexts, bad)
    for bad in (candidates[1:], targets, candidates.astype(float), candidates[None]):
        with pytest.raises(ValueError, match="candidates must be integers"):
            model.log_prob_candidates(contexts, bad)


def test_what_does_not_fit(model: LanguageModel, toy: Corpus) -> None:
    valid, size = toy.split("valid").as_stream(model.across_sentences), len(toy.vocabulary)
    refuses(model, *valid.windows(np.arange(5), model.context_size), size)


@pytest.mark.parametrize("cache", [UnigramCache(3), None], ids=["unigram", "neural"])
def test_a_mixture_with_a_cache_refuses_the_same(cache: UnigramCache | None, toy: Corpus) -> None:
    network = nplm(toy)
    model = CachedMixture([ngram(toy, 3), network], np.array([0.5, 0.2, 0.3]), cache or NeuralCache(3, 0.5, network))
    refuses(model, *toy.split("valid").windows(np.arange(5), model.context_size), len(toy.vocabulary))


def test_contexts_that_are_shorter_than_those_of_a_member(toy: Corpus) -> None:
    mixture, bos = Mixture([ngram(toy, 4), Decaying(toy)], np.array([0.5, 0.5])), toy.vocabulary.bos
    np.testing.assert_allclose(mixture.log_dist([[bos]]), mixture.log_dist([[bos] * 5]))
    np.testing.assert_allclose(mixture.log_dist([[bos, 3]]), mixture.log_dist([[bos] * 5 + [3]]))


def test_more_that_ngrams_refuse(toy: Corpus) -> None:
    model, size = ngram(toy, 3), len(toy.vocabulary)
    contexts, targets = toy.split("valid").windows(np.arange(5), 2)
    for call in (
        lambda: model.matched_lengths(contexts[:, :1], targets),
        lambda: model.context_lengths(contexts + size),
    ):
        with pytest.raises(ValueError, match="contexts must be integers"):
            call()
    with pytest.raises(ValueError, match=r"matched_lengths: targets must be integers .*\[5\]; got int64 \[4\]"):
        model.matched_lengths(contexts, targets[1:])
    assert model.log_prob_text([], [0]).shape == (0,)
    for ids, offsets, error in (
        ([size], [0, 1], "ids must be integers from 0 to .*; got a maximum"),
        ([-1], [0, 1], "ids must be integers .*; got a minimum of -1"),
        ([0.5], [0, 1], "ids must be integers .*; got float64"),
        ([0, 1], [0, 3], "offsets must ascend from 0 to 2, the number of ids"),
        ([0, 1], [1, 2], "offsets must ascend"),
        ([0, 1], [0, 2, 1, 2], "offsets must ascend"),
        ([0, 1], [], "offsets must ascend"),
        ([0, 1], [0, -5, 2], "offsets must be integers of 0 or more; got a minimum of -5"),
    ):
        with pytest.raises(ValueError, match=f"NgramModel.log_prob_text: {error}"):
            model.log_prob_text(ids, offsets)


def test_more_that_networks_refuse(toy: Corpus) -> None:
    model, size = nplm(toy, "nce"), len(toy.vocabulary)
    contexts, targets = toy.split("valid").windows(np.arange(5), 3)
    for call in (model.hidden, model.argmax, model.log_z, lambda bad: model.top(bad, 2)):
        with pytest.raises(ValueError, match=r"NeuralModel.\w+: contexts must be integers from 0 to"):
            call(contexts + size)
    with pytest.raises(ValueError, match="unnormalized_log_prob: targets must be integers"):
        model.unnormalized_log_prob(contexts, targets[1:])
    with pytest.raises(
        ValueError, match=f"unnormalized_log_prob: y must be ids from 0 to {size - 2}"
    ):  # <s> is never predicted
        model.unnormalized_log_prob(contexts, np.full(5, size - 1))
    assert model.training
    for k in (0, -1, 1.5, size):
        with pytest.raises(ValueError, match="top: k must be"):
            model.top(contexts, k)
    with pytest.raises(ValueError, match=r"NCELoss.forward: y must be int64 \[5\]; got int64 \[4\]"):
        model(torch.from_numpy(contexts), torch.from_numpy(targets[1:]))
    assert model.top(contexts[:0], 2)[0].shape == (0, 2) and model.argmax(contexts[:0]).shape == (0,)
    assert model.hidden(contexts[:0]).shape == (0, 8)

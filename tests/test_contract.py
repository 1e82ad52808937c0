"""Every model, counts and neural and mixtures of them, keeps the LanguageModel contract."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmtool.config import Activation, NplmModel
from lmtool.data.corpus import Corpus
from lmtool.ensemble import Mixture
from lmtool.evaluation import score
from lmtool.model import LanguageModel
from lmtool.neural.model import build_nplm
from lmtool.ngram.counts import count_ngrams
from lmtool.ngram.estimate import Smoother, estimate
from lmtool.ngram.model import NgramModel
from lmtool.ngram.smoothers.absolute import Absolute
from lmtool.ngram.smoothers.good_turing import GoodTuring
from lmtool.ngram.smoothers.jelinek_mercer import JelinekMercer
from lmtool.ngram.smoothers.kneser_ney import KneserNey
from lmtool.ngram.smoothers.laplace import Laplace
from lmtool.ngram.smoothers.modified_kneser_ney import ModifiedKneserNey
from lmtool.ngram.smoothers.witten_bell import WittenBell


def ngram(corpus: Corpus, order: int, smoother: Smoother | None = None) -> NgramModel:
    counts = count_ngrams(corpus.split("train"), corpus.vocabulary, order)
    return NgramModel(estimate(counts, smoother or ModifiedKneserNey(order)), corpus.vocabulary)


def nplm(corpus: Corpus, *, tied: bool, direct: bool) -> LanguageModel:
    torch.manual_seed(7)
    return build_nplm(NplmModel("nplm", 3, 6, 8, direct, tied, Activation.tanh, True, 0.3), corpus.vocabulary)


MODELS = {
    "unigram": lambda corpus: ngram(corpus, 1),
    "ngram": lambda corpus: ngram(corpus, 4),
    "laplace": lambda corpus: ngram(corpus, 3, Laplace(3, alpha=0.1, types=len(corpus.vocabulary) - 1)),
    "jelinek_mercer": lambda corpus: ngram(corpus, 3, JelinekMercer(3, classes=4)),
    "witten_bell": lambda corpus: ngram(corpus, 3, WittenBell(3)),
    "witten_bell-backed_off": lambda corpus: ngram(corpus, 3, WittenBell(3, interpolate=False)),
    "good_turing": lambda corpus: ngram(corpus, 3, GoodTuring(3, largest=7, largest_unigram=1)),
    "absolute": lambda corpus: ngram(corpus, 3, Absolute(3)),
    "kneser_ney": lambda corpus: ngram(corpus, 3, KneserNey(3)),
    "kneser_ney-backed_off": lambda corpus: ngram(corpus, 3, KneserNey(3, interpolate=False)),
    "nplm": lambda corpus: nplm(corpus, tied=False, direct=False),
    "nplm-tied-direct": lambda corpus: nplm(corpus, tied=True, direct=True),
    "mixture": lambda corpus: Mixture(
        [ngram(corpus, 2), nplm(corpus, tied=True, direct=False)], np.array([0.25, 0.75])
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_contract(name: str, toy: Corpus) -> None:
    model = MODELS[name](toy)
    assert isinstance(model, LanguageModel)
    valid, size = toy.split("valid"), len(toy.vocabulary)
    contexts = valid.contexts(0, valid.tokens, model.context_size)
    targets = valid.ids.astype(np.int64)
    dist = model.log_dist(contexts)
    assert dist.shape == (valid.tokens, size) and dist.dtype == np.float64
    np.testing.assert_allclose(np.logaddexp.reduce(dist, axis=1), 0, atol=1e-6)  # float32 inside
    log_prob = model.log_prob(contexts, targets)
    assert log_prob.shape == (valid.tokens,) and log_prob.dtype == np.float64
    np.testing.assert_allclose(log_prob, dist[np.arange(valid.tokens), targets], rtol=1e-6)
    candidates = np.random.default_rng(0).integers(0, size - 1, (valid.tokens, 5))
    np.testing.assert_allclose(
        model.log_prob_candidates(contexts, candidates), np.take_along_axis(dist, candidates, axis=1), rtol=1e-6
    )
    np.testing.assert_allclose(score(model, valid).log_prob, log_prob, rtol=1e-6)

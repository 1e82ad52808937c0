"""N-grams of every s-th word: the cut of the text, probabilities by hand, and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lmtool.data.corpus import Corpus
from lmtool.data.derived_corpus import SkipCorpus, every
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.models.ngram_model import Units
from lmtool.ngram.smoothers.base import Smoother
from tests.conftest import Run


def test_the_cut() -> None:
    places, begins = every(2, np.array([0, 5, 6, 8]))
    assert places.tolist() == [0, 2, 4, 1, 3, 5, 6, 7] and begins.tolist() == [0, 3, 5, 6, 7, 8]
    places, begins = every(3, np.array([0, 5]))
    assert places.tolist() == [0, 3, 1, 4, 2] and begins.tolist() == [0, 2, 4, 5]
    assert every(1, np.array([0, 2, 4]))[1].tolist() == [0, 2, 4] and every(2, np.array([0]))[1].tolist() == [0]


def test_probabilities_by_hand(tmp_path: Path) -> None:
    corpus = Corpus.from_texts(["a b c", "a d c", "e d a"], ["a q"], store_dir=tmp_path)
    cut = SkipCorpus(corpus, 2)
    assert cut.folder is None and cut.fingerprint != corpus.fingerprint
    # valid is a q </s>: the parts are a </s> and q, which is out of vocabulary.
    assert corpus.split("valid").oov_positions.tolist() == [1] and cut.split("valid").oov_positions.tolist() == [2]
    units = Units(SkipCorpus(corpus, 2), step=2)
    model = units.model(estimate(count_ngrams(units.corpus.text("train"), corpus.vocabulary, 2), Smoother(2)))
    assert model.context_size == 2
    ids = corpus.vocabulary.ids
    # The parts: a c, b </s>, a c, d </s>, e a, d </s>. p(c|a ?) = 2/2, p(a|e ?) = 1, p(</s>|d ?) = 1; of 6 parts
    # 2 begin with a, 2 with d.
    contexts = [["a", "e"], ["e", "d"], ["<s>", "a"], ["<s>", "<s>"]]
    wanted = {"c": [1, 0, 0, 0], "a": [0, 1, 2 / 6, 2 / 6], "d": [0, 0, 2 / 6, 2 / 6]}
    rows = np.array([[ids[word] for word in context] for context in contexts])
    dist = np.exp(model.log_dist(rows))
    for word, p in wanted.items():
        np.testing.assert_allclose(dist[:, ids[word]], p, rtol=1e-6)
    text = corpus.split("train")
    contexts_of_text, targets = text.windows(np.arange(text.tokens), 2)
    log_prob = model.score_text(text)
    np.testing.assert_allclose(log_prob, model.log_prob(contexts_of_text, targets), rtol=1e-9)
    np.testing.assert_array_equal(log_prob, model.score_text(text, memory_limit=1 << 40))


def perplexity(folder: str) -> float:
    found: float = json.loads((Path(folder) / "result.json").read_text())["valid_perplexity"]
    return found


def test_from_the_command_line(lmtool: Run) -> None:
    lmtool("train", "model=ngram", "data=toy", "model.order=3", "hydra.run.dir=kn3")
    lmtool("train", "model=skip_ngram", "data=toy", "model.order=3", "model.step=1", "hydra.run.dir=all")
    assert perplexity("all") == perplexity("kn3")  # no word is skipped
    lmtool("train", "model=skip_ngram", "data=toy", "counts.memory=64KiB", "hydra.run.dir=skip")
    assert f"{perplexity('skip'):.4f}" in lmtool("eval", "run=skip")
    assert "mixture" in lmtool("ensemble", "runs=[kn3,skip]", "split=valid")
    refused = lmtool("export", "run=skip", "to=skip.arpa", code=2)
    assert "is not an n-gram model" in refused
    assert "has no counts of words" in lmtool("export", "run=skip", "to=skip.tsv", code=2)
    assert "model.step=0: must be from 1 to 16" in lmtool("train", "model=skip_ngram", "model.step=0", code=2)


@pytest.mark.parametrize("step", [2, 3])
def test_running_text_is_scored_as_context_by_context(step: int, toy: Corpus) -> None:
    units = Units(SkipCorpus(toy, step), step=step)
    model = units.model(estimate(count_ngrams(units.corpus.text("train"), toy.vocabulary, 3), Smoother(3)))
    valid = toy.split("train")
    contexts, targets = valid.windows(np.arange(valid.tokens), 2 * step)
    log_prob = model.score_text(valid)
    np.testing.assert_allclose(log_prob, model.log_prob(contexts, targets), rtol=1e-9)

"""Tuned parameters: the likelihood is the model's own, and no neighbor is better."""

from __future__ import annotations

import numpy as np
import pytest

from lmtool.config.options import kinds
from lmtool.data.corpus import Corpus
from lmtool.data.split import Split
from lmtool.errors import UserError
from lmtool.evaluation.metrics import perplexity
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.estimation.tuning import fit_and_tune, held_out_nodes
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.smoothers.absolute_discounting import Absolute, KneserNey
from lmtool.ngram.smoothers.base import Smoother
from lmtool.ngram.tables.storage import Storage
from tests.ngram.plain import Text, random_sentences, text_of
from tests.options import names_of
from tests.options import smoother as made

# Count merging tunes the weights of sources, which the toy corpus has not.
TUNED = [name for name in kinds("smoother") if "tune_on" in names_of("smoother", name) and name != "count_merging"]


@pytest.mark.parametrize("name", TUNED)
def test_tuning_finds_the_best(name: str, toy: Corpus) -> None:
    counts, valid = count_ngrams(toy.split("train"), toy.vocabulary, 3), toy.split("valid")
    smoother = made(name, 3, toy.vocabulary)

    def model_perplexity(smoother: Smoother) -> float:
        table = estimate(counts, smoother, fit=False)
        return perplexity(NgramModel(table, toy.vocabulary).score_text(valid))

    tuned = fit_and_tune(counts, smoother, valid, Storage())
    assert tuned.after < tuned.before
    assert model_perplexity(smoother) == pytest.approx(tuned.after, rel=1e-6)
    untuned = made(name, 3, toy.vocabulary)
    table = estimate(counts, untuned)
    assert perplexity(NgramModel(table, toy.vocabulary).score_text(valid)) == pytest.approx(tuned.before, rel=1e-6)
    best = smoother.values.copy()
    low, high = np.array([*smoother.bounds.values()]).T
    for step in (-0.02, 0.02):
        for index in np.ndindex(best.shape):
            smoother.values = best.copy()
            smoother.values[index] += step * (high - low)[index[1]]
            if (low <= smoother.values[index])[index[1]] and (smoother.values[index] <= high)[index[1]]:
                assert model_perplexity(smoother) > tuned.after * (1 - 1e-6)


def test_only_interpolated_forms_can_be_tuned(toy: Corpus) -> None:
    counts = count_ngrams(toy.split("train"), toy.vocabulary, 2)
    with pytest.raises(UserError, match=r"smoother\.interpolate=true"):
        fit_and_tune(counts, KneserNey(2, interpolate=False), toy.split("valid"), Storage())


@pytest.mark.parametrize("smoother", [Absolute(2), KneserNey(2)], ids=["absolute", "kneser_ney"])
def test_tuning_begins_at_the_end_of_a_range(smoother: Smoother) -> None:
    # No bigram occurs twice: their discount is n1 / (n1 + 2 n2) = 1. Tuned on the text itself it is 0, where each of 16
    # tokens has its relative frequency: a after <s> 3/4, d 1/4, and the others 1.
    text, vocabulary = text_of(["a b c"] * 3 + ["d e f"])
    held_out = Split(text.ids.astype(np.uint8), text.offsets, np.empty(0, int), 0, vocabulary.bos)
    tuned = fit_and_tune(count_ngrams(text, vocabulary, 2), smoother, held_out, Storage())
    assert tuned.after == pytest.approx(np.exp(-(3 * np.log(3 / 4) + np.log(1 / 4)) / 16), rel=1e-6)
    assert tuned.before > 1.5
    assert smoother.values[1, -1] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("stream", [False, True])
def test_held_out_nodes_are_those_of_each_context(stream: bool) -> None:
    text, vocabulary = text_of(random_sentences(5))
    counts = count_ngrams(Text(text.ids[:200], np.append(text.offsets[text.offsets < 200], 200)), vocabulary, 4)
    offsets = text.offsets[[0, -1]] if stream else text.offsets
    other = Split(text.ids, offsets, np.empty(0, int), 0, vocabulary.bos)
    contexts, targets = other.windows(np.arange(other.tokens), 3)
    nodes = counts.trie.find_contexts(contexts, counts.bos, 3)
    orders = list(held_out_nodes(counts, other))
    np.testing.assert_array_equal(orders[0], [np.zeros(other.tokens), targets])
    for k, (context, ngram) in enumerate(orders[1:], start=2):
        known = nodes[:, k - 2] >= 0
        assert known.any() and (k == 2 or not known.all())
        np.testing.assert_array_equal(context, np.where(known, nodes[:, k - 2] - counts.trie.first(k - 1), -1))
        follows = counts.trie.find_followers(nodes[:, k - 2], targets)
        np.testing.assert_array_equal(ngram, np.where(follows >= 0, follows - counts.trie.first(k), -1))

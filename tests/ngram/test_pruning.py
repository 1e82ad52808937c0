"""Cut-offs as KenLM's, and pruning by relative entropy against its definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.pruning.entropy import prune_by_entropy, relative_changes
from lmtool.ngram.query.sums import recompute_backoffs
from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
from lmtool.ngram.smoothers.interpolation import WittenBell
from lmtool.ngram.smoothers.relative_frequencies import GoodTuring
from tests.ngram.plain import Plain, contexts_for, random_sentences, text_of


def test_cutoffs_by_hand() -> None:
    # As test_modified_kneser_ney_by_hand, without bigrams seen once: a c goes, and its 1/6 (0.5 of 3) falls to the
    # unigrams, so that a leaves 1/3 + 1/6 = 1/2. p(b|a) = 1/2 + (1/2) 0.18, p(c|a) = (1/2) 0.18; c </s> goes as well.
    text, vocabulary = text_of(["a b", "a b", "a c"])
    table = estimate(count_ngrams(text, vocabulary, 2), ModifiedKneserNey(2, discounts=[[0.5] * 3] * 2), cutoffs=[0, 1])
    assert table.sizes == [6, 3]
    a, b, c = 0, 1, 2
    found = NgramModel(table, vocabulary).log_prob(np.array([[a], [a]]), np.array([b, c]))
    np.testing.assert_allclose(np.exp(found), [0.59, 0.09], rtol=1e-6)


@pytest.mark.parametrize(
    "smoother",
    [
        ModifiedKneserNey(4),
        ModifiedKneserNey(4, interpolate=False),
        WittenBell(4),
        WittenBell(4, interpolate=False),
        GoodTuring(4, gt_max=7, gt_max_unigram=1),
    ],
    ids=["kn", "kn-backed_off", "wb", "wb-backed_off", "katz"],
)
def test_pruned_distributions_sum_to_one(smoother: ModifiedKneserNey) -> None:
    text, vocabulary = text_of(random_sentences(0, 300))
    counts = count_ngrams(text, vocabulary, 4)
    table = estimate(counts, smoother, cutoffs=[0, 1, 1, 2])
    plain = Plain(text, vocabulary, 4)
    for k, cutoff in ((2, 1), (3, 1), (4, 2)):
        kept = {gram for gram, count in plain.raw[k].items() if count > cutoff}
        words = table.trie.ngrams(k, 0, table.sizes[k - 1])
        assert {tuple(row) for row in words.tolist()} == kept and len(words) == len(kept)
    dist = NgramModel(table, vocabulary).log_dist(contexts_for(text, vocabulary, 4, 1))
    np.testing.assert_allclose(np.exp(dist).sum(axis=1), 1, atol=3e-6)


def test_entropy_of_one_ngram_equals_its_definition() -> None:
    # Remove one trigram, compute the weights again, and take D = sum over words of p(h) p(w|h) log(p(w|h) / p'(w|h)).
    text, vocabulary = text_of(random_sentences(2, 100))
    table = estimate(count_ngrams(text, vocabulary, 3), ModifiedKneserNey(3))
    model = NgramModel(table, vocabulary)
    eos = vocabulary.eos
    grams = table.trie.ngrams(3, 0, table.sizes[2])
    first = table.trie.first(3)
    inner = model.log_prob(np.array([[vocabulary.bos, vocabulary.bos]]), np.array([eos]))  # only to have it called
    assert np.isfinite(inner).all()
    changes = []
    for row in range(0, len(grams), 7):
        h = grams[row, :2]
        log_p_first = table.log_prob[h[0]] if h[0] != vocabulary.bos else table.log_prob[eos]
        bigram = model.log_prob(np.array([[vocabulary.bos, h[0]]])[:, 1:].repeat(2, axis=1), h[1:2])
        if h[0] != vocabulary.bos:  # after h[0] alone, in the middle of a sentence that was never seen
            unk = vocabulary.unk
            bigram = model.log_prob(np.array([[unk, h[0]]]), h[1:2])
        kept = np.ones(sum(table.sizes), dtype=bool)
        kept[first + row] = False
        without = recompute_backoffs(table.select(kept))
        old, new = (of.log_dist(h[None])[0, :-1] for of in (model, NgramModel(without, vocabulary)))  # without <s>
        p = np.exp(old)
        changes.append((np.exp(log_p_first + bigram[0]) * (p * (old - new)).sum(), tuple(grams[row].tolist())))
    changes.sort()
    for place in (len(changes) // 4, len(changes) // 2, -3):
        change, gram = changes[place]
        below, above = np.expm1(change) * 0.99, np.expm1(change) * 1.01
        for threshold, stays in ((below, True), (above, False)):
            # Of the trigrams alone: with shorter ones gone, too, the weights would be others.
            pruned = prune_by_entropy(table, threshold, eos)
            left = {tuple(row) for row in pruned.trie.ngrams(3, 0, pruned.sizes[2]).tolist()}
            assert (gram in left) == stays


def test_the_change_of_perplexity_by_hand() -> None:
    # D = -p(h) change: exp(D) - 1 of D = 0.5 is 0.6487; of D = 1e-17 it is 1e-17, which 1 + 1e-17 - 1 is not.
    log_h = np.log([0.25, 0.25, 0.5, 0.5])
    change = np.array([-2.0, -2.0, -2e-17, -2e-17])
    for threshold, want in ((0.6, [1, 1, 0, 0]), (0.6487, [1, 1, 0, 0]), (0.6488, [0] * 4), (1.01e-17, [1, 1, 0, 0])):
        assert (relative_changes(change, log_h) >= threshold).tolist() == [bool(w) for w in want]
    assert (relative_changes(change, log_h) >= 0.99e-17).tolist() == [True] * 4
    # At the threshold it stays; what cannot be compared goes.
    assert (relative_changes(np.array([0.0, np.nan]), np.zeros(2)) >= 0.0).tolist() == [True, False]


def test_entropy_pruned_distributions_sum_to_one() -> None:
    text, vocabulary = text_of(random_sentences(2, 300))
    table = estimate(count_ngrams(text, vocabulary, 4), ModifiedKneserNey(4))
    contexts = contexts_for(text, vocabulary, 4, 1)
    sizes = [table.sizes]
    for threshold in (1e-7, 1e-4, 1e-2):
        pruned = prune_by_entropy(table, threshold, vocabulary.eos)
        assert not pruned.suffix_closed
        dist = NgramModel(pruned, vocabulary).log_dist(contexts)
        np.testing.assert_allclose(np.exp(dist).sum(axis=1), 1, atol=3e-6)
        sizes.append(pruned.sizes)
    assert all((np.diff(column) <= 0).all() for column in zip(*sizes, strict=True))
    assert sum(sizes[-1]) < sum(sizes[0]) / 2


def test_weights_set_again_are_the_same() -> None:
    text, vocabulary = text_of(random_sentences(2, 100))
    table = estimate(count_ngrams(text, vocabulary, 3), WittenBell(3, interpolate=False))
    again = recompute_backoffs(replace(table, suffix_closed=False))
    np.testing.assert_allclose(again.log_backoff, table.log_backoff, atol=2e-5)
    assert (np.diff(table.trie.contexts(3)) >= 0).all()

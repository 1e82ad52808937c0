"""Merged counts of several sources: the formula by hand and over dictionaries, sums, gradients, tuning."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lmtool.data.split import Split
from lmtool.data.vocabulary import Vocabulary
from lmtool.ngram.counting.counts import Counts, SourceCounts, count_ngrams, count_sources
from lmtool.ngram.estimation._merging import loss_and_gradient
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.estimation.tuning import fit_and_tune, held_out_nodes
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.smoothers.count_merging import MergingSmoother
from lmtool.ngram.tables.storage import Storage
from lmtool.system.arrays import FloatArray
from tests.ngram.plain import contexts_for, random_sentences, rows_of, text_of

NONE = np.empty(0, dtype=np.int64)


def split_of(sentences: list[str]) -> tuple[Split, Vocabulary]:
    text, vocabulary = text_of(sentences)
    return Split(text.ids, text.offsets, NONE, 0, vocabulary.bos), vocabulary


def counted(*sources: list[str], order: int) -> tuple[Counts, Split, Vocabulary]:
    """Counts with those of each source, s1, s2, ..."""
    text, vocabulary = split_of([sentence for source in sources for sentence in source])
    ends = np.cumsum([0, *(sum(len(sentence.split()) + 1 for sentence in source) for source in sources)]).tolist()
    ranges = {f"s{k}": (ends[k - 1], ends[k]) for k in range(1, len(ends))}
    counts = count_ngrams(text, vocabulary, order)
    return replace(counts, sources=count_sources(counts, text, ranges)), text, vocabulary


def smoother_of(values: list[list[float]] | FloatArray, weights: list[float]) -> MergingSmoother:
    smoother = MergingSmoother(len(values))
    smoother.values, smoother.weights = np.array(values, dtype=np.float64), np.array(weights)
    return smoother


VALUES = [[0.5, 0.25, 0.1, 0.0], [0.8, 0.4, 0.2, 0.1], [0.9, 0.6, 0.3, 0.15]]


def test_two_sources_by_hand() -> None:
    # Weights 3/4 and 1/4. Bigrams: off(<s> a) = 0.8 (3/4) + 0.4 (1/4) = 0.7, off(a b) = off(b </s>) = 0.6,
    # off(a c) = off(c </s>) = 0.2. Unigrams: a 0.7, b 0.6, c 0.2, </s> 0.6 + 0.2, together 2.3; off 0.35, 0.3, 0.1,
    # 0.3 + 0.05.
    counts, _, vocabulary = counted(["a b"], ["a c"], order=2)
    table = estimate(counts, smoother_of(VALUES[:2], [0.75, 0.25]))
    p = np.exp(NgramModel(table, vocabulary).log_dist(np.array([[0], [1]])))
    a, b, c, end, unknown = np.array([0.57, 0.52, 0.32, 0.67, 0.22]) / 2.3
    np.testing.assert_allclose(np.exp(table.log_prob[:5]), [a, b, c, end, unknown], rtol=1e-6)
    # After a: 1 together, 0.8 left. After b: 0.75 together, 0.6 left.
    np.testing.assert_allclose(p[0, :5], [0.8 * a, 0.15 + 0.8 * b, 0.05 + 0.8 * c, 0.8 * end, 0.8 * unknown], rtol=1e-6)
    np.testing.assert_allclose(p[1, [0, 3]], [0.8 * a, 0.2 + 0.8 * end], rtol=1e-6)


def plain_probabilities(sources: list[list[str]], values: list[list[float]], weights: list[float], n: int) -> dict:
    """p(w|h) of every n-gram, by tuples, as the docstring of the smoother has it."""
    text, vocabulary = text_of([sentence for source in sources for sentence in source])
    rows, found = rows_of(text), [defaultdict(list) for _ in range(n + 1)]  # the contributions of each n-gram
    for source, weight in zip(sources, weights, strict=True):
        for row in [rows.pop(0) for _ in source]:
            padded = [vocabulary.bos, *row]
            for end in range(2, len(padded) + 1):
                gram = tuple(padded[max(end - n, 0) : end])
                found[len(gram)][gram].append(weight)
    mass: dict = defaultdict(lambda: defaultdict(float))
    off: dict = defaultdict(lambda: defaultdict(float))
    for k in range(n, 0, -1):
        for gram, parts in found[k].items():
            top = sorted(parts, reverse=True)
            shares = [*values[k - 1][:3], *([values[k - 1][3]] * len(top))]
            taken = sum(share * x for share, x in zip(shares, top, strict=False))
            mass[gram[:-1]][gram[-1]], off[gram[:-1]][gram[-1]] = sum(top), taken
            if k > 1:
                found[k - 1][gram[1:]].append(taken)

    def p(word: int, context: tuple[int, ...]) -> float:
        lower = p(word, context[1:]) if context else 1 / (len(vocabulary) - 1)
        if context not in mass:
            return lower
        total = sum(mass[context].values())
        own = mass[context][word] - off[context][word] if word in mass[context] else 0.0
        return (own + sum(off[context].values()) * lower) / total

    return {(*h, w): p(w, h) for h in list(mass) for w in list(mass[h])}


SOURCES = [random_sentences(1), random_sentences(2, 30), random_sentences(3, 10)]
WEIGHTS = [0.211, 0.303, 0.486]  # no two contributions are equal by chance, where there is no derivative


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_formula_over_dictionaries(order: int) -> None:
    counts, text, vocabulary = counted(*SOURCES, order=order)
    table = estimate(counts, smoother_of(VALUES[:order], WEIGHTS))
    expected = plain_probabilities(SOURCES, VALUES, WEIGHTS, order)
    for k in range(1, order + 1):
        grams = [gram for gram in expected if len(gram) == k]
        nodes = table.trie.find(np.array(grams))
        assert (nodes >= 0).all()
        assert len(grams) == table.sizes[k - 1] - (2 if k == 1 else 0)  # <s> and <unk> are not in the text
        log_prob = table.log_prob[:][nodes]
        np.testing.assert_allclose(np.exp(log_prob), [expected[gram] for gram in grams], rtol=1e-5)
    contexts = contexts_for(text, vocabulary, order, 0)
    model = NgramModel(table, vocabulary)
    np.testing.assert_allclose(np.exp(model.log_dist(contexts)).sum(axis=1), 1.0, atol=1e-6)


def test_sums_are_one_with_pruning_and_with_a_source_of_weight_0() -> None:
    counts, text, vocabulary = counted(*SOURCES, order=3)
    contexts = contexts_for(text, vocabulary, 3, 0)
    for weights, cutoffs in ((WEIGHTS, [0, 0, 1]), (WEIGHTS, [0, 1, 2]), ([0.0, 0.5, 0.5], None)):
        table = estimate(counts, smoother_of(VALUES, weights), cutoffs=cutoffs)
        assert np.exp(NgramModel(table, vocabulary).log_dist(contexts)).sum(axis=1) == pytest.approx(1.0, abs=1e-6)
        for k in range(2, 4):
            above = (counts.count[k - 1][:] > (cutoffs[k - 1] if cutoffs else 0)).sum()
            assert table.sizes[k - 1] == above


def test_equal_weights_are_the_text_as_one_source() -> None:
    counts, _, _ = counted(*SOURCES, order=3)
    assert counts.sources is not None and counts.sources.names == ["s1", "s2", "s3"]
    one = SourceCounts.of_one(counts)
    for together, apart in zip(one.entries, counts.sources.entries, strict=True):
        added = np.bincount(apart.ngram, apart.occurrences, together.ngram.max(initial=-1) + 1)
        np.testing.assert_array_equal(added[together.ngram], together.occurrences)
        assert apart.occurrences.sum() == together.occurrences.sum()
    tables = [estimate(replace(counts, sources=sources), MergingSmoother(3)) for sources in (counts.sources, None)]
    total = sum(tables[0].sizes)
    np.testing.assert_allclose(tables[0].log_prob[:total], tables[1].log_prob[:total], rtol=1e-5)


def mean_loss(p: Any) -> tuple[float, Any]:
    return -float(np.log(p).mean()), -1 / p / len(p)


def test_gradients_are_those_of_differences() -> None:
    counts, text, vocabulary = counted(*SOURCES, order=3)
    assert counts.sources is not None
    backwards = Split(text.ids[::-1].copy(), np.array([0, text.tokens]), NONE, 0, vocabulary.bos)
    held_out = list(held_out_nodes(counts, backwards))
    weights, values = np.array(WEIGHTS), np.array(VALUES)
    _, by_weight, by_value = loss_and_gradient(counts, counts.sources, held_out, 14, weights, values, mean_loss)

    def loss() -> float:
        assert counts.sources is not None
        return loss_and_gradient(counts, counts.sources, held_out, 14, weights, values, mean_loss)[0]

    for array, gradient in ((weights, by_weight), (values, by_value)):
        for index in np.ndindex(array.shape):
            value, step = array[index], 1e-6
            ends = []
            for array[index] in (value - step, value + step):
                ends.append(loss())
            array[index] = value
            assert gradient[index] == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-5, abs=1e-8)
    assert np.abs(by_weight).min() > 1e-4 and (by_value != 0).all()


def test_tuning_finds_the_source_and_the_best() -> None:
    counts, _, vocabulary = counted(*SOURCES, order=3)
    like_third = [sentence for sentence in random_sentences(4, 40) for _ in range(2)] + random_sentences(3, 10) * 9
    words = [vocabulary.encode(sentence.split()) for sentence in like_third]
    assert vocabulary.eos is not None
    rows = [np.append(row[row != vocabulary.unk], vocabulary.eos) for row in words]
    held_out = Split(np.concatenate(rows), np.cumsum([0, *map(len, rows)]), NONE, 0, vocabulary.bos)

    def perplexity(smoother: MergingSmoother) -> float:
        model = NgramModel(estimate(counts, smoother, fit=False), vocabulary)
        return float(np.exp(-model.log_prob_text(held_out.ids, held_out.offsets).mean()))

    smoother = MergingSmoother(3)
    before = perplexity(smoother)
    tuned = fit_and_tune(counts, smoother, held_out, Storage())
    assert smoother.weights is not None
    best, weights, values = perplexity(smoother), smoother.weights, smoother.values
    assert tuned.before == pytest.approx(before, rel=1e-5) and tuned.after == pytest.approx(best, rel=1e-5)
    assert best < 0.9 * before and weights[2] == weights.max() and weights.sum() == pytest.approx(1)
    low, high = np.array([*smoother.bounds.values()]).T
    for step in (-0.05, 0.05):
        for index in np.ndindex(values.shape):
            moved = values.copy()
            moved[index] = np.clip(moved[index] + step, low[index[1]], high[index[1]])
            assert perplexity(smoother_of(moved, weights)) > best * (1 - 1e-5)
        for k in range(3):
            other = weights * np.exp(step * (np.arange(3) == k))
            assert perplexity(smoother_of(values, other / other.sum())) > best * (1 - 1e-5)

"""Pitman-Yor smoothing: by hand, against its formula over dictionaries, as Kneser-Ney, tuned."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from lmtool.data.corpus import Corpus
from lmtool.evaluation.metrics import perplexity
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.estimation.tuning import fit_and_tune
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.smoothers.absolute_discounting import KneserNey
from lmtool.ngram.smoothers.pitman_yor import PitmanYor, Tables
from lmtool.ngram.tables.storage import Storage
from tests.ngram.plain import Plain, contexts_for, interpolated, random_sentences, text_of

FLOAT32 = 3e-7
SENTENCES = ["a b", "a b", "a c"]  # a, b, c, </s> have the ids 0 to 3, <unk> 4


def model_of(sentences: list[str], n: int, smoother: PitmanYor) -> NgramModel:
    text, vocabulary = text_of(sentences)
    return NgramModel(estimate(count_ngrams(text, vocabulary, n), smoother), vocabulary)


def test_by_hand() -> None:
    # Words before: a 1, b 1, c 1, </s> 2; 5 customers, 4 types. With strength 1 and discount 1/2, (1 + 4/2) / (1 + 5) =
    # 1/2 is shared by five words, .1 each: p(a) = .5/6 + .1 = 11/60, p(</s>) = 1.5/6 + .1 = .35.
    model = model_of(SENTENCES, 2, PitmanYor(2, strengths=[1.0, 1.0], discounts=[0.5, 0.5]))
    unigrams, after_a = np.exp(model.log_dist(np.array([[4], [0]])))[:, :5]
    np.testing.assert_allclose(unigrams, [11 / 60, 11 / 60, 11 / 60, 0.35, 0.1], rtol=FLOAT32)
    # After a, b twice and c once: (1 + 2/2) / (1 + 3) = 1/2 is left, b has 1.5/4 + 11/120, c .5/4 + 11/120.
    np.testing.assert_allclose(after_a, [11 / 120, 7 / 15, 13 / 60, 0.175, 0.05], rtol=FLOAT32)


def test_expected_tables_by_hand() -> None:
    # 2 of 5 bigrams occur once and 2 twice: D = 2 / (2 + 4) = 1/3. t(1) = 1, t(2) = 1 + D = 4/3, t(3) = (1 + D) (2 + D)
    # / 2 = 14/9. Customers of a (3 tables after <s>), b, c, </s>: 14/9, 4/3, 1, 4/3 + 1; together 56/9.
    counts = count_ngrams(*text_of(SENTENCES), 2)
    unigrams, bigrams = PitmanYor(2, tables=Tables.expected).tables(counts)
    np.testing.assert_allclose(unigrams[:, 0], [14 / 9, 4 / 3, 1, 7 / 3, 0, 0])
    by_words = {tuple(gram): row for gram, row in zip(counts.trie.ngrams(2, 0, 5).tolist(), bigrams, strict=True)}
    assert by_words[(5, 0)] == pytest.approx([3, 14 / 9]) and by_words[(0, 2)] == pytest.approx([1, 1])
    # p(b|a) with strengths 0 and discounts 1/2: (2 - 2/3) / 3 + (1/2) (4/3 + 1) / 3 p(b); p(b) with 3 words seen by
    # fewer than 2 customers and 1 by 2: D = 3/5, t(4/3) = gamma(29/15) / (gamma(4/3) gamma(8/5)).
    model = model_of(SENTENCES, 2, PitmanYor(2, discounts=[0.5, 0.5], tables=Tables.expected))
    t = [math.gamma(c + 0.6) / math.gamma(c) / math.gamma(1.6) for c in (14 / 9, 4 / 3, 1, 7 / 3)]
    p_b = (4 / 3 - t[1] / 2 + sum(t) / 2 / 5) / (56 / 9)
    p = np.exp(model.log_dist(np.array([[0]])))[0, 1]
    assert p == pytest.approx(4 / 9 + 7 / 18 * p_b, rel=FLOAT32)


def plain_tables(plain: Plain, seating: list[float], tables: Tables) -> tuple[list[Counter], list[Counter]]:
    """Customers and tables of each n-gram, by tuples, for the discounts of the seating of each order."""
    customers, found = plain.occurrences(), [Counter() for _ in range(plain.n + 1)]
    for k in range(plain.n, 0, -1):
        if k < plain.n:
            for gram in [gram for gram in customers[k] if gram[0] != plain.bos]:
                customers[k][gram] = sum(t for longer, t in found[k + 1].items() if longer[1:] == gram)
        for gram, c in customers[k].items():
            d = seating[k - 1]
            expected = math.exp(math.lgamma(c + d) - math.lgamma(c) - math.lgamma(1 + d))
            found[k][gram] = 1 if tables is Tables.one else expected
    return customers, found


@pytest.mark.parametrize("tables", Tables)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_equals_the_plain_form_and_sums_to_one(tables: Tables, n: int) -> None:
    text, vocabulary = text_of(random_sentences(n))
    strengths, discounts = [2.5, 0.0, 1.25, 0.5][:n], [0.4, 0.7, 0.8, 0.9][:n]
    smoother, plain = PitmanYor(n, strengths=strengths, discounts=discounts, tables=tables), Plain(text, vocabulary, n)
    model = NgramModel(estimate(count_ngrams(text, vocabulary, n), smoother), vocabulary)
    assert (len(smoother.seating) == n) == (tables is Tables.expected)
    customers, seated = plain_tables(plain, [smoother.seating.get(k, 0) for k in range(1, n + 1)], tables)
    pairs = [
        Counter({gram: complex(c, seated[k][gram]) for gram, c in customers[k].items()}) for k in range(1, n + 1)
    ]  # c + t i

    class Pair(complex):
        def __gt__(self, other: float) -> bool:  # as `interpolated` asks
            return self.real > other

    a = [Counter(), *(Counter({gram: Pair(pair) for gram, pair in order.items()}) for order in pairs)]
    p = interpolated(
        a,
        lambda pair, h, k: (pair.real - discounts[k - 1] * pair.imag) / (strengths[k - 1] + sum(h).real),
        lambda h, k: (strengths[k - 1] + discounts[k - 1] * sum(h).imag) / (strengths[k - 1] + sum(h).real),
        plain.types,
    )
    contexts = contexts_for(text, vocabulary, n, seed=n)
    dist = np.exp(model.log_dist(contexts))
    np.testing.assert_allclose(dist.sum(axis=1), 1, atol=3e-6)
    want = [[p(w, plain.seen_by(vocabulary, context)) for w in range(plain.types)] for context in contexts.tolist()]
    np.testing.assert_allclose(dist[:, :-1], want, rtol=3e-6)


def test_is_kneser_ney_at_strength_0() -> None:
    counts = count_ngrams(*text_of(random_sentences(3)), 3)
    first, second = estimate(counts, KneserNey(3)), estimate(counts, PitmanYor(3))
    assert np.array_equal(first.log_prob, second.log_prob) and np.array_equal(first.log_backoff, second.log_backoff)
    assert first.unseen == second.unseen and first.notes == second.notes


@pytest.mark.parametrize("tables", Tables)
def test_tuning(tables: Tables, toy: Corpus) -> None:
    counts, valid = count_ngrams(toy.split("train"), toy.vocabulary, 3), toy.split("valid")
    smoother = PitmanYor(3, tables=tables)
    tuned = fit_and_tune(counts, smoother, valid, Storage())
    assert tuned.after < tuned.before and (smoother.values >= 0).all()

    def of_model(smoother: PitmanYor) -> float:
        return perplexity(NgramModel(estimate(counts, smoother, fit=False), toy.vocabulary).score_text(valid))

    best = smoother.values.copy()
    assert of_model(smoother) == pytest.approx(tuned.after, rel=1e-6)
    for step in (-0.02, 0.02):
        for index in np.ndindex(best.shape):
            smoother.values = best.copy()
            smoother.values[index] = max(best[index] * (1 + step), 0.0)
            assert of_model(smoother) > tuned.after * (1 - 1e-5)
    if tables is Tables.one:
        assert tuned.after < fit_and_tune(counts, KneserNey(3), valid, Storage()).after

"""Cut-offs as KenLM's, pruning by relative entropy and to a size by expected gain, by hand and against plain loops."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from lmtool.errors import UserError
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import Selection, estimate
from lmtool.ngram.estimation.formulas import adjusted_counts
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.pruning import gain as gain_pruning
from lmtool.ngram.pruning.entropy import largest_within, prune_by_entropy, prune_to_size_by_entropy, relative_changes
from lmtool.ngram.pruning.gain import BINS, ExpectedCounts, bins_of, histogram, prune_to_size_by_gain
from lmtool.ngram.query.sums import recompute_backoffs
from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
from lmtool.ngram.smoothers.base import Counting, Smoother
from lmtool.ngram.smoothers.interpolation import WittenBell
from lmtool.ngram.smoothers.relative_frequencies import GoodTuring
from lmtool.ngram.tables.storage import Storage
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
            pruned = prune_by_entropy(table, threshold, vocabulary)
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
        pruned = prune_by_entropy(table, threshold, vocabulary)
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


def test_expected_counts_by_hand() -> None:
    # Bin 0 has 80 n-grams seen once and 10 seen twice, bin 1 has 20 and 30; none was seen more often. Of all, 40/100:
    # bin 0: r*(1) = 2 (10 + 0.4 20) / (80 + 20) = 0.36; bin 1: 2 (30 + 8) / (20 + 20) = 1.9, at most 1;
    # r*(2) = 3 (0 + 0) / ... = 0, at least 2 - 1.5; r = 5 loses 1.5, as r = 4 does where nothing says otherwise.
    n = np.zeros((6, 2), dtype=np.int64)
    n[1], n[2] = [80, 20], [10, 30]
    found = ExpectedCounts.of(n).expected(np.array([0, 1, 1, 2, 5]), np.array([1, 0, 1, 0, 1]))
    np.testing.assert_allclose(found, [0, 0.36, 1.0, 0.5, 3.5], rtol=1e-12)


def test_bins_are_powers_of_two() -> None:
    found = bins_of(np.array([0.0, 2.0**-40, 0.25, 0.26, 0.5, 1.0, 1e9]))
    assert found.tolist() == [0, 0, 30, 30, 31, 32, BINS - 1]
    n = histogram(np.array([1, 1, 2, 7, 5]), np.array([3, 3, 0, 1, 47]))
    assert n.sum() == 4 and n[1, 3] == 2 and n[2, 0] == 1 and n[5, 47] == 1  # 7 is more than is counted
    assert histogram(np.array([1, 2, 2]), None)[:, 0].tolist() == [0, 1, 2, 0, 0, 0]


def test_revised_counts_by_hand() -> None:
    # "a c" twice, "b c" once, "c c" once: c follows three words. Without "a c" it has 2 + 1 + 1; without "b c" 3 still.
    text, vocabulary = text_of(["a c", "a c", "b c c"])
    counts = count_ngrams(text, vocabulary, 2)
    grams = [tuple(row) for row in counts.trie.ngrams(2, 0, counts.trie.sizes[1]).tolist()]
    a, b, c = vocabulary.encode(list("abc"))
    above = counts.count[1]
    for left_out, expected in (((a, c), 4), ((b, c), 3), (None, 3)):
        kept = np.array([gram != left_out for gram in grams])
        found = adjusted_counts(counts, 1, Counting.continuations, Storage(), above=above, mask=kept)[:]
        assert found[c] == expected and found[vocabulary.bos] == 0
        if left_out is None:
            plain = adjusted_counts(counts, 1, Counting.continuations, Storage())[:]
            assert found.tolist() == plain.tolist()


def test_gains_by_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    text, vocabulary = text_of(random_sentences(4, 400))
    counts = count_ngrams(text, vocabulary, 3)
    smoother = ModifiedKneserNey(3)
    table = estimate(counts, smoother)
    pruning = gain_pruning._Pruning(counts, smoother, table, Storage())
    found = pruning.gains[3]
    trie, a = counts.trie, counts.count[2][:]
    grams = trie.ngrams(3, 0, trie.sizes[2])
    total, kinds = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for gram, count in zip(grams.tolist(), a.tolist(), strict=True):
        total[tuple(gram[:2])] += count
        kinds[tuple([*gram[:2], min(count, 3)])] += 1
    d = smoother.values[2]
    lower = np.exp(table.log_prob[: trie.first(3)][trie.find(grams[:, 1:])].astype(np.float64))
    once, twice, context_totals = Counter[int](), Counter[int](), Counter(total.values())
    where = [math.floor(math.log2(total[tuple(g[:2])] * p)) for g, p in zip(grams.tolist(), lower, strict=True)]
    for bin_, count in zip(where, a.tolist(), strict=True):
        once[bin_] += count == 1
        twice[bin_] += count == 2
    ratio = sum(twice.values()) / sum(once.values())
    checked = 0
    for row, gram in enumerate(grams.tolist()):
        h = tuple(gram[:2])
        if a[row] != 1 or total[h] > 3:
            continue
        share = (1 - d[1]) / total[h]
        weight = sum(d[r] * kinds[(*h, r)] for r in (1, 2, 3)) / total[h]
        p, without = share + weight * lower[row], (weight + share) * lower[row]
        star = min(2 * (twice[where[row]] + 20 * ratio) / (once[where[row]] + 20), 1.0)
        s = total[h]
        visits = min(max((s + 1) * context_totals[s + 1] / context_totals[s], s - 1.5), s)
        gain = star * math.log(p / without) - visits * (p - without)
        assert found[row] == pytest.approx(gain / len(text.ids), rel=2e-4, abs=1e-9)
        checked += 1
    assert checked > 50


@pytest.mark.parametrize("smoother", [ModifiedKneserNey(4), WittenBell(4)], ids=["kn", "wb"])
def test_a_size_is_kept_and_distributions_sum_to_one(smoother: Smoother) -> None:
    text, vocabulary = text_of(random_sentences(0, 300))
    counts = count_ngrams(text, vocabulary, 4)
    table = estimate(counts, smoother)
    total, contexts = sum(table.sizes), contexts_for(text, vocabulary, 4, 1)
    before = -1.0
    for share in (0.9, 0.4, 0.2, 0.1):
        size = int(share * total)
        pruned, threshold = prune_to_size_by_gain(counts, smoother, table, size)
        assert sum(pruned.sizes) <= size and threshold > before
        assert sum(pruned.sizes) > 0.9 * size or threshold == 0  # what is expected to lose never stays
        assert pruned.sizes[0] == table.sizes[0] and not pruned.suffix_closed
        dist = NgramModel(pruned, vocabulary).log_dist(contexts)
        np.testing.assert_allclose(np.exp(dist).sum(axis=1), 1, atol=3e-6)
        before = threshold


def test_all_that_stays_is_the_model_itself() -> None:
    text, vocabulary = text_of(random_sentences(3, 100))
    counts = count_ngrams(text, vocabulary, 3)
    smoother = ModifiedKneserNey(3)
    table = estimate(counts, smoother)
    pruning = gain_pruning._Pruning(counts, smoother, table, Storage())
    everything = pruning.select(-math.inf)
    assert everything.size == sum(table.sizes)
    again = estimate(counts, smoother, selection=everything, fit=False)
    np.testing.assert_array_equal(again.log_prob, table.log_prob)
    np.testing.assert_array_equal(again.log_backoff, table.log_backoff)


def test_what_is_left_out_backs_off_to_its_revised_counts() -> None:
    # Of "a b" x2, "a c", D = 1/2 throughout, everything but the 1-grams goes: continuation counts are b 2, c 1,
    # </s> 2 + 1 (b </s> seen twice, c </s> once), a 3 (from <s>), 9 in all; p(b) = 1.5/9 + (2/9) / 5, 5 words can come.
    text, vocabulary = text_of(["a b", "a b", "a c"])
    counts = count_ngrams(text, vocabulary, 2)
    smoother = ModifiedKneserNey(2, discounts=[[0.5] * 3] * 2)
    table = estimate(counts, smoother)
    pruned, _ = prune_to_size_by_gain(counts, smoother, table, table.sizes[0])
    assert pruned.sizes == [6, 0]
    a, b = vocabulary.encode(list("ab"))
    found = NgramModel(pruned, vocabulary).log_prob(np.array([[a]]), np.array([b]))
    np.testing.assert_allclose(np.exp(found), [1.5 / 9 + (2 / 9) / 5], rtol=1e-6)


def test_a_smoother_that_backs_off_is_refused() -> None:
    text, vocabulary = text_of(["a b", "a c"])
    counts, smoother = count_ngrams(text, vocabulary, 2), WittenBell(2, interpolate=False)
    with pytest.raises(UserError, match="prune_method=entropy"):
        prune_to_size_by_gain(counts, smoother, estimate(counts, smoother), 6)


def test_the_size_by_entropy_is_that_of_its_threshold() -> None:
    text, vocabulary = text_of(random_sentences(2, 200))
    table = estimate(count_ngrams(text, vocabulary, 3), ModifiedKneserNey(3))
    size = sum(table.sizes) // 2
    pruned, threshold = prune_to_size_by_entropy(table, size, vocabulary)
    assert 0.95 * size < sum(pruned.sizes) <= size
    same = prune_by_entropy(table, threshold, vocabulary)
    np.testing.assert_array_equal(same.log_prob, pruned.log_prob)


def test_the_search_finds_a_size() -> None:
    values = np.array([0.0, 1e-20, 1e-12, 3e-7, 4e-7, 0.5, 2.0, 2.0, 70.0, 900.0])

    def at(threshold: float) -> Selection:
        return Selection(values >= threshold, [])

    for size in range(1, 11):
        threshold, found = largest_within(size, at)
        fits = [n for n in range(size + 1) if n not in (3,)]  # two values are equal: 3 cannot be had
        assert found.size == max(fits) and at(threshold).size == found.size
    assert largest_within(10, at)[0] == 0.0


@pytest.mark.parametrize("threshold", [None, 1e-3])
def test_suffixes_are_those_of_a_search_from_the_first_word(threshold: float | None) -> None:
    text, vocabulary = text_of(random_sentences(5, 100))
    table = estimate(count_ngrams(text, vocabulary, 4), WittenBell(4))
    if threshold is not None:
        table = prune_by_entropy(table, threshold, vocabulary)
    found = table.trie.suffixes()
    for k in range(2, 5):
        grams = table.trie.ngrams(k, 0, table.sizes[k - 1])
        np.testing.assert_array_equal(found[k - 2], table.trie.find(grams[:, 1:]))
    assert (threshold is None) == all((nodes >= 0).all() for nodes in found)


def test_back_off_weights_by_suffixes_are_those_by_scoring() -> None:
    text, vocabulary = text_of(random_sentences(6, 100))
    table = estimate(count_ngrams(text, vocabulary, 4), WittenBell(4))
    fast = recompute_backoffs(table)
    slow = recompute_backoffs(replace(table, suffix_closed=False))
    np.testing.assert_array_equal(fast.log_backoff, slow.log_backoff)

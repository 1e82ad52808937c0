"""Distillation: the probabilities of one model in the n-grams of another."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.distillation import ExpectedProbabilities, LikelyNgrams, most_likely
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
from lmtool.ngram.smoothers.interpolation import WittenBell
from lmtool.runs.corpus import open_run_corpus
from lmtool.runs.run import Run
from lmtool.system import parallel
from tests.ngram.plain import Text, contexts_for, random_sentences, rows_of, text_of

Lmtool = Callable[..., str]


def contexts_of(text: Text, bos: int, size: int) -> np.ndarray:
    """Return the `size` words before each predicted token, `[N, size]`."""
    padded = [[bos] * size + row for row in rows_of(text)]
    return np.array([row[i : i + size] for row in padded for i in range(len(row) - size)])


def test_each_ngram_has_the_mean_over_its_contexts() -> None:
    text, vocabulary = text_of(random_sentences(3, 80))
    other = text_of(random_sentences(4, 80))[0]  # not all contexts of the table are in this text
    teacher = NgramModel(estimate(count_ngrams(text, vocabulary, 4), WittenBell(4)), vocabulary)
    table = estimate(count_ngrams(text, vocabulary, 3), ModifiedKneserNey(3))
    expected = ExpectedProbabilities(table)
    far, near = (contexts_of(other, vocabulary.bos, size) for size in (3, 2))
    log_p = teacher.log_dist(far)
    p = np.exp(log_p)
    for first in range(0, len(far), 50):  # in pieces
        expected.add(near[first : first + 50], p[first : first + 50])
    distilled = expected.distill()
    means = defaultdict[tuple[int, ...], list[np.ndarray]](list)
    for row, dist in zip(near.tolist(), p, strict=True):
        for size in (1, 2):
            tail = tuple(row[2 - size :])
            if tail.count(vocabulary.bos) < 2:  # a sentence has one <s>
                means[tail].append(dist)
    unmet = 0
    for k in range(1, 4):
        nodes = slice(table.trie.first(k), table.trie.first(k + 1))
        grams = table.trie.ngrams(k, 0, table.sizes[k - 1]).tolist()
        rows = zip(grams, distilled.log_prob[nodes].tolist(), table.log_prob[nodes].tolist(), strict=True)
        for gram, found, before in rows:
            *h, word = gram
            if k == 1:
                assert found == before
            elif tuple(h) in means:
                assert found == pytest.approx(np.log(np.mean([dist[word] for dist in means[tuple(h)]])), abs=1e-5)
            else:
                unmet += 1
                assert found == before
    assert unmet
    model = NgramModel(distilled, vocabulary)
    dist = model.log_dist(contexts_for(text, vocabulary, 3, 1))
    np.testing.assert_allclose(np.exp(dist).sum(axis=1), 1, atol=3e-6)


def test_sums_do_not_depend_on_the_threads() -> None:
    text, vocabulary = text_of(random_sentences(3, 80))
    table = estimate(count_ngrams(text, vocabulary, 3), ModifiedKneserNey(3))
    contexts = contexts_of(text, vocabulary.bos, 2)
    p = np.random.default_rng(0).random((len(contexts), len(vocabulary)), dtype=np.float32)
    sums = []
    threads = parallel.threads()
    try:
        for count in (1, 2, 7):
            parallel.use(count)
            expected = ExpectedProbabilities(table)
            expected.add(contexts, p)
            expected.add(contexts[:1], p[:1])  # fewer places than threads
            expected.add(contexts[:0], p[:0])
            sums.append((expected.sums, expected.places))
    finally:
        parallel.use(threads)
    for of_threads in sums[1:]:
        for array, alone in zip(of_threads, sums[0], strict=True):
            np.testing.assert_array_equal(array, alone)
    assert sums[0][1][: len(vocabulary)].sum() == len(contexts) + 1


def test_words_alone_keep_their_probabilities() -> None:
    text, vocabulary = text_of(random_sentences(3, 80))
    table = estimate(count_ngrams(text, vocabulary, 1), ModifiedKneserNey(1))
    expected = ExpectedProbabilities(table)
    expected.add(np.zeros((4, 0), dtype=np.int64), np.full((4, len(vocabulary)), 0.5))
    np.testing.assert_array_equal(expected.distill().log_prob, table.log_prob)


def test_most_likely_words() -> None:
    p = np.array([[0.1, 0.4, 0.0, 0.2, 0.3], [0.0, 0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    for kind in (np.float32, np.float64):
        words = np.sort(most_likely(p.astype(kind), 3), axis=1)
        assert words.tolist() == [[1, 3, 4], [-1, -1, 3], [-1, -1, -1]]
    assert most_likely(p, 5).shape == (3, 5) and most_likely(p[:0], 2).shape == (0, 2)
    many = np.random.default_rng(0).random((20, 1000))  # several blocks; a slice, as padded rows are
    words = np.sort(most_likely(many[:, :900], 33), axis=1)
    np.testing.assert_array_equal(words, np.sort(np.argsort(-many[:, :900])[:, :33], axis=1))


def test_likely_words_make_ngrams() -> None:
    text, vocabulary = text_of(random_sentences(3, 80))
    teacher = NgramModel(estimate(count_ngrams(text, vocabulary, 4), WittenBell(4)), vocabulary)
    table = estimate(count_ngrams(text, vocabulary, 3), ModifiedKneserNey(3))
    far, near = (contexts_of(text, vocabulary.bos, size) for size in (3, 2))
    log_p = teacher.log_dist(far)
    gathered = LikelyNgrams(table, 2)
    for first in range(0, len(far), 50):
        gathered.add(near[first : first + 50], np.exp(log_p[first : first + 50]))
    extended = gathered.extend_table()
    want = {k: {tuple(row) for row in table.trie.ngrams(k, 0, table.sizes[k - 1]).tolist()} for k in (1, 2, 3)}
    before = {k: set(grams) for k, grams in want.items()}
    for row, dist in zip(near.tolist(), log_p, strict=True):
        best = np.argsort(-dist)[:2].tolist()
        for size in (1, 2):
            h = tuple(row[2 - size :])
            if h in want[size] and h in before[size]:
                want[size + 1] |= {(*h, word) for word in best}
    for k in (1, 2, 3):
        grams = [tuple(row) for row in extended.trie.ngrams(k, 0, extended.sizes[k - 1]).tolist()]
        assert set(grams) == want[k] and len(grams) == len(want[k])
        nodes = slice(extended.trie.first(k), extended.trie.first(k + 1))
        own = [gram in before[k] for gram in grams]
        kept = table.log_prob[table.trie.first(k) : table.trie.first(k + 1)]
        np.testing.assert_array_equal(extended.log_prob[nodes][own], kept)
    assert len(want[3]) > len(before[3])
    expected = ExpectedProbabilities(extended)
    expected.add(near, np.exp(log_p))
    distilled = expected.distill()
    assert np.isfinite(np.delete(distilled.log_prob, vocabulary.bos)).all()  # each new n-gram was met
    dist = NgramModel(distilled, vocabulary).log_dist(contexts_for(text, vocabulary, 3, 1))
    np.testing.assert_allclose(np.exp(dist).sum(axis=1), 1, atol=3e-6)


def test_a_network_becomes_an_ngram_run(runs: Path, lmtool: Lmtool) -> None:
    said = lmtool(
        "distill", f"run={runs}/nplm", f"ngrams_from={runs}/kn3", f"store_dir={runs}/stores", "hydra.run.dir=small"
    )
    found = json.loads(Path("small/result.json").read_text())
    like = json.loads((runs / "kn3" / "result.json").read_text())
    assert found["ngrams"] == like["ngrams"] and f"valid perplexity {found['valid_perplexity']:.4f}" in said
    lmtool("eval", "run=small", f"store_dir={runs}/stores", "hydra.run.dir=scored")
    scored = json.loads(Path("scored/result.json").read_text())
    assert scored["perplexity"] == pytest.approx(found["valid_perplexity"])
    teacher, small = package.load(runs / "nplm"), package.load("small")
    assert isinstance(small.model, NgramModel) and small.model.normalized
    # What the command computes is what the plain formula gives, for a network and for a mixture with one.
    lmtool("distill", f"run={runs}/mix", f"ngrams_from={runs}/kn3", f"store_dir={runs}/stores", "hydra.run.dir=of-mix")
    plain = package.load(runs / "kn3").model
    with open_run_corpus(Run.open(runs / "kn3"), runs / "stores", progress=False) as corpus:
        train, table = corpus.split("train"), plain.table
        for run, out in (("nplm", "small"), ("mix", "of-mix")):
            model = package.load(runs / run).model
            expected = ExpectedProbabilities(table)
            contexts = train.as_stream(model.across_sentences).contexts(0, train.tokens, model.context_size)
            expected.add(train.contexts(0, train.tokens, 2), np.exp(model.log_dist(contexts)))
            wanted, held = expected.distill().log_prob, package.load(out).model.table.log_prob
            np.testing.assert_allclose(held, wanted, atol=2e-6)
            assert not np.allclose(held, table.log_prob, atol=0.01)
    # Another teacher, over the first tokens alone; the result mixes like any other run.
    again = package.distill(runs / "mix", runs / "kn3", tokens=20, out="again", store_dir=str(runs / "stores"))
    assert again.examples == 20 and again.valid_perplexity != pytest.approx(found["valid_perplexity"])
    more = package.distill(runs / "nplm", runs / "kn3", top_k=3, out="more", store_dir=str(runs / "stores"))
    assert more.parameters > found["parameters"] and more.ngrams[0] == like["ngrams"][0]
    few = package.distill(
        runs / "nplm", runs / "kn3", top_k=3, prune_to=found["parameters"], out="few", store_dir=str(runs / "stores")
    )
    assert 0.9 * found["parameters"] < few.parameters <= found["parameters"]
    pruned = ["top_k=3", "prune_to=80%", "tokens=20", f"store_dir={runs}/stores"]
    said = lmtool("distill", f"run={runs}/nplm", f"ngrams_from={runs}/kn3", *pruned, "hydra.run.dir=said")
    kept = json.loads(Path("said/result.json").read_text())["parameters"]
    assert f"n-grams to {kept:,}: prune_entropy=" in said
    package.convert(runs=[again, runs / "kn3"], weights=[0.5, 0.5], to="mixed.arpa.gz")
    assert teacher.vocabulary.words == small.vocabulary.words

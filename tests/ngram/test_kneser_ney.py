"""Interpolated modified Kneser-Ney: by hand, against a plain dictionary form, and against KenLM's figures."""

from __future__ import annotations

import gzip
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest

from lmtool.config import TextData
from lmtool.data.corpus import Corpus
from lmtool.data.prepare import prepare
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.evaluation import perplexity, score
from lmtool.ngram.counts import count_ngrams
from lmtool.ngram.kneser_ney import FALLBACK, estimate_discounts, modified_kneser_ney
from lmtool.ngram.model import NgramModel
from lmtool.ngram.table import BackoffTable
from tests.conftest import RULES


@dataclass
class Text:
    ids: np.ndarray
    offsets: np.ndarray


def text_of(sentences: list[str]) -> tuple[Text, Vocabulary]:
    """Words numbered by first appearance, then </s>, <unk>, <s>."""
    words = list(dict.fromkeys(word for sentence in sentences for word in sentence.split()))
    vocabulary = Vocabulary((*words, "</s>", "<unk>", "<s>"), np.ones(len(words) + 3, int), len(words), len(words) + 1)
    rows = [[*vocabulary.encode(sentence.split()), len(words)] for sentence in sentences]
    return Text(np.concatenate(rows), np.cumsum([0, *map(len, rows)])), vocabulary


def test_bigram_model_by_hand() -> None:
    # Bigrams: <s> a 3, a b 2, a c 1, b </s> 2, c </s> 1. Words before: a 1, b 1, c 1, </s> 2; 5 in all.
    # All discounts 1/2. Unigrams: 4 types lose 1/2 each, 2/5 of the mass, shared by 6: a, b, c, </s>, <unk> and the
    # unknown, 1/15 each. p(a) = p(b) = p(c) = .5/5 + 1/15 = 1/6, p(</s>) = 1.5/5 + 1/15 = 11/30.
    text, vocabulary = text_of(["a b", "a b", "a c"])
    table = modified_kneser_ney(count_ngrams(text, vocabulary, 2), discounts=[[0.5] * 3] * 2)
    model = NgramModel(table, vocabulary)
    a, b, c, eos, unk, bos = range(6)
    unigrams = np.exp(model.log_dist(np.array([[unk]]))[0])  # nothing follows <unk>: the unigrams themselves
    np.testing.assert_allclose(unigrams, [1 / 6, 1 / 6, 1 / 6, 11 / 30, 1 / 15, 1 / 15], rtol=1e-14)
    # After a (3 times, 2 types): b 1.5/3 + (1/3)(1/6) = 5/9, c .5/3 + 1/18 = 2/9, </s> (1/3)(11/30) = 11/90.
    after_a = np.exp(model.log_prob(np.full((3, 1), a), np.array([b, c, eos])))
    np.testing.assert_allclose(after_a, [5 / 9, 2 / 9, 11 / 90], rtol=1e-14)
    # After <s> (3 times, 1 type): a 2.5/3 + (.5/3)(1/6) = 31/36.
    np.testing.assert_allclose(model.log_prob(np.array([[bos]]), np.array([a])), [math.log(31 / 36)], rtol=1e-14)
    assert list(model.matched_lengths(np.array([[a], [a]]), np.array([b, eos]))) == [2, 1]


def test_discounts_by_hand() -> None:
    # n = 4, 2, 2, 1: Y = 4 / 8 = 1/2; D1 = 1 - 2 Y 2/4 = 1/2, D2 = 2 - 3 Y 2/2 = 1/2, D3+ = 3 - 4 Y 1/2 = 2.
    notes: list[str] = []
    np.testing.assert_allclose(estimate_discounts(np.array([9, 4, 2, 2, 1]), 1, notes), [0, 0.5, 0.5, 2])
    assert notes == []
    # A count that is 0; D2 = 2 - 3 (5/7) 9/1 < 0; D3+ = 3 - 4 (1/19) 900/1 < 0.
    for odd in ([0, 0, 2, 2, 1], [0, 4, 0, 2, 1], [0, 5, 1, 9, 9], [0, 1, 9, 1, 900]):
        assert list(estimate_discounts(np.array(odd), 3, notes)[1:]) == list(FALLBACK)
    assert len(notes) == 4 and all(note.startswith("order 3: ") for note in notes)


def plain_model(sentences: list[list[int]], n: int, vocabulary: Vocabulary, newest: int | None):
    """The formulas over dictionaries of tuples; returns p(word, context)."""
    bos = vocabulary.bos
    raw: list[Counter] = [Counter() for _ in range(n + 1)]
    for sentence in sentences:
        padded = [bos, *sentence]
        for k in range(1, n + 1):
            for i in range(len(padded) - k + 1):
                raw[k][tuple(padded[i : i + k])] += 1
    adjusted: list[Counter] = [Counter() for _ in range(n + 1)]
    for k in range(1, n + 1):
        for gram in raw[k]:
            if k == n or gram[0] == bos:
                adjusted[k][gram] = raw[k][gram]
            else:
                adjusted[k][gram] = sum(1 for longer in raw[k + 1] if longer[1:] == gram)
    del adjusted[1][(bos,)]
    discount = [[]]
    for k in range(1, n + 1):
        of = Counter(min(v, 5) for g, v in adjusted[k].items() if not (k == 1 and n > 1 and g == (newest,)))
        found = estimate_discounts(np.array([0, of[1], of[2], of[3], of[4]]), k, [])
        discount.append(found)
    following = defaultdict(list)
    for k in range(1, n + 1):
        for gram, a in adjusted[k].items():
            following[gram[:-1]].append(a)

    def p(word: int, context: tuple[int, ...]) -> float:
        k = len(context) + 1
        lower = p(word, context[1:]) if context else 1 / len(vocabulary)
        if context not in following:
            return lower
        total = sum(following[context])
        taken = sum(min(a, discount[k][min(a, 3)]) for a in following[context])
        a = adjusted[k][(*context, word)]
        return (a - min(a, discount[k][min(a, 3)]) if a else 0) / total + taken / total * lower

    return p


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_equals_the_plain_form_on_random_text(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sentences = [" ".join(f"w{min(rng.zipf(1.4), 12)}" for _ in range(rng.integers(1, 9))) for _ in range(60)]
    text, vocabulary = text_of(sentences)
    counts = count_ngrams(text, vocabulary, n)
    model = NgramModel(modified_kneser_ney(counts), vocabulary)
    assert vocabulary.words[counts.newest_word] in (list(dict.fromkeys(" ".join(sentences).split()))[-1], "</s>")
    rows = [list(text.ids[a:b]) for a, b in zip(text.offsets, text.offsets[1:], strict=False)]
    p = plain_model(rows, n, vocabulary, counts.newest_word)
    contexts = np.concatenate(
        [np.full((6, n - 1), vocabulary.bos), rng.integers(0, len(vocabulary) - 1, (40, n - 1))], axis=0
    )
    if n > 1:
        contexts[6:20, 0] = vocabulary.bos
        contexts[1, -1] = 0
        for i, row in enumerate(rows[:20]):  # contexts that were seen
            tail = [vocabulary.bos, *row[:-1]][-(n - 1) :]
            contexts[20 + i] = [vocabulary.bos] * (n - 1 - len(tail)) + tail
    dist = model.log_dist(contexts)
    np.testing.assert_allclose(np.logaddexp.reduce(dist, axis=1), 0, atol=1e-12)
    targets = rng.integers(0, len(vocabulary) - 1, len(contexts))
    want = []
    for context, target in zip(contexts.tolist(), targets.tolist(), strict=True):
        starts = [i for i, word in enumerate(context) if word == vocabulary.bos]
        want.append(math.log(p(target, tuple(context[starts[-1] if starts else 0 :]))))
    np.testing.assert_allclose(model.log_prob(contexts, targets), want, rtol=1e-11)
    np.testing.assert_allclose(dist[np.arange(len(targets)), targets], want, rtol=1e-11)
    candidates = rng.integers(0, len(vocabulary) - 1, (len(contexts), 7))
    np.testing.assert_allclose(
        model.log_prob_candidates(contexts, candidates), np.take_along_axis(dist, candidates, axis=1), rtol=1e-11
    )


@pytest.mark.parametrize("sentences", [["a"], ["a a a a a a"], ["a b c d e f"], ["a"] * 50, ["a b"] * 3 + ["b a"]])
def test_odd_text_never_fails(sentences: list[str]) -> None:
    text, vocabulary = text_of(sentences)
    model = NgramModel(modified_kneser_ney(count_ngrams(text, vocabulary, 4)), vocabulary)
    assert model.table.notes
    dist = model.log_dist(np.array([[vocabulary.bos] * 3, [0, 0, 0], [0, 1, 0], [1, 2, 2]]))
    np.testing.assert_allclose(np.logaddexp.reduce(dist, axis=1), 0, atol=1e-12)


def test_a_stream_shorter_than_the_order() -> None:
    # "a b" as one stream: no 4-grams and no 5-grams, though the 3-gram <s> a b is a context. Nothing follows b, so
    # its successors have unigram probabilities: a and b stand after one word each, lose 1/2 of it, and the mass of
    # 1/2 is shared by a, b, </s>, <unk> and the unknown: p(a) = .5/2 + .5/5 = .35, p(</s>) = .1.
    _, vocabulary = text_of(["a b"])
    counts = count_ngrams(Text(np.array([0, 1]), np.array([0, 2])), vocabulary, 5)
    model = NgramModel(modified_kneser_ney(counts), vocabulary)
    assert model.table.sizes == [5, 2, 1, 0, 0]
    contexts = np.array([[vocabulary.bos, vocabulary.bos, 0, 1]] * 2)
    log_prob = model.log_prob(contexts, np.array([0, vocabulary.eos]))
    np.testing.assert_allclose(np.exp(log_prob), [0.35, 0.1], rtol=1e-14)
    np.testing.assert_allclose(np.exp(model.log_dist(contexts)[0]), [0.35, 0.35, 0.1, 0.1, 0.1], rtol=1e-14)
    assert list(model.matched_lengths(contexts, np.array([0, vocabulary.eos]))) == [1, 1]


def test_bad_orders_discounts_and_files(tmp_path: Path, toy: Corpus) -> None:
    with pytest.raises(UserError, match=r"model\.order=0"):
        count_ngrams(toy.split("train"), toy.vocabulary, 0)
    counts = count_ngrams(toy.split("train"), toy.vocabulary, 3)
    with pytest.raises(UserError, match="2 triples given, order 3 needs 3"):
        modified_kneser_ney(counts, discounts=[[0.5] * 3] * 2)
    table = modified_kneser_ney(counts)
    path = tmp_path / "model.h5"
    table.save(path, "right")
    again = BackoffTable.load(path, "right")
    for old, new in zip(table.orders, again.orders, strict=True):
        assert (old.keys == new.keys).all() and (old.log_prob == new.log_prob).all()
        assert (old.log_backoff == new.log_backoff).all()
    assert (again.unseen, again.bos, again.vocabulary_size) == (table.unseen, table.bos, table.vocabulary_size)
    with pytest.raises(UserError, match="another vocabulary"):
        BackoffTable.load(path, "wrong")
    with h5py.File(path, "a") as file:
        file.attrs["order"] = "three"
    with pytest.raises(UserError, match="damaged"):
        BackoffTable.load(path, "right")
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(UserError, match="cut off"):
        BackoffTable.load(path, "right")
    with pytest.raises(UserError, match="is missing"):
        BackoffTable.load(tmp_path / "none.h5", "right")


# SRILM and KenLM, interpolated modified Kneser-Ney, no cut-offs, PTB valid.
REFERENCE = {3: 157.76526, 4: 149.89556, 5: 148.00740}


def test_ptb_equals_kenlm(real_data: Path, tmp_path: Path) -> None:
    files = {name: f"ptb/ptb.{name}.txt" for name in ("train", "valid")}
    none = dict.fromkeys(("test", "split", "cloze_valid", "cloze_valid_answers", "cloze_test"))
    data = TextData("text", "ptb", True, RULES, **files, **none, tags=False, downloads={})
    with Corpus.open(prepare(data, tmp_path, progress=False).path) as corpus:
        train, valid = corpus.split("train"), corpus.split("valid")
        assert (train.tokens, valid.tokens, len(corpus.vocabulary)) == (929_589, 73_760, 10_001)
        for order in (3, 5):
            table = modified_kneser_ney(count_ngrams(train, corpus.vocabulary, order))
            scores = score(NgramModel(table, corpus.vocabulary), valid)
            assert perplexity(scores.log_prob) == pytest.approx(REFERENCE[order], rel=1e-6)
    assert table.sizes == [10_001, 264_990, 586_558, 717_733, 737_952]
    reference = real_data.parent / "reference" / "kenlm5_ptb_valid.tsv.gz"
    if reference.is_file():
        with gzip.open(reference, "rt") as lines:
            log10 = [float(line.split("\t")[4]) for line in list(lines)[1:]]
        assert np.abs(scores.log_prob / math.log(10) - log10).max() < 2e-5

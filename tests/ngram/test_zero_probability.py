"""Every smoother of conf, on words and letters: no finite text has perplexity inf, or a note says which words do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmtool.config.options import kinds
from lmtool.data.split import Split
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.estimation.tuning import fit_and_tune
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.smoothers.absolute_discounting import Absolute, ModifiedKneserNey
from lmtool.ngram.smoothers.base import TUNED, Smoother
from lmtool.ngram.smoothers.interpolation import JelinekMercer
from lmtool.ngram.smoothers.relative_frequencies import GoodTuring, StupidBackoff
from lmtool.ngram.tables.storage import Storage
from tests.ngram.plain import contexts_for, random_sentences, text_of
from tests.options import settings

WORDS = random_sentences(1, 80)
LETTERS = [" ".join(row) for row in np.random.default_rng(0).choice(list("abcdefgh"), (300, 7))]
TRAIN = {"words": [*WORDS, "once"], "words twice": WORDS * 2, "letters": LETTERS, "a singleton": [*LETTERS, "q"]}
ZERO = "words that do not occur in train (1 of the vocabulary)"


def split_of(sentences: list[str], unk: bool) -> tuple[Split, Vocabulary]:
    """Return a text and the vocabulary of its words. unk: whether <unk> itself occurs in it."""
    sentences = [*sentences, "<unk> w1", "<unk>"] if unk else sentences
    _, vocabulary = text_of([sentence.replace("<unk>", "") for sentence in sentences])
    return encoded(sentences, vocabulary), vocabulary


def encoded(sentences: list[str], vocabulary: Vocabulary) -> Split:
    rows = [[*vocabulary.encode(sentence.split()), vocabulary.eos] for sentence in sentences]
    ids, offsets = np.concatenate(rows), np.cumsum([0, *map(len, rows)])
    return Split(ids, offsets, np.empty(0, dtype=np.int64), 0, vocabulary.bos)


def variants() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each smoother with its defaults, backed off, and with each setting tuned that can be tuned."""
    for name in kinds("smoother"):
        yield name, {}
        for field in fields(settings("smoother", name)):
            if field.name == "interpolate":
                yield name, {"interpolate": False}
            if field.name in ("kind", "tune_on"):
                continue
            try:
                given = settings("smoother", name, **{field.name: TUNED})
            except UserError:
                continue
            if given.tuning_split() is not None:
                yield name, {field.name: TUNED}


def log_probs(model: NgramModel, *sentences: str) -> np.ndarray:
    text = encoded([*sentences], model.vocabulary)
    return model.log_prob_text(text.ids, text.offsets)


@pytest.mark.parametrize("train", TRAIN)
@pytest.mark.parametrize(("name", "changes"), [*variants()], ids=str)
def test_no_finite_text_has_perplexity_inf(name: str, changes: dict[str, Any], train: str) -> None:
    given = settings("smoother", name, **changes)
    for unk in (False, True):
        text, vocabulary = split_of(TRAIN[train], unk)
        for order in range(1, 6):
            smoother, counts = given.build(order, vocabulary), count_ngrams(text, vocabulary, order)
            if tuned := given.tuning_split():
                fit_and_tune(counts, smoother, encoded(TRAIN[train][:30], vocabulary), Storage())
            model = NgramModel(estimate(counts, smoother, fit=not tuned), vocabulary)
            dist = model.log_dist(contexts_for(text, vocabulary, order, 1)[::5])
            if model.normalized:
                np.testing.assert_allclose(np.exp(dist).sum(axis=1), 1, atol=3e-6)
            found = log_probs(model, *TRAIN[train][:5], "zzz", "a zzz a a b", "w1 zzz w12 w11", "b b b b b", "")
            notes = [note for note in model.table.notes if "have probability 0" in note]
            assert not np.isnan(found).any()
            if name == "mle":
                assert len(notes) == (not unk or order > 1) and (ZERO in "".join(notes)) == (not unk)
                orders = ", ".join(map(str, range(2, order + 1)))
                assert order == 1 or f"words not seen after a context (order {orders})" in notes[0]
            elif name == "stupid_backoff":
                assert len(notes) == (not unk)
                unseen = np.concatenate([encoded([s], vocabulary).ids for s in ("zzz", "a")]) == vocabulary.unk
                assert np.isneginf(log_probs(model, "zzz", "a")[unseen]).all() == (not unk)
            else:
                assert np.isfinite(found).all() and notes == []


def test_good_turing_raises_the_denominator_of_unigrams_by_hand() -> None:
    # a, b, </s> twice each, no singleton, no discount: 2/6 each leaves nothing for <unk>. Raised by one as in SRILM,
    # 2/7 each, and 1/7 for <unk>.
    text, vocabulary = split_of(["a b", "b a"], False)
    smoother = GoodTuring(1, gt_max=7, gt_max_unigram=1)
    model = NgramModel(estimate(count_ngrams(text, vocabulary, 1), smoother), vocabulary)
    np.testing.assert_allclose(np.exp(model.log_dist(np.empty((1, 0), np.int64))[0]), [2 / 7] * 3 + [1 / 7, 0], 1e-6)
    # With <unk> in train every word was seen: the counts as they are, 2/11 for a.
    text, vocabulary = split_of(["a b", "b a"], True)
    model = NgramModel(estimate(count_ngrams(text, vocabulary, 1), smoother), vocabulary)
    assert np.exp(log_probs(model, "a")[0]) == pytest.approx(2 / 11, rel=1e-6)


def test_a_discount_that_takes_a_count_whole_leaves_a_share_to_it() -> None:
    # D = 1: a, b were seen once and keep no discounted count, </s> twice: 1/4. The 3/4 left go to a, b and <unk>.
    text, vocabulary = split_of(["a", "b"], False)
    smoother = Absolute(1, discounts=[1.0], interpolate=False)
    model = NgramModel(estimate(count_ngrams(text, vocabulary, 1), smoother), vocabulary)
    np.testing.assert_allclose(np.exp(model.log_dist(np.empty((1, 0), np.int64))[0]), [0.25] * 4 + [0], rtol=1e-6)


@pytest.mark.parametrize(
    ("smoother", "note"),
    [
        (Absolute(2, discounts=[0.0, 0.5]), f"{ZERO} have probability 0"),
        (Absolute(2, discounts=[0.5, 0.0]), "words not seen after a context (order 2) have probability 0"),
        (ModifiedKneserNey(2, discounts=[[0.5] * 3, [0, 0.5, 0.5]]), "words not seen after a context (order 2) have"),
        (
            JelinekMercer(2, count_buckets=9, lambdas=[1.0, 1.0]),
            f"{ZERO} and words not seen after a context (order 2) have",
        ),
        (StupidBackoff(2, alpha=0.4), f"{ZERO} have probability 0: text with them has perplexity inf"),
        (Absolute(2, discounts=[0.0, 0.0], interpolate=False), ""),  # the denominators are raised
        (ModifiedKneserNey(2, discounts=[[0.5, 0, 0]] * 2, interpolate=False), ""),
    ],
)
def test_given_parameters_that_leave_nothing_are_noted(smoother: Smoother, note: str) -> None:
    text, vocabulary = split_of(["a b", "b a", "a a a a"], False)
    model = NgramModel(estimate(count_ngrams(text, vocabulary, 2), smoother), vocabulary)
    assert note in model.table.notes[-1] if note else not any("probability 0" in each for each in model.table.notes)
    if not note:
        assert np.isfinite(log_probs(model, "a zzz b", "")).all()


def test_train_and_eval_say_what_has_probability_0(lmtool: Callable[..., str]) -> None:
    Path("train.txt").write_text("a b\nb a\n")
    Path("valid.txt").write_text("a z\n")
    data = ["train", "model=ngram", "model.order=1", "data=text", "data.train=train.txt", "data.valid=valid.txt"]
    assert f"note: {ZERO} have probability 0" in lmtool(*data, "smoother=mle", "hydra.run.dir=mle")
    said = lmtool("eval", "run=mle", "hydra.run.dir=e")
    assert "note: tokens out of vocabulary have probability 0 (1 of 3)" in said
    # 2/7 for a and </s>, 1/7 for z.
    assert f"perplexity {(7**3 / 4) ** (1 / 3):.4f}" in lmtool(*data, "smoother=good_turing", "hydra.run.dir=gt")
    assert "probability 0" not in lmtool("eval", "run=gt", "hydra.run.dir=e")

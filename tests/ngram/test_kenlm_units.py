"""`lmtool.kenlm` and states over pieces, letters, lower case and streams: text is cut as the run cuts it."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool import kenlm as ours
from tests.conftest import Run

TEXT = "the cat sat on the mat\nthe cats sat\n" * 3
DATA = ["data=text", "data.name=own", "data.train=train.txt", "data.valid=train.txt"]
UNIGRAM = ["train", "model=ngram", "model.order=1", "smoother=laplace", *DATA]


@pytest.fixture
def texts(lmtool: Run) -> Run:
    Path("train.txt").write_text(TEXT)
    return lmtool


def counts_of(folder: str) -> dict[str, int]:
    """Return the words of a run and their counts, from its vocabulary."""
    lines = (Path(folder) / "vocabulary.txt").read_text().splitlines()
    return {word: int(count) for word, count in (line.split("\t") for line in lines)}


def test_pieces_are_cut_as_by_the_run(texts: Run) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers (pip install lmtool[subwords])")
    bpe = ["data.vocabulary.unit=bpe", "data.vocabulary.size=270"]
    texts(*UNIGRAM, *bpe, "hydra.run.dir=run")
    library, counts = tokenizers.Tokenizer.from_file("run/tokenizer.json"), counts_of("run")
    total = sum(counts.values()) + len(counts) - 1  # one is added to each count but that of <s>

    def log10_p(*words: str) -> list[float]:
        """By add-one: pieces of the library, each word after a space."""
        pieces = [piece for word in words for piece in library.encode(f" {word}", add_special_tokens=False).tokens]
        return [math.log10((counts[piece] + 1) / total) for piece in pieces]

    model, end = ours.Model("run"), math.log10((counts["</s>"] + 1) / total)
    sentence = ["the", "hat", "\u65e5"]
    pieces = log10_p(*sentence)
    assert len(pieces) > 5, "the words of the sentence have several pieces"
    assert model.score(" ".join(sentence)) == pytest.approx(sum(pieces) + end, rel=1e-6)
    assert model.score(" the  hat \n", bos=False, eos=False) == pytest.approx(sum(log10_p("the", "hat")), rel=1e-6)
    found = [(log_prob, length, oov) for log_prob, length, oov in model.full_scores(" ".join(sentence))]
    assert found == [(pytest.approx(value, rel=1e-6), 1, False) for value in (*pieces, end)]
    want = 10 ** (-(sum(pieces) + end) / (len(pieces) + 1))
    assert model.perplexity(" ".join(sentence)) == pytest.approx(want, rel=1e-6)
    assert package.load("run").perplexity(" ".join(sentence)) == pytest.approx(want, rel=1e-6)
    # A word of a decoder is text, too: "the", and not a piece of that name, which would continue a word.
    state, after = ours.State(), ours.State()
    model.BeginSentenceWrite(state)
    for word in sentence:
        full = model.BaseFullScore(state, word, after)
        assert full.log_prob == pytest.approx(sum(log10_p(word)), rel=1e-6) and not full.oov
        assert model.BaseScore(copy.copy(state), word, after) == full.log_prob
        state, after = after, state
    assert model.BaseScore(state, "</s>", after) == pytest.approx(end, rel=1e-6)
    assert "the" in model and "\u65e5" in model, "every word has pieces"


def test_states_after_the_pieces_of_a_word(texts: Run) -> None:
    """Of order 3: each word begins after the last pieces of the word before it."""
    pytest.importorskip("tokenizers", reason="needs tokenizers (pip install lmtool[subwords])")
    bpe = ["data.vocabulary.unit=bpe", "data.vocabulary.size=264"]
    line = ["train", "model=ngram", "smoother=witten_bell", *DATA, *bpe]
    texts(*line, "model.order=3", "hydra.run.dir=run")
    texts(*line, "model.order=2", "hydra.run.dir=bigram")
    texts("ensemble", "runs=[run,bigram]", "weights=[0.7,0.3]", "hydra.run.dir=mix")
    for name in ("bigram", "mix", "run"):
        model, state, text = ours.Model(name), ours.State(), package.load(name)
        model.BeginSentenceWrite(state)
        score = sum(model.BaseScore(state, word, state) for word in ("the", "mats", "sat", "</s>"))
        assert score == pytest.approx(text.score("the mats sat").sum() / math.log(10), rel=1e-6)
        assert model.score("the mats sat") == pytest.approx(score, rel=1e-6)
        for k, prefix in enumerate(("the", "the mats", "the mats sat")):  # full_scores yields pieces
            assert len(list(model.full_scores(prefix, eos=False))) == len(text.form.split(prefix)) > k
    for words in (["cats"], ["\u0120the", "cats"]):
        with pytest.raises(package.UserError, match=r"'cats' is not a piece of this model: cut words by form\.split"):
            text.advance([text.begin()] * len(words), words)
    log_p, _ = text.advance([text.begin()], text.form.split("the")[:1])
    assert log_p[0] == pytest.approx(text.score("the")[0])


def test_letters_are_given_one_by_one(texts: Run) -> None:
    texts(*UNIGRAM, "data.vocabulary.unit=char", "hydra.run.dir=run")
    model, counts, state = ours.Model("run"), counts_of("run"), ours.State()
    total = sum(counts.values()) + len(counts) - 1
    want = [math.log10((counts.get(letter, 0) + 1) / total) for letter in "a t?"]
    model.BeginSentenceWrite(state)
    scores = [model.BaseScore(state, letter, state) for letter in "a t?"]
    assert scores == pytest.approx(want, rel=1e-6)
    assert [oov for _, _, oov in model.full_scores("a t?")] == [False, False, False, True, False]
    for word in ("at", ""):
        with pytest.raises(ValueError, match=f"'{word}' is not one letter: this model is of letters"):
            model.BaseScore(state, word, state)
        assert word not in model
    text = package.load("run")
    with pytest.raises(package.UserError, match=r"'at' is not one letter of this model: cut words by form\.split"):
        text.advance(text.begin(), "at")
    assert text.advance(text.begin(), "?")[0] == pytest.approx(want[-1] * math.log(10), rel=1e-6)


def test_words_as_the_run_writes_them_are_no_oovs(texts: Run) -> None:
    texts(*UNIGRAM, "data.vocabulary.lowercase=true", "hydra.run.dir=run")
    model, state = ours.Model("run"), ours.State()
    model.BeginSentenceWrite(state)
    # 9 of "the" in 3 times 6 + 3 words and 2 </s>; one is added to each of the cat sat on mat cats </s> <unk>.
    want = math.log10((9 + 1) / (3 * 11 + 8))
    assert model.BaseFullScore(state, "The", state) == (pytest.approx(want, rel=1e-6), 1, False)
    assert "THE" in model and "Dog" not in model
    assert [oov for _, _, oov in model.full_scores("THE Dog")] == [False, True, False]


@pytest.mark.parametrize("unit", ["word", "char"])
def test_a_stream_has_no_end_of_sentences(unit: str, texts: Run) -> None:
    """Score no `</s>` in a model of a stream, which does not have it: it was scored as `<unk>`."""
    texts(*UNIGRAM, "data.sentences=false", f"data.vocabulary.unit={unit}", "hydra.run.dir=run")
    model, text = ours.Model("run"), package.load("run")
    for sentence in ("the cat", "the dog"):
        tokens = len(sentence) if unit == "char" else 2
        assert len(list(model.full_scores(sentence))) == tokens
        want = text.score(sentence)
        assert model.score(sentence) == pytest.approx(want.sum() / math.log(10), rel=1e-6)
        assert model.perplexity(sentence) == pytest.approx(np.exp(-want.mean()), rel=1e-6)


MARKS = """\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-0.6 </s>
-99 <s> -0.3
-0.5 a -0.2
-0.4 b -0.1
-2 <unk> -0.05

\\2-grams:
-0.25 <s> a
-0.35 a b
-0.15 b </s>

\\end\\
"""


def test_marks_of_sentences_in_text_have_one_answer(texts: Run) -> None:
    """`<s>` in a sentence is a word outside the vocabulary, as for lmtool score; to a state, it begins a sentence."""
    Path("m.arpa").write_text(MARKS)
    model = ours.Model("m.arpa")
    # a after <s>, <unk> after a, b after <unk>, </s> after b.
    want = -0.25 + (-0.2 - 2) + (-0.05 - 0.4) - 0.15
    assert model.score("a <s> b") == model.score("a zzz b") == pytest.approx(want)
    assert [oov for _, _, oov in model.full_scores("a <s> b")] == [False, True, False, False]
    assert model.perplexity("a <s> b") == pytest.approx(10 ** (-want / 4))
    (found,) = package.score_texts("m.arpa", ["a <s> b"])
    assert (found.log_prob, found.oov) == (pytest.approx(want * math.log(10)), 1)
    Path("t").write_text("a <s> b\n")
    texts("score", "arpa=m.arpa", "text=t", "to=t.jsonl")
    assert json.loads(Path("t.jsonl").read_text())["oov"] == 1
    state, begun = ours.State(), ours.State()
    model.NullContextWrite(state)
    assert model.BaseScore(state, "<s>", state) == -100  # KenLM has the file's number, -99 of SRILM's, 0 of lmplz's
    model.BeginSentenceWrite(begun)
    assert state == begun and model.BaseScore(state, "a", state) == pytest.approx(-0.25)
    (log_p,) = package.load("m.arpa").score(["a <s> b"])
    assert log_p.sum() == pytest.approx(want * math.log(10))


@pytest.mark.parametrize("name", ["kn3", "nplm", "mix"])
def test_the_mark_of_a_sentence_begins_it_for_any_model(name: str, runs: Path) -> None:
    model, state, begun = ours.Model(runs / name), ours.State(), ours.State()
    model.BeginSentenceWrite(begun)
    want = model.BaseScore(copy.copy(begun), "the", ours.State())
    model.NullContextWrite(state)
    for _ in range(1 if name == "kn3" else model.order):  # of a network, `<s>` fills the context
        assert model.BaseScore(state, "<s>", state) == -100
    assert model.BaseScore(state, "the", state) == pytest.approx(want)
    (found,) = package.score_texts(runs / name, ["the <s> of"])
    assert model.score("the <s> of") == pytest.approx(found.log_prob / math.log(10), rel=1e-6)

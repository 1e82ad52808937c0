"""`lmtool.kenlm` beside KenLM's own module, and over pieces, letters, lower case and streams, as the run cuts text."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle
import random
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import lmtool as package
from lmtool import kenlm as ours
from lmtool.data.text_rules import TextRules
from lmtool.data.vocabulary import SpecialTokens
from lmtool.ngram.query import single_state
from lmtool.ngram.query.single_state import SingleStates
from tests.conftest import Run
from tests.ngram.test_states import ARPA, arpa  # noqa: F401

WORDS = ["a", "b", "c", "unheard"]


def test_by_hand(arpa: Path) -> None:  # noqa: F811
    """Sums of the file's numbers; KenLM 0.3 says the same."""
    model = ours.Model(arpa)
    assert model.order == 3 and "a" in model and "unheard" not in model and "<unk>" not in model
    assert repr(model) == "<Model from small.arpa>" and model.path.endswith(b"/small.arpa")
    assert next(model.full_scores("a b")) == (pytest.approx(-0.3), 2, False)
    assert [(length, oov) for _, length, oov in model.full_scores("a unheard b c")] == [
        (2, False),
        (1, True),
        (1, False),
        (2, False),
        (1, False),
    ]
    assert model.score("a b") == pytest.approx(-0.3 - 0.15 - 0.25)
    assert model.score("a b", bos=False) == pytest.approx(-0.6 - 0.4 - 0.25)
    assert model.score("a b", eos=False) == pytest.approx(-0.3 - 0.15)
    assert model.score("c unheard", bos=False, eos=False) == pytest.approx(-0.8 - 1.0)
    assert model.score(b"") == pytest.approx(-0.2 - 0.9)
    assert model.perplexity("a b") == pytest.approx(10 ** (0.7 / 3))
    assert model.score("a b </s>", eos=False) == pytest.approx(model.score("a b"))


def test_states(arpa: Path) -> None:  # noqa: F811
    model, state, after = ours.LanguageModel(str(arpa), ours.Config()), ours.State(), ours.State()
    model.BeginSentenceWrite(state)
    assert model.BaseScore(state, "a", after) == pytest.approx(-0.3)
    full = model.BaseFullScore(after, "b", after)  # the same object
    assert full.log_prob == pytest.approx(-0.15) and full.ngram_length == 3 and not full.oov
    kept = copy.deepcopy(after)
    model.NullContextWrite(state)
    for word in ("a", "b"):
        model.BaseScore(state, word, state)
    assert state == kept and hash(state) == hash(copy.copy(after)) and not state < kept
    model.BaseScore(state, "c", state)
    assert state != kept and kept == after and len({state, kept, after}) == 2
    new = ours.State()  # without any words, as in KenLM
    assert model.BaseScore(new, "a", new) == pytest.approx(-0.6)
    with pytest.raises(ValueError, match="in_state is a state of another model"):
        ours.Model(arpa).BaseScore(state, "a", after)
    with pytest.raises(TypeError, match="a word must be a str; got bytes"):
        model.BaseScore(state, b"a", after)  # type: ignore[arg-type]
    again = pickle.loads(pickle.dumps(model))
    assert again.score("a b") == model.score("a b") and type(again) is ours.LanguageModel


def test_states_are_compared_by_their_numbers_alone(arpa: Path) -> None:  # noqa: F811
    one, other = ours.State(), ours.State()
    for state in (one, other):
        ours.Model(arpa).BeginSentenceWrite(state)
    assert bytes(one) != bytes(other), "of two models"
    assert [one == other, one != other, one <= other, one >= other, one < other, one > other] == [
        *(True, False, True, True),
        *(False, False),
    ]


class Counted(str):
    """A word that answers with its own methods."""

    def __hash__(self) -> int:
        raise KeyboardInterrupt

    def __eq__(self, other: object) -> bool:
        raise KeyboardInterrupt


def test_states_that_are_none_are_refused(arpa: Path) -> None:  # noqa: F811
    model, state, after = ours.Model(arpa), ours.State(), ours.State()
    model.BeginSentenceWrite(state)
    want = model.BaseScore(state, "a", after)
    changed = [ours.State(state) for _ in range(5)]
    changed[0][:8] = (10**7).to_bytes(8, sys.byteorder)  # a node that the model does not have
    changed[1][:8] = (-10).to_bytes(8, sys.byteorder, signed=True)
    del changed[2][:8]
    del changed[3][:3]
    changed[4][:0] = bytes(8)
    for each in changed:
        for score in (model.BaseScore, model.BaseFullScore):
            with pytest.raises(ValueError, match="in_state is not a state as this model wrote it"):
                score(each, "a", ours.State())
    shown = ours.State()
    with memoryview(shown), pytest.raises(BufferError):
        model.BaseScore(state, "a", shown)
    other = type("Other", (), {"__class__": ours.State})()
    for pair in ((state, other), (other, after)):
        with pytest.raises((TypeError, ValueError)):
            model.BaseScore(pair[0], "a", pair[1])
    assert model.BaseScore(state, Counted("a"), after) == want, "its text alone counts"
    assert model.BaseScore(state, "a", ours.State(bytes(3))) == want


def test_models_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", None)  # not installed
    with pytest.raises(OSError, match=r"Cannot read model .*nowhere"):
        ours.Model(tmp_path / "nowhere")
    (tmp_path / "cut.arpa").write_text(ARPA[:200])
    with pytest.raises(OSError, match="Cannot read model"):
        ours.Model(tmp_path / "cut.arpa")
    (tmp_path / "kn5.bin").write_bytes(KENLM_BINARY)
    with pytest.raises(OSError, match=r"kn5\.bin is a KenLM binary") as caught:
        ours.Model(tmp_path / "kn5.bin")
    assert len(traceback.format_exception(caught.value)) < 6, "not that of the reader too"


KENLM_BINARY = b"mmap lm http://kheafield.com/code format version 5\n\0" + bytes(range(11, 256)) * 9  # no second LF


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("eval arpa=kn5.bin text=kn5.bin", "pip install 'lmtool[kenlm]'), or use the ARPA file that it was made from"),
        ("eval run=kn5.bin", "use arpa=kn5.bin, in lmtool eval, score or predict"),
        ("predict a run=kn5.bin", "use arpa=kn5.bin"),
        ("score run=kn5.bin text=kn5.bin to=s.tsv", "use arpa=kn5.bin"),
        ("convert arpa=kn5.bin to=x.arpa", "use the ARPA file that it was made from"),
        ("convert run=kn5.bin to=x.arpa", "use arpa=kn5.bin"),
        ("convert runs=[kn5.bin] to=x.arpa", "use the ARPA file that it was made from"),
        ("convert arpa=kn5.bin data=toy", "use the ARPA file that it was made from"),
    ],
)
def test_a_binary_of_kenlm_is_named(
    line: str, remedy: str, lmtool: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", None)  # not installed
    Path("kn5.bin").write_bytes(KENLM_BINARY)
    said = lmtool(*line.split(), code=2)
    assert "kn5.bin is a KenLM binary" in said and remedy in said
    assert said.count("\n") == 1


def test_a_binary_is_not_read_by_lmtools_module(lmtool: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", ours)  # as for pyctcdecode
    Path("kn5.bin").write_bytes(KENLM_BINARY)
    assert "install KenLM's module" in lmtool("predict", "a", "arpa=kn5.bin", code=2)


@pytest.mark.parametrize("name", ["kn3", "nplm", "mix", "char"])
def test_runs(name: str, runs: Path) -> None:
    """Networks and mixtures have the same face; characters are words where a run's data have letters."""
    import lmtool

    model, text = ours.Model(runs / name), lmtool.load(runs / name)
    sentence = "anna" if name == "char" else " ".join(text.words[3:8])
    assert model.score(sentence) == pytest.approx(text.score(sentence).sum() / math.log(10), rel=1e-6)
    scores = [log_prob for log_prob, _, _ in model.full_scores(sentence)]
    np.testing.assert_allclose(scores, text.score(sentence) / math.log(10), rtol=1e-6)
    one, two = ours.State(), ours.State()
    model.BeginSentenceWrite(one)
    model.BeginSentenceWrite(two)
    assert one == two and copy.copy(one) == two and hash(one) == hash(two)
    model.BaseScore(one, sentence[0], two)
    assert one != two or model.order == 1


def test_the_compiled_call_is_the_batch(arpa: Path) -> None:  # noqa: F811
    """Numba's `compile` returns the compiled function: what is read by address is what the arrays hold."""
    model = ours.Model(arpa)
    function = model._log10_prob.__func__  # type: ignore[attr-defined]
    assert type(function).__name__ == "builtin_function_or_method" and function is not single_state._log10_prob
    import lmtool

    text = lmtool.load(arpa)
    for words in itertools.product(WORDS, repeat=3):
        state, rows = ours.State(), text.begin()
        model.BeginSentenceWrite(state)
        for word in (*words, "</s>"):
            log_p, rows = text.advance(rows, word)
            assert model.BaseScore(state, word, state) == pytest.approx(log_p / math.log(10), rel=1e-12)
            assert word == "</s>" or state._key() == rows.numbers


@pytest.mark.parametrize("name", ["small.arpa", "lower"])
def test_what_the_compiled_call_leaves_to_python(name: str, arpa: Path) -> None:  # noqa: F811
    """It changes nothing then: other objects, states of other models, words outside the vocabulary."""
    model, state, after = ours.Model(arpa), ours.State(), ours.State()
    if name == "lower":
        model._states = SingleStates(
            model._states._lookup,  # type: ignore[union-attr]
            SpecialTokens(model._ids["<s>"], model._ids["</s>"], model._unk),
            ours.State,
            model._ids,
            model._owner,
            scores_oov=False,
        )
        model._log10_prob, model._text_form = (
            model._states.log10_prob,
            replace(model._text_form, rules=TextRules(lowercase=True)),
        )
    call, words = (
        model._log10_prob,
        {"a": True, "unheard": name != "lower", "A": name != "lower", 3: False, b"a": False},
    )
    model.BeginSentenceWrite(state)
    begun = bytes(state)
    for word, scored in words.items():
        after = ours.State()
        assert (call(state, word, after) == call(state, word, after)) == scored and bytes(state) == begun  # type: ignore[arg-type]
        assert bool(after) == scored
    for other in (
        ours.State(),
        bytearray(state),
        bytes(state),
        None,
        ours.State(state[:-8]),
        ours.State(state + state),
    ):
        assert math.isnan(call(other, "a", after))  # type: ignore[arg-type]
    other = ours.Model(arpa)
    other.BeginSentenceWrite(after)
    assert math.isnan(call(after, "a", state)) and bytes(state) == begun
    assert math.isnan(call(state, "a", bytearray(begun)))
    scores = [model.BaseScore(state, word, after) for word in ("a", "A", "unheard")]
    assert scores[0] != scores[2] and scores[1] == scores[0 if name == "lower" else 2]
    with pytest.raises(TypeError, match="a state must be a State; got NoneType"):
        model.BaseScore(state, "a", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="it cannot be pickled"):
        pickle.dumps(state)


@pytest.fixture(scope="module")
def kenlm() -> ModuleType:
    import kenlm

    return kenlm


@pytest.fixture(scope="module")
def models(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three ARPA files: by hand, of order 3, and pruned, of order 4."""
    from lmtool.cli.command_line import main

    folder = tmp_path_factory.mktemp("arpa")
    (folder / "hand.arpa").write_text(ARPA)
    stores = f"store_dir={runs}/stores"
    line = [
        "model=ngram",
        "data=toy",
        "model.order=4",
        "prune_counts=[0,0,0,1]",
        f"hydra.run.dir={folder}/pruned",
        stores,
    ]
    assert main(["train", *line]) == 0
    for run, file in ((runs / "kn3", "kn3.arpa"), (folder / "pruned", "pruned.arpa")):
        assert main(["convert", f"run={run}", f"to={folder / file}", f"hydra.run.dir={folder}/log", stores]) == 0
    return [folder / "hand.arpa", folder / "kn3.arpa", folder / "pruned.arpa"]


@pytest.mark.tool("kenlm")
def test_the_same_as_kenlm(kenlm: ModuleType, models: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    """10,000 random sentences with unknown words: log10 p, matched lengths, OOVs, and which states are equal."""
    for path in models:
        a, b = ours.Model(path), kenlm.Model(str(path))
        rng = random.Random(path.name)
        words = [
            *(line.split("\t")[1] for line in path.read_text().split("1-grams:\n")[1].split("\n\n")[0].split("\n"))
        ]
        words = [word for word in words if word not in ("<s>", "</s>")] + ["unheard", "ünheard"]
        states: dict[ours.State, object] = {}
        for _ in range(3334):
            sentence = [rng.choice(words) for _ in range(rng.randrange(12))]
            flags = rng.random() < 0.5, rng.random() < 0.5
            one, other = (
                list(a.full_scores(" ".join(sentence), *flags)),
                list(b.full_scores(" ".join(sentence), *flags)),
            )
            assert [score[1:] for score in one] == [score[1:] for score in other]
            np.testing.assert_allclose([score[0] for score in one], [score[0] for score in other], atol=1e-5)
            assert a.score(" ".join(sentence), *flags) == pytest.approx(b.score(" ".join(sentence), *flags), abs=1e-4)
            x, y = ours.State(), kenlm.State()
            a.BeginSentenceWrite(x)
            b.BeginSentenceWrite(y)
            for word in sentence:
                after = kenlm.State()
                assert a.BaseScore(x, word, x) == pytest.approx(b.BaseScore(y, word, after), abs=1e-5)
                y = after
            assert states.setdefault(x, y) == y
        assert len(states) == len(set(states.values())) > 1
    capfd.readouterr()


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

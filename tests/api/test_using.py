"""Models asked in text: predict, lmtool.load, and the mistakes of all verbs that use a model."""

from __future__ import annotations

import io
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.config.data import Unit
from lmtool.data.corpus import Corpus
from lmtool.data.text_form import TextForm
from lmtool.data.text_rules import TextRules
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.language_model import LanguageModel
from lmtool.system.arrays import FloatArray, IntArray
from lmtool.system.files import read_json, write_json
from lmtool.system.terminal import close_words
from lmtool.text_model import TextModel
from tests.conftest import Run, answer

# predict


def test_predict_gives_the_counts_of_a_bigram_model(runs: Path, lmtool: Run) -> None:
    # After 34 "the" stand cat 9 times, dog 7, mat, tree and sun 4, rug and bird 3, and no other word.
    said = lmtool("predict", "on the", f"run={runs}/mle")
    assert "   1  cat        0.2647  -0.5772\n" in said
    (found,) = answer()["contexts"]
    shares = {row["word"]: row["probability"] for row in found["words"]}
    assert [round(34 * p) for p in shares.values()] == [9, 7, 4, 4, 4, 3, 3]
    assert shares["cat"] == pytest.approx(9 / 34, rel=1e-6) and shares["bird"] == pytest.approx(3 / 34, rel=1e-6)
    assert found["words"][0]["log10"] == pytest.approx(math.log10(9 / 34), rel=1e-6)
    lmtool("predict", f"run={runs}/mle", "text=''", "top=5")
    assert [row["word"] for row in answer()["contexts"][0]["words"]] == ["the", "a"]  # 15 and 5 of 20 sentences
    lmtool("predict", "", "sentence_start=false", f"run={runs}/mle", "top=1")
    (row,) = answer()["contexts"][0]["words"]
    assert row["word"] == "the" and row["probability"] == pytest.approx(34 / 137, rel=1e-6)  # <unk> is new: unigrams


def test_predict_reads_standard_input(runs: Path, lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a bird\r\n\nin")))
    said = lmtool("predict", f"run={runs}/mle", "top=1")
    assert "\na bird\nrank" in said
    assert [(c["text"], c["words"][0]["word"]) for c in answer()["contexts"]] == [
        *(("a bird", "sat"), ("", "the"), ("in", "the"))
    ]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat\nthe hat")))
    assert "line 2: hat is not in the vocabulary" in lmtool("predict", f"run={runs}/mle", code=2)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the \xff"), encoding="utf-8"))
    assert "not UTF-8" in lmtool("predict", f"run={runs}/mle", code=2)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert "text has no value" in lmtool("predict", f"run={runs}/mle", code=2)


@pytest.mark.parametrize("name", ["mle", "kn3", "nplm", "hs", "mix"])
def test_the_likeliest_are_those_of_the_distribution(name: str, runs: Path) -> None:
    loaded = package.load(runs / name)
    dist = np.exp(loaded.log_dist(loaded.context(loaded.ids("the dog ran to"))[None])[0])
    dist[-1] = 0
    for top in (1, 7, 23, 100):
        found = loaded.predict("the dog ran to", top)
        want = np.sort(dist)[::-1][:top]
        np.testing.assert_allclose([p for _, p in found], want[want > 0], rtol=1e-6)
        assert all(dist[loaded.vocabulary.ids[word]] == pytest.approx(p, rel=1e-6) for word, p in found)
        assert len({word for word, _ in found}) == len(found)


def test_texts_are_split_as_the_data_were(toy: Corpus) -> None:
    form = TextForm(toy.vocabulary, rules=TextRules(lowercase=True))
    assert form.split(" The\tCAT\x0bsat\u00a0on \n") == ["the", "cat", "sat\u00a0on"]
    letters = TextForm(toy.vocabulary, Unit.char)
    assert letters.split("a <s>\r\n") == ["a", " ", "<", "s", ">"]
    with pytest.raises(UserError, match="several"):
        form.split("the\ncat")
    for mark in ("<s>", "</s>"):
        assert form.encode(form.split(f"the {mark} cat"), allow_oov=True)[1] == toy.vocabulary.unk
        with pytest.raises(UserError, match=f"^{mark} is in the text: lmtool adds sentence boundaries itself"):
            form.encode(form.split(f"the {mark} cat"), allow_oov=False)
    stream = Vocabulary(("a", "\n", "<unk>", "<s>"), np.array([3, 2, 1, 0]), None, 2)
    assert TextForm(stream, Unit.char).split("a\na\n") == ["a", "\n", "a", "\n"]
    assert form.encode(["cat", "horse"], allow_oov=True).tolist() == [toy.vocabulary.ids["cat"], toy.vocabulary.unk]
    with pytest.raises(UserError, match=r"^cta is not in the vocabulary \(similar: cat\); zzz .*no similar word"):
        form.encode(["the", "cta", "zzz"], allow_oov=False)


def test_letters(runs: Path, lmtool: Run) -> None:
    lmtool("predict", "an", f"run={runs}/char", "top=2")
    assert [row["word"] for row in answer()["contexts"][0]["words"]] == ["n", "</s>"]
    assert "q is not in the vocabulary" in lmtool("predict", "aqn", f"run={runs}/char", code=2)
    shutil.rmtree("outputs")
    said = lmtool("generate", "ha", f"run={runs}/char", "temperature=0", "count=1")
    assert said.splitlines()[-1] == answer()["texts"][0] and said.splitlines()[-1] in ("hanna", "han")


def test_the_nearest_words_in_spelling() -> None:
    words = [f"h{k:x}" for k in range(5000)]  # more than are compared letter by letter
    words += ["horse", "house", "Horst", "LONDON", "<unk>"]
    assert close_words("hors", words, 2) == ["horse", "house"]
    assert close_words("horze", words)[0] == "horse"
    assert close_words("London", words)[0] == "LONDON" and close_words("hORSE", words)[0] == "horse"
    assert close_words("~~~~", words) == []
    vocabulary = Vocabulary((*words, "<s>"), np.zeros(len(words) + 1, dtype=np.int64), None, len(words) - 1)
    with pytest.raises(UserError) as caught:  # a word that is only context is not offered
        TextForm(vocabulary).encode(["<s"], allow_oov=False)
    assert "<s>" not in str(caught.value)


# Python


@pytest.mark.parametrize("name", ["kn3", "hs", "mix"])
def test_score_is_what_eval_says(name: str, runs: Path, lmtool: Run) -> None:
    sentences = [
        "the dog sat on the mat",
        "a cat saw the bird",
        "the bird flew to the sun",
        "a horse slept in the sun\n",
    ]
    found = package.load(str(runs / name)).score(sentences)
    assert [len(each) for each in found] == [7, 6, 7, 7] and found[0].dtype == np.float64
    lmtool("eval", f"run={runs}/{name}", "split=test", f"store_dir={runs}/stores")
    (file,) = Path("outputs").glob("eval/*/result.json")
    assert -np.concatenate(found).mean() == pytest.approx(
        math.log(json.loads(file.read_text())["perplexity"]), rel=1e-6
    )


def test_sentences_without_words(runs: Path) -> None:
    loaded = package.load(runs / "mle")
    found = loaded.score(["", "the cat", ""])
    assert [len(each) for each in found] == [1, 3, 1] and loaded.score([]) == []
    assert found[1][:2] == pytest.approx([math.log(15 / 20), math.log(9 / 34)], rel=1e-6)
    stream = TextModel(Stream(), TextForm(Vocabulary(("a", "<unk>", "<s>"), np.array([1, 1, 0]), None, 1)))
    assert [each.tolist() for each in stream.score(["", "a a", "", "a"])] == [[], [-1.0, -2.0], [], [-1.0]]
    assert [len(each) for each in stream.score(["", ""])] == [0, 0]


class Stream(LanguageModel):
    """log p is -1 where a text begins, -2 elsewhere."""

    context_size, vocabulary_size, normalized = 1, 3, False

    def log_dist(self, contexts: IntArray) -> FloatArray:
        return np.repeat(np.where(contexts == 2, -1.0, -2.0), 3, axis=1)


@pytest.mark.parametrize("name", ["kn3", "hs", "mix"])
def test_a_run_needs_no_store(name: str, runs: Path, tmp_path: Path) -> None:
    want = package.load(runs / name).predict("the cat", 3)
    shutil.copytree(runs, tmp_path / "copy", ignore=shutil.ignore_patterns("*.h5.lock"))
    for path in (tmp_path / "copy").glob("*/run.json"):
        saved = read_json(path, "-")
        saved["store"] = str(tmp_path / "copy" / "stores" / Path(saved["store"]).name)
        saved["members"] = [member.replace(str(runs), str(tmp_path / "copy")) for member in saved["members"]]
        write_json(path, saved)
    folder = tmp_path / "copy" / name
    assert package.load(folder).predict("the cat", 3) == want
    shutil.rmtree(tmp_path / "copy" / "stores")
    assert package.load(folder).predict("the cat", 3) == want


def test_what_cannot_be_loaded(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="device=tpu"):
        package.load(runs / "kn3", device="tpu")
    folder = Path(shutil.copytree(runs / "kn3", tmp_path / "run"))
    text = (folder / "vocabulary.txt").read_text()
    (folder / "vocabulary.txt").write_text(text.replace("cat\t", "cats\t"))
    with pytest.raises(UserError, match=r"vocabulary.txt is damaged, or of another run"):
        package.load(folder)
    loaded = package.load(runs / "kn3")
    for wrong in ({"top": 0}, {"oov": "skip"}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            loaded.predict("the", **wrong)
    for wrong in ({"count": 0}, {"length": 0}, {"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}, {"seed": -1}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            loaded.generate("the", **wrong)


def test_load_is_found_when_it_is_asked_for() -> None:
    assert package.load.__module__ == "lmtool.runs.load"
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        package.laod  # noqa: B018
    with pytest.raises(UserError, match="no run folder nowhere"):
        package.load("nowhere")

"""Lines without words: left out with a note, or sentences of `</s>` alone, as KenLM's query has them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from lmtool.config.data import BlankLines, Unit
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import preprocess, store_path
from lmtool.data.sources.base import SplitConfig, SplitUnit
from lmtool.data.text_form import TextEncoder, TextForm, split_of_text
from lmtool.data.tokenizer import TextBlock, line_ends
from lmtool.errors import UserError
from lmtool.ngram.files.arpa_model import arpa_model
from lmtool.ngram.files.arpa_read import read_arpa
from tests.conftest import RULES, Run, result
from tests.data.test_preprocess import text

BLANK = BlankLines.sentence
TEXT = b"a b\n\n \nb\n\n"


@pytest.mark.parametrize(
    ("unit", "skip", "sentence"),
    [
        (Unit.word, ["a", "b", "</s>", "b", "</s>"], ["a", "b", "</s>", "</s>", "</s>", "b", "</s>", "</s>"]),
        (
            Unit.char,  # a line of a space alone is empty, too
            [*"a b", "</s>", "b", "</s>"],
            [*"a b", "</s>", "</s>", " ", "</s>", "b", "</s>", "</s>"],
        ),
    ],
)
def test_text_of_every_kind(
    unit: Unit, skip: list[str], sentence: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train.txt", "valid.txt"):
        Path(name).write_bytes(TEXT)
    for settings, want, notes in (
        (text(), skip, ["skipped 6 empty lines"]),
        (text(blank_lines=BLANK), sentence, []),
    ):
        data = replace(settings, vocabulary=replace(RULES, unit=unit))
        prepared = preprocess(data, "stores", progress=False)
        with Corpus.open(prepared.path) as corpus:
            split, vocabulary = corpus.split("train"), corpus.vocabulary
        assert [vocabulary.words[k] for k in split.ids] == want and prepared.notes == notes
        assert split.offsets.tolist() == [0, *(k + 1 for k, word in enumerate(want) if word == "</s>")]
        blank = data.takes_blank_lines()
        form = TextForm(vocabulary, unit, blank_lines=blank)
        scored, skipped = split_of_text([TEXT], "text", form)
        assert scored.ids.tolist() == split.ids.tolist() and skipped == (0 if blank else 3)
        texts = TextEncoder(form)(TextBlock(TEXT, line_ends(TEXT)))
        assert texts.split.ids.tolist() == split.ids.tolist()
    assert store_path(text(), Path()) == store_path(
        text(blank_lines=BlankLines.skip), Path()
    )  # stores keep their names
    with pytest.raises(UserError, match=r"data\.blank_lines=sentence: data\.sentences=false has no sentences"):
        text(blank_lines=BLANK, sentences=False)


def test_a_cut_by_lines_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_bytes(b"a\n\nb\n\nc\n\n")
    for blank, want in ((BlankLines.skip, [1, 1, 1]), (BLANK, [1, 1, 4])):
        data = text(valid=None, split=SplitConfig(SplitUnit.lines, 1, 1, None), blank_lines=blank)
        rows = preprocess(data, "stores", progress=False).rows
        assert [row["sentences"] for row in rows] == want


ARPA = """\\data\\
ngram 1=5

\\1-grams:
-99 <s>
-1 </s>
-2 <unk>
-0.5 a
-0.25 b

\\end\\
"""


def test_eval_and_score_as_kenlm(lmtool: Run) -> None:
    Path("a.arpa").write_text(ARPA)
    Path("text.txt").write_bytes(TEXT)
    said = lmtool("eval", "arpa=a.arpa", "text=text.txt", "hydra.run.dir=skip")
    assert "note: skipped 3 empty lines; blank_lines=sentence scores the </s> of each, as KenLM does" in said
    assert (result("skip")["tokens"], result("skip")["log_prob"]) == (5, pytest.approx(-3 * math.log(10)))
    assert "empty lines" not in lmtool(
        "eval", "arpa=a.arpa", "text=text.txt", "blank_lines=sentence", "hydra.run.dir=sentence"
    )
    assert (result("sentence")["tokens"], result("sentence")["log_prob"]) == (8, pytest.approx(-6 * math.log(10)))
    for how, tokens in (("skip", [3, 0, 0, 2, 0]), ("sentence", [3, 1, 1, 2, 1])):
        lmtool("score", "arpa=a.arpa", "text=text.txt", f"blank_lines={how}", f"to={how}.tsv")
        lines = Path(f"{how}.tsv").read_text().splitlines()
        assert [int(line.split("\t")[lines[0].split("\t").index("tokens")]) for line in lines[1:]] == tokens


@pytest.mark.parametrize("kind", ["ngram", "nplm"])
def test_a_model_trained_on_them(kind: str, lmtool: Run) -> None:
    Path("t.txt").write_bytes(b"a b\n\nb a\n\n\n" * 4)
    small = ["model.order=2"] if kind == "ngram" else ["training.epochs=1", "model.hidden_dim=4"]
    data = ["data=text", "data.train=t.txt", "data.valid=t.txt", "data.blank_lines=sentence"]
    lmtool("train", f"model={kind}", *small, *data, "hydra.run.dir=run")
    lmtool("eval", "run=run", "split=valid", "hydra.run.dir=split")
    lmtool("eval", "run=run", "text=t.txt", "hydra.run.dir=text")  # as the run's data
    assert result("split")["tokens"] == result("text")["tokens"] == 4 * 9
    lmtool("eval", "run=run", "text=t.txt", "blank_lines=skip", "hydra.run.dir=skip")
    assert result("skip")["tokens"] == 4 * 6


def test_marks_of_sentences_that_an_arpa_file_lacks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def words(text: str) -> list[str]:
        caplog.clear()
        (tmp_path / "a.arpa").write_text(text)
        arpa_model(str(tmp_path / "a.arpa"))
        return read_arpa(str(tmp_path / "a.arpa")).words

    assert words(ARPA.replace("<unk>", "<UNK>")) == ["<s>", "</s>", "<unk>", "a", "b"] and not caplog.text
    without_bos = ARPA.replace("-99 <s>\n", "").replace("1=5", "1=4")
    assert words(without_bos) == ["</s>", "<unk>", "a", "b"]
    assert "a.arpa has no <s>, which KenLM refuses: a sentence begins without a context" in caplog.text
    assert words(without_bos.replace("-1 </s>\n", "").replace("1=4", "1=3")) == ["<unk>", "a", "b"]
    assert "has no <s> and no </s>, which KenLM refuses: its text is one stream without sentences" in caplog.text
    for upper, marks in ((ARPA.replace("<s>", "<S>"), "<S>"), (ARPA.replace("s>", "S>"), "<S> and </S>")):
        with pytest.raises(
            UserError, match=rf"a\.arpa has {marks}, which are words like any other: write <s> and </s>"
        ):
            words(upper)

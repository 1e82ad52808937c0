"""Surprisals of letters in lines that begin and end in spaces: the text is that of a store and of score."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import lmtool as lm
from lmtool.config.data import Unit, WordRule
from lmtool.data.text_form import TextForm
from lmtool.data.vocabulary import Vocabulary
from lmtool.data.word_rows import read_word_rows, rows_of_table
from lmtool.evaluation.surprisal import score_words
from lmtool.evaluation.text_scores import ScoringModel
from tests.commands.test_surprisal import Bigrams
from tests.conftest import Run, result

LETTERS = ["</s>", " ", "a", "b", "<unk>", "<s>"]
END, SPACE, A, B = range(4)
START = 5
P = np.array(
    [
        [0.5, 0.2, 0.2, 0.1, 0, 0],
        [0.3, 0.1, 0.4, 0.2, 0, 0],
        [0.1, 0.5, 0.1, 0.3, 0, 0],
        [0.2, 0.6, 0.1, 0.1, 0, 0],
        [0.25, 0.25, 0.25, 0.25, 0, 0],
        [0.05, 0.75, 0.1, 0.1, 0, 0],
    ]
)
FORM = TextForm(Vocabulary(tuple(LETTERS), np.ones(6, dtype=np.int64), 0, 4), Unit.char)
LETTER_MODEL = ScoringModel(Bigrams(P + 1e-300), FORM, "letters")


def nats(*path: int) -> float:
    """-log p of a path of letters."""
    return -sum(math.log(P[before, after]) for before, after in pairwise(path))


def ends(*contexts: int) -> float:
    """Return the sum over contexts of log p that white space or the end follows."""
    return sum(math.log(P[before, SPACE] + P[before, END]) for before in contexts)


def test_white_space_of_lines_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_bytes(b" a  b \r\n\nb a\n")
    rows = read_word_rows(["t.txt"], None, None, None, None)
    assert rows.words == ["a", "b", "b", "a"]
    dropped, added = (score_words(LETTER_MODEL, rows, WordRule.whitespace, add_end=add) for add in (False, True))
    first = nats(START, SPACE, A) - ends(A) + ends(START)
    second = nats(A, SPACE, SPACE, B) - ends(B) + ends(A)
    letter_first = nats(START, B) - ends(B) + math.log(P[START, A] + P[START, B] + P[START, END])
    last = nats(B, SPACE, A) - ends(A) + ends(B)
    assert dropped.surprisal.tolist() == pytest.approx([first, second, letter_first, last])
    assert dropped.tokens == [[" ", "a"], [" ", " ", "b"], ["b"], [" ", "a"]]
    end = nats(B, SPACE, END) + ends(B)  # the space after the last word, and the end
    assert added.surprisal.tolist() == pytest.approx([first, second + end, letter_first, last + nats(A, END) + ends(A)])
    whole = nats(START, SPACE, A, SPACE, SPACE, B, SPACE, END)
    assert added.surprisal[:2].sum() == pytest.approx(whole + ends(START))
    assert dropped.odd_starts == 1, "a line of this model begins with a space"
    table = rows_of_table({"word": ["a", "b"]}, "t")
    assert score_words(LETTER_MODEL, table, WordRule.whitespace).odd_starts == 1


def test_surprisal_and_score_agree(lmtool: Run) -> None:
    Path("train.txt").write_text(" ab ba \n b a \n aa b \n" * 5)
    Path("t.txt").write_text(" ab a \n b  ba \n")
    data = ["data=text", "data.train=train.txt", "data.vocabulary.unit=char"]
    lmtool("train", "model=ngram", "model.order=4", "smoother=witten_bell", *data, "hydra.run.dir=run")
    lmtool("score", "run=run", "text=t.txt", "to=s.tsv")
    total = -sum(float(line.split("\t")[-2]) for line in Path("s.tsv").read_text().splitlines()[1:])
    lmtool("eval", "run=run", "text=t.txt", "hydra.run.dir=eval")
    assert total == pytest.approx(-result("eval")["log_prob"], abs=1e-3)
    asked = {"unit": "nats", "end_of_sentence": "add_to_last"}
    model = lm.load("run")
    start = model.log_dist(model.context(np.empty(0, dtype=np.int64))[None])[0]
    spaces = sum(math.exp(start[model.vocabulary.ids[word]]) for word in (" ", "</s>"))
    assert spaces > 0.9
    for text in (Path("t.txt"), [" ab a ", " b  ba "]):
        found = lm.surprisal("run", text, **asked)
        assert found["surprisal_nats"].sum() == pytest.approx(total + 2 * math.log(spaces), abs=1e-3)
    said = lmtool("surprisal", "run=run", "text=t.txt")
    assert "was trained on" not in said
    Path("bare.txt").write_text("ab a\nb  ba\n")
    said = lmtool("surprisal", "run=run", "text=bare.txt")
    assert "2 of 2 sentences begin as few training lines of run do (with or without leading white space)" in said

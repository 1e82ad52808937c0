"""Cloze questions: what is read, what is refused, how they are scored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lmtool.data.cloze import read_cloze
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.evaluation.metrics import cloze_report

VOCABULARY = Vocabulary(("a", "b", "c", "</s>", "<unk>", "<s>"), np.zeros(6, int), 3, 4)
QUESTIONS = "Q a b c\nC b a\nQ c d a\nC a b c\nQ a c b\nC c\n"


def written(folder: Path, text: str, answers: str | None = None) -> tuple[str, str | None]:
    (folder / "q.txt").write_text(text)
    if answers is not None:
        (folder / "a.csv").write_text(answers)
    return str(folder / "q.txt"), None if answers is None else str(folder / "a.csv")


def test_reads_questions(tmp_path: Path) -> None:
    cloze = read_cloze(*written(tmp_path, QUESTIONS, "ID,1,2,3\n1,1,0,0\n2,1,0,0\n3,0,1,0\n"), VOCABULARY)
    assert cloze.candidates.tolist() == [[0, 1, 2], [2, 4, 0], [0, 2, 1]]
    assert cloze.answers.tolist() == [0, 0, 1]
    # The sentences before the words in question: "b", "a b", and nothing.
    assert cloze.contexts_matrix(3, 5).tolist() == [[5, 5, 1], [5, 0, 1], [5, 5, 5]]
    assert cloze.contexts_matrix(1, 5).tolist() == [[1], [1], [5]]
    blank = read_cloze(*written(tmp_path, "Q a b\nC b _1_\n"), VOCABULARY)
    assert blank.answers.tolist() == [-1] and blank.contexts_matrix(2, 5).tolist() == [[5, 1]]


@pytest.mark.parametrize(
    ("text", "answers", "said"),
    [
        ("Q a b\nQ a b\n", None, "line 2: should begin with C"),
        ("Q a b\nC a\nQ a b c\nC a\n", None, "line 3: 3 candidates, others 2"),
        ("Q a b\nC c\n", None, "line 2: 'c' is not one of the candidates"),
        ("Q a b\n", None, "cut off"),
        ("Q a b\nC a\n\n", None, "line 3: should begin with Q"),
        ("Q a b\nC a\n", "ID,1,2\n1,0,1\n", "line 2: 'b', but .* has 'a'"),
        ("Q a b\nC a\n", "ID,1,2\n1,1,1\n", "line 2: should be a number and 2 classes"),
        ("Q a b\nC a\n", "ID,1,2\n", "answers 0 questions, there are 1"),
        ("Q a b\nC a\nQ a b\nC b\n", "ID,1,2\n1,1,0\u20282,0,1\n", "row 1: 5 cells, but the header has 3"),
    ],
)
def test_bad_questions(text: str, answers: str | None, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        read_cloze(*written(tmp_path, text, answers), VOCABULARY)


def test_answers_of_a_spreadsheet(tmp_path: Path) -> None:
    for mark in (";", "\t"):
        table = "\ufeffID,1,2,3\r\n1,1,0,0\r\n2,1,0,0\r\n3,0,1,0\r\n".replace(",", mark)
        assert read_cloze(*written(tmp_path, QUESTIONS, table), VOCABULARY).answers.tolist() == [0, 0, 1]


def test_words_are_cut_as_the_text_is(tmp_path: Path) -> None:
    spaced = Vocabulary(("a\u00a0b", "b", "</s>", "<unk>", "<s>"), np.zeros(5, int), 2, 3)
    cloze = read_cloze(*written(tmp_path, "Q a\u00a0b b\r\nC b\u2028 a\u00a0b\r\n"), spaced)
    assert cloze.candidates.tolist() == [[0, 1]] and cloze.answers.tolist() == [0]
    assert cloze.context_ids.tolist() == [3]


def test_scores_renormalized_over_the_candidates() -> None:
    # p 0.1 and 0.3 of the candidates become 1/4 and 3/4; 0.2 and 0.2 become halves: perplexity 1 / sqrt(1/4 * 1/2).
    log_prob = np.log(np.array([[0.1, 0.3], [0.2, 0.2]]))
    found = cloze_report(log_prob, np.array([0, 0]))
    assert found["perplexity"] == pytest.approx(8**0.5) and found["questions"] == 2
    assert found["accuracy"] == 0.5
    with pytest.raises(UserError, match="without their answers"):
        cloze_report(log_prob, np.array([0, -1]))

"""Cloze questions as the course CS287 set them (HW3, 2016): which of 50 words comes next?

Two lines a question: `Q` and the candidates, then `C` and the words of the sentence before the blank; the
test file has `_1_` where the blank is. The answers are a CSV with a row a question and a 1 in the column of the
right candidate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lmtool.data.readers import read_text
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.model import IntArray


@dataclass(frozen=True, slots=True)
class Cloze:
    """Q questions with K candidates each.

    context_ids: the words before the blanks, one question after the other; context_offsets: `[Q + 1]`.
    candidates: `[Q, K]`. answers: `[Q]`, the place of the right candidate, -1 where it is not known.
    """

    context_ids: IntArray
    context_offsets: IntArray
    candidates: IntArray
    answers: IntArray

    def contexts_matrix(self, size: int, bos: int) -> IntArray:
        """The last `size` words before each blank, `[Q, size]`, with `<s>` in front of the sentence's first."""
        ends = self.context_offsets[1:, None]
        where = ends - np.arange(size, 0, -1)  # [Q, size]
        inside = where >= self.context_offsets[:-1, None]
        padded = np.append(self.context_ids, bos)
        return padded[np.where(inside, where, -1)]


def read_cloze(questions: str, answers: str | None, vocabulary: Vocabulary, lowercase: bool) -> Cloze:
    """Read a file of questions and, where there is one, its file of answers.

    Raises UserError, naming file and line, where a line is not as it should be.
    """
    contexts: list[IntArray] = []
    candidates: list[IntArray] = []
    for number, line in enumerate(read_text(questions).splitlines(), start=1):
        words = (line.lower() if lowercase else line).split()
        wanted = "Q" if number % 2 else "C"
        if line[:1] != wanted:
            raise UserError(f"{questions}, line {number}: should begin with {wanted} (Q and C lines alternate)")
        ids = vocabulary.encode(words[1:-1] if words[-1] == "_1_" else words[1:])
        if wanted == "C":
            contexts.append(ids)
        elif candidates and len(ids) != len(candidates[0]):
            raise UserError(f"{questions}, line {number}: {len(ids)} candidates, the others {len(candidates[0])}")
        else:
            candidates.append(ids)
    if len(contexts) != len(candidates):
        raise UserError(f"{questions} ends after a Q line: the file is cut off")
    offsets = np.cumsum([0, *(len(ids) for ids in contexts)])
    found = np.full(len(contexts), -1, dtype=np.int64)
    if answers is not None:
        found = _read_answers(answers, len(contexts), len(candidates[0]))
    return Cloze(np.concatenate(contexts), offsets, np.stack(candidates), found)


def _read_answers(path: str, questions: int, candidates: int) -> IntArray:
    rows = [line.split(",") for line in read_text(path).splitlines()[1:]]
    if len(rows) != questions:
        raise UserError(f"{path} answers {len(rows)} questions, there are {questions}")
    found = np.empty(questions, dtype=np.int64)
    for k, row in enumerate(rows):
        if len(row) != candidates + 1 or sorted(row[1:]) != ["0"] * (candidates - 1) + ["1"]:
            raise UserError(f"{path}, line {k + 2}: should be a number and {candidates} classes, one of them 1")
        found[k] = row[1:].index("1")
    return found

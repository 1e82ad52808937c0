"""Read cloze questions in the format of the course CS287 (HW3, 2016): which of 50 words comes next?

Two lines per question: `Q` and the candidates, then `C` and the sentence up to the missing word, which is its last
word, or `_1_`, `_2_` and so on if the answer is not given. A CSV has the answers too, one row per question with a 1 in
the right column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from lmtool.data.readers import read_text
from lmtool.data.tables import cells_of
from lmtool.data.text_rules import UNCHANGED, TextRules
from lmtool.data.tokenizer import split_words
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.system.arrays import IntArray

BLANK = re.compile(r"_\d+_")


@dataclass(frozen=True, slots=True)
class Cloze:
    """Q questions with K candidates each.

    context_ids: the words before the blanks, concatenated over questions. context_offsets: `[Q + 1]`, the start of each
    question's words. candidates: `[Q, K]`, ids. answers: `[Q]`, the column of the right candidate, -1 if unknown. All
    are int64.
    """

    context_ids: IntArray
    context_offsets: IntArray
    candidates: IntArray
    answers: IntArray

    def contexts_matrix(self, size: int | None, bos: int) -> IntArray:
        """Return the last `size` words before each blank (None: all), int64 `[Q, size]`, left-padded with `bos`."""
        if size is None:
            size = int(np.diff(self.context_offsets).max(initial=0)) + 1
        ends = self.context_offsets[1:, None]
        where = ends - np.arange(size, 0, -1)  # [Q, size]
        inside = where >= self.context_offsets[:-1, None]
        padded = np.append(self.context_ids, bos)
        return padded[np.where(inside, where, -1)]


def unk_sharers(candidates: IntArray, unk: int) -> IntArray:
    """Return how many candidates of a question share the probability of each, `[Q, K]`: those that are `<unk>`."""
    oov = candidates == unk
    return np.where(oov, oov.sum(axis=1, keepdims=True), 1)


def read_cloze(questions: str, answers: str | None, vocabulary: Vocabulary, rules: TextRules = UNCHANGED) -> Cloze:
    """Read a file of questions; with a file of answers, check that they agree. rules: the rules of the text."""
    lines = rules(read_text(questions).removesuffix("\n")).split("\n")
    contexts: list[IntArray] = []
    candidates: list[IntArray] = []
    choices: list[list[str]] = []
    answered: list[str] = []
    for number, line in enumerate(lines, start=1):
        mark, *words = split_words(line) or [""]
        expected = "Q" if number % 2 else "C"
        if mark.upper() != expected or not words:
            raise UserError(f"{questions}, line {number}: should begin with {expected} (Q and C lines alternate)")
        if expected == "Q":
            choices.append(words)
            if candidates and len(words) != len(candidates[0]):
                raise UserError(f"{questions}, line {number}: {len(words)} candidates, others {len(candidates[0])}")
            candidates.append(vocabulary.encode(words))
        else:
            *before, answer = words
            if not BLANK.fullmatch(answer) and answer not in choices[-1]:
                raise UserError(f"{questions}, line {number}: {answer!r} is not one of the candidates")
            contexts.append(vocabulary.encode(before))
            answered.append(answer)
    if len(contexts) != len(candidates) or not contexts:
        raise UserError(f"{questions} ends after a Q line: the file is cut off")
    if answers is None:
        pairs = zip(answered, choices, strict=True)
        places = [-1 if BLANK.fullmatch(word) else words.index(word) for word, words in pairs]
    else:
        places = _read_answers(answers, len(contexts), len(candidates[0]))
        for number, (word, words, place) in enumerate(zip(answered, choices, places, strict=True), start=2):
            if word != words[place] and not BLANK.fullmatch(word):
                raise UserError(f"{answers}, line {number}: {words[place]!r}, but {questions} has {word!r}")
    offsets = np.cumsum([0, *(len(ids) for ids in contexts)])
    return Cloze(np.concatenate(contexts), offsets, np.stack(candidates), np.array(places, dtype=np.int64))


def _read_answers(path: str, questions: int, candidates: int) -> list[int]:
    rows = cells_of(read_text(path), path)[1]
    if len(rows) != questions:
        raise UserError(f"{path} answers {len(rows)} questions, there are {questions}")
    columns: list[int] = []
    for k, row in enumerate(rows):
        if len(row) != candidates + 1 or sorted(row[1:]) != ["0"] * (candidates - 1) + ["1"]:
            raise UserError(f"{path}, line {k + 2}: should be a number and {candidates} classes, one of them 1")
        columns.append(row[1:].index("1"))
    return columns

"""Cloze questions of a split, for the commands that score models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lmtool.data.cloze import Cloze
from lmtool.data.corpus import Corpus
from lmtool.evaluation.score import cloze_report, save_cloze
from lmtool.language_model import FloatArray

CLOZE_FILE = "cloze.csv"


def score_questions(
    corpus: Corpus, split: str, out: Path, score: Callable[[Cloze], FloatArray]
) -> dict[str, float] | None:
    """Ask the questions of a split, write the competition's CSV, and report where the answers are known.

    score: gives the log-probabilities `[Q, K]` of the candidates.
    """
    questions = corpus.cloze(split)
    if questions is None:
        return None
    log_prob = score(questions)
    save_cloze(out / CLOZE_FILE, log_prob)
    print(f"{len(log_prob):,} cloze questions: the probabilities are in {out / CLOZE_FILE}")
    if (questions.answers < 0).any():
        return None
    return cloze_report(log_prob, questions.answers)


def only_questions(corpus: Corpus, split: str) -> bool:
    """Whether a split has questions and no text, as the test of CS287 HW3."""
    return split not in corpus.splits and corpus.cloze(split) is not None

"""Cloze questions (CS287 HW3): which of K candidates stood in the gap after a context?

The probabilities of a question's candidates are renormalised over them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from lmtool.data.cloze import Cloze
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.evaluation.score import perplexity
from lmtool.language_model import FloatArray, IntArray, LanguageModel
from lmtool.system.files import written_whole

CLOZE_FILE = "cloze.csv"
CHUNK = 1024  # questions that are scored at once


def score_questions(
    corpus: Corpus, split: str, out: Path, score: Callable[[Cloze], FloatArray]
) -> dict[str, float] | None:
    """Score the questions of a split, write them as the competition's CSV, and report where the answers are known.

    score: gives the log-probabilities `[Q, K]` of the candidates. None for a split without questions or answers.
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
    """Whether a split has questions and no text, as test has in CS287 HW3."""
    return split not in corpus.splits and corpus.cloze(split) is not None


def cloze_log_prob(model: LanguageModel, cloze: Cloze, bos: int) -> FloatArray:
    """Log-probabilities `[Q, K]` of the candidates of all questions, not renormalised. bos: the id of `<s>`."""
    contexts: IntArray = cloze.contexts_matrix(model.context_size, bos)
    log_probs = [
        model.log_prob_candidates(contexts[first : first + CHUNK], cloze.candidates[first : first + CHUNK])
        for first in range(0, len(contexts), CHUNK)
    ]
    return np.concatenate(log_probs)


def cloze_report(log_prob: FloatArray, answers: IntArray) -> dict[str, float]:
    """The number of questions, the perplexity of the answers, and accuracy: the share of answers that are most likely.

    log_prob: `[Q, K]`. answers: `[Q]`, the place of the answer among the candidates. A candidate that stands among them
    several times counts each time, as in the course's own scoring. Raises UserError where an answer is not known (-1).
    """
    if (answers < 0).any():
        raise UserError("the cloze questions of this split come without their answers: nothing to score")
    renormalised = over_candidates(log_prob)
    return {
        "questions": len(answers),
        "perplexity": perplexity(renormalised[np.arange(len(answers)), answers]),
        "accuracy": float((renormalised.argmax(axis=1) == answers).mean()),
    }


def over_candidates(log_prob: FloatArray) -> FloatArray:
    """Log-probabilities `[Q, K]` renormalised over the K candidates; uniform where all of them are -inf."""
    largest = log_prob.max(axis=1, keepdims=True)
    shifted = np.where(np.isneginf(largest), 0.0, log_prob - np.where(np.isneginf(largest), 0.0, largest))
    renormalised: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return renormalised


def save_cloze(path: Path, log_prob: FloatArray) -> None:
    """Write the competition's CSV: for each question its number, from 1, and the probabilities of its candidates.

    log_prob: `[Q, K]`. Raises UserError where the file cannot be written.
    """
    p = np.exp(over_candidates(log_prob))
    rows = [f"{k},{','.join(f'{value:.9g}' for value in row)}" for k, row in enumerate(p.tolist(), start=1)]
    header = ",".join(["ID", *(f"Class{k}" for k in range(1, p.shape[1] + 1))])
    with written_whole(path) as temporary:
        temporary.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")

"""Metrics of a model on a split: perplexity, accuracy, log Z; cloze questions; whether its contexts cross sentences.

Cloze questions (CS287 HW3) ask which of K candidates stood in the gap after a context. The probabilities of a
question's candidates are renormalized over them. Candidates outside the vocabulary are one word to a model: they share
p(<unk>) equally.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from lmtool.data.cloze import Cloze, unk_sharers
from lmtool.data.corpus import Corpus
from lmtool.data.split import Split
from lmtool.data.table_writer import write_table
from lmtool.data.vocabulary import UNK, Vocabulary
from lmtool.errors import UserError
from lmtool.evaluation.token_scores import Tokens, TokenScores
from lmtool.language_model import LanguageModel
from lmtool.system.arrays import LN10, FloatArray, IntArray, in_chunks, rows_at_once
from lmtool.system.terminal import token_bar

CLOZE_FILE = "cloze.csv"
OVER_CANDIDATES = "over=candidates is of the cloze results alone: members were renormalized over candidates, then mixed"
QUESTIONS_PER_CHUNK = 1024  # questions scored at once
LEAST_UNK = -90 * LN10  # log p; KenLM's module gives 1e-99 or 1e-100 and back-off weights instead of 0
DISTS_PER_CHUNK = 256  # whole distributions computed at once
READ_ALONE = "each line was read alone; across_sentences=true reads the lines as one text"
NEAR = "p is of a word anywhere near, as of skip-gram, not of the next word: compare such models of one window alone"
DYNAMIC = "a dynamic model: it learns from the text as it reads it; compare it with dynamic models"


def require_across(model: LanguageModel, vocabulary: Vocabulary, name: str) -> None:
    """Raise UserError if a model cannot continue from one sentence to the next."""
    if vocabulary.sentences and not model.across_sentences:
        raise UserError(
            f"across_sentences=true: {name} reads single sentences; leave it out, or take a network that was trained "
            "with model.across_sentences=true"
        )


def require_no_cache(model: LanguageModel, name: str) -> None:
    """Raise UserError for a model with a cache, because the scores of texts would depend on their order."""
    if model.dynamic:
        raise UserError(
            f"{name} has a cache, which learns from the texts before: their scores would depend on their order; take "
            "the mixture without it"
        )


def gives_unk(model: LanguageModel, vocabulary: Vocabulary) -> bool:
    """Return whether a model gives `<unk>` a probability, at the beginning of a sentence or after `<unk>`."""
    if model.dynamic:
        return True
    size = 1 if model.context_size is None else model.context_size
    contexts = np.repeat(np.array([[vocabulary.bos], [vocabulary.unk]]), size, axis=1)
    return bool((model.log_prob(contexts, np.full(2, vocabulary.unk)) > LEAST_UNK).any())


def with_unk_as_oov(text: Split, model: LanguageModel, vocabulary: Vocabulary) -> Split:
    """Return a text whose `<unk>` are OOVs, as in SRILM, if a model gives `<unk>` no probability; else the text."""
    places = np.flatnonzero(text.ids == vocabulary.unk)
    if len(places) == len(text.oov_positions) or gives_unk(model, vocabulary):
        return text
    words = dict(zip(text.oov_positions.tolist(), text.oov_words or (), strict=False))
    named = [words.get(place, UNK) for place in places.tolist()]
    return replace(text, oov_positions=places, oov_words=None if text.oov_words is None else named)


def reads_across(model: LanguageModel, split: Split) -> bool | None:
    """Return whether contexts cross the sentences of a split; None for a model that reads single sentences."""
    return not split.independent_sentences if model.across_sentences else None


def scores_by(
    model: LanguageModel,
    split: Split,
    tokens: Tokens,
    name: str,
    fitted: tuple[str, ...],
    progress: bool = False,
    log_prob: FloatArray | None = None,
) -> TokenScores:
    """Return a model's scores of a text and their properties. log_prob: the scores, if they are already known."""
    log_prob = model.score_text(split, progress=progress) if log_prob is None else log_prob
    about = model.normalized, split.characters, split.words, fitted, bool(reads_across(model, split)), model.dynamic
    return TokenScores(log_prob, tokens, name, *about)


def split_accuracy(model: LanguageModel, split: Split, *, tokens: int | None = None, progress: bool = False) -> float:
    """Return the share of a split's tokens, or its first `tokens`, that are the most likely word in their context."""
    hits, tokens = 0, split.tokens if tokens is None else tokens
    size = rows_at_once(model.vocabulary_size, DISTS_PER_CHUNK) if model.in_order else 4096
    with token_bar(tokens, shown=progress) as bar:
        for part in in_chunks(tokens, size):
            if model.in_order:
                most_likely = model.log_dist_text(split, part.start, part.stop)[:, :-1].argmax(axis=1)
            else:
                most_likely = model.argmax(model.contexts_of(split, np.arange(part.start, part.stop))[0])
            hits += int((most_likely == split.ids[part]).sum())
            bar.update(part.stop - part.start)
    return hits / tokens


def log_z(model: LanguageModel, split: Split, max_contexts: int = 8192) -> dict[str, float] | None:
    """Return mean and standard deviation of log Z, in nats, over evenly spread contexts of a self-normalized model."""
    if not model.self_normalized:
        return None
    index = np.unique(np.linspace(0, split.tokens - 1, min(max_contexts, split.tokens)).astype(np.int64))
    sums = model.log_z(model.contexts_of(split, index)[0])
    return {"contexts": len(index), "mean": float(sums.mean()), "std": float(sums.std())}


def perplexity(log_prob: FloatArray) -> float:
    """Return exp(-mean log p) of natural log-probabilities `[N]`, summed in float64; inf if one of them is -inf."""
    with np.errstate(over="ignore"):
        return float(np.exp(-log_prob.mean(dtype=np.float64)))


def score_questions(
    model: LanguageModel,
    corpus: Corpus,
    split: str,
    out: Path,
    say: Callable[[str], None],
    note: Callable[[str], None],
) -> dict[str, float] | None:
    """Score the questions of a split, if any, write the competition's CSV, and return a report if answers are known.

    It has the entries of cloze_report, the number of candidates that share p(<unk>), and of answers among them.
    """
    questions = corpus.cloze(split)
    if questions is None:
        return None
    log_prob, sharers = _shared_log_prob(model, questions, corpus.vocabulary)
    save_cloze(out / CLOZE_FILE, log_prob)
    say(f"{len(log_prob):,} cloze questions: the probabilities are in {out / CLOZE_FILE}")
    if model.over_candidates:
        note(OVER_CANDIDATES)
    oov, has_answers = sharers > 1, (questions.answers >= 0).all()
    answers = int(oov[np.arange(len(oov)), questions.answers].sum()) if has_answers else 0
    if oov.any():
        among = f", {answers:,} of them the answer" if has_answers else ""
        note(
            f"{oov.sum():,} of the {oov.size:,} candidates, out of vocabulary like others of their question, "
            f"share p(<unk>) equally with these{among}"
        )
    if not has_answers:
        note(f"the answers of split={split} are not given: its questions have no perplexity and no accuracy")
        return None
    return cloze_report(log_prob, questions.answers) | {"oov_candidates": int(oov.sum()), "oov_answers": answers}


def cloze_results(model: LanguageModel, corpus: Corpus, split: str) -> dict[str, float] | None:
    """Return the report of the questions of a split, as of cloze_report; None if it has none with answers."""
    questions = _answered_questions(corpus, split)
    if questions is None:
        return None
    return cloze_report(_shared_log_prob(model, questions, corpus.vocabulary)[0], questions.answers)


def require_questions(corpus: Corpus, split: str, setting: str) -> Cloze:
    """Return the questions of a split. Raises UserError, naming the setting, unless it has some with answers."""
    questions = _answered_questions(corpus, split)
    if questions is None:
        raise UserError(f"{setting}: {corpus.name} has no questions with answers for {split}")
    return questions


def _answered_questions(corpus: Corpus, split: str) -> Cloze | None:
    questions = corpus.cloze(split)
    return None if questions is None or (questions.answers < 0).any() else questions


def _shared_log_prob(model: LanguageModel, questions: Cloze, vocabulary: Vocabulary) -> tuple[FloatArray, IntArray]:
    """Return log p of the candidates `[Q, K]`, and how many share that of each."""
    sharers = unk_sharers(questions.candidates, vocabulary.unk)
    return cloze_log_prob(model, questions, vocabulary.bos) - np.log(sharers), sharers


def only_questions(corpus: Corpus, split: str) -> bool:
    """Return whether a split has questions and no text, as test in CS287 HW3."""
    return split not in corpus.splits and corpus.cloze(split) is not None


def cloze_log_prob(model: LanguageModel, cloze: Cloze, bos: int) -> FloatArray:
    """Return log p `[Q, K]` of the candidates of all questions, log p(<unk>) for each one outside the vocabulary."""
    contexts: IntArray = cloze.contexts_matrix(model.context_size, bos)
    chunks = in_chunks(len(contexts), QUESTIONS_PER_CHUNK)
    return np.concatenate([model.log_prob_choices(contexts[chunk], cloze.candidates[chunk]) for chunk in chunks])


def with_one_unk(log_prob: FloatArray, cloze: Cloze, unk: int) -> tuple[FloatArray, IntArray]:
    """Return log-probabilities `[M, Q, K]` with p(<unk>) only at the first candidate outside the vocabulary, and the
    positions of the answers `[Q]`; an answer outside the vocabulary has the position of that first candidate.

    The answers' log-probabilities differ from the shared ones by constants: weights fitted on either are the same.
    """
    oov = cloze.candidates == unk
    first = oov.argmax(axis=1)
    others = oov & (np.arange(oov.shape[1]) != first[:, None])
    answers = np.where(oov[np.arange(len(oov)), cloze.answers], first, cloze.answers)
    return np.where(others, -np.inf, log_prob), answers


def cloze_report(log_prob: FloatArray, answers: IntArray) -> dict[str, float]:
    """Return the number of questions, the perplexity of the answers, and the share of them that are most likely.

    An answer that is as likely as t-1 others, and less likely than none, counts as 1/t, the expectation of a random
    choice. log_prob: `[Q, K]`. answers: `[Q]`, the position of the answer among the candidates, or -1. A candidate that
    is listed several times counts each time, as in the course's scoring.
    """
    if (answers < 0).any():
        raise UserError("the cloze questions of this split come without their answers: nothing to score")
    rows, best = np.arange(len(answers)), log_prob == log_prob.max(axis=1, keepdims=True)
    return {
        "questions": len(answers),
        "perplexity": perplexity(log_softmax(log_prob)[rows, answers]),
        "accuracy": float((best[rows, answers] / best.sum(axis=1)).mean()),
    }


def log_softmax(log_prob: FloatArray) -> FloatArray:
    """Normalize scores `[Q, K]` over the K columns, in logarithms; a row of which all are -inf becomes uniform."""
    largest = log_prob.max(axis=1, keepdims=True)
    shifted = np.where(np.isneginf(largest), 0.0, log_prob - np.where(np.isneginf(largest), 0.0, largest))
    renormalized: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return renormalized


def save_cloze(path: Path, log_prob: FloatArray) -> None:
    """Write the competition's CSV: each question's number, from 1, and the probabilities of its candidates `[Q, K]`."""
    p = np.exp(log_softmax(log_prob))
    classes = {
        f"Class{k}": [f"{value:.9g}" for value in probabilities]
        for k, probabilities in enumerate(p.T.tolist(), start=1)
    }
    write_table({"ID": range(1, len(p) + 1), **classes}, str(path))

"""`lmtool distil`: a network or mixture, and an n-gram run -> an n-gram run with the probabilities of the former."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.config.model_verbs import DistilConfig
from lmtool.config.settings import plain_values
from lmtool.errors import UserError
from lmtool.results import TrainedRun
from lmtool.runs.run import Run
from lmtool.session import Session

if TYPE_CHECKING:
    import numpy.typing as npt

    from lmtool.data.split import Split
    from lmtool.language_model import LanguageModel
    from lmtool.ngram.models.ngram_model import NgramModel
    from lmtool.system.arrays import IntArray

PROBABILITIES_PER_CHUNK = 1 << 23  # in memory at once


def run(config: DistilConfig, session: Session) -> TrainedRun:
    """Distil a model into the n-grams of another one, and score valid."""
    from lmtool.commands._ngram_runs import Text, load_ngram_model, prune_to_size, save_ngram_run
    from lmtool.evaluation.metrics import perplexity
    from lmtool.ngram.estimation.distillation import ExpectedProbabilities, LikelyNgrams
    from lmtool.ngram.models.ngram_model import NgramModel
    from lmtool.runs.corpus import open_run_corpus, require_splits
    from lmtool.runs.load import load_model
    from lmtool.system.process import keep_freed_memory

    session.require_new()
    session.use_threads(config.threads)
    keep_freed_memory()
    start = time.perf_counter()
    teacher_run, like_run = Run.open(Path(config.run)), Run.open(Path(config.like))
    if teacher_run.vocabulary_fingerprint != like_run.vocabulary_fingerprint:
        raise UserError(f"{config.run} and {config.like} have different words: train them with the same data= settings")
    with open_run_corpus(teacher_run, config.store_dir, progress=session.progress) as corpus:
        require_splits(corpus)
        refusal = f"like={config.like} is not an n-gram model: name a run that has the n-grams of the new model"
        like = load_ngram_model(like_run, corpus.vocabulary, refusal)
        if not like.normalised:
            raise UserError(f"like={config.like} gives scores that do not sum to one: use another smoother")
        teacher = load_model(teacher_run, corpus.vocabulary, config.device)
        _require_teacher(teacher, config.run)
        train = corpus.split("train")
        tokens = min(train.tokens, config.tokens or train.tokens)
        places = _Places(train, tokens, teacher, like, session.progress)
        table = like.table
        if config.likely is not None:
            gathered = LikelyNgrams(table, config.likely)
            places.each(gathered.add)
            table = gathered.extended()
        expected = ExpectedProbabilities(table)
        places.each(expected.add)
        table = expected.distilled()
        if config.prune_to is not None:
            table = prune_to_size(config.prune_to, table, corpus.vocabulary.eos, session)
        model = NgramModel(table, corpus.vocabulary)
        valid = corpus.split("valid")
        valid_perplexity = perplexity(model.log_prob_text(valid.ids, valid.offsets))
    seconds = time.perf_counter() - start
    result: dict[str, Any] = {
        "valid_perplexity": valid_perplexity,
        "examples": tokens,
        "examples_per_second": tokens / seconds,
    }
    result |= {"epochs": tokens / train.tokens, "seconds": seconds, "options": session.choices}
    save_ngram_run(session, plain_values(config), Text.of_run(like_run), model, result, teacher_run, like_run)
    session.say(f"valid perplexity {valid_perplexity:.4f}")
    saved = result | {"parameters": sum(model.table.sizes), "ngrams": model.table.sizes}
    return TrainedRun.of(session.out, saved, config.store_dir, session.notes)


@dataclass(frozen=True, slots=True)
class _Places:
    """The first `tokens` tokens of a text, as two models read them. shown: whether to show a bar."""

    train: Split
    tokens: int
    teacher: LanguageModel
    like: NgramModel
    shown: bool

    def each(self, take: Callable[[IntArray, npt.NDArray[Any]], None]) -> None:
        """Call `take` with the contexts `[N, n-1]` of the n-gram model and the teacher's p `[N, V]`, for all tokens in
        chunks.
        """
        import numpy as np

        from lmtool.system.terminal import token_bar

        rows = max(1, PROBABILITIES_PER_CHUNK // len(self.like.vocabulary))
        with token_bar(self.tokens, shown=self.shown) as bar:
            for first in range(0, self.tokens, rows):
                last = min(first + rows, self.tokens)
                places = np.arange(first, last)
                p = self.teacher.probabilities(self.teacher.contexts_of(self.train, places)[0])
                take(self.like.contexts_of(self.train, places)[0], p)
                bar.update(last - first)


def _require_teacher(model: LanguageModel, name: str) -> None:
    if model.dynamic:
        raise UserError(f"run={name} learns from the text as it reads it (a cache): mix the runs without a cache")
    if not model.normalised:
        raise UserError(f"run={name} gives scores that do not sum to one")

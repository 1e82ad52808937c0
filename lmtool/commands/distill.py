"""`lmtool distill`: a network or mixture, and an n-gram run -> an n-gram run with the probabilities of the former."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from lmtool import results
from lmtool.config.rules import MISSING, number_or_share, setting
from lmtool.config.verbs import VerbConfig, require_device
from lmtool.errors import UserError
from lmtool.session import Session
from lmtool.system.process import keep_freed_memory
from lmtool.system.terminal import token_bar

PROBABILITIES_PER_CHUNK = 1 << 23  # maximum number in memory at once


@dataclass(slots=True)
class Settings(VerbConfig):
    makes: ClassVar[str] = "run"

    run: str = MISSING
    ngrams_from: str = MISSING
    tokens: int | None = setting(min=1)
    top_k: int | None = setting(min=1, max=1000)  # more words per context would not fit into memory
    prune_to: Any = setting(check=number_or_share)
    device: str = setting(check=require_device)


def run(settings: Settings, session: Session) -> results.TrainedRun:
    """Distill a model into the n-grams of another one, and score valid.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> net = lmtool.train("nplm", corpus, training={"epochs": 1})
    >>> ngrams = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> lmtool.distill(net, ngrams_from=ngrams, out="distilled").folder.name
    'distilled'
    """
    import numpy as np
    import numpy.typing as npt

    from lmtool.commands._ngram_runs import load_ngram_model, prune, save_ngram_run
    from lmtool.config.settings import settings_as_json
    from lmtool.evaluation.metrics import perplexity
    from lmtool.ngram.estimation.distillation import ExpectedProbabilities, LikelyNgrams
    from lmtool.ngram.models.ngram_model import NgramModel
    from lmtool.runs.corpus import open_run_corpus, require_splits, tokenizer_in
    from lmtool.runs.load import load_model
    from lmtool.runs.run import Run
    from lmtool.system.arrays import IntArray, in_chunks

    session.require_new()
    keep_freed_memory()
    start = time.perf_counter()
    teacher_run, like_run = Run.open(Path(settings.run)), Run.open(Path(settings.ngrams_from))
    if teacher_run.vocabulary_fingerprint != like_run.vocabulary_fingerprint:
        raise UserError(
            f"{settings.run} and {settings.ngrams_from} have different words: train them with the same data= settings"
        )
    with open_run_corpus(teacher_run, settings.store_dir, progress=session.progress) as corpus:
        require_splits(corpus, "train", "valid")
        given = f"ngrams_from={settings.ngrams_from}"
        refusal = f"{given} is not an n-gram model: name a run that has the n-grams of the new model"
        like = load_ngram_model(like_run, corpus.vocabulary, refusal)
        if not like.normalized:
            remedy = f"lmtool convert run={settings.ngrams_from} renormalize=true makes a run that gives probabilities"
            raise UserError(f"{given} gives scores that do not sum to one: {remedy}")
        teacher = load_model(teacher_run, corpus.vocabulary, settings.device)
        if teacher.dynamic:
            raise UserError(
                f"run={settings.run} learns from the text as it reads it (a cache): mix the runs without one"
            )
        if not teacher.normalized:
            raise UserError(f"run={settings.run} gives scores that do not sum to one")
        train = corpus.split("train")
        tokens = min(train.tokens, settings.tokens or train.tokens)
        table = like.table

        def for_each_place(take: Callable[[IntArray, npt.NDArray[Any]], None]) -> None:
            """Call `take` with the n-gram model's contexts `[N, n-1]` and the teacher's p `[N, V]`, in chunks."""
            with token_bar(tokens, shown=session.progress) as bar:
                for chunk in in_chunks(tokens, max(1, PROBABILITIES_PER_CHUNK // len(corpus.vocabulary))):
                    places = np.arange(chunk.start, chunk.stop)
                    if teacher.in_order:
                        p = np.exp(teacher.log_dist_text(train, chunk.start, chunk.stop))
                    else:
                        p = teacher.probabilities(teacher.contexts_of(train, places)[0])
                    take(like.contexts_of(train, places)[0], p)
                    bar.update(len(places))

        if settings.top_k is not None:
            gathered = LikelyNgrams(table, settings.top_k)
            for_each_place(gathered.add)
            table = gathered.extend_table()
        expected = ExpectedProbabilities(table)
        for_each_place(expected.add)
        table = prune(expected.distill(), corpus.vocabulary, session, to=settings.prune_to)
        model = NgramModel(table, corpus.vocabulary)
        valid = corpus.split("valid")
        valid_perplexity = perplexity(model.log_prob_text(valid.ids, valid.offsets))
    seconds = time.perf_counter() - start
    trained = results.TrainedRun(
        folder=session.out,
        valid_perplexity=valid_perplexity,
        parameters=sum(model.table.sizes),
        ngrams=model.table.sizes,
        examples=tokens,
        examples_per_second=tokens / seconds,
        epochs=tokens / train.tokens,
        seconds=seconds,
        options=session.choices,
        store_dir=settings.store_dir,
    )
    fits, tokenizer = (teacher_run.fitted_on, like_run.fitted_on), tokenizer_in(like_run.folder)
    save_ngram_run(session, settings_as_json(settings), like_run, tokenizer, model, trained, *fits)
    session.say(f"valid perplexity {valid_perplexity:.4f}")
    return trained

"""Runs of n-gram models that are read from ARPA files, mixed, distilled or pruned rather than trained."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmtool.config.data import DataConfig
from lmtool.config.groups import CountModelConfig
from lmtool.config.rules import ngrams_to_keep
from lmtool.config.settings import option_origins, settings_as_json
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import preprocess
from lmtool.data.remote import absolute
from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.errors import UserError
from lmtool.ngram.models.ngram_model import NGRAM_FILE, NgramModel
from lmtool.ngram.pruning.entropy import prune_by_entropy, prune_to_size_by_entropy
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.results.base import Result, sizes_text
from lmtool.runs.corpus import save_words
from lmtool.runs.load import load_model, run_vocabulary
from lmtool.runs.run import Fits, Run, merge_fitted
from lmtool.session import Session
from lmtool.system.files import atomic_write


def run_over(data: DataConfig, corpus: Corpus) -> Run:
    """Return a run without a model over an open store, as the text_run of `save_ngram_run`."""
    plain, store = settings_as_json(data), absolute(corpus.path)
    return Run(Path(), "train", {"data": plain}, store, corpus.fingerprint, "", origins=option_origins({"data": plain}))


def save_ngram_run(
    session: Session,
    settings: dict[str, Any],
    text_run: Run,
    tokenizer: str | None,
    model: NgramModel,
    result: Result,
    *fits: Fits,
) -> None:
    """Write an n-gram model as a run into the session's folder, its run.json last.

    text_run: the run whose text the new one is evaluated on. tokenizer: of text in pieces of words, as JSON. fits: what
    was fitted in the models from which it is made, as in Run.fitted_on.
    """
    out, sizes = session.out, model.table.sizes
    session.begin_writing()
    model.save(out / NGRAM_FILE)
    save_words(out, model.vocabulary, tokenizer)
    session.save_result(result)
    about = {"data": text_run.config["data"], "model": {"kind": "ngram", "order": model.table.order}}
    replace(
        text_run,
        folder=out,
        config=settings | about,
        vocabulary_fingerprint=model.vocabulary.fingerprint(),
        choices={},
        origins={group: place for group, place in text_run.origins.items() if group in ("data", "segmenter")},
        fitted_on=merge_fitted(*fits),
    ).save()
    session.say(f"{sizes_text(sizes)}\nrun={out}")


def load_ngram_model(run: Run, vocabulary: Vocabulary | None, refusal: str) -> NgramModel:
    """Load the n-gram model of words of a run; `refusal` is the error if it has none. vocabulary: None: as saved."""
    if run.kind == "train" and isinstance(run.settings("model"), CountModelConfig):
        model = load_model(run, vocabulary or run_vocabulary(run))
        if isinstance(model, NgramModel):
            return model
    raise UserError(refusal)


def store_with_words(
    data: DataConfig, words: Collection[str], store_dir: str, session: Session, what: str
) -> tuple[DataConfig, Path]:
    """Return the store of a data set with `words` as its vocabulary, and the settings that make it.

    words: written into the session's folder if the data set has other words. what: their owner, for messages.
    """
    prepared = preprocess(data, store_dir, progress=session.progress)
    with Corpus(prepared) as corpus:
        known = set(corpus.vocabulary.words)
    reserved = {BOS, EOS, UNK}
    if known - reserved == set(words) - reserved:
        return data, prepared.path
    if data.vocabulary.unit.is_subword:
        raise UserError(
            f"{what} has pieces that differ from those of data={data.name}: set the tokenizer that it was made with"
        )
    if not data.takes_word_list:
        raise UserError(
            f"{what} has words that differ from those of data={data.name}, which has a fixed vocabulary: use data=text"
        )
    listed = session.out / "words.txt"
    with atomic_write(listed) as temporary:
        temporary.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    data = replace(data, vocabulary=replace(data.vocabulary, file=str(listed.resolve()), size=None))
    prepared = preprocess(data, store_dir, progress=session.progress)
    session.say(f"data={data.name} has other words: its store was written with those of {what}")
    return data, prepared.path


def prune(
    table: BackoffTable,
    vocabulary: Vocabulary,
    session: Session,
    *,
    to: object,
    entropy: float | None = None,
    by_gain: Callable[[int], tuple[BackoffTable, float]] | None = None,
) -> BackoffTable:
    """Prune a table by an entropy threshold, or to a number or share of n-grams, if either is set.

    by_gain: prunes to a number of n-grams by expected gain and returns also the threshold; None: prune by entropy.
    """
    if (entropy is not None or to is not None) and (table.quantized_bits is not None or not table.normalized):
        name, value = ("prune_to", to) if entropy is None else ("prune_entropy", entropy)
        why = "the model is quantized already: prune the one it was made from"
        if table.quantized_bits is None:
            why = "the model's scores do not sum to one: use another smoother, or lmtool convert renormalize=true"
        raise UserError(f"{name}={value}: {why}")
    if entropy is not None:
        return prune_by_entropy(table, entropy, vocabulary)
    if to is None:
        return table
    total, size = sum(table.sizes), ngrams_to_keep(to, "prune_to", table.sizes)
    if size >= total:
        session.say(f"prune_to={to}: all {total:,} n-grams stay")
        return table
    if by_gain is None:
        pruned, threshold = prune_to_size_by_entropy(table, size, vocabulary)
        found = f"prune_entropy={threshold:.4g}"
    else:
        pruned, threshold = by_gain(size)
        found = f"expected gains of {threshold:.4g} nats per token and more"
    session.say(f"pruned from {total:,} n-grams to {sum(pruned.sizes):,}: {found}")
    return pruned

"""From settings and run folders to objects: the one `match` per family."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lmtool import config as schema
from lmtool.data.corpus import Corpus
from lmtool.data.vocabulary import Vocabulary
from lmtool.ensemble import Mixture
from lmtool.errors import UserError
from lmtool.model import LanguageModel
from lmtool.runs import REMEDY, Run

if TYPE_CHECKING:
    from lmtool.ngram.counts import Counts
    from lmtool.ngram.estimate import Smoother
    from lmtool.ngram.storage import Storage

NGRAM_FILE = "model.h5"


def storage_of(counts: schema.CountsConfig, corpus: Corpus) -> Storage:
    """What memory counting may use; its temporary files lie beside the store."""
    from lmtool.ngram.storage import Storage, memory_available, parse_memory

    free = memory_available()
    memory = parse_memory(counts.memory) if counts.memory is not None else free and free * 3 // 4
    return Storage(memory, corpus.path.parent).unless_enough_for(corpus.tokens("train"))


def counts_of(corpus: Corpus, order: int, settings: schema.CountsConfig, storage: Storage) -> Counts:
    """The counts of the train split, as they are kept beside the store or counted now.

    Raises UserError for a text that cannot be counted and where the disk fills.
    """
    from lmtool.ngram.countfile import counts_path, open_counts, save_counts
    from lmtool.ngram.counts import count_ngrams

    path = counts_path(corpus.path)
    kept = open_counts(path, corpus.fingerprint, order)
    if kept is not None:
        return kept
    counts = count_ngrams(corpus.split("train"), corpus.vocabulary, order, storage=storage)
    if settings.keep:
        save_counts(path, counts, corpus.fingerprint)
    return counts


def build_smoother(settings: schema.SmootherConfig, order: int, vocabulary: Vocabulary) -> Smoother:
    """The smoother of the settings; its parameters are still to be fitted, or tuned where `tuned_on` names a split."""
    match settings:
        case schema.MleConfig():
            from lmtool.ngram.smoothers.mle import MaximumLikelihood

            return MaximumLikelihood(order)
        case schema.LaplaceConfig():
            from lmtool.ngram.smoothers.laplace import Laplace

            alpha = 1.0 if settings.alpha == schema.TUNED else float(settings.alpha)
            return Laplace(order, alpha=alpha, types=len(vocabulary) - 1)
        case schema.JelinekMercerConfig():
            from lmtool.ngram.smoothers.jelinek_mercer import JelinekMercer

            lambdas = None if settings.lambdas == schema.TUNED else settings.lambdas
            return JelinekMercer(order, classes=settings.classes, lambdas=lambdas)
        case schema.WittenBellConfig():
            from lmtool.ngram.smoothers.witten_bell import WittenBell

            return WittenBell(order, interpolate=settings.interpolate)
        case schema.GoodTuringConfig():
            from lmtool.ngram.smoothers.good_turing import GoodTuring

            return GoodTuring(order, largest=settings.largest, largest_unigram=settings.largest_unigram)
        case schema.AbsoluteConfig():
            from lmtool.ngram.smoothers.absolute import Absolute

            return Absolute(order, discounts=_discounts(settings.discounts, order), interpolate=settings.interpolate)
        case schema.KneserNeyConfig():
            from lmtool.ngram.smoothers.kneser_ney import KneserNey

            return KneserNey(order, discounts=_discounts(settings.discounts, order), interpolate=settings.interpolate)
        case schema.ModifiedKneserNeyConfig():
            from lmtool.ngram.smoothers.modified_kneser_ney import ModifiedKneserNey

            return ModifiedKneserNey(
                order,
                discounts=None if settings.discounts == schema.TUNED else settings.discounts,
                interpolate=settings.interpolate,
                like_kenlm=settings.like_kenlm,
            )
        case schema.StupidBackoffConfig():
            from lmtool.ngram.smoothers.stupid_backoff import StupidBackoff

            return StupidBackoff(order, alpha=settings.alpha)
    raise UserError(f"smoother={settings.kind} is not known to this version of lmtool")


def _discounts(given: object, order: int) -> list[float] | None:
    if given is None or given == schema.TUNED:
        return None
    return given if isinstance(given, list) else [float(str(given))] * order


def tuned_on(settings: schema.SmootherConfig) -> str | None:
    """The split that the smoother's parameters are to be tuned on; None where they are given or estimated."""
    match settings:
        case schema.LaplaceConfig(alpha=schema.TUNED):
            return settings.tune_on
        case schema.JelinekMercerConfig(lambdas=schema.TUNED):
            return settings.tune_on
        case (
            schema.AbsoluteConfig(discounts=schema.TUNED)
            | schema.KneserNeyConfig(discounts=schema.TUNED)
            | schema.ModifiedKneserNeyConfig(discounts=schema.TUNED)
        ):
            return settings.tune_on
    return None


def load_model(run: Run, vocabulary: Vocabulary) -> LanguageModel:
    """The language model of a finished run. Raises UserError where a part of it is missing or damaged."""
    if vocabulary.fingerprint() != run.vocabulary_fingerprint:
        raise UserError(f"{run.folder} was trained on another vocabulary than its store has now: {REMEDY}")
    if run.kind == "ensemble":
        members = [load_model(Run.open(Path(member)), vocabulary) for member in run.members]
        return Mixture(members, np.array(run.weights))
    match schema.from_saved(run.config["model"], "model"):
        case schema.NgramModelConfig():
            from lmtool.ngram.model import NgramModel

            return NgramModel.load(run.folder / NGRAM_FILE, vocabulary)
        case schema.NplmModel() as nplm:
            from lmtool.checkpoint import CHECKPOINT, load_weights
            from lmtool.neural.model import build_nplm

            model = build_nplm(nplm, vocabulary)
            load_weights(model, run.folder / CHECKPOINT)
            return model
    raise UserError(f"{run.folder} holds a model that this version of lmtool does not know: {REMEDY}")

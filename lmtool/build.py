"""From settings and run folders to objects: the one `match` per family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lmtool import config as schema
from lmtool.data.corpus import Corpus
from lmtool.data.vocabulary import Vocabulary
from lmtool.ensemble import Mixture
from lmtool.errors import UserError
from lmtool.model import LanguageModel
from lmtool.runs import REMEDY, Run

NGRAM_FILE = "model.h5"


def smoothed_table(corpus: Corpus, model: schema.NgramModelConfig, smoother: schema.SmootherConfig) -> Any:
    """Counts of the train split, smoothed into a back-off table."""
    from lmtool.ngram.counts import count_ngrams
    from lmtool.ngram.kneser_ney import modified_kneser_ney

    counts = count_ngrams(corpus.split("train"), corpus.vocabulary, model.order)
    match smoother:
        case schema.ModifiedKneserNeyConfig():
            return modified_kneser_ney(counts, discounts=smoother.discounts, like_kenlm=smoother.like_kenlm)
    raise UserError(f"smoother={smoother.kind} is not known to this version of lmtool")


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

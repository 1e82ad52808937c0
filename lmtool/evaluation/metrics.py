"""Metrics of a model on a split: perplexity, accuracy, log Z; and whether its contexts cross sentences."""

from __future__ import annotations

import numpy as np

from lmtool.data.split import Split
from lmtool.errors import UserError
from lmtool.language_model import LanguageModel
from lmtool.system.arrays import FloatArray, in_chunks
from lmtool.system.terminal import token_bar

DISTS_PER_CHUNK = 256  # whole distributions computed at once
READ_ALONE = "each line was read alone; across_sentences=true reads the lines as one text"


def require_across(model: LanguageModel, eos: int | None, name: str) -> None:
    """Raise UserError if a model of sentences cannot read on from one to the next. eos: the id of `</s>`, if any."""
    if eos is not None and not model.across_sentences:
        raise UserError(
            f"across_sentences=true: {name} reads single sentences; leave it out, or take a network that was trained "
            "with model.across_sentences=true"
        )


def reads_across(model: LanguageModel, split: Split) -> bool | None:
    """Return whether contexts cross the sentences of a split; None for a model that reads single sentences."""
    return not split.independent_sentences if model.across_sentences else None


def split_accuracy(model: LanguageModel, split: Split, *, progress: bool = False) -> float:
    """Return the share of a split's tokens, all of them, that are the most likely word after their context."""
    hits = 0
    with token_bar(split.tokens, shown=progress) as bar:
        for part in in_chunks(split.tokens, DISTS_PER_CHUNK if model.dynamic else 4096):
            if model.dynamic:  # its distributions depend on the text, not on contexts alone
                most_likely = model.log_dist_text(split, part.start, part.stop)[:, :-1].argmax(axis=1)
            else:
                most_likely = model.argmax(model.contexts_of(split, np.arange(part.start, part.stop))[0])
            hits += int((most_likely == split.ids[part]).sum())
            bar.update(part.stop - part.start)
    return hits / split.tokens


def log_z(model: LanguageModel, split: Split, max_contexts: int = 8192) -> dict[str, float] | None:
    """Return mean and standard deviation of log Z, in nats, over at most max_contexts evenly spread contexts.

    None unless the model is self-normalised.
    """
    if not model.self_normalised:
        return None
    index = np.unique(np.linspace(0, split.tokens - 1, min(max_contexts, split.tokens)).astype(np.int64))
    sums = model.log_z(model.contexts_of(split, index)[0])
    return {"contexts": len(index), "mean": float(sums.mean()), "std": float(sums.std())}


def perplexity(log_prob: FloatArray) -> float:
    """Return exp(-mean log p) of natural log-probabilities `[N]`, summed in float64; inf if one of them is -inf."""
    with np.errstate(over="ignore"):
        return float(np.exp(-log_prob.mean(dtype=np.float64)))

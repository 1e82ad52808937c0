"""Evaluation during training: the loss on valid, and the accuracy of the most likely word."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lmtool.data.split import Split, StoredTokens
from lmtool.neural.model import NeuralModel
from lmtool.training.processes import Processes

TOKENS_PER_CHUNK = 1 << 14  # tokens of valid scored between two checks for a signal
MIN_PREDICTIONS, MAX_SCORES = 256, 1 << 25  # of an accuracy: fewer predictions if the vocabulary is large


def mean_loss(model: NeuralModel, split: Split, processes: Processes, check: Callable[[], None]) -> float:
    """Return the mean of -log p over a split, in nats; each process scores its share.

    check: called between chunks; may raise.
    """
    first, last = processes.share(split.tokens)
    parts = [np.empty(0)]
    for begin in range(first, last, TOKENS_PER_CHUNK):
        check()
        parts.append(model.score_tokens(split, begin, min(begin + TOKENS_PER_CHUNK, last)))
    return -float(processes.joined(np.concatenate(parts)).mean(dtype=np.float64))


def share_most_likely(
    model: NeuralModel, split: Split | StoredTokens, tokens: int, processes: Processes
) -> float | None:
    """Return the share of evenly spread tokens that are the most likely word; None for no tokens."""
    count = min(tokens, max(MIN_PREDICTIONS, MAX_SCORES // model.vocabulary_size), split.tokens)
    if count == 0:
        return None
    index = np.unique(np.linspace(0, split.tokens - 1, count).astype(np.int64))
    first, last = processes.share(len(index))
    contexts, targets = split.windows(index[first:last], model.context_size)
    hits = (model.argmax(contexts) == targets).astype(np.float64)
    return float(processes.joined(hits).mean())

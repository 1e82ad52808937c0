"""What an evaluation in training measures: the loss on valid, and how often the most likely word is the right one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lmtool.data.corpus import Split
from lmtool.data.split import StoredTokens
from lmtool.neural.model import NeuralModel
from lmtool.training.processes import Processes

TOKENS_AT_ONCE = 1 << 14  # of valid that are scored between two checks for a signal
FEWEST_PREDICTIONS, SCORES = 256, 1 << 25  # of an accuracy: fewer predictions where the vocabulary is large


def mean_loss(model: NeuralModel, split: Split, processes: Processes, check: Callable[[], None]) -> float:
    """Return the mean of -log p over a split, in nats, of which each process scores its share.

    check: called now and then; may raise.
    """
    first, last = processes.share(split.tokens)
    parts = [np.empty(0)]
    for begin in range(first, last, TOKENS_AT_ONCE):
        check()
        parts.append(model.score_tokens(split, begin, min(begin + TOKENS_AT_ONCE, last)))
    return -float(processes.joined(np.concatenate(parts)).mean(dtype=np.float64))


def share_most_likely(
    model: NeuralModel, split: Split | StoredTokens, tokens: int, processes: Processes
) -> float | None:
    """Return the share of evenly spread tokens that are the most likely word; None where no tokens are to be taken."""
    most = min(tokens, max(FEWEST_PREDICTIONS, SCORES // model.vocabulary_size), split.tokens)
    if most == 0:
        return None
    index = np.unique(np.linspace(0, split.tokens - 1, most).astype(np.int64))
    first, last = processes.share(len(index))
    contexts, targets = split.windows(index[first:last], model.context_size)
    hits = (model.argmax(contexts) == targets).astype(np.float64)
    return float(processes.joined(hits).mean())

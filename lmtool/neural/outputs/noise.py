"""The distribution that noise words and samples are drawn from."""

from __future__ import annotations

from torch import Tensor

from lmtool.neural.outputs.word_scores import log_unigram


def noise_distribution(counts: Tensor, power: float) -> Tensor:
    """log q `[O]` in float64: the unigram distribution of counts `[O]` to a power, normalised; power 0 is uniform."""
    return (power * log_unigram(counts)).log_softmax(0)

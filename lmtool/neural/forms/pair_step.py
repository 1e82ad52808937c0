"""A whole training step of skip-gram with negative sampling by plain gradient descent: word2vec's update of each pair,
all pairs of a batch from the weights before it; `./scripts/measure word2vec` compares its speed with gensim's.

The first loop computes the gradients of shares of the pairs. In the second, each thread changes the rows of the words w
with w modulo the number of threads equal to its own, pair by pair: the results do not depend on the number of threads.
tests/neural/test_pair_step.py compares a step with autograd and torch's SGD, its plain form, for the same draws.

Legend of shapes: P pairs, D dimension, K = 1 + k the target and the noise words of a pair, O words that can be
predicted, V words.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from torch import Tensor

from lmtool.neural.checks import all_below
from lmtool.neural.encoders.linear import CBOW
from lmtool.neural.forms import allowed
from lmtool.neural.forms.loops import FAST, NUMBERS_PER_THREAD, as_arrays, exp_below, runs_compiled
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.negative_sampling import NegativeSampling
from lmtool.system import parallel
from lmtool.system.arrays import Array


class PairStep:
    """Steps of one model: an encoder of one word, which returns its embedding, and a NegativeSampling layer."""

    name = "pair_step"

    def __init__(self, model: NeuralModel, output: NegativeSampling) -> None:
        self._output = output
        self._weights = as_arrays(model.encoder.embedding.weight, output.vectors)  # [V, D] and [O, D]

    def step(self, contexts: Tensor, targets: Tensor, rate: float, limit: float) -> float:
        """Make a step with contexts `[P, 1]` and targets `[P]`, int64; return the loss before it.

        limit: with a loss that is not below it, no step is made. Raises IndexError for ids out of range.
        """
        size, (embeddings, vectors) = len(targets), self._weights
        given, words = contexts.numpy()[:, 0], np.empty((size, 1 + self._output.noise), np.int64)
        words[:, 0], words[:, 1:] = targets, self._output.table.draw(size, self._output.noise)
        if not (all_below(given, len(embeddings)) and all_below(words[:, 0], len(vectors))):
            raise IndexError("ids out of range")
        h, grad_h = np.empty((2, size, embeddings.shape[1]), embeddings.dtype)
        factors, losses = np.empty(words.shape, h.dtype), np.empty(size)
        arrays = embeddings, vectors, given, words, h, grad_h, factors
        pieces = 1 + words.size * h.shape[1] // NUMBERS_PER_THREAD
        parallel.run_pieces(_gradients, (*arrays, losses), size, pieces)
        loss = float(losses.mean())
        if loss < limit:
            parts, change = min(parallel.threads(), pieces), h.dtype.type(-rate / size)
            parallel.run((_change_rows, *arrays, change, part, parts) for part in range(parts))
        return loss


def pair_step(model: NeuralModel) -> PairStep | None:
    """Return the steps of a model by plain gradient descent without a limit on the gradients, or None for another."""
    encoder, output = model.encoder, model.output
    if not (allowed() and type(encoder) is CBOW and encoder.context_size == 1 and not encoder.config.dropout):
        return None
    if type(output) is not NegativeSampling or output.bias.requires_grad or not runs_compiled(output.vectors):
        return None
    own = output.vectors is not encoder.embedding.weight and not output.shared
    return PairStep(model, output) if own and output.sparse and encoder.embedding.sparse else None


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _gradients(
    embeddings: Array, vectors: Array, given: Array, words: Array, h: Array, grad_h: Array, factors: Array,
    losses: Array, first: int, last: int
) -> None:  # fmt: skip
    """Compute the losses `[P]` of pairs, the factors `[P, K]` of h in the vectors' gradients, and h's `[P, D]`."""
    one = embeddings.dtype.type(1)
    for p in range(first, last):
        x, row, grad = embeddings[np.uint64(given[p])], h[p], grad_h[p]
        loss, likelihood = 0.0, 1.0
        for j in range(len(x)):
            row[j], grad[j] = x[j], one - one
        for k in range(words.shape[1]):
            u, score = vectors[np.uint64(words[p, k])], one - one
            for j in range(len(row)):
                score += row[j] * u[j]
            small = exp_below(-abs(score))
            more, less = one / (one + small), small / (one + small)  # sigma(|s|) and sigma(-|s|)
            right = (score > 0) == (k == 0)
            likelihood *= more if right else less
            if likelihood < 1e-200:  # a logarithm is taken once for several words
                loss, likelihood = loss - math.log(likelihood), 1.0
            wrong = less if right else more
            factor = factors[p, k] = -wrong if k == 0 else wrong
            for j in range(len(row)):
                grad[j] += factor * u[j]
        losses[p] = loss - math.log(likelihood)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _change_rows(
    embeddings: Array, vectors: Array, given: Array, words: Array, h: Array, grad_h: Array, factors: Array,
    change: Any, part: int, parts: int
) -> None:  # fmt: skip
    """Add change x gradient to the rows of words w with w % parts == part."""
    for p in range(len(given)):
        for k in range(words.shape[1]):
            word, factor = np.uint64(words[p, k]), change * factors[p, k]
            if word % parts == part:
                u, row = vectors[word], h[p]
                for j in range(len(row)):
                    u[j] += factor * row[j]
        word = np.uint64(given[p])
        if word % parts == part:
            x, grad = embeddings[word], grad_h[p]
            for j in range(len(grad)):
                x[j] += change * grad[j]

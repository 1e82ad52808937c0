"""Base class of the layers with a vector for each word: scores b_w + u_w . h, exact probabilities, and noise words.

Legend of shapes: B examples, D dimension of the hidden states, O words that can be predicted, K words asked for.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural.checks import require_counts, require_size, require_vectors
from lmtool.neural.outputs.base import OutputLayer, columns
from lmtool.neural.rows import RowScores, pairs_of, rows_of
from lmtool.system.alias_table import AliasTable

MAX_SCORES_PER_CHUNK = 1 << 24  # scores in float64 that exist at once in log_z


def log_unigram(counts: Tensor) -> Tensor:
    """Return log p of each word by its count `[O]`, in float64; half an occurrence is added to every count."""
    frequency = counts.double() + 0.5
    return (frequency / frequency.sum()).log()


def noise_distribution(counts: Tensor, power: float) -> Tensor:
    """Return log q `[O]` in float64, q proportional to (count + 0.5)^power of counts `[O]`; power 0 is uniform."""
    return (power * log_unigram(counts)).log_softmax(0)


def require_draws(name: str, number: object, words: int) -> None:
    """Raise ValueError, naming an argument, unless the number of words that a loss draws is from 1 to all of them."""
    if not isinstance(number, int) or not 1 <= number <= words:
        raise ValueError(f"{name}={number}: must be from 1 to {words}, the number of words")


class Noise:
    """Words drawn from a fixed distribution by the alias method.

    log_q: `[O]`, float64, of the exact probabilities of these draws, for the correction in a loss; log 2^-63 for a word
    that is never drawn.
    """

    def __init__(self, log_q: Tensor) -> None:
        """log_q: `[O]`, logarithms of the wanted probabilities."""
        self._table = AliasTable(log_q.exp().cpu().numpy())
        self.log_q = torch.from_numpy(np.maximum(self._table.drawn, 1) / 2**63).log()

    def draw(self, *shape: int) -> Tensor:
        """Draw independent words of this shape, int64 on the CPU, by torch's random state."""
        bits = torch.empty(shape, dtype=torch.int64).random_()  # of 63 bits, all values
        return torch.from_numpy(self._table.outcomes(bits.view(-1).numpy())).view(shape)


class WordScores(RowScores, OutputLayer):
    """Scores s_w(h) = b_w + u_w . h for each word (Bengio et al. 2003, eq. 1); p is softmax(s)."""

    def __init__(self, dim: int, counts: Tensor, vectors: nn.Parameter | None = None, *, sparse: bool = False) -> None:
        """dim: D. counts: `[O]` of the words in train; b starts at the log unigram probabilities.

        vectors: embeddings `[O or more, D]` to share as the u_w (tied), of which the first O are used; None for
        vectors of the layer itself. sparse: whether the gradients of u and b are sparse if a step uses only some
        rows. Raises ValueError for counts that are negative or not finite, and for vectors of another shape.
        """
        super().__init__()
        name = type(self).__name__
        counts = require_counts(f"{name}: counts", counts)
        outputs = self.word_count = len(counts)
        dim = self.input_dim = require_size(f"{name}: dim", dim)
        if vectors is not None:
            require_vectors(f"{name}: vectors", vectors, outputs, dim)
        self.bias = nn.Parameter(log_unigram(counts).to(torch.get_default_dtype()))
        self.sparse = sparse
        self.vectors = nn.Parameter(torch.empty(outputs, dim)) if vectors is None else vectors
        if vectors is None:
            nn.init.normal_(self.vectors, std=dim**-0.5)

    def weight(self) -> Tensor:
        """Return u `[O, D]`."""
        return self.vectors if len(self.vectors) == len(self.bias) else self.vectors[: len(self.bias)]

    def word_vectors(self) -> Tensor:
        """Return the output embeddings `[O, D]`."""
        return self.weight()

    def scores(self, h: Tensor, y: Tensor) -> Tensor:
        """Return s, without log Z, of words y `[B]` or `[B, K]` after hidden states `[B, D]`; in y's shape and h's
        dtype, with gradients.
        """
        h, y = self._checked("scores", h, y, several=True)
        return self.scores_of(h, columns(y)).reshape(y.shape)

    def scores_of(self, h: Tensor, words: Tensor) -> Tensor:
        """Compute s of words `[B, K]` after hidden states `[B, D]`: `[B, K]`."""
        scores: Tensor = self.computed("pair_scores", h, pairs_of(words))
        return scores.view(words.shape)

    def target_and_other_scores(self, h: Tensor, y: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """Compute s of the targets y `[B]`, `[B]`, and of other words, `[B, k]`.

        others: `[k]`, the same for all examples, or `[B, k]`.
        """
        if others.dim() > 1:
            both = self.scores_of(h, torch.cat([y[:, None], others], 1))
            return both[:, 0], both[:, 1:]
        words = torch.cat([y, others])
        u, b = (rows_of(weight, words, sparse=self.sparse) for weight in (self.vectors, self.bias))
        size = len(y)
        return (h * u[:size]).sum(1) + b[:size], torch.addmm(b[size:], h, u[size:].T)

    @torch.no_grad()
    def log_z(self, h: Tensor) -> Tensor:
        """Return the log-sum-exp of s over all words, `[B]` in float64, after hidden states `[B, D]`."""
        h = self._checked_hidden("log_z", h)
        rows = max(1, MAX_SCORES_PER_CHUNK // len(self.bias))
        parts = (F.linear(part, self.weight(), self.bias).double().logsumexp(1) for part in torch.split(h, rows))
        return torch.cat(list(parts))

    def log_probs(self, h: Tensor) -> Tensor:
        """Compute log p of all words, `[B, O]` in float64: the log-softmax of s."""
        return F.linear(h, self.weight(), self.bias).double().log_softmax(1)

    def log_probs_of(self, h: Tensor, y: Tensor) -> Tensor:
        """Compute log p of words `[B, K]` in float64, `[B, K]`: s - log Z."""
        return self.scores_of(h, y).double() - self.log_z(h)[:, None]

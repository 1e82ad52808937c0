"""What the layers with a vector for each word share: scores b_w + u_w . h, and exact probabilities from them.

Legend of shapes: B examples, D dimension of the hidden, O words that can be predicted, K words asked for.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural.checks import require_counts, require_size, require_vectors
from lmtool.neural.outputs.base import OutputLayer, columns
from lmtool.neural.rows import RowScores, pairs_of, rows_of

SCORES_AT_ONCE = 1 << 24  # of all words, in float64, in log_z


def log_unigram(counts: Tensor) -> Tensor:
    """Return log p of each word by its count `[O]`, in float64; half an occurrence is added to every count."""
    frequency = counts.double() + 0.5
    return (frequency / frequency.sum()).log()


class WordScores(OutputLayer, RowScores):
    """Scores s_w(h) = b_w + u_w . h for each word (Bengio et al. 2003, eq. 1); p is softmax(s)."""

    def __init__(self, dim: int, counts: Tensor, vectors: nn.Parameter | None = None, *, sparse: bool = False) -> None:
        """dim: D. counts: `[O]` of the words in train; b starts at the log unigram probabilities.

        vectors: embeddings `[O or more, D]` to share as the u_w (tied), of which the first O are used; None for
        vectors of the layer itself. sparse: whether the gradients of u and b are sparse where a step uses only some
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

    def row_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with sparse gradients: u and b, or none."""
        return [self.vectors, self.bias] if self.sparse else []

    def use_dense_gradients(self) -> None:
        """Give u and b dense gradients from now on."""
        self.sparse = False

    def reference(self) -> Tensor:
        """Return b, whose dtype and device hidden must have."""
        return self.bias

    def weight(self) -> Tensor:
        """Return u `[O, D]`."""
        return self.vectors if len(self.vectors) == len(self.bias) else self.vectors[: len(self.bias)]

    def word_vectors(self) -> Tensor:
        """Return the output vector of each word, `[O, D]`."""
        return self.weight()

    def scores(self, h: Tensor, y: Tensor) -> Tensor:
        """Return s, without log Z, of words y `[B]` or `[B, K]` after hidden `[B, D]`; in y's shape and h's dtype, with
        gradients.
        """
        h, y = self._checked("scores", h, y, several=True)
        return self.scores_of(h, columns(y)).reshape(y.shape)

    def scores_of(self, h: Tensor, words: Tensor) -> Tensor:
        """Compute s of words `[B, K]` after hidden `[B, D]`: `[B, K]`."""
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
        """Return the log-sum-exp of s over all words, `[B]` in float64, after hidden `[B, D]`."""
        h = self._checked_hidden("log_z", h)
        rows = max(1, SCORES_AT_ONCE // len(self.bias))
        parts = (F.linear(part, self.weight(), self.bias).double().logsumexp(1) for part in torch.split(h, rows))
        return torch.cat(list(parts))

    def log_probs(self, h: Tensor) -> Tensor:
        """Compute log p of all words, `[B, O]` in float64: the log-softmax of s."""
        return F.linear(h, self.weight(), self.bias).double().log_softmax(1)

    def log_probs_of(self, h: Tensor, y: Tensor) -> Tensor:
        """Compute log p of words `[B, K]` in float64, `[B, K]`: s - log Z."""
        return self.scores_of(h, y).double() - self.log_z(h)[:, None]

"""What the layers with a vector for each word share: scores b_w + u_w . h, and exact probabilities from them.

Legend of shapes: B examples, D dimension of the hidden, O words that can be predicted, K words asked for.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural.checks import require_counts, require_size, require_vectors
from lmtool.neural.devices import on_cpu
from lmtool.neural.kernels.softmax_rows import softmax_rows
from lmtool.neural.kernels.sparse_rows import compiled, pairs_of, row_scores
from lmtool.neural.outputs.base import OutputLayer, columns, takes_hidden, takes_words
from lmtool.system import parallel

COLUMNS = 1 << 14  # words whose scores exist at once
ALIGNED = 16  # numbers: 64 bytes of float32
BLOCK = 1 << 21  # scores that exist at once in log_z
OF_DEVICE = 1 << 27  # the same on a GPU, which has no use for less


def log_unigram(counts: Tensor) -> Tensor:
    """log p of each word by its count `[O]`, in float64; half an occurrence is added to every count."""
    frequency = counts.double() + 0.5
    return (frequency / frequency.sum()).log()


class WordScores(OutputLayer):
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
        """The parameters with sparse gradients: u and b, or none."""
        return [self.vectors, self.bias] if self.sparse else []

    def use_dense_gradients(self) -> None:
        """Give u and b dense gradients from now on."""
        self.sparse = False

    def reference(self) -> Tensor:
        """b, whose type and device hidden must have."""
        return self.bias

    def weight(self) -> Tensor:
        """u `[O, D]`."""
        return self.vectors[: len(self.bias)]

    def word_vectors(self) -> Tensor:
        """The output vector of each word, `[O, D]`."""
        return self.weight()

    @takes_words(several=True)
    def scores(self, h: Tensor, y: Tensor) -> Tensor:
        """s, without log Z, of words y `[B]` or `[B, K]` after hidden `[B, D]`; in the shape of y and the type of h."""
        pairs = pairs_of(columns(y))
        return row_scores(h, self.vectors, self.bias, pairs, sparse=self.sparse).reshape(y.shape)

    @takes_hidden
    @torch.no_grad()
    def log_z(self, h: Tensor) -> Tensor:
        """log-sum-exp of s over all words, `[B]` in float64, after hidden `[B, D]`; of BLOCK scores at a time."""
        log_z = h.new_full((len(h),), -torch.inf, dtype=torch.float64)
        weight, outputs = self.weight(), len(self.bias)
        columns, block = (min(outputs, COLUMNS), BLOCK) if on_cpu(h) else (outputs, OF_DEVICE)
        rows = max(1, block // columns)
        buffer = h.new_empty(min(rows, len(h)), columns)
        for top in range(0, len(h), rows):
            part = h[top : top + rows]
            for left in range(0, outputs, columns):
                some = weight[left : left + columns]
                out = buffer[: len(part), : len(some)]
                scores = torch.addmm(self.bias[left : left + columns], part, some.T, out=out)
                largest = scores.amax(1, keepdim=True)
                total = scores.sub_(largest).exp_().sum(1, dtype=torch.float64).log() + largest[:, 0]
                log_z[top : top + rows] = torch.logaddexp(log_z[top : top + rows], total)
        return log_z

    @torch.no_grad()
    def log_dist(self, h: Tensor) -> Tensor:
        """log p of all words, `[B, O]` in float64, after hidden `[B, D]`; rows have log-sum-exp 0."""
        scores = torch.addmm(self.bias, h, self.weight().T).double()
        return scores - self.log_z(h)[:, None]

    @torch.no_grad()
    def probabilities(self, h: Tensor, width: int) -> Tensor:
        """p of all words after hidden `[B, D]`, `[B, width]` in the type of h; columns from O on are 0.

        The scores are those of log_dist, once and without a copy in float64. Their rows have room up to a multiple of
        ALIGNED: MKL's product takes 1.5 times as long into rows of other lengths.
        """
        outputs = len(self.bias)
        room = -width % ALIGNED + width - outputs
        weight, bias = F.pad(self.weight(), (0, 0, 0, room)), F.pad(self.bias, (0, room), value=-torch.inf)
        scores = torch.addmm(bias, h, weight.T)
        if compiled(scores):
            arrays = scores.numpy(), scores.amax(1).numpy(), outputs
            parallel.run((softmax_rows, *arrays, *cut) for cut in parallel.cut_evenly(len(h)))
        else:
            scores = scores.softmax(1)
            scores[:, outputs:] = 0  # vectorised exponentials may be above 0 at -inf
        return scores[:, :width]

    @torch.no_grad()
    def log_prob(self, h: Tensor, y: Tensor) -> Tensor:
        """log p(y|h) in float64 of words y `[B]` or `[B, K]`, int64, after hidden `[B, D]`; in the shape of y."""
        log_z = self.log_z(h)
        return self.scores(h, y).double() - (log_z if y.dim() == 1 else log_z[:, None])

"""Operations on the rows of a large matrix that a batch uses, in plain torch.

Legend of shapes: B examples, D dimension, R rows of a matrix `[R, D]`, P pairs (example, row).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural.forms import Formed


@dataclass(frozen=True)
class Pairs:
    """The rows of a matrix that each example of a batch uses.

    rows: `[P]`, int32 or int64; the rows of example b are at starts[b] to before starts[b + 1]. starts: `[B + 1]`,
    int64. owner: `[P]`, the example b of each row.
    """

    rows: Tensor
    starts: Tensor
    owner: Tensor


def pairs_of(rows: Tensor) -> Pairs:
    """Return the pairs of rows `[B, K]`, int64: K for every example."""
    size, per_example = rows.shape
    starts = torch.arange(size + 1) * per_example
    owner = torch.arange(size, dtype=torch.int32, device=rows.device).repeat_interleave(per_example)
    return Pairs(rows.reshape(-1), starts, owner)


def segments(offsets: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """List the places offsets[w] to before offsets[w + 1] for each w of chosen `[B]`, concatenated; all int64.

    Returns the start of each segment among them `[B + 1]`, the b of each place `[P]`, and the places `[P]`.
    """
    first = offsets.index_select(0, chosen)  # offsets[chosen] would read -1 as the last index
    sizes = offsets.index_select(0, chosen + 1) - first
    starts = F.pad(sizes.cumsum(0), (1, 0))
    owner = torch.arange(len(chosen), device=chosen.device).repeat_interleave(sizes)
    # index_select: three times as fast as indexing on a CPU.
    places = torch.arange(len(owner), device=chosen.device) + (first - starts[:-1]).index_select(0, owner)
    return starts, owner, places


def log_sum_exp(values: Tensor, starts: Tensor, owner: Tensor) -> Tensor:
    """Return the log-sum-exp over each segment of values `[P]`: `[B]`; starts, owner: as returned by `segments`."""
    largest = torch.segment_reduce(values.detach(), "max", offsets=starts)
    return largest + torch.zeros_like(largest).index_add_(0, owner, (values - largest[owner]).exp()).log()


def log_sum_exp_by_group(values: Tensor, groups: Tensor, count: int) -> Tensor:
    """Return the log-sum-exp of columns of values `[B, N]` by their numbers in groups `[N]`: `[B, count]`."""
    shape = len(values), count
    largest = values.new_full(shape, -torch.inf).scatter_reduce_(1, groups.expand_as(values), values, "amax")
    return largest + values.new_zeros(shape).index_add_(1, groups, (values - largest[:, groups]).exp()).log()


def rows_of(weight: Tensor, rows: Tensor, *, sparse: bool) -> Tensor:
    """Return weight[rows]: `[..., D]` from weight `[R, D]`, `[...]` from weight `[R]`; rows: integers `[...]`.

    sparse: whether the gradient of weight is sparse, if it is a parameter; a computed weight may need a dense gradient.
    """
    sparse = sparse and weight.is_leaf
    if weight.dim() > 1:
        return F.embedding(rows, weight, sparse=sparse)
    return weight.gather(0, rows.reshape(-1).long(), sparse_grad=sparse).view(rows.shape)


class SparseRows(Formed):
    """A module with parameters whose gradients are sparse if `sparse` is true. row_names: their names."""

    row_names: tuple[str, ...]
    sparse: bool

    def reference(self) -> Tensor:
        """Return a weight, whose dtype and device hidden states must have."""
        weight: Tensor = getattr(self, self.row_names[-1])
        return weight

    def sparse_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with sparse gradients, or none."""
        return [getattr(self, name) for name in self.row_names] if self.sparse else []

    def use_dense_gradients(self) -> None:
        """Give these parameters dense gradients from now on."""
        self.sparse = False


class RowScores(SparseRows):
    """A module that scores rows by a dot product: vectors `[R, D]`, bias `[R]`; sparse: whether their gradients are."""

    row_names = "vectors", "bias"
    vectors: nn.Parameter
    bias: nn.Parameter

    def weights(self) -> tuple[Tensor, Tensor]:
        """Return the matrix `[R, D]` and the bias `[R]` of the scores."""
        return self.vectors, self.bias

    def pair_scores(self, h: Tensor, pairs: Pairs) -> Tensor:
        """Return vectors[r] . h[b] + bias[r] of each pair (b, r): `[P]` from hidden `[B, D]`."""
        u, b = (rows_of(weight, pairs.rows, sparse=self.sparse) for weight in self.weights())
        return (h[pairs.owner] * u).sum(1) + b

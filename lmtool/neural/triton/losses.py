"""The training losses of the output layers by the fused kernels, each the mean over a batch, in the type of h.

Ask lmtool.neural.triton.serves first. Triton is imported when one is called. Formulas: in the layers of
lmtool.neural.outputs, whose plain forms give the same.

Legend of shapes: B examples, D dimension of the hidden, O words that can be predicted, N nodes, L leaves, P nodes on
all paths, k noise words, C classes.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from lmtool.neural.kernels.sparse_rows import lookup


def tree_loss(
    h: Tensor,
    vectors: Tensor,
    bias: Tensor,
    paths: tuple[Tensor, Tensor, Tensor],
    longest: int,
    y: Tensor,
    sparse: bool,
) -> Tensor:
    """-log p of leaves y `[B]`, int64, of a tree with dot-product nodes: vectors `[N, D]`, bias `[N]`.

    paths: offsets `[L + 1]`, nodes `[P]` and bits `[P]` (uint8, 1: to the second child). longest: nodes of a path.
    """
    from lmtool.neural.triton.lists import RowLists, list_losses

    offsets, nodes, bits = paths
    lists = RowLists(nodes, longest, y, offsets, bits)
    return list_losses(h, vectors, bias, lists, sparse=sparse).mean().to(h.dtype)


def nce_loss(
    h: Tensor,
    vectors: Tensor,
    bias: Tensor,
    log_kq: Tensor,
    log_z: Tensor | None,
    y: Tensor,
    noise: Tensor,
    sparse: bool,
) -> Tensor:
    """J of noise-contrastive estimation for words y `[B]` and noise `[k]` or `[B, k]`, int64.

    vectors `[O or more, D]`, bias and log_kq `[O]`; log_z: `[B, 1]`, or None for 0.
    """
    from lmtool.neural.triton.columns import Choice, column_sums
    from lmtool.neural.triton.lists import RowLists, list_losses

    terms = None if log_z is None else -log_z[:, 0]
    rows = y[:, None] if noise.dim() == 1 else torch.cat([y[:, None], noise], 1)
    lists = RowLists(rows, rows.shape[1])
    loss = list_losses(h, vectors, bias, lists, sparse=sparse, shift=log_kq, terms=terms)
    if noise.dim() == 1:
        offset = lookup(bias, noise, sparse=sparse) - log_kq[noise]
        loss = loss + column_sums(h, lookup(vectors, noise, sparse=sparse), offset, Choice(softplus=True), terms)
    return loss.mean().to(h.dtype)


def sampled_loss(
    h: Tensor, vectors: Tensor, bias: Tensor, log_q: Tensor, y: Tensor, samples: Tensor, sparse: bool
) -> Tensor:
    """Cross-entropy over y `[B]` and samples `[k]`, int64; vectors `[O or more, D]`, bias and log_q `[O]`."""
    from lmtool.neural.triton.columns import Choice, column_sums

    words = torch.cat([y, samples])
    offset = lookup(bias, words, sparse=sparse) - log_q[words]
    rows = lookup(vectors, words, sparse=sparse)  # [B + k, D]
    real = (h.float() * rows[: len(y)].float()).sum(1) + offset[: len(y)].float()
    others = column_sums(h, rows[len(y) :], offset[len(y) :], Choice())
    return (torch.logaddexp(others, real) - real).mean().to(h.dtype)


def softmax_loss(h: Tensor, vectors: Tensor, bias: Tensor, y: Tensor, *, narrow: bool) -> Tensor:
    """-log softmax(h W' + b)[y], W the first O rows of vectors `[O or more, D]`, bias `[O]`; narrow: products in bf16.

    No gradient of the scores exists, nor they themselves, but for a tile.
    """
    from lmtool.neural.triton.columns import Choice, column_sums

    return column_sums(h, vectors, bias, Choice(targets=y, narrow=narrow)).mean().to(h.dtype)


def class_loss(
    h: Tensor,
    heads: tuple[Tensor, Tensor],
    words: tuple[Tensor, Tensor],
    lists: tuple[Tensor, Tensor],
    classes: Tensor,
    places: Tensor,
) -> Tensor:
    """-log p of two softmaxes: of classes `[B]` by heads (`[C, D]`, `[C]`), and of the words at places `[B]` of theirs.

    words: their vectors `[O, D]` and biases `[O]`, with dense gradients. lists: where classes begin `[C + 1]` among the
    words `[O]`, and these; int64, as classes and places are.
    """
    from lmtool.neural.triton.classes import in_class_losses
    from lmtool.neural.triton.columns import Choice, column_sums

    of_class = column_sums(h, *heads, Choice(targets=classes))
    return (of_class + in_class_losses(h, *words, classes, *lists, places)).mean().to(h.dtype)


def adaptive_loss(layer: nn.AdaptiveLogSoftmaxWithLoss, h: Tensor, y: Tensor) -> Tensor:
    """-log p of words y `[B]`, int64, by the weights of torch's layer; h `[B, D]`."""
    from lmtool.neural.triton.columns import Choice, column_sums

    head_words = layer.shortlist_size
    heads = torch.where(y < head_words, y, torch.full_like(y, head_words))
    tails: list[tuple[Tensor, Tensor]] = []  # of each, which examples are in it, and their losses there
    for tail, parts in enumerate(layer.tail.children()):
        projection, output = cast(nn.Linear, parts[0]), cast(nn.Linear, parts[1])  # type: ignore[index]
        low, high = layer.cutoffs[tail], layer.cutoffs[tail + 1]
        inside = (y >= low) & (y < high)
        heads = torch.where(inside, head_words + tail, heads)
        # Of all examples, as their number in the tail would have to be read, which no captured step can.
        targets = torch.where(inside, y - low, 0)
        tails.append((inside, column_sums(projection(h), output.weight, output.bias, Choice(targets=targets))))
    loss = column_sums(h, layer.head.weight, layer.head.bias, Choice(targets=heads))
    for inside, of_tail in tails:
        loss = loss + torch.where(inside, of_tail, 0)
    return loss.mean().to(h.dtype)

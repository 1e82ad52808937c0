r"""The full softmax: every word has a score, and their exponentials are normalised.

.. math::

    p(w|h) = \frac{e^{b_w + u_w \cdot h}}{\sum_{v=1}^{O} e^{b_v + u_v \cdot h}}

The scores of a batch are made in chunks, so that B x O of them never exist.

Legend of shapes: B examples, D dimension of the hidden, O words that can be predicted, b rows of one chunk.

Source: Bengio, Ducharme, Vincent & Jauvin (2003), "A neural probabilistic language model", JMLR 3, eq. 1.
Complexity: O(D O) for each example, in training as for a distribution; D O weights, which may be the embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config.groups import OutputConfig
from lmtool.config.training import Precision
from lmtool.neural.devices import multiplies_bf16, on_cpu
from lmtool.neural.kernels import bf16_softmax, loops, tile_softmax
from lmtool.neural.kernels.sparse_rows import compiled, take_gradients
from lmtool.neural.outputs.word_scores import WordScores
from lmtool.system import parallel
from lmtool.trees.tree import Tree

CHUNK = 1 << 24  # logits that exist at once
OF_DEVICE = 1 << 28  # the same on a GPU, where a chunk is a dozen launches: 1 GiB in float32
FEW_LOGITS = 1 << 20  # of a batch whose steps stay near the processor without a graph
TINY = 1 << 12  # logits up to which calling our own loops costs more than they save
NO_TARGET = -(1 << 63)  # torch leaves targets of -100 out unless told otherwise; a GPU's are not compared before
FEW = 48  # rows up to which W h' is faster than h W' (MKL of torch 2.13)
LARGE = 1 << 26  # B x D x O from which precision=auto takes bf16, by tiles or on a GPU
MANY = 64  # rows from which it does, too: fewer are not worth rounding all the weights
LARGE_WITHOUT_TILES, MANY_WITHOUT_TILES = 1 << 24, 16  # the same for torch's products on a CPU


@dataclass(slots=True)
class SoftmaxOutput(OutputConfig):
    """Softmax over all words (Bengio et al. 2003)."""

    can_tie = True
    dense_gradient = True

    precision: Precision | None = None

    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> FullSoftmax:
        """The layer."""
        return FullSoftmax(dim, counts, vectors, precision=self.precision)


Gradients = tuple[Tensor, Tensor, Tensor]


class _SoftmaxLoss(torch.autograd.Function):
    """Mean over the batch of -log softmax(h W' + b)[y], W the first rows of vectors; its gradients are computed in the
    forward pass.

    The gradient of the logits is softmax - onehot; what it is made of takes their place in one buffer that is kept from
    call to call (workspace). To allocate either in each step costs more than the arithmetic on them.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, vectors: Tensor, bias: Tensor, y: Tensor, workspace: _Workspace) -> Tensor:
        h = h.contiguous()
        ctx.save_for_backward(h, vectors, bias, y)
        ctx.workspace = workspace
        loss, ctx.gradients = workspace.loss_and_gradients(h, vectors, bias, y)
        return loss

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        def compute() -> list[Tensor]:
            h, vectors, bias, y = ctx.saved_tensors
            workspace: _Workspace = ctx.workspace
            return workspace.loss_and_gradients(h, vectors, bias, y)[1]

        return (*take_gradients(ctx, grad_output[0], compute), None, None)


class _Workspace:
    """What a layer keeps from step to step: a buffer `[b, O]` for the logits of one chunk, or the memory of the tiles.

    A buffer in bf16 has the three products done in bf16; the gradients are summed over chunks in the weight's own type.
    """

    def __init__(self) -> None:
        self._buffer = torch.empty(0, 0)
        self._tiles: tile_softmax.TileSoftmax | None = None
        self.by_tiles = False  # whether the products are those of tiles, unless they overflow
        self.dtype: torch.dtype | None = None  # of the products in the buffer; None for that of the weights

    @torch.no_grad()
    def loss_and_gradients(self, h: Tensor, vectors: Tensor, bias: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Mean -log p(y|h) over hidden `[B, D]`, and its gradients by h, vectors and bias."""
        outputs = len(bias)
        all_grads = torch.empty_like(vectors)
        all_grads[outputs:] = 0
        grads = [torch.empty_like(h), all_grads, torch.empty_like(bias)]
        arguments = h, vectors[:outputs], bias, y, (grads[0], all_grads[:outputs], grads[2])
        loss = self._of_tiles(*arguments) if self.by_tiles else None
        return self._of_buffer(*arguments) if loss is None else loss, grads

    def _of_tiles(self, h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, grads: Gradients) -> Tensor | None:
        held, wanted = self._tiles, (*weight.shape, len(h))
        if held is None or not held.serves(*wanted):
            held = self._tiles = tile_softmax.TileSoftmax(*wanted)
        h_, weight_, bias_, words, *all_grads = (tensor.detach().numpy() for tensor in (h, weight, bias, y, *grads))
        loss = held.loss_and_gradients(h_, weight_, bias_, words, all_grads)
        return None if loss is None else h.new_tensor(loss)

    def _of_buffer(self, h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, grads: Gradients) -> Tensor:
        outputs = len(bias)
        most = CHUNK if on_cpu(h) else OF_DEVICE
        size, buffer = min(len(h), max(most // outputs, 64)), self._buffer
        dtype = self.dtype or h.dtype
        if buffer.shape[1] != outputs or len(buffer) < size or buffer.dtype != dtype or buffer.device != h.device:
            buffer = self._buffer = torch.empty(size, outputs, dtype=dtype, device=h.device)
        chunk = _plain_chunk
        if compiled(h) and dtype == h.dtype:
            chunk = _compiled_chunk
        elif compiled(h) and h.dtype == torch.float32:
            chunk = _bf16_chunk
        loss = h.new_zeros((), dtype=torch.float64)
        for first in range(0, len(h), len(buffer)):
            some = slice(first, first + len(buffer))
            loss += chunk(h[some], weight, bias, y[some], buffer, len(h), (grads[0][some], *grads[1:]), not first)
        return (loss / len(h)).to(h.dtype)


def _plain_chunk(
    h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, buffer: Tensor, batch: int, grads: Gradients, first: bool
) -> Tensor:
    """Sum of -log p over the rows h `[b, D]` of a batch; grads of h, W and b: the first chunk sets the last two,
    others add.
    """
    narrow, narrow_h, target = weight.to(buffer.dtype), h.to(buffer.dtype), y[:, None]
    scores = torch.addmm(bias.to(buffer.dtype), narrow_h, narrow.T, out=buffer[: len(h)])  # [b, O]
    largest = scores.amax(1, keepdim=True)
    chosen = scores.gather(1, target) - largest
    scores.sub_(largest).exp_()
    total = scores.sum(1, keepdim=True, dtype=torch.float32 if h.dtype == torch.float32 else h.dtype)
    delta = scores.mul_(1 / (total * batch))
    delta.scatter_add_(1, target, torch.full_like(chosen, -1 / batch))
    grad_h, grad_weight, grad_bias = grads
    grad_h.copy_(torch.mm(delta, narrow))
    if first:
        grad_weight.zero_()
        grad_bias.zero_()
    grad_weight += torch.mm(delta.T, narrow_h)
    grad_bias += delta.sum(0, dtype=bias.dtype)
    return (total.log() - chosen).sum(dtype=torch.float64)


def _compiled_chunk(
    h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, buffer: Tensor, batch: int, grads: Gradients, first: bool
) -> Tensor:
    """The same with one pass over the logits between the products.

    They become exponentials e; with s = 1 / (batch * sum of e), the gradients are s (e W) - W[y] / batch of h, and
    e' (s h) less h / batch in the rows of y, of W.
    """
    loss, share = h.new_empty(len(h)), h.new_empty(len(h))
    if len(h) <= FEW:
        columns = torch.mm(weight, h.T, out=buffer[: len(h)].view(len(bias), len(h)))
        arrays = [tensor.numpy() for tensor in (columns, bias, y, loss, share, torch.empty_like(loss))]
        loops.exp_columns(*arrays)
        scores = columns.T
    else:
        scores = torch.mm(h, weight.T, out=buffer[: len(h)])
        arrays = [tensor.numpy() for tensor in (scores, bias, y, loss, share)]
        cuts = parallel.cut_evenly(len(h))
        parallel.run((loops.exp_rows, *arrays, start, end) for start, end in cuts)
    share /= batch
    grad_h, grad_weight, grad_bias = grads
    torch.mm(scores, weight, out=grad_h)
    grad_h.mul_(share[:, None]).sub_(weight[y], alpha=1 / batch)
    keep = 0.0 if first else 1.0
    torch.addmm(grad_weight, scores.T, h * share[:, None], beta=keep, out=grad_weight)
    torch.addmv(grad_bias, scores.T, share, beta=keep, out=grad_bias)
    grad_weight.index_add_(0, y, h, alpha=-1 / batch)
    grad_bias.index_add_(0, y, torch.full_like(share, -1 / batch))
    return loss.sum(dtype=torch.float64)


def _bf16_chunk(
    h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, buffer: Tensor, batch: int, grads: Gradients, first: bool
) -> Tensor:
    """The same by products in bf16 (kernels.bf16_softmax)."""
    loss, of_h, of_words = bf16_softmax.loss_and_gradients(h, weight, bias, y, buffer[: len(h)], batch)
    grad_h, *grads_of_words = grads
    grad_h.copy_(of_h)
    dim = h.shape[1]
    for grad, part in zip(grads_of_words, (of_words[:, :dim], of_words[:, dim]), strict=True):
        grad.copy_(part) if first else grad.add_(part)
    return loss.sum(dtype=torch.float64)


class FullSoftmax(WordScores):
    """p(w|h) = exp(b_w + u_w . h) / Z (Bengio et al. 2003, eq. 1), in chunks, so that the B x O logits never exist."""

    def __init__(
        self,
        dim: int,
        counts: Tensor,
        vectors: nn.Parameter | None = None,
        *,
        precision: Precision | None = None,
    ) -> None:
        """dim: D. counts: `[O]` of the words in train; b starts at the log unigram probabilities.

        vectors: embeddings `[O or more, D]` to share as the u_w; None for vectors of the layer itself. precision: of
        the products of a training step; None for what use_precision says. fp32 stands for the weights' own type, in
        which evaluation is.
        """
        super().__init__(dim, counts, vectors)
        self._chooses = precision is None
        self.precision = precision or Precision.fp32
        self._workspace = _Workspace()

    def use_precision(self, precision: Precision) -> None:
        """Do the products of a training step in this precision, unless the constructor was given another."""
        if self._chooses:
            self.precision = precision

    def plain_softmax(self, examples: int) -> tuple[nn.Parameter, nn.Parameter] | None:
        """The vectors and biases, where the logits of so many examples are few and neither for tiles nor for bf16 in
        any case.
        """
        logits, own = examples * len(self.bias), len(self.vectors) == len(self.bias)
        otherwise = self.precision is Precision.bf16 or (self.in_bf16(examples) and tile_softmax.fits(self.bias))
        if type(self) is not FullSoftmax or not own or logits > FEW_LOGITS or otherwise:
            return None
        return self.vectors, self.bias

    def in_bf16(self, examples: int) -> bool:
        """Whether the products of so many examples are in bf16: asked for, or large enough where that is faster."""
        if self.precision is not Precision.auto:
            return self.precision is Precision.bf16
        by_torch = on_cpu(self.bias) and not tile_softmax.fits(self.bias)
        numbers, least = (LARGE_WITHOUT_TILES, MANY_WITHOUT_TILES) if by_torch else (LARGE, MANY)
        if examples * len(self.bias) * self.vectors.shape[1] < numbers or examples < least:
            return False
        return tile_softmax.fits(self.bias) or multiplies_bf16(self.bias)

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Mean -log p(y|h) in nats over hidden `[B, D]` and targets `[B]`, int64; a number in the type of h."""
        logits, workspace = len(h) * len(self.bias), self._workspace
        if not on_cpu(h):
            return self._on_device(h, y)
        if logits <= TINY and self.precision is not Precision.bf16:
            return F.cross_entropy(F.linear(h, self.weight(), self.bias), y, ignore_index=NO_TARGET)
        narrow = self.in_bf16(len(h))
        workspace.by_tiles = narrow and tile_softmax.fits(h)
        workspace.dtype = torch.bfloat16 if narrow and not workspace.by_tiles else None
        return self._in_chunks(h, y)

    def _in_chunks(self, h: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = _SoftmaxLoss.apply(  # type: ignore[no-untyped-call]
            h, self.vectors, self.bias, y, self._workspace
        )
        return loss

    def _on_device(self, h: Tensor, y: Tensor) -> Tensor:
        """The same in eight operations forth and back where all logits fit, else in large chunks."""
        dtype = torch.bfloat16 if self.in_bf16(len(h)) else h.dtype
        if len(h) * len(self.bias) > OF_DEVICE:
            self._workspace.by_tiles, self._workspace.dtype = False, dtype
            return self._in_chunks(h, y)
        vectors = self.vectors if len(self.vectors) == len(self.bias) else self.weight()
        scores = F.linear(h.to(dtype), vectors.to(dtype), self.bias.to(dtype))  # [B, O]
        return F.cross_entropy(scores.to(h.dtype), y, ignore_index=NO_TARGET)

"""The full softmax as an output layer: hidden -> probability of every word that can be predicted.

Legend of shapes: B examples, D hidden, O outputs, b rows of one chunk.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lmtool.neural.words import WordScores

CHUNK = 512  # rows of logits that exist at once


class _SoftmaxLoss(torch.autograd.Function):
    """Mean over the batch of -log softmax(h W' + b)[y], with its gradients found in the forward pass.

    The gradient of the logits is softmax - onehot; it takes their place in one buffer that is kept from call to
    call. To allocate either anew in each step costs more than the arithmetic on them. A buffer in bf16 has the three
    products done in bf16; the gradients are summed over chunks in the weight's own precision.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, buffer: Tensor) -> Tensor:
        grad_h, grad_weight, grad_bias = torch.empty_like(h), torch.zeros_like(weight), torch.zeros_like(bias)
        low = buffer.dtype != h.dtype
        narrow, narrow_bias = (weight.to(buffer.dtype), bias.to(buffer.dtype)) if low else (weight, bias)
        loss = h.new_zeros(())
        for first in range(0, len(h), len(buffer)):
            rows = h[first : first + len(buffer)].to(buffer.dtype)  # [b, D]
            target = y[first : first + len(buffer), None]
            logits = torch.addmm(narrow_bias, rows, narrow.T, out=buffer[: len(rows)])  # [b, O]
            chosen = logits.gather(1, target)
            # log Z from the likeliest word, whose probability cannot underflow.
            largest, likeliest = logits.max(1, keepdim=True)
            delta = torch.softmax(logits, 1, out=logits)
            loss += (largest - delta.gather(1, likeliest).log() - chosen).sum()
            delta.scatter_add_(1, target, torch.full_like(chosen, -1.0))
            if low:
                grad_h[first : first + len(rows)] = torch.mm(delta, narrow)
                grad_weight += torch.mm(delta.T, rows)
                grad_bias += delta.sum(0, dtype=bias.dtype)
            else:
                torch.mm(delta, weight, out=grad_h[first : first + len(rows)])
                grad_weight.addmm_(delta.T, rows)
                grad_bias += delta.sum(0)
        ctx.gradients = [gradient.div_(len(h)) for gradient in (grad_h, grad_weight, grad_bias)]
        return loss / len(h)

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        scale = grad_output[0]
        # loss.backward() itself asks for scale 1, which need not be multiplied in.
        scaled = ctx.gradients if scale == 1 else [gradient * scale for gradient in ctx.gradients]
        return (*scaled, None, None)


class FullSoftmax(WordScores):
    """p(w|h) = exp(b_w + u_w . h) / Z (Bengio et al. 2003, eq. 1), in chunks, so that the B x O logits never exist.

    counts, vectors: as WordScores. precision: torch.bfloat16 for products in bf16, None for those of the weights' type.
    """

    def __init__(
        self, dim: int, counts: Tensor, vectors: nn.Parameter | None = None, *, precision: torch.dtype | None = None
    ) -> None:
        super().__init__(dim, counts, vectors)
        self.precision = precision
        self._buffer: Tensor | None = None

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Mean -log p(y|h) in nats over hidden `[B, D]` and targets `[B]`."""
        size, dtype, outputs = min(len(h), CHUNK), self.precision or h.dtype, len(self.bias)
        buffer = self._buffer
        if buffer is None or len(buffer) < size or buffer.dtype != dtype or buffer.device != h.device:
            buffer = self._buffer = torch.empty(size, outputs, dtype=dtype, device=h.device)
        loss: Tensor = _SoftmaxLoss.apply(  # type: ignore[no-untyped-call]
            h, self.weight(), self.bias, y, buffer
        )
        return loss

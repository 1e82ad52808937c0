"""The full softmax as an output layer: hidden -> probability of every word that can be predicted.

Legend of shapes: B examples, D hidden, O = V - 1 outputs (all words but `<s>`, which is the last).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

CHUNK = 512  # rows of logits that exist at once


class _SoftmaxLoss(torch.autograd.Function):
    """Mean over the batch of -log softmax(h W' + b)[y], with its gradients found in the forward pass.

    The gradient of the logits is softmax - onehot; it takes their place in one buffer that is kept from call to
    call. To allocate either anew in each step costs more than the arithmetic on them.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, buffer: Tensor) -> Tensor:
        grad_h, grad_weight, grad_bias = torch.empty_like(h), torch.zeros_like(weight), torch.zeros_like(bias)
        loss = h.new_zeros(())
        for first in range(0, len(h), len(buffer)):
            rows = h[first : first + len(buffer)]  # [b, D]
            target = y[first : first + len(buffer), None]
            logits = torch.addmm(bias, rows, weight.T, out=buffer[: len(rows)])  # [b, O]
            chosen = logits.gather(1, target)
            # log Z from the likeliest word, whose probability cannot underflow.
            largest, likeliest = logits.max(1, keepdim=True)
            delta = torch.softmax(logits, 1, out=logits)
            loss += (largest - delta.gather(1, likeliest).log() - chosen).sum()
            delta.scatter_add_(1, target, torch.full_like(chosen, -1.0))
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


class FullSoftmax(nn.Module):
    """p(w|h) = exp(b_w + u_w . h) / Z (Bengio et al. 2003, eq. 1).

    vectors: the u_w `[O, D]` when they are somebody else's (tied embeddings `[V, D]`, of which the last row,
    `<s>`, is left out); None for its own. counts: `[V]` from train, to start b at the log unigram probabilities.
    """

    def __init__(self, dim: int, counts: Tensor, vectors: nn.Parameter | None = None) -> None:
        super().__init__()
        outputs = len(counts) - 1
        frequency = counts[:outputs].double() + 0.5  # a word never seen starts low, not at zero probability
        self.bias = nn.Parameter((frequency / frequency.sum()).log().to(torch.get_default_dtype()))
        self._tied = vectors is not None
        self.vectors = nn.Parameter(torch.empty(outputs, dim)) if vectors is None else vectors
        if vectors is None:
            nn.init.normal_(self.vectors, std=dim**-0.5)
        self._buffer: Tensor | None = None

    def weight(self) -> Tensor:
        """u `[O, D]`."""
        return self.vectors[: len(self.bias)]

    def loss(self, h: Tensor, y: Tensor) -> Tensor:
        """Mean -log p(y|h) in nats over hidden `[B, D]` and targets `[B]`, for training."""
        size, outputs = min(len(h), CHUNK), len(self.bias)
        buffer = self._buffer
        if buffer is None or len(buffer) < size or buffer.dtype != h.dtype or buffer.device != h.device:
            buffer = self._buffer = h.new_empty(size, outputs)
        loss: Tensor = _SoftmaxLoss.apply(  # type: ignore[no-untyped-call]
            h, self.weight(), self.bias, y, buffer
        )
        return loss

    def log_dist(self, h: Tensor) -> Tensor:
        """log p of all words, `[B, V]` in float64, -inf for `<s>`."""
        logits = torch.addmm(self.bias, h, self.weight().T).double()
        dist = logits.new_full((len(h), len(self.bias) + 1), -torch.inf)
        dist[:, :-1] = logits.log_softmax(1)
        return dist

    def log_prob(self, h: Tensor, y: Tensor) -> Tensor:
        """log p(y|h), `[B]` in float64; y `[B]` or `[B, K]`, which gives `[B, K]`."""
        logits = torch.addmm(self.bias, h, self.weight().T).double()
        chosen = logits.gather(1, y.reshape(len(y), -1).clamp(max=len(self.bias) - 1))
        found = torch.where(
            y.reshape(len(y), -1) < len(self.bias), chosen - logits.logsumexp(1, keepdim=True), -torch.inf
        )
        return found.reshape(y.shape)

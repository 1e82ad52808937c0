"""The softmax of kernels.plain_step in its two forms: loss, gradients, and their application to U, b aside.

Legend of shapes: B examples, D dimension of the hidden, O words that can be predicted.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lmtool.neural.kernels import bf16_softmax, loops
from lmtool.neural.kernels.bfloat16 import widened
from lmtool.neural.kernels.loops import FAST, Array
from lmtool.system import parallel

SMALL = 1 << 18  # weights for which a second thread is not worth its start


class FactoredGradients:
    """In the type of the weights. The gradient of U is delta h, whose product is added to U and never stored; delta is
    p less the one-hot targets, over B.
    """

    def __init__(self, output: Tensor, bias: Tensor, h: Tensor, targets: Tensor, scores: Tensor) -> None:
        """output: U `[O, D]`. bias: b `[O]`. h: `[B, D]`. targets: `[B]`, int64. scores: of the shape of `memory`."""
        self._output, self._h, self._targets = output, h, targets.numpy()
        self._delta = torch.mm(output, h.T, out=scores)  # [O, B]
        losses, self._share, largest = (h.new_empty(len(h)).numpy() for _ in range(3))
        loops.exp_columns(scores.numpy(), bias.numpy(), self._targets, losses, self._share, largest)
        self.loss = float(losses.sum(dtype=np.float64)) / len(h)

    @staticmethod
    def memory(examples: int, outputs: int, dtype: torch.dtype) -> tuple[tuple[int, int], torch.dtype]:
        """The shape and the type of the memory for scores."""
        return (outputs, examples), dtype

    def hidden_gradient(self) -> Tensor:
        """The gradient of h, `[B, D]`; to be called once, before what follows."""
        loops.softmax_gradient(self._delta.numpy(), self._targets, self._share)
        return torch.mm(self._delta.T, self._output)

    def bias_gradient(self) -> Tensor:
        """The gradient of b, `[O]`."""
        return self._delta.sum(1)

    def square(self) -> float:
        """The squared norm of the gradient of U: the sum of (delta delta') o (h h'), `[B, B]` each."""
        both = torch.mm(self._delta.T, self._delta) * torch.mm(self._h, self._h.T)
        return float(both.sum(dtype=torch.float64))

    def apply(self, keep: float, change: float) -> None:
        """U becomes keep U + change times its gradient."""
        torch.addmm(self._output, self._delta, self._h, beta=keep, alpha=change, out=self._output)


class Bf16Gradients:
    """By products in bfloat16; the gradient of U is made with that of h."""

    def __init__(self, output: Tensor, bias: Tensor, h: Tensor, targets: Tensor, scores: Tensor) -> None:
        """Arguments as FactoredGradients has them, all in float32."""
        losses, self._grad_h, both = bf16_softmax.loss_and_gradients(h, output, bias, targets, scores, len(h))
        self.loss = float(losses.sum(dtype=torch.float64)) / len(h)
        self._output, self._grad, self._grad_bias = output, both[:, : h.shape[1]], both[:, h.shape[1]].float()

    @staticmethod
    def memory(examples: int, outputs: int, dtype: torch.dtype) -> tuple[tuple[int, int], torch.dtype]:
        """The shape and the type of the memory for scores."""
        return (examples, outputs), torch.bfloat16

    def hidden_gradient(self) -> Tensor:
        """The gradient of h, `[B, D]`."""
        return self._grad_h

    def bias_gradient(self) -> Tensor:
        """The gradient of b, `[O]`."""
        return self._grad_bias

    def square(self) -> float:
        """The squared norm of the gradient of U."""
        return float(self._grad.float().square().sum(dtype=torch.float64))

    def apply(self, keep: float, change: float) -> None:
        """U becomes keep U + change times its gradient."""
        arrays = self._output.numpy(), self._grad.view(torch.uint16).numpy(), np.float32(keep), np.float32(change)
        parallel.run_pieces(_change_rows, arrays, len(self._output), self._output.numel() // SMALL)


@njit(cache=True, nogil=True, fastmath=FAST)
def _change_rows(weight: Array, grad: Array, keep: float, change: float, first: int, last: int) -> None:
    """weight `[O, D]` = keep weight + change grad, bits of bfloat16; torch takes twice as long over two types."""
    for i in range(first, last):
        row, more = weight[i], grad[i]
        for j in range(len(row)):
            row[j] = keep * row[j] + change * widened(more[j])

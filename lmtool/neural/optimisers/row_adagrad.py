"""Adagrad on the rows with a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lmtool.neural.optimisers.row_optimizer import Parameters, RowOptimizer, by_loops, change_rows


@njit(cache=True, nogil=True, error_model="numpy")
def _adagrad_rows(
    rows: Any, weight: Any, grad: Any, square: Any, lr: Any, keep: Any, eps: Any, first: int, last: int
) -> None:
    for u in range(first, last):
        row = np.uint64(rows[u])
        for j in range(weight.shape[1]):
            g = grad[u, j]
            square[row, j] += g * g
            weight[row, j] = weight[row, j] * keep - lr * g / (np.sqrt(square[row, j]) + eps)


class RowAdagrad(RowOptimizer):
    """s <- s + g^2, w <- (1 - lr decay) w - lr g / (sqrt(s) + eps) (Duchi et al. 2011).

    g is the gradient, l2 w added; decay is weight_decay.
    """

    def __init__(
        self, params: Parameters, lr: float, eps: float = 1e-10, weight_decay: float = 0.0, l2: float = 0.0
    ) -> None:
        """params: of shapes `[R]` or `[R, H]`, or groups of them. The others are finite, 0 or more.

        Raises ValueError for other shapes and types, and for settings out of range.
        """
        super().__init__(params, {"lr": lr, "eps": eps, "weight_decay": weight_decay, "l2": l2})

    def initial_state(self, weight: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"square": torch.zeros_like(weight)}

    def update(
        self, weight: Tensor, rows: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        lr, eps, keep = group["lr"], group["eps"], 1 - group["lr"] * group["weight_decay"]
        square = state["square"]
        if by_loops(weight):
            change_rows(_adagrad_rows, rows, weight, grad, [square], [], lr, keep, eps)
            return
        used = square[rows].addcmul_(grad, grad)
        square[rows] = used
        weight[rows] = weight[rows] * keep - lr * grad / (used.sqrt() + eps)

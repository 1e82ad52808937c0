"""Stochastic gradient descent on the rows with a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lmtool.neural.optimisers.row_optimizer import Parameters, RowOptimizer, by_loops, change_rows


@njit(cache=True, nogil=True, error_model="numpy")
def _sgd_rows(
    rows: Any, weight: Any, grad: Any, momentum: Any, lr: Any, keep: Any, mass: Any, first: int, last: int
) -> None:
    for u in range(first, last):
        row = np.uint64(rows[u])
        for j in range(weight.shape[1]):
            change = grad[u, j]
            if mass > 0:
                momentum[row, j] = mass * momentum[row, j] + change
                change = momentum[row, j]
            weight[row, j] = weight[row, j] * keep - lr * change


class RowSGD(RowOptimizer):
    """w <- (1 - lr decay) w - lr g, or with momentum u <- momentum u + g, w <- (1 - lr decay) w - lr u.

    g is the gradient, l2 w added; decay is weight_decay.
    """

    def __init__(
        self, params: Parameters, lr: float, momentum: float = 0.0, weight_decay: float = 0.0, l2: float = 0.0
    ) -> None:
        """params: of shapes `[R]` or `[R, H]`, or groups of them. The others are finite, 0 or more.

        Raises ValueError for other shapes and types, and for settings out of range.
        """
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "l2": l2})

    def initial_state(self, weight: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"momentum": torch.zeros_like(weight if group["momentum"] else weight[:0])}

    def update(
        self, weight: Tensor, rows: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        lr, mass, keep = group["lr"], group["momentum"], 1 - group["lr"] * group["weight_decay"]
        if mass and not len(state["momentum"]):  # so far there was none
            state["momentum"] = torch.zeros_like(weight)
        momentum = state["momentum"]
        if by_loops(weight):
            held = [momentum if mass else weight]  # without momentum the kernel reads none
            change_rows(_sgd_rows, rows, weight, grad, held, [], lr, keep, mass)
            return
        if mass:
            grad = momentum[rows].mul_(mass).add_(grad)
            momentum[rows] = grad
        weight[rows] = weight[rows] * keep - lr * grad

"""Adam on the rows with a gradient."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lmtool.neural.optimisers.row_optimizer import Parameters, RowOptimizer, by_loops, change_rows


@njit(cache=True, nogil=True, error_model="numpy")
def _adam_rows(
    rows: Any,
    weight: Any,
    grad: Any,
    mean: Any,
    square: Any,
    steps: Any,
    corrections: Any,
    beta: Any,
    lr: Any,
    keep: Any,
    eps: Any,
    first: int,
    last: int,
) -> None:
    for u in range(first, last):
        row = np.uint64(rows[u])
        steps[row] += 1
        step = max(0, min(steps[row], len(corrections) - 1))
        rate, correction = lr * corrections[step, 0], corrections[step, 1]
        for j in range(weight.shape[1]):
            g = grad[u, j]
            m = beta[0] * mean[row, j] + beta[2] * g
            v = beta[1] * square[row, j] + beta[3] * g * g
            mean[row, j], square[row, j] = m, v
            weight[row, j] = weight[row, j] * keep - rate * m / (np.sqrt(v * correction) + eps)


@njit(cache=True, nogil=True, error_model="numpy")
def _adam_rows_caught_up(
    rows: Any,
    weight: Any,
    grad: Any,
    mean: Any,
    square: Any,
    last_used: Any,
    idle: Any,
    now: Any,
    shares: Any,
    rate: Any,
    correction: Any,
    keep: Any,
    eps: Any,
    first: int,
    last: int,
) -> None:
    """idle: what _idle_steps returns. now: the number of this step, `[1]`. shares: of the gradient in both means."""
    for u in range(first, last):
        row = np.uint64(rows[u])
        gap = now[0] - last_used[row]
        last_used[row] = now[0]
        place = max(0, min(gap, len(idle) - 1))
        keep_mean, keep_square, step = idle[place, 0], idle[place, 1], idle[place, 2] * rate
        keep_weight = keep**gap
        for j in range(weight.shape[1]):
            g = grad[u, j]
            m = keep_mean * mean[row, j] + shares[0] * g
            v = keep_square * square[row, j] + shares[1] * g * g
            mean[row, j], square[row, j] = m, v
            weight[row, j] = weight[row, j] * keep_weight - step * m / (np.sqrt(v * correction) + eps)


class RowAdam(RowOptimizer):
    """Adam (Kingma & Ba 2015, algorithm 1) of the used rows, in two forms.

    By itself a row is as if the steps without it did not exist: the bias correction of its mean and square goes by the
    steps that it has had itself. Counting all steps, as torch's SparseAdam does, makes the first steps of a rare word
    up to (1 - beta1) / sqrt(1 - beta2) times too long.

    With `catch_up` a row moves about as far as in dense Adam, where it follows its mean for a while after its gradient
    has come, and decays in every step. When it is used, k steps after the last time, its mean and square are first
    multiplied by beta1^k and beta2^k, and w by (1 - lr decay)^k; then it makes 1 + beta1 + ... + beta1^(k-1) steps at
    once, which are those up to its next use if that comes after k more. The bias correction goes by all steps.

    weight_decay is decoupled (AdamW); l2 is a part of the gradient.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        l2: float = 0.0,
        *,
        catch_up: bool = False,
    ) -> None:
        """params: of shapes `[R]` or `[R, H]`, or groups of them. betas: of the mean and the square, below 1. The
        others are finite, 0 or more. catch_up: whether rows make up for the steps without them.

        Raises ValueError for other shapes and types, and for settings out of range.
        """
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "l2": l2}
        super().__init__(params, settings | {"catch_up": catch_up})

    def initial_state(self, weight: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        steps = torch.zeros(len(weight), dtype=torch.int32, device=weight.device)
        state = {"mean": torch.zeros_like(weight), "square": torch.zeros_like(weight)}
        if group["catch_up"]:
            return {**state, "last_used": steps, "now": steps.new_zeros(1)}
        return {**state, "steps": steps}

    def _catch_up(
        self, weight: Tensor, rows: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        if "now" not in state:  # resumed from a checkpoint of before 0.6: as if all rows had just been used
            steps = state.pop("steps")
            state["now"] = steps.amax(0, keepdim=True)
            state["last_used"] = state["now"].expand(len(steps)).clone()
        lr, eps, (beta1, beta2) = group["lr"], group["eps"], group["betas"]
        keep = max(1 - lr * group["weight_decay"], 0.0)
        mean, square, last_used, now = (state[name] for name in ("mean", "square", "last_used", "now"))
        now += 1
        if by_loops(weight):
            number = grad.numpy().dtype
            rates = _bias_corrections((beta1, beta2), number.name)
            rate, correction = rates[min(int(now), len(rates) - 1)]
            tables = _idle_steps((beta1, beta2), number.name), now.numpy(), np.array([1 - beta1, 1 - beta2], number)
            numbers = lr * rate, correction, keep, eps
            change_rows(_adam_rows_caught_up, rows, weight, grad, [mean, square, last_used], tables, *numbers)
            return
        gap = (now - last_used[rows]).to(weight.dtype)[:, None]
        last_used[rows] = now
        m = mean[rows].mul_(beta1**gap).add_(grad, alpha=1 - beta1)
        v = square[rows].mul_(beta2**gap).addcmul_(grad, grad, value=1 - beta2)
        mean[rows], square[rows] = m, v
        rate = ((1 - beta1**gap) / (1 - beta1)) * (lr / (1 - beta1 ** now.double())).to(weight.dtype)
        scale = (v / (1 - beta2 ** now.double()).to(v.dtype)).sqrt() + eps
        weight[rows] = weight[rows] * keep**gap - rate * m / scale

    def update(
        self, weight: Tensor, rows: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        if group["catch_up"]:
            self._catch_up(weight, rows, grad, state, group)
            return
        lr, eps, keep, betas = group["lr"], group["eps"], 1 - group["lr"] * group["weight_decay"], group["betas"]
        mean, square, steps = state["mean"], state["square"], state["steps"]
        if by_loops(weight):
            number = grad.numpy().dtype
            tables = _bias_corrections(betas, number.name), np.array([*betas, 1 - betas[0], 1 - betas[1]], dtype=number)
            change_rows(_adam_rows, rows, weight, grad, [mean, square, steps], tables, lr, keep, eps)
            return
        steps[rows] += 1
        t = steps[rows].double()[:, None]
        m = mean[rows].mul_(betas[0]).add_(grad, alpha=1 - betas[0])
        v = square[rows].mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
        mean[rows], square[rows] = m, v
        scale = (v / (1 - betas[1] ** t).to(v.dtype)).sqrt() + eps
        weight[rows] = weight[rows] * keep - lr * (m / (1 - betas[0] ** t).to(m.dtype)) / scale


@lru_cache(maxsize=8)
def _idle_steps(betas: tuple[float, float], number: str) -> Any:
    """beta1^k, beta2^k and 1 + beta1 + ... + beta1^(k-1) for k = 0, 1, ..., `[T, 3]`, until they change no more."""
    gaps = np.arange(len(_bias_corrections(betas, number)))
    powers = np.array(betas)[None, :] ** gaps[:, None]
    return np.column_stack([powers, (1 - powers[:, 0]) / (1 - betas[0])]).astype(number)


@lru_cache(maxsize=8)
def _bias_corrections(betas: tuple[float, float], number: str) -> Any:
    """1 / (1 - beta^t) for both betas and t = 0, 1, ..., `[T, 2]`, until they are 1; 1 for t = 0."""
    steps = min(1 << 20, max(1, math.ceil(-40 / math.log(max(*betas, 1e-9)))))
    powers = np.array(betas)[None, :] ** np.arange(1, steps + 1)[:, None]
    return np.concatenate([[[1.0, 1.0]], 1 / (1 - powers)]).astype(number)

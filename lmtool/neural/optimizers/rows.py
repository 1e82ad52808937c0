"""SGD, Adagrad and Adam on the rows with a gradient.

On a CPU a compiled loop updates the rows, 2 to 15 times as fast as the same formula in plain torch, which stands beside
it for all other devices. The loops go row by row, so that a row's weight, gradient and state are read and written once;
torch's operations each go through memory, and first gather and at last scatter the rows. A loop is given a part of the
rows, from first to before last, by each thread. tests/neural/test_optim.py compares both.

Legend of shapes: R rows of a parameter, H its dimension, U rows with a gradient.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from lmtool.neural.forms.loops import by_loops
from lmtool.neural.optimizers.base import Group, Parameters, ParameterState, RowOptimizer, change_rows

compiled = njit(cache=True, nogil=True, error_model="numpy")


@compiled
def sgd_rows(rows: Any, weight: Any, grad: Any, state: Any, numbers: Any, first: int, last: int) -> None:
    (momentum,), (lr, keep, mass) = state, numbers
    for u in range(first, last):
        row = np.uint64(rows[u])  # unsigned: an index that may be negative costs a test in each access
        for j in range(weight.shape[1]):
            change = grad[u, j]
            if mass > 0:
                momentum[row, j] = mass * momentum[row, j] + change
                change = momentum[row, j]
            weight[row, j] = weight[row, j] * keep - lr * change


class RowSGD(RowOptimizer):
    """w <- (1 - lr decay) w - lr g, or with momentum u <- momentum u + g, w <- (1 - lr decay) w - lr u.

    g is the gradient plus l2 w; decay is weight_decay.

    >>> import torch
    >>> from lmtool.neural import RowSGD
    >>> vectors = torch.nn.Embedding(1000, 16, sparse=True)
    >>> optimizer = RowSGD(vectors.parameters(), lr=0.1)
    >>> before = vectors.weight.detach().clone()
    >>> vectors(torch.tensor([3, 7])).pow(2).sum().backward()
    >>> optimizer.step()
    >>> (vectors.weight != before).any(dim=1).nonzero().flatten().tolist()
    [3, 7]
    """

    def __init__(
        self, params: Parameters, lr: float, momentum: float = 0.0, weight_decay: float = 0.0, l2: float = 0.0
    ) -> None:
        """params: `[R]` or `[R, H]`, or groups of them. The others: finite, 0 or more. Raises ValueError if not."""
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "l2": l2})

    def initial_state(self, weight: Tensor, group: Group) -> ParameterState:
        return {"momentum": torch.zeros_like(weight if group["momentum"] else weight[:0])}

    def update(self, weight: Tensor, rows: Tensor, grad: Tensor, state: ParameterState, group: Group) -> None:
        lr, mass, keep = group["lr"], group["momentum"], 1 - group["lr"] * group["weight_decay"]
        if mass and not len(state["momentum"]):  # so far there was none
            state["momentum"] = torch.zeros_like(weight)
        momentum = state["momentum"]
        if by_loops(weight):
            held = [momentum if mass else weight]  # without momentum the kernel reads none
            change_rows(sgd_rows, rows, weight, grad, held, lr, keep, mass)
            return
        if mass:
            grad = momentum[rows].mul_(mass).add_(grad)
            momentum[rows] = grad
        weight[rows] = weight[rows] * keep - lr * grad


@compiled
def _adagrad_rows(rows: Any, weight: Any, grad: Any, state: Any, numbers: Any, first: int, last: int) -> None:
    (square,), (lr, keep, eps) = state, numbers
    for u in range(first, last):
        row = np.uint64(rows[u])
        for j in range(weight.shape[1]):
            g = grad[u, j]
            square[row, j] += g * g
            weight[row, j] = weight[row, j] * keep - lr * g / (np.sqrt(square[row, j]) + eps)


class RowAdagrad(RowOptimizer):
    """s <- s + g^2, w <- (1 - lr decay) w - lr g / (sqrt(s) + eps) (Duchi et al. 2011).

    g is the gradient plus l2 w; decay is weight_decay.

    >>> import torch
    >>> from lmtool.neural import RowAdagrad
    >>> optimizer = RowAdagrad(torch.nn.Embedding(1000, 16, sparse=True).parameters(), lr=0.1)  # used like RowSGD
    """

    def __init__(
        self, params: Parameters, lr: float, eps: float = 1e-10, weight_decay: float = 0.0, l2: float = 0.0
    ) -> None:
        """params: `[R]` or `[R, H]`, or groups of them. The others: finite, 0 or more. Raises ValueError if not."""
        super().__init__(params, {"lr": lr, "eps": eps, "weight_decay": weight_decay, "l2": l2})

    def initial_state(self, weight: Tensor, group: Group) -> ParameterState:
        return {"square": torch.zeros_like(weight)}

    def update(self, weight: Tensor, rows: Tensor, grad: Tensor, state: ParameterState, group: Group) -> None:
        lr, eps, keep = group["lr"], group["eps"], 1 - group["lr"] * group["weight_decay"]
        square = state["square"]
        if by_loops(weight):
            change_rows(_adagrad_rows, rows, weight, grad, [square], lr, keep, eps)
            return
        used = square[rows].addcmul_(grad, grad)
        square[rows] = used
        weight[rows] = weight[rows] * keep - lr * grad / (used.sqrt() + eps)


@compiled
def _adam_rows(rows: Any, weight: Any, grad: Any, state: Any, numbers: Any, first: int, last: int) -> None:
    """steps: `[R]`, the last step of each row, or the number of its steps if `now`, the number of this step, is 0.
    corrections, gaps: tables of _bias_corrections and _skipped_steps. shares: weights of the gradient in mean and
    square.
    """
    (mean, square, steps, now, corrections, gaps), (share, square_share, lr, keep, eps) = state, numbers
    for u in range(first, last):
        row = np.uint64(rows[u])
        gap = now[0] - steps[row] if now[0] else 1
        steps[row] = now[0] if now[0] else steps[row] + 1
        step, place = max(0, min(steps[row], len(corrections) - 1)), max(0, min(gap, len(gaps) - 1))
        keep_mean, keep_square = gaps[place, 0], gaps[place, 1]
        rate, correction = gaps[place, 2] * (lr * corrections[step, 0]), corrections[step, 1]
        keep_weight = keep**gap
        for j in range(weight.shape[1]):
            g = grad[u, j]
            m = keep_mean * mean[row, j] + share * g
            v = keep_square * square[row, j] + square_share * g * g
            mean[row, j], square[row, j] = m, v
            weight[row, j] = weight[row, j] * keep_weight - rate * m / (np.sqrt(v * correction) + eps)


class RowAdam(RowOptimizer):
    """Adam (Kingma & Ba 2015, algorithm 1) of the used rows, in two variants.

    By default a row is updated as if the steps without it did not exist: the bias correction of its mean and square
    counts the row's own steps. Counting all steps, like torch's SparseAdam, makes the first steps of a rare word up to
    (1 - beta1) / sqrt(1 - beta2) times too long.

    With `correct_skipped_steps` a row moves about as far as in dense Adam, which keeps following the mean of a row
    after its last gradient and decays the row in every step. When the row is used, k steps after the last time, its
    mean and square are first multiplied by beta1^k and beta2^k, and w by (1 - lr decay)^k; then it makes
    1 + beta1 + ... + beta1^(k-1) steps at once, those up to its next use if that follows after k more. The bias
    correction counts all steps.

    weight_decay is decoupled (AdamW); l2 is a part of the gradient.

    >>> import torch
    >>> from lmtool.neural import RowAdam
    >>> optimizer = RowAdam(torch.nn.Embedding(1000, 16, sparse=True).parameters(), lr=0.001)  # used like RowSGD
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
        correct_skipped_steps: bool = False,
    ) -> None:
        """params: `[R]` or `[R, H]`, or groups of them. betas: decay rates of mean and square, below 1. The others:
        finite, 0 or more. correct_skipped_steps: whether rows make up for the steps without them.
        """
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "l2": l2}
        super().__init__(params, settings | {"correct_skipped_steps": correct_skipped_steps})

    def initial_state(self, weight: Tensor, group: Group) -> ParameterState:
        steps = torch.zeros(len(weight), dtype=torch.int32, device=weight.device)
        state = {"mean": torch.zeros_like(weight), "square": torch.zeros_like(weight)}
        if group["correct_skipped_steps"]:
            return {**state, "last_used": steps, "now": steps.new_zeros(1)}
        return {**state, "steps": steps}

    def update(self, weight: Tensor, rows: Tensor, grad: Tensor, state: ParameterState, group: Group) -> None:
        lr, eps, (beta1, beta2) = group["lr"], group["eps"], group["betas"]
        keep = 1 - lr * group["weight_decay"]
        if group["correct_skipped_steps"]:
            state["now"] += 1
            now, steps, keep = state["now"], state["last_used"], max(keep, 0.0)
        else:
            now, steps = state["steps"].new_zeros(1), state["steps"]
        mean, square = state["mean"], state["square"]
        if by_loops(weight):
            tables = [make((beta1, beta2), grad.dtype) for make in (_bias_corrections, _skipped_steps)]
            held = [mean, square, steps, now, *tables]
            change_rows(_adam_rows, rows, weight, grad, held, 1 - beta1, 1 - beta2, lr, keep, eps)
            return
        if group["correct_skipped_steps"]:
            gap = (now - steps[rows]).to(weight.dtype)[:, None]
            steps[rows] = now
        else:
            gap = torch.ones(len(rows), 1, dtype=weight.dtype, device=weight.device)
            steps[rows] += 1
        t = steps[rows].double()[:, None]
        m = mean[rows].mul_(beta1**gap).add_(grad, alpha=1 - beta1)
        v = square[rows].mul_(beta2**gap).addcmul_(grad, grad, value=1 - beta2)
        mean[rows], square[rows] = m, v
        rate = ((1 - beta1**gap) / (1 - beta1)) * (lr / (1 - beta1**t)).to(weight.dtype)
        scale = (v / (1 - beta2**t).to(v.dtype)).sqrt() + eps
        weight[rows] = weight[rows] * keep**gap - rate * m / scale


@lru_cache(maxsize=8)
def _skipped_steps(betas: tuple[float, float], dtype: torch.dtype) -> Tensor:
    """Tabulate beta1^k, beta2^k, 1 + beta1 + ... + beta1^(k-1) for k = 0, 1, ..., `[T, 3]`, until they are constant."""
    gaps = np.arange(len(_bias_corrections(betas, dtype)))
    powers = np.array(betas)[None, :] ** gaps[:, None]
    return torch.from_numpy(np.column_stack([powers, (1 - powers[:, 0]) / (1 - betas[0])])).to(dtype)


@lru_cache(maxsize=8)
def _bias_corrections(betas: tuple[float, float], dtype: torch.dtype) -> Tensor:
    """Tabulate 1 / (1 - beta^t) of both betas for t = 0, 1, ..., `[T, 2]`, until they are 1; 1 for t = 0."""
    steps = min(1 << 20, max(1, math.ceil(-40 / math.log(max(*betas, 1e-9)))))
    powers = np.array(betas)[None, :] ** np.arange(1, steps + 1)[:, None]
    return torch.from_numpy(np.concatenate([[[1.0, 1.0]], 1 / (1 - powers)])).to(dtype)

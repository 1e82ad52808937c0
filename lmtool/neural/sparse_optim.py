"""Optimisers for sparse gradients: a step changes the rows that the batch used and no others, so that its work does not
grow with the vocabulary. Each is a torch.optim.Optimizer; parameters with dense gradients belong to one of torch's own.

The state of a row (mean and square of its gradients) does not change while the row is not used, and weight decay acts
on a row when the row is used: `weight_decay` decoupled (Loshchilov & Hutter 2019), `l2` as a part of the gradient.
RowAdam can make up for the steps without a row when it is used again. On a CPU compiled loops do the work.

Legend of shapes: R rows of a parameter, H its dimension, U rows with a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from lmtool.neural.checks import all_below, described
from lmtool.neural.devices import on_cpu
from lmtool.neural.kernels.sparse_rows import Array, coalesced, compiled
from lmtool.system import parallel

SMALL = 1 << 17  # numbers to change for which a second thread is not worth its start

Parameters = Iterable[nn.Parameter] | Iterable[dict[str, Any]]


class RowOptimizer(torch.optim.Optimizer):
    """What the three have in common: a gradient becomes one for each row, and each row is changed by itself.

    Parameters are `[R]` or `[R, H]`.
    """

    def __init__(self, params: Parameters, defaults: dict[str, Any]) -> None:
        """params: parameters, or groups of them with settings, as torch's optimisers take them.

        Raises ValueError for parameters of another shape or type, and for settings out of range.
        """
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters and its settings. Raises ValueError as the constructor does."""
        super().add_param_group(param_group)
        group, name = self.param_groups[-1], type(self).__name__
        for parameter in group["params"]:
            if parameter.dim() not in (1, 2) or not parameter.is_floating_point():
                raise ValueError(f"{name}: parameters must be floating-point [R] or [R, H]; got {described(parameter)}")
        betas = group.get("betas", (0.0, 0.0))
        for setting in ("lr", "momentum", "eps", "weight_decay", "l2"):
            if setting in group and not 0 <= group[setting] < math.inf:
                raise ValueError(f"{name}: {setting} must be finite and 0 or more; got {group[setting]}")
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"{name}: betas must be two numbers from 0 to below 1; got {betas}")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step; closure: computes the loss anew, which is then returned.

        Raises ValueError for a parameter with a dense gradient, for a gradient with rows that the parameter does not
        have, which torch lets pass, and for a state that is not of the parameter's shape.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if not parameter.grad.is_sparse:
                    raise ValueError(
                        f"{type(self).__name__} takes sparse gradients: give it the layers' row_parameters() alone"
                    )
                grad = coalesced(parameter.grad)
                rows, values = grad.indices()[0], grad.values()
                weight = parameter.detach()
                if weight.dim() == 1:
                    weight, values = weight[:, None], values[:, None]
                if group["l2"]:
                    if rows.is_cpu:
                        _require_rows(rows.numpy(), values.shape, weight.shape)
                    values = values + group["l2"] * weight[rows]
                state = self.state[parameter]
                if not state:
                    state.update(self._initial_state(weight, group))
                self._update(weight, rows, values.contiguous(), state, group)
        return loss

    def _initial_state(self, weight: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        """The state of a parameter `[R, H]` before its first step."""
        raise NotImplementedError

    def _update(
        self, weight: Tensor, rows: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        """Change weight[rows] and the state by the gradients `[U, H]` of rows `[U]`."""
        raise NotImplementedError


def _require_rows(rows: Array, grad: Sequence[int], weight: Sequence[int]) -> None:
    """Raise ValueError unless a gradient of shape grad and of rows `[U]` is one of a parameter of shape weight."""
    if tuple(grad) != (len(rows), weight[1]) or not all_below(rows, weight[0]):
        least, most = (int(rows.min()), int(rows.max())) if len(rows) else (0, -1)
        raise ValueError(
            f"a gradient of rows {least:,} to {most:,}, {list(grad)}, does not fit a parameter {list(weight)}: it must "
            f"be of rows from 0 to {weight[0] - 1:,}, {weight[1]} numbers each"
        )


def _change_rows(
    kernel: Any,
    rows: Tensor,
    weight: Tensor,
    grad: Tensor,
    state: Sequence[Tensor],
    tables: Sequence[Array],
    *numbers: float,
) -> None:
    """Run a kernel over rows `[U]` of weight `[R, H]`, on several threads where there is enough work.

    state: `[R, H]` or `[R]`. numbers: are turned into the type of the weights. Raises ValueError for arrays that the
    kernel would read or write beside of.
    """
    row_array, *arrays = [tensor.numpy() for tensor in (rows, weight, grad, *state)]
    shape, number = arrays[0].shape, arrays[1].dtype.type
    _require_rows(row_array, arrays[1].shape, shape)
    for array in arrays[2:]:
        if array.shape not in (shape, shape[:1]):
            raise ValueError(f"the state of a parameter {list(shape)} must be as long; got {described(array)}")
    arguments = row_array, *arrays, *tables, *map(number, numbers)
    parallel.run_pieces(kernel, arguments, len(row_array), len(row_array) * shape[1] // SMALL)


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

    def _initial_state(self, weight: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"momentum": torch.zeros_like(weight if group["momentum"] else weight[:0])}

    def _update(
        self, weight: Tensor, rows: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        lr, mass, keep = group["lr"], group["momentum"], 1 - group["lr"] * group["weight_decay"]
        if mass and not len(state["momentum"]):  # so far there was none
            state["momentum"] = torch.zeros_like(weight)
        momentum = state["momentum"]
        if compiled(weight):
            held = [momentum if mass else weight]  # without momentum the kernel reads none
            _change_rows(_sgd_rows, rows, weight, grad, held, [], lr, keep, mass)
            return
        if mass:
            grad = momentum[rows].mul_(mass).add_(grad)
            momentum[rows] = grad
        weight[rows] = weight[rows] * keep - lr * grad


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

    def _initial_state(self, weight: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"square": torch.zeros_like(weight)}

    def _update(
        self, weight: Tensor, rows: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        lr, eps, keep = group["lr"], group["eps"], 1 - group["lr"] * group["weight_decay"]
        square = state["square"]
        if compiled(weight):
            _change_rows(_adagrad_rows, rows, weight, grad, [square], [], lr, keep, eps)
            return
        used = square[rows].addcmul_(grad, grad)
        square[rows] = used
        weight[rows] = weight[rows] * keep - lr * grad / (used.sqrt() + eps)


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

    def _initial_state(self, weight: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
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
        if compiled(weight):
            number = grad.numpy().dtype
            rates = _bias_corrections((beta1, beta2), number.name)
            rate, correction = rates[min(int(now), len(rates) - 1)]
            tables = _idle_steps((beta1, beta2), number.name), now.numpy(), np.array([1 - beta1, 1 - beta2], number)
            numbers = lr * rate, correction, keep, eps
            _change_rows(_adam_rows_caught_up, rows, weight, grad, [mean, square, last_used], tables, *numbers)
            return
        gap = (now - last_used[rows]).to(weight.dtype)[:, None]
        last_used[rows] = now
        m = mean[rows].mul_(beta1**gap).add_(grad, alpha=1 - beta1)
        v = square[rows].mul_(beta2**gap).addcmul_(grad, grad, value=1 - beta2)
        mean[rows], square[rows] = m, v
        rate = ((1 - beta1**gap) / (1 - beta1)) * (lr / (1 - beta1 ** now.double())).to(weight.dtype)
        scale = (v / (1 - beta2 ** now.double()).to(v.dtype)).sqrt() + eps
        weight[rows] = weight[rows] * keep**gap - rate * m / scale

    def _update(
        self, weight: Tensor, rows: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        if group["catch_up"]:
            self._catch_up(weight, rows, grad, state, group)
            return
        lr, eps, keep, betas = group["lr"], group["eps"], 1 - group["lr"] * group["weight_decay"], group["betas"]
        mean, square, steps = state["mean"], state["square"], state["steps"]
        if compiled(weight):
            number = grad.numpy().dtype
            tables = _bias_corrections(betas, number.name), np.array([*betas, 1 - betas[0], 1 - betas[1]], dtype=number)
            _change_rows(_adam_rows, rows, weight, grad, [mean, square, steps], tables, lr, keep, eps)
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


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter] | nn.Parameter, max_norm: float) -> Tensor:
    """Scale the gradients, sparse and dense, down where their norm together is above max_norm; returns that norm, `[]`.

    parameters: of any number, or one. Raises ValueError for what are no parameters and for a max_norm that is not above
    0.
    """
    if not max_norm > 0:
        raise ValueError(f"clip_gradients: max_norm must be above 0; got {max_norm}")
    parameters = [parameters] if isinstance(parameters, nn.Parameter) else list(parameters)
    wrong = next((item for item in parameters if not isinstance(item, Tensor)), None)
    if wrong is not None:
        raise ValueError(f"clip_gradients: parameters must be tensors; got {described(wrong)}")
    values = []
    for parameter in parameters:
        if parameter.grad is not None:
            if parameter.grad.is_sparse:
                parameter.grad = coalesced(parameter.grad)
            values.append(parameter.grad.values() if parameter.grad.is_sparse else parameter.grad)
    if values and not on_cpu(values[0]):
        return _clip_on_device(values, max_norm)
    norms = [torch.linalg.vector_norm(value).to(values[0].device) for value in values]
    norm = torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())
    factor = max_norm / (norm + 1e-6)
    if factor < 1:
        scale = factor.clamp(max=1)
        for value in values:
            value.mul_(scale)
    return norm


def _clip_on_device(values: list[Tensor], max_norm: float) -> Tensor:
    """clip_gradients for a GPU: few operations over all values together, none of which is read, as that would wait."""
    norms = torch._foreach_norm(values)
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    torch._foreach_mul_(values, (max_norm / (norm + 1e-6)).clamp(max=1))
    return norm

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
from typing import Any

import torch
from torch import Tensor, nn

from lmtool.neural.checks import all_below, described
from lmtool.neural.forms import allowed
from lmtool.neural.forms.groups import coalesced
from lmtool.neural.forms.loops import Array, as_arrays, compiled
from lmtool.system import parallel

NUMBERS_PER_THREAD = 1 << 17  # to change, for which a second thread is worth its start

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
                if rows.is_cpu:
                    _require_rows(rows.numpy(), values.shape, weight.shape)
                if group["l2"]:
                    values = values + group["l2"] * weight[rows]
                state = self.state[parameter]
                if not state:
                    state.update(self.initial_state(weight, group))
                _require_state(state, weight.shape)
                self.update(weight, rows, values.contiguous(), state, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what state_dict returned; counts of steps stay integers, where torch would take the weights' dtype."""
        super().load_state_dict(state_dict)
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, state in state_dict["state"].items():
            for name, value in state.items():
                if not value.is_floating_point():
                    self.state[parameters[number]][name] = value.to(parameters[number].device).clone()

    def initial_state(self, weight: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        """The state of a parameter `[R, H]` before its first step."""
        raise NotImplementedError

    def update(
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


def _require_state(state: dict[str, Tensor], weight: torch.Size) -> None:
    """Raise ValueError unless a state is one of a parameter of shape weight: a compiled loop would go beside it."""
    for name, value in state.items():
        if value.shape not in (weight, weight[:1]) and value.numel() and name != "now":
            raise ValueError(f"the state of a parameter {list(weight)} must be as long; got {described(value)}")


def change_rows(
    kernel: Any,
    rows: Tensor,
    weight: Tensor,
    grad: Tensor,
    state: Sequence[Tensor],
    tables: Sequence[Array],
    *numbers: float,
) -> None:
    """Run a kernel over rows `[U]` of weight `[R, H]`, on several threads where there is enough work.

    state: `[R, H]` or `[R]`. numbers: are turned into the weights' dtype. All have been checked.
    """
    row_array, *arrays = as_arrays(rows, weight, grad, *state)
    arguments = row_array, *arrays, *tables, *map(arrays[1].dtype.type, numbers)
    parallel.run_pieces(kernel, arguments, len(row_array), arrays[1].size // NUMBERS_PER_THREAD)


def by_loops(weight: Tensor) -> bool:
    """Whether a step on a weight is done by compiled loops, 2 to 15 times as fast as the same in plain torch."""
    return allowed() and compiled(weight)

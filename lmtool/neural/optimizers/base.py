"""Optimizers for sparse gradients, which change the rows that a batch used and no others, and clipping of gradients.

The work of a step does not grow with the vocabulary. Each optimizer is a torch.optim.Optimizer; parameters with dense
gradients belong to one of torch's own. The state of a row (e.g. the mean of its gradients) does not change while the
row is unused, and weight decay acts on a row when it is used: `weight_decay` is decoupled (Loshchilov & Hutter 2019),
`l2` a part of the gradient.

Legend of shapes: R rows of a parameter, H its dimension, U rows with a gradient.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from lmtool.config.rules import is_number
from lmtool.neural.checks import all_below, require_number
from lmtool.neural.forms.loops import as_arrays, coalesce
from lmtool.system import parallel
from lmtool.system.arrays import Array, describe

NUMBERS_PER_THREAD = 1 << 17  # numbers to change for which a second thread is worth its start
SPARED_NAMES = frozenset(("bias", "beta", "g", "gain", "gamma", "scale"))  # words in the names of biases and gains

Group = dict[str, Any]  # parameters and settings
ParameterState = dict[str, Tensor]  # optimizer state of one parameter
Parameters = Iterable[nn.Parameter] | Iterable[Group]


@dataclass(frozen=True, slots=True)
class ParameterGroups:
    """The parameters of one optimizer, matrices first, the order in which checkpoints number them.

    spared: ids of the parameters that weight decay spares.
    """

    parameters: list[nn.Parameter]
    spared: frozenset[int]

    @classmethod
    def of(cls, parameters: Iterable[nn.Parameter], model: nn.Module) -> ParameterGroups:
        """Sort parameters of a model by their role: weight decay spares biases and gains.

        A module of the model declares them in a class attribute `decays`, names of its parameters and whether they are
        decayed. Of the others, those of layer norms, gains of weight_norm, and any with a word of SPARED_NAMES in its
        name or of one dimension are spared.
        """
        modules, spared = dict(model.named_modules()), set()
        for path, module in modules.items():
            owner, _, tensor = f".{path}".rpartition(".parametrizations.")
            is_list = isinstance(module, ParametrizationList)  # it holds the originals of a tensor of its owner
            for name, parameter in module.named_parameters(recurse=False):
                has, called = (modules[owner[1:]], tensor) if is_list else (module, name)
                if (is_list and _is_gain(parameter, module)) or not _decays(has, called, parameter):
                    spared.add(id(parameter))
        return cls(sorted(parameters, key=lambda p: p.dim() <= 1), frozenset(spared))

    @property
    def on_cpu(self) -> bool:
        """Whether all parameters are on the CPU."""
        return all(parameter.is_cpu for parameter in self.parameters)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the groups that a `torch.optim.Optimizer` takes; in spared groups, weight_decay is 0."""
        for spared, run in groupby(self.parameters, key=lambda p: id(p) in self.spared):
            yield {"params": list(run), **({"weight_decay": 0.0} if spared else {})}

    def torch_groups(self, weight_decay: float, *, key: str = "weight_decay") -> list[dict[str, Any]]:
        """Return the parameter groups that a `torch.optim.Optimizer` takes, none of them empty.

        key: the name of the optimizer's argument, which is 0 for the spared parameters and `weight_decay` for the rest.
        """
        return [{"params": group["params"], key: group.get("weight_decay", weight_decay)} for group in self]


def _decays(module: nn.Module, name: str, parameter: Tensor) -> bool:
    role = not isinstance(module, nn.LayerNorm | nn.RMSNorm) and SPARED_NAMES.isdisjoint(name.split("_"))
    decays: bool = getattr(module, "decays", {}).get(name, role and parameter.dim() > 1)
    return decays


def _is_gain(original: Tensor, originals: nn.Module) -> bool:
    """Return whether an original of a parametrized tensor scales another one: their shapes differ by 1s alone."""
    return any(
        other.dim() == original.dim()
        and other.shape != original.shape
        and all(size in (1, of) for size, of in zip(original.shape, other.shape, strict=True))
        for other in originals.parameters(recurse=False)
    )


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter] | nn.Parameter, max_norm: float) -> Tensor:
    """Scale gradients, sparse and dense, down to a norm of `max_norm` together if it is larger; return the norm, `[]`.

    parameters: one, or any number. Raises ValueError for other objects and unless max_norm is above 0.

    >>> import torch
    >>> from lmtool.neural import clip_gradients
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> clip_gradients(weight, max_norm=1.0), weight.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    require_number("clip_gradients: max_norm", max_norm, lambda norm: norm > 0, "above 0")
    parameters = [parameters] if isinstance(parameters, nn.Parameter) else list(parameters)
    wrong = next((item for item in parameters if not isinstance(item, Tensor)), None)
    if wrong is not None:
        raise ValueError(f"clip_gradients: parameters must be tensors; got {describe(wrong)}")
    values = []
    for parameter in dict.fromkeys(parameters):  # a parameter that is given twice counts once
        if parameter.grad is not None:
            if parameter.grad.is_sparse:
                parameter.grad = coalesce(parameter.grad)
            values.append(parameter.grad.values() if parameter.grad.is_sparse else parameter.grad)
    norms = [torch.linalg.vector_norm(value).to(values[0].device) for value in values]
    norm = torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())
    factor = max_norm / (norm + 1e-6)
    if not factor.is_cpu or factor < 1:  # a GPU would have to report it
        scale = factor.clamp(max=1)
        for value in values:
            value.mul_(scale)
    return norm


@functools.cache
def without_compiler(kind: type[torch.optim.Optimizer]) -> Any:
    """Return a subclass of one of torch's optimizers that does not import torch's compiler, which takes a second.

    The first call of these methods would: their decorators keep the compiler from compiling them. `__wrapped__` is what
    they decorate; a method without it is inherited as it is.
    """
    names = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    methods: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    return type(kind.__name__, (kind,), methods | {"step": torch.no_grad()(inspect.unwrap(kind.step))})


class RowOptimizer(without_compiler(torch.optim.Optimizer)):  # type: ignore[misc]
    """Base class of the row optimizers: turns a sparse gradient into one gradient per row, and updates these rows.

    Parameters are `[R]` or `[R, H]`.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters and its settings. Raises ValueError as the constructor does."""
        super().add_param_group(param_group)
        group, name = self.param_groups[-1], type(self).__name__
        for parameter in group["params"]:
            if parameter.dim() not in (1, 2) or not parameter.is_floating_point():
                raise ValueError(f"{name}: parameters must be floating-point [R] or [R, H]; got {describe(parameter)}")
        for setting in ("lr", "momentum", "eps", "weight_decay", "l2"):
            if setting in group:
                require_number(
                    f"{name}: {setting}", group[setting], lambda x: 0 <= x < math.inf, "finite and 0 or more"
                )
        betas = group.get("betas", (0.0, 0.0))
        pair = isinstance(betas, Sequence) and len(betas) == 2
        if not (pair and all(is_number(beta, 0, 1) and beta < 1 for beta in betas)):
            raise ValueError(f"{name}: betas must be two numbers from 0 to below 1; got {betas!r}")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Make one step. closure: computes the loss again; its result is returned.

        The used rows of a dense gradient are the rows that are not 0. Raises ValueError for a gradient with rows that
        the parameter does not have, which torch lets pass, and for a state that does not fit the parameter.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                grad = coalesce(parameter.grad)
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
        """Load a state dict; counts of steps stay integers, although torch would convert them to the weights' dtype."""
        super().load_state_dict(state_dict)
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, state in state_dict["state"].items():
            for name, value in state.items():
                if not value.is_floating_point():
                    self.state[parameters[number]][name] = value.to(parameters[number].device).clone()

    def initial_state(self, weight: Tensor, group: Group) -> ParameterState:
        """Return the state of a parameter `[R, H]` before its first step."""
        raise NotImplementedError

    def update(self, weight: Tensor, rows: Tensor, grad: Tensor, state: ParameterState, group: Group) -> None:
        """Change weight[rows] and the state, given the gradients `[U, H]` of rows `[U]`."""
        raise NotImplementedError


def _require_rows(rows: Array, grad: Sequence[int], weight: Sequence[int]) -> None:
    """Raise ValueError unless rows `[U]` and their gradient, of shape `grad`, fit a parameter of shape `weight`."""
    if tuple(grad) != (len(rows), weight[1]) or not all_below(rows, weight[0]):
        low, high = (int(rows.min()), int(rows.max())) if len(rows) else (0, -1)
        raise ValueError(
            f"a gradient of rows {low:,} to {high:,}, {list(grad)}, does not fit a parameter {list(weight)}: it must "
            f"be of rows from 0 to {weight[0] - 1:,}, {weight[1]} numbers each"
        )


def _require_state(state: ParameterState, weight: torch.Size) -> None:
    """Raise ValueError unless a state fits a parameter of shape `weight`: a compiled loop would write outside it."""
    for name, value in state.items():
        if value.shape not in (weight, weight[:1]) and value.numel() and name != "now":
            raise ValueError(f"the state of a parameter {list(weight)} must be as long; got {describe(value)}")


def change_rows(kernel: Any, rows: Tensor, weight: Tensor, grad: Tensor, state: list[Tensor], *numbers: float) -> None:
    """Run a kernel over rows `[U]` of weight `[R, H]`, on several threads if there is enough work.

    state: `[R, H]` or `[R]`, and tables. numbers: are converted to the weights' dtype. All have been checked.
    """
    row_array, weights, grads, *arrays = as_arrays(rows, weight, grad, *state)
    arguments = row_array, weights, grads, tuple(arrays), tuple(map(weights.dtype.type, numbers))
    parallel.run_pieces(kernel, arguments, len(row_array), grads.size // NUMBERS_PER_THREAD)

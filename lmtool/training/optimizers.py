"""The optimizers of a network, their state, and the changes to gradients and weights beside a step."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from lmtool.config.groups import OptimConfig
from lmtool.config.training import Gradients
from lmtool.neural.devices import fits_dense
from lmtool.neural.forms.network_step import NetworkStep, network_step
from lmtool.neural.model import NeuralModel
from lmtool.neural.optimizers.base import ParameterGroups, clip_gradients
from lmtool.training.optim import SgdOptim
from lmtool.training.processes import Processes


def use_gradients(model: NeuralModel, gradients: Gradients, processes: Processes | None = None) -> bool:
    """Make the gradients of a model sparse or dense, as a setting says; return whether it made them dense.

    auto: dense on a GPU with enough memory. processes: follow the first of them, as GPUs may differ in free memory.
    """
    rows = model.sparse_parameters()
    dense = gradients is Gradients.dense
    if gradients is Gradients.auto and rows and not rows[0].is_cpu:
        dense = fits_dense(model.device, sum(parameter.numel() for parameter in rows))
        dense = dense if processes is None else processes.from_first(dense)
    if dense:
        model.use_dense_gradients()
    return dense


def make_optimizers(model: NeuralModel, optim: OptimConfig) -> list[torch.optim.Optimizer]:
    """Return the optimizers of the settings: one for dense gradients, then one for sparse ones, if there are any."""
    sparse = model.sparse_parameters()
    has_rows = {id(parameter) for parameter in sparse}
    dense = [parameter for parameter in model.parameters() if id(parameter) not in has_rows]
    optimizers: list[torch.optim.Optimizer] = []
    if dense:
        optimizers.append(optim.dense(ParameterGroups.of(dense, model)))
    if sparse:
        optimizers.append(optim.sparse(ParameterGroups.of(sparse, model)))
    return optimizers


def make_network_step(
    model: NeuralModel, optim: OptimConfig, examples: int, max_norm: float | None
) -> NetworkStep | None:
    """Return the fused step of a plain network by plain gradient descent, with batches of that many examples.

    None for any other network or optimizer. max_norm: of all gradients together; None for no limit.
    """
    if type(optim) is not SgdOptim or optim.momentum:
        return None
    return network_step(model, optim.decay, examples, max_norm)


def update(
    parameters: Iterable[nn.Parameter], optimizers: list[torch.optim.Optimizer], rate: float, max_norm: float | None
) -> None:
    """Change parameters by their gradients, at a learning rate; max_norm: of all gradients together, None: no limit."""
    if max_norm is not None:
        clip_gradients(parameters, max_norm)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()


@torch.no_grad()
def renormalize_rows(weight: Tensor, max_norm: float) -> None:
    """Scale rows of weight `[R, H]` with a larger Euclidean norm down to max_norm, as CS287 HW3 does with embeddings.

    They end a millionth below it: rounding leaves no row above it, and a second call changes nothing.
    """
    norm = torch.linalg.vector_norm(weight, dim=1, keepdim=True, dtype=torch.float64)  # [R, 1]
    weight.mul_(torch.where(norm > max_norm, max_norm * (1 - 1e-6) / norm, 1.0).to(weight.dtype))


def optimizer_state_dict(optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Return the state of optimizers (e.g. running means), under names that are the same in each run."""
    return {
        f"{place}.{number}.{name}": value
        for place, optimizer in enumerate(optimizers)
        for number, of_parameter in optimizer.state_dict()["state"].items()
        for name, value in of_parameter.items()
    }


def load_optimizer_state_dict(optimizers: list[torch.optim.Optimizer], tensors: dict[str, Tensor]) -> None:
    """Load what optimizer_state_dict returned into new optimizers of the same parameters."""
    for place, optimizer in enumerate(optimizers):
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            of, number, key = name.split(".", 2)
            if int(of) == place:
                state.setdefault(int(number), {})[key] = value
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})

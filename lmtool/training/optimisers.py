"""The optimisers of a network, what they remember, and what is done to the weights beside a step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lmtool.config.groups import OptimConfig
from lmtool.config.training import Gradients
from lmtool.neural.devices import fits_dense, on_cpu
from lmtool.neural.kernels.plain_step import PlainStep
from lmtool.neural.model import NeuralModel
from lmtool.training.optim.base import ParameterGroups
from lmtool.training.processes import Processes


def use_gradients(model: NeuralModel, gradients: Gradients, processes: Processes | None = None) -> bool:
    """Give a model the gradients of a setting, auto being resolved by the device and its memory; whether all are dense
    by that. processes: do as the first of them, as GPUs may differ in what is free.
    """
    rows = model.row_parameters()
    dense = gradients is Gradients.dense
    if gradients is Gradients.auto and rows and not on_cpu(rows[0]):
        dense = fits_dense(model.device, sum(parameter.numel() for parameter in rows))
        dense = dense if processes is None else processes.from_first(dense)
    if dense:
        model.use_dense_gradients()
    return dense


def make_optimisers(model: NeuralModel, optim: OptimConfig) -> list[torch.optim.Optimizer]:
    """The optimisers of the settings: one for dense gradients, then one for sparse ones, where there are any."""
    sparse = model.row_parameters()
    has_rows = {id(parameter) for parameter in sparse}
    dense = [parameter for parameter in model.parameters() if id(parameter) not in has_rows]
    optimisers: list[torch.optim.Optimizer] = []
    if dense:
        optimisers.append(optim.dense(ParameterGroups.of(dense, model)))
    if sparse:
        optimisers.append(optim.sparse(ParameterGroups.of(sparse, model)))
    return optimisers


def make_plain_step(model: NeuralModel, optim: OptimConfig, examples: int, max_norm: float | None) -> PlainStep | None:
    """What makes the steps of batches of so many examples without a graph or an optimiser; None where there is more to
    do. max_norm: of the gradients together; None for no limit.
    """
    network, decay = model.plain_network(examples), optim.plain_decay()
    return None if network is None or decay is None else PlainStep(network, decay, max_norm)


def set_rate(optimisers: list[torch.optim.Optimizer], rate: float) -> None:
    """Set the learning rate of the next step."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            if isinstance(group["lr"], Tensor):  # which a captured step reads
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


@torch.no_grad()
def renormalise_rows(weight: Tensor, max_norm: float) -> None:
    """Scale rows of weight `[R, H]` whose Euclidean norm is above max_norm down to it, as CS287 HW3 does with
    embeddings.

    They end a millionth below it: no rounding leaves a row above it, and a second call changes nothing.
    """
    norm = torch.linalg.vector_norm(weight, dim=1, keepdim=True, dtype=torch.float64)  # [R, 1]
    weight.mul_(torch.where(norm > max_norm, max_norm * (1 - 1e-6) / norm, 1.0).to(weight.dtype))


def memory_of(optimisers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """What optimisers remember of each parameter, such as running means, by names that are the same in each run."""
    return {
        f"{place}.{number}.{name}": value
        for place, optimiser in enumerate(optimisers)
        for number, parameter in enumerate(_parameters(optimiser))
        for name, value in optimiser.state.get(parameter, {}).items()
    }


def give_memory(optimisers: list[torch.optim.Optimizer], memory: dict[str, Tensor]) -> None:
    """Let new optimisers remember what memory_of returned: where they already have it, on its device, as some count
    steps on the CPU; else on that of the parameter.
    """
    for name, value in memory.items():
        place, number, key = name.split(".", 2)
        optimiser = optimisers[int(place)]
        parameter = _parameters(optimiser)[int(number)]
        state = optimiser.state[parameter]
        state[key] = value.to(state.get(key, parameter).device)


def _parameters(optimiser: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]

"""Optimisers of a configuration, and what else is done to the weights beside a step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lmtool.config import AdagradOptim, AdamOptim, AdamwOptim, OptimConfig, SgdOptim
from lmtool.errors import UserError
from lmtool.neural.model import NeuralModel
from lmtool.neural.sparse_optim import RowAdagrad, RowAdam, RowSGD


def make_optimisers(model: NeuralModel, optim: OptimConfig) -> list[torch.optim.Optimizer]:
    """The optimisers of a configuration, one for dense gradients and one for sparse; weight decay spares biases and
    gains.
    """
    rows = model.row_parameters()
    ours = {id(parameter) for parameter in rows}
    dense = [parameter for parameter in model.parameters() if id(parameter) not in ours]
    made: list[torch.optim.Optimizer] = []
    match optim:
        case SgdOptim():
            sgd: dict[str, Any] = {"lr": optim.lr, "momentum": optim.momentum}
            if dense:
                made.append(torch.optim.SGD(_decayed(dense, optim, "weight_decay"), **sgd, fused=True))
            if rows:
                made.append(RowSGD(_decayed(rows, optim, "l2"), **sgd))
        case AdagradOptim():
            adagrad: dict[str, Any] = {"lr": optim.lr, "eps": optim.eps}
            if dense:
                fused = all(parameter.device.type == "cpu" for parameter in dense)  # torch has no other one
                made.append(torch.optim.Adagrad(_decayed(dense, optim, "weight_decay"), **adagrad, fused=fused))
            if rows:
                made.append(RowAdagrad(_decayed(rows, optim, "l2"), **adagrad))
        case AdamOptim():
            decoupled = isinstance(optim, AdamwOptim)
            adam: dict[str, Any] = {"lr": optim.lr, "betas": (optim.beta1, optim.beta2), "eps": optim.eps}
            if dense:
                form = torch.optim.AdamW if decoupled else torch.optim.Adam
                made.append(form(_decayed(dense, optim, "weight_decay"), **adam, fused=True))
            if rows:
                made.append(RowAdam(_decayed(rows, optim, "weight_decay" if decoupled else "l2"), **adam))
        case _:
            raise UserError(f"optim={optim.kind} is not known to this version of lmtool")
    return made


def _decayed(parameters: list[nn.Parameter], optim: OptimConfig, name: str) -> list[dict[str, Any]]:
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    rest = [parameter for parameter in parameters if parameter.dim() <= 1]
    groups = [{"params": matrices, name: optim.weight_decay}, {"params": rest, name: 0.0}]
    return [group for group in groups if group["params"]]


def set_rate(optimisers: list[torch.optim.Optimizer], rate: float) -> None:
    """The learning rate of the next step."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = rate


@torch.no_grad()
def renormalise_rows(weight: Tensor, max_norm: float) -> None:
    """Scale the rows `[R, H]` that are longer than max_norm down to it, as CS287 HW3's report does with embeddings."""
    torch.renorm(weight, 2, 0, max_norm, out=weight)


def memory_of(optimisers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """What optimisers remember of each parameter, by names that stay the same from run to run."""
    return {
        f"{place}.{number}.{name}": value
        for place, optimiser in enumerate(optimisers)
        for number, parameter in enumerate(_parameters(optimiser))
        for name, value in optimiser.state.get(parameter, {}).items()
    }


def give_memory(optimisers: list[torch.optim.Optimizer], saved: dict[str, Tensor]) -> None:
    """Have new optimisers remember what memory_of found."""
    for name, value in saved.items():
        place, number, key = name.split(".", 2)
        optimiser = optimisers[int(place)]
        parameter = _parameters(optimiser)[int(number)]
        optimiser.state[parameter][key] = value.to(parameter.device)


def _parameters(optimiser: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]

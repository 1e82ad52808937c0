"""The optimizers of a network and their state, additional changes to gradients and weights, the mean of the weights,
and the learning-rate range test: a few hundred steps at rising rates show which rates are usable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from lmtool.config.groups import OptimConfig
from lmtool.config.training import Gradients
from lmtool.neural.devices import fits_dense
from lmtool.neural.model import NeuralModel
from lmtool.neural.optimizers.base import ParameterGroups
from lmtool.runs.run import START, RangeTest, start_of
from lmtool.training.processes import Processes
from lmtool.training.step import Step

MARGIN = 10.0  # ratio of the rate with the lowest loss to the suggested rate
SMOOTHING = 0.95  # decay rate of the running mean of the losses
DIVERGED = 1.0  # nats above the lowest loss at which the test ends
# Entries of a parameter's state that are scalar, per row, and complete; others have the parameter's shape.
SINGLE, ROW_STATES, WHOLE = {"step", "now", "eta", "mu"}, {"steps", "last_used"}, {"steps", "last_used", "now"}


def use_gradients(model: NeuralModel, gradients: Gradients, processes: Processes | None = None) -> bool:
    """Make the gradients of a model sparse or dense, according to a setting; return whether they are made dense.

    auto: dense on a GPU with enough memory. processes: all follow the first, because GPUs may differ in free memory.
    """
    rows = model.sparse_parameters()
    dense = gradients is Gradients.dense
    if gradients is Gradients.auto and rows and not rows[0].is_cpu:
        dense = fits_dense(model.device, sum(parameter.numel() for parameter in rows))
        dense = dense if processes is None else processes.from_first(dense)
    if dense:
        model.use_dense_gradients()
    return dense


def gradients_of(model: NeuralModel) -> str:
    """Return the value of training.embedding_gradients that a model has."""
    return (Gradients.sparse if model.sparse_parameters() else Gradients.dense).name


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


class Average:
    """The mean of a model's weights after each step since it began. count: number of weights in it, 0 before."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = dict(model.named_parameters())
        self._in_model = False
        self.count, self.means = 0, dict[str, Tensor]()

    def begin(self) -> None:
        """Begin with the present weights."""
        self.count = 1
        self.means = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def add(self) -> None:
        """Include the weights after a step, if it has begun."""
        self.count += 1 if self.count else 0
        for name, mean in self.means.items():
            mean.lerp_(self._parameters[name], 1 / self.count)

    @torch.no_grad()
    def exchange(self, in_model: bool) -> None:
        """Put the mean, or the weights that training changes, into the model, unless it already has them."""
        if self._in_model != in_model:
            for name, mean in self.means.items():
                before = self._parameters[name].clone()
                self._parameters[name].copy_(mean)
                mean.copy_(before)
            self._in_model = in_model

    def load(self, means: dict[str, Tensor], count: int) -> None:
        """Continue from a checkpoint's means and their count."""
        if count:
            self.begin()
            self.count = count
            for name, mean in self.means.items():
                mean.copy_(means[name])


@torch.no_grad()
def renormalize_rows(weight: Tensor, max_norm: float) -> None:
    """Scale rows of weight `[R, H]` with a larger Euclidean norm down to max_norm, like the embeddings of CS287 HW3.

    They end a millionth below it, so that a second call changes nothing.
    """
    norm = torch.linalg.vector_norm(weight, dim=1, keepdim=True, dtype=torch.float64)  # [R, 1]
    weight.mul_(torch.where(norm > max_norm, max_norm * (1 - 1e-6) / norm, 1.0).to(weight.dtype))


def optimizer_state_dict(optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Return the state of optimizers (e.g. running means), under names that are the same in each run."""
    return {
        f"{place}.{number}.{name}": value
        for place, optimizer in enumerate(optimizers)
        for number, parameter_state in optimizer.state_dict()["state"].items()
        for name, value in parameter_state.items()
    }


def load_optimizer_state_dict(optimizers: list[torch.optim.Optimizer], tensors: dict[str, Tensor]) -> None:
    """Load what optimizer_state_dict returned into new optimizers of the same parameters."""
    for place, optimizer in enumerate(optimizers):
        state: dict[int, dict[str, Tensor]] = {}
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for name, value in tensors.items():
            of, number, key = name.split(".", 2)
            if int(of) == place:
                shape = parameters[int(number)].shape
                size = 1 if key in SINGLE else shape[0] if key in ROW_STATES else shape.numel()
                fits = value.numel() == size or (key == "momentum" and not value.numel())  # empty before the first step
                whole = not value.is_floating_point()
                if not fits or whole != (key in WHOLE) or not value.isfinite().all():
                    raise ValueError(f"{name} does not fit its parameter")
                state.setdefault(int(number), {})[key] = value
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def range_test(
    model: NeuralModel,
    optimizers: list[torch.optim.Optimizer],
    batches: Iterator[tuple[Tensor, Tensor]],
    *,
    limits: tuple[float, float],
    steps: int,
    max_grad_norm: float | None,
) -> RangeTest:
    """Train for `steps` steps at rates from the first limit to the second, or until the loss diverges: Smith (2017),
    "Cyclical Learning Rates for Training Neural Networks", section 3.3, here with rates that rise geometrically. Smith
    reads the bounds from the curve; here a tenth of the rate with the lowest smoothed loss is suggested.

    batches: contexts int64 `[B, C]` and targets int64 `[B]`.
    """
    model.train()
    step, rates, losses, smoothed = Step(model, optimizers, max_grad_norm), list[float](), list[float](), list[float]()
    for rate in np.geomspace(*limits, steps).tolist():
        loss = step.step(*next(batches), rate, math.inf)
        if not math.isfinite(loss):
            break
        rates.append(rate)
        losses.append(loss)
        smoothed.append(_running_mean(losses))
        if smoothed[-1] > min(smoothed) + DIVERGED:
            break
    return propose(rates, losses, smoothed, diverged=len(rates) < steps)


def propose(rates: list[float], losses: list[float], smoothed: list[float], *, diverged: bool) -> RangeTest:
    """Return the outcome of a test with these losses. diverged: whether it ended before the highest rate."""
    start = start_of(rates)
    lowest = start + int(np.argmin(smoothed[start:]))
    doubt = ""
    if smoothed[start] - smoothed[lowest] <= np.std(np.subtract(losses, smoothed)[start:]):  # the fall may be by chance
        advice = "a lower first rate" if diverged else "a higher last rate, or more steps"
        doubt = f"the loss falls by no more than it differs between batches: try {advice}"
    elif rates[lowest] < MARGIN * rates[0]:
        doubt = "the loss is lowest near the lowest rate tried: try a lower first rate"
    elif not diverged and lowest >= len(rates) - START:
        doubt = "the loss is lowest at the highest rates tried: try a higher last rate"
    return RangeTest(rates, losses, smoothed, max(rates[lowest] / MARGIN, rates[0]), doubt)


def _running_mean(losses: list[float]) -> float:
    """Return the exponentially weighted mean of the losses, with bias correction (Kingma & Ba 2015, section 3)."""
    weights = SMOOTHING ** np.arange(len(losses))[::-1]
    return float(weights @ np.asarray(losses) / weights.sum())

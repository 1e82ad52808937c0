"""The learning-rate range test: a few hundred steps at rates from low to high show which of them will do.

Smith (2017), "Cyclical Learning Rates for Training Neural Networks", section 3.3, with the rate rising geometrically.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lmtool.neural.model import NeuralModel
from lmtool.neural.sparse_optim import clip_gradients
from lmtool.training.optim import set_rate

MARGIN = 10.0  # how far the proposed rate stays below the one at which the loss was lowest
SMOOTHING = 0.95  # of the running mean of the losses
LOST = 1.0  # nats above the lowest loss, from where on a rate is too high for certain


@dataclass(frozen=True, slots=True)
class RangeTest:
    """rates: tried, rising; losses: in nats at each, before its step; smoothed: their running mean; proposed: a
    tenth of the rate at which that was lowest, since what one step at a rate survives many do not.
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    proposed: float


def range_test(
    model: NeuralModel,
    optimisers: list[torch.optim.Optimizer],
    batches: Iterator[tuple[Tensor, Tensor]],
    *,
    limits: tuple[float, float],
    steps: int,
    clip_norm: float | None,
) -> RangeTest:
    """Train for so many steps at rates that rise from the first limit to the second; ends where the loss is lost."""
    model.train()
    rates: list[float] = []
    losses: list[float] = []
    smoothed: list[float] = []
    for rate in np.geomspace(*limits, steps).tolist():
        contexts, targets = next(batches)
        loss = model(contexts, targets)
        value = loss.item()
        if not math.isfinite(value):
            break
        rates.append(rate)
        losses.append(value)
        smoothed.append(_running_mean(losses))
        if smoothed[-1] > min(smoothed) + LOST:
            break
        for optimiser in optimisers:
            optimiser.zero_grad()
        loss.backward()
        if clip_norm is not None:
            clip_gradients(model.parameters(), clip_norm)
        set_rate(optimisers, rate)
        for optimiser in optimisers:
            optimiser.step()
    return RangeTest(rates, losses, smoothed, rates[int(np.argmin(smoothed))] / MARGIN)


def _running_mean(losses: list[float]) -> float:
    """The mean of the last losses, weighed by SMOOTHING a step, freed of its start."""
    weights = SMOOTHING ** np.arange(len(losses))[::-1]
    return float(weights @ np.asarray(losses) / weights.sum())

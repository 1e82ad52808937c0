"""The learning-rate range test: a few hundred steps at rising rates show which rates are usable.

Smith (2017), "Cyclical Learning Rates for Training Neural Networks", section 3.3, here with rates that rise
geometrically. Smith reads bounds off the curve; here a tenth of the rate with the lowest smoothed loss is suggested.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from lmtool.neural.model import NeuralModel
from lmtool.runs.run import START, RangeTest, start_of
from lmtool.training.optimizers import update

MARGIN = 10.0  # ratio of the rate with the lowest loss to the suggested rate
SMOOTHING = 0.95  # decay rate of the running mean of the losses
DIVERGED = 1.0  # nats above the lowest loss at which the test ends


def range_test(
    model: NeuralModel,
    optimizers: list[torch.optim.Optimizer],
    batches: Iterator[tuple[Tensor, Tensor]],
    *,
    limits: tuple[float, float],
    steps: int,
    max_grad_norm: float | None,
) -> RangeTest:
    """Train for `steps` steps at rates from the first limit to the second, or until the loss diverges.

    batches: contexts int64 `[B, C]` and targets int64 `[B]`. max_grad_norm: as in training. The result
    says whether the lowest loss is at an edge of the range or within the noise of single batches.
    """
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
        if smoothed[-1] > min(smoothed) + DIVERGED:
            break
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        update(model.parameters(), optimizers, rate, max_grad_norm)
    return propose(rates, losses, smoothed, diverged=len(rates) < steps)


def propose(rates: list[float], losses: list[float], smoothed: list[float], *, diverged: bool) -> RangeTest:
    """Return the outcome of a test with these losses. diverged: whether it ended before the highest rate."""
    start = start_of(rates)
    lowest = start + int(np.argmin(smoothed[start:]))
    doubt = ""
    if smoothed[start] - smoothed[lowest] <= np.std(np.subtract(losses, smoothed)[start:]):  # a fall by chance
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

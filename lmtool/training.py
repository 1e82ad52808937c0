"""Neural training: one loop, a budget, the best checkpoint on valid."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from lmtool.checkpoint import CHECKPOINT, load_weights, save_weights
from lmtool.config import AdagradOptim, AdamOptim, OptimConfig, Schedule, SgdOptim, TrainingConfig
from lmtool.data.corpus import Split
from lmtool.errors import UserError
from lmtool.evaluation import perplexity, score
from lmtool.files import cannot_write
from lmtool.neural.model import NeuralModel
from lmtool.neural.optim import RowAdagrad, RowAdam, RowSGD, clip_gradients

METRICS = "metrics.jsonl"
HOPELESS = 1e6  # nats
SAY_EVERY = 10.0  # seconds between two lines where there is no terminal
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trained:
    """What training came to; the names are those of result.json. seconds: of training alone."""

    valid_perplexity: float
    parameters: int
    examples: int
    examples_per_second: float
    epochs: float
    training_seconds: float

    def as_json(self) -> dict[str, Any]:
        """For result.json."""
        return {name: getattr(self, name) for name in self.__slots__}


def train(
    model: NeuralModel,
    train_split: Split,
    valid_split: Split,
    training: TrainingConfig,
    optim: OptimConfig,
    out: Path,
    *,
    seed: int,
    progress: bool,
) -> Trained:
    """Train until the budget is used up; the model ends with the weights that were the best on valid.

    Writes metrics.jsonl, a line an evaluation, and the best checkpoint into `out`. Raises UserError where the
    loss is no longer a number; the checkpoint is then the best one before.
    """
    optimisers = make_optimisers(model, optim)
    batches = Batches(train_split, training.batch_size, model.context_size, seed)
    per_evaluation = max(1, round(training.evaluate_every * batches.per_epoch))
    best = math.inf
    clock = 0.0  # seconds of training, evaluations not counted
    step = since = 0
    loss_sum = 0.0
    model.train()
    bar = tqdm(total=100, unit="%", disable=not progress, leave=False, bar_format="{l_bar}{bar}| {postfix}")
    start = said = time.perf_counter()
    done = 0.0  # the share of the budget that is used up
    for contexts, targets in batches:
        rate = learning_rate(training, optim.lr, done)
        step, since = step + 1, since + 1
        loss = model.loss(contexts, targets)
        loss_sum += _usable(loss.item(), step, out)
        for optimiser in optimisers:
            optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if training.clip_norm is not None:
            clip_gradients(model.parameters(), training.clip_norm)
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()
        epoch, examples = step / batches.per_epoch, step * batches.size
        now = time.perf_counter()
        done = budget_done(training, epoch, clock + now - start)
        if now - said > (0.2 if progress else SAY_EVERY):
            said = now
            speed = examples / (clock + now - start)
            _say(bar, done, f"epoch {epoch:.2f} train loss {loss_sum / since:.4f} {speed:,.0f} ex/s")
        if since < per_evaluation and done < 1:
            continue
        clock += now - start
        train_loss = loss_sum / since
        valid_loss = _usable(math.log(perplexity(score(model, valid_split).log_prob)), step, out)
        line = {
            "epoch": epoch,
            "step": step,
            "examples": examples,
            "train_loss": train_loss,
            "valid_loss": valid_loss,
            "valid_perplexity": math.exp(valid_loss),
            "lr": rate,
            "seconds": clock,
            "examples_per_second": examples / clock,
        }
        _append(out / METRICS, line)
        _say(bar, done, _summary(line))
        if valid_loss < best:
            best = valid_loss
            save_weights(model, out / CHECKPOINT, {"step": str(step), "valid_loss": str(valid_loss)})
        if done >= 1:
            break
        loss_sum = 0.0
        since = 0
        start = time.perf_counter()
    bar.close()
    load_weights(model, out / CHECKPOINT)
    return Trained(
        valid_perplexity=math.exp(best),
        parameters=model.parameter_count,
        examples=examples,
        examples_per_second=examples / clock,
        epochs=epoch,
        training_seconds=clock,
    )


class Batches:
    """Batches of examples in a new random order each epoch, without end; the same for the same seed.

    The last examples of an epoch that do not fill a batch wait for another epoch's order.
    """

    BLOCK = 1 << 17  # examples whose contexts are made at once

    def __init__(self, split: Split, batch_size: int, context_size: int, seed: int) -> None:
        self._split = split
        self.size = min(batch_size, split.tokens)
        self._context_size = context_size
        self._rng = np.random.default_rng(seed)
        self.per_epoch = max(1, split.tokens // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        size = self.size
        block = max(1, self.BLOCK // size) * size
        while True:
            order = self._rng.permutation(self._split.tokens)[: self.per_epoch * size]
            for first in range(0, len(order), block):
                contexts, targets = self._split.windows(order[first : first + block], self._context_size)
                for at in range(0, len(targets), size):
                    yield (
                        torch.from_numpy(contexts[at : at + size]),
                        torch.from_numpy(targets[at : at + size]),
                    )


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
            if dense:
                made.append(torch.optim.SGD(dense, lr=optim.lr, momentum=optim.momentum, fused=True))
            if rows:
                made.append(RowSGD(rows, lr=optim.lr, momentum=optim.momentum))
        case AdagradOptim():
            if dense:
                made.append(torch.optim.Adagrad(dense, lr=optim.lr, eps=optim.eps, fused=True))
            if rows:
                made.append(RowAdagrad(rows, lr=optim.lr, eps=optim.eps))
        case AdamOptim():
            betas = (optim.beta1, optim.beta2)
            if dense:
                groups = _decayed(dense, optim.weight_decay)
                made.append(torch.optim.AdamW(groups, lr=optim.lr, betas=betas, eps=optim.eps, fused=True))
            if rows:
                made.append(RowAdam(_decayed(rows, optim.weight_decay), lr=optim.lr, betas=betas, eps=optim.eps))
        case _:
            raise UserError(f"optim={optim.kind} is not known to this version of lmtool")
    return made


def _decayed(parameters: list[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    rest = [parameter for parameter in parameters if parameter.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def budget_done(training: TrainingConfig, epochs: float, seconds: float) -> float:
    """The share of the budget that is used up, by epochs or by minutes, whichever is further."""
    shares = [0.0]
    if training.epochs is not None:
        shares.append(epochs / training.epochs)
    if training.minutes is not None:
        shares.append(seconds / 60 / training.minutes)
    return max(shares)


def learning_rate(training: TrainingConfig, peak: float, done: float) -> float:
    """The rate when the share `done` of the budget is used: up to `peak` linearly, then by the schedule."""
    if done < training.warmup:
        # Never quite zero, or the first step of a long budget would be lost.
        return peak * max(done / training.warmup, 0.01)
    left = (1 - done) / (1 - training.warmup)
    match training.schedule:
        case Schedule.constant:
            return peak
        case Schedule.linear:
            return peak * left
        case Schedule.cosine:
            return peak * 0.5 * (1 - math.cos(math.pi * left))


def _usable(loss: float, step: int, out: Path) -> float:
    """The loss, if it is a number that training can come back from; else it has come apart, a UserError."""
    if abs(loss) < HOPELESS:
        return loss
    kept = f"the best model before is in {out / CHECKPOINT}" if (out / CHECKPOINT).exists() else "nothing kept"
    raise UserError(f"the loss is {loss:.4g} at step {step}: lower optim.lr or set training.clip_norm; {kept}")


def _append(path: Path, line: dict[str, float]) -> None:
    try:
        with path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(line) + "\n")
    except OSError as error:
        raise cannot_write(path, error) from error


def _summary(line: dict[str, float]) -> str:
    return (
        f"epoch {line['epoch']:.2f}  train loss {line['train_loss']:.4f}  valid {line['valid_perplexity']:.2f}  "
        f"{line['seconds']:.0f} s  {line['examples_per_second']:,.0f} examples/s"
    )


def _say(bar: Any, done: float, text: str) -> None:
    """On a terminal the bar moves; in a file a plain line appears."""
    if bar.disable:
        log.info("%3.0f %%  %s", 100 * min(done, 1), text)
    else:
        bar.n = round(100 * min(done, 1))
        bar.set_postfix_str(text)

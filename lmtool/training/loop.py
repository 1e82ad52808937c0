"""Neural training: one loop, a budget, the weights that are best on valid, checkpoints to resume from."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmtool.config.groups import OptimConfig, ScheduleConfig
from lmtool.config.training import TrainingConfig
from lmtool.data.corpus import Split
from lmtool.data.windows import StoredTokens
from lmtool.errors import Interrupted, UserError
from lmtool.evaluation.score import accuracy, score
from lmtool.neural.devices import on_cpu
from lmtool.neural.model import NeuralModel
from lmtool.runs.weights import CHECKPOINT, load_weights, save_weights
from lmtool.system import parallel
from lmtool.training.batches import Batches
from lmtool.training.interruption import Stop, signals_noted
from lmtool.training.learning_rate import budget_done, learning_rate
from lmtool.training.optimisers import give_memory, memory_of, renormalise_rows
from lmtool.training.processes import Processes
from lmtool.training.reporting import Reporter
from lmtool.training.state import State, model_tensors, random_states, save_state, set_random_states
from lmtool.training.steps import DIVERGED, Steps

HIGHEST_VALID = 700.0  # the same on valid, whose perplexity has to be a finite number
VALID_CHUNK = 1 << 14  # tokens of valid that are scored between two checks for a signal
READ_EVERY = 32  # steps between two readings of the loss where it is on a GPU, which wait for the GPU


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train. about: plain values that say what is trained on what; checkpoints keep it, and resuming compares
    it. loss_is_log_prob: whether the training loss is -log p, as that of the output layer's settings.
    """

    training: TrainingConfig
    optim: OptimConfig
    schedule: ScheduleConfig
    seed: int
    about: dict[str, Any]
    loss_is_log_prob: bool = True


@dataclass(frozen=True, slots=True)
class Trained:
    """The outcome of a training, by the names of result.json.

    training_seconds: evaluations not counted. precision: bf16 where some of the products were in it, else fp32.
    """

    valid_perplexity: float
    parameters: int
    steps: int
    examples: int
    examples_per_second: float
    epochs: float
    training_seconds: float
    precision: str

    def as_json(self) -> dict[str, Any]:
        """For result.json."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Progress:
    """The state of a training. since: steps since the last evaluation, whose losses sum to loss_sum, in nats. clock:
    seconds of training, evaluations not counted. best: the lowest loss on valid. waited: evaluations since the one that
    had it. drops: how often the schedule has lowered the rate. rate: of the last step.
    """

    step: int = 0
    since: int = 0
    loss_sum: float = 0.0
    clock: float = 0.0
    best: float = math.inf
    waited: int = 0
    drops: int = 0
    rate: float = 0.0


def train(
    model: NeuralModel,
    train_split: Split | StoredTokens,
    valid_split: Split,
    plan: Plan,
    out: Path,
    *,
    processes: Processes | None = None,
    resume: State | None = None,
    progress: bool = False,
    on_evaluation: Callable[[dict[str, Any]], object] | None = None,
) -> Trained:
    """Train until the budget is used up; the model then has the weights that were best on valid.

    Writes into `out`: metrics.jsonl, with a line for each evaluation; the best weights; checkpoints. resume: a
    checkpoint of the same plan to resume from. on_evaluation: called with each of these lines; where it returns True,
    the training ends as if its budget were used up. Raises UserError where the loss diverges (the best weights before
    that stay) or a checkpoint cannot be written, and Interrupted, after writing a checkpoint, on SIGINT and SIGTERM.
    """
    training = _Training(model, train_split, valid_split, plan, out, processes or Processes(), bar=progress)
    training.on_evaluation = on_evaluation
    try:
        if resume is not None:
            training.restore(resume)
        else:
            training.reporter.rewind(0)  # of a training that was cut off before its first checkpoint
        with signals_noted() as stop:
            training.run(stop)
        return training.result()
    finally:
        training.reporter.close()
        training.steps.forget_captured()


class _Training:
    """All that changes while a model is trained, which a checkpoint has to hold."""

    def __init__(
        self,
        model: NeuralModel,
        train_split: Split | StoredTokens,
        valid_split: Split,
        plan: Plan,
        out: Path,
        processes: Processes,
        *,
        bar: bool,
    ) -> None:
        settings = plan.training
        self.model, self.plan, self.out, self.processes = model, plan, out, processes
        self.train_split, self.valid_split = train_split, valid_split
        self.batches = Batches(
            train_split,
            settings.batch_size,
            model.context_size,
            plan.seed,
            consecutive=settings.consecutive or model.encoder.consecutive,
            device=model.device,
            part=processes.part,
        )
        self.examples = iter(self.batches)
        self.steps = Steps(model, settings, plan.optim, processes, self.batches.size // processes.size)
        self.per_evaluation = max(1, round(settings.evaluate_every * self.batches.per_epoch))
        self.progress = Progress()
        self.reporter = Reporter(
            out if processes.first else None,
            bar=bar,
            tensorboard=settings.tensorboard,
            loss_is_log_prob=plan.loss_is_log_prob,
        )
        self.on_evaluation: Callable[[dict[str, Any]], object] | None = None
        self._ended = False  # by on_evaluation
        self._last_save = time.perf_counter()
        self._unread: list[tuple[int, Tensor]] = []  # losses by step, not read from the device yet
        if processes.rank:  # from here on each process draws its own dropout and noise
            torch.manual_seed(plan.seed + processes.rank)

    @property
    def epoch(self) -> float:
        """Epochs done."""
        return self.progress.step / self.batches.per_epoch

    def done(self) -> float:
        """The share of the budget that is used up."""
        return budget_done(self.plan.training, epochs=self.epoch, steps=self.progress.step, seconds=self.progress.clock)

    def run(self, stop: Stop) -> None:
        """Step, evaluate, save, until the budget or the patience is used up."""
        self.model.train()
        while self.advance(stop):
            pass

    def advance(self, stop: Stop) -> bool:
        """Make a step, or what is due before it; False at the end."""
        settings, progress = self.plan.training, self.progress
        done, signal, save = self._agreed(stop)
        over = done >= 1 or self._ended or (settings.patience is not None and progress.waited >= settings.patience)
        if signal:
            self._end_early(int(signal))
        if progress.since and (over or progress.since >= self.per_evaluation):
            self._evaluate(done, stop)
            return True
        if over or save:
            self.save()
            self._last_save = time.perf_counter()
        if over:
            return False
        parallel.follow_load()
        start = time.perf_counter()
        self._step(done)
        now = time.perf_counter()
        progress.clock += now - start
        self._report(now)
        return True

    def _agreed(self, stop: Stop) -> list[float]:
        """The share of the budget that is used up, a signal that has come, and whether a checkpoint is due, the same in
        all processes.

        To ask waits for a GPU; a budget without minutes, which all processes count alike, needs it only now and then.
        """
        overdue = time.perf_counter() - self._last_save >= 60 * self.plan.training.save_every
        counted = self.plan.training.minutes is None and not on_cpu(self.steps.parameters[0])
        if self.processes.size > 1 and counted and self.progress.step % READ_EVERY:
            return [self.done(), 0, False]
        return self.processes.largest(self.done(), stop.signal, overdue)

    def _step(self, done: float) -> None:
        progress = self.progress
        contexts, targets = next(self.examples)
        progress.rate = learning_rate(
            self.plan.schedule, self.plan.optim.lr, done=done, steps=progress.step, drops=progress.drops
        )
        self.reporter.rate(progress.step, progress.rate)
        self.steps.make(contexts, targets, progress.rate, self._count)
        progress.step += 1
        progress.since += 1

    def _count(self, loss: Tensor | float) -> None:
        """Add a loss to the sum, on a GPU several at once. Raises UserError where the training diverges."""
        step = self.progress.step + 1
        if isinstance(loss, float) or on_cpu(loss):
            self.progress.loss_sum += _converging(float(loss), step, self.out)
            return
        self._unread.append((step, loss))
        if len(self._unread) >= READ_EVERY:
            self._read_losses()

    def _read_losses(self) -> None:
        if not self._unread:
            return
        steps, losses = zip(*self._unread, strict=True)
        for step, loss in zip(steps, torch.stack(losses).tolist(), strict=True):
            self.progress.loss_sum += _converging(loss, step, self.out)
        self._unread.clear()

    def _report(self, now: float) -> None:
        progress = self.progress
        counted = progress.since - len(self._unread)
        self.reporter.step(
            now,
            self.done(),
            self.epoch,
            progress.loss_sum / max(counted, 1),
            progress.step * self.batches.size / max(progress.clock, 1e-9),
            progress.clock,
        )

    def _evaluate(self, done: float, stop: Stop) -> None:
        """Loss on valid, accuracies, a line of metrics; saves the weights if they are the best so far."""
        progress, max_norm = self.progress, self.plan.training.max_norm
        if max_norm is not None:  # here, so that whatever is saved is within it
            renormalise_rows(self.model.encoder.embedding.weight, max_norm)
        start = time.perf_counter()
        self._read_losses()
        progress.clock += time.perf_counter() - start  # in which a GPU has done the last steps
        train_loss = self.processes.mean(progress.loss_sum / progress.since)
        valid_loss = _converging(self._valid_loss(stop), progress.step, self.out, HIGHEST_VALID)
        train_accuracy, valid_accuracy = self._accuracy(self.train_split), self._accuracy(self.valid_split)
        line = {
            "epoch": self.epoch,
            "step": progress.step,
            "examples": progress.step * self.batches.size,
            "train_loss": train_loss,
            "train_accuracy": train_accuracy,
            "valid_loss": valid_loss,
            "valid_accuracy": valid_accuracy,
            "valid_perplexity": math.exp(valid_loss),
            "lr": progress.rate,
            "seconds": progress.clock,
            "examples_per_second": progress.step * self.batches.size / max(progress.clock, 1e-9),
        }
        if valid_loss < progress.best:
            progress.best, progress.waited = valid_loss, 0
            if self.processes.first:
                save_weights(
                    self.model, self.out / CHECKPOINT, {"step": str(progress.step), "valid_loss": repr(valid_loss)}
                )
        else:
            progress.waited += 1
            if self.plan.schedule.lowers_after(progress.waited):
                progress.drops += 1
        progress.since, progress.loss_sum = 0, 0.0
        self.reporter.evaluation(done, line)
        if self.on_evaluation is not None:
            self._ended = self.on_evaluation(line) is True

    def _valid_loss(self, stop: Stop) -> float:
        """Mean -log p over valid, in nats, of which each process scores its share."""
        first, last = self.processes.share(self.valid_split.tokens)
        parts = [np.empty(0)]
        for begin in range(first, last, VALID_CHUNK):
            if stop.signal and self.processes.size == 1:
                self._end_early(stop.signal)
            parts.append(score(self.model, self.valid_split, between=(begin, min(begin + VALID_CHUNK, last))).log_prob)
        return -float(self.processes.joined(np.concatenate(parts)).mean(dtype=np.float64))

    def _accuracy(self, split: Split | StoredTokens) -> float | None:
        """The share of evenly spread tokens that are the most likely word; None where no tokens are to be taken."""
        most = min(self.plan.training.accuracy_on, max(256, (1 << 25) // self.model.vocabulary_size), split.tokens)
        if most == 0:
            return None
        index = np.unique(np.linspace(0, split.tokens - 1, most).astype(np.int64))
        first, last = self.processes.share(len(index))
        contexts, targets = split.windows(index[first:last], self.model.context_size)
        hits = self.processes.joined(accuracy(self.model, contexts, targets))
        return float(hits.mean())

    def _end_early(self, signal: int) -> None:
        self.save()
        raise Interrupted(
            signal, f"stopped at epoch {self.epoch:.2f}; resume with: lmtool train resume={shlex.quote(str(self.out))}"
        )

    def save(self) -> None:
        """Write a checkpoint."""
        self._read_losses()
        random = self.processes.everything(random_states(self.model.device))
        loss_sums = self.processes.everything(self.progress.loss_sum)  # each has those of its own examples
        if not self.processes.first:
            return
        tensors = {f"model.{name}": tensor for name, tensor in model_tensors(self.model).items()}
        tensors |= {f"optimiser.{name}": tensor for name, tensor in memory_of(self.steps.optimisers).items()}
        tensors |= {f"random.{rank}.{name}": t for rank, states in enumerate(random) for name, t in states.items()}
        values = {
            "about": self.plan.about,
            "processes": self.processes.size,
            "streamed": self.batches.streamed,
            "gradients": self.steps.gradients,
            "progress": asdict(self.progress),
            "position": self.batches.position(),
            "loss_sums": loss_sums,
        }
        self.reporter.sync()
        save_state(State(tensors, values), self.out)

    def restore(self, state: State) -> None:
        """Continue from a checkpoint. Raises UserError where it is of another kind of training."""
        values = state.values
        _require_same("processes", values["processes"], self.processes.size, self.out)
        streaming = "streaming of the train split (training.memory)"
        _require_same(streaming, values["streamed"], self.batches.streamed, self.out)
        gradients = values.get("gradients", self.steps.gradients_until_05)  # missing before 0.6
        _require_same("training.gradients", gradients, self.steps.gradients, self.out)
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimiser": {}, "random": {}}
        for name, tensor in state.tensors.items():
            kind, _, rest = name.partition(".")
            parts[kind][rest] = tensor
        tensors = model_tensors(self.model)
        if tensors.keys() != parts["model"].keys():
            raise UserError(f"{self.out} holds the training of another model: train in another folder")
        with torch.no_grad():
            for name, tensor in parts["model"].items():
                tensors[name].copy_(tensor)
        give_memory(self.steps.optimisers, parts["optimiser"])
        self.batches.go_to(values["position"])
        for field in fields(Progress):
            setattr(self.progress, field.name, values["progress"][field.name])
        if "loss_sums" in values:  # missing before 0.6
            self.progress.loss_sum = values["loss_sums"][self.processes.rank]
        prefix = f"{self.processes.rank}."
        set_random_states(
            {name.removeprefix(prefix): t for name, t in parts["random"].items() if name.startswith(prefix)},
            self.model.device,
        )
        self.reporter.rewind(self.progress.step)

    def result(self) -> Trained:
        """The outcome; loads the best weights into the model."""
        self.processes.wait()
        notes = load_weights(self.model, self.out / CHECKPOINT) if self.processes.first else None
        notes = self.processes.from_first(notes)
        progress = self.progress
        return Trained(
            valid_perplexity=math.exp(float(notes["valid_loss"])),
            parameters=self.model.parameter_count,
            steps=progress.step,
            examples=progress.step * self.batches.size,
            examples_per_second=progress.step * self.batches.size / max(progress.clock, 1e-9),
            epochs=self.epoch,
            training_seconds=progress.clock,
            precision="bf16" if self.model.in_bf16(self.batches.size // self.processes.size) else "fp32",
        )


def _converging(loss: float, step: int, out: Path, limit: float = DIVERGED) -> float:
    """The loss, if it is a finite number that training can come back from. Raises UserError for one that is not."""
    if abs(loss) < limit:
        return loss
    saved = f"the best model so far is in {out / CHECKPOINT}" if (out / CHECKPOINT).exists() else "nothing was saved"
    raise UserError(f"the loss is {loss:.4g} at step {step}: lower optim.lr or set training.clip_norm; {saved}")


def _require_same(name: str, begun: object, now: object, out: Path) -> None:
    if begun != now:
        raise UserError(f"{name}: {out} was begun with {begun}, not {now}, and can only be resumed with that")

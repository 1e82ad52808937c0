"""Neural training: one loop, a budget, the weights that are best on valid, checkpoints to resume from."""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from lmtool.config.training import Forms, Precision
from lmtool.data.split import Split, StoredTokens
from lmtool.errors import Interrupted, UserError, first_line
from lmtool.neural import forms
from lmtool.neural.forms.network_step import NetworkStep
from lmtool.neural.model import NeuralModel
from lmtool.runs.weights import CHECKPOINT, load_weights, save_weights
from lmtool.system import parallel
from lmtool.system.process import StopRequest, defer_signals
from lmtool.training import optimizers
from lmtool.training.batches import make_batches
from lmtool.training.plan import Plan, Progress, Trained, budget_done, learning_rate
from lmtool.training.processes import Processes, SharedModel
from lmtool.training.reporting import Reporter, mean_loss, share_most_likely
from lmtool.training.state import TrainingState, model_tensors, random_states, save_state, set_random_states
from lmtool.training.step import make_step

MAX_LOSS = 1e6  # nats, absolute value: training diverges above this
MAX_VALID_LOSS = 700.0  # nats: the perplexity on valid must be finite


def train(
    model: NeuralModel,
    train_split: Split | StoredTokens,
    valid_split: Split,
    plan: Plan,
    out: Path,
    *,
    processes: Processes | None = None,
    resume: TrainingState | None = None,
    progress: bool = False,
    on_evaluation: Callable[[dict[str, Any]], object] | None = None,
    cloze: Callable[[], dict[str, float] | None] = lambda: None,
) -> Trained:
    """Train until the budget is used up; the model then has the weights that were best by training.keep_best.

    Writes to `out`: metrics.jsonl, with lines of evaluations and of logged steps; the best weights; checkpoints.
    resume: a checkpoint of the same plan. on_evaluation: called with each line of an evaluation; if it returns True,
    the training ends as if its budget were used up. cloze: returns the results of cloze questions. Raises UserError if
    the loss diverges (the best weights so far are kept), and Interrupted, after writing a checkpoint, on SIGINT and
    SIGTERM.
    """
    with forms.only_plain(plan.training.forms is Forms.plain):
        training = _Training(model, train_split, valid_split, plan, out, processes or Processes(), bar=progress)
        training.on_evaluation, training.cloze = on_evaluation, cloze
        try:
            if resume is not None:
                try:
                    training.restore(resume)
                except (RuntimeError, LookupError, TypeError, ValueError) as error:  # different shapes or numbers
                    raise UserError(f"{out}: its checkpoint does not fit ({first_line(error)}): start again") from error
            else:
                training.reporter.rewind(0)  # if a training ended before its first checkpoint
            with defer_signals() as stop:
                while training.advance(stop):
                    pass
            return training.result()
        finally:
            training.reporter.close()


class _Training:
    """Everything that changes during training and is therefore in a checkpoint."""

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
        part = (processes.rank, processes.size)
        self.batches = make_batches(train_split, settings, model.encoder, plan.seed, model.device, part)
        self.examples = iter(self.batches)
        self.batch_size = self.batches.size // processes.size  # examples of this process
        self.per_evaluation = max(1, round(settings.evaluate_every * self.batches.per_epoch))
        model.use_precision(Precision.fp32 if settings.forms is Forms.plain else settings.precision)
        optimizers.use_gradients(model, settings.embedding_gradients, processes)
        if settings.compile:
            model.encoder.compile()
        self.optimizers = optimizers.make_optimizers(model, plan.optim)
        shared = SharedModel(model, processes) if processes.size > 1 else None
        self.step = make_step(model, plan, self.optimizers, self.batch_size, shared)
        self.average = optimizers.Average(model)
        self.progress = Progress()
        is_log_prob = model.output.loss_is_log_prob
        self.reporter = Reporter(out if processes.first else None, bar=bar, loss_is_log_prob=is_log_prob)
        self.on_evaluation: Callable[[dict[str, Any]], object] | None = None
        self.cloze: Callable[[], dict[str, float] | None] = lambda: None
        self._ended = False  # whether on_evaluation ended the training
        self._computed_before: dict[str, Any] = {"precision": "fp32", "forms": []}  # before resuming
        self._last_save = time.perf_counter()
        if processes.rank:  # from here on each process draws its own dropout and noise
            torch.manual_seed(plan.seed + processes.rank)
        model.train()

    @property
    def epoch(self) -> float:
        """Number of epochs done."""
        progress = self.progress
        return progress.earlier_epochs + (progress.step - progress.earlier_steps) / self.batches.per_epoch

    @property
    def examples_done(self) -> int:
        """Number of examples of all processes."""
        progress = self.progress
        return progress.earlier_examples + (progress.step - progress.earlier_steps) * self.batches.size

    @property
    def examples_per_second(self) -> float:
        """Examples of all processes per second of training."""
        return self.examples_done / max(self.progress.clock, 1e-9)

    def done(self) -> float:
        """Return the used share of the budget."""
        return budget_done(self.plan.training, epochs=self.epoch, steps=self.progress.step, seconds=self.progress.clock)

    def advance(self, stop: StopRequest) -> bool:
        """Make one iteration of the loop, from the batch to the new weights; return False at the end.

        An evaluation that is due replaces the step; a checkpoint precedes it.
        """
        settings, optim, progress = self.plan.training, self.plan.optim, self.progress

        # Agreed by all processes: the used share of the budget, a signal, whether a checkpoint is due.
        overdue = time.perf_counter() - self._last_save >= 60 * settings.save_every
        done, signal, save = self.processes.largest(self.done(), stop.signal, overdue)
        over = done >= 1 or self._ended or (settings.patience is not None and progress.waited >= settings.patience)
        if signal:
            self.end_early(int(signal))
        remaining = progress.step * (1 / done - 1) if done else math.inf  # steps; under half an interval is added
        waited = round((self.epoch - progress.evaluated) * self.batches.per_epoch)  # in steps of the current size
        due = waited >= self.per_evaluation and 2 * remaining > self.per_evaluation - 1
        if progress.since and (over or due):
            self.evaluate(done, stop)
            return True
        if over or save:
            self.save()
            self._last_save = time.perf_counter()
        if over:
            return False

        # The batch and its learning rate.
        parallel.follow_load()
        start = time.perf_counter()
        contexts, targets = next(self.examples)  # [B, C], [B]
        steps, drops = progress.step, progress.drops
        progress.rate = learning_rate(self.plan.schedule, optim.lr, done=done, steps=steps, drops=drops)

        # The step: loss, gradients, clipping, update. Weights change only after the loss is known to be finite.
        scale = self.processes.size * self.processes.mean(targets.numel()) if optim.per_example else 1
        value = self._converging(self.step.step(contexts, targets, progress.rate * scale, MAX_LOSS))
        self.average.add()

        # The count.
        progress.step += 1
        progress.since += 1
        progress.loss_sum += value
        now = time.perf_counter()
        progress.clock += now - start
        if (every := settings.log_every) is not None and progress.step % every == 0:
            step_line = {"epoch": self.epoch, "step": progress.step, "loss": self.processes.mean(value)}
            self.reporter.add(step_line | {"lr": progress.rate, "seconds": progress.clock})
        if self.reporter.due(now):
            mean = progress.loss_sum / progress.since
            self.reporter.step(self.done(), self.epoch, mean, self.examples_per_second, progress.clock)
        return True

    def evaluate(self, done: float, stop: StopRequest) -> None:
        """Compute the loss on valid and other metrics, write a line of them, and save the weights if they are best.

        If averaging has begun, the mean of the weights is evaluated.
        """
        progress, settings = self.progress, self.plan.training
        for averaged in (False, True):
            self.average.exchange(averaged)
            if settings.embedding_max_norm is not None:  # here, so that all saved weights satisfy it
                optimizers.renormalize_rows(self.model.encoder.embedding.weight, settings.embedding_max_norm)

        def check() -> None:
            if stop.signal and self.processes.size == 1:
                self.end_early(stop.signal)

        train_loss = self.processes.mean(progress.loss_sum / progress.since)
        valid_loss = mean_loss(self.model, self.valid_split, self.processes, check)
        valid_loss = self._converging(valid_loss, MAX_VALID_LOSS, step=progress.step)
        train_accuracy, valid_accuracy = (
            share_most_likely(self.model, split, settings.accuracy_tokens, self.processes)
            for split in (self.train_split, self.valid_split)
        )
        cloze = self.processes.from_first(self.cloze() if self.processes.first else None)
        line = {
            "epoch": self.epoch,
            "step": progress.step,
            "examples": self.examples_done,
            "train_loss": train_loss,
            "train_accuracy": train_accuracy,
            "valid_loss": valid_loss,
            "valid_accuracy": valid_accuracy,
            "valid_perplexity": math.exp(valid_loss),
            "lr": progress.rate,
            "seconds": progress.clock,
            "examples_per_second": self.examples_per_second,
        }
        loss = valid_loss
        if cloze is not None:
            line |= {"cloze_perplexity": cloze["perplexity"], "cloze_accuracy": cloze["accuracy"]}
            if settings.keep_best == "cloze":
                loss = self._converging(math.log(cloze["perplexity"]), MAX_VALID_LOSS, step=progress.step)
        if loss < progress.best:
            progress.best, progress.waited = loss, 0
            if self.processes.first:
                notes = {"step": str(progress.step), "valid_loss": repr(valid_loss), "train_loss": repr(train_loss)}
                notes["cloze"] = json.dumps(cloze)
                save_weights(self.model, self.out / CHECKPOINT, notes)
        else:
            progress.waited += 1
            if self.plan.schedule.lowers_after(progress.waited):
                progress.drops += 1
        self.average.exchange(False)
        progress.losses.append(loss)
        if not self.average.count and self.plan.optim.averages_after(progress.losses):
            self.average.begin()
        progress.since, progress.loss_sum, progress.evaluated = 0, 0.0, self.epoch
        self.reporter.evaluation(done, line)
        if self.on_evaluation is not None:
            self._ended = self.on_evaluation(line) is True

    def end_early(self, signal: int) -> None:
        """Write a checkpoint and raise Interrupted."""
        self.average.exchange(False)
        self.save()
        raise Interrupted(
            signal, f"stopped at epoch {self.epoch:.2f}; resume with: lmtool train resume={shlex.quote(str(self.out))}"
        )

    def save(self) -> None:
        """Write a checkpoint."""
        random = self.processes.everything(random_states(self.model.device))
        carried = self.processes.everything(self.model.carried_state())
        loss_sums = self.processes.everything(self.progress.loss_sum)  # sums over the examples of each process
        if not self.processes.first:
            return
        parts = {"model": model_tensors(self.model), "optimizer": optimizers.optimizer_state_dict(self.optimizers)}
        parts |= {f"carried.{rank}": state for rank, state in enumerate(carried)}
        parts |= {f"random.{rank}": states for rank, states in enumerate(random)}
        parts["average"] = self.average.means
        tensors = {
            f"{part}.{name}": tensor for part, part_tensors in parts.items() for name, tensor in part_tensors.items()
        }
        values = {
            "about": self.plan.about,
            "processes": self.processes.size,
            "streamed": self.batches.streamed,
            "gradients": optimizers.gradients_of(self.model),
            "progress": asdict(self.progress),
            "averaged": self.average.count,
            "position": self.batches.position(),
            "batch": {"size": self.batches.size, "epoch": self.epoch, "examples": self.examples_done},
            "loss_sums": loss_sums,
            "computed_by": self.computed_by(),
        }
        self.reporter.sync()
        save_state(TrainingState(tensors, values), self.out)

    def restore(self, state: TrainingState) -> None:
        """Continue from a checkpoint of the same kind of training."""
        values = state.values
        streaming = "streaming of the train split (training.memory)"
        state.require_equal("processes", self.processes.size, "processes", self.out)
        state.require_equal("streamed", self.batches.streamed, streaming, self.out)
        gradients = optimizers.gradients_of(self.model)
        state.require_equal("gradients", gradients, "training.embedding_gradients", self.out)
        tensors, saved = model_tensors(self.model), state.part("model.")
        if tensors.keys() != saved.keys():
            raise UserError(f"{self.out} holds the training of another model: train in another folder")
        with torch.no_grad():
            for name, tensor in saved.items():
                tensors[name].copy_(tensor)
        optimizers.load_optimizer_state_dict(self.optimizers, state.part("optimizer."))
        self.batches.go_to(values["position"])
        self.average.load(state.part("average."), values["averaged"])
        loss_sum = values["loss_sums"][self.processes.rank]
        self.progress = progress = Progress(**values["progress"] | {"loss_sum": loss_sum})
        if (batch := values["batch"])["size"] != self.batches.size:
            progress.earlier_steps, progress.earlier_epochs = progress.step, batch["epoch"]
            progress.earlier_examples = batch["examples"]
        self.model.carry(state.part(f"carried.{self.processes.rank}."))
        set_random_states(state.part(f"random.{self.processes.rank}."), self.model.device)
        self._computed_before = values["computed_by"]
        self.reporter.rewind(self.progress.step)

    def result(self) -> Trained:
        """Return the outcome; loads the best weights into the model."""
        self.processes.wait()
        notes = load_weights(self.model, self.out / CHECKPOINT) if self.processes.first else None
        notes = self.processes.from_first(notes)
        progress = self.progress
        return Trained(
            valid_perplexity=math.exp(float(notes["valid_loss"])),
            train_perplexity=math.exp(min(float(notes["train_loss"]), MAX_VALID_LOSS))
            if self.model.output.loss_is_log_prob
            else math.nan,
            cloze=json.loads(notes["cloze"]),
            parameters=self.model.parameter_count,
            steps=progress.step,
            examples=self.examples_done,
            examples_per_second=self.examples_per_second,
            epochs=self.epoch,
            training_seconds=progress.clock,
            **self.computed_by(),
        )

    def computed_by(self) -> dict[str, Any]:
        """Return the precision and the forms of the steps so far, named like the fields of Trained."""
        used, before = forms.used(self.model), self._computed_before
        names = {*before["forms"], *(each.name for each in used), self.step.name} - {""}
        bf16 = self.step.bf16 if isinstance(self.step, NetworkStep) else self.model.encodes_in_bf16(self.batch_size)
        bf16 = bf16 or before["precision"] == "bf16" or any(each.bf16 for each in used)
        return {"precision": "bf16" if bf16 else "fp32", "forms": sorted(names)}

    def _converging(self, loss: float, limit: float = MAX_LOSS, *, step: int | None = None) -> float:
        """Return a loss that training can recover from; raise UserError for any other."""
        if abs(loss) < limit:
            return loss
        best, step = self.out / CHECKPOINT, self.progress.step + 1 if step is None else step
        saved = f"the best model so far is in {best}" if best.exists() else "nothing was saved"
        raise UserError(f"the loss is {loss:.4g} at step {step}: lower optim.lr or set training.max_grad_norm; {saved}")

"""The steps of a neural training: loss, gradients, clipping, optimisers, in the form that is fastest where it runs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lmtool.config.groups import OptimConfig
from lmtool.config.training import Gradients, TrainingConfig
from lmtool.neural.model import NeuralModel
from lmtool.neural.sparse_optim import clip_gradients
from lmtool.training.captured_step import CapturedStep, can_capture
from lmtool.training.optimisers import make_optimisers, make_plain_step, set_rate, use_gradients
from lmtool.training.processes import Processes, SharedModel

DIVERGED = 1e6  # nats, the size of a loss from which no training comes back


class Steps:
    """Makes the steps of a training: a plain network's by one compiled loop, on a GPU as replays of a captured step,
    else one operation after the other. All change the weights alike.
    """

    def __init__(
        self, model: NeuralModel, settings: TrainingConfig, optim: OptimConfig, processes: Processes, examples: int
    ) -> None:
        """Gives the model the precision and the gradients of the settings. examples: of a batch of this process."""
        model.use_precision(settings.precision)
        self.gradients_until_05 = (Gradients.sparse if model.row_parameters() else Gradients.dense).name
        dense = use_gradients(model, settings.gradients, processes)
        if settings.compile:
            model.encoder.compile()
        self.model, self._clip_norm = model, settings.clip_norm
        self.parameters = list(model.parameters())
        self.optimisers = make_optimisers(model, optim)
        self.shared = SharedModel(model, processes)
        alone = processes.size == 1
        self._plain = make_plain_step(model, optim, examples, self._clip_norm) if alone and not dense else None
        self._one: Tensor | None = None  # the gradient of the loss by itself, which backward() would make in each step
        self._captured: CapturedStep | None = None
        if settings.cuda_graph and alone and can_capture(model, self.optimisers) and not settings.compile:
            self._captured = CapturedStep(self._unread, self.optimisers)

    @property
    def gradients(self) -> str:
        """Which of training.gradients the training has, auto being resolved."""
        return Gradients.sparse.name if self.model.row_parameters() else Gradients.dense.name

    def make(self, contexts: Tensor, targets: Tensor, rate: float, count: Callable[[Tensor | float], object]) -> None:
        """A step on contexts int64 `[B, C]` and targets int64 `[B]` with learning rate `rate`.

        count: is given the loss, in nats. Where that can be read without waiting, on a CPU, it is called before the
        weights change and may raise: weights that are not finite are never saved.
        """
        if self._plain is not None:
            count(self._plain.step(contexts, targets, rate, DIVERGED))
            return
        set_rate(self.optimisers, rate)
        if self._captured is not None:
            count(self._captured(contexts, targets))
            return
        loss = self._loss_and_gradients(contexts, targets)
        count(loss.detach())
        self._apply()

    def forget_captured(self) -> None:
        """Let go of the captured step, which refers to this object: a GPU's memory would wait for the collector."""
        self._captured = None

    def _unread(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """A step of which nothing is read, so that it can be captured; the loss is, before weights are saved."""
        loss = self._loss_and_gradients(contexts, targets)
        self._apply()
        return loss.detach()

    def _loss_and_gradients(self, contexts: Tensor, targets: Tensor) -> Tensor:
        loss = self.shared.loss(contexts, targets)
        for parameter in self.parameters:  # what zero_grad does, without its hooks
            parameter.grad = None
        if self._one is None:
            self._one = torch.ones_like(loss)
        loss.backward(self._one)  # type: ignore[no-untyped-call]
        self.shared.share_rows()
        if self._clip_norm is not None:
            clip_gradients(self.parameters, self._clip_norm)
        return loss

    def _apply(self) -> None:
        for optimiser in self.optimisers:
            optimiser.step()

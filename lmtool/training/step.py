"""A training step: the loss of a batch, its gradients, clipping, update; and its form on a GPU, one CUDA graph.

A step of a small network is dozens of operations of a few microseconds each, which Python launches more slowly than the
GPU runs them. A graph's operations are recorded once and then launched together. A graph always works on the same
memory, into which each batch and its learning rate are copied. It cannot contain an operation that waits for the GPU;
lmtool.neural.forms.gpu has losses without such operations.

Measured on an NVIDIA H200, 2026-11-26, 10,000 words, batch 1,024, relative to the same operations one by one: a softmax
of 30/100 2.5 times as fast, model=nplm 2.6; with draws and contexts that are made on the GPU too, NCE 6.3.

A replay draws the same random numbers as single operations: resuming, which begins with single operations, repeats a
training to the bit (tests/training/test_cuda.py).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lmtool.neural import forms
from lmtool.neural.forms.network_step import NetworkStep, network_step
from lmtool.neural.forms.pair_step import PairStep, pair_step
from lmtool.neural.model import NeuralModel
from lmtool.neural.optimizers.base import clip_gradients, without_compiler
from lmtool.training.optim import SgdOptim
from lmtool.training.plan import Plan
from lmtool.training.processes import SharedModel

WARM_UP = 3  # steps before the capture, in which libraries and optimizers allocate the memory that they keep
TORCH = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)  # optimizers that read a learning rate from memory
FUSED = (*TORCH, *map(without_compiler, TORCH))
log = logging.getLogger(__name__)
Optimizers = list[torch.optim.Optimizer]


class Step:
    """Steps of a model, one operation at a time. name: its name among the used forms, or empty."""

    name = ""

    def __init__(
        self, model: NeuralModel, optimizers: Optimizers, max_norm: float | None, shared: SharedModel | None = None
    ) -> None:
        """max_norm: of all gradients together; None for no limit. shared: the model, if several processes train it."""
        self._model, self._shared = model, shared
        self._optimizers, self._max_norm = optimizers, max_norm
        self._parameters = list(model.parameters())

    def step(self, contexts: Tensor, targets: Tensor, rate: float, limit: float) -> float:
        """Make a step with contexts `[B, C]` and targets `[B]` at a learning rate; return the loss before it.

        Weights do not change if the loss is not finite or its absolute value is `limit` or more.
        """
        loss = self._backward(contexts, targets).item()
        if abs(loss) < limit:
            for group in self._groups():
                group["lr"] = rate
            self._update()
        return loss

    def _groups(self) -> Iterator[dict[str, Any]]:
        return (group for optimizer in self._optimizers for group in optimizer.param_groups)

    def _backward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Compute the gradients; return the loss, without a graph."""
        loss: Tensor = self._model(contexts, targets) if self._shared is None else self._shared(contexts, targets)
        for parameter in self._parameters:  # like zero_grad, without its hooks
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        if self._shared is not None:
            self._shared.share_rows()
        return loss.detach()

    def _update(self) -> None:
        """Change the weights by their gradients."""
        if self._max_norm is not None:
            clip_gradients(self._parameters, self._max_norm)
        for optimizer in self._optimizers:
            optimizer.step()


def make_step(
    model: NeuralModel, plan: Plan, optimizers: Optimizers, examples: int, shared: SharedModel | None = None
) -> Step | NetworkStep | PairStep:
    """Return the fastest form of the steps of a model for this number of examples per batch. shared: as in Step."""
    training, optim = plan.training, plan.optim
    whole: NetworkStep | PairStep | None = None
    max_norm = training.max_grad_norm
    if shared is None and type(optim) is SgdOptim and not optim.momentum:
        whole = network_step(model, optim.decay, examples, max_norm)
        whole = whole or (None if max_norm or optim.decay else pair_step(model))
    if whole is not None:
        return whole
    if shared is None and not training.compile and can_capture(model, optimizers):
        return CapturedStep(model, optimizers, max_norm)
    return Step(model, optimizers, max_norm, shared)


def can_capture(model: NeuralModel, optimizers: Optimizers) -> bool:
    """Return whether to capture steps of a model: on a GPU, if forms are allowed, with dense gradients, whose sizes do
    not depend on the batch, and fused optimizers.
    """
    fused = all(type(each) in FUSED and each.defaults["fused"] for each in optimizers)
    # A graph would always read the state of a recurrent network at the time of its capture.
    able = model.context_size is not None and not model.sparse_parameters()
    able = able and not model.encoder.config.reads_near  # its batches differ in size
    return model.device.type == "cuda" and forms.allowed() and able and fused


class CapturedStep(Step):
    """A step that runs the first WARM_UP times one operation at a time, and then replays a graph of the operations.

    If the last of the first steps has an operation that waits for the GPU, as a custom layer may, all steps are made
    one operation at a time, and a warning says so.
    """

    def __init__(self, model: NeuralModel, optimizers: Optimizers, max_norm: float | None) -> None:
        super().__init__(model, optimizers, max_norm)
        self._made = 0
        self._captures = True
        self._graph: torch.cuda.CUDAGraph | None = None
        self._contexts = self._targets = self._loss = torch.empty(0)
        # Always the same stream, as cuBLAS keeps memory for each.
        self._stream = torch.cuda.Stream(model.device)  # type: ignore[no-untyped-call]
        for group in self._groups():  # in float32, whatever torch's default dtype: the fused steps read that
            group["lr"] = torch.tensor(float(group["lr"]), dtype=torch.float32, device=model.device)

    def step(self, contexts: Tensor, targets: Tensor, rate: float, limit: float) -> float:
        """Make a step. A loss of `limit` or more, with which a training ends, also changes the weights."""
        for group in self._groups():
            group["lr"].fill_(rate)
        if self._made < WARM_UP or not self._captures:
            return self._one_by_one(contexts, targets)
        if self._graph is None:
            self._capture(contexts, targets)
        assert self._graph is not None, "it has just been captured"
        self._contexts.copy_(contexts)
        self._targets.copy_(targets)
        self._graph.replay()
        return self._loss.item()

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name among the forms that were used; empty if steps cannot be captured."""
        return "captured_step" if self._captures else ""

    def _operations(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Make a step and return the loss; these operations are captured in a graph."""
        loss = self._backward(contexts, targets)
        self._update()
        return loss

    def _one_by_one(self, contexts: Tensor, targets: Tensor) -> float:
        self._made += 1
        with self._on_stream():
            if self._made != WARM_UP:
                return self._operations(contexts, targets).item()
            try:
                with _waits_are_errors():
                    loss = self._operations(contexts, targets)
            except RuntimeError as error:  # raised by the loss or its gradients: no weight has changed
                self._captures = False
                reason = str(error).splitlines()[0]
                log.warning("training steps cannot be a CUDA graph, and are slower for small networks: %s", reason)
                loss = self._operations(contexts, targets)
            return loss.item()

    def _capture(self, contexts: Tensor, targets: Tensor) -> None:
        """Record a step without making it."""
        self._contexts, self._targets = contexts.clone(), targets.clone()
        self._graph = torch.cuda.CUDAGraph()
        for group in self._groups():
            group["capturable"] = True
        with self._on_stream(), torch.cuda.graph(self._graph, stream=self._stream):
            self._loss = self._operations(self._contexts, self._targets)

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Run the block on its own stream, as torch requires for a capture and the steps before it."""
        current = torch.cuda.current_stream(self._model.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            yield
        current.wait_stream(self._stream)


@contextmanager
def _waits_are_errors() -> Iterator[None]:
    """Make torch raise RuntimeError for an operation of the block that waits for the GPU."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it does not detect all of them
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)

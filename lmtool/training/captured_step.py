"""A training step on a GPU as one CUDA graph: its operations are recorded once and then launched as a whole.

A step of a small model is dozens of operations of microseconds each, which Python launches more slowly than the GPU
does them. Nothing else in lmtool knows of CUDA graphs. What a graph needs: the same memory for each batch, so that
batches are copied into it; a learning rate in memory, which the optimisers' groups hold as a tensor; random numbers
from the GPU's default generator, whose place in its sequence each replay moves on; and no operation that waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from lmtool.neural.model import NeuralModel

WARM_UP = 3  # steps that are made one operation at a time, in which libraries and optimisers allocate what they keep
FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)  # what subclasses would do is not known
Step = Callable[[Tensor, Tensor], Tensor]
Replay = tuple[Callable[[], None], Tensor]  # what makes the step again, and where it leaves the loss
log = logging.getLogger(__name__)


def can_capture(model: NeuralModel, optimisers: list[torch.optim.Optimizer]) -> bool:
    """Whether steps of a model can be captured: on a GPU, without sparse gradients, whose sizes depend on the batch,
    and with a fused optimiser, as these take their learning rate from a tensor.
    """
    fused = all(type(each) in FUSED and each.defaults["fused"] for each in optimisers)
    return model.device.type == "cuda" and not model.row_parameters() and fused


class CapturedStep:
    """Makes training steps: the first WARM_UP one operation at a time, then by replaying a graph of them.

    Where the step cannot be captured, a warning says so, and all further steps are made as the first ones.
    """

    def __init__(
        self,
        step: Step,
        optimisers: list[torch.optim.Optimizer],
        *,
        capture: Callable[[Callable[[], Tensor]], Replay] | None = None,
    ) -> None:
        """step: makes a step with contexts int64 `[B, C]` and targets int64 `[B]` and returns the loss, reading nothing
        from the device. capture: records what a function would do; None for a CUDA graph, another one for tests.
        """
        self._step, self._optimisers = step, optimisers
        self._capture = capture or capture_on_gpu
        self._made = 0
        self._captures = True
        self._replay: Callable[[], None] | None = None
        self._contexts = self._targets = self._loss = torch.empty(0)
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = torch.tensor(float(group["lr"]), device=group["params"][0].device)

    def __call__(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Make a step; returns the loss, a number that stays as it is in later steps."""
        if self._replay is not None and contexts.shape != self._contexts.shape:
            return self._step(contexts, targets)
        if self._replay is None and self._captures and self._made >= WARM_UP:
            self._record(contexts, targets)
        if self._replay is None:
            self._made += 1
            return self._beside(contexts, targets) if self._captures else self._step(contexts, targets)
        self._contexts.copy_(contexts)
        self._targets.copy_(targets)
        self._replay()
        return self._loss.clone()

    @property
    def captured(self) -> bool:
        """Whether steps are replays by now."""
        return self._replay is not None

    def _beside(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """A step on a stream other than the default one, as torch asks for before a capture."""
        if contexts.device.type != "cuda":
            return self._step(contexts, targets)
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            loss = self._step(contexts, targets)
        current.wait_stream(stream)
        loss.record_stream(current)
        return loss

    def _record(self, contexts: Tensor, targets: Tensor) -> None:
        self._contexts, self._targets = contexts.clone(), targets.clone()
        for optimiser in self._optimisers:
            for group in optimiser.param_groups:
                group["capturable"] = True
        try:
            self._replay, self._loss = self._capture(lambda: self._step(self._contexts, self._targets))
        except RuntimeError as error:
            self._captures = False
            log.warning(
                "training.cuda_graph: this step cannot be captured (%s); its operations are launched one by one",
                str(error).splitlines()[0],
            )
        finally:
            for optimiser in self._optimisers:  # as they were: the mark is for the capture alone
                for group in optimiser.param_groups:
                    group["capturable"] = False


def capture_on_gpu(step: Callable[[], Tensor]) -> Replay:
    """A CUDA graph of a step, which is not made by being recorded."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    return graph.replay, loss

"""A training step on a GPU as one CUDA graph: its operations are recorded once and then launched as a whole.

A step of a small model is dozens of operations of microseconds each, which Python launches more slowly than the GPU
does them. Nothing else in lmtool knows of CUDA graphs. What a graph needs: the same memory for each batch, so that
batches are copied into it; a learning rate in memory, which the optimisers' groups hold as a tensor; random numbers
from the GPU's default generator, whose place in its sequence each replay moves on; and no operation that waits.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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

    The last of the first ones is watched: one that waits for the GPU cannot be captured, and it is better not to try,
    as torch does not get its random generator and its memory back from a capture that fails. A warning then says so,
    and all further steps are made one operation at a time.
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
        self._stream: torch.cuda.Stream | None = None
        for optimiser in optimisers:
            for group in optimiser.param_groups:  # in float32, whatever torch's default: the fused steps read that
                rate, device = float(group["lr"]), group["params"][0].device
                group["lr"] = torch.tensor(rate, dtype=torch.float32, device=device)

    def __call__(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Make a step; returns the loss, a number that stays as it is in later steps."""
        if self._replay is not None and contexts.shape != self._contexts.shape:
            return self._step(contexts, targets)
        if self._replay is None and self._captures:
            if self._made < WARM_UP:
                return self._warm_up(contexts, targets)
            self._record(contexts, targets)
        if self._replay is None:
            return self._step(contexts, targets)
        self._contexts.copy_(contexts)
        self._targets.copy_(targets)
        self._replay()
        return self._loss.clone()

    @property
    def captured(self) -> bool:
        """Whether steps are replays by now."""
        return self._replay is not None

    def _warm_up(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """A step as it will be captured, but made; the last one with an eye on what it waits for."""
        self._made += 1
        with self._beside(contexts.device):
            if self._made < WARM_UP:
                return self._step(contexts, targets)
            try:
                with nothing_waits(contexts.device):
                    return self._step(contexts, targets)
            except RuntimeError as error:  # of the loss or the gradients: no weight has changed
                self._give_up(error)
                return self._step(contexts, targets)

    def _record(self, contexts: Tensor, targets: Tensor) -> None:
        self._contexts, self._targets = contexts.clone(), targets.clone()
        for optimiser in self._optimisers:
            for group in optimiser.param_groups:
                group["capturable"] = True
        try:
            with self._beside(contexts.device):
                self._replay, self._loss = self._capture(lambda: self._step(self._contexts, self._targets))
        except RuntimeError as error:
            self._give_up(error)
        finally:
            for optimiser in self._optimisers:  # as they were: the mark is for the capture alone
                for group in optimiser.param_groups:
                    group["capturable"] = False

    def _give_up(self, error: RuntimeError) -> None:
        self._captures = False
        log.warning(
            "training.cuda_graph: this step cannot be captured (%s); its operations are launched one by one",
            str(error).splitlines()[0],
        )

    @contextmanager
    def _beside(self, device: torch.device) -> Iterator[None]:
        """On a GPU, have the block run on a stream of its own, as torch asks for before a capture and in one.

        Always the same one: cuBLAS keeps memory for each. What is read or freed on the current stream later is safe, as
        each block waits for what was given to that one before.
        """
        if device.type != "cuda":
            yield
            return
        current = torch.cuda.current_stream(device)
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            yield
        current.wait_stream(self._stream)


@contextmanager
def nothing_waits(device: torch.device) -> Iterator[None]:
    """On a GPU, have torch raise RuntimeError for an operation of the block that waits for it."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    _raise_on_waits("error")
    try:
        yield
    finally:
        _raise_on_waits(before)


def _raise_on_waits(mode: str | int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch does not see all of them
        torch.cuda.set_sync_debug_mode(mode)


def capture_on_gpu(step: Callable[[], Tensor]) -> Replay:
    """A CUDA graph of a step, captured on the current stream, which is not the default one. The step is not made by
    being recorded. Raises RuntimeError where it cannot be; random numbers can be drawn all the same afterwards.
    """
    stream, graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
    generator = torch.cuda.default_generators[stream.device.index]
    state = generator.clone_state()
    try:
        with torch.cuda.graph(graph, stream=stream):
            loss = step()
    except RuntimeError:
        generator.graphsafe_set_state(state)  # the other one still believes to be in a capture, and refuses to draw
        raise
    return graph.replay, loss

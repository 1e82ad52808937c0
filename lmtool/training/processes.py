"""Training in several processes that torchrun starts: each has its share of every batch, and all have one model."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lmtool.language_model import FloatArray
from lmtool.neural.kernels.sparse_rows import coalesced
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.adaptive import AdaptiveSoftmax

PATIENCE = datetime.timedelta(hours=6)  # the others wait while the first one makes the store


@dataclass(frozen=True, slots=True)
class Processes:
    """This process among those that train together: its rank, how many there are."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    @property
    def part(self) -> tuple[int, int]:
        """Rank and size."""
        return self.rank, self.size

    def largest(self, *values: float) -> list[float]:
        """The largest of each value over the processes."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=_device())
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return list(tensor.tolist())

    def mean(self, value: float) -> float:
        """The mean of a value over the processes."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64, device=_device())
        dist.all_reduce(tensor)
        return tensor.item() / self.size

    def everything(self, value: Any) -> list[Any]:
        """The value of each process, by rank; to be used among our own processes alone, as it is pickled."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value)
        return found

    def from_first(self, value: Any) -> Any:
        """The value that the first process has."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def share(self, total: int) -> tuple[int, int]:
        """This process's consecutive share of so many things: the first, and the last + 1."""
        return total * self.rank // self.size, total * (self.rank + 1) // self.size

    def joined(self, part: FloatArray) -> FloatArray:
        """The parts of all processes, one after the other."""
        return part if self.size == 1 else np.concatenate(self.everything(part))

    def wait(self) -> None:
        """Until all are here."""
        if self.size > 1:
            dist.barrier()


def _device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


@contextmanager
def joined_processes(device: torch.device) -> Iterator[Processes]:
    """This process among those that torchrun started (WORLD_SIZE and RANK say which), or alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Processes()
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Processes(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()


class SharedModel:
    """A model whose gradients are the mean over the processes: dense ones by torch's DistributedDataParallel while the
    backward pass still runs, sparse ones by exchanging the used rows afterwards.
    """

    def __init__(self, model: NeuralModel, processes: Processes) -> None:
        self._rows = model.row_parameters()
        self._processes = processes
        ours = {id(parameter) for parameter in self._rows}
        skipped = [name for name, parameter in model.named_parameters(remove_duplicate=False) if id(parameter) in ours]
        skipped += [name for name, _ in model.named_buffers()]  # they never change
        self._forward: nn.Module = model
        if processes.size > 1:
            for parameter in self._rows:
                dist.broadcast(parameter.detach(), src=0)
            if len(ours) < len(list(model.parameters())):
                wrapped = nn.parallel.DistributedDataParallel
                wrapped._set_params_and_buffers_to_ignore_for_model(model, skipped)  # type: ignore[no-untyped-call]
                # Of the adaptive softmax a batch may leave out a tail.
                some = isinstance(model.output, AdaptiveSoftmax)
                self._forward = wrapped(model, find_unused_parameters=some)

    def loss(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """As NeuralModel's forward, of this process's share."""
        found: Tensor = self._forward(contexts, targets)
        return found

    def share_rows(self) -> None:
        """After the backward pass: sparse gradients become their mean over the processes."""
        if self._processes.size > 1:
            for parameter in self._rows:
                parameter.grad = _mean_rows(parameter, self._processes.size)


def _mean_rows(parameter: nn.Parameter, size: int) -> Tensor:
    """The mean of sparse gradients that have different rows in each process."""
    grad = parameter.grad
    if grad is None:
        width = parameter.shape[1:]
        grad = torch.sparse_coo_tensor(
            torch.empty(1, 0, dtype=torch.int64),
            parameter.new_empty(0, *width),
            parameter.shape,
            check_invariants=False,
        )
    grad = coalesced(grad)
    rows, values = grad.indices()[0], grad.values()
    counts = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(size)]
    dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
    most = max(int(count) for count in counts)
    all_rows, all_values = _gathered(rows, most, size), _gathered(values, most, size)
    used = [slice(0, int(count)) for count in counts]
    joined = torch.cat([part[some] for part, some in zip(all_rows, used, strict=True)])
    summed = torch.cat([part[some] for part, some in zip(all_values, used, strict=True)]) / size
    return torch.sparse_coo_tensor(joined[None], summed, parameter.shape, check_invariants=False).coalesce()


def _gathered(part: Tensor, most: int, size: int) -> Iterable[Tensor]:
    """The same tensor of every process, each filled up to so many rows."""
    padded = part.new_zeros(most, *part.shape[1:])
    padded[: len(part)] = part
    found = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(found, padded)
    return found

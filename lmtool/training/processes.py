"""Training in several processes that torchrun starts: each has its share of every batch, all have the same weights."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lmtool.neural.model import NeuralModel
from lmtool.system.arrays import FloatArray
from lmtool.training.row_exchange import share_rows

PATIENCE = datetime.timedelta(hours=6)  # how long the others wait while the first one makes the store


@dataclass(frozen=True, slots=True)
class Processes:
    """This process among those that train together: its rank, from 0, and their number."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and messages."""
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
        """The value of each process, by rank. It is pickled, so that only processes of ours may exchange it."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_first(self, value: Any) -> Any:
        """The value of the first process, pickled as well."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def share(self, total: int) -> tuple[int, int]:
        """This process's consecutive share of `total` items: the first, and the last + 1."""
        return total * self.rank // self.size, total * (self.rank + 1) // self.size

    def joined(self, part: FloatArray) -> FloatArray:
        """The parts of all processes, concatenated by rank."""
        return part if self.size == 1 else np.concatenate(self.everything(part))

    def wait(self) -> None:
        """Wait until all processes are here."""
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
    if device.type == "cuda":  # told which GPU is whose: to guess can hang
        dist.init_process_group("nccl", timeout=PATIENCE, device_id=device)
    else:
        dist.init_process_group("gloo", timeout=PATIENCE)
    try:
        yield Processes(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()


class _DenseParameters(nn.Module):
    """A model of whose parameters DistributedDataParallel sees only those with dense gradients.

    The model stands in a tuple, which registers no parameters; its other ones and its buffers, which never change, are
    thereby left alone.
    """

    def __init__(self, model: NeuralModel, dense: list[nn.Parameter]) -> None:
        super().__init__()
        self.dense = nn.ParameterList(dense)
        self._model = (model,)

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """The training loss of the whole model."""
        loss: Tensor = self._model[0](contexts, targets)
        return loss


class SharedModel:
    """A model of several processes, whose gradients are the mean over them.

    Dense gradients: by torch's DistributedDataParallel, while the backward pass still runs. Sparse gradients: by
    exchanging the used rows afterwards.
    """

    def __init__(self, model: NeuralModel, processes: Processes) -> None:
        self._sparse, self._size = model.row_parameters(), processes.size
        self._forward: nn.Module = model
        for parameter in self._sparse:
            dist.broadcast(parameter.detach(), src=0)
        exchanged = {id(parameter) for parameter in self._sparse}
        dense = [parameter for parameter in model.parameters() if id(parameter) not in exchanged]
        if dense:
            self._forward = nn.parallel.DistributedDataParallel(
                _DenseParameters(model, dense), find_unused_parameters=not model.output.uses_all_parameters
            )

    def __call__(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Return the mean training loss over this process's share of a batch: contexts `[B, C]` and targets `[B]`."""
        loss: Tensor = self._forward(contexts, targets)
        return loss

    def share_rows(self) -> None:
        """Replace the sparse gradients by their mean over the processes; after the backward pass."""
        if self._sparse:
            share_rows(self._sparse, self._size)

"""Training in several processes started by torchrun: each processes a share of every batch, and all have the same
weights.

Dense gradients are averaged by torch's DistributedDataParallel. For sparse gradients, the used rows of each process are
sent to all processes, which add them up; the data grow with the number of processes.

Legend of shapes: R rows of a parameter, U of them with a gradient in this process.
"""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lmtool.errors import UserError, first_line
from lmtool.neural.forms.loops import coalesce
from lmtool.neural.model import NeuralModel
from lmtool.system.arrays import FloatArray

TIMEOUT = datetime.timedelta(hours=6)  # maximum time that the others wait while the first process makes the store


@dataclass(frozen=True, slots=True)
class Processes:
    """The rank of this process, from 0, and the number of processes that train together."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def largest(self, *values: float) -> list[float]:
        """Return the largest of each value over the processes."""
        if self.size == 1:
            return list(values)
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        tensor = torch.tensor(values, dtype=torch.float64, device=device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return list(tensor.tolist())

    def mean(self, value: float) -> float:
        """Return the mean of a value over the processes."""
        return math.fsum(self.everything(value)) / self.size

    def everything(self, value: Any) -> list[Any]:
        """Return the value of each process, by rank. Pickled: safe, as all processes are part of this training."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_first(self, value: Any) -> Any:
        """Return the value of the first process, which is also pickled."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def share(self, total: int) -> tuple[int, int]:
        """Return this process's consecutive share of `total` items: the first, and the last + 1."""
        return total * self.rank // self.size, total * (self.rank + 1) // self.size

    def join_parts(self, part: FloatArray) -> FloatArray:
        """Concatenate the parts of all processes by rank."""
        return part if self.size == 1 else np.concatenate(self.everything(part))

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def joined_processes(device: torch.device) -> Iterator[Processes]:
    """Join the processes that torchrun started (WORLD_SIZE and RANK) while the block runs, or run alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Processes()
        return
    try:
        if device.type == "cuda":  # name the GPU of each process: guessing can hang
            dist.init_process_group("nccl", timeout=TIMEOUT, device_id=device)
        else:
            dist.init_process_group("gloo", timeout=TIMEOUT)
    except ValueError as error:  # another environment variable is missing
        raise UserError(f"WORLD_SIZE={size}: {first_line(error)}; use torchrun, or unset WORLD_SIZE") from error
    try:
        yield Processes(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()


class _DenseParameters(nn.Module):
    """A wrapper that shows DistributedDataParallel only the model's parameters with dense gradients.

    The model is in a tuple, which registers no parameters: this excludes its other parameters, and its buffers, which
    never change.
    """

    def __init__(self, model: NeuralModel, dense: list[nn.Parameter]) -> None:
        super().__init__()
        self.dense = nn.ParameterList(dense)
        self._model = (model,)

    def forward(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Return the training loss of the whole model."""
        loss: Tensor = self._model[0](contexts, targets)
        return loss


class SharedModel:
    """A model of several processes, whose gradients are the mean over them.

    Dense gradients are averaged while the backward pass still runs, sparse ones afterward.
    """

    def __init__(self, model: NeuralModel, processes: Processes) -> None:
        self._sparse, self._size = model.sparse_parameters(), processes.size
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
        """Replace the sparse gradients by their means over the processes, after the backward pass.

        A parameter without a gradient counts as one with no rows. All exchanges are started before waiting for the
        first, so that they overlap with adding up.
        """
        if not self._sparse:
            return
        own = [_rows_and_values(parameter) for parameter in self._sparse]
        mine = torch.tensor([len(rows) for rows, _ in own], device=self._sparse[0].device)
        counts = [torch.empty_like(mine) for _ in range(self._size)]
        dist.all_gather(counts, mine)
        used = torch.stack(counts, 1).tolist()  # used rows of each parameter by each process
        given = zip(self._sparse, own, used, strict=True)
        means = [_gather(parameter.shape, rows, values, numbers) for parameter, (rows, values), numbers in given]
        for parameter, mean in zip(self._sparse, means, strict=True):
            parameter.grad = mean()


def _rows_and_values(parameter: nn.Parameter) -> tuple[Tensor, Tensor]:
    """Return the rows `[U]` of a parameter's gradient, ascending, and their values `[U, ...]`."""
    if parameter.grad is None:
        none = torch.empty(0, dtype=torch.int64, device=parameter.device)
        return none, parameter.detach().new_empty(0, *parameter.shape[1:])
    grad = coalesce(parameter.grad)
    return grad.indices()[0], grad.values()


def _gather(shape: torch.Size, rows: Tensor, values: Tensor, counts: list[int]) -> Callable[[], Tensor]:
    """Send the rows of all processes to all; return a function that waits and returns the mean gradient, coalesced."""
    parts_of: list[list[Tensor]] = []
    works = []
    for part in (rows, values):
        padded = part.new_zeros(max(counts), *part.shape[1:])
        padded[: len(part)] = part
        parts = [torch.empty_like(padded) for _ in counts]
        parts_of.append(parts)
        works.append(dist.all_gather(parts, padded, async_op=True))

    def mean() -> Tensor:
        for work in works:
            work.wait()
        all_rows, all_values = (
            torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)]) for parts in parts_of
        )
        total = torch.sparse_coo_tensor(all_rows[None], all_values / len(counts), shape, check_invariants=False)
        return total.coalesce()

    return mean

"""The exchange of sparse gradients between processes: each gets the mean of all.

The used rows of each process are sent to all, which add them up; that grows with the number of processes. Where it
would be more than twice the parameter, the gradient of the whole parameter is added up on its way instead, as dense
ones are, with a mark for each used row.

Legend of shapes: R rows of a parameter, U of them with a gradient in this process.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lmtool.neural.forms.loops import coalesced, rows_gradient

GATHERED = 2  # times the rows of a parameter that are sent to all; an exchange of all rows moves each twice


def share_rows(parameters: Sequence[nn.Parameter], size: int) -> None:
    """Replace the sparse gradients of parameters `[R]` or `[R, H]` by their means over `size` processes, of which each
    calls this. A parameter without a gradient has one of no rows.

    All exchanges are begun before the first is waited for, so that one goes on while another is added up.
    """
    own = [_rows_and_values(parameter) for parameter in parameters]
    mine = torch.tensor([len(rows) for rows, _ in own], device=parameters[0].device)
    counts = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(counts, mine)
    used = torch.stack(counts, 1).tolist()  # of each parameter by each process
    begun: list[_Gathered | _Summed] = []
    for parameter, (rows, values), numbers in zip(parameters, own, used, strict=True):
        form = _Summed if size * max(numbers) > GATHERED * len(parameter) else _Gathered
        begun.append(form(parameter.shape, rows, values, numbers))
    for parameter, exchange in zip(parameters, begun, strict=True):
        parameter.grad = exchange.mean()


def _rows_and_values(parameter: nn.Parameter) -> tuple[Tensor, Tensor]:
    """The rows `[U]` of a parameter's gradient, ascending, and their values `[U, ...]`."""
    if parameter.grad is None:
        none = torch.empty(0, dtype=torch.int64, device=parameter.device)
        return none, parameter.detach().new_empty(0, *parameter.shape[1:])
    grad = coalesced(parameter.grad)
    return grad.indices()[0], grad.values()


class _Gathered:
    """The rows of all processes are sent to all."""

    def __init__(self, shape: torch.Size, rows: Tensor, values: Tensor, counts: list[int]) -> None:
        """counts: the used rows of each process."""
        self._shape, self._counts = shape, counts
        self._parts: list[list[Tensor]] = []
        self._works = []
        for part in (rows, values):
            padded = part.new_zeros(max(counts), *part.shape[1:])
            padded[: len(part)] = part
            parts = [torch.empty_like(padded) for _ in counts]
            self._parts.append(parts)
            self._works.append(dist.all_gather(parts, padded, async_op=True))

    def mean(self) -> Tensor:
        """The mean, coalesced."""
        for work in self._works:
            work.wait()
        rows, values = (
            torch.cat([part[:count] for part, count in zip(parts, self._counts, strict=True)]) for parts in self._parts
        )
        return torch.sparse_coo_tensor(
            rows[None], values / len(self._counts), self._shape, check_invariants=False
        ).coalesce()


class _Summed:
    """The whole gradient is added up on its way through all processes."""

    def __init__(self, shape: torch.Size, rows: Tensor, values: Tensor, counts: list[int]) -> None:
        """counts: one for each process."""
        self._shape, self._size = shape, len(counts)
        self._sum = values.new_zeros(shape).index_copy_(0, rows, values)
        self._used = torch.zeros(shape[0], dtype=torch.uint8, device=rows.device).index_fill_(0, rows, 1)
        self._works = [
            dist.all_reduce(self._sum, async_op=True),
            dist.all_reduce(self._used, dist.ReduceOp.MAX, async_op=True),
        ]

    def mean(self) -> Tensor:
        """The mean, coalesced."""
        for work in self._works:
            work.wait()
        rows = self._used.nonzero()[:, 0]
        values = self._sum.index_select(0, rows).div_(self._size)
        return rows_gradient(rows, values, self._shape, sparse=True)

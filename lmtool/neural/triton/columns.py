"""Sums over columns that all examples of a batch share, in Triton: the full softmax, its parts, and shared noise.

Legend of shapes: B examples, K columns (the first K rows of a matrix `[R, D]`), D dimension of the hidden, S parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lmtool.neural.triton import COLUMN_WIDTHS, column_kernels
from lmtool.neural.triton.launching import INTERPRETED, contiguous, counted, launch, power_of_two, processors

TILE = 64  # examples and columns of a tile: 4,096 scores are 16 registers of each of 256 threads
STEP = 32  # numbers of h and of a row that are multiplied at once: in float32 16 kB of shared memory for each stage
LEAST = 16  # of each side of a product on matrix units


@dataclass(frozen=True)
class Choice:
    """Which sum over the columns is taken.

    softplus: the sum of log(1 + e^s); else log-sum-exp of s. targets `[B]`, int64: less the score of this column.
    narrow: products in bf16.
    """

    softplus: bool = False
    targets: Tensor | None = None
    narrow: bool = False


def column_sums(h: Tensor, weight: Tensor, bias: Tensor | None, choice: Choice, terms: Tensor | None = None) -> Tensor:
    """The sum over K columns that a Choice says, `[B]`, float32, with gradients; -inf for a log-sum-exp over none.

    s = weight[k] . h + bias[k] + term, of h `[B, D]`, weight `[K or more, D]`, bias `[K]`, or None for 0 and as many
    columns as weight has rows, and terms `[B]` or None.
    """
    sums: Tensor = _ColumnSums.apply(h, weight, bias, terms, choice)  # type: ignore[no-untyped-call]
    return sums


class _ColumnSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, terms: Tensor | None, choice: Choice
    ) -> Tensor:
        size, columns = len(h), len(weight if bias is None else bias)
        blocks = _blocks(h, weight, choice)
        parts, span = _parts(size, columns, blocks["BLOCK_B"], blocks["BLOCK_K"], h.device)
        totals = h.new_empty(parts, size, dtype=torch.float32)
        chosen = None if choice.targets is None else torch.empty_like(totals)
        grid = counted(size, blocks["BLOCK_B"]), parts
        outputs = totals, chosen, size, columns, span
        launch(column_kernels.sums, grid, h, *_inputs(h, weight, bias, terms, choice), *outputs, **blocks)
        total = totals.sum(0) if choice.softplus else totals.logsumexp(0)
        ctx.save_for_backward(h, weight, bias, terms, total)
        ctx.choice = choice
        return total.clone() if chosen is None else total - chosen.sum(0)

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        h, weight, bias, terms, total = ctx.saved_tensors
        choice: Choice = ctx.choice
        scales = grad_output[0].float().contiguous()
        size, columns, dim = len(h), len(weight if bias is None else bias), h.shape[1]
        blocks = _blocks(h, weight, choice)
        blocks["BLOCK_D"] = gradient_width(dim, blocks["NARROW"])
        of_d = counted(dim, blocks["BLOCK_D"])
        inputs = *_inputs(h, weight, bias, terms, choice), total.contiguous(), scales

        parts, span = _parts(size, columns, blocks["BLOCK_B"], blocks["BLOCK_K"], h.device)
        grad_h = h.new_empty(parts, size, dim, dtype=torch.float32)
        grad_terms = None if terms is None else h.new_empty(parts, size, dtype=torch.float32)
        grid = counted(size, blocks["BLOCK_B"]), parts, of_d
        launch(column_kernels.hidden_gradients, grid, h, *inputs, grad_h, grad_terms, size, columns, span, **blocks)

        parts, span = _parts(columns, size, blocks["BLOCK_K"], blocks["BLOCK_B"], h.device)
        grad_weight = h.new_empty(parts, columns, dim, dtype=torch.float32)
        grad_bias = None if bias is None else h.new_empty(parts, columns, dtype=torch.float32)
        grid = counted(columns, blocks["BLOCK_K"]), parts, of_d
        launch(column_kernels.weight_gradients, grid, h, *inputs, grad_weight, grad_bias, size, columns, span, **blocks)
        return (
            _added(grad_h, h),
            _added(grad_weight, weight),
            None if grad_bias is None else _added(grad_bias, bias),
            None if grad_terms is None else _added(grad_terms, terms),
            None,
        )


def _inputs(
    h: Tensor, weight: Tensor, bias: Tensor | None, terms: Tensor | None, choice: Choice
) -> list[Tensor | None]:
    return contiguous(h, weight, bias, terms, choice.targets)


def _blocks(h: Tensor, weight: Tensor, choice: Choice) -> dict[str, Any]:
    narrow = choice.narrow or (h.dtype == weight.dtype == torch.bfloat16)
    return tile_blocks(h.shape[1], narrow, choice.softplus)


def tile_blocks(dim: int, narrow: bool, softplus: bool) -> dict[str, Any]:
    """Sizes that are the same for every shape but D, so that a last batch compiles nothing: no search among sizes
    either, whose choice, and so the rounding, would differ from run to run.
    """
    return {
        "D": dim,
        "BLOCK_B": TILE,
        "BLOCK_K": TILE,
        "STEP_D": STEP,
        "SOFTPLUS": softplus,
        "NARROW": narrow,
        "PRECISION": _precision(),
        "INTERPRETED": INTERPRETED,
        "num_warps": 8,
        "num_stages": 3 if narrow else 2,  # three products of tf32 need the registers that one of bf16 leaves
    }


def gradient_width(dim: int, narrow: bool) -> int:
    """Numbers of a row of a gradient that one program sums: with TILE rows 32 or 64 registers of each thread.

    For a longer row the scores are computed once for each so many numbers.
    """
    return max(LEAST, min(COLUMN_WIDTHS[narrow], power_of_two(dim)))


def _precision() -> str:
    """How matrix units multiply float32: in three products of tf32, which err about as float32 does and are several
    times faster than its own units, or in one where torch may too.
    """
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3"


def _parts(along: int, across: int, block_along: int, block_across: int, device: torch.device) -> tuple[int, int]:
    """Into how many parts to cut the side that is summed over, so that every multiprocessor has one, and their length,
    a multiple of its block.
    """
    blocks = max(1, counted(across, block_across))
    wanted = max(1, min(blocks, processors(device) // max(1, counted(along, block_along))))
    each = counted(blocks, wanted)
    return counted(blocks, each), each * block_across


def _added(parts: Tensor, like: Tensor) -> Tensor:
    """The sum of parts `[S, ...]` in the shape and type of a tensor that may have more rows, whose gradient is 0."""
    total = parts[0] if len(parts) == 1 else parts.sum(0)
    if len(total) == len(like):
        return total.to(like.dtype)
    whole = like.new_zeros(like.shape)
    whole[: len(total)] = total
    return whole

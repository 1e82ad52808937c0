"""What stands between two matrix products of an encoder, in one pass each way: layer normalisation, activation,
dropout; and dropout alone. Each beside its plain form.

Dropout needs no random number for each unit and no mask that is kept: whether a unit is dropped is a hash of its place
and of one number for the step, drawn from torch's random state; the backward pass computes it again.

On a CPU, in float32 and float64, compiled loops do the work; elsewhere the plain forms, which are ordinary tensor
operations.

Legend of shapes: B examples, H units.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural.kernels.fast_math import error_function, exp_below, tanh
from lmtool.neural.kernels.loops import FAST
from lmtool.neural.kernels.sparse_rows import compiled
from lmtool.system import parallel

Array = npt.NDArray[Any]
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
}
TANH, GELU, RELU, SIGMOID = range(4)
NUMBERS = {name: number for number, name in enumerate(FUNCTIONS)}
SMALL = 1 << 13  # units for which a second thread is not worth its start


def dropout(x: Tensor, share: float, training: bool) -> Tensor:
    """x with each number set to 0 with probability `share`, the others over 1 - share (Srivastava et al. 2014).

    x itself unless training, and where share is 0.
    """
    if not training or not share:
        return x
    if not _loops_can(x):
        return F.dropout(x, share)
    dropped: Tensor = _Dropout.apply(x, share, _draw())  # type: ignore[no-untyped-call]
    return dropped


def hidden_units(z: Tensor, norm: nn.LayerNorm | None, activation: str, share: float, training: bool) -> Tensor:
    """dropout(f(norm(z))) of z `[B, H]`; activation: the name of f in FUNCTIONS."""
    z = z.float() if z.dtype == torch.bfloat16 else z  # of a product that autocast did
    if not _loops_can(z):
        a = FUNCTIONS[activation](z if norm is None else norm(z))
        return dropout(a, share, training)
    gain, offset, epsilon = (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
    dropped = share if training else 0.0
    units: Tensor = _HiddenUnits.apply(  # type: ignore[no-untyped-call]
        z, gain, offset, epsilon, NUMBERS[activation], dropped, _draw() if dropped else 0
    )
    return units


def times_slope(z: Tensor, activation: str, grad: Tensor) -> Tensor:
    """grad f'(z), both `[B, H]`: the gradient of z from that of f(z)."""
    slope = z.clone(memory_format=torch.contiguous_format)
    _run(_slope_rows, *z.shape, slope.numpy(), NUMBERS[activation])
    return slope.mul_(grad)


def kept(shape: torch.Size, share: float, draw: int) -> Tensor:
    """Which numbers of a tensor of this shape dropout keeps, bool; draw: the number of the step."""
    mask = torch.ones(shape)
    flat = mask.view(-1, shape[-1]).numpy()
    _run(_drop, *flat.shape, flat, flat, np.float32(1), _limit(share), np.uint32(draw))
    return mask > 0


def _loops_can(x: Tensor) -> bool:
    return compiled(x) and not torch.compiler.is_compiling()


def _draw() -> int:
    return int(torch.randint(1 << 32, ()))


def _limit(share: float) -> Any:
    return np.uint32(min(round(share * 2**32), 2**32 - 1))


def _run(kernel: Any, size: int, units: int, *arguments: Any) -> list[Any]:
    pieces = max(1, min(parallel.threads(), size * units // SMALL))
    return parallel.run((kernel, *arguments, *cut) for cut in parallel.cut_evenly(size, pieces))


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float, draw: int) -> Tensor:
        ctx.share, ctx.draw = share, draw
        return _dropped(x.contiguous(), share, draw)

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        return _dropped(grad_output[0].contiguous(), ctx.share, ctx.draw), None, None


def _dropped(x: Tensor, share: float, draw: int) -> Tensor:
    out = torch.empty_like(x)
    before, after = (tensor.detach().view(-1, x.shape[-1]).numpy() for tensor in (x, out))
    scale = before.dtype.type(1 / (1 - share))
    _run(_drop, *before.shape, before, after, scale, _limit(share), np.uint32(draw))
    return out


class _HiddenUnits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        gain: Tensor | None,
        offset: Tensor | None,
        epsilon: float,
        activation: int,
        share: float,
        draw: int,
    ) -> Tensor:
        z = z.contiguous()
        out, moments = torch.empty_like(z), z.new_empty(len(z), 2)
        ctx.save_for_backward(z, gain, offset, moments)
        ctx.numbers = activation, share, draw
        arrays = _arrays(z, gain, offset)
        _run(_forward, *z.shape, *arrays, epsilon, activation, share, _limit(share), np.uint32(draw),
             moments.numpy(), out.numpy())  # fmt: skip
        return out

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        z, gain, offset, moments = ctx.saved_tensors
        activation, share, draw = ctx.numbers
        grad, grad_z = grad_output[0].contiguous(), torch.empty_like(z)
        sums = _run(_backward, *z.shape, *_arrays(z, gain, offset), activation, share, _limit(share), np.uint32(draw),
                    moments.numpy(), grad.numpy(), grad_z.numpy())  # fmt: skip
        if gain is None:
            return grad_z, None, None, None, None, None, None
        both = torch.from_numpy(np.sum(sums, axis=0))
        return grad_z, both[0], both[1], None, None, None, None


def _arrays(z: Tensor, gain: Tensor | None, offset: Tensor | None) -> list[Array]:
    nothing = z.new_empty(0)
    return [(nothing if tensor is None else tensor).detach().numpy() for tensor in (z, gain, offset)]


@njit(nogil=True, inline="always")
def _hash(place: Any, draw: Any) -> Any:
    """A number from 0 to 2^32 - 1 for each place of each step (Wellons 2018, hash-prospector: lowbias32)."""
    x = np.uint32(np.uint32(place) ^ np.uint32(draw))
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))


@njit(nogil=True, inline="always")
def _row_draw(row: Any, draw: Any) -> Any:
    """The number of a row: places of different rows and steps are then far apart."""
    return _hash(np.uint32(row) * np.uint32(0x9E3779B9), draw)


@njit(nogil=True, error_model="numpy")
def _drop_row(row: Array, scale: float, limit: int, number: int) -> None:
    for j in range(len(row)):
        row[j] = row[j] * scale if _hash(j, number) >= limit else row.dtype.type(0)


@njit(cache=True, nogil=True, error_model="numpy")
def _drop(x: Array, out: Array, scale: float, limit: int, draw: int, first: int, last: int) -> None:
    for b in range(first, last):
        out[b] = x[b]
        _drop_row(out[b], scale, limit, _row_draw(b, draw))


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def activate(row: Array, activation: int) -> None:
    """f of each number of a row `[H]`, in place; a loop for each f, so that each is vectorised."""
    zero, half, one = row.dtype.type(0), row.dtype.type(0.5), row.dtype.type(1)
    if activation == TANH:
        for j in range(len(row)):
            row[j] = tanh(row[j])
    elif activation == GELU:
        root = row.dtype.type(math.sqrt(0.5))
        for j in range(len(row)):
            row[j] = row[j] * half * (one + error_function(row[j] * root))
    elif activation == RELU:
        for j in range(len(row)):
            row[j] = row[j] if row[j] > zero else zero
    else:
        for j in range(len(row)):
            e = exp_below(-abs(row[j]))
            row[j] = (one if row[j] >= zero else e) / (one + e)


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def slopes(row: Array, activation: int) -> None:
    """The derivative of f at each number of a row `[H]`, in place."""
    zero, half, one = row.dtype.type(0), row.dtype.type(0.5), row.dtype.type(1)
    if activation == TANH:
        for j in range(len(row)):
            t = tanh(row[j])
            row[j] = one - t * t
    elif activation == GELU:
        root, density = row.dtype.type(math.sqrt(0.5)), row.dtype.type(1 / math.sqrt(2 * math.pi))
        for j in range(len(row)):
            x = row[j]
            row[j] = half * (one + error_function(x * root)) + x * density * exp_below(-half * x * x)
    elif activation == RELU:
        for j in range(len(row)):
            row[j] = one if row[j] > zero else zero
    else:
        for j in range(len(row)):
            e = exp_below(-abs(row[j]))
            row[j] = e / ((one + e) * (one + e))


@njit(cache=True, nogil=True, error_model="numpy")
def _slope_rows(z: Array, activation: int, first: int, last: int) -> None:
    for b in range(first, last):
        slopes(z[b], activation)


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def _normalise(row: Array, mean: float, scale: float, out: Array) -> None:
    for j in range(len(row)):
        out[j] = (row[j] - mean) * scale


@njit(nogil=True, fastmath=FAST, error_model="numpy")
def _moments(row: Array, epsilon: float) -> tuple[Any, Any]:
    """The mean of a row, and 1 over its standard deviation, epsilon added to the variance."""
    total, square = row.dtype.type(0), row.dtype.type(0)
    for j in range(len(row)):
        total += row[j]
    mean = total / row.dtype.type(len(row))
    for j in range(len(row)):
        square += (row[j] - mean) * (row[j] - mean)
    variance = square / row.dtype.type(len(row)) + row.dtype.type(epsilon)
    return mean, row.dtype.type(1) / math.sqrt(variance)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _forward(
    z: Array,
    gain: Array,
    offset: Array,
    epsilon: float,
    activation: int,
    share: float,
    limit: int,
    draw: int,
    moments: Array,
    out: Array,
    first: int,
    last: int,
) -> None:
    for b in range(first, last):
        row = out[b]
        if len(gain):
            mean, scale = _moments(z[b], epsilon)
            moments[b, 0], moments[b, 1] = mean, scale
            _normalise(z[b], mean, scale, row)
            for j in range(len(row)):
                row[j] = row[j] * gain[j] + offset[j]
        else:
            row[:] = z[b]
        activate(row, activation)
        if share > 0:
            _drop_row(row, z.dtype.type(1 / (1 - share)), limit, _row_draw(b, draw))


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _backward(
    z: Array,
    gain: Array,
    offset: Array,
    activation: int,
    share: float,
    limit: int,
    draw: int,
    moments: Array,
    grad: Array,
    grad_z: Array,
    first: int,
    last: int,
) -> Any:
    """grad_z; returns the sums over these examples of the gradients of gain and offset, `[2, H]`."""
    width = z.shape[1]
    sums, normal, slope = np.zeros((2, width), z.dtype), np.empty(width, z.dtype), np.empty(width, z.dtype)
    of_gain, of_offset = sums[0], sums[1]
    for b in range(first, last):
        row = grad_z[b]
        row[:] = grad[b]
        if share > 0:
            _drop_row(row, z.dtype.type(1 / (1 - share)), limit, _row_draw(b, draw))
        if not len(gain):
            slope[:] = z[b]
            slopes(slope, activation)
            for j in range(width):
                row[j] *= slope[j]
            continue
        _normalise(z[b], moments[b, 0], moments[b, 1], normal)
        for j in range(width):
            slope[j] = normal[j] * gain[j] + offset[j]
        slopes(slope, activation)
        mean, along = z.dtype.type(0), z.dtype.type(0)
        for j in range(width):
            change = row[j] * slope[j]
            of_gain[j] += change * normal[j]
            of_offset[j] += change
            row[j] = change * gain[j]
        for j in range(width):
            mean += row[j]
            along += row[j] * normal[j]
        mean, along = mean / z.dtype.type(width), along / z.dtype.type(width)
        for j in range(width):
            row[j] = (row[j] - mean - normal[j] * along) * moments[b, 1]
    return sums

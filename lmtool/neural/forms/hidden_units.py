"""The operations between two matrix products of an encoder, in one pass forward and one backward: layer normalization,
activation, gate, dropout; and dropout alone.

The plain form, NPLM.units, reads and writes all units from memory in each operation, and autograd keeps the results of
each; here a row of units stays in the processor's cache, and only z and the moments of a row are kept. Dropout needs no
random number for each unit and no stored mask: whether a unit is dropped is a hash of its place and of one number for
the step, drawn from torch's random state; the backward pass computes it again. tests/neural/test_hidden_units.py
compares both.

Legend of shapes: B examples, H units, G parts from which a unit is computed: 2 with a gate, else 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lmtool.neural.encoders.base import Encoder
from lmtool.neural.encoders.nplm import FUNCTIONS, NPLM
from lmtool.neural.forms import form
from lmtool.neural.forms.loops import FAST, as_arrays, copy_row, error_function, exp_below, runs_compiled, tanh
from lmtool.system import parallel
from lmtool.system.arrays import Array

TANH, GELU, RELU, SIGMOID, IDENTITY = range(5)
NUMBERS = {activation: number for number, activation in enumerate(FUNCTIONS)}
MIN_DROPPED = 1 << 15  # numbers; with fewer, torch is as fast
UNITS_PER_THREAD = 1 << 16  # units for which a second thread is worth its start


def _serves(layer: NPLM, z: Tensor) -> bool:
    """Return whether there is more to do than an activation, which torch computes as fast; norms must be LayerNorm."""
    norms = [*(layer.norms or ()), *(layer.gate_norms or ())]
    usual = all(type(norm) is nn.LayerNorm and norm.bias is not None for norm in norms)
    return usual and runs_compiled(z) and (bool(norms) or (layer.training and layer.config.dropout > 0))


@form(
    Encoder,
    "dropped",
    serves=lambda layer, x: runs_compiled(x) and x.numel() >= MIN_DROPPED,
    measured="1.7 (64 x 500) to 8.1 times, 0.5 at 32 x 150 (not served); EPYC Zen 5, 2026-11",
)
def hashed_dropout(layer: Encoder, x: Tensor, share: float) -> Tensor:
    """Compute dropout of x; other numbers are dropped than by torch, with the same probability."""
    dropped: Tensor = _HiddenUnits.apply(  # type: ignore[no-untyped-call]
        x.reshape(-1, x.shape[-1]), 1, np.empty(0), IDENTITY, share, _draw()
    )
    return dropped.view(x.shape)


@form(
    NPLM,
    "units",
    serves=_serves,
    measured="1.4 to 12 times; EPYC Zen 5, 2026-11-25",
    calls=("with_dropout", "dropped", "norms_of"),
)
def hidden_units(layer: NPLM, z: Tensor, number: int) -> Tensor:
    """Compute dropout(f(norm(z))) `[B, H]`, or dropout(f(norm(z)) norm'(z')) with gates."""
    norms, share = layer.norms_of(number), layer.config.dropout if layer.training else 0.0
    of_norms = [weight for norm in norms for weight in (norm.weight, norm.bias)]
    epsilons = np.array([norm.eps for norm in norms])
    parts, activation = 2 if layer.config.gated else 1, NUMBERS[layer.config.activation]
    units: Tensor = _HiddenUnits.apply(  # type: ignore[no-untyped-call]
        z, parts, epsilons, activation, share, _draw() if share else 0, *of_norms
    )
    return units


def apply_activation(z: Tensor, activation: int, *, slope: bool = False) -> Tensor:
    """Compute f(z) of z `[B, H]`, or f'(z) in place if slope is true; activation: the number of f."""
    values = z if slope else z.clone()
    _run(_activate_rows, *z.shape, values.numpy(), activation, slope)
    return values


def _draw() -> int:
    return int(torch.randint(1 << 32, ()))


def _limit(share: float) -> Any:
    return np.uint32(min(round(share * 2**32), 2**32 - 1))


def _run(kernel: Any, size: int, units: int, *arguments: Any) -> list[Any]:
    return parallel.run_pieces(kernel, arguments, size, size * units // UNITS_PER_THREAD)


class _HiddenUnits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, parts: int, epsilons: Array, activation: int, share: float, draw: int, *of_norms: Tensor
    ) -> Tensor:
        """of_norms: gain and offset of each part, `[H]`, or none."""
        z = z.contiguous()
        size, width = len(z), z.shape[1] // parts
        out, moments = z.new_empty(size, width), z.new_empty(size, parts, 2)
        ctx.save_for_backward(z, moments, *of_norms)
        ctx.numbers = activation, share, draw
        arrays, form = _arrays(z, parts, of_norms), (activation, share, _limit(share), np.uint32(draw))
        _run(_forward, size, width, arrays, epsilons, form, moments.numpy(), out.numpy())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        z, moments, *of_norms = ctx.saved_tensors
        activation, share, draw = ctx.numbers
        size, parts, _ = moments.shape
        grad, grad_z = grad_output[0].contiguous(), torch.empty_like(z)
        arrays, form = _arrays(z, parts, of_norms), (activation, share, _limit(share), np.uint32(draw))
        written = moments.numpy(), grad.numpy(), _parts(grad_z, parts)
        sums = _run(_backward, size, grad.shape[1], arrays, form, *written)
        of_both = torch.from_numpy(np.sum(sums, axis=0)).flatten(0, 1)[: len(of_norms)]
        return grad_z, None, None, None, None, None, *of_both


def _parts(z: Tensor, parts: int) -> Array:
    return z.detach().view(len(z), parts, z.shape[1] // parts).numpy()


def _arrays(z: Tensor, parts: int, of_norms: Sequence[Tensor]) -> tuple[Array, Array, Array]:
    """Return z `[B, G, H]`, then gain and offset, both `[G, H]`, or `[0, 0]` without norms."""
    if not of_norms:
        none = z.new_empty(0, 0).numpy()
        return _parts(z, parts), none, none
    weights = as_arrays(*of_norms)
    return _parts(z, parts), np.stack(weights[::2]), np.stack(weights[1::2])


@njit(nogil=True, inline="always")
def _hash(place: Any, draw: Any) -> Any:
    """Return a number from 0 to 2^32 - 1 for each place of each step (Wellons 2018, hash-prospector: lowbias32)."""
    x = np.uint32(np.uint32(place) ^ np.uint32(draw))
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))


@njit(nogil=True, inline="always")
def _row_draw(row: Any, draw: Any) -> Any:
    """Return the number of a row, far apart for different rows and steps."""
    return _hash(np.uint32(row) * np.uint32(0x9E3779B9), draw)


@njit(nogil=True, forceinline=True, error_model="numpy")
def _drop_row(row: Array, scale: float, limit: int, number: int) -> None:
    for j in range(len(row)):
        row[j] = row[j] * scale if _hash(j, number) >= limit else row.dtype.type(0)


@njit(nogil=True, forceinline=True, fastmath=FAST, error_model="numpy")
def activate(row: Array, activation: int) -> None:
    """Apply f to each number of a row `[H]`, in place; a loop for each f, so that each is vectorized."""
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
            row[j] = zero if row[j] < zero else row[j]  # NaN stays
    elif activation == SIGMOID:
        for j in range(len(row)):
            e = exp_below(-abs(row[j]))
            row[j] = (one if row[j] >= zero else e) / (one + e)


@njit(nogil=True, forceinline=True, fastmath=FAST, error_model="numpy")
def slopes(row: Array, activation: int) -> None:
    """Replace each number of a row `[H]` by the derivative of f there."""
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
            row[j] = zero if row[j] <= zero else one
    elif activation == SIGMOID:
        for j in range(len(row)):
            e = exp_below(-abs(row[j]))
            row[j] = e / ((one + e) * (one + e))
    else:
        for j in range(len(row)):
            row[j] = one


@njit(cache=True, nogil=True, error_model="numpy")
def _activate_rows(z: Array, activation: int, slope: bool, first: int, last: int) -> None:
    for b in range(first, last):
        if slope:
            slopes(z[b], activation)
        else:
            activate(z[b], activation)


@njit(nogil=True, forceinline=True, fastmath=FAST, error_model="numpy")
def _normalize(row: Array, mean: float, scale: float, out: Array) -> None:
    for j in range(len(row)):
        out[j] = (row[j] - mean) * scale


@njit(nogil=True, forceinline=True, fastmath=FAST, error_model="numpy")
def _moments(row: Array, epsilon: float) -> tuple[Any, Any]:
    """Return the mean of a row, and 1 over its standard deviation, with epsilon added to the variance."""
    total, square = row.dtype.type(0), row.dtype.type(0)
    for j in range(len(row)):
        total += row[j]
    mean = total / row.dtype.type(len(row))
    for j in range(len(row)):
        square += (row[j] - mean) * (row[j] - mean)
    variance = square / row.dtype.type(len(row)) + row.dtype.type(epsilon)
    return mean, row.dtype.type(1) / math.sqrt(variance)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _forward(arrays: Any, epsilons: Array, form: Any, moments: Array, out: Array, first: int, last: int) -> None:
    (z, gain, offset), (activation, share, limit, draw) = arrays, form
    parts, width = z.shape[1:]
    gate = np.empty(width, z.dtype)
    for b in range(first, last):
        for part in range(parts):
            row = gate if part else out[b]
            copy_row(z[b, part], row)
            if len(gain):
                mean, scale = _moments(z[b, part], epsilons[part])
                moments[b, part, 0], moments[b, part, 1] = mean, scale
                _normalize(z[b, part], mean, scale, row)
                for j in range(width):
                    row[j] = row[j] * gain[part, j] + offset[part, j]
        row = out[b]
        activate(row, activation)
        if parts == 2:
            for j in range(width):
                row[j] *= gate[j]
        if share > 0:
            _drop_row(row, z.dtype.type(1 / (1 - share)), limit, _row_draw(b, draw))


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _backward(arrays: Any, form: Any, moments: Array, grad: Array, grad_z: Array, first: int, last: int) -> Any:
    """Write grad_z; return the sums over these examples of the gradients of gain and offset, `[G, 2, H]`."""
    (z, gain, offset), (activation, share, limit, draw) = arrays, form
    parts, width = z.shape[1:]
    sums = np.zeros((parts, 2, width), z.dtype)
    normal = np.empty((parts, width), z.dtype)
    value = np.empty((parts, width), z.dtype)
    slope = np.empty(width, z.dtype)
    for b in range(first, last):
        for part in range(parts):  # the arguments of f and the gate again: storing them would take twice the memory
            if len(gain):
                _normalize(z[b, part], moments[b, part, 0], moments[b, part, 1], normal[part])
                for j in range(width):
                    value[part, j] = normal[part, j] * gain[part, j] + offset[part, j]
            else:
                copy_row(z[b, part], value[part])
        row = grad_z[b, 0]
        copy_row(grad[b], row)
        if share > 0:
            _drop_row(row, z.dtype.type(1 / (1 - share)), limit, _row_draw(b, draw))
        copy_row(value[0], slope)
        slopes(slope, activation)
        if parts == 2:  # the derivative of a product: each factor's gradient is the other factor's value
            activate(value[0], activation)
            of_gate = grad_z[b, 1]
            for j in range(width):
                of_gate[j] = row[j] * value[0, j]
                row[j] *= value[1, j]
        for j in range(width):
            row[j] *= slope[j]
        if len(gain):
            for part in range(parts):
                _through_norm(grad_z[b, part], normal[part], gain[part], moments[b, part, 1], sums[part])
    return sums


@njit(nogil=True, forceinline=True, fastmath=FAST, error_model="numpy")
def _through_norm(row: Array, normal: Array, gain: Array, scale: float, sums: Array) -> None:
    """Turn gradients after a norm into gradients before it; add the gain's and the offset's to sums `[2, H]`."""
    of_gain, of_offset, width = sums[0], sums[1], row.dtype.type(len(row))
    mean, along = row.dtype.type(0), row.dtype.type(0)
    for j in range(len(row)):
        of_gain[j] += row[j] * normal[j]
        of_offset[j] += row[j]
        row[j] *= gain[j]
    for j in range(len(row)):
        mean += row[j]
        along += row[j] * normal[j]
    # The norm removes the mean and the length of a row, so the gradient has neither part: nothing along 1 and normal.
    mean, along = mean / width, along / width
    for j in range(len(row)):
        row[j] = (row[j] - mean - normal[j] * along) * scale

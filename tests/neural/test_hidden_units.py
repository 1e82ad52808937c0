"""Normalisation, activation and dropout in one pass, against torch's own and against the mask that dropout has."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from lmtool.neural.kernels import hidden_units as kernels
from lmtool.neural.kernels.hidden_units import FUNCTIONS, dropout, hidden_units, kept
from lmtool.system import parallel


def norm_of(size: int, dtype: torch.dtype) -> nn.LayerNorm:
    norm = nn.LayerNorm(size).to(dtype)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
    return norm


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("activation", FUNCTIONS)
def test_values_and_gradients_are_those_of_torch(activation: str, normalised: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    norm = norm_of(37, dtype) if normalised else None
    z, weights = torch.randn(9, 37, dtype=dtype), torch.randn(9, 37, dtype=dtype)
    leaves = [z.requires_grad_(), *(norm.parameters() if norm is not None else ())]
    torch.manual_seed(2)
    ours = hidden_units(z, norm, activation, 0.3, True)
    found = [ours, *torch.autograd.grad((ours * weights).sum(), leaves)]
    torch.manual_seed(2)
    mask = kept(z.shape, 0.3, kernels._draw())
    theirs = FUNCTIONS[activation](z if norm is None else norm(z)) * mask / 0.7
    want = [theirs, *torch.autograd.grad((theirs * weights).sum(), leaves)]
    assert 0 < mask.float().mean() < 1
    tolerance = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("activation", FUNCTIONS)
def test_gated_values_and_gradients(activation: str, normalised: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    norm, gate_norm = (norm_of(37, dtype), norm_of(37, dtype)) if normalised else (None, None)
    z, weights = torch.randn(9, 74, dtype=dtype), torch.randn(9, 37, dtype=dtype)
    leaves = [z.requires_grad_()]
    for one in (norm, gate_norm):
        leaves += [] if one is None else list(one.parameters())
    torch.manual_seed(2)
    ours = hidden_units(z, norm, activation, 0.3, True, gated=True, gate_norm=gate_norm)
    found = [ours, *torch.autograd.grad((ours * weights).sum(), leaves)]
    torch.manual_seed(2)
    mask = kept(torch.Size((9, 37)), 0.3, kernels._draw())
    x, y = z[:, :37], z[:, 37:]
    theirs = FUNCTIONS[activation](x if norm is None else norm(x)) * (y if gate_norm is None else gate_norm(y))
    theirs = theirs * mask / 0.7
    want = [theirs, *torch.autograd.grad((theirs * weights).sum(), leaves)]
    tolerance = {"rtol": 1e-11, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 2e-5, "atol": 2e-5}
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


def test_a_gate_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.tensor([[-1.0, 3.0, 2.0, -5.0]])  # relu: 0 and 3, times 2 and -5
    for loops in (True, False):
        monkeypatch.setattr(kernels, "_loops_can", lambda _, loops=loops: loops)
        assert hidden_units(z, None, "relu", 0.0, True, gated=True).tolist() == [[0.0, -15.0]]


def test_literal_values() -> None:
    z = torch.tensor([[-1.0, 0.0, 2.0]])
    want = {
        "tanh": [math.tanh(-1), 0, math.tanh(2)],
        "gelu": [-0.15865525393145707, 0, 1.9544997361036416],  # x Phi(x)
        "relu": [0, 0, 2],
        "sigmoid": [1 / (1 + math.e), 0.5, 1 / (1 + math.exp(-2))],
    }
    for name, values in want.items():
        torch.testing.assert_close(hidden_units(z, None, name, 0.5, False), torch.tensor([values]).float())


@pytest.mark.parametrize("share", [0.15, 0.4])
def test_dropout_keeps_the_share_it_should(share: float) -> None:
    mask = kept(torch.Size((2000, 640)), share, 12345).double()
    each = math.sqrt(share * (1 - share))
    assert abs(mask.mean() - (1 - share)) < 4 * each / math.sqrt(mask.numel())
    # Neither the columns nor the rows deviate more than independent draws do, nor do neighbours or steps go together.
    assert mask.mean(0).std() == pytest.approx(each / math.sqrt(2000), rel=0.15)
    assert mask.mean(1).std() == pytest.approx(each / math.sqrt(640), rel=0.15)
    other = kept(mask.shape, share, 12346).double()
    for one, two in ((mask[1:], mask[:-1]), (mask[:, 1:], mask[:, :-1]), (mask, other)):
        assert abs(torch.corrcoef(torch.stack([one.flatten(), two.flatten()]))[0, 1]) < 0.005


def test_dropout_alone() -> None:
    x = torch.arange(1.0, 61.0).view(3, 4, 5).requires_grad_()
    assert dropout(x, 0.5, False) is x
    assert dropout(x, 0.0, True) is x
    torch.manual_seed(3)
    out = dropout(x, 0.75, True)
    assert set((out / x).flatten().tolist()) == {0.0, 4.0}
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad, out / x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.75, True), out)


def test_threads_do_not_change_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SMALL", 1)
    z, norm = torch.randn(7, 8), norm_of(8, torch.float32)
    found: list[Tensor] = []
    for threads in (1, 3):
        monkeypatch.setattr(parallel, "_threads", threads)
        torch.manual_seed(4)
        found.append(hidden_units(z, norm, "gelu", 0.4, True))
    assert torch.equal(*found)


def test_a_product_in_bf16_is_widened() -> None:
    z = torch.randn(4, 6)
    narrow = hidden_units(z.bfloat16(), None, "tanh", 0.0, True)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow, z.bfloat16().float().tanh())


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("normalised", [True, False])
def test_without_loops_it_is_torch(normalised: bool, gated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    norm, gate_norm = (norm_of(6, torch.float64), norm_of(6, torch.float64)) if normalised else (None, None)
    z = torch.randn(4, 12 if gated else 6, dtype=torch.float64)
    ours = hidden_units(z, norm, "tanh", 0.3, False, gated=gated, gate_norm=gate_norm if gated else None)
    monkeypatch.setattr(kernels, "_loops_can", lambda tensor: False)
    plain = hidden_units(z, norm, "tanh", 0.3, False, gated=gated, gate_norm=gate_norm if gated else None)
    torch.testing.assert_close(plain, ours)
    torch.manual_seed(2)
    dropped = hidden_units(z, norm, "tanh", 0.5, True, gated=gated, gate_norm=gate_norm if gated else None)
    assert 0 < (dropped == 0).sum() < dropped.numel()
    torch.testing.assert_close(dropped[dropped != 0], 2 * plain[dropped != 0])
    assert dropout(z, 0.5, False) is z and dropout(z, 0.0, True) is z

"""Normalization, activation and dropout in one pass, against torch's own and against the mask that dropout has."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural.encoders.nplm import FUNCTIONS, NPLM
from lmtool.neural.encoders.settings import Activation
from lmtool.neural.forms import chosen, only_plain
from lmtool.neural.forms import hidden_units as file
from lmtool.neural.forms.hidden_units import hashed_dropout, hidden_units
from lmtool.system import parallel
from tests.conftest import nplm

H = 37


def kept(shape: torch.Size, share: float, draw: int) -> Tensor:
    """Return which numbers of a tensor of this shape dropout keeps (bool). draw: the number of the step."""
    ones = torch.ones(shape).view(-1, shape[-1])
    dropped: Tensor = file._HiddenUnits.apply(ones, 1, np.empty(0), file.IDENTITY, share, draw)  # type: ignore[no-untyped-call]
    return dropped.view(shape) > 0


def network(dtype: torch.dtype = torch.float32, **settings: object) -> NPLM:
    """Return a network of one layer of H units in training mode, whose norms, if any, have random gains and offsets."""
    layer = NPLM(nplm(**{"hidden_dim": H, "dropout": 0.3} | settings), 5, tied=False).to(dtype)
    for norm in layer.norms_of(0):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return layer


def test_literal_values() -> None:
    z = torch.tensor([[-1.0, 0.0, 2.0]])
    want = {
        Activation.tanh: [math.tanh(-1), 0, math.tanh(2)],
        Activation.gelu: [-0.15865525393145707, 0, 1.9544997361036416],  # x Phi(x)
        Activation.relu: [0, 0, 2],
        Activation.sigmoid: [1 / (1 + math.e), 0.5, 1 / (1 + math.exp(-2))],
    }
    assert want.keys() == FUNCTIONS.keys()
    for activation, values in want.items():
        layer = network(hidden_dim=3, dropout=0.5, activation=activation).eval()
        for units in (hidden_units(layer, z, 0), layer.units(z, 0)):
            torch.testing.assert_close(units, torch.tensor([values]).float())


def test_where_nothing_is_gained_torch_computes_it() -> None:
    """Choose no form for an activation alone or a gate alone."""
    z = torch.randn(4, H)
    for gated in (False, True):
        wide = torch.cat([z, z], 1) if gated else z
        plain = network(dropout=0.0, gated=gated)
        assert chosen(plain, "units", wide) is None
        for settings in ({"dropout": 0.1}, {"layer_norm": True}):
            form = chosen(network(**{"dropout": 0.0, "gated": gated} | settings), "units", wide)
            assert form is not None and form.run is hidden_units
        assert chosen(network(gated=gated).eval(), "units", wide) is None
    with only_plain():
        assert chosen(network(), "units", z) is None


@pytest.mark.parametrize("share", [0.15, 0.4])
def test_dropout_keeps_the_share_it_should(share: float) -> None:
    mask = kept(torch.Size((2000, 640)), share, 12345).double()
    each = math.sqrt(share * (1 - share))
    assert abs(mask.mean() - (1 - share)) < 4 * each / math.sqrt(mask.numel())
    # Neither the columns nor the rows deviate more than independent draws do, nor do neighbors or steps go together.
    assert mask.mean(0).std() == pytest.approx(each / math.sqrt(2000), rel=0.15)
    assert mask.mean(1).std() == pytest.approx(each / math.sqrt(640), rel=0.15)
    other = kept(mask.shape, share, 12346).double()
    for one, two in ((mask[1:], mask[:-1]), (mask[:, 1:], mask[:, :-1]), (mask, other)):
        assert abs(torch.corrcoef(torch.stack([one.flatten(), two.flatten()]))[0, 1]) < 0.005


@pytest.mark.parametrize("plain", [False, True])
def test_dropout_alone(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = network()
    assert chosen(layer, "dropped", torch.ones(60)) is None  # torch is as fast for so few numbers
    monkeypatch.setattr(file, "MIN_DROPPED", 60)
    x = torch.arange(1.0, 61.0).view(3, 4, 5).requires_grad_()
    with only_plain(plain):
        assert (chosen(layer, "dropped", x) is None) == plain
        assert layer.eval().with_dropout(x, 0.5) is x
        assert layer.train().with_dropout(x, 0.0) is x
        torch.manual_seed(3)
        out = layer.with_dropout(x, 0.75)
        assert out.shape == x.shape and set((out / x).flatten().tolist()) == {0.0, 4.0}
        (grad,) = torch.autograd.grad(out.sum(), x)
        torch.testing.assert_close(grad, out / x)
        torch.manual_seed(3)
        assert torch.equal(layer.with_dropout(x, 0.75), out)
    torch.manual_seed(3)
    assert torch.equal(F.dropout(x, 0.75) if plain else hashed_dropout(layer, x, 0.75), out)


def test_threads_do_not_change_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "UNITS_PER_THREAD", 1)
    layer = network(hidden_dim=8, layer_norm=True, activation=Activation.gelu, dropout=0.4)
    z = torch.randn(7, 8)
    found: list[Tensor] = []
    for threads in (1, 3):
        monkeypatch.setattr(parallel._here, "threads", threads)
        torch.manual_seed(4)
        found.append(hidden_units(layer, z, 0))
    assert torch.equal(*found)

"""What an audit by plain programs from the papers found: each gave a wrong number, or none, without a word."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lmtool.config.training import Precision
from lmtool.neural import FullSoftmax, HierarchicalSoftmax, clip_gradients
from lmtool.neural.encoders.nplm import NPLM
from lmtool.neural.encoders.options import NplmModel
from lmtool.neural.encoders.settings import Activation
from lmtool.neural.forms import only_plain, used
from lmtool.trees import huffman_tree

TREE = huffman_tree(np.array([5, 3, 2, 1]))


def encoder(activation: Activation, *, gated: bool) -> NPLM:
    sizes = {"hidden_dim": 64, "layers": 1}
    settings = NplmModel(
        "nplm", 2, 8, False, 0.0, **sizes, direct_connections=False, activation=activation, layer_norm=True, gated=gated
    )
    return settings.build(9, tied=False, sparse=False)


def test_a_second_derivative_through_a_form_is_an_error() -> None:
    layer, h = HierarchicalSoftmax(3, TREE), torch.randn(4, 3, requires_grad=True)
    (grad,) = torch.autograd.grad(layer(h, torch.arange(4)), [h], create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        grad.square().sum().backward()
    with only_plain():
        (grad,) = torch.autograd.grad(layer(h, torch.arange(4)), [h], create_graph=True)
        grad.square().sum().backward()
    assert h.grad is not None


@pytest.mark.parametrize("activation", Activation)
def test_nan_stays(activation: Activation) -> None:
    made = encoder(activation, gated=False)
    with torch.no_grad():
        made.embedding.weight[7] = torch.nan
    assert made(torch.full((3, 2), 7)).isnan().all() and used(made)


def test_each_norm_has_its_own_epsilon_and_may_be_replaced() -> None:
    made, contexts = encoder(Activation.tanh, gated=True), torch.randint(9, (5, 2))
    norms, gate_norms = made.norms, made.gate_norms
    assert norms is not None and gate_norms is not None
    first = gate_norms[0]
    assert isinstance(first, nn.LayerNorm)
    first.eps = 0.5
    assert near_plain(made, contexts) and used(made)
    norms[0] = nn.Identity()
    made.eval()  # chosen again
    assert near_plain(made, contexts)


def near_plain(made: NPLM, contexts: Tensor) -> bool:
    found = made(contexts)
    with only_plain():
        return torch.allclose(found, made(contexts), rtol=1e-5, atol=1e-6)


def test_an_infinite_weight_of_a_node() -> None:
    layer, h = HierarchicalSoftmax(3, TREE), torch.ones(2, 3)
    with torch.no_grad():
        layer.nodes.bias[1] = -torch.inf
    found = layer.log_dist(h)
    with only_plain():
        torch.testing.assert_close(found, layer.log_dist(h), rtol=1e-6, atol=1e-6)
    assert not found.isnan().any()


@pytest.mark.parametrize("plain", [False, True])
def test_no_word_is_drawn_from_nan(plain: bool) -> None:
    with only_plain(plain), pytest.raises(ValueError, match="sample: the distribution after h is NaN"):
        HierarchicalSoftmax(3, TREE).sample(torch.full((2, 3), torch.nan))


def test_a_precision_by_its_name() -> None:
    assert FullSoftmax(3, torch.ones(4), precision="bf16").precision is Precision.bf16  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nonsense"):
        FullSoftmax(3, torch.ones(4), precision="nonsense")  # type: ignore[arg-type]


def test_a_parameter_that_is_given_twice_is_clipped_once() -> None:
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    weight.grad = weight.detach().clone()
    assert clip_gradients([weight, weight], 1.0).item() == pytest.approx(5.0)
    assert weight.grad.norm().item() == pytest.approx(1.0, rel=1e-5)

"""Weight decay spares biases and gains by the role that module and name give them, not by their shapes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from lmtool.neural import (
    AdaptiveSoftmax,
    ClassSoftmax,
    FullSoftmax,
    HierarchicalSoftmax,
    MorinBengioNodes,
    NCELoss,
    SampledSoftmax,
)
from lmtool.neural.optimizers.base import ParameterGroups
from lmtool.trees import huffman_tree
from tests import options
from tests.conftest import nplm


def spared(model: nn.Module) -> set[str]:
    """Return the names of the parameters in groups without weight decay."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = list(ParameterGroups.of(model.parameters(), model))
    assert sorted(id(p) for group in groups for p in group["params"]) == sorted(names)
    return {names[id(p)] for group in groups if "weight_decay" in group for p in group["params"]}


def old_weight_norm(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has another form of it since 2.0
        return torch.nn.utils.weight_norm(module)


class Gated(nn.Module):
    """A gated convolution as Dauphin et al. (2017) have it, with a gain `[2 H, 1, 1]`."""

    def __init__(self, normalize: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self.convolution = normalize(nn.Conv1d(3, 8, 2))


class LowRank(nn.Module):
    """The product of two matrices `[R, 1]` and `[1, C]`, of which neither is a gain."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left @ right

    def right_inverse(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return weight[:, :1].clone(), weight[:1].clone()


class Custom(nn.Module):
    """Parameters of several dimensions that are gains and biases by their names, or because the module says so."""

    decays: ClassVar[dict[str, bool]] = {"mixing": False, "scale_map": True}

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(8, 1, 1))
        self.position_bias = nn.Parameter(torch.zeros(4, 7))
        self.bias_table = nn.Parameter(torch.zeros(4, 7))
        self.mixing = nn.Parameter(torch.ones(2, 5))
        self.scale_map = nn.Parameter(torch.ones(2, 5))
        self.kernel = nn.Parameter(torch.ones(8, 1, 1))
        self.unbiased = nn.Parameter(torch.ones(3, 3))


def test_a_gain_of_weight_norm() -> None:
    found = spared(Gated(parametrizations.weight_norm))
    assert found == {"convolution.parametrizations.weight.original0", "convolution.bias"}
    assert spared(Gated(old_weight_norm)) == {"convolution.weight_g", "convolution.bias"}
    # The module itself, its gain `[4, 1]` as many numbers as a row of the matrix.
    assert spared(parametrizations.weight_norm(nn.Linear(4, 4))) == {"parametrizations.weight.original0", "bias"}
    assert spared(parametrizations.weight_norm(nn.Linear(4, 4), dim=None)) == {
        "parametrizations.weight.original0",
        "bias",
    }


def test_other_parametrizations() -> None:
    layer = parametrizations.spectral_norm(nn.Linear(4, 6))
    assert spared(layer) == {"bias"}
    low_rank = nn.Linear(4, 6)
    nn.utils.parametrize.register_parametrization(low_rank, "weight", LowRank(), unsafe=True)
    assert spared(low_rank) == {"bias"}
    biased = nn.Bilinear(2, 3, 4)
    nn.utils.parametrize.register_parametrization(biased, "bias", nn.Identity())
    assert spared(biased) == {"parametrizations.bias.original"}


def test_layers_of_torch() -> None:
    assert spared(nn.LayerNorm([3, 4])) == {"weight", "bias"}
    assert spared(nn.RMSNorm([3, 4])) == {"weight"}
    attention = nn.MultiheadAttention(4, 2, add_bias_kv=True)
    assert spared(attention) == {"in_proj_bias", "bias_k", "bias_v", "out_proj.bias"}
    # Vectors by shape, matrices by role.
    assert spared(nn.Embedding(5, 1)) == set() and spared(nn.Linear(4, 1)) == {"bias"}
    assert spared(nn.LSTM(2, 3)) == {"bias_ih_l0", "bias_hh_l0"}


def test_a_custom_module() -> None:
    assert spared(Custom()) == {"gain", "position_bias", "bias_table", "mixing"}


def test_encoders() -> None:
    of_norms = {f"{part}.0.{name}" for part in ("norms", "gate_norms") for name in ("weight", "bias")}
    encoder = nplm(layer_norm=True, gated=True, fofe_window=9, tied=True).build(8, tied=True, sparse=False)
    assert spared(encoder) == of_norms | {"layers.0.bias", "project.bias", "history.scale"}
    assert spared(options.encoder("lstm").build(8, tied=False, sparse=False)) == {
        "cells.0.bias_ih_l0",
        "cells.0.bias_hh_l0",
    }


def test_output_layers() -> None:
    counts = torch.arange(9, 0, -1)
    tree = huffman_tree(counts.numpy())
    nodes = MorinBengioNodes(4, torch.zeros(tree.nodes), hidden_dim=3, node_dim=2)
    assert spared(FullSoftmax(4, counts)) == {"bias"}
    assert spared(NCELoss(1, counts, noise=2, learn_normalizer=True)) == {"bias", "normalizer.bias"}
    assert spared(SampledSoftmax(4, counts, samples=2)) == {"bias"}
    assert spared(ClassSoftmax(4, counts, torch.arange(9) // 3)) == {"bias", "class_bias"}
    assert spared(AdaptiveSoftmax(4, counts, cutoffs=[3])) == {"layer.head.bias"}
    assert spared(HierarchicalSoftmax(4, tree, counts)) == {"nodes.bias"}
    assert spared(nodes) == {"hidden.bias", "alpha", "beta"}


@pytest.mark.parametrize("normalize", [parametrizations.weight_norm, old_weight_norm])
def test_a_step_leaves_gains_as_they_are(normalize: Callable[[nn.Module], nn.Module]) -> None:
    model = Gated(normalize)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    groups = ParameterGroups.of(model.parameters(), model).decayed(0.5)
    torch.optim.AdamW(groups, lr=0.1).step()
    free = spared(model)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, before[name] * (1 if name in free else 0.95))

"""Optimizers of used rows against torch's own, by hand, and against their plain forms."""

from __future__ import annotations

import copy
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
from lmtool.neural.forms import only_plain
from lmtool.neural.optimizers import base, rows
from lmtool.neural.optimizers.base import ParameterGroups, RowOptimizer, clip_gradients, without_compiler
from lmtool.neural.optimizers.rows import RowAdagrad, RowAdam, RowSGD
from lmtool.neural.rows import rows_of
from lmtool.trees import huffman_tree
from tests import options
from tests.conftest import nplm

Make = Callable[[list[nn.Parameter]], RowOptimizer]
ROWS: dict[str, tuple[Make, Callable[[list[nn.Parameter]], torch.optim.Optimizer]]] = {
    "sgd": (lambda p: RowSGD(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    "momentum": (lambda p: RowSGD(p, lr=0.1, momentum=0.8), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8)),
    "adagrad": (lambda p: RowAdagrad(p, lr=0.1), lambda p: torch.optim.Adagrad(p, lr=0.1)),
    "adam": (
        lambda p: RowAdam(p, lr=0.1, betas=(0.8, 0.9), weight_decay=0.3),
        lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.8, 0.9), weight_decay=0.3),
    ),
    "sgd, l2": (lambda p: RowSGD(p, 0.1, l2=0.3), lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.3)),
    "adagrad, l2": (lambda p: RowAdagrad(p, 0.1, l2=0.3), lambda p: torch.optim.Adagrad(p, 0.1, weight_decay=0.3)),
    "adam, l2": (lambda p: RowAdam(p, 0.1, l2=0.3), lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.3)),
    "adam that catches up": (
        lambda p: RowAdam(p, lr=0.1, betas=(0.8, 0.9), weight_decay=0.3, correct_skipped_steps=True),
        lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.8, 0.9), weight_decay=0.3),
    ),
}


def train(make: Callable[..., torch.optim.Optimizer], ids: list[torch.Tensor], *, sparse: bool) -> torch.Tensor:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(9, 4, dtype=torch.float64))
    target = torch.randn(9, 4, dtype=torch.float64)
    optimizer = make([weight])
    for some in ids:
        optimizer.zero_grad()
        (rows_of(weight, some, sparse=sparse) - target[some]).pow(2).sum().backward()
        optimizer.step()
    return weight.detach()


@pytest.mark.parametrize("name", ROWS)
def test_with_all_rows_used_it_is_torchs(name: str) -> None:
    ours, theirs = ROWS[name]
    every = [torch.arange(9)] * 6
    torch.testing.assert_close(train(ours, every, sparse=True), train(theirs, every, sparse=False))


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "Adam", "AdamW"])
def test_without_its_compiler_an_optimizer_is_torchs(name: str) -> None:
    kind, every = getattr(torch.optim, name), [torch.arange(9)] * 3
    settings = {"lr": 0.1, "weight_decay": 0.2, "fused": True}
    ours = train(lambda p: without_compiler(kind)(p, **settings), every, sparse=False)
    torch.testing.assert_close(ours, train(lambda p: kind(p, **settings), every, sparse=False), rtol=0, atol=0)
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    one, other = without_compiler(kind)([weight], **settings), kind([weight], **settings)
    one.step()
    assert isinstance(one, kind) and not torch.equal(weight, torch.ones(3))
    other.load_state_dict(one.state_dict())
    assert other.state[weight].keys() == one.state[weight].keys() and not weight.grad.requires_grad


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_are_not_used_stand_still(name: str) -> None:
    some = [torch.tensor([1, 4, 4]), torch.tensor([7, 1, 1])]
    torch.manual_seed(0)
    before = torch.randn(9, 4, dtype=torch.float64)
    after = train(ROWS[name][0], some, sparse=True)
    changed = (before != after).any(1)
    assert changed.nonzero()[:, 0].tolist() == [1, 4, 7]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("small", [1 << 15, 1], ids=["one thread", "several"])
def test_compiled_as_plain(name: str, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "NUMBERS_PER_THREAD", small)
    torch.manual_seed(1)
    ids = [torch.randint(0, 9, (5,)) for _ in range(8)]
    loops: list[object] = []
    change = base.change_rows
    monkeypatch.setattr(rows, "change_rows", lambda *given: loops.append(given[0]) or change(*given))
    compiled = train(ROWS[name][0], ids, sparse=True)
    assert len(loops) == 8
    with only_plain():
        torch.testing.assert_close(compiled, train(ROWS[name][0], ids, sparse=True))
    assert len(loops) == 8


def test_adam_by_hand() -> None:
    # The first step of a row is lr long, whenever it comes: m / (1 - beta1) = g, v / (1 - beta2) = g^2.
    weight = nn.Parameter(torch.tensor([[1.0], [2.0]], dtype=torch.float64))
    optimizer = RowAdam([weight], lr=0.5, betas=(0.9, 0.99), eps=0.0)
    for ids, want in (([0], [0.5, 2.0]), ([0], [0.0, 2.0]), ([1], [0.0, 1.5])):
        optimizer.zero_grad()
        (3 * rows_of(weight, torch.tensor(ids), sparse=True)).sum().backward()
        optimizer.step()
        torch.testing.assert_close(weight.detach()[:, 0], torch.tensor(want, dtype=torch.float64))


def with_gradients(weight: nn.Parameter, gradients: dict[int, float]) -> None:
    """Give a parameter `[R, H]` a gradient of the same number in all components of each row."""
    rows, values = list(gradients), torch.tensor(list(gradients.values()), dtype=weight.dtype)
    weight.grad = torch.sparse_coo_tensor(
        torch.tensor([rows]), values[:, None].expand(-1, weight.shape[1]), weight.shape, check_invariants=False
    )


@pytest.mark.parametrize("compiled", [True, False])
def test_adam_catches_up_by_hand(compiled: bool) -> None:
    # lr 0.5, betas 0.5 and 0.75, lr decay 0.2. Step 1, row 0, gradient 3: m / 0.5 = 3, v / 0.25 = 9,
    # w = 0.8 * 1 - 0.5 * 3 / 3. Steps 2 and 3 are row 1's. Step 4 is 3 later: m = 0.125 * 1.5 + 1.5,
    # v = 0.421875 * 2.25 + 2.25, 1 + 0.5 + 0.25 steps,
    # w = 0.512 * 0.3 - 0.5 * 1.75 * (1.6875 / 0.9375) / sqrt(3.19921875 / 0.68359375).
    weight = nn.Parameter(torch.ones(3, 2, dtype=torch.float64))
    optimizer = RowAdam([weight], lr=0.5, betas=(0.5, 0.75), eps=0.0, weight_decay=0.4, correct_skipped_steps=True)
    found = []
    for row, gradient in ((0, 3.0), (1, -1.0), (1, -1.0), (0, 3.0)):
        with_gradients(weight, {row: gradient})
        with only_plain(not compiled):
            optimizer.step()
        found.append(weight.detach()[0, 1].item())
    last = 0.512 * 0.3 - 0.5 * 1.75 * 1.8 / (3.19921875 / 0.68359375) ** 0.5
    assert found == pytest.approx([0.3, 0.3, 0.3, last], rel=1e-12)
    # Row 1, first used in step 2: m = -0.5, v = 0.25, 1.5 steps of 0.5 * (0.5 / 0.75) / sqrt(0.25 / 0.4375), decay of
    # 2 steps. In step 3 one step: m = -0.75, v = 0.4375, corrections 1 / 0.875 and 1 / 0.578125.
    second = 0.64 + 1.5 * 0.5 * (0.5 / 0.75) / (0.25 / 0.4375) ** 0.5
    third = 0.8 * second + 0.5 * (0.75 / 0.875) / (0.4375 / 0.578125) ** 0.5
    assert weight.detach()[1].tolist() == pytest.approx([third] * 2, rel=1e-12)
    assert weight.detach()[2].tolist() == [1, 1]


def test_clipping_by_the_norm_of_all() -> None:
    # Gradients (3, 0; 0, 0) and 4 have the norm 5; scaled to 1 they are 0.6 and 0.8.
    rows, dense = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(1))
    (3 * rows_of(rows, torch.tensor([0]), sparse=True)[0, 0] + 4 * dense[0]).backward()
    assert clip_gradients([rows, dense], 1.0).item() == pytest.approx(5)
    torch.testing.assert_close(rows.grad.to_dense()[0, 0], torch.tensor(0.6), atol=1e-6, rtol=0)
    torch.testing.assert_close(dense.grad[0], torch.tensor(0.8), atol=1e-6, rtol=0)
    clip_gradients([rows, dense], 2.0)  # below it nothing changes
    torch.testing.assert_close(dense.grad[0], torch.tensor(0.8), atol=1e-6, rtol=0)


@pytest.mark.parametrize("compiled", [True, False])
def test_decoupled_decay_by_hand(compiled: bool) -> None:
    # Row 0 is used with gradient 3, row 1 with 0, row 2 not at all; lr 0.5 and weight_decay 0.4 keep 0.8 of a row.
    after = {
        # Adagrad: s = 9, so that the first step is 0.5 * 3 / 3; decay is not in s.
        "adagrad": (RowAdagrad, [0.8 * 2 - 0.5, 1.6, 2.0], {}),
        "sgd": (RowSGD, [0.8 * 2 - 0.5 * 3, 1.6, 2.0], {}),
        "momentum": (RowSGD, [0.8 * 2 - 0.5 * 3, 1.6, 2.0], {"momentum": 0.9}),
        "adam": (RowAdam, [0.8 * 2 - 0.5, 1.6, 2.0], {}),
    }
    for name, (make, wanted, settings) in after.items():
        weight = nn.Parameter(torch.full((3, 1), 2.0, dtype=torch.float64))
        weight.grad = torch.sparse_coo_tensor(
            torch.tensor([[0, 1]]), torch.tensor([[3.0], [0.0]], dtype=torch.float64), (3, 1), check_invariants=False
        )
        with only_plain(not compiled):
            make([weight], lr=0.5, weight_decay=0.4, **settings).step()
        found = weight.detach()[:, 0]
        torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64), atol=1e-7, rtol=0, msg=name)


@pytest.mark.parametrize("make", [RowSGD, RowAdagrad])
def test_l2_is_added_to_the_gradient(make: Callable[..., RowOptimizer]) -> None:
    # Row 1 of 2, l2 0.5: 1 is added to a gradient of 3, only for used rows. SGD moves 0.1 * 4, Adagrad 0.1 * 4 / 4.
    weight = nn.Parameter(torch.full((3,), 2.0, dtype=torch.float64))
    weight.grad = torch.sparse_coo_tensor(
        torch.tensor([[1]]), torch.tensor([3.0], dtype=torch.float64), (3,), check_invariants=False
    )
    make([weight], lr=0.1, l2=0.5).step()
    assert weight.tolist() == pytest.approx([2, 2 - (0.4 if make is RowSGD else 0.1), 2])


@pytest.mark.parametrize("rows", [[3], [-1]])
def test_l2_of_rows_that_are_not_there(rows: list[int]) -> None:
    weight = nn.Parameter(torch.ones(3, 2))
    weight.grad = torch.sparse_coo_tensor(torch.tensor([rows]), torch.ones(1, 2), (3, 2), check_invariants=False)
    with pytest.raises(ValueError, match=rf"a gradient of rows {rows[0]} to {rows[0]}, \[1, 2\], does not fit"):
        RowSGD([weight], lr=0.1, l2=0.5).step()


@pytest.mark.parametrize("compiled", [True, False])
def test_momentum_may_begin_later(compiled: bool) -> None:
    weight = nn.Parameter(torch.full((2, 1), 10.0, dtype=torch.float64))
    optimizer = RowSGD([weight], lr=1.0)
    for momentum, wanted in ((0.0, 7.0), (0.5, 4.0), (0.5, -0.5)):  # 3; 3, from none; 3 + 0.5 * 3
        weight.grad = torch.sparse_coo_tensor(
            torch.tensor([[1]]), torch.tensor([[3.0]], dtype=torch.float64), (2, 1), check_invariants=False
        )
        optimizer.param_groups[0]["momentum"] = momentum
        with only_plain(not compiled):
            optimizer.step()
        assert weight.detach()[:, 0].tolist() == pytest.approx([10, wanted])


@pytest.mark.parametrize("name", ROWS)
def test_a_state_that_is_saved_and_loaded_goes_on_as_if_it_had_not_been(name: str) -> None:
    def step(weight: nn.Parameter, optimizer: torch.optim.Optimizer, ids: torch.Tensor) -> None:
        optimizer.zero_grad()
        rows_of(weight, ids, sparse=True).pow(2).sum().backward()
        optimizer.step()

    torch.manual_seed(0)
    ids = [torch.randint(0, 9, (5,)) for _ in range(9)]
    first = nn.Parameter(torch.randn(9, 4))
    optimizer = ROWS[name][0]([first])
    for some in ids[:5]:
        step(first, optimizer, some)
    second = nn.Parameter(first.detach().clone())
    other = ROWS[name][0]([second])
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for key, value in optimizer.state[first].items():
        loaded = other.state[second][key]
        assert loaded.dtype == value.dtype and torch.equal(loaded, value)
    # torch would take the type of the weights, in which a count ends at 2^24, or at 2^8 in bfloat16.
    counts = [value for value in other.state[second].values() if not value.is_floating_point()]
    assert [value.dtype for value in counts] == [torch.int32] * {
        "adam": 1,
        "adam, l2": 1,
        "adam that catches up": 2,
    }.get(name, 0)
    for some in ids[5:]:
        step(first, optimizer, some)
        step(second, other, some)
    assert torch.equal(first, second)


def test_loaded_counts_are_those_of_their_own_parameters() -> None:
    def used(rows: list[int], steps: list[int]) -> tuple[list[nn.Parameter], RowAdam]:
        """Return parameters with this number of rows in two groups; every row has had this number of steps."""
        parameters = [nn.Parameter(torch.ones(size, 2)) for size in rows]
        groups = [{"params": parameters[:2]}, {"params": parameters[2:], "l2": 0.1}]
        optimizer = RowAdam(groups, lr=0.1)
        for _ in range(max(steps)):
            for parameter, left in zip(parameters, steps, strict=True):
                with_gradients(parameter, {row: 1.0 for row in range(len(parameter))})
                parameter.grad = parameter.grad if left > 0 else None
            optimizer.step()
            steps = [left - 1 for left in steps]
        return parameters, optimizer

    _, optimizer = used([2, 3, 4], [1, 0, 3])
    parameters, other = used([2, 3, 4], [0, 0, 0])
    other.load_state_dict(optimizer.state_dict())
    found = [other.state[parameter].get("steps") for parameter in parameters]
    assert found[1] is None
    assert [None if steps is None else steps.tolist() for steps in found] == [[1, 1], None, [3, 3, 3, 3]]
    assert other.param_groups[1]["l2"] == 0.1


@pytest.mark.parametrize("lr", [None, "1", True, float("nan"), -0.1, float("inf")])
def test_an_invalid_setting_raises_one_line(lr: object) -> None:
    with pytest.raises(ValueError, match=r"^RowAdam: lr must be finite and 0 or more; got "):
        RowAdam([nn.Parameter(torch.ones(2, 2))], lr=lr)
    with pytest.raises(ValueError, match=r"^RowAdam: betas must be two numbers from 0 to below 1; got "):
        RowAdam([nn.Parameter(torch.ones(2, 2))], lr=0.1, betas=(0.9, lr))


@pytest.mark.parametrize("max_norm", [None, "1", 0, float("nan")])
def test_clipping_to_an_invalid_norm(max_norm: object) -> None:
    with pytest.raises(ValueError, match=r"^clip_gradients: max_norm must be above 0; got "):
        clip_gradients([], max_norm)


def test_groups_are_iterable_as_those_of_torch() -> None:
    model = nn.Linear(2, 3)
    groups = ParameterGroups.of(model.parameters(), model)
    assert list(groups) == [{"params": [model.weight]}, {"params": [model.bias], "weight_decay": 0.0}]
    optimizer = torch.optim.RMSprop(groups, lr=0.1, weight_decay=0.3)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.0]


# Weight decay spares biases and gains by the role that module and name give them, not by their shapes


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
    for name in ("lbl, diagonal", "cbow"):
        assert spared(options.encoder(name).build(8, tied=False, sparse=False)) == set()
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

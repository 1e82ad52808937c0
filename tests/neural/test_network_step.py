"""Whole steps of the plain network against autograd and torch's SGD, in float64; which trainings are made of them."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lmtool.config.groups import OptimConfig, OutputConfig
from lmtool.config.training import Precision
from lmtool.data.vocabulary import Vocabulary
from lmtool.neural import devices
from lmtool.neural.build import build_neural
from lmtool.neural.encoders.nplm import FUNCTIONS
from lmtool.neural.encoders.options import NplmModel
from lmtool.neural.encoders.settings import Activation
from lmtool.neural.forms import _network_output, only_plain, softmax_chunks, tiles
from lmtool.neural.forms import network_step as file
from lmtool.neural.forms.network_step import NetworkStep, network_step
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.options import HierarchicalOutput, NceOutput, NodeForm, SoftmaxOutput
from lmtool.system import parallel
from lmtool.training.optim import AdamOptim, SgdOptim
from lmtool.training.optimizers import make_optimizers
from lmtool.training.plan import Plan
from lmtool.training.step import Step, make_step
from lmtool.trees import huffman_tree
from tests.training.test_training import CONSTANT, training

WORDS, DIM, CONTEXT, HIDDEN = 23, 5, 3, 11
RATE, DECAY = 0.3, 0.01


def drawn_weights(*, direct: bool) -> list[Tensor]:
    torch.manual_seed(0)
    width = HIDDEN + (CONTEXT * DIM if direct else 0)
    shapes = (WORDS, DIM), (HIDDEN, CONTEXT * DIM), (HIDDEN,), (WORDS - 1, width), (WORDS - 1,)
    return [0.3 * torch.randn(shape, dtype=torch.float64) for shape in shapes]


def by_autograd(
    before: list[Tensor], activation: Activation, direct: bool, x: Tensor, y: Tensor, max_norm: float | None
) -> tuple[float, list[Tensor]]:
    """Return the loss and the weights after a step of torch's autograd."""
    weights = [weight.clone().requires_grad_() for weight in before]
    vectors, hidden, hidden_bias, output, output_bias = weights
    read = vectors[x].flatten(1)
    a = FUNCTIONS[activation](read @ hidden.T + hidden_bias)
    h = torch.cat([a, read], 1) if direct else a
    loss = F.cross_entropy(h @ output.T + output_bias, y)
    loss.backward()
    if max_norm is not None:
        torch.nn.utils.clip_grad_norm_(weights, max_norm)
    used = torch.zeros(WORDS, 1, dtype=torch.float64)
    used[x.flatten()] = 1
    after = []
    for number, weight in enumerate(weights):
        decay = DECAY * (used if number == 0 else 1) if weight.dim() > 1 else 0
        after.append((weight - RATE * (weight.grad + decay * weight)).detach())
    return loss.item(), after


@pytest.mark.parametrize("form", ["one loop", "products"])
@pytest.mark.parametrize("max_norm", [None, 0.05])
@pytest.mark.parametrize(("activation", "direct"), list(itertools.product(FUNCTIONS, (False, True))))
def test_equals_autograd(
    activation: Activation, direct: bool, max_norm: float | None, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "MAX_LOOP_PRODUCTS", 1 << 40 if form == "one loop" else 0)
    weights = drawn_weights(direct=direct)
    steps = NetworkStep(weights, activation, DECAY, max_norm, direct=direct)
    for size in (7, 7, 4):
        x, y = torch.randint(WORDS, (size, CONTEXT)), torch.randint(WORDS - 1, (size,))
        loss, want = by_autograd(weights, activation, direct, x, y, max_norm)
        assert steps.step(x, y, RATE, 1e6) == pytest.approx(loss, rel=1e-12)
        for ours, theirs in zip(weights, want, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("most", [1 << 40, 0])
def test_a_loss_out_of_bounds_makes_no_step(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MAX_LOOP_PRODUCTS", most)
    weights = drawn_weights(direct=False)
    before = [weight.clone() for weight in weights]
    step = NetworkStep(weights, Activation.tanh, DECAY, None, direct=False).step
    x, y = torch.randint(WORDS, (7, CONTEXT)), torch.randint(WORDS - 1, (7,))
    assert step(x, y, RATE, 0.1) > 0.1
    for ours, theirs in zip(weights, before, strict=True):
        assert torch.equal(ours, theirs)
    with torch.no_grad():
        weights[-1][3] = torch.nan
    assert not step(x, y, RATE, 1e6) < 1e6
    for wrong in (torch.full((7, CONTEXT), WORDS), torch.full((7, CONTEXT), -1)):
        with pytest.raises(IndexError, match="out of range"):
            step(wrong, y, RATE, 1e6)


HIERARCHICAL = HierarchicalOutput("hierarchical", NodeForm.dot, 5, 5)
NCE = NceOutput("nce", 7, True, 1.0, False)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("max_norm", [None, 0.05])
@pytest.mark.parametrize("output", [HIERARCHICAL, NCE], ids=["hierarchical", "nce"])
def test_layers_with_some_rows_equal_autograd_and_the_row_optimizer(
    output: OutputConfig, max_norm: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "threads", lambda: threads)
    monkeypatch.setattr(_network_output, "NUMBERS_PER_THREAD", 1)
    for direct, activation in itertools.product((False, True), (Activation.gelu, Activation.tanh)):
        torch.manual_seed(0)
        ours = model(output, direct_connections=direct, activation=activation).double()
        ours.output.load_state_dict({k: torch.randn_like(v) if v.is_floating_point() else v
                                     for k, v in ours.output.state_dict().items()})  # fmt: skip
        theirs, optim = copy.deepcopy(ours), SgdOptim("sgd", RATE, DECAY, 0.0)
        steps, optimizers = network_step(ours, DECAY, 7, max_norm), make_optimizers(theirs, optim)
        assert steps is not None
        for size in (40, 7, 7):
            x, y = torch.randint(WORDS, (size, CONTEXT)), torch.randint(WORDS - 1, (size,))
            torch.manual_seed(size)
            found = steps.step(x, y, RATE, 1e6)
            torch.manual_seed(size)
            with only_plain():
                loss = Step(theirs, optimizers, max_norm).step(x, y, RATE, 1e6)
            assert found == pytest.approx(loss, rel=1e-12)
            for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def model(output: object = None, words: Vocabulary | None = None, **settings: object) -> NeuralModel:
    values: dict[str, object] = dict(
        kind="nplm", context_size=CONTEXT, embedding_dim=DIM, tied=False, dropout=0.0, hidden_dim=HIDDEN, layers=1,
        direct_connections=False, activation=Activation.tanh, layer_norm=False,
    )  # fmt: skip
    words = words or Vocabulary(tuple(map(str, range(WORDS))), np.arange(WORDS), None, 0)
    tree = huffman_tree(np.arange(1, len(words)))
    return build_neural(NplmModel(**(values | settings)), output or SoftmaxOutput("softmax"), words, tree)  # type: ignore[arg-type]


def test_which_trainings_are_made_of_them() -> None:
    assert network_step(model(), 0.0, 7, 1.0) is not None
    assert network_step(model(direct_connections=True).double(), 0.0, 7, None) is not None
    others = dict(dropout=0.1), dict(input_dropout=0.1), dict(layer_norm=True), dict(layers=2), dict(layers=0)
    for settings in (*others, dict(tied=True), dict(projection_dim=4), dict(fofe_window=9)):
        assert network_step(model(**settings), 0.0, 7, 1.0) is None
    for output in (HIERARCHICAL, NCE):
        assert network_step(model(output), 0.0, 1 << 20, 1.0) is not None
        dense = model(output)
        dense.use_dense_gradients()
        assert network_step(dense, 0.0, 7, 1.0) is None
    one = Vocabulary(("<unk>", "<s>"), np.array([5, 0]), None, 0)
    assert network_step(model(HIERARCHICAL, words=one), 0.0, 7, 1.0) is None  # a tree without nodes
    own, learned = NceOutput("nce", 3, False, 1.0, False), NceOutput("nce", 3, True, 1.0, True)
    for output in (own, learned, HierarchicalOutput("hierarchical", NodeForm.morin_bengio, 5, 5)):
        assert network_step(model(output), 0.0, 7, 1.0) is None
    assert network_step(model(SoftmaxOutput("softmax", Precision.bf16)), 0.0, 7, 1.0) is None
    assert network_step(model(), 0.0, 1 << 20, 1.0) is None
    large = model(hidden_dim=8192)
    large.use_precision(Precision.auto)
    assert (network_step(large, 0.0, 1 << 12, 1.0) is None) == tiles.available()


def test_the_settings_of_the_optimizer_reach_it() -> None:
    def step_of(optim: OptimConfig) -> Any:
        return make_step(model(), Plan(training(max_grad_norm=0.5), optim, CONSTANT, 5, {}), [], 7)

    step = step_of(SgdOptim("sgd", 0.1, 0.25, 0.0))
    assert isinstance(step, NetworkStep) and (step._decay, step._max_norm) == (0.25, 0.5)
    for optim in SgdOptim("sgd", 0.1, 0.0, 0.9), AdamOptim("adam", 0.1, 0.0, 0.9, 0.99, 1e-8):
        assert type(step_of(optim)) is Step


def test_products_are_in_bf16_where_the_layer_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "fit", lambda tensor: False)
    monkeypatch.setattr(softmax_chunks, "MIN_BF16_PRODUCTS_DOTS", 0)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "znver5")
    net = model()
    for precision, faster, want in [
        (Precision.auto, True, [False, True]),
        (Precision.auto, False, [False, False]),
        (Precision.fp32, True, [False, False]),
    ]:
        monkeypatch.setattr(devices, "_measured_faster", lambda faster=faster: faster)
        net.use_precision(precision)
        for here in (True, False):
            monkeypatch.setattr(tiles, "has_dots", lambda here=here: here)
            steps = [network_step(net, 0.0, examples, None) for examples in (15, 16)]
            assert [step is not None and step.bf16 for step in steps] == [here and each for each in want]
    # Where tiles do the products there is no such step.
    monkeypatch.setattr(softmax_chunks, "MIN_BF16_PRODUCTS", 0)
    monkeypatch.setattr(tiles, "fit", lambda tensor: True)
    net.use_precision(Precision.auto)
    assert network_step(net, 0.0, 63, None) is not None and network_step(net, 0.0, 64, None) is None

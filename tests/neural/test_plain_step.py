"""Steps without a graph against autograd and torch's SGD, in float64; which trainings are made of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lmtool.config.training import Precision
from lmtool.data.vocabulary import Vocabulary
from lmtool.neural import devices
from lmtool.neural.encoders.nplm import Activation, NplmModel
from lmtool.neural.kernels import plain_step, tile_softmax, tiles
from lmtool.neural.kernels.hidden_units import FUNCTIONS
from lmtool.neural.kernels.plain_step import PlainNetwork, PlainStep
from lmtool.neural.model import NeuralModel, build_neural
from lmtool.neural.outputs import softmax
from lmtool.neural.outputs.nce import NceOutput
from lmtool.neural.outputs.softmax import SoftmaxOutput
from lmtool.training.optim.adam import AdamOptim
from lmtool.training.optim.sgd import SgdOptim
from lmtool.training.optimisers import make_plain_step

WORDS, DIM, CONTEXT, HIDDEN = 23, 5, 3, 11
RATE, DECAY = 0.3, 0.01


def network(activation: str, *, direct: bool) -> PlainNetwork:
    torch.manual_seed(0)
    width = HIDDEN + (CONTEXT * DIM if direct else 0)
    shapes = (WORDS, DIM), (HIDDEN, CONTEXT * DIM), (HIDDEN,), (WORDS - 1, width), (WORDS - 1,)
    return PlainNetwork(*(0.3 * torch.randn(shape, dtype=torch.float64) for shape in shapes), activation, direct)


def by_autograd(net: PlainNetwork, x: Tensor, y: Tensor, max_norm: float | None) -> tuple[float, list[Tensor]]:
    """The loss, and the weights after a step of torch."""
    weights = [weight.clone().requires_grad_() for weight in plain_step.weights_of(net)]
    vectors, hidden, hidden_bias, output, output_bias = weights
    read = vectors[x].flatten(1)
    a = FUNCTIONS[net.activation](read @ hidden.T + hidden_bias)
    h = torch.cat([a, read], 1) if net.direct else a
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


@pytest.mark.parametrize("form", ["tiny", "large"])
@pytest.mark.parametrize("max_norm", [None, 0.05])
@pytest.mark.parametrize(("activation", "direct"), list(itertools.product(FUNCTIONS, (False, True))))
def test_equals_autograd(
    activation: str, direct: bool, max_norm: float | None, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_step, "TINY", 1 << 40 if form == "tiny" else 0)
    net = network(activation, direct=direct)
    steps = PlainStep(net, DECAY, max_norm)
    for size in (7, 7, 4):
        x, y = torch.randint(WORDS, (size, CONTEXT)), torch.randint(WORDS - 1, (size,))
        loss, want = by_autograd(net, x, y, max_norm)
        assert steps.step(x, y, RATE, 1e6) == pytest.approx(loss, rel=1e-12)
        for ours, theirs in zip(plain_step.weights_of(net), want, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tiny", [1 << 40, 0])
def test_a_loss_out_of_bounds_makes_no_step(tiny: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_step, "TINY", tiny)
    net = network("tanh", direct=False)
    before = [weight.clone() for weight in plain_step.weights_of(net)]
    x, y = torch.randint(WORDS, (7, CONTEXT)), torch.randint(WORDS - 1, (7,))
    assert PlainStep(net, DECAY).step(x, y, RATE, 0.1) > 0.1
    for ours, theirs in zip(plain_step.weights_of(net), before, strict=True):
        assert torch.equal(ours, theirs)
    with torch.no_grad():
        net.output_bias[3] = torch.nan
    assert not PlainStep(net, DECAY).step(x, y, RATE, 1e6) < 1e6
    for wrong in (torch.full((7, CONTEXT), WORDS), torch.full((7, CONTEXT), -1)):
        with pytest.raises(IndexError, match="out of range"):
            PlainStep(net, DECAY).step(wrong, y, RATE, 1e6)


def model(output: object = None, **settings: object) -> NeuralModel:
    values: dict[str, object] = dict(
        kind="nplm", context_size=CONTEXT, embedding_dim=DIM, tied=False, dropout=0.0, hidden_dim=HIDDEN, layers=1,
        direct=False, activation=Activation.tanh, layer_norm=False,
    )  # fmt: skip
    words = Vocabulary(tuple(map(str, range(WORDS))), np.arange(WORDS), None, 0)
    return build_neural(NplmModel(**(values | settings)), output or SoftmaxOutput("softmax"), words)  # type: ignore[arg-type]


SGD = SgdOptim("sgd", 0.1, 0.0, 0.0)


def test_which_trainings_are_made_of_them() -> None:
    assert make_plain_step(model(), SGD, 7, 1.0) is not None
    assert make_plain_step(model(direct=True).double(), SGD, 7, None) is not None
    others = dict(dropout=0.1), dict(input_dropout=0.1), dict(layer_norm=True), dict(layers=2), dict(layers=0)
    for settings in (*others, dict(tied=True), dict(projection_dim=4), dict(history=9)):
        assert make_plain_step(model(**settings), SGD, 7, 1.0) is None
    assert make_plain_step(model(NceOutput("nce", 3, True, 1.0, False)), SGD, 7, 1.0) is None
    assert make_plain_step(model(SoftmaxOutput("softmax", Precision.bf16)), SGD, 7, 1.0) is None
    assert make_plain_step(model(), SgdOptim("sgd", 0.1, 0.0, 0.9), 7, 1.0) is None
    assert make_plain_step(model(), AdamOptim("adam", 0.1, 0.0, 0.9, 0.99, 1e-8), 7, 1.0) is None
    assert make_plain_step(model(), SGD, 1 << 20, 1.0) is None
    large = model(hidden_dim=8192)
    large.use_precision(Precision.auto)
    assert (make_plain_step(large, SGD, 1 << 12, 1.0) is None) == tiles.available()


def test_products_are_in_bf16_where_the_layer_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_softmax, "fits", lambda tensor: False)
    monkeypatch.setattr(softmax, "LARGE_WITHOUT_TILES", 0)
    net = model()
    for precision, faster, want in [
        (Precision.auto, True, [False, True]),
        (Precision.auto, False, [False, False]),
        (Precision.fp32, True, [False, False]),
    ]:
        monkeypatch.setattr(devices, "_measured_faster", lambda faster=faster: faster)
        net.use_precision(precision)
        networks = [net.plain_network(examples) for examples in (15, 16)]
        assert [network is not None and network.bf16 for network in networks] == want
    # Where tiles do the products there is no plain step.
    monkeypatch.setattr(softmax, "LARGE", 0)
    monkeypatch.setattr(tile_softmax, "fits", lambda tensor: True)
    net.use_precision(Precision.auto)
    assert net.plain_network(63) is not None and net.plain_network(64) is None

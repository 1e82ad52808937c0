"""In eval mode the loss of every output layer is the exact -log p(y|h), however it is trained."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config.groups import OutputConfig
from lmtool.config.training import Precision
from lmtool.data.corpus import Corpus
from lmtool.neural import NCELoss, OutputLayer, SampledSoftmax
from lmtool.neural.build import build_neural
from lmtool.neural.model import NeuralModel
from lmtool.neural.recurrent import RecurrentModel
from tests import options
from tests.conftest import nplm
from tests.options import output_layer

D, WORDS = 5, 12  # dimension, words that can be predicted
COUNTS = torch.arange(WORDS, 0, -1)


# Layers whose loss in training is another one, of drawn words or rounded.
OTHERS = [name for name in options.LAYERS if not options.settings_of("output", name).loss_is_log_prob]
OTHERS += ["softmax, bf16", "nce, tied"]


def layer_of(name: str, dtype: torch.dtype = torch.float64) -> OutputLayer:
    torch.manual_seed(7)
    layer = output_layer(name, D, COUNTS).to(dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter) / 2)
    return layer.eval()


@pytest.mark.parametrize("make", [lambda c: NCELoss(1, c, noise=2), lambda c: SampledSoftmax(1, c, samples=2)])
def test_by_hand(make: Callable[[Tensor], OutputLayer]) -> None:
    # Scores log 1, log 3, log 4 by the biases alone: p = 1/8, 3/8, 1/2.
    layer = make(torch.ones(3)).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.get_parameter("bias").copy_(torch.tensor([1.0, 3.0, 4.0]).log())
    h = torch.ones(3, 1, requires_grad=True)
    losses = layer(h, torch.tensor([0, 1, 2]), reduction="none")
    assert losses.tolist() == pytest.approx([math.log(8), math.log(8 / 3), math.log(2)])
    layer(h, torch.tensor([0, 2, 2])).backward()
    # The gradient of b is the mean of p - onehot.
    want = torch.tensor([1 / 8 - 1 / 3, 3 / 8, 1 / 2 - 2 / 3])
    torch.testing.assert_close(layer.get_parameter("bias").grad, want)


@pytest.mark.parametrize("name", OTHERS)
def test_autocast_and_bf16_do_not_round_it(name: str) -> None:
    layer, h, y = layer_of(name, torch.float32), torch.randn(200, D), torch.randint(WORDS, (200,))
    want = -layer.log_prob(h, y).mean().item()
    assert layer(h, y).item() == pytest.approx(want, rel=1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(h, y).item() == pytest.approx(want, rel=1e-6)
        narrow = layer(h.bfloat16(), y)
    assert narrow.dtype == torch.float32
    assert narrow.item() == pytest.approx(-layer.log_prob(h.bfloat16().float(), y).mean().item(), rel=1e-6)


class Whole(nn.Module):
    def __init__(self, layer: OutputLayer) -> None:
        super().__init__()
        self.inner, self.output = nn.Linear(D, D), layer

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = self.output(torch.tanh(self.inner(x)), y)
        return loss


@pytest.mark.parametrize("name", ["nce", "sampled", "softmax"])
def test_a_compiled_model_follows_the_mode(name: str) -> None:
    torch.compiler.reset()
    model = Whole(layer_of(name, torch.float32))
    x, y = torch.randn(20, D), torch.randint(WORDS, (20,))
    want = -model.output.log_prob(torch.tanh(model.inner(x)), y).mean().item()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own, of tensors that are not leaves
        compiled, values = torch.compile(model, backend="eager"), []
        for training in (True, False, True):
            model.train(training)
            values.append({round(compiled(x, y).item(), 6) for _ in range(5)})
    torch.compiler.reset()
    assert [len(each) for each in values] == ([1, 1, 1] if name == "softmax" else [5, 1, 5])
    assert values[1].pop() == pytest.approx(want, abs=2e-6)


def test_training_still_draws() -> None:
    layer = layer_of("nce").train()
    h, y = torch.randn(4, D, dtype=torch.float64), torch.arange(4)
    torch.manual_seed(3)
    first, second = layer(h, y).item(), layer(h, y).item()
    draws = torch.tensor([0, 5, 5])
    assert first != second
    exact = layer.loss_with(h, y, draws).item()  # type: ignore[operator]
    assert layer.eval().loss_with(h, y, draws).item() == exact  # type: ignore[operator]  # given draws are used


class Margin(OutputLayer):
    """A custom layer whose training loss, a margin between two scores, is not -log p."""

    loss_is_log_prob = False

    def __init__(self) -> None:
        super().__init__()
        self.input_dim, self.word_count = D, WORDS
        self.map = nn.Linear(D, WORDS)

    def loss(self, h: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        scores = self.map(h)
        losses = F.relu(1 - scores.gather(1, y[:, None])[:, 0] + scores[:, 0])
        return losses if reduction == "none" else losses.mean()

    def log_probs(self, h: Tensor) -> Tensor:
        scores: Tensor = self.map(h)
        return scores.double().log_softmax(1)


@pytest.mark.parametrize("graph", [True, False])
def test_a_custom_layer(graph: bool) -> None:
    torch.manual_seed(0)
    layer, h, y = Margin(), torch.randn(6, D), torch.arange(6)
    want = F.cross_entropy(layer.map(h), y)
    assert layer(h, y).item() != pytest.approx(want.item())
    with torch.set_grad_enabled(graph):
        found = layer.eval()(h, y)
    torch.testing.assert_close(found, want)
    if graph:
        for ours, theirs in zip(*(torch.autograd.grad(each, layer.map.weight) for each in (found, want)), strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("precision", [Precision.fp32, Precision.bf16])
@pytest.mark.parametrize("name", ["nce", "softmax"])
def test_a_whole_model(name: str, precision: Precision, recurrent: bool) -> None:
    torch.manual_seed(1)
    if recurrent:
        config = options.encoder("lstm", embedding_dim=D, hidden_dim=D)
        model: NeuralModel = RecurrentModel(
            config.build(WORDS + 1, tied=False, sparse=False), output_layer(name, D, COUNTS), WORDS + 1
        )
        contexts, targets = torch.randint(WORDS, (6, 40)), torch.randint(WORDS, (6, 40))
    else:
        encoder = nplm(hidden_dim=D, dropout=0.5).build(WORDS + 1, tied=False, sparse=False)
        model = NeuralModel(encoder, output_layer(name, D, COUNTS), WORDS + 1)
        contexts, targets = torch.randint(WORDS, (300, 3)), torch.randint(WORDS, (300,))
    model.use_precision(precision)
    model.eval()
    if recurrent:
        h = model.recurrent.read(contexts, model.recurrent.zero_state(6))[0].flatten(0, 1)  # type: ignore[attr-defined]
    else:
        h = model.encoder(contexts)
    want = -model.output.log_prob(h, targets.flatten()).mean().item()
    assert model(contexts, targets).item() == pytest.approx(want, rel=1e-6)


def test_a_custom_option_says_it_in_its_settings(toy: Corpus) -> None:
    class Option(OutputConfig):
        loss_is_log_prob = False

        def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: object) -> OutputLayer:
            layer = Margin()
            layer.input_dim, layer.word_count, layer.map = dim, len(counts), nn.Linear(dim, len(counts))
            layer.loss_is_log_prob = True
            return layer

    model = build_neural(nplm(), Option(kind="margin"), toy.vocabulary)
    assert not model.output.loss_is_log_prob
    contexts, targets = torch.zeros(2, 3, dtype=torch.int64), torch.tensor([0, 1])
    want = F.cross_entropy(model.output.map(model.encoder(contexts)), targets)  # type: ignore[operator]
    torch.testing.assert_close(model.eval()(contexts, targets), want)

"""The full softmax by torch's products in bfloat16: by hand, against float64, and in parts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lmtool.config.training import Precision
from lmtool.neural import devices
from lmtool.neural.encoders.options import Activation
from lmtool.neural.forms import _network_output as network_output
from lmtool.neural.forms import network_step, softmax_chunks, tiles, used
from lmtool.neural.forms.network_step import Network, NetworkStep
from lmtool.neural.forms.softmax_chunks import delta_rows, loss_and_gradients
from lmtool.neural.outputs.softmax import FullSoftmax
from lmtool.system import parallel


def rows(scores: Tensor, bias: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What delta_rows leaves: d, loss and share."""
    d, loss, share = scores.bfloat16(), torch.full((len(y),), torch.nan), torch.full((len(y),), torch.nan)
    arrays = [tensor.numpy() for tensor in (d.view(torch.uint16), bias, y, loss, share)]
    delta_rows(*arrays, 0, len(y))
    return d.float(), loss, share


def test_rows_by_hand() -> None:
    # Scores log 1, log 3, log 4 by their biases: e = 1/4, 3/4, 1, their sum 2, p = 1/8, 3/8, 1/2. The second row's
    # scores are all 8 higher, which changes nothing.
    bias = torch.tensor([1.0, 3.0, 4.0]).log()
    d, loss, share = rows(torch.tensor([[0.0] * 3, [8.0] * 3]), bias, torch.tensor([0, 2]))
    torch.testing.assert_close(d, torch.tensor([[0.25 - 2, 0.75, 1.0], [0.25, 0.75, 1.0 - 2]]))
    torch.testing.assert_close(share, torch.full((2,), 0.5))
    torch.testing.assert_close(loss, torch.tensor([math.log(8), math.log(2)]))


@pytest.mark.parametrize("words", [1, 2, 63, 64, 65, 200])  # about the width that is worked on side by side
def test_rows_of_every_length(words: int) -> None:
    torch.manual_seed(words)
    scores, bias, y = 4 * torch.randn(5, words), torch.randn(words), torch.randint(words, (5,))
    exact = scores.bfloat16().double() + bias
    d, loss, share = rows(scores, bias, y)
    torch.testing.assert_close(loss, F.cross_entropy(exact, y, reduction="none").float(), rtol=1e-5, atol=1e-5)
    want = exact.softmax(1) - F.one_hot(y, words)
    torch.testing.assert_close((d * share[:, None]).double(), want, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_has_no_finite_loss(value: float) -> None:
    _, loss, _ = rows(torch.tensor([[0.0, value, 1.0]]), torch.zeros(3), torch.tensor([0]))
    assert not math.isfinite(loss.item())


def test_a_sure_prediction_keeps_its_small_gradient() -> None:
    # p of the target is .9999: p - 1 has the digits of a bfloat16, though p itself would be 1 in one.
    bias = torch.tensor([0.0, math.log(1e-4 / (1 - 1e-4))])
    h, weight = torch.ones(1, 1), torch.tensor([[0.0], [0.0]])
    _, _, of_words = loss_and_gradients(h, weight, bias, torch.tensor([0]), torch.empty(1, 2, dtype=torch.bfloat16), 1)
    torch.testing.assert_close(of_words[:, :2].float(), torch.tensor([[-1e-4] * 2, [1e-4] * 2]), rtol=0.01, atol=0)


def given(words: int, dim: int, batch: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(words + dim + batch)
    return torch.randn(batch, dim), torch.randn(words, dim) / 4, torch.randn(words), torch.randint(words, (batch,))


@pytest.mark.parametrize(("words", "dim", "batch"), [(5, 3, 2), (300, 31, 33), (1000, 64, 7), (100, 130, 70)])
def test_exact_but_for_the_rounding_of_what_goes_in_and_comes_out(words: int, dim: int, batch: int) -> None:
    h, weight, bias, y = given(words, dim, batch)
    memory = torch.empty(batch, words, dtype=torch.bfloat16)
    loss, grad_h, of_words = loss_and_gradients(h, weight, bias, y, memory, 2 * batch)
    narrow_h, narrow_weight = h.bfloat16().double(), weight.bfloat16().double()
    scores = (narrow_h @ narrow_weight.T).bfloat16().double() + bias
    torch.testing.assert_close(loss, F.cross_entropy(scores, y, reduction="none").float(), rtol=2e-2, atol=2e-2)
    delta = (scores.softmax(1) - F.one_hot(y, words)) / (2 * batch)
    for ours, theirs in [
        (grad_h, delta @ narrow_weight),
        (of_words[:, :dim], delta.T @ h.double()),
        (of_words[:, dim], delta.sum(0)),
    ]:
        assert (ours - theirs).norm() < 6e-3 * theirs.norm()


@pytest.fixture
def _bf16_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor without tiles on which products in bfloat16 are faster, and sizes at which auto takes them."""
    monkeypatch.setattr(tiles, "fit", lambda tensor: False)
    monkeypatch.setattr(devices, "_measured_faster", lambda: True)
    monkeypatch.setattr(softmax_chunks, "MIN_BF16_PRODUCTS_TORCH", 0)


def layer_of(weight: Tensor, bias: Tensor) -> FullSoftmax:
    layer = FullSoftmax(weight.shape[1], torch.ones(len(weight)))
    layer.use_precision(Precision.auto)
    with torch.no_grad():
        layer.vectors.copy_(weight)
        layer.bias.copy_(bias)
    return layer


def loss_and_grads(layer: FullSoftmax, h: Tensor, y: Tensor) -> list[Tensor]:
    hidden = h.clone().requires_grad_()
    loss = layer(hidden, y)
    return [loss.detach(), *torch.autograd.grad(loss, (hidden, layer.vectors, layer.bias))]


@pytest.mark.usefixtures("_bf16_pays")
def test_a_layer_with_auto_against_float64() -> None:
    h, weight, bias, y = given(300, 40, 37)
    leaves = [tensor.double().requires_grad_() for tensor in (h, weight, bias)]
    loss = F.cross_entropy(leaves[0] @ leaves[1].T + leaves[2], y)
    want = torch.autograd.grad(loss, leaves)
    layer = layer_of(weight, bias)
    found, *grads = loss_and_grads(layer, h, y)
    assert [each.name for each in used(layer)] == ["softmax_bf16"]
    assert abs(found.item() - loss.item()) < 3e-3
    assert found.item() != F.cross_entropy(h @ weight.T + bias, y).item()  # it is in bf16
    for ours, theirs in zip(grads, want, strict=True):
        assert (ours - theirs).norm() < 8e-3 * theirs.norm()


@pytest.mark.usefixtures("_bf16_pays")
def test_parts_of_a_batch_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    h, weight, bias, y = given(50, 8, 150)
    sizes: list[int] = []

    def recorded(*arguments: Any) -> Any:
        sizes.append(len(arguments[0]))
        return loss_and_gradients(*arguments)

    monkeypatch.setattr(softmax_chunks, "loss_and_gradients", recorded)
    found = []
    for scores in (150 * 50, 64 * 50):  # at once; in parts of 64, 64 and 22
        monkeypatch.setattr(softmax_chunks, "MAX_SCORES_PER_CHUNK", scores)
        found.append(loss_and_grads(layer_of(weight, bias), h, y))
    assert sizes == [150, 64, 64, 22]
    for whole, parts in zip(*found, strict=True):
        assert (whole - parts).norm() < 5e-3 * whole.norm()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("max_norm", [None, 0.05])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_a_step_without_a_graph(
    decay: float, max_norm: float | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_step, "MAX_LOOP_PRODUCTS", 0)
    monkeypatch.setattr(network_output, "WEIGHTS_PER_THREAD", 1)
    monkeypatch.setattr(softmax_chunks, "SCORES_PER_THREAD", 1)
    monkeypatch.setattr(parallel._here, "threads", threads)
    torch.manual_seed(3)
    shapes = (60, 5), (11, 15), (11,), (59, 11), (59,)
    before = [torch.randn(shape) for shape in shapes]
    x, y = torch.randint(60, (16, 3)), torch.randint(59, (16,))
    changes, losses = [], []
    for bf16 in (False, True):
        weights = [weight.clone() for weight in before]
        steps = NetworkStep(Network(*weights, Activation.tanh, False, bf16), decay, max_norm)
        losses.append(steps.step(x, y, 0.5, 1e6))
        changes.append([after - weight for after, weight in zip(weights, before, strict=True)])
    assert losses[1] == pytest.approx(losses[0], rel=5e-3) and losses[0] != losses[1]
    for exact, ours in zip(*changes, strict=True):
        assert (ours - exact).norm() < 1e-2 * exact.norm()


def test_a_step_whose_loss_is_out_of_bounds_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_step, "MAX_LOOP_PRODUCTS", 0)
    torch.manual_seed(3)
    weights = [torch.randn(shape) for shape in ((9, 5), (4, 15), (4,), (8, 4), (8,))]
    before = [weight.clone() for weight in weights]
    steps = NetworkStep(Network(*weights, Activation.tanh, False, True), 0.0)
    assert steps.step(torch.zeros(16, 3, dtype=torch.int64), torch.zeros(16, dtype=torch.int64), 0.5, 0.01) > 0.01
    assert all(map(torch.equal, weights, before))

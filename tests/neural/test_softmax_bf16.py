"""The full softmax by products in bfloat16: by hand, against float64, in parts, and where it overflows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lmtool.config.training import Precision
from lmtool.neural import devices
from lmtool.neural.encoders.settings import Activation
from lmtool.neural.forms import network_step, softmax_bf16, softmax_chunks, tiles, used
from lmtool.neural.forms.network_step import NetworkStep
from lmtool.neural.forms.softmax_bf16 import Bf16Softmax
from lmtool.neural.forms.softmax_tiles import TileSoftmax
from lmtool.neural.outputs.softmax import FullSoftmax
from lmtool.system import parallel

needs_dots = pytest.mark.skipif(not tiles.has_dots(), reason="this processor has no AVX-512 for bf16")
needs_tiles = pytest.mark.skipif(not tiles.available(), reason="this processor has no tiles for bf16 (AMX)")
every_kind = pytest.mark.parametrize(
    "kind", [pytest.param(Bf16Softmax, marks=needs_dots), pytest.param(TileSoftmax, marks=needs_tiles)]
)


def narrowed(tensor: Tensor) -> Tensor:
    return tensor.bfloat16().double()


def given(words: int, dim: int, batch: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(words + dim + batch)
    return torch.randn(batch, dim), torch.randn(words, dim) / 4, torch.randn(words), torch.randint(words, (batch,))


def found(
    kind: type[Bf16Softmax], h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, batch: int
) -> tuple[float, Tensor, Tensor, Tensor]:
    """Loss and gradients of h, weight and bias; in memory that a larger batch was in."""
    softmax = kind(len(weight), weight.shape[1], len(h) + 3)
    for inputs, targets in ((torch.ones(len(h) + 3, h.shape[1]), y.new_zeros(len(h) + 3)), (h, y)):
        grads = torch.zeros_like(weight), torch.zeros_like(bias)
        softmax.forward(weight, bias, inputs, targets, batch)
        square = softmax.square()
        softmax.apply(*grads, 1.0, 1.0)
    assert square == pytest.approx(sum(float(grad.square().sum()) for grad in grads), rel=0.02)
    return softmax.loss, softmax.grad_h, *grads


@every_kind
def test_by_hand(kind: type[Bf16Softmax]) -> None:
    # Scores log 1, log 3, log 4 by their biases: p = 1/8, 3/8, 1/2.
    bias = torch.tensor([1.0, 3.0, 4.0]).log()
    loss, grad_h, grad, grad_bias = found(kind, torch.ones(2, 1), torch.zeros(3, 1), bias, torch.tensor([0, 2]), 2)
    assert loss == pytest.approx((math.log(8) + math.log(2)) / 2, rel=1e-5)
    want = (torch.tensor([0.125, 0.375, 0.5]) * 2 - torch.tensor([1.0, 0.0, 1.0])) / 2
    torch.testing.assert_close(grad_bias, want, rtol=0.01, atol=1e-3)
    torch.testing.assert_close(grad[:, 0], want, rtol=0.01, atol=1e-3)
    assert torch.equal(grad_h, torch.zeros(2, 1))


@every_kind
@pytest.mark.parametrize("shift", [-1e5, -6950.0, -6931.5, 7e3])
def test_scores_far_from_zero(shift: float, kind: type[Bf16Softmax]) -> None:
    # What pads the 5 words to 32 must not count, however low their scores are.
    bias = torch.full((5,), shift)
    loss, _, _, grad_bias = found(kind, torch.ones(2, 1), torch.zeros(5, 1), bias, torch.tensor([0, 2]), 2)
    assert loss == pytest.approx(math.log(5), rel=1e-5)
    torch.testing.assert_close(grad_bias, torch.tensor([-0.3, 0.2, -0.3, 0.2, 0.2]), rtol=0.01, atol=1e-3)


@every_kind
@pytest.mark.parametrize("value", [200.0, math.nan, math.inf])
def test_what_overflows_has_an_infinite_loss(value: float, kind: type[Bf16Softmax]) -> None:
    softmax = kind(3, 1, 1)
    softmax.forward(torch.zeros(3, 1), torch.tensor([0.0, value, 1.0]), torch.ones(1, 1), torch.tensor([0]), 1)
    assert softmax.loss == math.inf


@every_kind
@pytest.mark.parametrize("place", ["h", "weight", "bias"])
def test_nan_of_a_gpu_has_an_infinite_loss(place: str, kind: type[Bf16Softmax]) -> None:
    # All its bits are 1: rounding it as a number would carry into the sign and make it -0.
    given = {"weight": torch.zeros(3, 1), "bias": torch.zeros(3), "h": torch.ones(1, 1)}
    given[place].view(-1)[-1] = torch.tensor([0x7FFFFFFF], dtype=torch.int32).view(torch.float32)
    softmax = kind(3, 1, 1)
    softmax.forward(*given.values(), torch.tensor([0]), 1)
    assert softmax.loss == math.inf


@every_kind
def test_a_sure_prediction_keeps_its_small_gradient(kind: type[Bf16Softmax]) -> None:
    # p of the target is 0.9999: p - 1 has the digits of a bfloat16, though p itself would be 1 in one.
    bias = torch.tensor([0.0, math.log(1e-4 / (1 - 1e-4))])
    weight = torch.tensor([[1.0], [0.0]])
    _, grad_h, grad, grad_bias = found(kind, torch.ones(1, 1), weight, bias - weight[:, 0], torch.tensor([0]), 1)
    want = torch.tensor([-1e-4, 1e-4])
    for ours, theirs in ((grad[:, 0], want), (grad_bias, want), (grad_h[0], want[:1])):
        torch.testing.assert_close(ours, theirs, rtol=0.01, atol=0)


@every_kind
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("words", "dim", "batch"),
    [(1, 1, 1), (5, 3, 2), (32, 32, 32), (33, 31, 33), (64, 64, 1), (100, 130, 70), (300, 40, 96)],
)
def test_close_to_float64(
    words: int, dim: int, batch: int, threads: int, kind: type[Bf16Softmax], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel._here, "threads", threads)
    monkeypatch.setattr(softmax_bf16, "PRODUCTS_PER_THREAD", 1)
    h, weight, bias, y = given(words, dim, batch)
    leaves = [tensor.double().requires_grad_() for tensor in (h, weight, bias)]
    loss = F.cross_entropy(leaves[0] @ leaves[1].T + leaves[2], y, reduction="sum") / (2 * batch)
    want = torch.autograd.grad(loss, leaves)
    ours, *grads = found(kind, h, weight, bias, y, 2 * batch)
    assert abs(ours - loss.item()) < 3e-3
    for grad, theirs in zip(grads, want, strict=True):
        assert (grad - theirs).norm() <= 8e-3 * theirs.norm() + 1e-6


@every_kind
def test_exact_but_for_the_rounding_of_what_goes_in(kind: type[Bf16Softmax]) -> None:
    # The same with h log2(e), W, E, h / S and 1 / S rounded in float64: what is left are the sums' order and 2^x.
    h, weight, bias, y = given(45, 37, 50)
    log2_e = np.log2(np.e)
    narrow_h, narrow_weight = narrowed(h * np.float32(log2_e)), narrowed(weight)
    scores = (narrow_h @ narrow_weight.T + bias.double() * log2_e) / log2_e
    powers = (scores - scores.gather(1, y[:, None])).exp()
    total = powers.sum(1, keepdim=True)
    hot, share = F.one_hot(y, 45), 1 / (total * 50)
    e, d = narrowed(powers.float()), narrowed(torch.where(hot > 0, 1 - total, powers).float())
    ours, *grads = found(kind, h, weight, bias, y, 50)
    assert ours == pytest.approx(total.log().mean().item(), abs=5e-6)
    want = (
        e @ narrow_weight * share - narrow_weight[y] / 50,
        d.T @ narrowed((h * share).float()),
        d.T @ narrowed(share),
    )
    for grad, theirs in zip(grads, (*want[:2], want[2][:, 0]), strict=True):
        # A few numbers lie so near the middle between two of bf16 that 2^x decides.
        assert (grad - theirs).norm() < 2e-4 * theirs.norm()


@pytest.fixture
def _bf16_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor without tiles on which products in bfloat16 are faster, and sizes at which auto takes them."""
    monkeypatch.setattr(tiles, "fit", lambda tensor: False)
    monkeypatch.setattr(devices, "_measured_faster", lambda: True)
    monkeypatch.setattr(softmax_chunks, "MIN_BF16_PRODUCTS_DOTS", 0)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "znver5")


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


@needs_dots
@pytest.mark.usefixtures("_bf16_pays")
def test_a_layer_with_auto_against_float64() -> None:
    h, weight, bias, y = given(300, 40, 37)
    leaves = [tensor.double().requires_grad_() for tensor in (h, weight, bias)]
    loss = F.cross_entropy(leaves[0] @ leaves[1].T + leaves[2], y)
    want = torch.autograd.grad(loss, leaves)
    layer = layer_of(weight, bias)
    value, *grads = loss_and_grads(layer, h, y)
    assert [each.name for each in used(layer)] == ["softmax_bf16"]
    assert abs(value.item() - loss.item()) < 3e-3
    assert value.item() != F.cross_entropy(h @ weight.T + bias, y).item()  # it is in bf16
    for ours, theirs in zip(grads, want, strict=True):
        assert (ours - theirs).norm() < 8e-3 * theirs.norm()


@needs_dots
@pytest.mark.usefixtures("_bf16_pays")
def test_parts_of_a_batch_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    h, weight, bias, y = given(50, 8, 150)
    sizes: list[int] = []

    forward = Bf16Softmax.forward

    def recorded(self: Bf16Softmax, *arguments: Any) -> None:
        sizes.append(len(arguments[2]))
        forward(self, *arguments)

    monkeypatch.setattr(Bf16Softmax, "forward", recorded)
    both = []
    for scores in (150 * 50, 64 * 50):  # at once; in parts of 64, 64 and 22
        monkeypatch.setattr(softmax_chunks, "MAX_SCORES_PER_CHUNK", scores)
        both.append(loss_and_grads(layer_of(weight, bias), h, y))
    assert sizes == [150, 64, 64, 22]
    for whole, parts in zip(*both, strict=True):
        assert (whole - parts).norm() < 5e-3 * whole.norm()


@needs_dots
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("max_norm", [None, 0.05])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_a_step_without_a_graph(
    decay: float, max_norm: float | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_step, "MAX_LOOP_PRODUCTS", 0)
    monkeypatch.setattr(softmax_bf16, "PRODUCTS_PER_THREAD", 1)
    monkeypatch.setattr(parallel._here, "threads", threads)
    torch.manual_seed(3)
    shapes = (60, 5), (11, 15), (11,), (59, 11), (59,)
    before = [torch.randn(shape) for shape in shapes]
    x, y = torch.randint(60, (16, 3)), torch.randint(59, (16,))
    changes, losses = [], []
    for bf16 in (False, True):
        weights = [weight.clone() for weight in before]
        steps = NetworkStep(weights, Activation.tanh, decay, max_norm, direct=False, bf16=bf16)
        losses.append(steps.step(x, y, 0.5, 1e6))
        changes.append([after - weight for after, weight in zip(weights, before, strict=True)])
    assert losses[1] == pytest.approx(losses[0], rel=5e-3) and losses[0] != losses[1]
    for exact, ours in zip(*changes, strict=True):
        assert (ours - exact).norm() < 1e-2 * exact.norm()


@needs_dots
def test_a_step_whose_loss_is_out_of_bounds_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_step, "MAX_LOOP_PRODUCTS", 0)
    torch.manual_seed(3)
    weights = [torch.randn(shape) for shape in ((9, 5), (4, 15), (4,), (8, 4), (8,))]
    before = [weight.clone() for weight in weights]
    steps = NetworkStep(weights, Activation.tanh, 0.0, None, direct=False, bf16=True)
    assert steps.step(torch.zeros(16, 3, dtype=torch.int64), torch.zeros(16, dtype=torch.int64), 0.5, 0.01) > 0.01
    assert all(map(torch.equal, weights, before))


@needs_dots
def test_what_overflows_is_done_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "fit", lambda tensor: False)
    monkeypatch.setattr(network_step, "MAX_LOOP_PRODUCTS", 0)
    bias = torch.zeros(8)
    bias[1] = 200.0  # the other words' probability is e^-200
    h, y = torch.randn(16, 4), torch.zeros(16, dtype=torch.int64)
    losses = []
    for precision in (Precision.bf16, Precision.fp32):
        layer = FullSoftmax(4, torch.ones(8), precision=precision)
        with torch.no_grad():
            layer.vectors.zero_()
            layer.bias.copy_(bias)
        losses.append(loss_and_grads(layer, h, y))
    for ours, theirs in zip(*losses, strict=True):
        assert torch.equal(ours, theirs)
    weights = [*(torch.randn(shape) for shape in ((9, 5), (4, 15), (4,))), torch.zeros(8, 4), bias]
    steps = NetworkStep(weights, Activation.tanh, 0.0, None, direct=False, bf16=True)
    assert steps.step(torch.zeros(16, 3, dtype=torch.int64), y, 0.5, 1e6) == pytest.approx(200, rel=1e-5)
    assert bias[0] == pytest.approx(0.5) and bias[1] == pytest.approx(199.5)

"""The full softmax: the plain loss, gradients in chunks, products in bfloat16 and in tiles, and the form chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config.training import Precision
from lmtool.neural import devices
from lmtool.neural.encoders.options import NplmModel
from lmtool.neural.encoders.settings import Activation
from lmtool.neural.forms import chosen, only_plain, softmax_bf16, softmax_chunks, softmax_tiles, tiles, used
from lmtool.neural.forms import network_step as step_file
from lmtool.neural.forms.network_step import NetworkStep, network_step
from lmtool.neural.forms.softmax_bf16 import Bf16Softmax
from lmtool.neural.forms.softmax_tiles import TileSoftmax
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.softmax import FullSoftmax
from lmtool.system import parallel
from tests.conftest import nplm


def layer(outputs: int = 11, dim: int = 5, dtype: torch.dtype = torch.float64, **options: Any) -> FullSoftmax:
    torch.manual_seed(0)
    return FullSoftmax(dim, torch.arange(outputs), **options).to(dtype)


@pytest.fixture
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 64 rows at once, which are the fewest."""
    monkeypatch.setattr(softmax_chunks, "MAX_SCORES_PER_CHUNK", 1)


@pytest.mark.usefixtures("_small_chunks")
@pytest.mark.parametrize("rows", [1, 64, 65, 128, 300])
def test_equals_cross_entropy(rows: int) -> None:
    output = layer()
    h = torch.randn(rows, 5, dtype=torch.float64, requires_grad=True)
    y = torch.randint(0, 11, (rows,))
    plain = F.cross_entropy(h @ output.vectors.T + output.bias, y)
    want = torch.autograd.grad(3 * plain, (h, output.vectors, output.bias))
    loss = output(h, y)
    assert [each.name for each in used(output)] == (["softmax_chunks"] if rows > 64 else [])
    found = torch.autograd.grad(3 * loss, (h, output.vectors, output.bias))
    torch.testing.assert_close(loss, plain)
    for ours, theirs in zip(found, want, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_chunks_are_of_so_many_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax_chunks, "MAX_SCORES_PER_CHUNK", 1000)
    monkeypatch.setattr(softmax_chunks, "MAX_SCORES_PER_CHUNK_GPU", 4000)
    h = torch.zeros(1, 1)
    assert [softmax_chunks.rows_at_once(h, outputs) for outputs in (10, 11, 16, 1000)] == [100, 90, 64, 64]
    assert softmax_chunks.rows_at_once(h.to("meta"), 10) == 400
    at_once: list[int] = []
    cross_entropy = F.cross_entropy

    def counting(scores: Tensor, *arguments: Any, **options: Any) -> Tensor:
        at_once.append(len(scores))
        return cross_entropy(scores, *arguments, **options)

    monkeypatch.setattr(F, "cross_entropy", counting)
    output, h = layer(10), torch.randn(250, 5, dtype=torch.float64)
    found = output(h, torch.arange(250) % 10)
    assert at_once == [100, 100, 50]
    with only_plain():
        torch.testing.assert_close(output(h, torch.arange(250) % 10), found)
    assert at_once[3:] == [250]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.usefixtures("_small_chunks")
def test_a_hopeless_word_has_a_finite_loss(plain: bool) -> None:
    # Its probability, e^-1000, is 0 in float32; its loss is 1000 all the same.
    output = layer(outputs=3, dim=1, dtype=torch.float32)
    with torch.no_grad():
        output.vectors.copy_(torch.tensor([[1000.0], [0.0], [0.0]]))
        output.bias.zero_()
    with only_plain(plain):
        assert output(torch.ones(70, 1), torch.ones(70, dtype=torch.int64)).item() == pytest.approx(1000)


@pytest.mark.parametrize("shift", [0.0, -2000.0, 2000.0])
def test_log_z_in_tiles(shift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    output, h = layer(outputs=29), torch.randn(7, 5, dtype=torch.float64)
    with torch.no_grad():
        output.bias += torch.linspace(-shift, shift, 29)  # the largest score comes first, or last
    want = (h @ output.vectors.T + output.bias).logsumexp(1)
    torch.testing.assert_close(output.log_z(h), want)
    monkeypatch.setattr("lmtool.neural.outputs.softmax.EXAMPLES_PER_TILE", 2)
    monkeypatch.setattr("lmtool.neural.outputs.softmax.WORDS_PER_TILE", 5)
    torch.testing.assert_close(output.log_z(h), want)
    assert output.log_z(h[:0]).shape == (0,)


def test_log_z_of_bfloat16() -> None:
    output, h = layer(outputs=29).bfloat16(), torch.randn(7, 5, dtype=torch.bfloat16)
    want = F.linear(h, output.vectors, output.bias).double().logsumexp(1)
    torch.testing.assert_close(output.log_z(h), want, rtol=0, atol=1e-6)


# Gradients that the forward pass computes are given to autograd, which takes over what nobody else holds.


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[int]]]:
    """Where each computation of a loss has left its gradients."""
    places: list[list[int]] = []
    compute = softmax_chunks._loss_and_gradients

    def recorded(*arguments: Any) -> Any:
        loss, gradients = compute(*arguments)
        places.append([gradient.data_ptr() for gradient in gradients])
        return loss, gradients

    monkeypatch.setattr(softmax_chunks, "_loss_and_gradients", recorded)
    yield places


@pytest.mark.usefixtures("_small_chunks")
@pytest.mark.parametrize("factor", [1, 3])
def test_gradients_are_taken_over_not_copied(factor: int, computed: list[list[int]]) -> None:
    output = layer(9)
    (factor * output(torch.randn(80, 5, dtype=torch.float64), torch.arange(80) % 9)).backward()
    assert output.vectors.grad is not None and output.bias.grad is not None
    assert [[output.vectors.grad.data_ptr(), output.bias.grad.data_ptr()]] == [places[1:] for places in computed]


@pytest.mark.usefixtures("_small_chunks")
def test_a_graph_that_is_kept_has_its_gradients_again(computed: list[list[int]]) -> None:
    output, h = layer(9), torch.randn(80, 5, dtype=torch.float64, requires_grad=True)
    loss = output(h, torch.arange(80) % 9)
    first = torch.autograd.grad(3 * loss, h, retain_graph=True)[0].clone()
    assert len(computed) == 1
    for factor in (1, 3):
        again = torch.autograd.grad(factor * loss, h, retain_graph=True)[0]
        torch.testing.assert_close(again, factor / 3 * first)
    assert len(computed) == 3
    loss.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()


@pytest.mark.parametrize("precision", [Precision.fp32, Precision.bf16])
@pytest.mark.usefixtures("_small_chunks")
@pytest.mark.parametrize("rows", [0, 2])
def test_vectors_that_are_shared_have_gradients_of_0_behind_the_words(
    rows: int, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "empty_like", lambda tensor: torch.full_like(tensor, torch.nan))
    torch.manual_seed(0)
    vectors = nn.Parameter(torch.randn(9 + rows, 4))
    output = FullSoftmax(4, torch.ones(9), vectors, precision=precision)
    output(torch.randn(70, 4), torch.arange(70) % 9).backward()
    assert used(output)
    assert vectors.grad is not None and (vectors.grad[9:] == 0).all() and (vectors.grad[:9] != 0).all()


def test_precision_is_the_constructors_or_else_the_trainings() -> None:
    free, fixed = layer(dtype=torch.float32), layer(dtype=torch.float32, precision=Precision.fp32)
    assert free.precision is fixed.precision is Precision.fp32
    for output in (free, fixed):
        output.use_precision(Precision.bf16)
    assert (free.precision, fixed.precision) == (Precision.bf16, Precision.fp32)


# By products in bfloat16: by hand, against float64, in parts, and where it overflows


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
    monkeypatch.setattr(step_file, "MAX_LOOP_PRODUCTS", 0)
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
    monkeypatch.setattr(step_file, "MAX_LOOP_PRODUCTS", 0)
    torch.manual_seed(3)
    weights = [torch.randn(shape) for shape in ((9, 5), (4, 15), (4,), (8, 4), (8,))]
    before = [weight.clone() for weight in weights]
    steps = NetworkStep(weights, Activation.tanh, 0.0, None, direct=False, bf16=True)
    assert steps.step(torch.zeros(16, 3, dtype=torch.int64), torch.zeros(16, dtype=torch.int64), 0.5, 0.01) > 0.01
    assert all(map(torch.equal, weights, before))


@needs_dots
def test_what_overflows_is_done_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "fit", lambda tensor: False)
    monkeypatch.setattr(step_file, "MAX_LOOP_PRODUCTS", 0)
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


# By products of tiles: in blocks, and the memory that is kept


@needs_tiles
def test_words_and_examples_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    h, weight, bias, y = given(200, 70, 150)
    results = []
    for _ in range(2):
        softmax, grads = TileSoftmax(200, 70, 150), (torch.zeros_like(weight), torch.zeros_like(bias))
        softmax.forward(weight, bias, h, y, 150)
        softmax.apply(*grads, 1.0, 1.0)
        results.append((torch.tensor(softmax.loss), softmax.grad_h, *grads))
        monkeypatch.setattr(softmax_tiles, "BLOCK_NUMBERS", 0)
        monkeypatch.setattr(softmax_tiles, "NEAR_NUMBERS", 0)
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).norm() < 1e-3 * theirs.norm()


def test_tiles_are_kept_while_they_fit_and_left_where_they_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int, int]] = []

    class Tiles:
        """Stands for the processor's tiles: computes a loss of 7, or an infinite one."""

        def __init__(self, *sizes: int) -> None:
            self.made_for = *sizes, parallel.threads()
            made.append(sizes)

        def forward(self, weight: Tensor, bias: Tensor, h: Tensor, y: Tensor, batch: int) -> None:
            self.loss, self.grad_h = math.inf if len(h) == 3 else 7.0, torch.ones_like(h)

        def apply(self, weight: Tensor, bias: Tensor, keep: float, change: float) -> None:
            weight.fill_(1)
            bias.fill_(1)

    monkeypatch.setattr(softmax_tiles, "TileSoftmax", Tiles)
    monkeypatch.setattr(tiles, "fit", lambda tensor: True)
    torch.manual_seed(0)
    layer = FullSoftmax(4, torch.arange(9, 0, -1), precision=Precision.bf16)
    h = torch.randn(5, 4)
    assert [layer(h[:size], torch.arange(size)).item() for size in (5, 5, 4)] == [7, 7, 7]
    assert made == [(9, 4, 5), (9, 4, 4)]
    layer(h, torch.arange(5)).backward()
    assert (layer.vectors.grad == 1).all() and (layer.bias.grad == 1).all()
    # An infinite loss: an exponential overflowed, and it is computed in the weights' own type.
    layer.zero_grad()
    loss = layer(h[:3], torch.arange(3))
    torch.testing.assert_close(loss, -layer.log_prob(h[:3], torch.arange(3)).mean().float(), atol=1e-6, rtol=1e-5)
    loss.backward()
    (want,) = torch.autograd.grad(layer.loss(h[:3], torch.arange(3)), layer.vectors)
    torch.testing.assert_close(layer.vectors.grad, want)
    assert "softmax_tiles" in {each.name for each in used(layer)} and len(made) == 4


@pytest.mark.skipif(not tiles.has_dots(), reason="this processor has no AVX-512 for bf16")
def test_without_tiles_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "available", lambda: False)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "znver5")
    with pytest.raises(ValueError, match="no tiles"):
        TileSoftmax(5, 3, 2)
    layer = FullSoftmax(4, torch.arange(80), precision=Precision.bf16)
    assert not tiles.fit(torch.randn(2, 4))
    assert layer(torch.randn(64, 4), torch.zeros(64, dtype=torch.int64)).isfinite()
    assert [each.name for each in used(layer)] == ["softmax_bf16"]


def test_tiles_fit_float32_on_a_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "available", lambda: True)
    tensor = torch.randn(2, 4)
    assert [tiles.fit(each) for each in (tensor, tensor.double(), tensor.to("meta"))] == [True, False, False]


def test_no_instructions_that_numba_does_not_compile_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: dict.fromkeys(["avx512bf16"], True))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("numba.config.CPU_NAME", None)
    monkeypatch.setattr("numba.config.CPU_FEATURES", None)
    assert tiles.has_dots.__wrapped__()
    monkeypatch.setattr("numba.config.CPU_NAME", "generic")
    assert not tiles.has_dots.__wrapped__()


# Which form is chosen on which processor; each keeps its own memory


class Passes:
    """Stands for the passes of a form: computes a loss that says which one it is."""

    loss = math.nan

    def __init__(self, *sizes: int) -> None:
        self.made_for = *sizes, parallel.threads()

    def forward(self, weight: Tensor, bias: Tensor, h: Tensor, y: Tensor, batch: int) -> None:
        self.grad_h = torch.zeros_like(h)

    def apply(self, *_: object) -> None:
        """Change nothing."""


class Dots(Passes):
    loss = 1.0


class Tiles(Passes):
    loss = 2.0


def test_each_form_has_its_own_memory() -> None:
    layer = FullSoftmax(4, torch.ones(9))
    h, y = torch.randn(5, 4), torch.arange(5)
    kinds = [Dots, Tiles, Tiles, Dots]
    assert [softmax_bf16.loss_by(kind, layer, h, y).item() for kind in kinds] == [1, 2, 2, 1]  # type: ignore[arg-type]


@pytest.fixture(params=["znver5", "cooperlake", "sapphirerapids"])
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A processor with AVX-512 for bf16, on which torch multiplies it faster; the last one has tiles."""
    name = str(request.param)
    monkeypatch.setattr(tiles, "has_dots", lambda: True)
    monkeypatch.setattr(tiles, "fit", lambda tensor: name == "sapphirerapids" and tensor.dtype == torch.float32)
    monkeypatch.setattr(devices, "_measured_faster", lambda: True)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: name)
    return name


# Of each processor the form, and the fewest examples for which auto takes it: more of them if a layer is small.
FORMS = {
    "znver5": ("softmax_bf16", 16),
    "cooperlake": ("softmax_autocast", 64),
    "sapphirerapids": ("softmax_tiles", 64),
}


def test_the_form_follows_processor_precision_and_size(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, fewest = FORMS[processor]

    def names(layer: FullSoftmax, *sizes: int) -> list[str | None]:
        found = [chosen(layer, "loss", layer.bias.new_zeros(size, 64)) for size in sizes]
        return [each and each.name for each in found]

    for words, enough in ((8192, 2 * fewest), (32_768, fewest)):  # 2^19 and 2^21 products for each example
        layer = FullSoftmax(64, torch.ones(words))
        for precision, wanted in ((Precision.auto, [None, form]), (Precision.bf16, [form] * 2)):
            layer.use_precision(precision)
            assert names(layer, enough - 1, enough) == wanted
    layer.use_precision(Precision.auto)
    monkeypatch.setattr(devices, "_measured_faster", lambda: False)
    assert names(layer, 200) == [form if form == "softmax_tiles" else None]
    monkeypatch.setattr(devices, "_measured_faster", lambda: True)
    assert "bf16" not in str(names(layer.double(), 400))


def test_a_whole_step_in_bf16_is_by_dot_products_alone(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax_chunks, "MIN_BF16_PRODUCTS", 0)
    monkeypatch.setattr(softmax_chunks, "MIN_BF16_PRODUCTS_DOTS", 0)
    config: NplmModel = nplm(dropout=0.0, input_dropout=0.0, layer_norm=False, gated=False, fofe_window=0)
    encoder = config.build(10, tied=False, sparse=True)
    net = NeuralModel(encoder, FullSoftmax(encoder.output_dim, torch.ones(9), precision=Precision.auto), 10)
    step = network_step(net, 0.0, 64, None)
    assert (step is not None) == (processor == "znver5")
    assert step is None or step.bf16

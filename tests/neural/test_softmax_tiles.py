"""The full softmax by products of tiles: against float64, at the edges of tiles, and where it overflows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lmtool.config.training import Precision
from lmtool.neural import devices
from lmtool.neural.forms import softmax_chunks, softmax_tiles, tiles, used
from lmtool.neural.forms.softmax_tiles import TileSoftmax
from lmtool.neural.outputs.softmax import FullSoftmax
from lmtool.system import parallel

needs_tiles = pytest.mark.skipif(not tiles.available(), reason="this processor has no tiles for bf16 (AMX)")


def narrowed(tensor: Tensor) -> Tensor:
    return tensor.bfloat16().double()


def given(words: int, dim: int, batch: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(words + dim + batch)
    return torch.randn(batch, dim), torch.randn(words, dim) / 4, torch.randn(words), torch.randint(words, (batch,))


def by_tiles(h: Tensor, weight: Tensor, bias: Tensor, y: Tensor, examples: int | None = None) -> list[Tensor]:
    """Loss and gradients of h, weight and bias."""
    grads = [torch.full_like(tensor, torch.nan) for tensor in (h, weight, bias)]
    layer = TileSoftmax(*weight.shape, examples or len(h))
    loss = layer.loss_and_gradients(h.numpy(), weight.numpy(), bias.numpy(), y.numpy(), [g.numpy() for g in grads])
    assert loss is not None
    return [torch.tensor(loss), *grads]


@needs_tiles
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("words", "dim", "batch"), [(5, 3, 2), (32, 32, 32), (33, 31, 33), (64, 64, 1), (100, 40, 70), (300, 130, 96)]
)
def test_close_to_float64(words: int, dim: int, batch: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel._here, "threads", threads)
    h, weight, bias, y = given(words, dim, batch)
    leaves = [tensor.double().requires_grad_() for tensor in (h, weight, bias)]
    loss = F.cross_entropy(leaves[0] @ leaves[1].T + leaves[2], y)
    want = [loss.detach(), *torch.autograd.grad(loss, leaves)]
    found = by_tiles(h, weight, bias, y)
    assert abs(found[0] - want[0]) < 3e-3
    for ours, theirs in zip(found[1:], want[1:], strict=True):
        assert (ours - theirs).norm() < 6e-3 * theirs.norm()


@needs_tiles
def test_exact_but_for_the_rounding_of_what_goes_in() -> None:
    # The same with h log2(e), W and the exponentials rounded in float64: what is left are the sums' order and 2^x.
    h, weight, bias, y = given(45, 37, 50)
    log2_e = np.log2(np.e)
    narrow_h, narrow_weight = narrowed(h * np.float32(log2_e)), narrowed(weight)
    scores = (narrow_h @ narrow_weight.T + bias.double() * log2_e) / log2_e
    own = scores.gather(1, y[:, None])
    exponentials = (scores - own).exp()
    share = 1 / (exponentials.sum(1) * len(h))
    e = narrowed(exponentials.float())
    hot = F.one_hot(y, 45).double() / len(h)
    found = by_tiles(h, weight, bias, y)
    want = [
        exponentials.sum(1).log().mean(),
        e @ narrow_weight * share[:, None] - hot @ weight.double(),
        e.T @ narrowed((h * share[:, None]).float()) - hot.T @ h.double(),
        (e * share[:, None]).sum(0) - hot.sum(0),
    ]
    assert abs(found[0] - want[0]) < 5e-6
    for ours, theirs in zip(found[1:], want[1:], strict=True):
        # A few numbers lie so near the middle between two of bf16 that 2^x decides.
        assert (ours - theirs).norm() < 2e-4 * theirs.norm()


@needs_tiles
def test_a_batch_in_parts_and_words_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    h, weight, bias, y = given(200, 70, 150)
    whole = by_tiles(h, weight, bias, y)
    monkeypatch.setattr(softmax_tiles, "MAX_EXPONENTIALS", 7 * 1024 * 2)
    monkeypatch.setattr(softmax_tiles, "BLOCK_NUMBERS", 0)
    monkeypatch.setattr(softmax_tiles, "NEAR_NUMBERS", 0)
    assert TileSoftmax(200, 70, 150).examples == 64
    for ours, theirs in zip(by_tiles(h, weight, bias, y), whole, strict=True):
        assert (ours - theirs).norm() < 1e-3 * theirs.norm()


@needs_tiles
def test_a_smaller_batch_leaves_nothing_of_a_larger_one() -> None:
    h, weight, bias, y = given(50, 20, 40)
    layer = TileSoftmax(50, 20, 40)
    for batch in (40, 7):
        grads = [torch.empty_like(tensor) for tensor in (h[:batch], weight, bias)]
        arrays = [tensor.numpy() for tensor in (h[:batch], weight, bias, y[:batch])]
        loss = layer.loss_and_gradients(*arrays, [grad.numpy() for grad in grads])
    found = [torch.tensor(loss), *grads]
    for ours, theirs in zip(found, by_tiles(h[:7], weight, bias, y[:7]), strict=True):
        torch.testing.assert_close(ours, theirs)


@needs_tiles
@pytest.mark.parametrize("value", [200.0, torch.nan, torch.inf])
def test_what_overflows_is_done_in_float32(value: float) -> None:
    torch.manual_seed(0)
    layers = [FullSoftmax(4, torch.arange(80), precision=precision) for precision in (Precision.bf16, Precision.fp32)]
    h, y = torch.randn(64, 4), torch.zeros(64, dtype=torch.int64)
    losses = []
    for layer in layers:
        with torch.no_grad():
            layer.vectors.zero_()
            layer.bias.zero_()
            layer.bias[1] = value  # the other word's probability is e^-200
        losses.append(layer(h, y))
    torch.testing.assert_close(*losses, equal_nan=True)
    if value == 200:
        assert losses[0].item() == pytest.approx(200)


@needs_tiles
def test_auto_takes_tiles_for_large_products_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(devices, "_measured_faster", lambda: False)
    monkeypatch.setattr(softmax_tiles, "TileSoftmax", lambda *sizes: made.append(sizes) or TileSoftmax(*sizes))
    layer = FullSoftmax(4, torch.arange(80))
    h, y = torch.randn(64, 4), torch.zeros(64, dtype=torch.int64)
    plain = layer(h, y)
    layer.use_precision(Precision.auto)
    assert torch.equal(layer(h, y), plain)
    assert not made
    monkeypatch.setattr(softmax_chunks, "MIN_BF16_PRODUCTS", 64 * 80 * 4)
    other = FullSoftmax(4, torch.arange(80), precision=Precision.auto)
    other.load_state_dict(layer.state_dict())
    narrow = other(h, y).item()
    assert narrow == pytest.approx(plain.item(), abs=1e-3)
    assert narrow != plain.item()
    assert made == [(80, 4, 64)]


def test_tiles_are_kept_while_they_fit_and_left_where_they_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Tiles:
        """Stands for the processor's tiles: serves what it was made for, and computes a loss of 7, or of none."""

        def __init__(self, words: int, dim: int, examples: int) -> None:
            self.wanted = words, dim, examples
            made.append(self)

        def serves(self, *wanted: int) -> bool:
            return wanted == self.wanted

        def loss_and_gradients(self, h: Any, weight: Any, bias: Any, y: Any, grads: list[Any]) -> float | None:
            for grad in grads:
                grad[:] = 1
            return None if len(h) == 3 else 7.0

    monkeypatch.setattr(softmax_tiles, "TileSoftmax", Tiles)
    monkeypatch.setattr(tiles, "fit", lambda tensor: True)
    torch.manual_seed(0)
    layer = FullSoftmax(4, torch.arange(9, 0, -1), precision=Precision.bf16)
    h = torch.randn(5, 4)
    assert [layer(h[:size], torch.arange(size)).item() for size in (5, 5, 4)] == [7, 7, 7]
    assert [tiles.wanted for tiles in made] == [(9, 4, 5), (9, 4, 4)]
    layer(h, torch.arange(5)).backward()
    assert (layer.vectors.grad == 1).all() and (layer.bias.grad == 1).all()
    # A loss of None: one of them overflowed, and it is computed in the weights' own type.
    layer.zero_grad()
    loss = layer(h[:3], torch.arange(3))
    torch.testing.assert_close(loss, -layer.log_prob(h[:3], torch.arange(3)).mean().float(), atol=1e-6, rtol=1e-5)
    loss.backward()
    (want,) = torch.autograd.grad(layer.loss(h[:3], torch.arange(3)), layer.vectors)
    torch.testing.assert_close(layer.vectors.grad, want)
    assert "softmax_tiles" in {each.name for each in used(layer)} and len(made) == 4


def test_without_tiles_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "available", lambda: False)
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

"""The full softmax by products of tiles: in blocks, when it is chosen, and the memory that is kept."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lmtool.config.training import Precision
from lmtool.neural import devices
from lmtool.neural.forms import softmax_chunks, softmax_tiles, tiles, used
from lmtool.neural.forms.softmax_tiles import TileSoftmax
from lmtool.neural.outputs.softmax import FullSoftmax
from lmtool.system import parallel

needs_tiles = pytest.mark.skipif(not tiles.available(), reason="this processor has no tiles for bf16 (AMX)")


def given(words: int, dim: int, batch: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(words + dim + batch)
    return torch.randn(batch, dim), torch.randn(words, dim) / 4, torch.randn(words), torch.randint(words, (batch,))


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

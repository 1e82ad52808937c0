"""The full softmax: the plain loss, the loss with gradients in chunks, and the precision that is chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config.training import Precision
from lmtool.neural import devices
from lmtool.neural.forms import chosen, only_plain, softmax_chunks, tiles, used
from lmtool.neural.outputs.softmax import FullSoftmax


def layer(outputs: int = 11, dim: int = 5, dtype: torch.dtype = torch.float64, **options: Any) -> FullSoftmax:
    torch.manual_seed(0)
    return FullSoftmax(dim, torch.arange(outputs), **options).to(dtype)


@pytest.fixture
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 64 rows at once, which are the fewest."""
    monkeypatch.setattr(softmax_chunks, "MAX_SCORES_PER_CHUNK", 1)


@pytest.mark.usefixtures("_small_chunks")
def test_gradients_in_float64() -> None:
    output, y = layer(3, 2), torch.randint(0, 3, (130,))  # two whole chunks and a rest

    def compute(*arguments: Any) -> Tensor:
        return softmax_chunks.plain_gradients(*arguments, bf16=False)

    def loss(h: Tensor, vectors: Tensor, bias: Tensor) -> Tensor:
        found: Tensor = softmax_chunks._Loss.apply(h, vectors, bias, y, compute)
        return 2 * found

    h = torch.randn(130, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (h, output.vectors, output.bias))


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


def test_starts_at_the_unigram_distribution() -> None:
    output = FullSoftmax(4, torch.tensor([6, 3, 0]))
    dist = output.log_dist(torch.zeros(1, 4))[0].exp()
    want = torch.tensor([6.5 / 10.5, 3.5 / 10.5, 0.5 / 10.5], dtype=torch.float64)
    torch.testing.assert_close(dist, want, atol=1e-7, rtol=0)  # float32 inside


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


# Precision


def in_bf16(output: FullSoftmax, examples: int) -> bool:
    return softmax_chunks.in_bf16(output, output.bias.new_empty(examples, output.vectors.shape[1]))


def test_precision_is_the_constructors_or_else_the_trainings() -> None:
    free, fixed = layer(dtype=torch.float32), layer(dtype=torch.float32, precision=Precision.fp32)
    assert free.precision is fixed.precision is Precision.fp32
    for output in (free, fixed):
        output.use_precision(Precision.bf16)
    assert (free.precision, fixed.precision) == (Precision.bf16, Precision.fp32)
    assert in_bf16(free, 1) and not in_bf16(fixed, 1 << 20)


@pytest.mark.parametrize("has_tiles", [True, False])
def test_auto_takes_bf16_for_much_work_where_there_are_tiles(has_tiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "fit", lambda tensor: has_tiles)
    monkeypatch.setattr(devices, "_measured_faster", lambda: False)
    monkeypatch.setattr(softmax_chunks, "MIN_BF16_PRODUCTS", 64 * 9 * 4)
    output = FullSoftmax(4, torch.ones(9), precision=Precision.auto)
    assert [in_bf16(output, examples) for examples in (1, 63, 64, 65)] == [False, False, has_tiles, has_tiles]
    monkeypatch.setattr(softmax_chunks, "MIN_BF16_PRODUCTS", 1)
    assert [in_bf16(output, examples) for examples in (63, 64)] == [False, has_tiles]  # 64 rows are the fewest


@pytest.mark.parametrize("faster", [True, False])
def test_auto_takes_dot_products_in_bf16_where_products_are_faster(
    faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "fit", lambda tensor: False)
    monkeypatch.setattr(tiles, "has_dots", lambda: True)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "znver5")
    monkeypatch.setattr(devices, "_measured_faster", lambda: faster)
    output = FullSoftmax(4, torch.ones(80), precision=Precision.auto)
    enough = math.ceil((1 << 24) / (4 * 80))
    assert [in_bf16(output, examples) for examples in (enough - 1, enough)] == [False, faster]
    monkeypatch.setattr(softmax_chunks, "MIN_BF16_PRODUCTS_DOTS", 0)
    assert [in_bf16(output, examples) for examples in (15, 16)] == [False, faster]
    assert not in_bf16(output.double(), 1 << 10)


def test_the_form_follows_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "fit", lambda tensor: False)
    monkeypatch.setattr(devices, "_measured_faster", lambda: True)
    monkeypatch.setattr(tiles, "has_dots", lambda: True)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "znver5")
    monkeypatch.setattr(softmax_chunks, "MIN_BF16_PRODUCTS_DOTS", 16 * 4 * 80)
    output = FullSoftmax(4, torch.ones(80))

    def names() -> list[str | None]:
        return [
            found and found.name for found in (chosen(output, "loss", torch.zeros(rows, 4)) for rows in (15, 16, 17))
        ]

    assert names() == [None, None, None]
    for precision, want in [
        (Precision.auto, [None, "softmax_bf16", "softmax_bf16"]),
        (Precision.bf16, ["softmax_bf16"] * 3),
        (Precision.fp32, [None] * 3),
    ]:
        output.use_precision(precision)
        assert names() == want


def test_asked_for_in_float64_it_is_near() -> None:
    output = layer(4000, 4, precision=Precision.bf16)
    h, y = torch.randn(3, 4, dtype=torch.float64), torch.tensor([1, 2, 3])
    want = F.cross_entropy(h @ output.vectors.T + output.bias, y)
    assert output(h, y).item() == pytest.approx(want.item(), abs=0.05)

"""The losses for a GPU, computed here on a CPU, against the plain formulas; and draws and windows made on a device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from lmtool.data.split import Windows, positions
from lmtool.neural.forms import gpu, only_plain, registered
from lmtool.neural.outputs.nce import chosen_outcomes
from lmtool.neural.rows import SparseRows
from lmtool.system.alias_table import AliasTable
from lmtool.training.batches import DeviceWindows
from tests.neural.test_forms import COUNTS, OUTPUTS, drawn
from tests.options import output_layer

FORMS = [form for form in registered() if form.run.__module__ == gpu.__name__]
SERVED = [name for name in OUTPUTS if name.startswith(("hierarchical", "classes", "adaptive"))]


@pytest.mark.parametrize("name", SERVED)
def test_losses_and_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(gpu, "on_gpu", lambda h: True)
    layer = output_layer(name, 6, COUNTS)
    drawn(layer, torch.float64)
    h, y = torch.randn(9, 6, dtype=torch.float64), torch.randint(layer.word_count or 1, (9,))
    y[0], y[-1] = 0, (layer.word_count or 1) - 1
    serving = [form for form in FORMS if form.replaces(layer, "loss") and form.serves(layer, h)]
    if "one word" in name:
        assert not serving  # there are no decisions
        return
    (form,) = serving

    def results(run: object) -> list[Tensor]:
        layer.zero_grad(set_to_none=True)
        inputs = h.clone().requires_grad_()
        loss = run(layer, inputs, y)  # type: ignore[operator]
        (3 * loss).backward()
        weights = [torch.zeros_like(p) if p.grad is None else p.grad for p in layer.parameters()]
        return [loss.detach(), inputs.grad, *weights]  # type: ignore[list-item]

    with only_plain():
        want = results(lambda layer, h, y: layer.loss(h, y))
    for one, other in zip(results(form.run), want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_paths_that_padding_would_make_too_long_stay_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "on_gpu", lambda h: True)
    layer = output_layer("hierarchical", 6, COUNTS)
    h = torch.randn(2, 6)
    (form,) = (form for form in FORMS if form.replaces(layer, "loss"))
    assert form.serves(layer, h)
    monkeypatch.setattr(gpu, "MAX_PADDING", 1.0)
    assert not form.serves(layer, h)


def test_batches_that_are_too_large_stay_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "on_gpu", lambda h: True)
    for name, limit in (
        ("hierarchical, morin_bengio", "HIDDEN"),
        ("classes", "CLASS_SCORES"),
        ("adaptive", "TAIL_SCORES"),
    ):
        layer, h = output_layer(name, 6, COUNTS), torch.randn(2, 6)
        (form,) = (form for form in FORMS if form.replaces(layer, "loss"))
        assert form.serves(layer, h)
        monkeypatch.setattr(gpu, f"MAX_{limit}", 1)
        assert not form.serves(layer, h)


def test_sparse_gradients_stay_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "on_gpu", lambda h: True)
    layer = output_layer("classes", 6, COUNTS, sparse=True)
    assert isinstance(layer, SparseRows) and layer.sparse
    assert not any(form.serves(layer, torch.randn(2, 6)) for form in FORMS if form.replaces(layer, "loss"))


def test_draws_are_those_of_the_cpu_from_the_same_bits() -> None:
    table = AliasTable(np.random.default_rng(0).random(1000) ** 8)
    bits = torch.empty(100_000, dtype=torch.int64).random_()
    bits[:2] = torch.tensor([0, (1 << 63) - 1])
    found = chosen_outcomes(bits, *map(torch.from_numpy, table.arrays()))
    assert found.tolist() == table.outcomes(bits.numpy()).tolist()


def test_windows_on_a_device_are_those_in_memory() -> None:
    rng = np.random.default_rng(0)
    ids = np.append(rng.integers(0, 9, 50), 9).astype(np.uint8)  # `<s>` last
    windows = Windows(ids, positions(np.array([0, 3, 17]), 50))
    index = rng.permutation(50)
    for one, other in zip(DeviceWindows(windows, torch.device("cpu"))(index, 6), windows(index, 6), strict=True):
        assert one.dtype == torch.int64 and one.tolist() == other.tolist()

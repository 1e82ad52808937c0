"""What devices do: whether they multiply bfloat16 faster, have memory for dense gradients, repeat their results."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor

from lmtool.neural import devices
from lmtool.neural.devices import fits_dense, repeatable


class Clock:
    """A clock that each product advances, by the seconds given for float32 and bfloat16, or by `odd` for some turns."""

    def __init__(self, single: float, narrow: float, odd: dict[int, float]) -> None:
        self.seconds, self.turn = {torch.float32: single, torch.bfloat16: narrow}, 0
        self.now, self.odd = 0.0, odd

    def mm(self, left: Tensor, right: Tensor) -> None:
        self.now += self.odd.get(self.turn, self.seconds[left.dtype])
        self.turn += 1


@pytest.mark.parametrize(
    ("single", "narrow", "odd", "pays"),
    [
        (3.0, 2.0, {}, True),
        (2.9, 2.0, {}, False),
        (3.0, 2.0, {1: 100.0, 3: 100.0, 2: 100.0}, True),  # something else ran; and the first call prepares
        (3.0, 2.0, {0: 1.0}, True),  # the first turn does not count
        (3.0, 2.0, {18: 1.0}, False),  # the last one does
    ],
)
def test_whether_bf16_pays_is_measured(
    single: float, narrow: float, odd: dict[int, float], pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(single, narrow, odd)
    monkeypatch.setattr(devices, "has_bf16", lambda device: True)
    monkeypatch.setattr(torch, "mm", clock.mm)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    assert devices._measured_faster.__wrapped__() is pays
    assert clock.turn == 20


def test_without_units_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_bf16", lambda device: False)
    monkeypatch.setattr(torch, "mm", None)
    assert devices._measured_faster.__wrapped__() is False
    monkeypatch.setattr(devices, "_measured_faster", lambda: True)
    assert devices.multiplies_bf16(torch.zeros(1)) and not devices.multiplies_bf16(torch.zeros(1).double())


def test_memory_for_dense_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 20, 1 << 30))
    assert fits_dense(cuda, 1 << 15) and not fits_dense(cuda, (1 << 15) + 1)
    assert fits_dense(torch.device("cpu"), 1 << 40)


def test_results_are_repeated_on_a_gpu_alone() -> None:
    cuda, cpu = torch.device("cuda", 0), torch.device("cpu")
    for device, wanted in ((cuda, True), (cuda, False), (cpu, True)):
        with repeatable(device, wanted):
            assert torch.are_deterministic_algorithms_enabled() is (wanted and device.type == "cuda")
    assert not torch.are_deterministic_algorithms_enabled()

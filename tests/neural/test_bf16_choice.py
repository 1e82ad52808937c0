"""Which form of the full softmax is chosen for bfloat16 on which processor, and that each keeps its own memory."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lmtool.config.training import Precision
from lmtool.neural import devices
from lmtool.neural.encoders.options import NplmModel
from lmtool.neural.forms import chosen, softmax_bf16, softmax_chunks, tiles
from lmtool.neural.forms.network_step import network_step
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.softmax import FullSoftmax
from lmtool.system import parallel
from tests.conftest import nplm


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
    monkeypatch.setattr(tiles, "fit", lambda tensor: name == "sapphirerapids")
    monkeypatch.setattr(devices, "_measured_faster", lambda: True)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: name)
    return name


FORMS = {"znver5": "softmax_bf16", "cooperlake": "softmax_autocast", "sapphirerapids": "softmax_tiles"}


def test_the_form_follows_the_processor(processor: str) -> None:
    layer = FullSoftmax(64, torch.ones(10_000), precision=Precision.bf16)
    found = chosen(layer, "loss", torch.zeros(128, 64))
    assert found is not None and found.name == FORMS[processor]


def test_auto_takes_as_many_examples_as_the_form_needs(processor: str) -> None:
    # 32 x 64 x 10,000 products are enough for dot products, from 2^24 on, but not for other forms, from 2^26 on.
    layer = FullSoftmax(64, torch.ones(10_000), precision=Precision.auto)
    names = [found and found.name for found in (chosen(layer, "loss", torch.zeros(size, 64)) for size in (32, 128))]
    assert names == [FORMS[processor] if processor == "znver5" else None, FORMS[processor]]


def test_a_whole_step_in_bf16_is_by_dot_products_alone(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax_chunks, "MIN_BF16_PRODUCTS", 0)
    monkeypatch.setattr(softmax_chunks, "MIN_BF16_PRODUCTS_DOTS", 0)
    config: NplmModel = nplm(dropout=0.0, input_dropout=0.0, layer_norm=False, gated=False, fofe_window=0)
    encoder = config.build(10, tied=False, sparse=True)
    net = NeuralModel(encoder, FullSoftmax(encoder.output_dim, torch.ones(9), precision=Precision.auto), 10)
    step = network_step(net, 0.0, 64, None)
    assert (step is not None) == (processor == "znver5")
    assert step is None or step.bf16

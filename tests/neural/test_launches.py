"""The operations of a training step on a GPU, counted without one by ./scripts/measure launches."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="the scripts are not there")
LAYERS = ["softmax", "hierarchical", "hierarchical, union", "morin_bengio", "nce", "nce, own noise", "sampled"]
LAYERS += ["classes", "adaptive"]


@pytest.fixture(scope="module")
def counting() -> Any:
    sys.path.insert(0, str(SCRIPTS))
    try:
        import measure_launches
    finally:
        sys.path.remove(str(SCRIPTS))
    return measure_launches


def test_all_layers_are_counted(counting: Any) -> None:
    assert list(counting.layers(counting.VOCABULARY, counting.HIDDEN)) == LAYERS


@pytest.mark.parametrize("name", LAYERS)
def test_a_step_has_at_most_40_and_none_waits(name: str, counting: Any) -> None:
    from lmtool.neural.devices import device_path

    encoder = counting.encoder(counting.encoders()["nplm, as in the paper"], counting.VOCABULARY)
    output = counting.layers(counting.VOCABULARY, encoder.output_dim)[name]()
    with device_path():
        operations = counting.counted(encoder, output, clip=False)
    assert 15 <= operations.launches <= 40
    assert operations.waits == 0


def test_what_is_counted(counting: Any) -> None:
    x = torch.ones(3, 2, requires_grad=True)
    with counting.Operations() as operations:
        loss = nn.functional.relu(x.view(2, 3) * 2).sum()  # mul, relu, sum; a view moves nothing
        loss.item()  # waits
    assert dict(operations.count) == {"mul": 1, "relu": 1, "sum": 1, "_local_scalar_dense": 1}
    assert (operations.launches, operations.waits) == (4, 1)

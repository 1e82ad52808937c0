"""./scripts/measure roofline: what algorithms need, by hand."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch

from lmtool.neural import HierarchicalSoftmax
from lmtool.neural.model import NeuralModel
from lmtool.trees import huffman_tree
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(not (ROOT / "scripts").is_dir(), reason="the scripts are not beside the tests")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("measure_roofline")


def test_needs_by_hand(script: Any) -> None:
    # 3 inputs, 4 outputs: 12 weights and 4 biases; an exponential has 24 operations, tanh with its gradient 34.
    assert script._matrix(3, 4, 2, 24) == (6 * 12 + 4 * 24, 0, 8 * 16 / 2, 0, 64)
    assert script._matrix(3, 4, 2, 24, bf16=True) == (96, 72, 64, 0, 64)
    ids = torch.tensor([7, 2, 7, 4])  # three vectors of 16 numbers, a line each, are read and written by two examples
    assert script._rows(ids, 2, 16, 10) == (0, 0, 0, 3, 640)
    assert script._scores(5, 2) == (108, 0, 0, 0, 0)
    assert script._sorting(23, 10) == (0, 0, 3 * 32, 0, 240)  # three passes of up to 11 bits


def test_ngrams_are_looked_up_until_one_is_missing(script: Any) -> None:
    # Order 3. A word after <s> alone; a trigram in the model; one not in it; a bigram not in it: 1, 2, 2, 1.
    needs = script._lookups(np.array([2, 3, 2, 1]), np.array([1, 2, 2, 2]), 3, 10)
    assert needs == (0, 0, 16, 1.5, 320)


def test_a_network_needs_what_its_layers_need(script: Any) -> None:
    steps = importlib.import_module("network_steps")
    words = [*steps.PAPER, "model.embedding_dim=3", "model.hidden_dim=4", "model.context_size=2"]
    encoder = steps.settings_of(*words).model.build(5, tied=False, sparse=True)
    tree = huffman_tree(np.ones(4, dtype=np.int64))  # all words below two nodes
    model = NeuralModel(encoder, HierarchicalSoftmax(4, tree, torch.ones(4), sparse=True), 5)
    assert script._of_network(model, torch.zeros(4, 2, dtype=torch.int64), torch.arange(4), False) == [
        (0, 0, 0, 2 * 12 / 64 / 4, 60),  # all context words are the same one, whose embedding has 12 bytes
        (6 * 24 + 4 * 34, 0, 8 * 28 / 4, 0, 112),
        (0, 0, 0, 2 * 3 * 20 / 64 / 4, 60),  # three nodes, vector and bias
        (2 * (24 + 24), 0, 0, 0, 0),
    ]


def test_the_limit_is_the_slower_of_operations_and_memory(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "_product", lambda kind, batch, hidden, threads: batch * hidden * len(kind))
    monkeypatch.setattr(script, "_bandwidth", lambda size, threads: size * threads)
    monkeypatch.setattr(script, "_lines", lambda size, threads: size / 2)
    fastest = 1024 * 512
    assert script._limit(script.Needs(fp32=7 * fastest, bf16=4 * fastest), 1) == (1 + 0.5, "operations")
    assert script._limit(script.Needs(in_order=4 << 20, lines=1 << 20, size=(1 << 20) + 1), 2) == (1 + 1, "memory")

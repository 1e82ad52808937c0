"""Probabilities of all words from one product."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmtool.neural.kernels.softmax_rows import softmax_rows
from lmtool.neural.outputs.softmax import FullSoftmax


def test_by_hand() -> None:
    scores = np.log(np.array([[1, 2, 5, 9], [3, 3, 2, 9]], dtype=np.float32))
    softmax_rows(scores, scores[:, :3].max(axis=1), 3, 0, 2)
    np.testing.assert_allclose(scores, [[0.125, 0.25, 0.625, 0], [0.375, 0.375, 0.25, 0]], rtol=1e-6)


def test_rows_sum_to_one_beside_a_likely_word() -> None:
    # torch's own sum loses what is far below the largest: here each of 20,000 words has 2^-25 of it.
    scores = np.full((1, 20_001), np.log(2.0**-25), dtype=np.float32)
    scores[0, 0] = 0
    softmax_rows(scores, np.zeros(1, dtype=np.float32), 20_001, 0, 1)
    assert scores.sum(dtype=np.float64) == pytest.approx(1, abs=3e-7)  # the sum and each word are rounded once
    assert scores[0, 0] == pytest.approx(1 / (1 + 20_000 / 2**25), abs=3e-7)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("words", [5, 16, 37])
def test_a_layer_gives_exp_of_log_dist(kind: torch.dtype, words: int) -> None:
    torch.manual_seed(3)
    layer = FullSoftmax(4, torch.arange(1, words + 1)).to(kind)
    h = torch.randn(9, 4, dtype=kind)
    p = layer.probabilities(h, words + 1)
    assert p.shape == (9, words + 1) and not p[:, words].any() and not p.requires_grad
    tolerance = {torch.float32: 2e-6, torch.float64: 1e-13, torch.bfloat16: 0.05}[kind]
    torch.testing.assert_close(p[:, :words].double(), layer.log_dist(h).exp(), rtol=tolerance, atol=0)

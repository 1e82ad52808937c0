"""The compiled step of skip-gram against its plain form; negative sampling against its formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lmtool.neural import NegativeSampling
from lmtool.neural.encoders.linear import CBOW
from lmtool.neural.encoders.options import SkipgramModel
from lmtool.neural.forms import only_plain
from lmtool.neural.forms.pair_step import pair_step
from lmtool.neural.model import NeuralModel

V, E = 40, 12
COUNTS = torch.arange(V - 1, 0, -1) ** 2


def network(*, bias: bool = False, dropout: float = 0.0) -> NeuralModel:
    torch.manual_seed(3)
    settings = SkipgramModel("skipgram", 1, E, False, dropout, window=5, shrink_windows=True, subsample=0.0)
    encoder, output = CBOW(settings, V, sparse=True), NegativeSampling(E, COUNTS, noise=4, bias=bias, sparse=True)
    torch.nn.init.normal_(output.vectors)
    return NeuralModel(encoder, output, V)


def pairs(size: int) -> tuple[Tensor, Tensor]:
    return torch.randint(V, (size, 1)), torch.randint(V - 1, (size,))


@pytest.mark.parametrize("double", [True, False])
def test_a_step_is_that_of_autograd(double: bool) -> None:
    # 8,000 pairs are enough work for two threads.
    fast, plain = (network().double() if double else network() for _ in range(2))
    step = pair_step(fast)
    assert step is not None
    for size in (1, 8_000):
        contexts, targets = pairs(size)
        torch.manual_seed(size)
        loss = step.step(contexts, targets, 0.7 * size, math.inf)
        torch.manual_seed(size)
        with only_plain():
            wanted = plain(contexts, targets)
        wanted.backward()
        for weight in plain.parameters():
            if weight.grad is not None:
                weight.data -= 0.7 * size / 50 * weight.grad.to_dense() if size > 1 else 0.7 * weight.grad.to_dense()
                weight.grad = None
        tolerance = {"rtol": 1e-10, "atol": 1e-12} if double else {"rtol": 1e-3, "atol": 1e-4}
        assert loss == pytest.approx(wanted.item(), rel=1e-10 if double else 1e-5)
        if size == 1:
            for one, other in zip(fast.parameters(), plain.parameters(), strict=True):
                torch.testing.assert_close(one, other, **tolerance)

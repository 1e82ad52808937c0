"""Negative sampling against its formula, and the compiled step of skip-gram against its plain form."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lmtool.neural import NegativeSampling
from lmtool.neural.encoders.linear import CBOW
from lmtool.neural.encoders.options import SkipgramModel
from lmtool.neural.forms import only_plain
from lmtool.neural.forms.pair_step import pair_step
from lmtool.neural.model import NeuralModel
from lmtool.system import parallel

V, E, K = 40, 12, 4
COUNTS = torch.arange(V - 1, 0, -1) ** 2


def network(*, bias: bool = False, dropout: float = 0.0, tied: bool = False) -> NeuralModel:
    torch.manual_seed(3)
    settings = SkipgramModel("skipgram", 1, E, tied, dropout, window=5, shrink_windows=True, subsample=0.0)
    encoder = settings.build(V, tied=tied, sparse=True)
    vectors = encoder.embedding.weight if tied else None
    output = NegativeSampling(E, COUNTS, vectors, noise=K, bias=bias, sparse=True)
    torch.nn.init.normal_(output.vectors)
    model = NeuralModel(encoder, output, V)  # type: ignore[arg-type]
    assert isinstance(model.encoder, CBOW)
    return model


def pairs(size: int) -> tuple[Tensor, Tensor]:
    return torch.randint(V, (size, 1)), torch.randint(V - 1, (size,))


@pytest.mark.parametrize("plain", [False, True])
def test_the_loss_and_its_gradients_are_those_of_the_formula(plain: bool) -> None:
    layer = network().output.double()
    h, y, draws = torch.randn(7, E).double().requires_grad_(), torch.randint(V - 1, (7,)), torch.randint(V - 1, (7, K))
    with only_plain(plain):
        found = torch.autograd.grad(loss := layer.loss_with(h, y, draws), [h, layer.vectors])
    u, g = layer.vectors.detach().requires_grad_(), h.detach().requires_grad_()
    scores = torch.einsum("bd,bkd->bk", g, u[torch.cat([y[:, None], draws], 1)])
    wanted = -(F.logsigmoid(scores[:, 0]) + F.logsigmoid(-scores[:, 1:]).sum(1)).mean()
    torch.testing.assert_close(loss, wanted)
    for one, other in zip(found, torch.autograd.grad(wanted, [g, u]), strict=True):
        torch.testing.assert_close(one.to_dense(), other)


def test_without_steps_each_word_has_its_noise_probability() -> None:
    layer = NegativeSampling(E, COUNTS)
    q = (COUNTS + 0.5) ** 0.75
    torch.testing.assert_close(layer.log_dist(torch.randn(2, E)).exp()[1].float(), q / q.sum(), rtol=1e-5, atol=0)


@pytest.mark.parametrize(("double", "size"), [(True, 1), (True, 3000), (False, 3000)])
def test_a_step_is_that_of_autograd_whatever_the_threads(double: bool, size: int) -> None:
    plain = network().double() if double else network()
    contexts, targets = pairs(size)
    torch.manual_seed(size)
    with only_plain():
        wanted = plain(contexts, targets)
    wanted.backward()
    found = []
    for threads in (1, 3):
        fast = network().double() if double else network()
        step = pair_step(fast)
        assert step is not None
        torch.manual_seed(size)  # the same draws
        with parallel.restore_threads():
            parallel.use(threads)
            assert step.step(contexts, targets, 2.0, 1e-3) > 1e-3  # a loss above the limit: no step
            torch.manual_seed(size)
            loss = step.step(contexts, targets, 2.0, math.inf)
        found.append((loss, *(weight.detach() for weight in fast.parameters())))
        assert loss == pytest.approx(wanted.item(), rel=1e-12 if double else 1e-5)
        for one, other in zip(fast.parameters(), plain.parameters(), strict=True):
            moved = other if other.grad is None else other - 2.0 * other.grad.to_dense()
            torch.testing.assert_close(one, moved, **({} if double else {"rtol": 1e-4, "atol": 1e-5}))
    assert found[0][0] == found[1][0] and all(map(torch.equal, found[0][1:], found[1][1:]))  # to the bit


def test_a_pair_far_on_the_wrong_side_has_a_finite_loss() -> None:
    model = network()
    with torch.no_grad():
        model.encoder.embedding.weight.fill_(1)
        model.output.vectors.fill_(-4)  # type: ignore[union-attr]
    step = pair_step(model)
    assert step is not None and step.step(*pairs(5), 0.1, math.inf) == pytest.approx(4 * E, rel=1e-5)


def test_other_models_have_no_such_step() -> None:
    assert pair_step(network()) is not None
    for other in (network(bias=True), network(dropout=0.1), network(tied=True)):
        assert pair_step(other) is None
    dense = network()
    dense.use_dense_gradients()
    assert pair_step(dense) is None
    with only_plain():
        assert pair_step(network()) is None

"""The full softmax's hand-written gradients against autograd and torch's cross entropy."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from lmtool.config.training import Precision
from lmtool.neural.outputs import softmax, word_scores
from lmtool.neural.outputs.softmax import FullSoftmax


def layer(outputs: int = 11, dim: int = 5, dtype: torch.dtype = torch.float64) -> FullSoftmax:
    torch.manual_seed(0)
    return FullSoftmax(dim, torch.arange(outputs)).to(dtype)


@pytest.fixture(autouse=True)
def no_short_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small as the sizes of tests are, have the loops do the work that they do for large ones."""
    monkeypatch.setattr(softmax, "TINY", 0)


def test_gradients_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "CHUNK", 4)  # 9 rows: two whole chunks and a rest
    output = layer()
    h = torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
    y = torch.randint(0, 11, (9,))
    assert torch.autograd.gradcheck(
        lambda h, w, b: softmax._SoftmaxLoss.apply(h, w, b, y, softmax._Workspace()),
        (h, output.vectors, output.bias),
    )


@pytest.mark.parametrize("chunk", [3, 8, 512])
def test_equals_cross_entropy(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "CHUNK", chunk)
    output = layer()
    h = torch.randn(8, 5, dtype=torch.float64, requires_grad=True)
    y = torch.randint(0, 11, (8,))
    plain = F.cross_entropy(h @ output.vectors.T + output.bias, y)
    want = torch.autograd.grad(3 * plain, (h, output.vectors, output.bias))
    loss = output(h, y)
    found = torch.autograd.grad(3 * loss, (h, output.vectors, output.bias))
    torch.testing.assert_close(loss, plain)
    for ours, theirs in zip(found, want, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_hopeless_word_has_a_finite_loss() -> None:
    # Its probability, e^-1000, is 0 in float32; its loss is 1000 all the same.
    output = layer(outputs=3, dim=1, dtype=torch.float32)
    with torch.no_grad():
        output.vectors.copy_(torch.tensor([[1000.0], [0.0], [0.0]]))
        output.bias.zero_()
    assert output(torch.ones(1, 1), torch.tensor([1])).item() == pytest.approx(1000)


def test_starts_at_the_unigram_distribution() -> None:
    output = FullSoftmax(4, torch.tensor([6, 3, 0]))
    dist = output.log_dist(torch.zeros(1, 4))[0].exp()
    want = torch.tensor([6.5 / 10.5, 3.5 / 10.5, 0.5 / 10.5], dtype=torch.float64)
    torch.testing.assert_close(dist, want, atol=1e-7, rtol=0)  # float32 inside


def test_bf16_is_near_fp32() -> None:
    torch.manual_seed(0)
    exact = layer(outputs=300, dim=16, dtype=torch.float32)
    rough = FullSoftmax(16, torch.arange(300), precision=Precision.bf16)
    rough.load_state_dict(exact.state_dict())
    h, y = torch.randn(40, 16), torch.randint(0, 300, (40,))
    found = []
    for output in (exact, rough):
        hidden = h.clone().requires_grad_()
        loss = output(hidden, y)
        loss.backward()
        found.append([loss.detach(), hidden.grad, output.vectors.grad, output.bias.grad])
    for ours, theirs in zip(*found, strict=True):
        assert (ours - theirs).norm() < 0.02 * ours.norm()
    assert not torch.equal(found[0][1], found[1][1])


def test_tiny_ones_by_torch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    output = layer()
    found = []
    for tiny in (0, 1 << 12):
        monkeypatch.setattr(softmax, "TINY", tiny)
        h = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        output.zero_grad()
        loss = output(h, torch.arange(7))
        loss.backward()
        found.append([loss.detach(), h.grad, *(parameter.grad for parameter in output.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_log_z_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    output, h = layer(outputs=29), torch.randn(7, 5, dtype=torch.float64)
    want = (h @ output.vectors.T + output.bias).logsumexp(1)
    torch.testing.assert_close(output.log_z(h), want)
    monkeypatch.setattr(word_scores, "COLUMNS", 8)
    monkeypatch.setattr(word_scores, "BLOCK", 16)
    torch.testing.assert_close(output.log_z(h), want)

"""Scores with rows of an example's own and shared ones, by compiled loops, against tensor operations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lmtool.neural.kernels import sparse_rows
from lmtool.neural.kernels.shared_rows import own_and_shared_scores, own_and_shared_scores_plain

Form = Callable[..., tuple[Tensor, Tensor]]


@pytest.fixture(params=[1 << 15, 1], ids=["one thread", "several"])
def _threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_rows, "SMALL", request.param)


def given(dtype: torch.dtype, examples: int = 9, rows: int = 6, shared: int = 4) -> tuple[Tensor, ...]:
    """h, weight, bias, shift, own and shared; with repeated rows, and one that is own and shared."""
    torch.manual_seed(2)
    floats = [torch.randn(shape, dtype=dtype) for shape in ((examples, 5), (rows, 5), (rows,), (rows,))]
    for tensor in floats[:3]:
        tensor.requires_grad_()
    own = torch.randint(rows, (examples,))
    others = torch.randint(rows, (shared,))
    others[0] = own[0]
    return *floats, own, others


def test_by_hand() -> None:
    h, weight = torch.tensor([[1.0, 2.0], [3.0, -1.0]]), torch.tensor([[1.0, 1.0], [0.5, 0.0], [2.0, -1.0]])
    bias, shift = torch.tensor([0.25, 0.0, 1.0]), torch.tensor([1.0, 0.5, 0.0])
    own, others = own_and_shared_scores(
        h, weight, bias, shift, torch.tensor([1, 2]), torch.tensor([0, 2, 0]), sparse=True
    )
    assert own.tolist() == [0.0, 8.0]  # 0.5 + 0 - 0.5; 7 + 1 - 0
    assert others.tolist() == [[2.25, 1.0, 2.25], [1.25, 8.0, 1.25]]  # 3 - .75, 0 + 1, ...


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_and_gradients_are_those_of_the_plain_form(dtype: torch.dtype, sparse: bool) -> None:
    tensors = given(dtype)
    factors = torch.randn(9, dtype=dtype), torch.randn(9, 4, dtype=dtype)

    def run(form: Form) -> list[Tensor]:
        scores = form(*tensors, sparse=sparse)
        loss = sum((score * factor).sum() for score, factor in zip(scores, factors, strict=True))
        grads = torch.autograd.grad(loss, tensors[:3])
        assert [grad.is_sparse for grad in grads] == [False, sparse, sparse]
        assert not sparse or grads[1].is_coalesced()
        return [*scores, *(grad.to_dense() for grad in grads)]

    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    for found, want in zip(run(own_and_shared_scores), run(own_and_shared_scores_plain), strict=True):
        torch.testing.assert_close(found, want, rtol=tolerance, atol=tolerance)


def test_gradients_by_differences() -> None:
    h, weight, bias, *rest = given(torch.float64)

    def scores(*weights: Tensor) -> tuple[Tensor, Tensor]:
        return own_and_shared_scores(*weights, *rest, sparse=False)

    assert torch.autograd.gradcheck(scores, (h, weight, bias))


def test_one_of_the_scores_alone_has_a_gradient() -> None:
    h, weight, bias, shift, own, shared = given(torch.float64)
    (_, others) = own_and_shared_scores(h, weight, bias, shift, own, shared, sparse=False)
    (grad,) = torch.autograd.grad(others.sum(), bias)
    assert grad.tolist() == (9.0 * torch.bincount(shared, minlength=6)).tolist()

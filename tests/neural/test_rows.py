"""Compiled loops over used rows against tensor operations on whole matrices."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from lmtool.neural.kernels import loops, sparse_rows
from lmtool.neural.kernels.sparse_rows import (
    Groups,
    Pairs,
    coalesced,
    logistic_loss,
    lookup,
    pairs_of,
    row_scores,
    row_scores_plain,
)


@pytest.fixture(params=[1 << 14, 1], ids=["one thread", "several"])
def _threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_rows, "SMALL", request.param)


def ragged(sizes: list[int], highest: int) -> Pairs:
    starts = torch.tensor([0, *np.cumsum(sizes)])
    owner = torch.arange(len(sizes), dtype=torch.int32).repeat_interleave(torch.tensor(sizes))
    return Pairs(torch.randint(0, highest, (int(starts[-1]),), dtype=torch.int32), starts, owner)


@pytest.mark.parametrize("highest", [1, 2, 5, 2048, 2049, 70_000, 5_000_000])
def test_sort_rows(highest: int) -> None:
    given = np.random.default_rng(1).integers(0, highest, 5000)
    order = np.empty(len(given), dtype=np.int32)
    unique, starts = loops.sort_rows(given, order)
    want, counts = np.unique(given, return_counts=True)
    np.testing.assert_array_equal(unique, want)
    np.testing.assert_array_equal(starts, np.concatenate([[0], np.cumsum(counts)]))
    np.testing.assert_array_equal(order, np.argsort(given, kind="stable"))


def test_sort_rows_of_nothing_and_of_zeros() -> None:
    order = np.empty(3, dtype=np.int32)
    unique, starts = loops.sort_rows(np.zeros(3, dtype=np.int32), order)
    assert (unique.tolist(), starts.tolist(), order.tolist()) == ([0], [0, 3], [0, 1, 2])
    unique, starts = loops.sort_rows(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))
    assert (len(unique), starts.tolist()) == (0, [0])


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lookup_is_torchs_embedding(
    plain: bool, sparse: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    if plain:
        monkeypatch.setattr(sparse_rows, "compiled", lambda tensor: False)
    weight = torch.randn(40, 7, dtype=dtype, requires_grad=True)
    ids, factor = torch.randint(0, 40, (6, 5)), torch.randn(6, 5, 7, dtype=dtype)
    want = torch.nn.functional.embedding(ids, weight)
    found = lookup(weight, ids, sparse=sparse)
    assert torch.equal(found, want)
    (want_grad,) = torch.autograd.grad((want * factor).sum(), weight)
    (grad,) = torch.autograd.grad((found * factor).sum(), weight)
    assert grad.is_sparse == sparse
    bias = weight.detach()[:, 0].clone().requires_grad_()
    (bias_grad,) = torch.autograd.grad((lookup(bias, ids, sparse=sparse) * factor[:, :, 0]).sum(), bias)
    torch.testing.assert_close(bias_grad.to_dense() if sparse else bias_grad, want_grad[:, 0])
    torch.testing.assert_close(grad.to_dense() if sparse else grad, want_grad)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_row_scores_are_the_plain_ones(sparse: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    pairs = ragged([3, 0, 5, 1, 17, 0], 30)
    given = [torch.randn(6, 9, dtype=dtype), torch.randn(40, 9, dtype=dtype), torch.randn(40, dtype=dtype)]
    factor = torch.randn(26, dtype=dtype)

    def run(form: Callable[..., Tensor]) -> list[Tensor]:
        values = [value.clone().requires_grad_() for value in given]
        scores = form(*values, pairs, sparse=sparse)
        (scores * factor).sum().backward()
        assert values[1].grad.is_sparse == values[2].grad.is_sparse == sparse
        return [scores.detach(), *(value.grad.to_dense() for value in values)]

    for found, want in zip(run(row_scores), run(row_scores_plain), strict=True):
        torch.testing.assert_close(found, want)


def test_row_scores_by_hand() -> None:
    h, weight, bias = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0], [3.0, -1.0]]), torch.tensor([0.5, 0.25])
    assert row_scores(h, weight, bias, pairs_of(torch.tensor([[1, 0, 1]])), sparse=False).tolist() == [1.25, 2.5, 1.25]


def test_gradcheck_in_float64() -> None:
    torch.manual_seed(0)
    pairs = ragged([2, 4, 0, 3], 6)
    values = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 3), (6, 3), (6,))]
    assert torch.autograd.gradcheck(lambda *v: row_scores(*v, pairs, sparse=False), values)
    ids = torch.randint(0, 6, (4, 2))
    assert torch.autograd.gradcheck(lambda w: lookup(w, ids, sparse=False), values[1])


def test_a_gradient_that_is_in_order_is_not_sorted_again() -> None:
    for index, in_order in (([1, 4, 6], True), ([4, 1, 6], False), ([1, 1, 6], False)):
        given = torch.sparse_coo_tensor(torch.tensor([index]), torch.ones(3, 2), (8, 2), check_invariants=False)
        assert bool(loops.ascending(np.array(index))) == in_order
        found = coalesced(given)
        assert found.is_coalesced()
        want = torch.zeros(8, 2)
        for row in index:
            want[row] += 1
        assert torch.equal(found.to_dense(), want)


@pytest.mark.parametrize("form", ["loops", "plain"])
def test_logistic_loss_by_hand(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # -log sigmoid: of 0 ln 2; of ln 3 and of -(-ln 3) ln 4/3, with gradients sign (sigmoid - 1) of -1/4 and 1/4.
    monkeypatch.setattr(sparse_rows, "compiled", lambda tensor: form == "loops")
    scores = torch.tensor([[0.0, math.log(3)], [-math.log(3), 0.0]], dtype=torch.float64, requires_grad=True)
    loss = logistic_loss(scores, torch.tensor([[1, 1], [-1, -1]], dtype=torch.int32))
    assert loss.item() == pytest.approx(2 * math.log(2) + 2 * math.log(4 / 3))
    (2 * loss).backward()
    torch.testing.assert_close(scores.grad, torch.tensor([[-1, -0.5], [0.5, 1]], dtype=torch.float64))
    # One sign for all.
    assert logistic_loss(scores, torch.tensor([-1], dtype=torch.int32)).item() == pytest.approx(
        2 * math.log(2) + math.log(4) + math.log(4 / 3)
    )


def test_places_of_rows() -> None:
    groups = Groups(torch.tensor([7, 2, 7, 7, 4], dtype=torch.int32))
    assert groups.unique.tolist() == [2, 4, 7] and groups.starts.tolist() == [0, 1, 2, 5]
    assert groups.places().tolist() == [2, 0, 2, 2, 1] and groups.order.tolist() == [1, 4, 0, 2, 3]

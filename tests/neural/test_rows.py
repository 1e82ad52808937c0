"""Work on used rows alone: plain torch, and the compiled loops that group equal rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lmtool.neural import DotNodes, MorinBengioNodes
from lmtool.neural.forms import loops, only_plain, used
from lmtool.neural.forms.loops import Groups, coalesce, rows_gradient
from lmtool.neural.rows import Pairs, RowScores, log_sum_exp, pairs_of, rows_of, segments
from lmtool.system import parallel


def ragged(sizes: list[int], highest: int) -> Pairs:
    starts = torch.tensor([0, *np.cumsum(sizes)])
    owner = torch.arange(len(sizes), dtype=torch.int32).repeat_interleave(torch.tensor(sizes))
    return Pairs(torch.randint(0, highest, (int(starts[-1]),), dtype=torch.int32), starts, owner)


def test_segments_by_hand() -> None:
    offsets = torch.tensor([0, 2, 2, 5])
    starts, owner, places = segments(offsets, torch.tensor([2, 0, 1, 2]))
    assert starts.tolist() == [0, 3, 5, 5, 8] and owner.tolist() == [0, 0, 0, 1, 1, 3, 3, 3]
    assert places.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    starts, owner, places = segments(offsets, torch.empty(0, dtype=torch.int64))
    assert (starts.tolist(), owner.tolist(), places.tolist()) == ([0], [], [])


@pytest.mark.parametrize("shift", [0.0, 1000.0, -1000.0])
def test_log_sum_exp_of_segments(shift: float) -> None:
    torch.manual_seed(0)
    values = (torch.randn(6, dtype=torch.float64) + shift).requires_grad_()
    starts, owner = torch.tensor([0, 1, 4, 6]), torch.tensor([0, 1, 1, 1, 2, 2])
    found = log_sum_exp(values, starts, owner)
    torch.testing.assert_close(found, torch.stack([part.logsumexp(0) for part in values.split([1, 3, 2])]))
    assert torch.autograd.gradcheck(lambda v: log_sum_exp(v, starts, owner), values)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_rows_of_a_matrix_and_of_a_vector(kind: torch.dtype, sparse: bool) -> None:
    torch.manual_seed(0)
    weight = torch.randn(40, 7, dtype=torch.float64, requires_grad=True)
    ids, factor = torch.randint(0, 40, (6, 5), dtype=kind), torch.randn(6, 5, 7, dtype=torch.float64)
    found = rows_of(weight, ids, sparse=sparse)
    assert torch.equal(found, weight[ids.long()])
    want = torch.zeros(40, 7, dtype=torch.float64).index_add_(0, ids.flatten().long(), factor.flatten(0, 1))
    (grad,) = torch.autograd.grad((found * factor).sum(), weight)
    bias = weight.detach()[:, 0].clone().requires_grad_()
    of_bias = rows_of(bias, ids, sparse=sparse)
    assert torch.equal(of_bias, bias[ids.long()])
    (bias_grad,) = torch.autograd.grad((of_bias * factor[:, :, 0]).sum(), bias)
    assert grad.is_sparse == bias_grad.is_sparse == sparse
    torch.testing.assert_close(grad.to_dense() if sparse else grad, want)
    torch.testing.assert_close(bias_grad.to_dense() if sparse else bias_grad, want[:, 0])


class Rows(RowScores):
    """Forty rows."""

    def __init__(self, dim: int, *, sparse: bool) -> None:
        super().__init__()
        self.vectors, self.bias = nn.Parameter(torch.randn(40, dim)), nn.Parameter(torch.randn(40))
        self.sparse = sparse


def test_pair_scores_by_hand() -> None:
    layer = Rows(2, sparse=False)
    with torch.no_grad():
        layer.vectors[:2] = torch.tensor([[0.0, 1.0], [3.0, -1.0]])
        layer.bias[:2] = torch.tensor([0.5, 0.25])
    for plain in (False, True):
        with only_plain(plain):
            found = layer.computed("pair_scores", torch.tensor([[1.0, 2.0]]), pairs_of(torch.tensor([[1, 0, 1]])))
            assert found.tolist() == [1.25, 2.5, 1.25]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", ["rows", "dot", "morin_bengio"])
def test_examples_with_no_pair_and_with_many(
    name: str, sparse: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel._here, "threads", threads)
    monkeypatch.setattr(loops, "NUMBERS_PER_THREAD", 1)
    monkeypatch.setattr("lmtool.neural.forms.tree_loops.MIN_UNITS", 0)
    torch.manual_seed(0)
    layers: dict[str, nn.Module] = {
        "rows": Rows(9, sparse=sparse),
        "dot": DotNodes(9, torch.randn(40), sparse=sparse),
        "morin_bengio": MorinBengioNodes(9, torch.randn(40), hidden_dim=5, node_dim=3, sparse=sparse),
    }
    layer = layers[name].double()
    h, factor = torch.randn(6, 9, dtype=torch.float64, requires_grad=True), torch.randn(26, dtype=torch.float64)
    pairs = ragged([3, 0, 5, 1, 17, 0], 30)

    def run() -> list[Tensor]:
        scores = layer.computed("pair_scores", h, pairs)  # type: ignore[operator]
        grads = torch.autograd.grad((scores * factor).sum(), [h, *layer.parameters()])
        assert any(grad.is_sparse for grad in grads) == sparse
        return [scores.detach(), *(grad.to_dense() for grad in grads)]

    found = run()
    assert len(used(layer)) == 1
    with only_plain():
        torch.testing.assert_close(found, run())


# Equal rows side by side


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


def test_a_gradient_that_is_in_order_is_not_sorted_again() -> None:
    for index, in_order in (([1, 4, 6], True), ([4, 1, 6], False), ([1, 1, 6], False)):
        given = torch.sparse_coo_tensor(torch.tensor([index]), torch.ones(3, 2), (8, 2), check_invariants=False)
        assert bool(loops.ascending(np.array(index))) == in_order
        found = coalesce(given)
        assert found.is_coalesced()
        want = torch.zeros(8, 2)
        for row in index:
            want[row] += 1
        assert torch.equal(found.to_dense(), want)


def test_plain_forms_coalesce_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    given = torch.sparse_coo_tensor(torch.tensor([[4, 1, 4]]), torch.ones(3, 2), (8, 2), check_invariants=False)
    want = coalesce(given)
    monkeypatch.setattr(loops, "ascending", None)  # fails when it is called
    with only_plain():
        found = coalesce(given)
    assert torch.equal(found.indices(), want.indices()) and torch.equal(found.values(), want.values())


def test_places_of_rows() -> None:
    found = Groups(torch.tensor([7, 2, 7, 7, 4], dtype=torch.int32))
    assert found.unique.tolist() == [2, 4, 7] and found.starts.tolist() == [0, 1, 2, 5]
    assert found.places().tolist() == [2, 0, 2, 2, 1] and found.order.tolist() == [1, 4, 0, 2, 3]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_sums_of_rows(sparse: bool, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel._here, "threads", threads)
    monkeypatch.setattr(loops, "NUMBERS_PER_THREAD", 1)
    rows, values = (
        torch.tensor([7, 2, 7, 7, 4]),
        torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0], [9.0, 0.0]]),
    )
    found = Groups(rows)
    sums = found.sums(values)
    assert sums.tolist() == [[3, 4], [9, 0], [13, 16]]
    gradient = rows_gradient(torch.from_numpy(found.unique), sums, torch.Size((9, 2)), sparse)
    assert gradient.is_sparse == sparse and (not sparse or gradient.is_coalesced())
    assert torch.equal(gradient.to_dense(), torch.zeros(9, 2).index_add_(0, rows, values))

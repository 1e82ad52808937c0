"""FOFE, sums over long contexts: compiled loops against tensor operations and against autograd."""

from __future__ import annotations

import pytest
import torch

from lmtool.neural.encoders import history
from lmtool.neural.encoders.history import RUN, History, _Runs, words_and_sums, words_and_sums_plain
from lmtool.neural.kernels import sparse_rows
from lmtool.system import parallel

IDS = torch.tensor([[0, 1, 4, 6, 2], [5, 5, 1, 3, 0], [6, 6, 6, 6, 6]])


def values() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(5)
    return torch.randn(7, 4, dtype=torch.float64).requires_grad_(), torch.randn(
        2, 5, dtype=torch.float64
    ).requires_grad_()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("words", [0, 2, 5])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_loops_do_what_tensors_do(threads: int, words: int, sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_threads", threads)
    monkeypatch.setattr(sparse_rows, "SMALL", 1)
    require_as_plain(IDS, words, sparse=sparse)


def require_as_plain(ids: torch.Tensor, words: int, *, sparse: bool) -> None:
    results = []
    for form in (words_and_sums, words_and_sums_plain):
        vectors, factors = values()
        x = form(vectors, ids, factors, words, sparse=sparse)
        (x * torch.linspace(-1, 1, x.numel()).view_as(x)).sum().backward()
        assert vectors.grad is not None and vectors.grad.is_sparse == sparse
        results.append((x, vectors.grad.to_dense(), factors.grad))
    assert results[0][0].shape == (len(ids), words + 2, 4)
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain)


def test_the_gradient_is_autograds() -> None:
    vectors, factors = values()
    assert torch.autograd.gradcheck(lambda v, a: words_and_sums(v, IDS, a, 2, sparse=False), (vectors, factors))


def test_factors_start_as_powers_of_unit_length() -> None:
    sums = History([0.5, 1.0], 3, 1, 2)
    want = torch.tensor([[0.25, 0.5, 1.0], [1.0, 1.0, 1.0]])
    torch.testing.assert_close(sums.weights.detach(), want / want.square().sum(1, keepdim=True).sqrt())


TEXT = torch.tensor([4, 1, 0, 5, 5, 2, 6, 3, 1, 1, 0, 2, 4, 6, 0, 3, 5, 1, 2, 2, 6, 0, 4])
# Beginnings of contexts of 5 words: whole runs, then runs that are cut short, stand alone, and are longer than RUN.
WHOLE = [*range(8), *range(3, 11)]
BROKEN = [*range(5), 2, *range(9, 18), 0, *range(4, 7)]


def contexts(beginnings: list[int]) -> torch.Tensor:
    return torch.stack([TEXT[first : first + 5] for first in beginnings])


def test_runs_by_hand() -> None:
    runs = _Runs.of(contexts([3, 4, 5, 0, 1, 9]))
    assert runs is not None and RUN == 8
    assert runs.words[:, :7].tolist() == [[5, 5, 2, 6, 3, 1, 1], [4, 1, 0, 5, 5, 2, 4], [1, 0, 2, 4, 6, 1, 1]]
    assert runs.places is not None and runs.places.tolist() == [0, 1, 2, 8, 9, 16]
    whole = _Runs.of(contexts(WHOLE))
    assert whole is not None and whole.places is None
    assert whole.words.tolist() == [TEXT[:12].tolist(), TEXT[3:15].tolist()]
    assert _Runs.of(contexts([0, 5, 6, 3])) is None  # three runs of four contexts


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("words", [0, 2, 5])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("beginnings", [WHOLE, BROKEN])
def test_runs_do_what_tensors_do(
    beginnings: list[int], threads: int, words: int, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_threads", threads)
    monkeypatch.setattr(history, "_WordsAndSums", None)  # so that only runs can answer
    require_as_plain(contexts(beginnings), words, sparse=sparse)


def test_the_gradient_of_runs_is_autograds() -> None:
    vectors, factors = values()
    ids = contexts(BROKEN)
    assert torch.autograd.gradcheck(lambda v, a: words_and_sums(v, ids, a, 2, sparse=False), (vectors, factors))

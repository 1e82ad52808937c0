"""FOFE, sums over long contexts: the fast form against the plain formula and against autograd."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from lmtool.neural.encoders.nplm import CONSECUTIVE, History
from lmtool.neural.forms import chosen
from lmtool.neural.forms import history as file
from lmtool.neural.forms.history import MIN_NUMBERS, history
from lmtool.system import parallel

IDS = torch.tensor([[0, 1, 4, 6, 2], [5, 5, 1, 3, 0], [6, 6, 6, 6, 6]])


def values() -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    return torch.randn(7, 4, dtype=torch.float64).requires_grad_(), torch.randn(
        2, 5, dtype=torch.float64
    ).requires_grad_()


def of(factors: Tensor, words: int) -> Any:
    """Return a stand-in for a layer with factors `[K, T]` that computes the vectors of the last words and the sums."""
    layer = SimpleNamespace(weights=factors, words=words)
    layer.words_and_sums = lambda *arguments: History.words_and_sums(layer, *arguments)
    return layer


def require_as_plain(ids: Tensor, words: int, *, sparse: bool) -> None:
    results = []
    for compute in (history, History.words_and_sums):
        vectors, factors = values()
        x = compute(of(factors, words), ids, vectors, sparse)
        (x * torch.linspace(-1, 1, x.numel()).view_as(x)).sum().backward()
        assert vectors.grad is not None and vectors.grad.is_sparse == sparse
        results.append((x, vectors.grad.to_dense(), factors.grad))
    assert results[0][0].shape == (len(ids), words + 2, 4)
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain)


def test_factors_start_as_powers_of_unit_length() -> None:
    sums = History([0.5, 1.0], 3, 1, 2)
    want = torch.tensor([[0.25, 0.5, 1.0], [1.0, 1.0, 1.0]])
    torch.testing.assert_close(sums.weights.detach(), want / want.square().sum(1, keepdim=True).sqrt())


def test_few_numbers_are_left_to_the_plain_formula() -> None:
    sums = History([0.5], 8, 1, 64)
    for examples in (MIN_NUMBERS // (8 * 64), MIN_NUMBERS // (8 * 64) - 1):
        found = chosen(sums, "words_and_sums", torch.zeros(examples, 8, dtype=torch.int64))
        assert (found is not None) == (examples * 8 * 64 >= MIN_NUMBERS)


TEXT = torch.tensor([4, 1, 0, 5, 5, 2, 6, 3, 1, 1, 0, 2, 4, 6, 0, 3, 5, 1, 2, 2, 6, 0, 4])
# Beginnings of contexts of 5 words: whole runs, then runs that are cut short, stand alone, and are longer than a run.
WHOLE = [*range(8), *range(3, 11)]
BROKEN = [*range(5), 2, *range(9, 18), 0, *range(4, 7)]


def contexts(beginnings: list[int]) -> Tensor:
    return torch.stack([TEXT[first : first + 5] for first in beginnings])


def runs_of(beginnings: list[int]) -> tuple[list[list[int]], list[int]]:
    """Return the words of the runs of contexts, and the positions of the contexts among their windows."""
    ids = contexts(beginnings)
    words, places = ids.new_empty(len(ids), 5 + CONSECUTIVE - 1), ids.new_empty(len(ids))
    runs = file._find_runs(ids.numpy(), words.numpy(), places.numpy())
    return words[:runs].tolist(), places.tolist()


def test_runs_by_hand() -> None:
    assert CONSECUTIVE == 8
    words, places = runs_of([3, 4, 5, 0, 1, 9])
    assert [run[:7] for run in words] == [[5, 5, 2, 6, 3, 1, 1], [4, 1, 0, 5, 5, 2, 4], [1, 0, 2, 4, 6, 1, 1]]
    assert places == [0, 1, 2, 8, 9, 16]
    words, places = runs_of(WHOLE)
    assert places == list(range(16)) and words == [TEXT[:12].tolist(), TEXT[3:15].tolist()]


def test_contexts_that_seldom_follow_one_another_are_no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "_sums_of_runs", None)
    require_as_plain(contexts([0, 5, 6, 3]), 2, sparse=False)  # three runs of four contexts
    with pytest.raises(TypeError):  # two of four
        require_as_plain(contexts([0, 1, 6, 7]), 2, sparse=False)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("words", [0, 2, 5])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("beginnings", [WHOLE, BROKEN])
def test_runs_do_what_tensors_do(
    beginnings: list[int], threads: int, words: int, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel._here, "threads", threads)
    require_as_plain(contexts(beginnings), words, sparse=sparse)

"""Sums of FOFE without the vectors of all words of all contexts, `[B, T, E]`.

If examples follow one another in the text, as in scoring and in batches of training.shuffle_block, their contexts form
one sequence: each of its words is looked up once, and the sums are a product with a banded matrix. Otherwise the plain
method is called. tests/neural/test_history.py compares both.

Legend of shapes: B examples, T words of a context, the last C of them read one by one, K sums, E dimension of the
embeddings, V words of the vocabulary, R runs of up to N examples that follow one another, S = T + N - 1 words of a run.
"""

from __future__ import annotations

import torch
from numba import njit
from torch import Tensor
from torch.nn import functional as F

from lmtool.neural.encoders.nplm import CONSECUTIVE, History
from lmtool.neural.forms import form
from lmtool.neural.forms.loops import runs_compiled
from lmtool.neural.rows import rows_of
from lmtool.system.arrays import Array

MIN_NUMBERS = 1 << 18  # numbers in the vectors of all words of all contexts; with fewer, the plain method is faster


def _serves(layer: History, contexts: Tensor) -> bool:
    numbers = contexts.numel() * layer.scale.shape[1]
    return contexts.is_cpu and runs_compiled(layer.weights) and numbers >= MIN_NUMBERS


@form(History, "words_and_sums", serves=_serves, measured="3.1 to 4.5 times; EPYC Zen 5, 2026-11-25")
def history(layer: History, ids: Tensor, vectors: Tensor, sparse: bool) -> Tensor:
    """Compute the vectors of the last C words and the sums, `[B, C + K, E]`."""
    size, length = ids.shape
    words, places = ids.new_empty(size, length + CONSECUTIVE - 1), ids.new_empty(size)
    runs = _find_runs(ids.numpy(), words.numpy(), places.numpy())
    if not runs or runs * 2 > size:  # most contexts do not follow the one before
        return layer.words_and_sums(ids, vectors, sparse)
    x = _sums_of_runs(rows_of(vectors, words[:runs], sparse=sparse), layer.weights, layer.words)
    return x if runs * CONSECUTIVE == size else x.index_select(0, places)


def _sums_of_runs(x: Tensor, factors: Tensor, words: int) -> Tensor:
    """Compute the vectors of the last words, and the sums, of all windows of runs: `[R N, C + K, E]`.

    x: vectors of the words of the runs, `[R, S, E]`. Window i of a run begins at its word i: the sums of all its
    windows are A x, with A `[K N, S]`, in which row (k, i) has the factors of k from column i on. A product of one
    matrix with all runs is faster than K sums for each window, although most of A is 0.
    """
    (sums, length), (_, size, dim) = factors.shape, x.shape
    # Rows of S + 1 numbers that are read as rows of S begin one place further right from row to row.
    banded = F.pad(factors, (0, CONSECUTIVE)).repeat(1, CONSECUTIVE)[:, : CONSECUTIVE * size].reshape(-1, size)
    of_sums = (banded @ x).view(-1, sums, CONSECUTIVE, dim).transpose(1, 2)  # [R, N, K, E]
    read = x[:, length - words :].unfold(1, words, 1).transpose(2, 3)  # [R, N, C, E]
    return torch.cat([read, of_sums], dim=2).flatten(0, 1)


@njit(cache=True, nogil=True)
def _find_runs(ids: Array, words: Array, places: Array) -> int:
    """Write the words `[R, S]` of the runs of contexts `[B, T]` and the place of each context; return R."""
    size, length = ids.shape
    run, windows = -1, CONSECUTIVE
    for b in range(size):
        follows = windows < CONSECUTIVE
        if follows:  # each word but the last is the example before's, one place further left
            for t in range(length - 1):
                follows &= ids[b, t] == ids[b - 1, t + 1]
        if follows:
            windows += 1
            words[run, length + windows - 2] = ids[b, length - 1]
        else:
            run, windows = run + 1, 1
            words[run, :length] = ids[b]
            words[run, length:] = ids[b, 0]  # for windows without an example
        places[b] = run * CONSECUTIVE + windows - 1
    return run + 1

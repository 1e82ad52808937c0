"""Vectors of words from the words around them in a text: principal components of square roots of probabilities.

The Hellinger distance of two distributions is the Euclidean distance of their square roots (Lebret & Collobert 2014,
"Word embeddings through Hellinger PCA", EACL). Here the distributions are those of the word two places before, one
before and one after; they are smoothed with the unigrams, so that rare words are near the mean, and words are weighted
by the square root of their count, so that the many rare ones do not determine the components.

Legend of shapes: W words, C neighbors (a frequent word at one place), D components, E pairs that occur.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lmtool.system.arrays import IntArray

PLACES = (-2, -1, 1)  # positions of the neighbors, relative to the word
FREQUENT = 2000  # number of most frequent words that are separate neighbors; the others count as one
PRIOR = 20.0  # pseudo-occurrences of each word, with neighbors distributed as the unigrams
EXTRA = 10  # additional components that are computed for precision (Halko et al. 2011)
ROUNDS = 4  # rounds of subspace iteration
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Roots:
    """The matrix `[W, C]` of square roots: across[w] along[c], plus `pairs`, sparse, for the E pairs that occur, minus
    the mean `[C]`.
    """

    pairs: Tensor
    across: Floats
    along: Floats
    mean: Floats

    def times(self, right: Floats) -> Floats:
        """Multiply the matrix by `[C, D]`: `[W, D]`."""
        return _product(self.pairs, right) + np.outer(self.across, self.along @ right) - self.mean @ right

    def transposed_times(self, right: Floats) -> Floats:
        """Multiply its transpose by `[W, D]`: `[C, D]`."""
        smooth = np.outer(self.along, self.across @ right) - np.outer(self.mean, right.sum(axis=0))
        return _product(self.pairs.t(), right) + smooth


def neighbor_vectors(
    ids: npt.NDArray[Any], offsets: IntArray, counts: IntArray, dimensions: int
) -> npt.NDArray[np.float32]:
    """Compute the vectors of the words, `[W, D]`, where D is `dimensions` or the rank, if lower.

    ids: `[N]` of any integer type, below W: the text. offsets: int64, the starts of parts beyond which words have no
    neighbors, and N. counts: int64 `[W]`. The same text gives the same vectors; their first component varies most.
    """
    roots = _roots(ids, offsets, counts)
    weight = np.sqrt(counts + 0.5)
    weight /= weight.sum()
    roots = replace(roots, mean=roots.transposed_times(weight[:, None])[:, 0])
    scale = np.sqrt(weight)[:, None]
    wanted = min(dimensions, len(roots.across), len(roots.along))
    basis = np.random.default_rng(0).normal(size=(len(roots.along), min(wanted + EXTRA, len(roots.along))))
    for _ in range(ROUNDS):
        basis = np.linalg.qr(roots.transposed_times(scale * (scale * roots.times(basis))))[0]
    _, _, turn = np.linalg.svd(scale * roots.times(basis), full_matrices=False)
    return roots.times(basis @ turn[:wanted].T).astype(np.float32)


def _roots(ids: npt.NDArray[Any], offsets: IntArray, counts: IntArray) -> _Roots:
    """Compute the square roots of the smoothed probabilities, with a mean of 0 that is set later."""
    frequent = np.argsort(-counts, kind="stable")[:FREQUENT]
    slots = len(frequent) + 1
    slot = np.full(len(counts), slots - 1, dtype=np.int64)
    slot[frequent] = np.arange(len(frequent))
    unigram = np.bincount(slot[ids], minlength=slots) / max(1, len(ids))
    occurrences = np.bincount(ids, minlength=len(counts)).astype(np.float64)
    part = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    rows, columns, values = [], [], []
    for place, distance in enumerate(PLACES):
        before, after = slice(None, -abs(distance)), slice(abs(distance), None)
        inside = part[before] == part[after]
        words, others = (ids[side][inside] for side in ((after, before) if distance < 0 else (before, after)))
        keys, number = np.unique(words.astype(np.int64) * slots + slot[others], return_counts=True)
        word, other = keys // slots, keys % slots
        total = occurrences[word] + PRIOR
        prior = PRIOR * unigram[other]
        rows.append(word)
        columns.append(place * slots + other)
        values.append((np.sqrt(number + prior) - np.sqrt(prior)) / np.sqrt(total))
    across = np.sqrt(PRIOR / (occurrences + PRIOR))
    along = np.tile(np.sqrt(unigram), len(PLACES))
    where = torch.from_numpy(np.stack([np.concatenate(rows), np.concatenate(columns)]))
    shape = len(across), len(along)
    pairs = torch.sparse_coo_tensor(where, torch.from_numpy(np.concatenate(values)), shape, check_invariants=False)
    return _Roots(pairs.coalesce(), across, along, np.zeros(len(along)))


def _product(matrix: Tensor, right: Floats) -> Floats:
    """Multiply a sparse matrix by a dense one."""
    product: Floats = torch.sparse.mm(matrix, torch.from_numpy(np.ascontiguousarray(right))).numpy()
    return product

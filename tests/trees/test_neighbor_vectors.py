"""Vectors of neighbors: against a dense matrix and its singular value decomposition; words that are alike are near."""

from __future__ import annotations

import numpy as np
import pytest

from lmtool.trees import _neighbor_vectors as module
from lmtool.trees._neighbor_vectors import neighbor_vectors


def plain(ids: np.ndarray, counts: np.ndarray, dimensions: int, frequent: int) -> np.ndarray:
    """Compute the neighbor vectors from the whole matrix."""
    words = len(counts)
    weight = np.sqrt(counts + 0.5)
    weight /= weight.sum()
    columns = np.argsort(-counts, kind="stable")[:frequent].tolist()
    parts = []
    for place in (-2, -1, 1):
        seen = np.zeros((words, len(columns) + 1))
        for at, word in enumerate(ids):
            if 0 <= at + place < len(ids):
                other = ids[at + place]
                seen[word, columns.index(other) if other in columns else -1] += 1
        unigram = np.zeros(len(columns) + 1)
        for word in ids:
            unigram[columns.index(word) if word in columns else -1] += 1
        occurrences = np.bincount(ids, minlength=words)[:, None]
        parts.append(np.sqrt((seen + 20 * unigram / len(ids)) / (occurrences + 20)))
    whole = np.concatenate(parts, axis=1)
    whole -= weight @ whole
    _, _, directions = np.linalg.svd(np.sqrt(weight)[:, None] * whole, full_matrices=False)
    return whole @ directions[:dimensions].T


@pytest.mark.parametrize("frequent", [4, 2000])
def test_against_the_whole_matrix(frequent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FREQUENT", frequent)
    rng = np.random.default_rng(1)
    ids = (rng.integers(0, 9, 3000) ** 2 // 9).astype(np.uint16)
    counts = np.bincount(ids, minlength=9)
    found = neighbor_vectors(ids, counts, 6)
    expected = plain(ids.astype(np.int64), counts, 6, frequent)
    assert found.dtype == np.float32 and found.shape == (9, 6)
    # Components have no sign.
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-5)
    assert np.abs(expected).max() > 0.05
    assert np.array_equal(found, neighbor_vectors(ids, counts, 6))


def test_words_in_the_same_places_are_near() -> None:
    rng = np.random.default_rng(2)
    # Sentences: an article, one of six nouns, one of six verbs, </s>.
    sentences = [[0, rng.integers(1, 7), rng.integers(7, 13), 13] for _ in range(2000)]
    ids = np.array(sentences).reshape(-1)
    vectors = neighbor_vectors(ids, np.bincount(ids), 2)
    kinds = vectors[1:13].reshape(2, 6, 2)
    within = np.linalg.norm(kinds - kinds.mean(axis=1, keepdims=True), axis=2).max()
    between = np.linalg.norm(kinds[0].mean(axis=0) - kinds[1].mean(axis=0))
    assert between > 20 * within


@pytest.mark.parametrize(("ids", "words"), [([], 3), ([0], 1), ([0, 1], 2), ([0, 0, 0], 1)])
def test_next_to_no_text(ids: list[int], words: int) -> None:
    found = neighbor_vectors(np.array(ids, dtype=np.int64), np.bincount(ids, minlength=words), 50)
    assert found.shape[0] == words and 1 <= found.shape[1] <= 50 and np.isfinite(found).all()

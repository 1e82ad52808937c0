"""Projections of word vectors to two dimensions."""

from __future__ import annotations

import numpy as np

from lmtool.errors import UserError
from lmtool.system.arrays import FloatArray

LARGEST_PERPLEXITY = 30.0  # of t-SNE, its effective number of neighbours; van der Maaten & Hinton (2008): 5 to 50


def pca(vectors: FloatArray) -> tuple[FloatArray, tuple[float, float]]:
    """Coordinates `[n, 2]` of vectors `[n, D]` along their first two principal components, and the components' shares
    of the variance. The sign of a component makes its entry of largest absolute value positive.
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:2]
    largest = np.abs(directions).argmax(axis=1)
    directions *= np.where(directions[np.arange(len(directions)), largest] < 0, -1, 1)[:, None]
    points = np.zeros((len(vectors), 2))
    points[:, : len(directions)] = centred @ directions.T
    total = float((sizes**2).sum()) or 1.0
    shares = [*(float(size**2) / total for size in sizes[:2]), 0.0, 0.0]
    return points, (shares[0], shares[1])


def tsne(vectors: FloatArray, seed: int) -> FloatArray:
    """t-SNE (van der Maaten & Hinton 2008) of vectors `[n, D]`: coordinates `[n, 2]`, initialised with the PCA.

    Raises UserError where scikit-learn is missing.
    """
    try:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise UserError('map=tsne needs scikit-learn: pip install "lmtool[plots]"') from None
    initial, _ = pca(vectors)
    initial = initial / (initial[:, 0].std() or 1.0) * 1e-4
    perplexity = min(LARGEST_PERPLEXITY, (len(vectors) - 1) / 3)
    method = TSNE(
        2, perplexity=perplexity, init=initial.astype(np.float32), random_state=seed % (1 << 32), learning_rate="auto"
    )
    with threadpool_limits(limits=1):  # several threads sum in varying order: the map would not be repeatable
        points: FloatArray = method.fit_transform(vectors.astype(np.float32)).astype(np.float64)
    return points

"""The vectors of words in a neural model, and which are most alike.

Legend of shapes: W words, D numbers each.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmtool.config import Likeness, Vectors
from lmtool.errors import UserError
from lmtool.language_model import FloatArray, IntArray
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.word_scores import WordScores

Rows = npt.NDArray[np.float32]


def word_vectors(model: NeuralModel, which: Vectors) -> Rows:
    """The embeddings of all words, `<s>` the last, `[V, D]`, or the output layer's u_w, `[V - 1, D]`: `<s>` has none.

    Raises UserError for the output vectors of a layer that has no vector a word.
    """
    if which is Vectors.embeddings:
        return model.encoder.embedding.weight.detach().cpu().numpy()
    if not isinstance(model.output, WordScores):
        raise UserError("the output layer of this run has no vector for each word: only softmax, nce and sampled do")
    return model.output.weight().detach().cpu().numpy()


def nearest(vectors: Rows, word: int, top: int, by: Likeness) -> tuple[IntArray, FloatArray]:
    """The words most like a word, but for itself: at most `top` ids, the most alike first, and their likeness.

    A vector of length 0 has cosine 0 with all others.
    """
    likeness = (vectors @ vectors[word]).astype(np.float64)
    if by is Likeness.cosine:
        lengths = np.sqrt(np.einsum("wd,wd->w", vectors, vectors, dtype=np.float64))
        product = lengths * lengths[word]
        likeness = np.divide(likeness, product, out=np.zeros_like(likeness), where=product > 0)
    likeness[word] = -np.inf
    ids = np.argsort(-likeness, kind="stable")[: min(top, len(vectors) - 1)]
    return ids, likeness[ids]

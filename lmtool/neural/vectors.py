"""The vectors of words in a neural model, which are most similar, and the words' mean hidden over a text.

Legend of shapes: W words, V words of the vocabulary, O of them that can be predicted, E dimension of the embeddings,
D dimension of the hidden.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from lmtool.config.model_verbs import Likeness
from lmtool.data.split import Split
from lmtool.neural.model import NeuralModel
from lmtool.system.arrays import FloatArray, IntArray

Rows = npt.NDArray[np.float32]
CHUNK = 1 << 14  # contexts that are encoded at once


def nearest(vectors: Rows, word: int, top: int, by: Likeness) -> tuple[IntArray, FloatArray]:
    """The words most similar to a word by vectors `[W, D]`, itself left out: at most `top` ids, the most similar first,
    and their similarity.

    A vector of length 0 has cosine 0 with all others. Raises ValueError for a word that has no vector, and for a top
    below 1.
    """
    if not 0 <= word < len(vectors) or top < 1:
        wanted = f"word must be from 0 to {len(vectors) - 1:,} and top 1 or more"
        raise ValueError(f"nearest: {wanted}; got word {word} and top {top}")
    similarity = (vectors @ vectors[word]).astype(np.float64)
    if by is Likeness.cosine:
        lengths = np.sqrt(np.einsum("wd,wd->w", vectors, vectors, dtype=np.float64))
        product = lengths * lengths[word]
        similarity = np.divide(similarity, product, out=np.zeros_like(similarity), where=product > 0)
    similarity[word] = -np.inf
    ids = np.argsort(-similarity, kind="stable")[: min(top, len(vectors) - 1)]
    return ids, similarity[ids]


@torch.no_grad()
def word_representations(model: NeuralModel, split: Split | None) -> Rows:
    """A vector for each word that can be predicted, by which similar words can be grouped; the model is on the CPU.

    With a split: the mean hidden `[O, D]` before the word over all its occurrences (Mnih & Hinton 2009, section 4), and
    over all positions for a word that does not occur. None: the word's embedding, `[O, E]`.
    """
    vectors = model.encoder.embedding.weight[:-1]
    if split is None:
        return vectors.numpy().copy()
    model.eval()
    words = len(vectors)
    total = torch.zeros(words, model.encoder.output_dim)
    count = torch.zeros(words)
    split = split.as_stream(model.across_sentences)
    for first in range(0, split.tokens, CHUNK):
        contexts, targets = split.windows(np.arange(first, min(first + CHUNK, split.tokens)), model.context_size)
        ids = torch.from_numpy(targets)
        total.index_add_(0, ids, model.encoder(torch.from_numpy(contexts)))
        count += ids.bincount(minlength=words)
    mean = total / count.clamp(min=1)[:, None]
    mean[count == 0] = total.sum(0) / count.sum()
    return mean.numpy()

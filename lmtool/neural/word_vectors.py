"""Vectors of words: the most similar ones, and one for each word to group similar words by.

Legend of shapes: D dimension of the hidden states, E of the embeddings, O words that can be predicted, V words of the
vocabulary, W words with a vector.
"""

from __future__ import annotations

import numpy as np
import torch

from lmtool.data.split import Split
from lmtool.neural.model import NeuralModel, Rows
from lmtool.system.arrays import FloatArray, IntArray, in_chunks

CONTEXTS_PER_BATCH = 1 << 14  # contexts encoded at once, without their distributions


def nearest(vectors: Rows, word: int, top: int, by: str) -> tuple[IntArray, FloatArray]:
    """Return at most `top` words most similar to a word by vectors `[W, D]`, without itself, and their similarities.

    by: cosine or dot. The most similar word is first. A vector of length 0 has cosine 0 with all others. Raises
    ValueError for a word without a vector, and for a top below 1.
    """
    if not 0 <= word < len(vectors) or top < 1:
        wanted = f"word must be from 0 to {len(vectors) - 1:,} and top 1 or more"
        raise ValueError(f"nearest: {wanted}; got word {word} and top {top}")
    similarity = (vectors @ vectors[word]).astype(np.float64)
    if by == "cosine":
        lengths = np.sqrt(np.einsum("wd,wd->w", vectors, vectors, dtype=np.float64))
        product = lengths * lengths[word]
        similarity = np.divide(similarity, product, out=np.zeros_like(similarity), where=product > 0)
    similarity[word] = -np.inf
    ids = np.argsort(-similarity, kind="stable")[: min(top, len(vectors) - 1)]
    return ids, similarity[ids]


@torch.no_grad()
def word_representations(model: NeuralModel, split: Split | None) -> Rows:
    """Return a vector for each word that can be predicted, to group similar words; the model is on the CPU.

    With a split: the mean hidden state `[O, D]` before the word over all its occurrences (Mnih & Hinton 2009, section
    4), and over all positions for a word that does not occur. None: the word's embedding, `[O, E]`.
    """
    vectors = model.encoder.embedding.weight[:-1]
    if split is None:
        return vectors.numpy().copy()
    model.eval()
    words = len(vectors)
    total = torch.zeros(words, model.encoder.output_dim)
    count = torch.zeros(words)
    split = split.as_stream(model.across_sentences)
    for part in in_chunks(split.tokens, CONTEXTS_PER_BATCH):
        ids = torch.from_numpy(split.ids[part].astype(np.int64))
        total.index_add_(0, ids, torch.from_numpy(model.hidden_text(split, part.start, part.stop)))
        count += ids.bincount(minlength=words)
    mean = total / count.clamp(min=1)[:, None]
    mean[count == 0] = total.sum(0) / count.sum()
    return mean.numpy()

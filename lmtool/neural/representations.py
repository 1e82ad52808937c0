"""What stands for a word in a trained model: for trees that set like words together.

Legend of shapes: O words that can be predicted, D numbers each.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from lmtool.data.corpus import Split
from lmtool.neural.model import NeuralModel

CHUNK = 1 << 14  # contexts that are encoded at once


@torch.no_grad()
def word_representations(model: NeuralModel, split: Split | None) -> npt.NDArray[np.float32]:
    """A vector for each word that can be predicted, `[O, D]`.

    With a split: the mean of what the encoder says before the word wherever it stands (Mnih & Hinton 2009, section
    4), and the mean of all where it stands nowhere. None: the word's embedding.
    """
    vectors = model.encoder.embedding.weight[:-1]
    if split is None:
        return vectors.numpy().copy()
    model.eval()
    words = len(vectors)
    total = torch.zeros(words, model.encoder.output_dim)
    seen = torch.zeros(words)
    split = split.seen(model.across_sentences)
    for first in range(0, split.tokens, CHUNK):
        contexts, targets = split.windows(np.arange(first, min(first + CHUNK, split.tokens)), model.context_size)
        to = torch.from_numpy(targets)
        total.index_add_(0, to, model.encoder(torch.from_numpy(contexts)))
        seen += to.bincount(minlength=words)
    mean = total / seen.clamp(min=1)[:, None]
    mean[seen == 0] = total.sum(0) / seen.sum()
    return mean.numpy()

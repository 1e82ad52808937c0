"""A neural language model: an encoder and an output layer, asked in numpy like any other model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from lmtool.config import NplmModel
from lmtool.data.vocabulary import Vocabulary
from lmtool.model import FloatArray, IntArray
from lmtool.neural.nplm import NPLM
from lmtool.neural.softmax import FullSoftmax

CHUNK = 1024  # contexts scored at once: bounds the memory of their distributions


class NeuralModel(nn.Module):
    """Encoder `[B, C] -> [B, D]`, output layer `[B, D] -> p`; a LanguageModel."""

    def __init__(self, encoder: NPLM, output: FullSoftmax) -> None:
        super().__init__()
        self.encoder = encoder
        self.output = output

    @property
    def context_size(self) -> int:
        """C."""
        return self.encoder.config.context_size

    @property
    def parameter_count(self) -> int:
        """Trained numbers; what is tied counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def loss(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Mean -log p in nats of targets `[B]` after contexts `[B, C]`."""
        return self.output.loss(self.encoder(contexts), targets)

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """As LanguageModel.log_prob."""
        return self._asked(self.output.log_prob, contexts, targets)

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """As LanguageModel.log_dist."""
        return self._asked(self.output.log_dist, contexts)

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """As LanguageModel.log_prob_candidates."""
        return self._asked(self.output.log_prob, contexts, candidates)

    @torch.no_grad()
    def _asked(self, answer: Callable[..., Tensor], contexts: IntArray, *words: IntArray) -> FloatArray:
        training = self.training
        self.eval()
        found = []
        for first in range(0, len(contexts), CHUNK):
            hidden = self.encoder(torch.from_numpy(contexts[first : first + CHUNK]))
            asked = (torch.from_numpy(array[first : first + CHUNK]) for array in words)
            found.append(answer(hidden, *asked).numpy())
        self.train(training)
        return np.concatenate(found)


def build_nplm(config: NplmModel, vocabulary: Vocabulary) -> NeuralModel:
    """The NPLM of a configuration, with weights from torch's random state."""
    encoder = NPLM(config, len(vocabulary))
    vectors = encoder.embedding.weight if config.tied else None
    assert vectors is None or isinstance(vectors, nn.Parameter)
    counts = torch.from_numpy(np.asarray(vocabulary.counts))
    return NeuralModel(encoder, FullSoftmax(encoder.output_dim, counts, vectors))

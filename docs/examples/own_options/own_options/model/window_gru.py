"""A gated recurrent unit that reads the context word by word (Cho et al. 2014, eq. 5 to 8), from a fixed context.

Shapes: B examples, C context words, E embedding, H hidden units, D what the output layer reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from lmtool.config.groups import EncoderConfig
from lmtool.config.rules import setting
from lmtool.neural.encoders.base import Encoder


@dataclass(slots=True)
class GruModel(EncoderConfig):
    """A gated recurrent unit over the context."""

    hidden_dim: int = setting(min=1)

    def build(self, vocabulary_size: int, *, tied: bool, sparse: bool) -> Encoder:
        """Return the encoder."""
        return GRU(self, vocabulary_size, tied=tied, sparse=sparse)

    def weight_count(self, vocabulary_size: int) -> int:
        """Count the weights of the embeddings, and of three gates of two matrices each."""
        return vocabulary_size * self.embedding_dim + 3 * self.hidden_dim * (self.embedding_dim + self.hidden_dim)

    def size_settings(self) -> list[str]:
        """Return the names of the settings that weight_count depends on."""
        return ["embedding_dim", "hidden_dim"]


class GRU(Encoder):
    """h_i = GRU(h_i-1, C(w_i)) over the context, from h = 0; the last h, mapped to E if vectors are tied."""

    def __init__(self, config: GruModel, vocabulary_size: int, *, tied: bool, sparse: bool) -> None:
        super().__init__(config, vocabulary_size, sparse=sparse)
        self.dropout = nn.Dropout(config.dropout)
        self.gru = nn.GRU(config.embedding_dim, config.hidden_dim, batch_first=True)
        self.project = nn.Linear(config.hidden_dim, config.embedding_dim) if tied else None
        self.output_dim = config.embedding_dim if tied else config.hidden_dim

    def of_embeddings(self, x: Tensor) -> Tensor:
        """Compute hidden `[B, D]` from embeddings `[B, C, E]`."""
        _, last = self.gru(self.dropout(x))  # [1, B, H]
        h: Tensor = self.dropout(last[0])
        return h if self.project is None else self.project(h)

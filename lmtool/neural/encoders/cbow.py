"""The encoder of the continuous bag of words (Mikolov et al. 2013): context ids -> their mean vector.

Legend of shapes: B examples, C context words, E embedding.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config import CbowModel
from lmtool.neural.encoders.embedding import Embedding


class CBOW(nn.Module):
    """h = the mean of the context's embeddings, whatever their order; the context is the words before the predicted
    one.
    """

    def __init__(self, config: CbowModel, vocabulary_size: int, *, sparse: bool = False) -> None:
        super().__init__()
        self.config = config
        self.context_size = config.context_size
        self.embedding = Embedding(vocabulary_size, config.embedding_dim, sparse=sparse)
        self.output_dim = config.embedding_dim

    def forward(self, contexts: Tensor) -> Tensor:
        """Context ids `[B, C]` to hidden `[B, E]`."""
        return self.of_embeddings(self.embedding(contexts))

    def of_embeddings(self, x: Tensor) -> Tensor:
        """The same from the embeddings `[B, C, E]`: ordinary tensor operations, which can be compiled."""
        return F.dropout(x.mean(1), self.config.dropout, self.training)

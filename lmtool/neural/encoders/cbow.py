r"""The encoder of the continuous bag of words: the mean of the context's vectors, whatever their order.

.. math::

    h = \frac{1}{C} \sum_{i=1}^{C} x_{t-i}

x_t is the embedding of w_t. The context consists of the words before the predicted one; word2vec also reads those after
it.

Legend of shapes: B examples, C context words, E dimension of the embeddings, V words of the vocabulary.

Source: Mikolov, Chen, Corrado & Dean (2013), "Efficient estimation of word representations in vector space", ICLR
    workshop, section 3.1.
Complexity: O(C E) for each example; V E weights.
"""

from __future__ import annotations

from torch import Tensor

from lmtool.neural.encoders.base import Encoder


class CBOW(Encoder):
    """h `[B, E]` is the mean of the context's embeddings, whatever their order (Mikolov et al. 2013, section 3.1).

    The context consists of the words before the predicted one; word2vec also reads those after it. dropout acts on h.
    """

    def of_embeddings(self, x: Tensor) -> Tensor:
        """Compute hidden states `[B, E]` from the embeddings of the contexts, `[B, C, E]`."""
        return self.with_dropout(x.mean(1), self.config.dropout)

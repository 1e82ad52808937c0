r"""Negative sampling, the loss of word2vec: discriminate the data word from a few noise words by dot products alone.

.. math::

    J = -\log \sigma(u_y \cdot h) - \sum_{j=1}^{k} \log \sigma(-u_{w_j} \cdot h)
        \qquad w_j \sim q \propto \text{unigram}^{\text{power}}

This is noise-contrastive estimation with the biases log k q_w, which its loss subtracts again. At the optimum,
u_w . h = log p(w|h) - log k q_w, a shifted pointwise mutual information. Evaluation is exact: p(w|h) is the softmax of
u_w . h + log q_w.

Legend of shapes: B examples, D dimension of the hidden states, O words that can be predicted, k noise words.

Source: Mikolov, Sutskever, Chen, Corrado & Dean (2013), "Distributed representations of words and phrases and their
    compositionality", NIPS, eq. 4; Levy & Goldberg (2014), "Neural word embedding as implicit matrix factorization",
    NIPS.
Complexity: O(D k) for each example in training, whatever O; O(D O) for exact probabilities.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lmtool.neural.outputs.nce import NCELoss


class NegativeSampling(NCELoss):
    """NCE with biases fixed at log k q_w (Mikolov et al. 2013, eq. 4).

    >>> import torch
    >>> from lmtool.neural import NegativeSampling
    >>> layer = NegativeSampling(16, torch.arange(100, 0, -1))
    >>> layer.log_dist(torch.randn(8, 16)).exp().sum(dim=1).allclose(torch.ones(8).double())
    True
    """

    def __init__(
        self,
        dim: int,
        counts: Tensor,
        vectors: nn.Parameter | None = None,
        *,
        noise: int = 5,
        shared: bool = False,
        power: float = 0.75,
        bias: bool = False,
        sparse: bool = False,
    ) -> None:
        """bias: whether the biases are learned, from log k q_w on. The others: as in NCELoss.

        Vectors of the layer itself start at 0, as in word2vec.
        """
        super().__init__(dim, counts, vectors, noise=noise, shared=shared, power=power, sparse=sparse)
        with torch.no_grad():
            self.bias.copy_(self.log_kq)
        self.bias.requires_grad_(bias)
        if vectors is None:
            nn.init.zeros_(self.vectors)

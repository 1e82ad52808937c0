r"""Noise-contrastive estimation: discriminate the data word from noise words; no sum over all words is needed.

.. math::

    J &= -\log \sigma(s_y - \log k q_y) - \sum_{j=1}^{k} \log \sigma(\log k q_{w_j} - s_{w_j})
        \qquad w_j \sim q \propto \text{unigram}^{\text{power}} \\
    s_w &= b_w + u_w \cdot h - \log Z(h)

log Z is fixed to 0, or with `learn_normalizer` an affine function of h. A noise word may be y; with q the exact
probability of the draws, the optimum is s_w = log p(w|h) of the data at every k. Evaluation is exact: p(w|h) is the
softmax of the scores.

Legend of shapes: B examples, D dimension of the hidden states, O words that can be predicted, k noise words.

Source: Gutmann & Hyvärinen (2010), "Noise-contrastive estimation", AISTATS; Mnih & Teh (2012), "A fast and simple
    algorithm for training neural probabilistic language models", ICML, eq. 8 to 10.
Complexity: O(D k) for each example in training, whatever O; O(D O) for exact probabilities.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural.checks import require_counts, require_ids, require_number
from lmtool.neural.outputs.base import public
from lmtool.neural.outputs.softmax import WordScores, log_unigram
from lmtool.system.alias_table import AliasTable


def noise_distribution(counts: Tensor, power: float) -> Tensor:
    """Return log q `[O]` in float64, q proportional to (count + 0.5)^power, for counts `[O]` and a finite power."""
    power = require_number("power", power, math.isfinite, "a finite number")
    return (power * log_unigram(counts)).log_softmax(0)


class Noise:
    """Words drawn from a fixed distribution by the alias method.

    log_q: `[O]`, float64, of the exact probabilities of these draws, for the correction in a loss; log 2^-63 for a word
    that is never drawn.
    """

    def __init__(self, log_q: Tensor) -> None:
        """log_q: `[O]`, logarithms of the wanted probabilities."""
        self._table = AliasTable(log_q.exp().cpu().numpy())
        self.log_q = torch.from_numpy(np.maximum(self._table.drawn, 1) / 2**63).log()
        self._on_device: tuple[Tensor, Tensor] | None = None  # the alias table

    def draw(self, *shape: int, device: torch.device | None = None) -> Tensor:
        """Draw independent words of this shape, int64, on a device (None: the CPU), by its random state."""
        bits = torch.empty(shape, dtype=torch.int64, device=device).random_()  # of 63 bits, all values
        if bits.is_cpu:
            return torch.from_numpy(self._table.outcomes(bits.view(-1).numpy())).view(shape)
        if self._on_device is None or self._on_device[0].device != bits.device:
            threshold, alias = (torch.from_numpy(array).to(bits.device) for array in self._table.arrays())
            self._on_device = threshold, alias
        return chosen_outcomes(bits, *self._on_device)


def chosen_outcomes(bits: Tensor, threshold: Tensor, alias: Tensor) -> Tensor:
    """Return the outcome for each of 63 random bits, like AliasTable.outcomes, in torch: on any device."""
    place = ((bits >> 31) * len(threshold)) >> 32
    return torch.where((bits & 0x7FFFFFFF) < threshold[place], place, alias[place])


class DrawnWords(WordScores):
    """Scores of words with a loss over the target and k words drawn from q, the unigram distribution to a power."""

    loss_is_log_prob = False

    def __init__(
        self,
        dim: int,
        counts: Tensor,
        vectors: nn.Parameter | None,
        *,
        name: str,
        number: int,
        power: float,
        sparse: bool,
    ) -> None:
        """name: of the subclass's argument for the number of draws, for errors. The others: as in NCELoss."""
        super().__init__(dim, counts, vectors, sparse=sparse)
        if not isinstance(number, int) or not 1 <= number <= len(self.bias):
            raise ValueError(f"{name}={number}: must be from 1 to {len(self.bias)}, the number of words")
        self.table = Noise(noise_distribution(require_counts(f"{type(self).__name__}: counts", counts), power))

    @abstractmethod
    def drawn_loss(self, h: Tensor, y: Tensor, draws: Tensor, reduction: str = "mean") -> Tensor:
        """Compute the loss of `[B, D]` and `[B]`, draws being `[k]`, the same for all examples, or `[B, k]`."""

    def loss_of_draws(self, h: Tensor, y: Tensor, shape: tuple[int, ...], reduction: str) -> Tensor:
        """Compute the loss with words drawn in this shape; a custom drawn_loss may leave out `reduction`."""
        named = {} if reduction == "mean" else {"reduction": reduction}
        return self.drawn_loss(h, y, self.table.draw(*shape, device=h.device), **named)

    @public
    def loss_with(self, h: Tensor, y: Tensor, draws: Tensor) -> Tensor:
        """Return the mean loss with given draws, int64: `[k]` for the whole batch or `[B, k]`."""
        h, y = self._check("loss_with", h, y, empty=False)
        shapes = (("k",), (len(h), "k"))
        return self.drawn_loss(h, y, require_ids(self, ".loss_with: draws", draws, shapes, self.word_count, h))


class NCELoss(DrawnWords):
    """Loss that discriminates the data word from k noise words (Gutmann & Hyvärinen 2010; Mnih & Teh 2012, eq. 8 to
    10).

    b starts at the log unigram probabilities, whose sum is 1. The work of a step does not depend on O. log_prob and
    log_dist are exact, as is the loss in eval mode.

    >>> import torch
    >>> from lmtool.neural import NCELoss
    >>> layer = NCELoss(16, torch.arange(100, 0, -1), noise=20)
    >>> h, y = torch.randn(8, 16), torch.randint(100, (8,))
    >>> loss = layer(h, y)  # a scalar with gradients
    >>> layer.log_dist(h).exp().sum(dim=1).allclose(torch.ones(8).double())
    True
    """

    self_normalized = True
    log_kq: Tensor

    def __init__(
        self,
        dim: int,
        counts: Tensor,
        vectors: nn.Parameter | None = None,
        *,
        noise: int = 100,
        shared: bool = True,
        power: float = 1.0,
        learn_normalizer: bool = False,
        sparse: bool = False,
    ) -> None:
        """dim: D. counts: `[O]` of the words in train, for b and q. vectors: embeddings `[O or more, D]` to share as
        the u_w; None for vectors of the layer itself. noise: k. shared: whether the whole batch shares its noise words,
        instead of k for each example. power: exponent of the unigram distribution that noise is drawn from. sparse:
        whether the gradients of u and b are sparse. Raises ValueError for k below 1 or above O, and for counts and
        vectors that do not fit.
        """
        super().__init__(dim, counts, vectors, name="noise", number=noise, power=power, sparse=sparse)
        self.noise, self.shared = noise, shared
        log_kq = self.table.log_q + math.log(noise)
        self.register_tensors(log_kq=log_kq.to(torch.get_default_dtype()))
        self.normalizer = nn.Linear(dim, 1) if learn_normalizer else None
        if self.normalizer is not None:
            nn.init.zeros_(self.normalizer.weight)
            nn.init.zeros_(self.normalizer.bias)

    def loss(self, h: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        """Compute J in nats for hidden states `[B, D]` and targets `[B]`; noise is drawn by torch."""
        shape = (self.noise,) if self.shared else (len(y), self.noise)
        return self.loss_of_draws(h, y, shape, reduction)

    def drawn_loss(self, h: Tensor, y: Tensor, draws: Tensor, reduction: str = "mean") -> Tensor:
        real, fake = self.target_and_other_scores(h, y, draws)  # s_y [B], s_w [B, k]
        real, fake = real - self.log_kq[y], fake - self.log_kq[draws]
        if self.normalizer is not None:
            log_z = self.normalizer(h)  # [B, 1]
            real, fake = real - log_z[:, 0], fake - log_z
        losses = -(F.logsigmoid(real) + F.logsigmoid(-fake).sum(1))  # [B]
        return losses if reduction == "none" else losses.mean()

    @public
    @torch.no_grad()
    def unnormalized_log_prob(self, h: Tensor, y: Tensor) -> Tensor:
        """Return s_y of words y `[B]`, `[B]` in float64: near log p(y|h), as exp(s) sums to about 1."""
        h, y = self._check("unnormalized_log_prob", h, y)
        return self.scores_of(h, y[:, None])[:, 0].double() - self._log_normalizer(h)

    @public
    @torch.no_grad()
    def log_partition(self, h: Tensor) -> Tensor:
        """Return the log-sum-exp of s over all words, `[B]` in float64: 0 where the scores are log p."""
        h = self._check_hidden("log_partition", h)
        return self.log_z(h) - self._log_normalizer(h)

    def _log_normalizer(self, h: Tensor) -> Tensor | float:
        return 0.0 if self.normalizer is None else self.normalizer(h)[:, 0].double()

"""What every output layer is: hidden vectors -> log-probabilities of the words that can be predicted.

Shapes: B examples, D dimension of the hidden, O words that can be predicted (ids 0 to O-1), K words asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from lmtool.errors import UserError
from lmtool.trees.tree import Tree


class OutputLayer(nn.Module, ABC):
    """Hidden `[B, D]` -> log p of O words; the contract of the group `output`, usable with any PyTorch model.

    A layer of one's own implements forward, the training loss, and log_dist, the exact distribution; the others have a
    default that asks log_dist. Log-probabilities are natural, in float64 and without gradients.

    tree: the tree that the layer is built over, None for a layer without one. uses_all_parameters: whether each batch
    reaches every parameter with a dense gradient. self_normalised: whether training brings the sum of exp(score) over
    all words near 1, so that the layer has unnormalised and trained_log_z.
    """

    tree: Tree | None = None
    uses_all_parameters: bool = True
    self_normalised: bool = False

    @abstractmethod
    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """The loss that training lowers, a number: the mean over hidden `[B, D]` and targets `[B]`, int64.

        -log p(y|h) in nats, or the layer's approximation of it; in the type of h, with gradients.
        """

    @abstractmethod
    def log_dist(self, h: Tensor) -> Tensor:
        """log p of all words, `[B, O]` in float64, after hidden `[B, D]`; rows have log-sum-exp 0."""

    def log_prob(self, h: Tensor, y: Tensor) -> Tensor:
        """log p(y|h) in float64 of words y `[B]` or `[B, K]`, int64, after hidden `[B, D]`; in the shape of y."""
        return self.log_dist(h).gather(1, y.reshape(len(y), -1)).reshape(y.shape)

    @torch.no_grad()
    def sample(self, h: Tensor) -> Tensor:
        """A word `[B]`, int64, drawn from p(.|h) after each hidden `[B, D]`; from torch's random state."""
        return torch.multinomial(self.log_dist(h).exp(), 1)[:, 0]

    @torch.no_grad()
    def top(self, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k most likely words `[B, k]`, int64, and their log p `[B, k]` in float64, the most likely first.

        k: O where it is more.
        """
        dist = self.log_dist(h)
        log_p, words = dist.topk(min(k, dist.shape[1]), 1)
        return words, log_p

    def row_parameters(self) -> list[nn.Parameter]:
        """The parameters with sparse gradients, for the optimisers of lmtool.neural.sparse_optim; none by default."""
        return []

    def word_vectors(self) -> Tensor | None:
        """The output vector of each word, `[O, D]`; None for a layer that has none."""
        return None

    def unnormalised(self, h: Tensor, y: Tensor) -> Tensor:
        """Scores of words y `[B]` after hidden `[B, D]` without the sum over all words, `[B]` in float64, near log p.

        Raises NotImplementedError unless the layer is self_normalised.
        """
        raise NotImplementedError(f"{type(self).__name__} is not self-normalised")

    def trained_log_z(self, h: Tensor) -> Tensor:
        """log of the sum over all words of exp(unnormalised score), `[B]` in float64; 0 where the scores are log p.

        Raises NotImplementedError unless the layer is self_normalised.
        """
        raise NotImplementedError(f"{type(self).__name__} is not self-normalised")


def require_at_most_words(setting: str, value: int, words: int) -> None:
    """Raise UserError, naming the setting of the group output, where its value is more than the words there are."""
    if value > words:
        raise UserError(f"output.{setting}={value}: at most {words} with this vocabulary")

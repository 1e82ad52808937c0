"""Scores of the decision for the second child at the inner nodes of a tree: dot products, or Morin & Bengio's units.

Legend of shapes: B examples, D dimension of the hidden states, N inner nodes, P pairs (example, node); in Morin &
Bengio's nodes, H hidden units and M, the dimension of a node's embedding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural.checks import require_hidden, require_odds, require_pairs, require_size
from lmtool.neural.forms import Formed
from lmtool.neural.rows import Pairs, RowScores, rows_of

MAX_UNITS_PER_CHUNK = 1 << 24  # hidden units of nodes that exist at once


class TreeNodes(Formed, ABC):
    """Scores s_n(h) of the decision for the second child at each node; the base of DotNodes and MorinBengioNodes."""

    input_dim: int
    sparse: bool

    @abstractmethod
    def reference(self) -> Tensor:
        """Return a weight `[N]`, whose dtype and device hidden states must have."""

    @abstractmethod
    def sparse_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with sparse gradients, or none."""

    @abstractmethod
    def pair_scores(self, h: Tensor, pairs: Pairs) -> Tensor:
        """Compute s of each pair, `[P]`."""

    @abstractmethod
    def node_scores(self, h: Tensor) -> Tensor:
        """Compute s of every node, `[B, N]`."""

    @property
    def node_count(self) -> int:
        """N."""
        return len(self.reference())

    def scores(self, h: Tensor, pairs: Pairs) -> Tensor:
        """Return s of each pair, `[P]`, after hidden states `[B, D]`; in the dtype of h, with gradients.

        Raises ValueError for hidden states that do not fit and for pairs of other nodes or examples.
        """
        h = require_hidden(self, ".scores: h", h, self.input_dim, self.reference())
        return self.scores_of(h, require_pairs(self, ".scores: pairs", pairs, h, self.node_count))

    def scores_of(self, h: Tensor, pairs: Pairs) -> Tensor:
        """Compute `scores`, `[P]`, of hidden states `[B, D]` and P pairs that are known to fit; nothing is checked."""
        scores: Tensor = self.computed("pair_scores", h, pairs)
        return scores

    @torch.no_grad()
    def all_scores(self, h: Tensor) -> Tensor:
        """Return s of every node, `[B, N]`, after hidden states `[B, D]`; without gradients."""
        h = require_hidden(self, ".all_scores: h", h, self.input_dim, self.reference())
        scores: Tensor = self.computed("node_scores", h)
        return scores


class DotNodes(RowScores, TreeNodes):
    """s_n(h) = u_n . h + b_n, as in word2vec (Mikolov et al. 2013) and Mnih & Hinton (2009)."""

    def __init__(self, dim: int, log_odds: Tensor, *, sparse: bool = False) -> None:
        """dim: D. log_odds: `[N]`, initial value of b. sparse: gradients only of the nodes on the paths of a batch.

        Raises ValueError for log_odds of another shape.
        """
        super().__init__()
        dim = self.input_dim = require_size("DotNodes: dim", dim)
        log_odds = require_odds("DotNodes: log_odds", log_odds)
        self.sparse = sparse
        self.bias = nn.Parameter(log_odds.to(torch.get_default_dtype()))
        self.vectors = nn.Parameter(torch.empty(len(log_odds), dim))
        nn.init.normal_(self.vectors, std=dim**-0.5)

    def node_scores(self, h: Tensor) -> Tensor:
        """Compute s of every node, `[B, N]`."""
        return F.linear(h, self.vectors, self.bias)


class MorinBengioNodes(TreeNodes):
    """s_n(h) = alpha_n + beta . tanh(c + W h + U N_n) (Morin & Bengio 2005, eq. 4), N_n the node's own embedding.

    h stands for their x: the concatenated embeddings, or any other hidden state.
    """

    def __init__(self, dim: int, log_odds: Tensor, *, hidden_dim: int, node_dim: int, sparse: bool = False) -> None:
        """dim: D. log_odds: `[N]`, initial value of alpha. hidden_dim: H. node_dim: M.

        sparse: gradients of N and alpha only of the nodes on the paths of a batch. Raises ValueError for sizes below 1
        and for log_odds of another shape.
        """
        super().__init__()
        dim = self.input_dim = require_size("MorinBengioNodes: dim", dim)
        hidden_dim = require_size("MorinBengioNodes: hidden_dim", hidden_dim)
        node_dim = require_size("MorinBengioNodes: node_dim", node_dim)
        log_odds = require_odds("MorinBengioNodes: log_odds", log_odds)
        self.sparse = sparse
        self.hidden = nn.Linear(dim, hidden_dim)  # W and c
        self.node_map = nn.Linear(node_dim, hidden_dim, bias=False)  # U
        self.beta = nn.Parameter(torch.empty(hidden_dim))
        self.alpha = nn.Parameter(log_odds.to(torch.get_default_dtype()))
        self.nodes = nn.Parameter(torch.empty(len(log_odds), node_dim))
        nn.init.normal_(self.nodes)
        nn.init.normal_(self.beta, std=hidden_dim**-0.5)

    def reference(self) -> Tensor:
        """Return alpha, whose dtype and device hidden states must have."""
        return self.alpha

    def sparse_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with sparse gradients: N and alpha, or none."""
        return [self.nodes, self.alpha] if self.sparse else []

    def pair_scores(self, h: Tensor, pairs: Pairs) -> Tensor:
        """Compute the equation for each pair, `[P]`."""
        own, alpha = (rows_of(weight, pairs.rows, sparse=self.sparse) for weight in (self.nodes, self.alpha))
        return torch.tanh(self.hidden(h)[pairs.owner] + self.node_map(own)) @ self.beta + alpha

    def node_scores(self, h: Tensor) -> Tensor:
        """Compute the equation for every node, `[B, N]`."""
        p, q = self.hidden(h), self.node_map(self.nodes)  # [B, H], [N, H]
        rows = max(1, MAX_UNITS_PER_CHUNK // max(1, q.numel()))
        return torch.cat([torch.tanh(part[:, None] + q) @ self.beta + self.alpha for part in torch.split(p, rows)])

"""How the inner nodes of a tree score their decision for the second child: two forms.

Legend of shapes: B examples, D dimension of the hidden, N inner nodes, P pairs (example, node), U different nodes among
them; in Morin & Bengio's form H hidden units and M, the dimension of a node's embedding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lmtool.neural.checks import require_hidden, require_odds, require_pairs, require_size
from lmtool.neural.devices import on_cpu
from lmtool.neural.kernels import tree_loops
from lmtool.neural.kernels.row_losses import own_scores, rows_of_both
from lmtool.neural.kernels.sparse_rows import Groups, Pairs, compiled, each_example, lookup, row_scores
from lmtool.system import parallel

OF_DEVICE = 1 << 28  # hidden units of nodes that exist at once on a GPU


class DotNodes(nn.Module):
    """s_n(h) = u_n . h + b_n, as in word2vec (Mikolov et al. 2013) and Mnih & Hinton (2009)."""

    def __init__(self, dim: int, log_odds: Tensor, *, sparse: bool = False) -> None:
        """dim: D. log_odds: `[N]`, where b starts. sparse: gradients only of the nodes on the paths of a batch.

        Raises ValueError for log_odds of another shape.
        """
        super().__init__()
        dim = self.input_dim = require_size("DotNodes: dim", dim)
        log_odds = require_odds("DotNodes: log_odds", log_odds)
        self.sparse = sparse
        self.bias = nn.Parameter(log_odds.to(torch.get_default_dtype()))
        self.vectors = nn.Parameter(torch.empty(len(log_odds), dim))
        nn.init.normal_(self.vectors, std=dim**-0.5)

    def row_parameters(self) -> list[nn.Parameter]:
        """The parameters with sparse gradients: u and b, or none."""
        return [self.vectors, self.bias] if self.sparse else []

    @property
    def node_count(self) -> int:
        """N."""
        return len(self.bias)

    def reference(self) -> Tensor:
        """b, whose type and device hidden must have."""
        return self.bias

    def scores(self, h: Tensor, pairs: Pairs) -> Tensor:
        """s of each pair, `[P]`, after hidden `[B, D]`; in the type of h, with gradients.

        Raises ValueError for a hidden that does not fit and for pairs of other nodes or examples.
        """
        h = require_hidden(self, ".scores: h", h, self.input_dim, self.bias)
        return self.scores_of(h, require_pairs(self, ".scores: pairs", pairs, h, self.node_count))

    def scores_of(self, h: Tensor, pairs: Pairs) -> Tensor:
        """`scores`, `[P]`, of a hidden `[B, D]` and of P pairs that are known to fit; nothing is checked."""
        return row_scores(h, self.vectors, self.bias, pairs, sparse=self.sparse)

    def padded_scores(self, h: Tensor, nodes: Tensor) -> Tensor:
        """s of nodes `[B, K]` after hidden `[B, D]`: `[B, K]`, with dense gradients. For a GPU."""
        return own_scores(h, self.vectors, self.bias, nodes)

    @torch.no_grad()
    def all_scores(self, h: Tensor) -> Tensor:
        """s of every node, `[B, N]`, after hidden `[B, D]`; without gradients."""
        h = require_hidden(self, ".all_scores: h", h, self.input_dim, self.bias)
        return torch.addmm(self.bias, h, self.vectors.T)


class MorinBengioNodes(nn.Module):
    """s_n(h) = alpha_n + beta . tanh(c + W h + U N_n) (Morin & Bengio 2005, eq. 4), N_n the node's own embedding.

    h is what their x is: the concatenated embeddings, or any other hidden.
    """

    def __init__(self, dim: int, log_odds: Tensor, *, hidden_dim: int, node_dim: int, sparse: bool = False) -> None:
        """dim: D. log_odds: `[N]`, where alpha starts. hidden_dim: H. node_dim: M.

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

    def row_parameters(self) -> list[nn.Parameter]:
        """The parameters with sparse gradients: N and alpha, or none."""
        return [self.nodes, self.alpha] if self.sparse else []

    @property
    def node_count(self) -> int:
        """N."""
        return len(self.alpha)

    def reference(self) -> Tensor:
        """alpha, whose type and device hidden must have."""
        return self.alpha

    def scores(self, h: Tensor, pairs: Pairs) -> Tensor:
        """s of each pair, `[P]`, after hidden `[B, D]`; in the type of h, with gradients.

        Raises ValueError for a hidden that does not fit and for pairs of other nodes or examples.
        """
        h = require_hidden(self, ".scores: h", h, self.input_dim, self.alpha)
        return self.scores_of(h, require_pairs(self, ".scores: pairs", pairs, h, self.node_count))

    def scores_of(self, h: Tensor, pairs: Pairs) -> Tensor:
        """`scores`, `[P]`, of a hidden `[B, D]` and of P pairs that are known to fit; nothing is checked."""
        if compiled(h):
            groups = Groups(pairs.rows)
            used, rows = torch.from_numpy(groups.unique), torch.from_numpy(groups.places())
        else:
            used, rows = torch.unique(pairs.rows, return_inverse=True)
        q = self.node_map(lookup(self.nodes, used, sparse=self.sparse))  # [U, H]
        alpha = lookup(self.alpha, used, sparse=self.sparse)
        return pair_scores(self.hidden(h), q, self.beta, alpha, Pairs(rows, pairs.starts, pairs.owner))

    def padded_scores(self, h: Tensor, nodes: Tensor) -> Tensor:
        """s of nodes `[B, K]` after hidden `[B, D]`: `[B, K]`, with dense gradients. For a GPU.

        U N_n is computed of all nodes where the paths have more, else of those of the paths.
        """
        flat = nodes.reshape(-1)
        if nodes.numel() > self.node_count:
            q, alpha = rows_of_both(self.node_map(self.nodes), self.alpha, flat)  # [B K, H], [B K]
        else:
            own, alpha = rows_of_both(self.nodes, self.alpha, flat)
            q = self.node_map(own)
        units = torch.tanh(self.hidden(h)[:, None] + q.view(*nodes.shape, -1)).view(len(flat), -1)
        return torch.addmv(alpha, units, self.beta).view(nodes.shape)

    @torch.no_grad()
    def all_scores(self, h: Tensor) -> Tensor:
        """s of every node, `[B, N]`, after hidden `[B, D]`; without gradients."""
        h = require_hidden(self, ".all_scores: h", h, self.input_dim, self.alpha)
        p, q = self.hidden(h), self.node_map(self.nodes)
        if not on_cpu(h):
            rows = max(1, OF_DEVICE // q.numel())
            parts = (torch.tanh(part[:, None] + q) @ self.beta + self.alpha for part in p.split(rows))
            return torch.cat(list(parts))
        if not compiled(h):
            return torch.stack([torch.tanh(row + q) @ self.beta + self.alpha for row in p])
        scores = h.new_empty(len(h), len(q))
        arrays = [tensor.detach().numpy() for tensor in (p, q, self.beta, self.alpha, scores)]
        cuts = parallel.cut_evenly(len(h))
        parallel.run((tree_loops.all_node_scores, *arrays, first, last) for first, last in cuts)
        return scores


def pair_scores(p: Tensor, q: Tensor, beta: Tensor, alpha: Tensor, pairs: Pairs) -> Tensor:
    """alpha[u] + beta . tanh(p[b] + q[u]) of every pair (b, u): `[P]` from p `[B, H]`, q `[U, H]`, beta `[H]`, alpha
    `[U]`.
    """
    if not compiled(p):
        return pair_scores_plain(p, q, beta, alpha, pairs)
    scores: Tensor = _PairScores.apply(p, q, beta, alpha, pairs)  # type: ignore[no-untyped-call]
    return scores


def pair_scores_plain(p: Tensor, q: Tensor, beta: Tensor, alpha: Tensor, pairs: Pairs) -> Tensor:
    """pair_scores in ordinary tensor operations."""
    return torch.tanh(p[pairs.owner] + q[pairs.rows]) @ beta + alpha[pairs.rows]


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, q: Tensor, beta: Tensor, alpha: Tensor, pairs: Pairs) -> Tensor:
        p, q = p.contiguous(), q.contiguous()
        ctx.save_for_backward(p, q, beta)
        ctx.pairs = pairs
        scores = p.new_empty(len(pairs.rows))
        arrays = [tensor.detach().numpy() for tensor in (p, q, beta, alpha, pairs.starts, pairs.rows, scores)]
        each_example(pairs, 10 * p.shape[1], tree_loops.node_scores, *arrays)
        return scores

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Any, ...]:
        p, q, beta = ctx.saved_tensors
        pairs, grad = ctx.pairs, grad_output[0].contiguous()
        grad_p = torch.empty_like(p)
        shared = [arrays.numpy() for arrays in (grad, p, q, beta, pairs.starts, pairs.rows, grad_p)]
        # Each thread has its own sum of what all examples add to; these are then summed in their order.
        cuts = parallel.cut_evenly(len(p))
        sums = [(torch.zeros_like(q), torch.zeros_like(beta), q.new_zeros(len(q))) for _ in cuts]
        parallel.run(
            (tree_loops.node_scores_grad, *shared, *(tensor.numpy() for tensor in partial), first, last)
            for partial, (first, last) in zip(sums, cuts, strict=True)
        )
        totals = sums[0]
        for partial in sums[1:]:
            for total, more in zip(totals, partial, strict=True):
                total += more
        return grad_p, *totals, None

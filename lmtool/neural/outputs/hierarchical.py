r"""The hierarchical softmax: p is the product of the decisions on the path from the root of a binary tree to the word.

.. math::

    p(w|h) &= \sum_{\text{codes of } w} \; \prod_{n \text{ on the path}} \sigma(\pm s_n(h)) \\
    s_n(h) &= u_n \cdot h + b_n & \text{(nodes=dot)} \\
    s_n(h) &= \alpha_n + \beta \cdot \tanh(c + W h + U N_n) & \text{(Morin and Bengio's)}

The sign is + if the path goes to the second child. A word has a code in each tree of `union`, the default, one or more
with `clusters` and `file`, and one in any other tree. N_n is the node's own embedding.

Legend of shapes: B examples, D dimension of the hidden states, O words that can be predicted, K words asked for, N
inner nodes, L leaves, P pairs (example, node on its path).

Source: Morin & Bengio (2005), "Hierarchical probabilistic neural network language model", AISTATS, eq. 3 and 4;
    several codes: Mnih & Hinton (2009), NIPS, eq. 7; nodes as dot products: Mikolov et al. (2013).
Complexity: O(D d) for each example, d being the depth of its word, about log2 O; in training and for p of one word.
    O(D O) for a whole distribution.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural.checks import require_counts, require_hidden, require_odds, require_size
from lmtool.neural.outputs.base import OutputLayer, public
from lmtool.neural.rows import Pairs, RowScores, SparseRows, log_sum_exp, log_sum_exp_by_group, rows_of, segments
from lmtool.system.arrays import describe, rows_at_once
from lmtool.trees.tree import Tree

EXAMPLES_PER_CHUNK = 256  # examples whose distributions are computed at once
MAX_UNITS_PER_CHUNK = 1 << 24  # hidden units of nodes that exist at once


class TreeNodes(SparseRows, ABC):
    """Scores s_n(h) of the decision for the second child at each node; the base of DotNodes and MorinBengioNodes."""

    input_dim: int

    @abstractmethod
    def pair_scores(self, h: Tensor, pairs: Pairs) -> Tensor:
        """Compute s of each pair, `[P]`."""

    @abstractmethod
    def node_scores(self, h: Tensor) -> Tensor:
        """Compute s of every node, `[B, N]`."""

    def scores_of(self, h: Tensor, pairs: Pairs) -> Tensor:
        """Compute s of each pair, `[P]`, in the dtype of h and with gradients; pairs are not checked."""
        scores: Tensor = self.computed("pair_scores", h, pairs)
        return scores

    @public
    @torch.no_grad()
    def all_scores(self, h: Tensor) -> Tensor:
        """Return s of every node, `[B, N]`, after hidden states `[B, D]`; without gradients."""
        h = require_hidden(self, ".all_scores: h", h, self.input_dim, self.reference())
        scores: Tensor = self.computed("node_scores", h)
        return scores


class DotNodes(RowScores, TreeNodes):
    """s_n(h) = u_n . h + b_n, as in word2vec (Mikolov et al. 2013) and Mnih & Hinton (2009).

    >>> import torch
    >>> from lmtool.neural import DotNodes, HierarchicalSoftmax
    >>> from lmtool.trees import balanced_tree
    >>> nodes = DotNodes(16, torch.zeros(2))  # even odds at each of two nodes
    >>> HierarchicalSoftmax(16, balanced_tree([0, 1, 2]), nodes=nodes).log_dist(torch.zeros(1, 16)).exp()
    tensor([[0.2500, 0.2500, 0.5000]], dtype=torch.float64)
    """

    def __init__(self, dim: int, log_odds: Tensor, *, sparse: bool = False) -> None:
        """dim: D. log_odds: `[N]`, initial b. sparse: gradients only of the nodes on the paths of a batch."""
        super().__init__()
        dim = self.input_dim = require_size("DotNodes: dim", dim)
        log_odds = require_odds("DotNodes: log_odds", log_odds)
        self.sparse = sparse
        self.bias = nn.Parameter(log_odds.to(torch.get_default_dtype()))
        self.vectors = nn.Parameter(torch.empty(len(log_odds), dim))
        nn.init.normal_(self.vectors, std=dim**-0.5)

    def node_scores(self, h: Tensor) -> Tensor:
        return F.linear(h, self.vectors, self.bias)


class MorinBengioNodes(TreeNodes):
    """s_n(h) = alpha_n + beta . tanh(c + W h + U N_n) (Morin & Bengio 2005, eq. 4), N_n the node's own embedding.

    h stands for their x: the concatenated embeddings, or any other hidden state.

    >>> import torch
    >>> from lmtool.neural import HierarchicalSoftmax, MorinBengioNodes
    >>> from lmtool.trees import random_tree
    >>> tree = random_tree(100, seed=1)
    >>> nodes = MorinBengioNodes(16, torch.zeros(tree.nodes), hidden_dim=8, node_dim=4)
    >>> HierarchicalSoftmax(16, tree, nodes=nodes).log_dist(torch.randn(5, 16)).shape
    torch.Size([5, 100])
    """

    row_names = "nodes", "alpha"

    def __init__(self, dim: int, log_odds: Tensor, *, hidden_dim: int, node_dim: int, sparse: bool = False) -> None:
        """dim: D. log_odds: `[N]`, initial value of alpha. hidden_dim: H. node_dim: M. sparse: gradients of N and alpha
        only of the nodes on the paths of a batch. Raises ValueError for other shapes and sizes.
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

    def pair_scores(self, h: Tensor, pairs: Pairs) -> Tensor:
        own, alpha = (rows_of(weight, pairs.rows, sparse=self.sparse) for weight in (self.nodes, self.alpha))
        return torch.tanh(self.hidden(h)[pairs.owner] + self.node_map(own)) @ self.beta + alpha

    def node_scores(self, h: Tensor) -> Tensor:
        p, q = self.hidden(h), self.node_map(self.nodes)  # [B, H], [N, H]
        rows = max(1, MAX_UNITS_PER_CHUNK // max(1, q.numel()))
        return torch.cat([torch.tanh(part[:, None] + q) @ self.beta + self.alpha for part in torch.split(p, rows)])


def node_log_odds(tree: Tree, counts: Tensor) -> Tensor:
    """Return log odds `[N]`, float64, of each second child by the counts `[O]` of words below, 1/2 added to both."""
    mass = np.empty(tree.nodes + tree.leaves)
    mass[tree.nodes :] = counts.double().numpy()[tree.leaf_words] / np.diff(tree.word_leaves)[tree.leaf_words]
    for level in reversed(list(tree.levels())):
        mass[level] = mass[tree.places[level]].sum(1)
    first, second = np.log(mass[tree.places] + 0.5).T
    return torch.from_numpy(second - first)


class HierarchicalSoftmax(OutputLayer):
    """p(w|h) = product over the nodes n on the path to w of sigmoid(+- s_n(h)) (Morin & Bengio 2005, eq. 3).

    The sign is + if the path goes to the second child. The probability of a word with several codes is the sum over its
    codes (Mnih & Hinton 2009, eq. 7). A step works only on the nodes of the paths to its targets.

    >>> import torch
    >>> from lmtool.neural import HierarchicalSoftmax
    >>> from lmtool.trees import huffman_tree
    >>> layer = HierarchicalSoftmax(16, huffman_tree(range(100, 0, -1)), torch.arange(100, 0, -1))
    >>> h, y = torch.randn(8, 16), torch.randint(100, (8,))
    >>> loss = layer(h, y)  # a scalar with gradients
    >>> layer.log_dist(h).exp().sum(dim=1).allclose(torch.ones(8).double())
    True
    """

    tree: Tree
    _offsets: Tensor
    _path_nodes: Tensor
    _path_bits: Tensor
    _word_leaves: Tensor

    def __init__(
        self,
        dim: int,
        tree: Tree,
        counts: Tensor | None = None,
        *,
        nodes: DotNodes | MorinBengioNodes | None = None,
        sparse: bool = False,
    ) -> None:
        """dim: D. tree: over the O words. counts: `[O]` of the words in train, to start at the unigram distribution;
        None to start at even odds.

        nodes: the scores s; None for DotNodes that start by counts, with sparse gradients if `sparse` is true. Raises
        ValueError if `tree` is not a Tree, counts do not fit its words, or nodes have another number or dimension.
        """
        super().__init__()
        if not isinstance(tree, Tree):
            raise ValueError(f"HierarchicalSoftmax: tree must be a Tree; got a {type(tree).__name__}")
        self.tree, self.word_count = tree, tree.words
        dim = self.input_dim = require_size("HierarchicalSoftmax: dim", dim)
        if counts is not None:
            counts = require_counts("HierarchicalSoftmax: counts", counts, tree.words)
        if nodes is None:
            odds = torch.zeros(tree.nodes) if counts is None else node_log_odds(tree, counts)
            nodes = DotNodes(dim, odds, sparse=sparse)
        if not isinstance(nodes, DotNodes | MorinBengioNodes):
            raise ValueError(f"HierarchicalSoftmax: nodes must be DotNodes or MorinBengioNodes; got {describe(nodes)}")
        count = len(nodes.reference())
        if (count, nodes.input_dim) != (tree.nodes, dim):
            raise ValueError(
                f"HierarchicalSoftmax: nodes must be {tree.nodes:,}, as the tree has, of dimension {dim}; got "
                f"{count:,} of dimension {nodes.input_dim}"
            )
        self.nodes = nodes
        self._one_code = tree.leaves == tree.words
        paths = tree.paths
        arrays = {"_offsets": paths.offsets, "_path_nodes": paths.nodes, "_path_bits": paths.bits}
        arrays["_word_leaves"] = tree.word_leaves
        self.register_tensors(**{name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()})

    def reference(self) -> Tensor:
        return self.nodes.reference()

    def paths_to(self, leaves: Tensor) -> tuple[Pairs, Tensor]:
        """Return the nodes on the paths to leaves `[B]`, int64, and the signs `[P]` of their scores, int32."""
        starts, owner, place = segments(self._offsets, leaves)
        signs = 2 * self._path_bits.index_select(0, place).to(torch.int32) - 1
        return Pairs(self._path_nodes.index_select(0, place), starts, owner.to(torch.int32)), signs

    def loss(self, h: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        if not self._one_code or reduction == "none":
            losses = -self.log_probs_of(h, y[:, None])[:, 0]
            return (losses if reduction == "none" else losses.mean()).to(h.dtype)
        pairs, signs = self.paths_to(y)
        return -F.logsigmoid(signs * self.nodes.scores_of(h, pairs)).sum() / len(y)

    def log_probs_of(self, h: Tensor, y: Tensor) -> Tensor:
        """Compute log p of words `[B, K]` in float64 from the nodes of their paths, over all codes."""
        words, per_example = y.reshape(-1), y.shape[1]
        first_code, code_word, leaves = segments(self._word_leaves, words)  # code_word: the word of each code
        pairs, signs = self.paths_to(leaves)
        node_code = pairs.owner
        # For the scores the owner of a node is the example, not the code.
        example = (code_word // per_example).to(torch.int32)[node_code.long()]
        ends = torch.arange(len(y) + 1, device=y.device) * per_example  # the first word of each example, and the end
        scores = self.nodes.scores_of(h, Pairs(pairs.rows, pairs.starts[first_code[ends]], example))
        decisions = F.logsigmoid(scores.double() * signs)
        log_code = decisions.new_zeros(len(leaves)).index_add_(0, node_code, decisions)
        if len(leaves) == len(words):
            return log_code.reshape(y.shape)
        return log_sum_exp(log_code, first_code, code_word).reshape(y.shape)

    def log_probs(self, h: Tensor) -> Tensor:
        """Compute log p of all words, `[B, O]` in float64, from the root of the tree down."""
        parts, words = [], torch.from_numpy(self.tree.leaf_words).long().to(h.device)
        for part in torch.split(h, rows_at_once(self.tree.leaves, EXAMPLES_PER_CHUNK)):
            leaves = self.computed("log_leaves", part)
            parts.append(leaves if self._one_code else log_sum_exp_by_group(leaves, words, self.tree.words))
        return torch.cat(parts) if parts[1:] else parts[0]

    @torch.no_grad()
    def decisions(self, h: Tensor, word: int) -> list[list[tuple[int, int, float]]]:
        """Return the node, bit and probability of each decision on the path of each code of a word, after h `[D]`.

        The sum over codes of the products of the probabilities is p(word|h). Without gradients.
        """
        p = self.nodes.all_scores(h[None])[0].double().sigmoid().tolist()
        paths, (first, last) = self.tree.paths, self.tree.word_leaves[word : word + 2].tolist()
        codes = []
        for start, end in itertools.pairwise(paths.offsets[first : last + 1].tolist()):
            steps = zip(paths.nodes[start:end].tolist(), paths.bits[start:end].tolist(), strict=True)
            codes.append([(node, bit, p[node] if bit else 1 - p[node]) for node, bit in steps])
        return codes

    def log_leaves(self, h: Tensor) -> Tensor:
        """Compute log p of each leaf, `[B, L]` in float64."""
        scores = self.nodes.all_scores(h).double()  # [B, N]
        decisions = torch.stack([F.logsigmoid(-scores), F.logsigmoid(scores)], 2)  # of the first and second child
        below = torch.from_numpy(self.tree.places).long().to(h.device)
        log_p = decisions.new_zeros(len(h), self.tree.nodes + self.tree.leaves)
        for nodes in self.tree.levels():
            level = torch.from_numpy(nodes).long().to(h.device)
            log_p[:, below[level]] = log_p[:, level, None] + decisions[:, level]
        return log_p[:, self.tree.nodes :]

    def draw(self, h: Tensor) -> Tensor:
        """Draw a word `[B]`, int64, by descending from the root. Raises ValueError if p is NaN."""
        children = torch.from_numpy(self.tree.children).long().to(h.device)
        at = torch.full((len(h),), 0 if self.tree.nodes else -1, dtype=torch.int64, device=h.device)
        while (at >= 0).any():
            inside = (at >= 0).nonzero()[:, 0]
            pairs = Pairs(at[inside], torch.arange(len(inside) + 1), torch.arange(len(inside), device=h.device))
            p = self.nodes.scores_of(h[inside], pairs).sigmoid()
            if p.isnan().any():
                raise ValueError(f"{type(self).__name__}.sample: the distribution after h is NaN")
            at[inside] = children[at[inside], (torch.rand_like(p) < p).long()]
        return torch.from_numpy(self.tree.leaf_words).long().to(h.device)[-1 - at]

r"""The hierarchical softmax: p is the product of the decisions on the path from the root of a binary tree to the word.

.. math::

    p(w|h) &= \sum_{\text{codes of } w} \; \prod_{n \text{ on the path}} \sigma(\pm s_n(h)) \\
    s_n(h) &= u_n \cdot h + b_n & \text{(nodes=dot)} \\
    s_n(h) &= \alpha_n + \beta \cdot \tanh(c + W h + U N_n) & \text{(Morin and Bengio's)}

The sign is + where the path goes to the second child. A word has a code in each tree of `union`, the default, one or
more with `clusters` and `file`, and one in any other tree. N_n is the node's own embedding.

Legend of shapes: B examples, D dimension of the hidden, O words that can be predicted, K words asked for, N inner
nodes, L leaves, P pairs (example, node on its path).

Source: Morin & Bengio (2005), "Hierarchical probabilistic neural network language model", AISTATS, eq. 3 and 4;
    several codes: Mnih & Hinton (2009), NIPS, eq. 7; nodes as dot products: Mikolov et al. (2013).
Complexity: O(D d) for each example, d being the depth of its word, about log2 O; in training and for p of one word.
    O(D O) for a whole distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.config.groups import OutputConfig
from lmtool.config.rules import MISSING, require_whole
from lmtool.neural.checks import described, require_counts, require_ids, require_size
from lmtool.neural.devices import on_cpu
from lmtool.neural.kernels import tree_loops
from lmtool.neural.kernels.sparse_rows import Pairs, compiled, log_sum_exp, logistic_loss, segments
from lmtool.neural.outputs.base import OutputLayer, columns
from lmtool.neural.outputs.padded_paths import PaddedPaths, add_down, sums_of_codes
from lmtool.neural.outputs.tree_nodes import DotNodes, MorinBengioNodes
from lmtool.system import parallel
from lmtool.trees.tree import Tree

CHUNK = 256  # distributions that exist at once


class NodeForm(Enum):
    """How a node of the tree scores its decision."""

    dot = "dot"
    morin_bengio = "morin_bengio"


@dataclass(slots=True)
class HierarchicalOutput(OutputConfig):
    """Softmax over a tree (Morin & Bengio 2005). hidden_dim, node_dim: of the nodes' form morin_bengio."""

    needs_tree = True
    weight_decay = 0.4  # each node has vectors of its own, far more weights than words that are tied to the embeddings

    nodes: NodeForm = MISSING
    hidden_dim: int = MISSING
    node_dim: int = MISSING

    def __post_init__(self) -> None:
        for name in ("hidden_dim", "node_dim"):
            require_whole(f"output.{name}", getattr(self, name))

    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> HierarchicalSoftmax:
        """The layer over a tree, with sparse gradients; it starts at the unigram distribution."""
        assert tree is not None, "needs_tree"
        if self.nodes is NodeForm.dot:
            return HierarchicalSoftmax(dim, tree, counts, sparse=True)
        sizes = {"hidden_dim": self.hidden_dim, "node_dim": self.node_dim}
        nodes = MorinBengioNodes(dim, node_log_odds(tree, counts), **sizes, sparse=True)
        return HierarchicalSoftmax(dim, tree, counts, nodes=nodes)


def node_log_odds(tree: Tree, counts: Tensor) -> Tensor:
    """log odds `[N]`, float64, of each node's second child, by the counts `[O]` of the words below its two children.

    Half an occurrence is added to both.
    """
    leaves = counts.double().numpy()[tree.leaf_words] / np.diff(tree.word_leaves)[tree.leaf_words]
    paths = tree.paths
    mass = np.repeat(leaves, np.diff(paths.offsets))
    second = np.bincount(paths.nodes, weights=mass * paths.bits, minlength=tree.nodes)
    first = np.bincount(paths.nodes, weights=mass * (1 - paths.bits.astype(float)), minlength=tree.nodes)
    return torch.from_numpy(np.log(second + 0.5) - np.log(first + 0.5))


class HierarchicalSoftmax(OutputLayer):
    """p(w|h) = product over the nodes n on the path to w of sigmoid(+- s_n(h)) (Morin & Bengio 2005, eq. 3).

    The sign is + where the path goes to the second child. The probability of a word with several codes is the sum of
    those of its codes (Mnih & Hinton 2009, eq. 7). A step works on the nodes of the paths to its targets and on no
    others.
    """

    tree: Tree

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

        nodes: the scores s; None for DotNodes, which start by counts, and whose gradients are sparse if `sparse` is
        true. Raises ValueError for what is no Tree, for counts that are not those of its words, and for nodes of
        another number or dimension.
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
            raise ValueError(f"HierarchicalSoftmax: nodes must be DotNodes or MorinBengioNodes; got {described(nodes)}")
        if (nodes.node_count, nodes.input_dim) != (tree.nodes, dim):
            raise ValueError(
                f"HierarchicalSoftmax: nodes must be {tree.nodes:,}, as the tree has, of dimension {dim}; got "
                f"{nodes.node_count:,} of dimension {nodes.input_dim}"
            )
        self.nodes = nodes
        self._one_code = tree.leaves == tree.words
        paths = tree.paths
        for name, array in (
            ("_offsets", paths.offsets),
            ("_path_nodes", paths.nodes),
            ("_path_bits", paths.bits),
            ("_word_leaves", tree.word_leaves),
        ):
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(array)), persistent=False)
        self._offsets: Tensor
        self._path_nodes: Tensor
        self._path_bits: Tensor
        self._word_leaves: Tensor
        self._can_pad = PaddedPaths.suits(tree)
        self._padded: PaddedPaths | None = None  # made when the layer is first used on a GPU

    def row_parameters(self) -> list[nn.Parameter]:
        """The parameters of the nodes that have sparse gradients, or none."""
        return self.nodes.row_parameters()

    def use_dense_gradients(self) -> None:
        """Give the parameters of the nodes dense gradients from now on."""
        self.nodes.sparse = False

    def reference(self) -> Tensor:
        """A weight of the nodes, whose type and device hidden must have."""
        return self.nodes.reference()

    def paths(self, leaves: Tensor) -> tuple[Pairs, Tensor]:
        """The paths to leaves `[B]`, int64: which nodes are on each, and the signs `[P]` of their scores, int32.

        Raises ValueError for leaves that the tree does not have.
        """
        return self._paths(require_ids(self, ".paths: leaves", leaves, (("B",),), self.tree.leaves, self._offsets))

    def _paths(self, leaves: Tensor) -> tuple[Pairs, Tensor]:
        if not on_cpu(leaves):
            return self._paths_plain(leaves)
        size = len(leaves)
        starts = torch.empty(size + 1, dtype=torch.int64)
        arrays = [tensor.numpy() for tensor in (leaves, self._offsets, starts)]
        tree_loops.path_sizes(*arrays)
        total = int(starts[-1])
        rows, signs, owner = (torch.empty(total, dtype=torch.int32) for _ in range(3))
        given = (leaves, self._offsets, self._path_nodes, self._path_bits, starts, rows, signs, owner)
        tree_loops.copy_paths(*(tensor.numpy() for tensor in given))
        return Pairs(rows, starts, owner), signs

    def _paths_plain(self, leaves: Tensor) -> tuple[Pairs, Tensor]:
        """The same in tensor operations."""
        starts, owner, place = segments(self._offsets, leaves)
        signs = 2 * self._path_bits[place].to(torch.int32) - 1
        return Pairs(self._path_nodes[place], starts, owner.to(torch.int32)), signs

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Mean -log p(y|h) in nats over hidden `[B, D]` and targets `[B]`, int64; a number in the type of h."""
        if self._can_pad and not (on_cpu(h) or self.nodes.sparse):
            return self._paths_of(h).loss(self.nodes, h, y)
        if self._one_code:
            pairs, signs = self._paths(y)
            return logistic_loss(self.nodes.scores_of(h, pairs), signs) / len(y)
        return -self._log_words(h, y[:, None]).mean()

    def _paths_of(self, h: Tensor) -> PaddedPaths:
        """The paths in the form for a GPU, on the device and in the type of hidden h."""
        if self._padded is None or not self._padded.serves(h):
            self._padded = PaddedPaths.of(self.tree, h)
        return self._padded

    def _log_words(self, h: Tensor, y: Tensor) -> Tensor:
        """log p of words `[B, K]`, over all their codes; scores in h's precision, sums in float64."""
        words = y.reshape(-1)
        per_example = y.shape[1]
        first_code, code_word, leaves = segments(self._word_leaves, words)  # code_word: the word of each code
        pairs, signs = self._paths(leaves)
        node_code = pairs.owner
        # For the scores the owner of a node is the example, not the code.
        example = (code_word // per_example).to(torch.int32)[node_code.long()]
        every = torch.arange(len(y) + 1, device=y.device) * per_example  # the first word of each example, and the end
        starts = pairs.starts[first_code[every]]
        scores = self.nodes.scores_of(h, Pairs(pairs.rows, starts, example))
        decisions = F.logsigmoid(scores.double() * signs)
        log_code = decisions.new_zeros(len(leaves)).index_add_(0, node_code, decisions)
        if len(leaves) == len(words):
            return log_code.reshape(y.shape)
        return log_sum_exp(log_code, first_code, code_word).reshape(y.shape)

    @torch.no_grad()
    def log_prob(self, h: Tensor, y: Tensor) -> Tensor:
        """log p(y|h) in float64 of words y `[B]` or `[B, K]`, int64, after hidden `[B, D]`; in the shape of y.

        It works on the nodes of the paths to y alone.
        """
        return self._log_words(h, columns(y)).reshape(y.shape)

    @torch.no_grad()
    def log_dist(self, h: Tensor) -> Tensor:
        """log p of all words, `[B, O]` in float64, after hidden `[B, D]`; rows have log-sum-exp 0.

        One pass over the tree for each example.
        """
        dist = torch.empty(len(h), self.tree.words, dtype=torch.float64, device=h.device)
        if not on_cpu(h):
            for first in range(0, len(h), CHUNK):
                leaves = add_down(self.tree, self.nodes.all_scores(h[first : first + CHUNK]))
                dist[first : first + CHUNK] = leaves if self._one_code else sums_of_codes(self.tree, leaves)
            return dist
        for first in range(0, len(h), CHUNK):
            leaves = self._leaves(h[first : first + CHUNK])
            if not self._one_code:
                with np.errstate(invalid="ignore"):  # NaN after NaN
                    words = np.logaddexp.reduceat(leaves.numpy(), self.tree.word_leaves[:-1], axis=1)
                leaves = torch.from_numpy(words)
            dist[first : first + CHUNK] = leaves
        return dist

    def _leaves(self, h: Tensor) -> Tensor:
        """log p of each leaf, `[B, L]` in float64."""
        log_leaf = torch.zeros(len(h), self.tree.leaves, dtype=torch.float64)
        if self.tree.nodes:
            scores = self.nodes.all_scores(h)
            log_second = F.logsigmoid(scores)
            arrays = [tensor.cpu().numpy() for tensor in (log_second, scores)]
            cuts = parallel.cut_evenly(len(h))
            parallel.run(
                (tree_loops.add_down, *arrays, self.tree.children, log_leaf.numpy(), first, last)
                for first, last in cuts
            )
        return log_leaf

    @torch.no_grad()
    def sample(self, h: Tensor) -> Tensor:
        """A word `[B]`, int64, drawn from p(.|h) after each hidden `[B, D]`, by descent from the root.

        From torch's random state.
        """
        children = torch.from_numpy(self.tree.children).long().to(h.device)
        at = torch.zeros(len(h), dtype=torch.int64, device=h.device)
        at -= 0 if self.tree.nodes else 1
        while (at >= 0).any():
            inside = (at >= 0).nonzero()[:, 0]
            pairs = Pairs(at[inside], torch.arange(len(inside) + 1), torch.arange(len(inside), device=h.device))
            p = self.nodes.scores_of(h[inside], pairs).sigmoid()
            at[inside] = children[at[inside], (torch.rand_like(p) < p).long()]
        return torch.from_numpy(self.tree.leaf_words).long().to(h.device)[-1 - at]

    @torch.no_grad()
    def top(self, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k most likely words `[B, k]`, int64, and their log p `[B, k]` in float64, the most likely first.

        k: O where it is more. By best-first descent, which looks at few nodes. Words with several codes need all of
        them, and so the whole distribution; it is also faster on a device other than the CPU and with nodes that are
        more than a dot product.
        """
        k, nodes = min(k, self.tree.words), self.nodes
        if not (isinstance(nodes, DotNodes) and compiled(h) and self._one_code and self.tree.nodes):
            return super().top(h, k)
        h = h.contiguous()
        leaves, log_p = torch.empty(len(h), k, dtype=torch.int64), torch.empty(len(h), k, dtype=torch.float64)
        weights = nodes.vectors.detach().numpy(), nodes.bias.detach().numpy()
        outputs = leaves.numpy(), log_p.numpy()
        cuts = parallel.cut_evenly(len(h), min(parallel.threads(), len(h)))
        parallel.run((tree_loops.best_first, h.numpy(), *weights, self.tree.children, *outputs, *cut) for cut in cuts)
        return torch.from_numpy(self.tree.leaf_words).long()[leaves], log_p

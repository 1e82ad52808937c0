"""The hierarchical softmax as an output layer: the probability of a word is that of the turns on the way to it.

Legend of shapes: B examples, D hidden, O words, N inner nodes, L leaves, P the nodes on the ways of a batch.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from lmtool.system import parallel
from lmtool.neural.kernels import loops
from lmtool.neural.kernels.best_first import best_first
from lmtool.neural.outputs.tree_nodes import DotNodes, MorinBengioNodes
from lmtool.neural.kernels.sparse_rows import Pairs, compiled, log_sum_exp, logistic_loss, stretches
from lmtool.trees.tree import Tree

CHUNK = 256  # distributions that exist at once


def node_log_odds(tree: Tree, counts: Tensor) -> Tensor:
    """log odds `[N]` of each node's second child by the counts `[O]` of the words below; half a word is added to
    both.
    """
    leaves = counts.double().numpy()[tree.leaf_words] / np.diff(tree.word_leaves)[tree.leaf_words]
    paths = tree.paths
    mass = np.repeat(leaves, np.diff(paths.offsets))
    second = np.bincount(paths.nodes, weights=mass * paths.bits, minlength=tree.nodes)
    first = np.bincount(paths.nodes, weights=mass * (1 - paths.bits.astype(float)), minlength=tree.nodes)
    return torch.from_numpy(np.log(second + 0.5) - np.log(first + 0.5))


class HierarchicalSoftmax(nn.Module):
    """p(w|h) = product over the nodes n on the way to w of sigmoid(+- s_n(h)) (Morin & Bengio 2005, eq. 3).

    The sign is + where the way goes to the second child. A word with several codes has the sum of their probabilities
    (Mnih & Hinton 2009, eq. 7). A step works on the nodes of the ways to its targets and on no others.

    tree: over the O words. counts: `[O]` from train, to start at the unigram distribution; None to start at even
    odds. nodes: the scores s, DotNodes if None. sparse: gradients of the nodes on the way alone (with DotNodes made
    here).
    """

    def __init__(
        self,
        dim: int,
        tree: Tree,
        counts: Tensor | None = None,
        *,
        nodes: DotNodes | MorinBengioNodes | None = None,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.tree = tree
        if nodes is None:
            odds = torch.zeros(tree.nodes) if counts is None else node_log_odds(tree, counts)
            nodes = DotNodes(dim, odds, sparse=sparse)
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

    def paths(self, leaves: Tensor) -> tuple[Pairs, Tensor]:
        """The ways to leaves `[B]`: which nodes each passes, and the signs `[P]` of their scores, int32."""
        if leaves.device.type != "cpu":
            return self.paths_plain(leaves)
        size = len(leaves)
        starts = torch.empty(size + 1, dtype=torch.int64)
        arrays = [tensor.numpy() for tensor in (leaves, self._offsets, starts)]
        loops.path_sizes(*arrays)
        total = int(starts[-1])
        rows, signs, owner = (torch.empty(total, dtype=torch.int32) for _ in range(3))
        given = (leaves, self._offsets, self._path_nodes, self._path_bits, starts, rows, signs, owner)
        loops.copy_paths(*(tensor.numpy() for tensor in given))
        return Pairs(rows, starts, owner), signs

    def paths_plain(self, leaves: Tensor) -> tuple[Pairs, Tensor]:
        """The same in tensor operations."""
        starts, owner, place = stretches(self._offsets, leaves)
        signs = 2 * self._path_bits[place].to(torch.int32) - 1
        return Pairs(self._path_nodes[place], starts, owner.to(torch.int32)), signs

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Mean -log p(y|h) in nats over hidden `[B, D]` and targets `[B]`."""
        if self._one_code:
            pairs, signs = self.paths(y)
            return logistic_loss(self.nodes.scores(h, pairs), signs) / len(y)
        return -self._log_words(h, y[:, None]).mean()

    def _log_words(self, h: Tensor, y: Tensor) -> Tensor:
        """log p of words `[B, K]`, through all their codes; in h's precision but for the sums, which are in float64."""
        words = y.reshape(-1)
        each = y.shape[1]
        first_code, code_owner, leaves = stretches(self._word_leaves, words)  # code_owner: the word of each code
        pairs, signs = self.paths(leaves)
        of_code = pairs.owner
        # For the scores the owner of a node is the example, not the code.
        example = (code_owner // each).to(torch.int32)[of_code.long()]
        starts = pairs.starts[first_code[::each]]
        scores = self.nodes.scores(h, Pairs(pairs.rows, starts, example))
        turns = F.logsigmoid(scores.double() * signs)
        log_code = turns.new_zeros(len(leaves)).index_add_(0, of_code, turns)
        if len(leaves) == len(words):
            return log_code.reshape(y.shape)
        return log_sum_exp(log_code, first_code, code_owner).reshape(y.shape)

    def log_prob(self, h: Tensor, y: Tensor) -> Tensor:
        """log p(y|h) in float64; y `[B]` or `[B, K]`, as the result. Works on the ways to y alone."""
        with torch.no_grad():
            return self._log_words(h, y.reshape(len(y), -1)).reshape(y.shape)

    def log_dist(self, h: Tensor) -> Tensor:
        """log p of all words, `[B, O]` in float64, in one pass over the tree for each example."""
        dist = torch.empty(len(h), self.tree.words, dtype=torch.float64, device=h.device)
        with torch.no_grad():
            for first in range(0, len(h), CHUNK):
                leaves = self._leaves(h[first : first + CHUNK])
                if not self._one_code:
                    leaves = torch.from_numpy(
                        np.logaddexp.reduceat(leaves.cpu().numpy(), self.tree.word_leaves[:-1], axis=1)
                    )
                dist[first : first + CHUNK] = leaves
        return dist

    def _leaves(self, h: Tensor) -> Tensor:
        """log p of each leaf, `[B, L]` in float64."""
        log_leaf = torch.zeros(len(h), self.tree.leaves, dtype=torch.float64)
        if self.tree.nodes:
            scores = self.nodes.all_scores(h)
            log_yes = F.logsigmoid(scores)
            arrays = [tensor.cpu().numpy() for tensor in (log_yes, scores)]
            cuts = parallel.cut_evenly(len(h))
            parallel.run(
                (loops.add_down, *arrays, self.tree.children, log_leaf.numpy(), first, last) for first, last in cuts
            )
        return log_leaf

    def log_leaves_plain(self, h: Tensor) -> Tensor:
        """log p of each leaf, `[B, L]` in float64, code by code in tensor operations."""
        turns = self.nodes.all_scores(h).double()[:, self._path_nodes] * (2 * self._path_bits.double() - 1)
        pairs, _ = self.paths_plain(torch.arange(self.tree.leaves))
        found = turns.new_zeros(len(h), self.tree.leaves)
        return found.index_add_(1, pairs.owner, F.logsigmoid(turns))

    def sample(self, h: Tensor) -> Tensor:
        """A word `[B]` after each hidden `[B, D]`, by descent from the root; from torch's random state."""
        children = torch.from_numpy(self.tree.children).long().to(h.device)
        at = torch.zeros(len(h), dtype=torch.int64, device=h.device) if self.tree.nodes else -torch.ones(len(h)).long()
        with torch.no_grad():
            while (at >= 0).any():
                going = (at >= 0).nonzero()[:, 0]
                pairs = Pairs(at[going], torch.arange(len(going) + 1), torch.arange(len(going), device=h.device))
                p = self.nodes.scores(h[going], pairs).sigmoid()
                at[going] = children[at[going], (torch.rand_like(p) < p).long()]
        return torch.from_numpy(self.tree.leaf_words).long().to(h.device)[-1 - at]

    @torch.no_grad()
    def top(self, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k likeliest words `[B, k]`, and their log p in float64, likeliest first, after hidden `[B, D]`.

        By best-first descent, which looks at few nodes. Words with several codes need all of them, and so the whole
        distribution; it is also the faster way on a device and with nodes that are more than a dot product.
        """
        k, nodes = min(k, self.tree.words), self.nodes
        if not (isinstance(nodes, DotNodes) and compiled(h) and self._one_code and self.tree.nodes):
            values, words = self.log_dist(h).topk(k, 1)
            return words, values
        h = h.contiguous()
        leaves, log_p = torch.empty(len(h), k, dtype=torch.int64), torch.empty(len(h), k, dtype=torch.float64)
        weights = nodes.vectors.detach().numpy(), nodes.bias.detach().numpy()
        found = leaves.numpy(), log_p.numpy()
        cuts = parallel.cut_evenly(len(h), min(parallel.threads(), len(h)))
        parallel.run((best_first, h.numpy(), *weights, self.tree.children, *found, *cut) for cut in cuts)
        return torch.from_numpy(self.tree.leaf_words).long()[leaves], log_p

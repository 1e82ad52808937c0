"""The paths of a tree as a GPU reads them: all as long as the longest, so that no shape depends on the words of a
batch; and the distribution over its leaves, level by level.

Legend of shapes: B examples, W words, L leaves, N inner nodes, P nodes of the longest path, C codes of the word with
most.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lmtool.neural.kernels.row_losses import ENDED, log_decisions
from lmtool.neural.outputs.tree_nodes import DotNodes, MorinBengioNodes
from lmtool.trees.tree import Tree

LONGEST = 256  # nodes of a path, beyond which padding would cost more than it saves
MOST = 1 << 28  # entries of the tables
CODES = 8  # of a word, likewise


@dataclass(frozen=True)
class PaddedPaths:
    """nodes: `[L, P]`, int32, 0 where a path has ended. decisions: `[L, 2, P]` in the type of hidden, signs that are +1
    where the path goes to the second child, -1 where to the first, 0 where it has ended, and then ENDED where it has, 0
    elsewhere. codes: `[W, C]`, int64, the leaves of each word, the first one again where there are no more; None where
    each word has one. no_code: `[W, C]`, 0 for a code, -inf for none.
    """

    nodes: Tensor
    decisions: Tensor
    codes: Tensor | None
    no_code: Tensor | None

    @staticmethod
    def suits(tree: Tree) -> bool:
        """Whether the paths of a tree are even enough for this form."""
        longest, codes = int(tree.depths.max()), int(np.diff(tree.word_leaves).max())
        return 0 < longest <= LONGEST and tree.leaves * longest <= MOST and codes <= CODES

    @classmethod
    def of(cls, tree: Tree, like: Tensor) -> PaddedPaths:
        """The paths of a tree on the device and in the type of a tensor."""
        paths, depths = tree.paths, tree.depths
        longest = int(depths.max())
        there = np.arange(longest) < depths[:, None]  # [L, P]
        nodes, signs = np.zeros(there.shape, dtype=np.int32), np.zeros(there.shape, dtype=np.float32)
        nodes[there], signs[there] = paths.nodes, 2 * paths.bits.astype(np.float32) - 1
        decisions = torch.from_numpy(np.stack([signs, np.where(there, np.float32(0), np.float32(ENDED))], 1))
        codes = no_code = None
        counts = np.diff(tree.word_leaves)
        if counts.max() > 1:
            place = np.arange(counts.max())
            is_code = place < counts[:, None]  # [W, C]
            codes = torch.from_numpy(
                np.where(is_code, tree.word_leaves[:-1, None] + place, tree.word_leaves[:-1, None])
            )
            no_code = torch.from_numpy(np.where(is_code, 0.0, -np.inf)).to(like)
        device = like.device
        return cls(
            torch.from_numpy(nodes).to(device),
            decisions.to(like),
            None if codes is None else codes.to(device),
            no_code,
        )

    def serves(self, like: Tensor) -> bool:
        """Whether the paths are on the device and in the type of a tensor."""
        return self.decisions.device == like.device and self.decisions.dtype == like.dtype

    def loss(self, scored_by: DotNodes | MorinBengioNodes, h: Tensor, y: Tensor) -> Tensor:
        """Mean -log p(y|h) over hidden `[B, D]` and words `[B]`, int64; a number."""
        leaves = y if self.codes is None else self.codes.index_select(0, y).view(-1)  # [B C]
        nodes, decisions = self.nodes.index_select(0, leaves), self.decisions.index_select(0, leaves)
        scores = scored_by.padded_scores(h, nodes.view(len(y), -1)).view_as(nodes)  # [B C, P]
        log_p = log_decisions(scores, decisions[:, 0], decisions[:, 1])
        if self.no_code is None:
            return log_p.sum() / -len(y)
        log_code = log_p.sum(1).view(len(y), -1) + self.no_code.index_select(0, y)  # [B, C]
        return log_code.logsumexp(1).sum() / -len(y)


@lru_cache(maxsize=4)
def _levels(children: bytes) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The inner nodes of each depth, the root first; children: of a Tree, as bytes."""
    table = np.frombuffer(children, dtype=np.int32).reshape(-1, 2)
    levels, at = [], np.zeros(1, dtype=np.int64)
    while len(at):
        levels.append(at)
        below = table[at].ravel()
        at = np.sort(below[below >= 0]).astype(np.int64)
    return levels


def add_down(tree: Tree, scores: Tensor) -> Tensor:
    """log p of each leaf, `[B, L]` in float64, from the scores of all nodes for their second child, `[B, N]`."""
    nodes, size, device = tree.nodes, len(scores), scores.device
    if not nodes:
        return scores.new_zeros(size, 1, dtype=torch.float64)
    log_second = F.logsigmoid(scores)
    log_first = log_second.double() - scores.double()
    # Inner nodes, then leaves, by which row: a row of a level is then written and read as a whole.
    reached = torch.zeros(nodes + tree.leaves, size, dtype=torch.float64, device=device)
    decisions = torch.stack([log_first.T, log_second.double().T], 1)  # [N, 2, B]
    where = np.where(tree.children >= 0, tree.children, nodes - 1 - tree.children).astype(np.int64)
    for level in _levels(tree.children.tobytes()):
        at, below = (torch.from_numpy(index).to(device) for index in (level, where[level].ravel()))
        log_p = reached.index_select(0, at)[:, None] + decisions.index_select(0, at)  # [n, 2, B]
        reached.index_copy_(0, below, log_p.flatten(0, 1))
    return reached[nodes:].T


def sums_of_codes(tree: Tree, leaves: Tensor) -> Tensor:
    """log p of each word, `[B, W]` in float64, the sum over its codes, from log p of the leaves, `[B, L]`."""
    words = torch.from_numpy(tree.leaf_words.astype(np.int64)).to(leaves.device)
    shape = len(leaves), tree.words
    largest = leaves.new_full(shape, -torch.inf).scatter_reduce_(1, words.expand_as(leaves), leaves, "amax")
    total = leaves.new_zeros(shape).index_add_(1, words, (leaves - largest.index_select(1, words)).exp())
    return largest + total.log()

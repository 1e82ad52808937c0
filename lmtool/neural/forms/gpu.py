"""Losses on a GPU whose operations have the same shapes for every batch, so that none waits for the GPU and a training
step can be captured as a CUDA graph (lmtool.training.step).

The plain formulas list the nodes, classes or tails of a batch, whose number the GPU must report to Python before the
next operation can be launched. Here paths are padded, and classes and tails are computed for the whole batch.

Legend of shapes: B examples, D dimension of the hidden states, O words that can be predicted, K codes of the word with
most, M nodes of the longest path.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lmtool.neural.forms import form
from lmtool.neural.outputs.adaptive import AdaptiveSoftmax
from lmtool.neural.outputs.classes import ClassSoftmax
from lmtool.neural.outputs.hierarchical import DotNodes, HierarchicalSoftmax, MorinBengioNodes
from lmtool.neural.rows import pairs_of

MAX_PADDED_NODES = 1 << 28  # maximum nodes of the padded paths to all words
MAX_PADDING = 8.0  # ratio of padded to actual nodes
MAX_HIDDEN = 1 << 25  # nodes of a batch's padded paths x hidden units of each, of Morin & Bengio's nodes
MAX_CLASS_SCORES = 1 << 25  # words x examples of a batch
MAX_TAIL_SCORES = 1 << 27  # likewise
Paths = tuple[Tensor, Tensor, Tensor]
_padded: WeakKeyDictionary[HierarchicalSoftmax, Paths] = WeakKeyDictionary()


def on_gpu(h: Tensor) -> bool:
    """Return whether hidden states are on a GPU."""
    return h.is_cuda


def _pads(layer: HierarchicalSoftmax, h: Tensor) -> bool:
    tree = layer.tree
    if not on_gpu(h) or not tree.nodes:
        return False
    lengths, codes = np.diff(tree.paths.offsets), np.diff(tree.word_leaves)
    per_example = int(codes.max()) * int(lengths.max())
    nodes, padded = layer.nodes, tree.words * per_example
    if isinstance(nodes, MorinBengioNodes) and len(h) * per_example * len(nodes.beta) > MAX_HIDDEN:
        return False
    return padded <= min(MAX_PADDED_NODES, MAX_PADDING * int(lengths.sum()))


def padded_paths(layer: HierarchicalSoftmax) -> Paths:
    """Return the nodes of the paths to each word, int32 `[O, K, M]`, the signs of their scores, int8, 0 beyond a path's
    end, and float32 `[O, K]`, 0 for a code of the word and -inf for none.
    """
    tree, paths = layer.tree, layer.tree.paths
    lengths, first = np.diff(paths.offsets), tree.word_leaves[:-1, None]
    inside = np.arange(lengths.max()) < lengths[:, None]
    nodes, signs = np.zeros(inside.shape, dtype=np.int32), np.zeros(inside.shape, dtype=np.int8)
    nodes[inside], signs[inside] = paths.nodes, 2 * paths.bits.astype(np.int8) - 1
    leaves = first + np.arange(np.diff(tree.word_leaves).max())  # [O, K]
    exists = leaves < tree.word_leaves[1:, None]
    leaves = np.where(exists, leaves, first)
    missing = np.where(exists, 0, -np.inf).astype(np.float32)
    device = layer.reference().device
    found = (torch.from_numpy(array).to(device) for array in (nodes[leaves], signs[leaves], missing))
    return next(found), next(found), next(found)


@form(
    HierarchicalSoftmax,
    "loss",
    serves=_pads,
    calls=("paths_to", "log_probs_of"),
    measured="5.1 times (with 500 units 4.8) at 10,000 words and batch 1,024, 1.8 (1.25) at 8,192, 2.3 at a million "
    "words; Morin & Bengio's nodes 4.3 (3.2), 1.75 (0.8: not served), 2.8; as a graph, the plain formula cannot be "
    "one (NVIDIA H200, 2026-11-26)",
)
def whole_paths(layer: HierarchicalSoftmax, h: Tensor, y: Tensor) -> Tensor:
    """Compute -log p along paths that are all as long as the longest, its ends having no effect."""
    if layer not in _padded or _padded[layer][0].device != h.device:
        _padded[layer] = padded_paths(layer)
    rows, signs, missing = (table[y] for table in _padded[layer])  # [B, K, M], [B, K, M], [B, K]
    nodes, flat = layer.nodes, rows.flatten(1)
    if type(nodes) is DotNodes and not nodes.sparse:
        own = F.embedding(flat, nodes.vectors) @ h[:, :, None]  # [B, K M, 1]
        scores = own[:, :, 0] + nodes.bias.gather(0, flat.reshape(-1).long()).view(flat.shape)
    else:
        scores = nodes.scores_of(h, pairs_of(flat))
    decisions = F.logsigmoid(scores.view(rows.shape) * signs)
    log_code = torch.where(signs != 0, decisions, 0).sum(2)  # [B, K]
    return -torch.logsumexp(log_code + missing, 1).mean()


@form(
    ClassSoftmax,
    "loss",
    serves=lambda layer, h: on_gpu(h) and not layer.sparse and len(h) * layer.word_count <= MAX_CLASS_SCORES,
    calls=("log_probs_in_class",),
    measured="3.6 times (with 500 units 2.8) at 10,000 words and batch 1,024, 1.0 at 8,192 (not served); as a graph "
    "(NVIDIA H200, 2026-11-26)",
)
def whole_classes(layer: ClassSoftmax, h: Tensor, y: Tensor) -> Tensor:
    """Compute -log p(class|h) - log p(y|class, h) from the scores of all words; words of other classes have -inf."""
    classes = layer.classes[y]
    scores = F.linear(h, layer.vectors, layer.bias)  # [B, O]
    in_class = scores.masked_fill(layer.classes != classes[:, None], -torch.inf).logsumexp(1)
    word_log_prob = scores.gather(1, y[:, None])[:, 0] - in_class
    return F.cross_entropy(F.linear(h, layer.class_vectors, layer.class_bias), classes) - word_log_prob.mean()


@form(
    AdaptiveSoftmax,
    "loss",
    serves=lambda layer, h: on_gpu(h) and len(h) * layer.word_count <= MAX_TAIL_SCORES,
    measured="5.0 times (with 500 units 4.1) at 10,000 words and batch 1,024, 1.7 (1.15) at 8,192; as a graph "
    "(NVIDIA H200, 2026-11-26)",
)
def whole_tails(layer: AdaptiveSoftmax, h: Tensor, y: Tensor) -> Tensor:
    """Compute -log p(y|h) from the head and from every tail for the whole batch; other tails' losses count 0."""
    head_word, losses = y, torch.zeros_like(h[:, 0])
    ends = layer.layer.cutoffs  # ends of the head and of each tail
    for number, tail in enumerate(layer.layer.tail):
        first, last = ends[number], ends[number + 1]
        inside = (y >= first) & (y < last)
        head_word = torch.where(inside, ends[0] + number, head_word)
        own = F.cross_entropy(tail(h), torch.where(inside, y - first, 0), reduction="none")
        losses = losses + torch.where(inside, own, 0)
    return F.cross_entropy(layer.layer.head(h), head_word) + losses.mean()

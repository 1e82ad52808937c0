"""Trees that keep words with similar vectors together: a set of words is repeatedly divided in two by their vectors."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from lmtool.config.rules import require_whole
from lmtool.errors import UserError
from lmtool.system.arrays import IntArray, as_array, described, word_counts
from lmtool.trees._two_means import divide
from lmtool.trees.base import require_division
from lmtool.trees.builders import arranged
from lmtool.trees.tree import Tree

MAX_CODES = 8  # per word
ROUNDS = 10  # of EM or 2-means


def clusters_tree(
    vectors: npt.NDArray[np.floating], counts: IntArray, split: str, method: str, epsilon: float, seed: int
) -> Tree:
    """Build the tree over words `[W]` by their vectors, float `[W, D]` (Mnih & Hinton 2009).

    counts: int64 `[W]`; the half with more of them is child 0. method: "kmeans", 2-means, or "gaussians", a mixture of
    two Gaussians (one variance for both and all dimensions) fitted by EM. split: "balanced" sorts the words by their
    log odds and cuts in the middle; "adaptive" puts each word into the likelier component. epsilon: with adaptive
    Gaussians, a word whose responsibilities are within epsilon of 0.5 goes to both halves and gets several codes; 0 for
    one code per word. seed: chooses the words at which the two means start.

    The paper's rule would let sets grow forever; therefore no word gets more than 8 codes, and neither sets of 3 words
    or fewer overlap, nor a set of which one half would be as large as the whole. From depth 3 log2 W on all cuts are
    balanced, which bounds the codes of outliers that are split off one at a time. Equal vectors are halved.

    Raises UserError for an unknown split or method, an epsilon below 0, of 0.5 or more, or without adaptive Gaussians,
    a seed below 0, and vectors that are not finite; ValueError if `counts` are not counts, or vectors have another type
    or a shape that does not fit.
    """
    require_division(split, method, epsilon)
    require_whole("tree.seed", seed, 0)
    counts = word_counts("clusters_tree: counts", counts)
    vectors = as_array("clusters_tree: vectors", vectors)
    if vectors.ndim != 2 or len(vectors) != len(counts) or not vectors.shape[1] or vectors.dtype.kind not in "iuf":
        wanted = f"numbers [{len(counts)}, D], D 1 or more"
        raise ValueError(f"clusters_tree: vectors must be {wanted}, as there are counts; got {described(vectors)}")
    with np.errstate(over="ignore", invalid="ignore"):
        mean = vectors.mean(axis=0, dtype=np.float64)
        centred = np.ascontiguousarray(vectors - mean, dtype=np.float32)
    if not np.isfinite(centred).all():
        raise UserError("the word vectors are not finite: their model diverged; train it with a lower optim.lr")
    margin = math.log((0.5 + epsilon) / (0.5 - epsilon))  # in log odds
    max_depth = 3 * math.ceil(math.log2(len(vectors) + 1))
    adaptive, gaussians = split == "adaptive", method == "gaussians"
    children, leaf_words = divide(centred, counts, gaussians, adaptive, margin, MAX_CODES, max_depth, ROUNDS, seed)
    return arranged(children, 0, leaf_words)

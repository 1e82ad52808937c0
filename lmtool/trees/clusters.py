"""Words with like vectors together: Mnih & Hinton (2009), "A scalable hierarchical distributed language model"."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from lmtool.errors import UserError
from lmtool.trees.assemble import arranged
from lmtool.trees.tree import Int64s, Tree
from lmtool.trees.two_means import divide

Split = Literal["balanced", "adaptive"]
Method = Literal["kmeans", "gaussians"]

MAX_CODES = 8  # of a word
ROUNDS = 10  # of EM or 2-means


def clusters(
    vectors: npt.NDArray[np.float32], counts: Int64s, split: Split, method: Method, epsilon: float, seed: int
) -> Tree:
    """Divide the words in two by their vectors, and so on until single words are left.

    vectors: `[W, D]`; in the paper, of each word the mean of what a model predicts before it. counts: `[W]`, which
    settle which half is child 0. method: 2-means, or a mixture of two Gaussians (one variance for both and all
    dimensions) fitted by EM. split: balanced sorts the words by their odds and cuts in the middle; adaptive gives each
    word to the likelier component. epsilon: with adaptive Gaussians, a word whose responsibilities are within
    epsilon of 0.5 goes to both halves and gets several codes; 0 for never.

    The paper's rule would let sets grow for ever, so that here no word gets more than 8 codes, sets of 3 words or fewer
    do not overlap, and none does whose half would be no smaller. From depth 3 log2 W on all cuts are balanced, which
    bounds the codes of outliers that are split off one at a time. Equal vectors are halved.

    Raises UserError for an unknown split or method, an epsilon of 0.5 or more, below 0 or where it has no meaning, and
    vectors that are not finite.
    """
    if split not in get_args(Split):
        raise UserError(f"tree.split={split}: must be one of {', '.join(get_args(Split))}")
    if method not in get_args(Method):
        raise UserError(f"tree.method={method}: must be one of {', '.join(get_args(Method))}")
    if not 0 <= epsilon < 0.5:
        raise UserError(f"tree.epsilon={epsilon}: must be from 0 to below 0.5; 0.25 and 0.4 are the paper's")
    if epsilon and (split, method) != ("adaptive", "gaussians"):
        raise UserError(
            f"tree.epsilon={epsilon}: words get several codes with tree.split=adaptive tree.method=gaussians only; "
            "choose these, or tree.epsilon=0"
        )
    assert vectors.ndim == 2 and len(vectors) == len(counts), "each word has a vector"
    if not np.isfinite(vectors).all():
        raise UserError("the word vectors hold infinite numbers or none: their model diverged; train it again")
    middle = vectors.mean(axis=0, dtype=np.float64)
    centred = np.ascontiguousarray(vectors - middle, dtype=np.float32)
    near = math.log((0.5 + epsilon) / (0.5 - epsilon))  # as log odds
    deepest = 3 * math.ceil(math.log2(len(vectors) + 1))
    adaptive, gaussians = split == "adaptive", method == "gaussians"
    counts = counts.astype(np.int64)
    children, leaf_words = divide(centred, counts, gaussians, adaptive, near, MAX_CODES, deepest, ROUNDS, seed)
    return arranged(children, 0, leaf_words)

r"""Words with similar vectors together: a set of words is divided in two by their vectors, again and again.

.. math::

    p(x) &= \pi_1\,\mathcal{N}(x; \mu_1, \sigma^2 I) + \pi_2\,\mathcal{N}(x; \mu_2, \sigma^2 I) \\
    \log \frac{r_2(x)}{r_1(x)} &= \frac{1}{\sigma^2} \left( (\mu_2 - \mu_1) \cdot x -
        \frac{|\mu_2|^2 - |\mu_1|^2}{2} \right) + \log \frac{\pi_2}{\pi_1}

x is the vector of a word: in the paper, the mean of what an earlier model predicts in its contexts; without an earlier
run, principal components of the square roots of its neighbours' probabilities in train (Lebret & Collobert 2014). The
mixture is fitted to each set by EM; r are its responsibilities. A word goes to the likelier half, or with
`split=balanced` to that of its place in the order of the odds; where |r - 0.5| < `epsilon` it goes to both and gets
several codes. With `method=kmeans` the odds are half the difference of squared distances.

Source: Mnih & Hinton (2009), "A scalable hierarchical distributed language model", NIPS.
Complexity: O(D) for each word, level of the tree and round of EM, of which there are at most ten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from lmtool.config.groups import TreeConfig
from lmtool.config.rules import MISSING, require, require_seed, require_whole
from lmtool.errors import UserError
from lmtool.system.arrays import as_array, described, word_counts
from lmtool.trees.assemble import arranged
from lmtool.trees.base import TreeWords
from lmtool.trees.tree import Int64s, Tree
from lmtool.trees.two_means import divide

MAX_CODES = 8  # per word
ROUNDS = 10  # of EM or 2-means


class Division(Enum):
    """How a set of words is divided in two."""

    balanced = "balanced"
    adaptive = "adaptive"


class Method(Enum):
    """What the division goes by."""

    kmeans = "kmeans"
    gaussians = "gaussians"


class Representation(Enum):
    """Which vectors the words have."""

    neighbours = "neighbours"
    contexts = "contexts"
    embeddings = "embeddings"


@dataclass(slots=True)
class ClustersTree(TreeConfig):
    """Clusters of words by their neighbours in train, or their vectors in an earlier run (Mnih & Hinton 2009).

    tokens: of the beginning of train, for neighbours. dimensions: of the vectors made of these.
    """

    run: str | None = MISSING
    representation: Representation | None = MISSING
    dimensions: int = MISSING
    tokens: int | None = MISSING
    split: Division = MISSING
    method: Method = MISSING
    epsilon: float = MISSING
    seed: int = MISSING

    def __post_init__(self) -> None:
        require_seed("tree.seed", self.seed)
        require_whole("tree.dimensions", self.dimensions)
        require_whole("tree.tokens", self.tokens, null=True)
        if self.run is None and self.representation in (Representation.contexts, Representation.embeddings):
            name = self.representation.value
            raise UserError(f"tree.representation={name}: these are of an earlier run; name it, as tree.run=runs/first")
        if self.run is not None and self.representation is Representation.neighbours:
            raise UserError(f"tree.run={self.run}: has no part in tree.representation=neighbours; leave one out")
        _require_division(self.split.value, self.method.value, self.epsilon)

    def build(self, words: TreeWords) -> Tree:
        """The tree of the words' vectors. Raises UserError for a run of another vocabulary or without word vectors."""
        if self.run is None:
            from lmtool.trees.neighbour_vectors import neighbour_vectors  # with torch, which other trees do without

            vectors = neighbour_vectors(words.train().ids[: self.tokens], words.counts, self.dimensions)
        else:
            vectors = words.run_vectors(self.run, self.representation is not Representation.embeddings)
        return clusters_tree(
            vectors,
            words.counts,
            split=self.split.value,
            method=self.method.value,
            epsilon=self.epsilon,
            seed=self.seed,
        )


def _require_division(split: str, method: str, epsilon: float) -> None:
    """Raise UserError for settings that are unknown, out of range, or contradict each other."""
    require(split in Division.__members__, "tree.split", split, f"one of {', '.join(Division.__members__)}")
    require(method in Method.__members__, "tree.method", method, f"one of {', '.join(Method.__members__)}")
    require(0 <= epsilon < 0.5, "tree.epsilon", epsilon, "from 0 to below 0.5; 0.25 and 0.4 are the paper's")
    if epsilon and (split, method) != ("adaptive", "gaussians"):
        raise UserError(
            f"tree.epsilon={epsilon}: several codes per word need tree.split=adaptive and tree.method=gaussians; "
            "choose these, or tree.epsilon=0"
        )


def clusters_tree(
    vectors: npt.NDArray[np.floating], counts: Int64s, split: str, method: str, epsilon: float, seed: int
) -> Tree:
    """The tree over words `[W]` by their vectors, float `[W, D]`.

    counts: int64 `[W]`; the half with more of them is child 0. method: "kmeans", 2-means, or "gaussians", a mixture of
    two Gaussians (one variance for both and all dimensions) fitted by EM. split: "balanced" sorts the words by their
    log odds and cuts in the middle; "adaptive" puts each word into the likelier component. epsilon: with adaptive
    Gaussians, a word whose responsibilities are within epsilon of 0.5 goes to both halves and gets several codes; 0 for
    one code per word. seed: of the words at which the two means start.

    The paper's rule would let sets grow for ever, so that here no word gets more than 8 codes, sets of 3 words or fewer
    do not overlap, nor does a set of which one half would be as large as the whole. From depth 3 log2 W on all cuts are
    balanced, which bounds the codes of outliers that are split off one at a time. Equal vectors are halved.

    Raises UserError for an unknown split or method, an epsilon below 0, of 0.5 or more, or without adaptive Gaussians,
    a seed below 0, and vectors that are not finite; ValueError for what are no counts and for vectors of another type
    or of a shape that does not fit them.
    """
    _require_division(split, method, epsilon)
    require_seed("tree.seed", seed)
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

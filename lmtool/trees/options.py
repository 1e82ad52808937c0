"""Options of the group `tree`: how the words, their counts or a text become a tree; builders are imported on use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lmtool import trees
from lmtool.config.groups import TreeConfig
from lmtool.config.rules import MISSING, require, setting
from lmtool.data.vocabulary import EOS
from lmtool.errors import UserError
from lmtool.trees.division import Division, Method, require_division

if TYPE_CHECKING:
    from lmtool.trees.tree import Tree, TreeWords

MAX_UNION = 16  # maximum number of trees of tree=union


@dataclass(slots=True)
class BalancedTree(TreeConfig):
    r"""Halves of the list of words in alphabetical order: words with the same first letters share most of their path.

    .. math::

        \lfloor \log_2 W \rfloor \le d(w) \le \lceil \log_2 W \rceil

    d(w) is the depth of word w of W words. The first half of an odd number of words gets one more, or with
    `split=floor` one less, as in most recursive code.

    Source: lmtool's own, a baseline beside the random tree of Mnih & Hinton (2009).
    Complexity: O(W log W) to build; paths of about log2 W nodes.
    """

    kind: str = "balanced"
    split: str = setting("ceil", words=("ceil", "floor"))

    def build(self, words: TreeWords) -> Tree:
        return trees.balanced_tree(sorted(range(len(words.words)), key=words.words.__getitem__), self.split)


@dataclass(slots=True)
class RandomTree(TreeConfig):
    r"""Halves of a shuffled list of words: a tree that carries no information about the words.

    .. math::

        \lfloor \log_2 W \rfloor \le d(w) \le \lceil \log_2 W \rceil

    d(w) is the depth of word w of W words.

    Source: Mnih & Hinton (2009), "A scalable hierarchical distributed language model", NIPS, whose better trees are
        learned from a model over it.
    Complexity: O(W log W) to build; paths of about log2 W nodes.
    """

    kind: str = "random"
    seed: int = setting(min=0)

    def build(self, words: TreeWords) -> Tree:
        return trees.random_tree(len(words.words), self.seed)


@dataclass(slots=True)
class FrequencyTree(TreeConfig):
    r"""The list of words by frequency, repeatedly cut where both parts have about the same count: Fano's code.

    .. math::

        m = \arg\min_m \left| \sum_{i \le m} c(w_i) - \sum_{i > m} c(w_i) \right|

    The sums are over the words of the piece that is cut, most frequent first; a word that does not occur counts as half
    an occurrence.

    Source: Fano (1949), "The transmission of information", MIT RLE technical report 65.
    Complexity: O(W log W) to build over W words; a mean depth near the entropy of the unigrams in bits.
    """

    kind: str = "frequency"

    def build(self, words: TreeWords) -> Tree:
        return trees.frequency_tree(words.counts)


@dataclass(slots=True)
class HuffmanTree(TreeConfig):
    r"""Huffman's code of the words' counts: the shortest paths on average.

    .. math::

        \min_{\text{trees}} \sum_w c(w)\,d(w) \qquad H \le \frac{\sum_w c(w)\,d(w)}{\sum_w c(w)} < H + 1

    d(w) is the depth of w and H the entropy of the unigrams in bits. The two lightest trees are joined until one is
    left.

    Source: Huffman (1952), "A method for the construction of minimum-redundancy codes", Proceedings of the IRE 40; for
        softmax Mikolov et al. (2013), "Distributed representations of words and phrases and their compositionality",
        NIPS.
    Complexity: O(W log W) to build over W words.
    """

    kind: str = "huffman"

    def build(self, words: TreeWords) -> Tree:
        return trees.huffman_tree(words.counts)


@dataclass(slots=True)
class ClassesTree(TreeConfig):
    r"""Two levels: classes of words by frequency, then the words of each class.

    .. math::

        d(w) = d_{\text{Huffman}}(g(w)) + \log_2 |g(w)| \quad \text{(rounded down or up)}

    g(w) is the class of w: the words, most frequent first, are cut into classes of about equal counts. The classes have
    a Huffman tree, the words of a class a balanced one.

    Source: Goodman (2001), "Classes for fast maximum entropy training", ICASSP.
    Complexity: O(W log W) to build over W words.
    """

    kind: str = "classes"
    classes: int | None = setting(min=1)

    def build(self, words: TreeWords) -> Tree:
        return trees.classes_tree(words.counts, self.classes)


@dataclass(slots=True)
class BrownTree(TreeConfig):
    r"""Brown clusters: words with the same neighbors share a cluster, and similar clusters a subtree.

    .. math::

        I = \sum_{c, c'} p(c, c') \log \frac{p(c, c')}{p(c)\,p(c')}

    I is the average mutual information of the clusters of neighboring words. The C most frequent words are clusters;
    each next word is added as another cluster, and the two clusters are merged that lose the least of I. At the end the
    C clusters are merged until one is left, which gives the upper tree. The words of each cluster have a Huffman tree.
    The function `brown_tree` builds it from any text.

    Source: Brown, Della Pietra, deSouza, Lai & Mercer (1992), "Class-based n-gram models of natural language",
        Computational Linguistics 18, the algorithm for large vocabularies.
    Complexity: O(W C^2) to build, of the W words that are clustered; paths somewhat longer than Huffman's.
    """

    kind: str = "brown"
    clusters: int = setting(min=2, max=4096)
    max_words: int | None = setting(None, min=2)
    max_tokens: int | None = setting(None, min=1)

    def build(self, words: TreeWords) -> Tree:
        from lmtool.trees.brown import tree_of_split

        return tree_of_split(
            words.train(), words.counts, self.clusters, max_words=self.max_words, max_tokens=self.max_tokens
        )


class Representation(Enum):
    """Vectors of the words."""

    neighbors = "neighbors"
    contexts = "contexts"
    embeddings = "embeddings"


@dataclass(slots=True)
class ClustersTree(TreeConfig):
    r"""Words with similar vectors together: a set of words is repeatedly divided in two by their vectors.

    .. math::

        p(x) &= \pi_1\,\mathcal{N}(x; \mu_1, \sigma^2 I) + \pi_2\,\mathcal{N}(x; \mu_2, \sigma^2 I) \\
        \log \frac{r_2(x)}{r_1(x)} &= \frac{1}{\sigma^2} \left( (\mu_2 - \mu_1) \cdot x -
            \frac{|\mu_2|^2 - |\mu_1|^2}{2} \right) + \log \frac{\pi_2}{\pi_1}

    x is the vector of a word: in the paper, the mean prediction of an earlier model in the word's contexts; without an
    earlier run, principal components of the square roots of its neighbors' probabilities in train (Lebret & Collobert
    2014). The mixture is fitted to each set by EM; r are its responsibilities. A word goes to the likelier half, or
    with `split=balanced` to the half of its place in the order of the odds; if |r - 0.5| < `epsilon` it goes to both
    and gets several codes. With `method=kmeans` the odds are half the difference of squared distances.

    Source: Mnih & Hinton (2009), "A scalable hierarchical distributed language model", NIPS.
    Complexity: O(D) for each word, level of the tree and round of EM, of which there are at most ten.
    """

    kind: str = "clusters"
    run: str | None = MISSING
    representation: Representation | None = MISSING
    dimensions: int = setting(min=1)
    max_tokens: int | None = setting(min=1)
    split: Division = MISSING
    method: Method = MISSING
    epsilon: float = setting(min=0, below=0.5)
    seed: int = setting(min=0)

    def __post_init__(self) -> None:
        TreeConfig.__post_init__(self)
        neighbors = self.representation is Representation.neighbors
        if self.run is None and self.representation is not None and not neighbors:
            name = f"tree.representation={self.representation.value}"
            raise UserError(f"{name}: these vectors are of an earlier run; name it, e.g. tree.run=runs/first")
        if self.run is not None and neighbors:
            raise UserError(f"tree.run={self.run}: is not used with tree.representation=neighbors; remove one of them")
        require_division(self.split.value, self.method.value, self.epsilon)

    def build(self, words: TreeWords) -> Tree:
        if self.run is None:
            from lmtool.trees._neighbor_vectors import neighbor_vectors  # imports torch, which other trees do not need

            text = words.train()
            ids = text.ids[: self.max_tokens]
            # `</s>` is the neighbor of words of two sentences; without it they have none beyond their own.
            starts = text.offsets[:1] if EOS in words.words else text.offsets[text.offsets < len(ids)]
            vectors = neighbor_vectors(ids, np.append(starts, len(ids)), words.counts, self.dimensions)
        else:
            vectors = words.run_vectors(self.run, self.representation is not Representation.embeddings)
        how = {"split": self.split.value, "method": self.method.value}
        return trees.clusters_tree(vectors, words.counts, **how, epsilon=self.epsilon, seed=self.seed)


@dataclass(slots=True)
class UnionTree(TreeConfig):
    r"""Several trees at once: each word has a code in every one of them.

    .. math::

        p(w|h) = \sum_k p(k|h) \, p_k(w|h)

    p_k is the hierarchical softmax over tree k. The trees hang below a balanced one, whose decisions p(k|h) are learned
    like all others: together they are one tree, in which a word has several codes. Words that one tree separates badly
    may be together in another.

    Source: Mnih & Hinton (2009), "A scalable hierarchical distributed language model", NIPS, section 5 (their trees
        "x 2" and "x 4", of one kind with different seeds).
    Complexity: O(sum of its trees), to build and in each step.
    """

    kind: str = "union"
    trees: list[Any] = MISSING

    def __post_init__(self) -> None:
        require(2 <= len(self.trees) <= MAX_UNION, "tree.trees", self.trees, f"2 to {MAX_UNION} options of tree=")
        self._options()

    def build(self, words: TreeWords) -> Tree:
        from lmtool.trees.builders import union

        return union([option.build(words) for option in self._options()])

    def _options(self) -> list[TreeConfig]:
        from lmtool.config.settings import build_named_option

        return [build_named_option("tree", given, f"tree.trees[{place}]") for place, given in enumerate(self.trees)]


@dataclass(slots=True)
class FileTree(TreeConfig):
    r"""The tree of a text file with a line `word<TAB>code` for each code.

    .. math::

        \sum_{\text{codes } z} 2^{-|z|} = 1

    The codes, of 0 and 1, must form a complete binary tree: none begins another, and their Kraft sum is one.

    Source: Kraft (1949), "A device for quantizing, grouping, and coding amplitude-modulated pulses".
    Complexity: O(number of codes) to read; paths as long as the codes.
    """

    kind: str = "file"
    path: str = MISSING

    def build(self, words: TreeWords) -> Tree:
        return trees.read_tree(Path(self.path), words.words)


@dataclass(slots=True)
class WordnetTree(TreeConfig):
    r"""WordNet's is-a hierarchy as a tree: the words of a group, e.g. all animals, are the leaves below one node.

    .. math::

        d(w) = \sum_{g \ni w} d_g(w)

    The sum is over the groups g that w is in, from the top down to its own synset; d_g(w) is the depth of w, or of the
    group in g that contains it, in a Huffman tree over the members of g. A word is placed at its first, most frequent
    sense as noun or verb, and a synset below its first hypernym; other words have a Huffman tree beside these two.
    Morin and Bengio join the members of a group by clustering, which needs vectors.

    Source: Morin & Bengio (2005), "Hierarchical probabilistic neural network language model", AISTATS, the first
        hierarchical softmax; WordNet: Fellbaum (1998).
    Complexity: a look-up in WordNet for each word, then O(W log W) for W words.
    """

    kind: str = "wordnet"
    folder: str | None = MISSING

    def build(self, words: TreeWords) -> Tree:
        return trees.wordnet_tree(words.words, words.counts, Path(self.folder) if self.folder else None)

"""conf/tree: what each option has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from omegaconf import MISSING

from lmtool.config.rules import require, require_seed, require_whole
from lmtool.errors import UserError


@dataclass(slots=True)
class TreeConfig:
    """What every tree has."""

    kind: str = MISSING


@dataclass(slots=True)
class BalancedTree(TreeConfig):
    """Halves of the sorted list of words."""


@dataclass(slots=True)
class RandomTree(TreeConfig):
    """Halves of a shuffled list."""

    seed: int = MISSING

    def __post_init__(self) -> None:
        require_seed("tree.seed", self.seed)


@dataclass(slots=True)
class FrequencyTree(TreeConfig):
    """Halves of the list by frequency, of about equal counts."""


@dataclass(slots=True)
class HuffmanTree(TreeConfig):
    """The shortest code (Huffman 1952)."""


@dataclass(slots=True)
class ClassesTree(TreeConfig):
    """Classes by frequency, then their words."""

    classes: int | None = MISSING

    def __post_init__(self) -> None:
        require_whole("tree.classes", self.classes, null=True)


@dataclass(slots=True)
class BrownTree(TreeConfig):
    """Brown clusters (Brown et al. 1992)."""

    clusters: int = MISSING

    def __post_init__(self) -> None:
        require_whole("tree.clusters", self.clusters, 2, 4096)


class Division(Enum):
    """How a set of words is divided in two."""

    balanced = "balanced"
    adaptive = "adaptive"


class Method(Enum):
    """What the division goes by."""

    kmeans = "kmeans"
    gaussians = "gaussians"


class Representation(Enum):
    """What stands for a word."""

    contexts = "contexts"
    embeddings = "embeddings"


@dataclass(slots=True)
class ClustersTree(TreeConfig):
    """Clusters of an earlier run's representations (Mnih & Hinton 2009)."""

    run: str = MISSING
    representation: Representation = MISSING
    split: Division = MISSING
    method: Method = MISSING
    epsilon: float = MISSING
    seed: int = MISSING

    def __post_init__(self) -> None:
        require_seed("tree.seed", self.seed)
        require(0 <= self.epsilon < 0.5, "tree.epsilon", self.epsilon, "from 0 to below 0.5")
        if self.epsilon and (self.split is not Division.adaptive or self.method is not Method.gaussians):
            raise UserError(
                f"tree.epsilon={self.epsilon}: several codes a word need tree.split=adaptive and tree.method=gaussians"
            )


@dataclass(slots=True)
class WordnetTree(TreeConfig):
    """WordNet's is-a hierarchy made binary (Morin & Bengio 2005)."""

    folder: str | None = MISSING


@dataclass(slots=True)
class FileTree(TreeConfig):
    """Your own: a line a word, with its code."""

    path: str = MISSING

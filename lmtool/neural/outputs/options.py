"""Options of the group `output`: the settings of the output layers, which are imported when built."""

from __future__ import annotations

from abc import ABC
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from lmtool.config.groups import OutputConfig
from lmtool.config.rules import MISSING, require, setting
from lmtool.config.training import Precision
from lmtool.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from lmtool.neural.outputs.base import OutputLayer
    from lmtool.trees.tree import Tree

# The settings of arguments of layers with another name.
SETTINGS = {"noise": "num_noise", "samples": "num_samples", "power": "unigram_power"}


@contextmanager
def named_as_settings() -> Iterator[None]:
    """Turn a ValueError `NAME=VALUE: ...` of a layer's constructor into a UserError of the setting of that argument."""
    try:
        yield
    except ValueError as error:
        name, _, rest = str(error).partition("=")
        raise UserError(f"output.{SETTINGS.get(name, name)}={rest}") from None


@dataclass(slots=True)
class SoftmaxOutput(OutputConfig):
    """Softmax over all words (Bengio et al. 2003)."""

    can_tie = True
    dense_gradient = True

    kind: str = "softmax"
    precision: Precision | None = None

    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> OutputLayer:
        from lmtool.neural.outputs.softmax import FullSoftmax

        return FullSoftmax(dim, counts, vectors, precision=self.precision)


@dataclass(slots=True)
class AdaptiveOutput(OutputConfig):
    """Adaptive softmax (Grave et al. 2017); conf/output/adaptive.yaml explains each setting."""

    kind: str = "adaptive"
    cutoffs: list[int] | None = setting(min=1)
    div_value: float = setting(min=1, max=1000)

    def __post_init__(self) -> None:
        OutputConfig.__post_init__(self)
        ends = self.cutoffs
        require(ends is None or ends == sorted(set(ends)), "output.cutoffs", ends, "ascending numbers of words")

    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> OutputLayer:
        from lmtool.neural.outputs.adaptive import AdaptiveSoftmax

        with named_as_settings():
            return AdaptiveSoftmax(dim, counts, cutoffs=self.cutoffs, div_value=self.div_value)


@dataclass(slots=True)
class ClassesOutput(OutputConfig):
    """Softmax over classes, then over a class's words (Goodman 2001). classes: number; null: the square root of O."""

    kind: str = "classes"
    classes: int | None = setting(min=1)

    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> OutputLayer:
        import torch

        from lmtool.neural.outputs.classes import ClassSoftmax
        from lmtool.trees.builders import class_of_words

        classes = class_of_words(counts.numpy(), self.classes, key="output.classes")
        return ClassSoftmax(dim, counts, torch.from_numpy(classes), sparse=True)


class NodeForm(Enum):
    """Scores of the decision at a node of the tree."""

    dot = "dot"
    morin_bengio = "morin_bengio"


@dataclass(slots=True)
class HierarchicalOutput(OutputConfig):
    """Softmax over a tree (Morin & Bengio 2005). hidden_dim, node_dim: of the nodes' form morin_bengio."""

    needs_tree = True
    weight_decay = 0.4  # the nodes' vectors are far more weights than words tied to the embeddings

    kind: str = "hierarchical"
    nodes: NodeForm = MISSING
    hidden_dim: int = setting(min=1)
    node_dim: int = setting(min=1)

    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> OutputLayer:
        from lmtool.neural.outputs.hierarchical import HierarchicalSoftmax, MorinBengioNodes, node_log_odds

        assert tree is not None, "needs_tree"
        if self.nodes is NodeForm.dot:
            return HierarchicalSoftmax(dim, tree, counts, sparse=True)
        sizes = {"hidden_dim": self.hidden_dim, "node_dim": self.node_dim}
        nodes = MorinBengioNodes(dim, node_log_odds(tree, counts), **sizes, sparse=True)
        return HierarchicalSoftmax(dim, tree, counts, nodes=nodes)


@dataclass(slots=True)
class DrawnOutput(OutputConfig, ABC):
    """A layer that draws words in training. draws: the setting of their number, and its usual value."""

    can_tie = True
    loss_is_log_prob = False
    draws: ClassVar[tuple[str, int]]

    def fill_in(self, words: int) -> str:
        """Fill in the number of drawn words if it is None, given O; return a note if O is below the usual number."""
        name, usual = self.draws
        if getattr(self, name) is not None:
            return ""
        setattr(self, name, min(usual, words))
        few = f"output.{name}={words}, not {usual:,}, as the vocabulary has only {words:,} words"
        return few if words < usual else ""


@dataclass(slots=True)
class NceOutput(DrawnOutput):
    """Noise-contrastive estimation (Mnih & Teh 2012); conf/output/nce.yaml explains each setting."""

    draws = "num_noise", 500

    kind: str = "nce"
    num_noise: int | None = setting(min=1)
    share_noise: bool = MISSING
    unigram_power: float = setting(min=0, max=2)
    learn_log_z: bool = MISSING

    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> OutputLayer:
        from lmtool.neural.outputs.nce import NCELoss

        self.fill_in(len(counts))
        settings: Any = {"noise": self.num_noise, "power": self.unigram_power, "shared": self.share_noise}
        with named_as_settings():
            return NCELoss(dim, counts, vectors, **settings, learn_normalizer=self.learn_log_z, sparse=True)


@dataclass(slots=True)
class NegativeSamplingOutput(DrawnOutput):
    """Negative sampling (Mikolov et al. 2013); conf/output/negative_sampling.yaml explains each setting."""

    draws = "num_noise", 5

    kind: str = "negative_sampling"
    num_noise: int | None = setting(min=1)
    share_noise: bool = MISSING
    unigram_power: float = setting(min=0, max=2)
    bias: bool = MISSING

    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> OutputLayer:
        from lmtool.neural.outputs.negative_sampling import NegativeSampling

        self.fill_in(len(counts))
        settings: Any = {"noise": self.num_noise, "power": self.unigram_power, "shared": self.share_noise}
        with named_as_settings():
            return NegativeSampling(dim, counts, vectors, **settings, bias=self.bias, sparse=True)


@dataclass(slots=True)
class SampledOutput(DrawnOutput):
    """Softmax over sampled words (Jean et al. 2015); conf/output/sampled.yaml explains each setting."""

    draws = "num_samples", 1000

    kind: str = "sampled"
    num_samples: int | None = setting(min=1)
    unigram_power: float = setting(min=0, max=2)

    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> OutputLayer:
        from lmtool.neural.outputs.sampled import SampledSoftmax

        self.fill_in(len(counts))
        settings: Any = {"samples": self.num_samples, "power": self.unigram_power}
        with named_as_settings():
            return SampledSoftmax(dim, counts, vectors, **settings, sparse=True)

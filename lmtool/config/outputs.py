"""conf/output: what each option has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from omegaconf import MISSING

from lmtool.config.rules import require, require_whole


@dataclass(slots=True)
class OutputConfig:
    """What every output layer has."""

    kind: str = MISSING


class Precision(Enum):
    """What the large products are done in."""

    fp32 = "fp32"
    bf16 = "bf16"


@dataclass(slots=True)
class SoftmaxOutput(OutputConfig):
    """Softmax over all words."""

    precision: Precision = MISSING


class NodeForm(Enum):
    """How a node of a tree scores its two ways."""

    dot = "dot"
    morin_bengio = "morin_bengio"


@dataclass(slots=True)
class HierarchicalOutput(OutputConfig):
    """Softmax over a tree (Morin & Bengio 2005)."""

    nodes: NodeForm = MISSING
    hidden_dim: int = MISSING
    node_dim: int = MISSING

    def __post_init__(self) -> None:
        for name in ("hidden_dim", "node_dim"):
            require_whole(f"output.{name}", getattr(self, name))


@dataclass(slots=True)
class NceOutput(OutputConfig):
    """Noise-contrastive estimation (Mnih & Teh 2012)."""

    noise: int = MISSING
    shared: bool = MISSING
    power: float = MISSING
    learn_normaliser: bool = MISSING

    def __post_init__(self) -> None:
        require_whole("output.noise", self.noise)
        require(0 <= self.power <= 2, "output.power", self.power, "from 0 (uniform) to 2")


@dataclass(slots=True)
class SampledOutput(OutputConfig):
    """Softmax over sampled words (Bengio & Senecal 2008)."""

    samples: int = MISSING
    power: float = MISSING

    def __post_init__(self) -> None:
        require_whole("output.samples", self.samples)
        require(0 <= self.power <= 2, "output.power", self.power, "from 0 (uniform) to 2")


@dataclass(slots=True)
class AdaptiveOutput(OutputConfig):
    """Adaptive softmax (Grave et al. 2017)."""

    cutoffs: list[int] | None = MISSING
    div_value: float = MISSING

    def __post_init__(self) -> None:
        ends = self.cutoffs
        rule = "ascending numbers of words, 1 or more, or null"
        ascending = ends is None or (bool(ends) and ends == sorted(set(ends)) and ends[0] >= 1)
        require(ascending, "output.cutoffs", ends, rule)
        require_whole("output.cutoffs", max(ends or [1]))
        require(1 <= self.div_value <= 1000, "output.div_value", self.div_value, "from 1 to 1000")


@dataclass(slots=True)
class ClassesOutput(OutputConfig):
    """Softmax over classes, then over a class's words (Goodman 2001)."""

    classes: int | None = MISSING

    def __post_init__(self) -> None:
        require_whole("output.classes", self.classes, null=True)

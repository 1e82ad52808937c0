"""conf/output: what each option has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from omegaconf import MISSING

from lmtool.config.rules import require


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
            require(getattr(self, name) >= 1, f"output.{name}", getattr(self, name), "1 or more")


@dataclass(slots=True)
class NceOutput(OutputConfig):
    """Noise-contrastive estimation (Mnih & Teh 2012)."""

    noise: int = MISSING
    shared: bool = MISSING
    power: float = MISSING
    learn_normaliser: bool = MISSING

    def __post_init__(self) -> None:
        require(self.noise >= 1, "output.noise", self.noise, "1 or more")
        require(0 <= self.power <= 2, "output.power", self.power, "from 0 (uniform) to 2")


@dataclass(slots=True)
class SampledOutput(OutputConfig):
    """Softmax over sampled words (Bengio & Senecal 2008)."""

    samples: int = MISSING
    power: float = MISSING

    def __post_init__(self) -> None:
        require(self.samples >= 1, "output.samples", self.samples, "1 or more")
        require(0 <= self.power <= 2, "output.power", self.power, "from 0 (uniform) to 2")


@dataclass(slots=True)
class AdaptiveOutput(OutputConfig):
    """Adaptive softmax (Grave et al. 2017)."""

    cutoffs: list[int] | None = MISSING
    div_value: float = MISSING

    def __post_init__(self) -> None:
        ends = self.cutoffs
        rule = "ascending numbers of words, 1 or more, or null"
        require(
            ends is None or (bool(ends) and ends == sorted(set(ends)) and ends[0] >= 1), "output.cutoffs", ends, rule
        )
        require(self.div_value >= 1, "output.div_value", self.div_value, "1 or more")


@dataclass(slots=True)
class ClassesOutput(OutputConfig):
    """Softmax over classes, then over a class's words (Goodman 2001)."""

    classes: int | None = MISSING

    def __post_init__(self) -> None:
        require(self.classes is None or self.classes >= 1, "output.classes", self.classes, "1 or more, or null")

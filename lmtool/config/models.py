"""conf/model: what each option has."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from omegaconf import MISSING

from lmtool.config.rules import require, require_whole
from lmtool.errors import UserError


@dataclass(slots=True)
class ModelConfig:
    """What every model has."""

    kind: str = MISSING


@dataclass(slots=True)
class NgramModelConfig(ModelConfig):
    """Count-based model of a fixed order."""

    order: int = MISSING

    def __post_init__(self) -> None:
        require_whole("model.order", self.order, 1, 16)


class Activation(Enum):
    """The hidden layer's non-linearity."""

    tanh = "tanh"
    gelu = "gelu"
    relu = "relu"
    sigmoid = "sigmoid"


@dataclass(slots=True)
class EncoderModel(ModelConfig):
    """What every neural model has."""

    context_size: int = MISSING
    embedding_dim: int = MISSING
    tied: bool | None = MISSING
    dropout: float = MISSING
    across_sentences: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("context_size", "embedding_dim"):
            require_whole(f"model.{name}", getattr(self, name))
        require(0 <= self.dropout < 1, "model.dropout", self.dropout, "from 0 to below 1")


@dataclass(slots=True)
class NplmModel(EncoderModel):
    """Neural probabilistic language model (Bengio et al. 2003)."""

    hidden_dim: int = MISSING
    layers: int = 1
    direct: bool = MISSING
    activation: Activation = MISSING
    layer_norm: bool = MISSING
    input_dropout: float = 0.0
    projection_dim: int | None = None
    history: int = 0
    forgetting: list[float] = field(default_factory=lambda: [0.6, 0.85, 0.95, 1.0])
    init_std: float | None = None

    def __post_init__(self) -> None:
        EncoderModel.__post_init__(self)
        require_whole("model.history", self.history, 0)
        if 0 < self.history <= self.context_size:
            raise UserError(
                f"model.history={self.history}: must be 0 or more than model.context_size={self.context_size}"
            )
        std = self.init_std
        require(std is None or 0 < std < 1e6, "model.init_std", std, "a number above 0 and below a million, or null")
        factors = self.forgetting
        rule = "one number or more above 0 and at most 1"
        require(bool(factors) and all(0 < a <= 1 for a in factors), "model.forgetting", factors, rule)
        require_whole("model.hidden_dim", self.hidden_dim)
        require_whole("model.layers", self.layers, 0, 100)
        projection = self.projection_dim
        require_whole("model.projection_dim", projection, null=True)
        if self.tied and projection not in (None, self.embedding_dim):
            raise UserError(
                f"model.projection_dim={projection}: with model.tied=true it must be model.embedding_dim, "
                f"{self.embedding_dim}, or null"
            )
        require(0 <= self.input_dropout < 1, "model.input_dropout", self.input_dropout, "from 0 to below 1")


@dataclass(slots=True)
class LblModel(EncoderModel):
    """Log-bilinear model (Mnih & Hinton 2007)."""

    diagonal: bool = MISSING


@dataclass(slots=True)
class CbowModel(EncoderModel):
    """Mean of the context's vectors (Mikolov et al. 2013)."""

"""Settings that the networks of encoders read: what lies below both the networks and the options that build them."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from lmtool.config.data import Unit
from lmtool.config.groups import EncoderConfig
from lmtool.config.rules import MISSING, setting
from lmtool.errors import UserError

if TYPE_CHECKING:
    from torch import nn

DEFAULT_HISTORY_WORDS = 100  # number of words for model.fofe_window=null
MIN_HISTORY_TOKENS = 20_000  # tokens of the train split below which null means no history


class Cell(Enum):
    """The recurrent cell: long short-term memory, gated recurrent unit, or Elman's."""

    lstm = "lstm"
    gru = "gru"
    rnn = "rnn"


def _unbounded(size: int, key: str) -> None:
    raise UserError(f"{key}={size}: must be null, as a recurrent network reads all words before")


@dataclass(slots=True)
class LstmSettings(EncoderConfig, ABC):
    """Settings of a recurrent network; conf/model/lstm.yaml explains each."""

    recurrent: ClassVar[bool] = True

    context_size: int | None = setting(None, check=_unbounded)  # type: ignore[assignment]
    cell: Cell = Cell.lstm
    hidden_dim: int | None = setting(None, min=1)
    layers: int = setting(1, min=1, max=100)
    input_dropout: float = setting(0.0, min=0, below=1)
    embedding_dropout: float = setting(0.0, min=0, below=1)
    weight_dropout: float = setting(0.0, min=0, below=1)
    output_dropout: float | None = setting(None, min=0, below=1)
    activation_regularization: float = setting(0.0, min=0)
    temporal_regularization: float = setting(0.0, min=0)

    def fill_in(self, unit: Unit, tokens: int) -> None:
        """Carry the state across sentences unless it is set otherwise."""
        self.across_sentences = self.across_sentences is not False

    def can_tie(self) -> bool:
        """Return whether the last layer may have the dimension of the embeddings: the only one has hidden_dim units."""
        return self.layers > 1 or self.units == self.embedding_dim

    @property
    def units(self) -> int:
        """The number of hidden units of each layer but, if tied, the last."""
        return self.hidden_dim or self.embedding_dim

    def weight_count(self, vocabulary_size: int) -> int:
        gates = {Cell.lstm: 4, Cell.gru: 3, Cell.rnn: 1}[self.cell]
        inputs = self.embedding_dim + (self.layers - 1) * self.units
        cells = gates * self.units * (inputs + self.layers * self.units)
        return EncoderConfig.weight_count(self, vocabulary_size) + cells

    def size_settings(self) -> list[str]:
        return ["embedding_dim", "layers", "hidden_dim"]


class Activation(Enum):
    """The non-linearity of the hidden layers."""

    tanh = "tanh"
    gelu = "gelu"
    relu = "relu"
    sigmoid = "sigmoid"


@dataclass(slots=True)
class NplmSettings(EncoderConfig, ABC):
    """Settings of the neural probabilistic language model; conf/model/nplm.yaml explains each."""

    hidden_dim: int = setting(min=1, said="no hidden layer is model.layers=0")
    layers: int = setting(1, min=0, max=100)
    direct_connections: bool = MISSING
    activation: Activation = MISSING
    layer_norm: bool = MISSING
    gated: bool = False
    input_dropout: float = setting(0.0, min=0, below=1)
    projection_dim: int | None = setting(None, min=1)
    fofe_window: int | None = setting(0, min=0)
    forgetting_factors: list[float] = setting(lambda: [0.6, 0.85, 0.95, 1.0], above=0, max=1)
    init_std: float | None = setting(None, above=0, below=1e6)
    zero_padding: bool = setting(False, needs=("full_windows=true",), why="other examples have <s> in their contexts")

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        if self.tied and not self.can_tie():
            raise UserError(
                f"model.projection_dim={self.projection_dim}: with model.tied=true it must be model.embedding_dim, "
                f"{self.embedding_dim}, or null"
            )

    def can_tie(self) -> bool:
        """Return False if projection_dim gives the hidden states another dimension than the embeddings'."""
        return self.projection_dim in (None, self.embedding_dim)

    def fill_in(self, unit: Unit, tokens: int) -> None:
        """Set a long history for text of words or subwords unless it is short: otherwise more steps gain more."""
        far = not unit.is_character and tokens >= MIN_HISTORY_TOKENS
        self.fofe_window = (DEFAULT_HISTORY_WORDS if far else 0) if self.fofe_window is None else self.fofe_window
        self.across_sentences = far if self.across_sentences is None else self.across_sentences
        if self.zero_padding and self.history_words():
            raise UserError("model.zero_padding=true: the sums of a history read <s>; set model.fofe_window=0")

    def history_words(self) -> int:
        """Return the length of the history in words, 0 if it is no longer than the context."""
        return self.fofe_window if self.fofe_window and self.fofe_window > self.context_size else 0

    def input_dim(self) -> int:
        """Return the dimension of x: an embedding for each word of the context and for each sum over the history."""
        return (self.context_size + (len(self.forgetting_factors) if self.history_words() else 0)) * self.embedding_dim

    def weight_count(self, vocabulary_size: int) -> int:
        count = EncoderConfig.weight_count(self, vocabulary_size)
        last = self.hidden_dim if self.layers else self.input_dim()
        if self.layers:
            computed = self.hidden_dim * (2 if self.gated else 1)
            count += (self.input_dim() + (self.layers - 1) * self.hidden_dim) * computed
        return count + (0 if self.projection_dim is None else last * self.projection_dim)

    def size_settings(self) -> list[str]:
        names = [*EncoderConfig.size_settings(self), "layers", "hidden_dim"]
        return names if self.projection_dim is None else [*names, "projection_dim"]

    def initialize(self, network: nn.Module) -> None:
        """Draw all parameters from a normal distribution with mean 0 and standard deviation init_std, if it is set.

        With zero_padding the embedding of `<s>` is 0, and stays so, as its gradient is 0 in full windows.
        """
        from torch import nn

        if self.init_std is not None:
            for parameter in network.parameters():
                nn.init.normal_(parameter, std=self.init_std)
        if self.zero_padding:
            nn.init.zeros_(network.get_parameter("encoder.embedding.weight")[-1])

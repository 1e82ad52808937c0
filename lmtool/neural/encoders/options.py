"""Networks of the group `model`: the settings of their encoders, which are imported when built."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from lmtool.config.data import Unit
from lmtool.config.groups import EncoderConfig
from lmtool.config.rules import MISSING, setting
from lmtool.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from lmtool.neural.encoders.base import Encoder

DEFAULT_HISTORY_WORDS = 100  # of model.fofe_window=null
MIN_HISTORY_TOKENS = 20_000  # tokens of the train split below which null means no history


@dataclass(slots=True)
class CbowModel(EncoderConfig):
    r"""The continuous bag of words: the mean of the context's vectors, whatever their order.

    .. math::

        h = \frac{1}{C} \sum_{i=1}^{C} x_{t-i}

    x_t is the embedding of w_t. The context consists of the words before the predicted one; word2vec also reads those
    after it.

    Legend of shapes: B examples, C context words, E dimension of the embeddings, V words of the vocabulary.

    Source: Mikolov, Chen, Corrado & Dean (2013), "Efficient estimation of word representations in vector space", ICLR
        workshop, section 3.1.
    Complexity: O(C E) for each example; V E weights.
    """

    kind: str = "cbow"

    def build(self, vocabulary_size: int, *, tied: bool, sparse: bool) -> Encoder:
        """Build the encoder; its hidden states have the dimension of the embeddings, tied or not."""
        from lmtool.neural.encoders.linear import CBOW

        return CBOW(self, vocabulary_size, sparse=sparse)


@dataclass(slots=True)
class LblModel(EncoderConfig):
    r"""The log-bilinear model: a linear map of each context word's vector predicts the next word's.

    .. math::

        \hat{r} = \sum_{i=1}^{C} C_i\,r_{w_{t-i}}

    r_w is the embedding of w and C_i a matrix for each position, which with `diagonal` is diagonal: the product is then
    taken component by component.

    Legend of shapes: B examples, C context words, E dimension of the embeddings, V words of the vocabulary.

    Source: Mnih & Hinton (2007), "Three new graphical models for statistical language modelling", ICML, eq. 5; diagonal
        matrices: Mnih & Hinton (2009), NIPS.
    Complexity: O(C E^2) for each example, diagonal O(C E); V E + C E^2 weights, diagonal V E + C E.
    """

    kind: str = "lbl"
    diagonal: bool = MISSING

    def build(self, vocabulary_size: int, *, tied: bool, sparse: bool) -> Encoder:
        """Build the encoder; its hidden states have the dimension of the embeddings, tied or not."""
        from lmtool.neural.encoders.linear import LBL

        return LBL(self, vocabulary_size, sparse=sparse)

    def weight_count(self, vocabulary_size: int) -> int:
        """Count the weights of the embeddings `[V, E]` and of the matrices of the positions."""
        matrix = self.embedding_dim * (1 if self.diagonal else self.embedding_dim)
        return EncoderConfig.weight_count(self, vocabulary_size) + self.context_size * matrix


class Cell(Enum):
    """The recurrent cell: long short-term memory, gated recurrent unit, or Elman's."""

    lstm = "lstm"
    gru = "gru"
    rnn = "rnn"


def _unbounded(size: int, key: str) -> None:
    raise UserError(f"{key}={size}: must be null, as a recurrent network reads all words before")


@dataclass(slots=True)
class LstmModel(EncoderConfig):
    r"""Long short-term memory and other recurrent cells: the hidden state depends on all words before.

    .. math::

        i, f, o &= \sigma(W x_t + U h_{t-1} + b) \qquad g = \tanh(W_g x_t + U_g h_{t-1} + b_g) \\
        c_t &= f \odot c_{t-1} + i \odot g \qquad h_t = o \odot \tanh(c_t)

    x_t is the embedding of w_t, or the layer below's h_t. Training reads rows of running text side by side, with
    gradients through the last `training.bptt` words of each (truncated back-propagation through time).

    Source: Hochreiter & Schmidhuber (1997), "Long short-term memory", Neural Computation 9; Zaremba et al. (2014),
        "Recurrent neural network regularization"; cell=gru: Cho et al. (2014), EMNLP; cell=rnn: Elman (1990), Mikolov
        et al. (2010), Interspeech; dropout: Gal & Ghahramani (2016), Merity, Keskar & Socher (2018), ICLR;
        activations: Merity, McCann & Socher (2017), "Revisiting activation regularization for language RNNs".
    Complexity: O(layers H (E + H)) for each word, four matrices for an LSTM, three for gru, one for rnn; V E weights
        beside these.
    """

    recurrent: ClassVar[bool] = True

    kind: str = "lstm"
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

    def build(self, vocabulary_size: int, *, tied: bool, sparse: bool) -> Encoder:
        """Build the encoder; if tied, its last layer has the dimension of the embeddings."""
        from lmtool.neural.encoders.recurrent import Recurrent

        return Recurrent(self, vocabulary_size, tied=tied, sparse=sparse)

    def suit(self, unit: Unit, tokens: int) -> None:
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
        """Count the weights of the embeddings `[V, E]` and of the cells' matrices."""
        gates = {Cell.lstm: 4, Cell.gru: 3, Cell.rnn: 1}[self.cell]
        inputs = self.embedding_dim + (self.layers - 1) * self.units
        cells = gates * self.units * (inputs + self.layers * self.units)
        return EncoderConfig.weight_count(self, vocabulary_size) + cells

    def size_settings(self) -> list[str]:
        """Return the names of the settings that weight_count depends on."""
        return ["embedding_dim", "layers", "hidden_dim"]


class Activation(Enum):
    """The non-linearity of the hidden layers."""

    tanh = "tanh"
    gelu = "gelu"
    relu = "relu"
    sigmoid = "sigmoid"


@dataclass(slots=True)
class NplmModel(EncoderConfig):
    """Neural probabilistic language model (Bengio et al. 2003); conf/model/nplm.yaml explains each setting."""

    kind: str = "nplm"
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

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        if self.tied and not self.can_tie():
            raise UserError(
                f"model.projection_dim={self.projection_dim}: with model.tied=true it must be model.embedding_dim, "
                f"{self.embedding_dim}, or null"
            )

    def build(self, vocabulary_size: int, *, tied: bool, sparse: bool) -> Encoder:
        """Build the encoder; if tied, a linear map takes its hidden states to the dimension of the embeddings."""
        from lmtool.neural.encoders.nplm import NPLM

        return NPLM(self, vocabulary_size, tied=tied, sparse=sparse)

    def can_tie(self) -> bool:
        """Return False if projection_dim gives the hidden states another dimension than the embeddings'."""
        return self.projection_dim in (None, self.embedding_dim)

    def suit(self, unit: Unit, tokens: int) -> None:
        """Set a long history for text of words or subwords unless it is short: otherwise more steps gain more."""
        far = not unit.is_character and tokens >= MIN_HISTORY_TOKENS
        self.fofe_window = (DEFAULT_HISTORY_WORDS if far else 0) if self.fofe_window is None else self.fofe_window
        self.across_sentences = far if self.across_sentences is None else self.across_sentences

    def history_words(self) -> int:
        """Return the length of the history in words, 0 if it is no longer than the context."""
        return self.fofe_window if self.fofe_window and self.fofe_window > self.context_size else 0

    def input_dim(self) -> int:
        """Return the dimension of x: an embedding for each word of the context and for each sum over the history."""
        return (self.context_size + (len(self.forgetting_factors) if self.history_words() else 0)) * self.embedding_dim

    def weight_count(self, vocabulary_size: int) -> int:
        """Count the weights of the embeddings `[V, E]`, the hidden layers and the projection."""
        count = EncoderConfig.weight_count(self, vocabulary_size)
        last = self.hidden_dim if self.layers else self.input_dim()
        if self.layers:
            computed = self.hidden_dim * (2 if self.gated else 1)
            count += (self.input_dim() + (self.layers - 1) * self.hidden_dim) * computed
        return count + (0 if self.projection_dim is None else last * self.projection_dim)

    def size_settings(self) -> list[str]:
        """Return the names of the settings that weight_count depends on."""
        names = [*EncoderConfig.size_settings(self), "layers", "hidden_dim"]
        return names if self.projection_dim is None else [*names, "projection_dim"]

    def initialise(self, network: nn.Module) -> None:
        """Draw all parameters from a normal distribution with mean 0 and standard deviation init_std, if it is set."""
        from torch import nn

        if self.init_std is not None:
            for parameter in network.parameters():
                nn.init.normal_(parameter, std=self.init_std)

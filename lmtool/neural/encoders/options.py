"""Networks of the group `model`: the settings of their encoders, which are imported when built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmtool.config.groups import EncoderConfig
from lmtool.config.rules import MISSING, setting
from lmtool.neural.encoders.settings import LstmSettings, NplmSettings

if TYPE_CHECKING:
    from torch import nn

    from lmtool.neural.encoders.base import Encoder


@dataclass(slots=True)
class CbowModel(EncoderConfig):
    r"""The continuous bag of words: the mean of the context's vectors, regardless of their order.

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
        from lmtool.neural.encoders.linear import CBOW

        return CBOW(self, vocabulary_size, sparse=sparse)


@dataclass(slots=True)
class SkipgramModel(CbowModel):
    r"""Skip-gram: a word's vector predicts each word near it, within a window on both sides in its sentence.

    .. math::

        h = x_{t+i} \text{ predicts } w_t \qquad 0 < |i| \le r_t \qquad r_t \sim \mathcal{U}\{1, \ldots, \text{window}\}

    x_t is the embedding of w_t. A word with relative frequency f is kept, as predicted word and for the windows of
    others, with probability :math:`\sqrt{s/f} + s/f` at most 1, where s is `subsample`.

    Legend of shapes: B examples, C context words, E dimension of the embeddings, V words of the vocabulary.

    Source: Mikolov, Sutskever, Chen, Corrado & Dean (2013), "Distributed representations of words and phrases and their
        compositionality", NIPS, section 2; the probability is the one of their program, word2vec.
    Complexity: O(E) for each pair of words, window + 1 pairs for each kept word on average; V E weights.
    """

    reads_near = True

    kind: str = "skipgram"
    context_size: int = setting(min=1, max=1)
    window: int = setting(min=1, max=255)
    shrink_windows: bool = MISSING
    subsample: float = setting(min=0, max=1)

    def initialize(self, network: nn.Module) -> None:
        """Draw the embeddings as word2vec does, uniformly between -0.5 / E and 0.5 / E: rare words keep their direction
        from the text rather than from a long random vector.
        """
        from torch import nn

        bound = 0.5 / self.embedding_dim
        nn.init.uniform_(next(network.get_submodule("encoder.embedding").parameters()), -bound, bound)


@dataclass(slots=True)
class LblModel(EncoderConfig):
    r"""The log-bilinear model: a linear map of each context word's vector predicts the next word's.

    .. math::

        \hat{r} = \sum_{i=1}^{C} C_i\,r_{w_{t-i}}

    r_w is the embedding of w and C_i a matrix for each position, which with `diagonal` is diagonal: the product is then
    taken component by component.

    Legend of shapes: B examples, C context words, E dimension of the embeddings, V words of the vocabulary.

    Source: Mnih & Hinton (2007), "Three new graphical models for statistical language modeling", ICML, eq. 5; diagonal
        matrices: Mnih & Hinton (2009), NIPS.
    Complexity: O(C E^2) for each example, diagonal O(C E); V E + C E^2 weights, diagonal V E + C E.
    """

    kind: str = "lbl"
    diagonal: bool = MISSING

    def build(self, vocabulary_size: int, *, tied: bool, sparse: bool) -> Encoder:
        from lmtool.neural.encoders.linear import LBL

        return LBL(self, vocabulary_size, diagonal=self.diagonal, sparse=sparse)

    def weight_count(self, vocabulary_size: int) -> int:
        matrix = self.embedding_dim * (1 if self.diagonal else self.embedding_dim)
        return EncoderConfig.weight_count(self, vocabulary_size) + self.context_size * matrix


@dataclass(slots=True)
class LstmModel(LstmSettings):
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
        besides these.
    """

    kind: str = "lstm"

    def build(self, vocabulary_size: int, *, tied: bool, sparse: bool) -> Encoder:
        from lmtool.neural.encoders.recurrent import Recurrent

        return Recurrent(self, vocabulary_size, tied=tied, sparse=sparse)


@dataclass(slots=True)
class NplmModel(NplmSettings):
    """Neural probabilistic language model (Bengio et al. 2003); conf/model/nplm.yaml explains each setting."""

    kind: str = "nplm"

    def build(self, vocabulary_size: int, *, tied: bool, sparse: bool) -> Encoder:
        from lmtool.neural.encoders.nplm import NPLM

        return NPLM(self, vocabulary_size, tied=tied, sparse=sparse)

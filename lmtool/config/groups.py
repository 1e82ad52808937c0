"""The contract of each group of options: the settings that all its options have, and what they build.

An option's settings class is a dataclass derived from one of these; it adds its own settings with their types, checks
their ranges in `__post_init__`, and implements the abstract methods. Class attributes are further properties of an
option, not settings.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from lmtool.config.rules import MISSING, require, require_whole
from lmtool.config.vocabulary import Unit, VocabularyConfig
from lmtool.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from lmtool.data.corpus import Corpus
    from lmtool.data.preprocess import Prepared
    from lmtool.data.sources.base import ExternalText, Source
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.language_model import LanguageModel
    from lmtool.neural.encoders.base import Encoder
    from lmtool.neural.outputs.base import OutputLayer
    from lmtool.ngram.counting.counts import Counts
    from lmtool.ngram.models.units import Units
    from lmtool.ngram.smoothers.base import Smoother
    from lmtool.ngram.tables.backoff import BackoffTable
    from lmtool.ngram.tables.storage import Storage
    from lmtool.system.arrays import FloatArray, IntArray
    from lmtool.training.optim.base import ParameterGroups
    from lmtool.trees.base import TreeWords
    from lmtool.trees.tree import Tree


@dataclass(slots=True)
class DataConfig(ABC):
    """Group `data`: the source of text.

    takes_word_list: whether data.vocabulary.file may list the words.
    """

    takes_word_list: ClassVar[bool] = False

    kind: str = MISSING
    name: str = MISSING
    sentences: bool = MISSING
    vocabulary: VocabularyConfig = MISSING

    def __post_init__(self) -> None:
        plain = self.name and all(c.isalnum() or c in "._-" for c in self.name)
        require(bool(plain), "data.name", repr(self.name), "letters, digits, '.', '_' and '-'")
        rules: object = self.vocabulary  # an interpolation may have given it a text
        require(isinstance(rules, VocabularyConfig), "data.vocabulary", repr(rules), "settings of its own: NAME=...")
        file = self.vocabulary.file
        if file is not None and not self.takes_word_list:
            raise UserError(f"data.vocabulary.file={file}: data.kind={self.kind} has its own words; leave it null")

    def drops_tags(self) -> bool:
        """Whether tokens of the text are word/tag, and the tag is dropped."""
        return False

    def takes_blank_lines(self) -> bool:
        """Whether a line without words is a sentence."""
        return False

    @abstractmethod
    def source(self, *, progress: bool, download: bool) -> Source:
        """The text of each split, not read yet.

        progress: whether to show progress bars. download: whether to download text that is not on this machine; where
        it is False, such text raises NoSource. Raises UserError for text that cannot be found.
        """

    def elsewhere(self) -> ExternalText:
        """The train split for a program that reads it itself. Raises UserError where it is not in files."""
        raise UserError(f"data.kind={self.kind} is no text in files, which another program could read")

    def others(self, *, progress: bool) -> Source:
        """The text of all splits but train. Raises UserError where these are no files of their own."""
        raise UserError(f"data.kind={self.kind} has no splits in files of their own, without train")


@dataclass(slots=True)
class ModelConfig:
    """Group `model`: a network's encoder (EncoderConfig) or a count-based model (CountModelConfig)."""

    kind: str = MISSING


@dataclass(slots=True)
class CountModelConfig(ModelConfig, ABC):
    """A model of n-gram counts. order: the most words of an n-gram, the predicted one included.

    counts_words: whether the n-grams are of words, so that they can be written for other programs. files: the names of
    what a run folder has of the model, whose checksums run.json keeps.
    """

    counts_words: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = ("model.h5",)

    order: int = MISSING

    def __post_init__(self) -> None:
        require_whole("model.order", self.order, 1, 16)

    @abstractmethod
    def units(self, corpus: Corpus) -> Units:
        """What is counted of a corpus, and what becomes of the table.

        Raises UserError for settings and files that do not fit the corpus.
        """

    @abstractmethod
    def load(self, folder: Path, vocabulary: Vocabulary) -> LanguageModel:
        """The model of a run folder. Raises UserError where a file of it is missing or damaged."""


@dataclass(slots=True)
class EncoderConfig(ModelConfig, ABC):
    """A network: an encoder of contexts, which any output layer can follow."""

    files: ClassVar[tuple[str, ...]] = ("checkpoint.safetensors", "tree.safetensors")

    context_size: int = MISSING
    embedding_dim: int = MISSING
    tied: bool | None = MISSING
    dropout: float = MISSING
    across_sentences: bool | None = field(default=False, kw_only=True)
    anew: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("context_size", "embedding_dim"):
            require_whole(f"model.{name}", getattr(self, name))
        require(0 <= self.dropout < 1, "model.dropout", self.dropout, "from 0 to below 1")
        require(0 <= self.anew <= 1, "model.anew", self.anew, "from 0 to 1")

    def suit(self, unit: Unit, tokens: int) -> None:
        """Give a value to what is left open (None), by the train split: the unit of its tokens, and how many there are.

        Training calls it before build.
        """
        self.across_sentences = bool(self.across_sentences)

    @abstractmethod
    def build(self, vocabulary_size: int, *, tied: bool, sparse: bool) -> Encoder:
        """The encoder, with weights from torch's random state.

        tied: whether the output vectors will be its embeddings, so that its output has their dimension. sparse: whether
        the gradient of the embeddings is sparse.
        """

    def can_tie(self) -> bool:
        """Whether the encoder's output can have the dimension of the embeddings, which tying needs."""
        return True

    def weight_count(self, vocabulary_size: int) -> int:
        """The number of weights in the embeddings and the large matrices, for the check of memory."""
        return vocabulary_size * self.embedding_dim

    def size_settings(self) -> list[str]:
        """The names of the settings that weight_count depends on."""
        return ["embedding_dim", "context_size"]

    def initialise(self, network: nn.Module) -> None:
        """Change the initial weights of the whole network, output layer included; by default they stay."""


@dataclass(slots=True)
class OutputConfig(ABC):
    """Group `output`: the layer that turns the encoder's output into probabilities.

    can_tie: whether it has a vector for each word, which the embeddings can be. dense_gradient: whether a step changes
    all these vectors. needs_tree: whether it is built over a tree. loss_is_log_prob: whether its training loss is
    -log p, so that exp(loss) is a perplexity. weight_decay: that of optim=adamw which suits it.
    """

    weight_decay: ClassVar[float] = 0.15
    can_tie: ClassVar[bool] = False
    dense_gradient: ClassVar[bool] = False
    needs_tree: ClassVar[bool] = False
    loss_is_log_prob: ClassVar[bool] = True

    kind: str = MISSING

    @abstractmethod
    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> OutputLayer:
        """The layer over hidden `[B, dim]` and the O words that can be predicted, int64 counts `[O]` in train.

        vectors: the embeddings where they are tied, float `[O or more, dim]`, of which the first O are used. tree: over
        the O words, where needs_tree says so. Raises UserError for settings that do not fit the vocabulary.
        """


@dataclass(slots=True)
class TreeConfig(ABC):
    """Group `tree`: how the words become the leaves of a binary tree."""

    kind: str = MISSING

    @abstractmethod
    def build(self, words: TreeWords) -> Tree:
        """The tree over the words that can be predicted.

        Raises UserError for settings that do not fit the vocabulary and for files that are missing.
        """


@dataclass(slots=True)
class SmootherConfig(ABC):
    """Group `smoother`: how counts become probabilities."""

    kind: str = MISSING

    @abstractmethod
    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """The smoother for n-grams of up to `order` words; its parameters are still to be estimated or tuned."""

    def tuning_split(self) -> str | None:
        """The split that the parameters are to be tuned on; None where they are given or estimated."""
        return None

    def scores_candidates_alone(self) -> bool:
        """Whether cloze questions are also to be scored by cloze_log_prob."""
        return False

    def cloze_log_prob(self, counts: Counts, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """log p `[Q, K]` in nats of the candidates `[Q, K]` of cloze questions after contexts `[Q, order - 1]`, from
        the counts of the candidates alone. Raises UserError where the smoother has no such form.
        """
        raise UserError(f"smoother={self.kind} does not score candidates by their counts alone")


@dataclass(frozen=True, slots=True)
class EstimationRequest:
    """The model that CountsConfig.estimate is asked for.

    order: of the model. smoother: its parameters are to be estimated, not tuned. cutoffs: one per order, or None;
    n-grams with that count or less are left out. threshold: of entropy pruning, or None. storage: memory to use.
    """

    corpus: Corpus
    order: int
    smoother: Smoother
    cutoffs: list[int] | None
    threshold: float | None
    storage: Storage


@dataclass(slots=True)
class CountsConfig(ABC):
    """Group `counts`: how the n-grams of the train split are counted."""

    kind: str = MISSING

    def prepare(self, data: DataConfig, store_dir: str | Path, *, progress: bool) -> Prepared | None:
        """Prepare a store of the vocabulary and the held-out splits if train is counted without a store.

        Returns None, the default, for the ordinary store. progress: whether to show progress bars. Raises UserError if
        the text is not found or cannot be read.
        """
        return None

    @abstractmethod
    def storage(self, corpus: Corpus) -> Storage:
        """Return the memory and temporary files that counting and estimation may use."""

    @abstractmethod
    def count(self, corpus: Corpus, order: int, storage: Storage) -> Counts:
        """Return the counts of all n-grams of up to `order` words.

        Raises UserError if the text cannot be counted or the disk is full.
        """

    def estimate(self, request: EstimationRequest) -> BackoffTable | None:
        """Return the requested model, or None, the default, if the caller is to estimate it from the counts.

        The model is the one of lmtool.ngram.estimation.estimate and lmtool.ngram.pruning.entropy. Raises UserError as
        `count` does.
        """
        return None


@dataclass(slots=True)
class OptimConfig(ABC):
    """Group `optim`: the update of the weights. lr: the peak of the schedule; weight_decay spares biases and gains."""

    kind: str = MISSING
    lr: float = MISSING
    weight_decay: float | None = MISSING

    def __post_init__(self) -> None:
        require(0 < self.lr < math.inf, "optim.lr", self.lr, "more than 0")
        decay = self.weight_decay
        require(decay is None or 0 <= decay < math.inf, "optim.weight_decay", decay, "0 or more")

    def suit(self, output: OutputConfig) -> None:
        """Give a value to what is left open (None), by the output layer; training calls it first. By default none."""
        self.weight_decay = self.decay

    @property
    def decay(self) -> float:
        """weight_decay, 0 where it is left open."""
        return self.weight_decay or 0.0

    @abstractmethod
    def dense(self, groups: ParameterGroups) -> Optimizer:
        """The optimizer of parameters with dense gradients."""

    @abstractmethod
    def sparse(self, groups: ParameterGroups) -> Optimizer:
        """The optimizer of parameters with sparse gradients, whose other rows a step leaves as they are."""


@dataclass(slots=True)
class ScheduleConfig(ABC):
    """Group `schedule`: the learning rate of each step.

    warmup: the share of the budget in which the rate rises linearly from 0. follows_budget: whether the rate depends on
    the share of the budget that is used up, so that another budget changes it.
    """

    follows_budget: ClassVar[bool] = False

    kind: str = MISSING
    warmup: float = MISSING

    def __post_init__(self) -> None:
        require(0 <= self.warmup < 1, "schedule.warmup", self.warmup, "from 0 to below 1")

    @abstractmethod
    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        """The learning rate after the warm-up.

        peak: optim.lr; left: the share of the budget after the warm-up that is left, 1 to 0 (or below, in the last
        step); steps: made so far; drops: how often lowers_after has been true.
        """

    def lowers_after(self, waited: int) -> bool:
        """Whether `waited` evaluations on valid without an improvement lower the rate."""
        return False

    def require_steps(self, steps: int, budget: str) -> None:
        """Raise UserError, naming the budget, where the schedule waits for more than `steps` steps."""
        return None


def neither(model: ModelConfig) -> UserError:
    """What is said of an option of the group `model` that is neither count-based nor an encoder."""
    return UserError(
        f"model={model.kind}: its settings must be below EncoderConfig or CountModelConfig; correct the option"
    )


def require_tieable(model: EncoderConfig, output: OutputConfig) -> None:
    """Raise UserError where the settings tie output vectors to embeddings that the output layer cannot share."""
    if model.tied and not model.can_tie():
        raise UserError(
            f"model.tied=true: the output of model={model.kind} has another dimension than its embeddings; take null"
        )
    if model.tied and not output.can_tie:
        raise UserError(
            f"model.tied=true: output={output.kind} has no vector for each word to share; take model.tied=null"
        )


BASES: dict[str, type] = {
    "data": DataConfig,
    "model": ModelConfig,
    "output": OutputConfig,
    "tree": TreeConfig,
    "smoother": SmootherConfig,
    "counts": CountsConfig,
    "optim": OptimConfig,
    "schedule": ScheduleConfig,
}

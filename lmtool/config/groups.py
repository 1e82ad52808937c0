"""Base classes of the groups of options: the settings that all options of a group share, and what they build.

An option's settings class is a dataclass derived from one of these; it adds its own settings with their types and
ranges (`setting`), checks rules that involve several settings in `__post_init__`, after its base's, and implements the
abstract methods. Class attributes are further properties of an option, not settings.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from lmtool.config.data import DataConfig as DataConfig
from lmtool.config.data import SegmenterConfig as SegmenterConfig
from lmtool.config.data import Unit
from lmtool.config.rules import MISSING, GroupConfig, setting
from lmtool.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from lmtool.data.corpus import Corpus
    from lmtool.data.store import Store
    from lmtool.data.vocabulary import Vocabulary
    from lmtool.language_model import LanguageModel
    from lmtool.neural.optimizers.base import ParameterGroups
    from lmtool.neural.outputs.base import OutputLayer
    from lmtool.ngram.counting.counts import Counts
    from lmtool.ngram.models.ngram_model import Units
    from lmtool.ngram.smoothers.base import Smoother
    from lmtool.ngram.tables.storage import Storage
    from lmtool.system.arrays import FloatArray, IntArray
    from lmtool.trees.tree import Tree, TreeWords


@dataclass(slots=True)
class ModelConfig(GroupConfig):
    """Group `model`: a network's encoder (EncoderConfig) or a count-based model (CountModelConfig).

    full_windows: whether only positions whose whole context is in their sentence are examples to learn from.
    """

    key_prefix: ClassVar[str] = "model."

    full_windows: bool = setting(False, kw_only=True)


@dataclass(slots=True)
class CountModelConfig(ModelConfig):
    """A model of n-gram counts. order: maximum number of words of an n-gram, including the predicted one.

    counts_words: whether the n-grams consist of words, so that they can be written for other programs. files: names of
    the model's files in a run folder, whose checksums run.json stores.
    """

    counts_words: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = ("model.h5",)

    order: int = setting(min=1, max=16)

    @abstractmethod
    def units(self, corpus: Corpus) -> Units:
        """Return the counted units of a corpus, which also build the model from the table."""

    @abstractmethod
    def load(self, folder: Path, vocabulary: Vocabulary) -> LanguageModel:
        """Load the model of a run folder. Raises UserError if one of its files is missing or damaged."""


@dataclass(slots=True)
class EncoderConfig(ModelConfig):
    """A neural model: an encoder of contexts, which any output layer can follow.

    recurrent: whether it reads running text word by word, so that training has rows of training.bptt words each.
    reads_near: whether its examples are pairs of words near each other, by settings as those of skip-gram.
    """

    files: ClassVar[tuple[str, ...]] = ("checkpoint.safetensors", "tree.safetensors")
    recurrent: ClassVar[bool] = False
    reads_near: ClassVar[bool] = False

    context_size: int = setting(min=1)
    embedding_dim: int = setting(min=1)
    tied: bool | None = MISSING
    dropout: float = setting(min=0, below=1)
    across_sentences: bool | None = setting(False, kw_only=True)
    context_reset_prob: float = setting(0.0, min=0, max=1, kw_only=True)

    def fill_in(self, unit: Unit, tokens: int) -> None:
        """Fill in settings that are None, given the token unit and the number of tokens of the train split.

        Training calls it before build.
        """
        self.across_sentences = bool(self.across_sentences)

    @abstractmethod
    def build(self, vocabulary_size: int, *, tied: bool, sparse: bool) -> nn.Module:
        """Build the encoder (a lmtool.neural.Encoder) with weights drawn from torch's random state.

        tied: whether its embeddings will also be the output vectors, so that its output has their dimension. sparse:
        whether the gradient of the embeddings is sparse.
        """

    def can_tie(self) -> bool:
        """Return whether the encoder's output can have the dimension of the embeddings, as tying requires."""
        return True

    def weight_count(self, vocabulary_size: int) -> int:
        """Return the number of weights in the embeddings and the large matrices, for the memory check."""
        return vocabulary_size * self.embedding_dim

    def size_settings(self) -> list[str]:
        """Return the names of the settings that weight_count depends on."""
        return ["embedding_dim", "context_size"]

    def initialize(self, network: nn.Module) -> None:
        """Change the initial weights of the whole network, output layer included. No-op by default."""


@dataclass(slots=True)
class OutputConfig(GroupConfig):
    """Group `output`: the layer that turns the encoder's output into probabilities.

    can_tie: whether it has one vector per word, which may be the word's embedding. dense_gradient: whether a step
    changes all these vectors. needs_tree: whether it is built over a tree. loss_is_log_prob: whether its training loss
    is -log p, so that exp(loss) is a perplexity. weight_decay: the default of optim=adamw with this layer.
    """

    key_prefix: ClassVar[str] = "output."
    weight_decay: ClassVar[float] = 0.15
    can_tie: ClassVar[bool] = False
    dense_gradient: ClassVar[bool] = False
    needs_tree: ClassVar[bool] = False
    loss_is_log_prob: ClassVar[bool] = True

    @abstractmethod
    def build(self, dim: int, counts: Tensor, vectors: nn.Parameter | None, tree: Tree | None) -> OutputLayer:
        """Build the layer for hidden states `[B, dim]` and the O predictable words, with int64 counts `[O]` in train.

        vectors: the embeddings if they are tied, float `[O or more, dim]`, of which the first O are used. tree: a
        tree over the O words if needs_tree. Raises UserError for settings that do not fit the vocabulary.
        """


@dataclass(slots=True)
class TreeConfig(GroupConfig):
    """Group `tree`: how words are arranged as the leaves of a binary tree."""

    key_prefix: ClassVar[str] = "tree."

    @abstractmethod
    def build(self, words: TreeWords) -> Tree:
        """Build the tree over the predictable words."""


def cloze_split(name: str) -> str | None:
    """Return the split whose cloze questions are named: by `cloze` valid, by `cloze_SPLIT` another; None for text."""
    return "valid" if name == "cloze" else name.removeprefix("cloze_") if name.startswith("cloze_") else None


@dataclass(slots=True)
class SmootherConfig(GroupConfig):
    """Group `smoother`: how probabilities are estimated from counts."""

    key_prefix: ClassVar[str] = "smoother."

    @abstractmethod
    def build(self, order: int, vocabulary: Vocabulary) -> Smoother:
        """Build the smoother for n-grams of up to `order` words; its parameters are estimated or tuned later."""

    def tuning_split(self) -> str | None:
        """Return what the parameters are tuned on: `tune_on` if a setting is `tuned`, else None."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values["tune_on"] if "tuned" in values.values() else None

    def scores_candidates_alone(self) -> bool:
        """Return whether cloze questions are also scored by cloze_log_prob."""
        return False

    def cloze_log_prob(self, counts: Counts, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """Compute log p `[Q, K]` in nats of the candidates `[Q, K]` of cloze questions after contexts `[Q, order - 1]`,
        from the counts of the candidates alone. Raises UserError if the smoother does not support this.
        """
        raise UserError(f"smoother={self.kind} does not score candidates by their counts alone")


@dataclass(slots=True)
class CountsConfig(GroupConfig):
    """Group `counts`: how the n-grams of the train split are counted."""

    key_prefix: ClassVar[str] = "counts."

    def prepare(self, data: DataConfig, store_dir: str | Path, *, progress: bool) -> Store | None:
        """Prepare a store of the vocabulary and the held-out splits if train is counted without a store.

        Returns None, the default, for the ordinary store. progress: whether to show progress bars.
        """
        return None

    @abstractmethod
    def storage(self, corpus: Corpus) -> Storage:
        """Return the memory and temporary files that counting and estimation may use."""

    @abstractmethod
    def count(self, corpus: Corpus, order: int, storage: Storage) -> Counts:
        """Return the counts of all n-grams of up to `order` words."""


@dataclass(slots=True)
class OptimConfig(GroupConfig):
    """Group `optim`: the update of the weights. lr: peak of the schedule; weight_decay excludes biases and gains.

    per_example: whether lr is the rate of each example's gradient, so that a step follows their sum, not their mean.
    """

    key_prefix: ClassVar[str] = "optim."

    lr: float = setting(above=0)
    weight_decay: float | None = setting(min=0)
    per_example: bool = setting(False, kw_only=True)

    def fill_in(self, output: OutputConfig) -> None:
        """Fill in settings that are None, given the output layer; training calls it first."""
        self.weight_decay = self.decay

    @property
    def decay(self) -> float:
        """weight_decay, or 0 if it is None."""
        return self.weight_decay or 0.0

    def averages_after(self, losses: list[float]) -> bool:
        """Return whether the mean of the weights is taken from now on. losses: on valid, of all evaluations so far."""
        return False

    @abstractmethod
    def dense(self, groups: ParameterGroups) -> Optimizer:
        """Build the optimizer of parameters with dense gradients."""

    @abstractmethod
    def sparse(self, groups: ParameterGroups) -> Optimizer:
        """Build the optimizer of parameters with sparse gradients; a step changes only rows with a gradient."""


@dataclass(slots=True)
class ScheduleConfig(GroupConfig):
    """Group `schedule`: the learning rate of each step.

    warmup: the share of the budget in which the rate rises linearly from 0.
    """

    key_prefix: ClassVar[str] = "schedule."

    warmup: float = setting(min=0, below=1)

    @abstractmethod
    def rate(self, peak: float, *, left: float, steps: int, drops: int) -> float:
        """Return the learning rate after the warm-up.

        peak: optim.lr; left: the remaining share of the budget after the warm-up, 1 to 0 (or below, in the last step);
        steps: number of steps made; drops: number of times that lowers_after has been true.
        """

    def lowers_after(self, waited: int) -> bool:
        """Return whether `waited` evaluations on valid without an improvement lower the rate."""
        return False

    def require_steps(self, steps: int, budget: str) -> None:
        """Raise UserError, naming the budget, if the schedule waits for more than `steps` steps."""
        return None


@dataclass
class TrackerConfig(GroupConfig):
    """Group `tracker`: an experiment tracker, whose methods a training calls in this order.

    An ImportError of begin ends the command; any other error is a warning, and the training continues without it.
    """

    key_prefix: ClassVar[str] = "tracker."

    @abstractmethod
    def begin(self, folder: Path, settings: dict[str, Any], earlier: str | None) -> str:
        """Begin a run of the tracker, and return an identifier, which a resumed training passes as `earlier`.

        folder: the run folder. settings: those with a value, by their whole keys, and `run` (the last two parts of the
        folder), `lmtool` (the version), `store` and `fingerprint`.
        """

    @abstractmethod
    def log(self, numbers: dict[str, float], step: int) -> None:
        """Record the numbers of an evaluation, a line of metrics.jsonl."""

    @abstractmethod
    def picture(self, name: str, path: Path) -> None:
        """Record a picture, a PNG file that is removed afterwards."""

    @abstractmethod
    def end(self, result: dict[str, float] | None) -> None:
        """End the run with the numbers of result.json; None if the training was interrupted or failed."""


def unknown_model_kind(model: ModelConfig) -> UserError:
    """Return the error for an option of the group `model` that is neither count-based nor an encoder."""
    return UserError(
        f"model={model.kind}: its settings must be below EncoderConfig or CountModelConfig; correct the option"
    )


def is_tied(model: EncoderConfig, output: OutputConfig) -> bool:
    """Return whether the output vectors are the embeddings. Raises UserError if they are to be and cannot."""
    if model.tied and not model.can_tie():
        raise UserError(
            f"model.tied=true: the output of model={model.kind} has another dimension than its embeddings; set null"
        )
    if model.tied and not output.can_tie:
        reason = f"output={output.kind} has no vector for each word to share; set model.tied=null"
        raise UserError(f"model.tied=true: {reason}")
    return output.can_tie and model.can_tie() if model.tied is None else model.tied


BASES: dict[str, type[GroupConfig]] = {
    **{base.key_prefix.removesuffix("."): base for base in (DataConfig, ModelConfig, OutputConfig, TreeConfig)},
    **{base.key_prefix.removesuffix("."): base for base in (SmootherConfig, CountsConfig, OptimConfig)},
    **{"schedule": ScheduleConfig, "tracker": TrackerConfig, "segmenter": SegmenterConfig},
}

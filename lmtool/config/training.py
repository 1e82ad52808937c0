"""Settings of neural training: budget, batches, evaluation, checkpoints; their values are in conf/training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from lmtool.config.rules import MISSING, Settings, require, setting, size_in_bytes
from lmtool.errors import UserError

AUTO = "auto"
EPOCHS, MINUTES = 8.0, 10.0  # default budget
BATCH_SIZE, MIN_STEPS = 512, 16  # default batch size, and steps per epoch for which a short text has smaller batches
ROWS = 32  # default batch size of a recurrent network


class Precision(Enum):
    """The precision of the large matrix products of a training step; auto: the faster one for their size."""

    auto = "auto"
    fp32 = "fp32"
    bf16 = "bf16"


class Gradients(Enum):
    """The gradients of embeddings and of word and node vectors: sparse, for the rows of a batch, or dense, for all
    rows; auto: sparse on a CPU, and dense on a GPU with enough memory.
    """

    auto = "auto"
    sparse = "sparse"
    dense = "dense"


class Forms(Enum):
    """The computation of layers: by their fast forms if possible (auto), or only by the plain formulas."""

    auto = "auto"
    plain = "plain"


@dataclass(slots=True)
class TrainingConfig(Settings):
    """The budget of neural training, its batches, evaluations and checkpoints.

    epochs, minutes: numbers or None. AUTO becomes EPOCHS for epochs; for minutes, it becomes MINUTES if neither epochs
    nor steps is given, else None. Raises UserError for values out of range, and if no budget is given.
    """

    key_prefix: ClassVar[str] = "training."

    epochs: Any = setting(above=0, words=(AUTO, "null"))
    steps: int | None = setting(min=1)
    minutes: Any = setting(above=0, words=(AUTO, "null"))
    keep_best: str = setting("valid", words=("valid", "cloze"))
    patience: int | None = setting(min=1)
    batch_size: int | None = setting(min=1)
    bptt: int = setting(35, min=1)
    shuffle_block: int | None = setting(1, min=1)
    evaluate_every: float = setting(above=0)
    log_every: int | None = setting(None, min=1)
    accuracy_tokens: int = setting(min=0)
    max_grad_norm: float | None = setting(above=0)
    embedding_max_norm: float | None = setting(above=0)
    precision: Precision = MISSING
    compile: bool = MISSING
    embedding_gradients: Gradients = Gradients.auto
    forms: Forms = Forms.auto
    deterministic: bool = False
    memory: str | None = setting(check=size_in_bytes)
    save_every: float = setting(min=0)
    trackers: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if self.minutes == AUTO:
            self.minutes = MINUTES if self.epochs in (AUTO, None) and self.steps is None else None
        if self.epochs == AUTO:
            self.epochs = EPOCHS
        if self.epochs is None and self.steps is None and self.minutes is None:
            raise UserError(
                "training.epochs, training.steps and training.minutes are all null: give one of them a value"
            )
        self.epochs, self.minutes = (None if x is None else float(x) for x in (self.epochs, self.minutes))
        if self.forms is Forms.plain and self.precision is Precision.bf16:
            raise UserError("training.forms=plain computes in fp32: set training.precision to fp32 or auto")

    def complete(self, build_option: Callable[[str, Any, str], Any]) -> None:
        """Replace the trackers by their settings. Raises UserError if two are of one kind. build_option: as in
        DataConfig.complete.
        """
        numbered = enumerate(self.trackers)
        options = [build_option("tracker", each, f"training.trackers[{place}]") for place, each in numbered]
        differ = len({option.kind for option in options}) == len(options)
        require(differ, "training.trackers", self.trackers, "options of tracker= that differ")
        self.trackers = options


def default_batch_size(tokens: int, *, maximum: int = BATCH_SIZE, length: int = 1) -> int:
    """Return `maximum`, or, for a train split of few tokens, the largest power of two with MIN_STEPS steps per epoch,
    as one step per epoch learns nothing. length: tokens of each example, of a recurrent network more than one.
    """
    return min(maximum, 1 << max(0, (tokens // (MIN_STEPS * length)).bit_length() - 1))

"""What a tree can be built from, and the ways to divide a set of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lmtool.config.rules import require
from lmtool.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from lmtool.data.split import Split
    from lmtool.system.arrays import IntArray


@dataclass(frozen=True, slots=True)
class TreeWords:
    """The O words that can be predicted, and what is known of them.

    words: by id, without `<s>`. counts: int64 `[O]`, in train. train: reads the train split. run_vectors: the vectors
    `[O, D]` of the words in the run folder of a neural model; given its path and whether a word's vector is to be the
    mean prediction in its contexts in train (True) or its embedding (False); it raises UserError for a run of another
    vocabulary or without word vectors.
    """

    words: Sequence[str]
    counts: IntArray
    train: Callable[[], Split]
    run_vectors: Callable[[str, bool], npt.NDArray[np.float32]]


class Division(Enum):
    """Ways to divide a set of words in two."""

    balanced = "balanced"
    adaptive = "adaptive"


class Method(Enum):
    """Models of the two halves of a set of words."""

    kmeans = "kmeans"
    gaussians = "gaussians"


def require_division(split: str, method: str, epsilon: float) -> None:
    """Raise UserError for settings of tree=clusters that are unknown, out of range, or contradict each other."""
    require(split in Division.__members__, "tree.split", split, f"one of {', '.join(Division.__members__)}")
    require(method in Method.__members__, "tree.method", method, f"one of {', '.join(Method.__members__)}")
    require(0 <= epsilon < 0.5, "tree.epsilon", epsilon, "from 0 to below 0.5")
    if epsilon and (split, method) != ("adaptive", "gaussians"):
        raise UserError(
            f"tree.epsilon={epsilon}: several codes per word need tree.split=adaptive and tree.method=gaussians; "
            "choose these, or tree.epsilon=0"
        )

"""What a tree can be built from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

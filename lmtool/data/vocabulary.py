"""The words a model knows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lmtool.language_model import IntArray

BOS, EOS, UNK = "<s>", "</s>", "<unk>"


@dataclass(frozen=True)
class Vocabulary:
    """V words with their counts in train, commonest first; `<s>`, which is only context, is the last one.

    words: all different. counts: `[V]`; `</s>` once a sentence, `<s>` 0. eos is None for text without
    sentences. The words that can be predicted are 0 to V-2.
    """

    words: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    eos: int | None
    unk: int

    def __len__(self) -> int:
        return len(self.words)

    @property
    def bos(self) -> int:
        """The id of `<s>`: V-1."""
        return len(self.words) - 1

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each word."""
        return {word: index for index, word in enumerate(self.words)}

    def encode(self, words: Iterable[str]) -> IntArray:
        """The ids of words, `<unk>` for those that are not known."""
        return np.array([self.ids.get(word, self.unk) for word in words], dtype=np.int64)

    def fingerprint(self) -> str:
        """SHA-256 of the words in their order: equal for equal meanings of the ids."""
        return hashlib.sha256("\0".join(self.words).encode()).hexdigest()

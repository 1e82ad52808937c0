"""The vocabulary of a model, and its special tokens."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmtool.system.arrays import IntArray

BOS, EOS, UNK = "<s>", "</s>", "<unk>"
MARKS = {mark: f" {mark}" for mark in (BOS, EOS)}  # marks as words of a text: OOV, because no word has a space


class SpecialTokens(NamedTuple):
    """The ids of `<s>`, of `</s>` (None in text without sentences) and of `<unk>`."""

    bos: int
    eos: int | None
    unk: int


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """V words with their counts in train, most frequent first; `<s>`, which is only context, is the last one.

    words: the words by id, all different. counts: int64 `[V]`; that of `</s>` is the number of sentences, that of `<s>`
    0. eos: the id of `</s>`, None for text without sentences. unk: the id of `<unk>`. The words that can be predicted
    are 0 to V-2. `"cat" in vocabulary` and `vocabulary["cat"]`, its id, are as of a dict; `len` is V.
    """

    words: tuple[str, ...]
    counts: IntArray
    eos: int | None
    unk: int

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.ids

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __getitem__(self, word: str) -> int:
        """Return the id of a word; `words[i]` is the word of an id. Raises KeyError for another word."""
        if word not in self.ids:
            raise KeyError(f"{word!r} is not in the vocabulary; words[i] is the word of an id")
        return self.ids[word]

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} words: {', '.join(self.words[:4])}{', ...' * (len(self) > 4)})"

    @property
    def bos(self) -> int:
        """The id of `<s>`: V-1."""
        return len(self.words) - 1

    @property
    def special_tokens(self) -> SpecialTokens:
        """The ids of `<s>`, `</s>` and `<unk>`."""
        return SpecialTokens(self.bos, self.eos, self.unk)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each word."""
        return {word: index for index, word in enumerate(self.words)}

    def encode(self, words: Iterable[str]) -> IntArray:
        """Return the ids of words, int64 `[N]`; words out of the vocabulary have the id of `<unk>`."""
        return np.array([self.ids.get(word, self.unk) for word in words], dtype=np.int64)

    def limit(self, words: Collection[str]) -> tuple[Vocabulary, npt.NDArray[np.bool_]]:
        """Return the vocabulary limited to `words`, `<s>`, `</s>` and `<unk>`, and the mask of these, bool `[V]`."""
        chosen = {*words}
        word_mask = np.array([word in chosen or i in self.special_tokens for i, word in enumerate(self.words)])
        new = np.cumsum(word_mask) - 1
        eos, unk = None if self.eos is None else int(new[self.eos]), int(new[self.unk])
        return Vocabulary(tuple(itertools.compress(self.words, word_mask)), self.counts[word_mask], eos, unk), word_mask

    def fingerprint(self) -> str:
        """SHA-256 of the words in order: equal if and only if all ids have the same meaning."""
        return hashlib.sha256("\0".join(self.words).encode()).hexdigest()

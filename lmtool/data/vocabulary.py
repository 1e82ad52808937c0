"""The vocabulary of a model, and its special tokens."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmtool.errors import UserError
from lmtool.system.arrays import IntArray

BOS, EOS, UNK = "<s>", "</s>", "<unk>"
MARKS = {mark: f" {mark}" for mark in (BOS, EOS)}  # marks as words of a text: OOV, because no word has a space


class SpecialTokens(NamedTuple):
    """The ids of `<s>`, of `</s>` (None if it is not predicted) and of `<unk>`."""

    bos: int
    eos: int | None
    unk: int


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """V words with their counts in train, most frequent first; `<s>`, which is only context, is the last one.

    words: the words by id, all different. counts: int64 `[V]`; that of `</s>` is the number of sentences, that of `<s>`
    0, or the number of sentences without `</s>`. eos: the id of `</s>`, None if it is not predicted. unk: the id of
    `<unk>`; in a closed vocabulary, where `<unk>` is at most a word of the text, that of `<s>`. The words that can be
    predicted are 0 to V-2. `"cat" in vocabulary` and `vocabulary["cat"]`, its id, are as of a dict; `len` is V.
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
    def sentences(self) -> bool:
        """Whether the text consists of sentences, whether or not their ends are predicted."""
        return self.eos is not None or bool(self.counts[-1])

    @property
    def closed(self) -> bool:
        """Whether words out of the vocabulary have no probability, and are refused."""
        return self.unk == self.bos

    @property
    def end_mark(self) -> int:
        """The id of the mark after each sentence while text is read: `</s>` or, if it is not predicted, `<s>`, which
        cut_sentences takes out.
        """
        return self.bos if self.eos is None else self.eos

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
        words = list(words)
        self.require_no_oov([word for word in words if word not in self.ids] if self.closed else ())
        return np.array([self.ids.get(word, self.unk) for word in words], dtype=np.int64)

    def require_no_oov(self, words: Sequence[str], listed: str = "data.vocabulary.file") -> None:
        """Raise UserError if the vocabulary is closed and there are words outside it; `listed` is to list them."""
        if self.closed and len(words):
            named = f"{words[0]!r}{f' and {len(words) - 1:,} more' if len(words) > 1 else ''}"
            remedy = f"list all words in {listed}=, or set false"
            raise UserError(f"data.vocabulary.closed=true: not in the vocabulary: {named}; {remedy}")

    def cut_sentences(self, ids: Any, places: Any = ()) -> tuple[Any, IntArray, IntArray]:
        """Return the tokens `[N]` of ids `[M]` with a mark after each sentence, where sentences begin, and N, int64
        `[S + 1]`, and places among the ids as places among the tokens.

        The mark, end_mark, is a token if it is `</s>`. Text without sentences has the starts `[0, N]`.
        """
        marks = ids == self.end_mark
        ends = np.flatnonzero(marks) + 1
        if self.eos is not None or not self.sentences:
            return ids, np.append(0, ends if self.eos is not None else len(ids)), np.asarray(places)
        before = np.append(0, np.cumsum(marks))
        return ids[~marks], np.append(0, ends - before[ends]), places - before[np.asarray(places, np.int64)]

    def limit(self, words: Collection[str]) -> tuple[Vocabulary, npt.NDArray[np.bool_]]:
        """Return the vocabulary limited to `words`, `<s>`, `</s>` and `<unk>`, and the mask of these, bool `[V]`."""
        chosen = {*words}
        missing = [word for word in self.words[:-1] if word not in chosen and word != EOS]
        self.require_no_oov(missing, "limit_vocabulary")
        word_mask = np.array([word in chosen or i in self.special_tokens for i, word in enumerate(self.words)])
        new = np.cumsum(word_mask) - 1
        eos, unk = None if self.eos is None else int(new[self.eos]), int(new[self.unk])
        return Vocabulary(tuple(itertools.compress(self.words, word_mask)), self.counts[word_mask], eos, unk), word_mask

    def fingerprint(self) -> str:
        """SHA-256 of the words in order: equal if and only if all ids have the same meaning."""
        return hashlib.sha256("\0".join(self.words).encode()).hexdigest()

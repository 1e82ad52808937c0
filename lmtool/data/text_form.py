"""Texts of a person's as ids, and ids as texts: words are split as those of the data set were."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lmtool.config import Oov
from lmtool.data.spelling import alike
from lmtool.data.vocabulary import BOS, EOS, Vocabulary
from lmtool.errors import UserError
from lmtool.language_model import IntArray

WHITE = re.compile(r"[ \t-\r]+")  # what the tokeniser cuts words at, and no other white space of Unicode


@dataclass(frozen=True, slots=True)
class TextForm:
    """How a data set's text is made of words. chars: each character is one. lowercase: of all text."""

    vocabulary: Vocabulary
    chars: bool
    lowercase: bool

    def split(self, text: str) -> list[str]:
        """The words of a text.

        In data with sentences a text is one sentence at most, and a line end at its end is left out. Raises UserError
        for a line end elsewhere, and for `<s>` and `</s>` as words.
        """
        if self.vocabulary.eos is not None:
            text = text.removesuffix("\n").removesuffix("\r")
            if "\n" in text:
                raise UserError(
                    f"{text[:40]!r}: the run's data have a sentence a line, and this are several; give them one by one"
                )
        if self.lowercase:
            text = text.lower()
        if self.chars:
            return list(text)
        words = [word for word in WHITE.split(text) if word]
        for mark in (BOS, EOS):
            if mark in words:
                raise UserError(
                    f"{mark} stands in the text: lmtool marks where sentences begin and end by itself; remove it"
                )
        return words

    def encode(self, words: list[str], oov: Oov) -> IntArray:
        """The ids of words. Raises UserError for words out of the vocabulary, unless they are to be `<unk>`."""
        if oov is Oov.error:
            self.require_known(words)
        return self.vocabulary.encode(words)

    def require_known(self, words: list[str]) -> None:
        """Raises UserError, naming the nearest ones, for words out of the vocabulary."""
        unknown = [word for word in dict.fromkeys(words) if word not in self.vocabulary.ids]
        if unknown:
            named = "; ".join(self._unknown(word) for word in unknown[:3])
            more = f"; and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            raise UserError(f"{named}{more}")

    def _unknown(self, word: str) -> str:
        near = [visible(other) for other in alike(word, self.vocabulary)]
        said = f"the nearest there: {', '.join(near)}" if near else "no word there is like it"
        return f"{visible(word)} is not in the vocabulary ({said})"

    def join(self, ids: Iterable[int]) -> str:
        """The text of ids, which end in no `</s>`."""
        return ("" if self.chars else " ").join(self.vocabulary.words[index] for index in ids)


def visible(word: str) -> str:
    """A word as a table can show it: in quotes where it is or holds white space."""
    return word if word.isprintable() and " " not in word else repr(word)

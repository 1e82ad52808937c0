"""Text becomes ids and ids become text: words are cut as those of the data set were."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lmtool.data.subwords import Subwords
from lmtool.data.tokenizer import CharTokenizer, WordTokenizer, split_words
from lmtool.data.vocabulary import BOS, EOS, Vocabulary
from lmtool.errors import UserError
from lmtool.system.arrays import IntArray
from lmtool.system.spelling import close_words


@dataclass(frozen=True, slots=True)
class TextForm:
    """How a data set's text is made of words. chars: each character is a word. lowercase: all text is in lower case.
    tags: words of files are word/tag, and the tag is dropped. subwords: cuts words into the pieces that are the
    vocabulary; None where words or characters are. blank_lines: a line of a file without words is a sentence.
    """

    vocabulary: Vocabulary
    chars: bool
    lowercase: bool
    tags: bool = False
    subwords: Subwords | None = None
    blank_lines: bool = False

    def tokenizer(self, vocabulary: Vocabulary | None = None) -> WordTokenizer | CharTokenizer:
        """Return a new tokenizer of files by these rules. vocabulary: whose ids it gives; None for provisional ids."""
        sentences, lowercase, blank = self.vocabulary.eos is not None, self.lowercase, self.blank_lines
        if self.chars:
            return CharTokenizer(sentences=sentences, lowercase=lowercase, blank_lines=blank, vocabulary=vocabulary)
        return WordTokenizer(
            sentences=sentences, tags=self.tags, lowercase=lowercase, blank_lines=blank, vocabulary=vocabulary
        )

    def split(self, text: str) -> list[str]:
        """The tokens of a text: its words, characters or pieces of words. Raises UserError as `words` does."""
        return self.tokens(self.words(text))

    def tokens(self, words: list[str]) -> list[str]:
        """What stands for words in the vocabulary: themselves, or the names of their pieces."""
        return words if self.subwords is None else self.subwords.pieces(words)

    def words(self, text: str) -> list[str]:
        """The words of a text, or its characters.

        In data with sentences a text is one sentence at most, and a line end at its end is removed. Raises UserError
        for a line end elsewhere, and for `<s>` and `</s>` as words.
        """
        if self.vocabulary.eos is not None:
            text = text.removesuffix("\n").removesuffix("\r")
            if "\n" in text:
                raise UserError(
                    f"{text[:40]!r}: the run's data have a sentence per line, and these are several: give one at a time"
                )
        if self.lowercase:
            text = text.lower()
        if self.chars:
            return list(text)
        words = split_words(text)
        for mark in (BOS, EOS):
            if mark in words:
                raise UserError(
                    f"{mark} stands in the text: lmtool marks where sentences begin and end by itself; remove it"
                )
        return words

    def encode(self, words: list[str], *, allow_oov: bool) -> IntArray:
        """Return the ids of words, int64 `[N]`. Raises UserError for words out of the vocabulary, unless allowed."""
        if not allow_oov:
            self.require_known(words)
        return self.vocabulary.encode(words)

    def require_known(self, words: list[str]) -> None:
        """Raise UserError, naming the nearest ones, for words out of the vocabulary."""
        unknown = [word for word in dict.fromkeys(words) if word not in self.vocabulary.ids]
        if unknown:
            named = "; ".join(self._unknown(word) for word in unknown[:3])
            more = f"; and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            raise UserError(f"{named}{more}")

    def _unknown(self, word: str) -> str:
        predicted = self.vocabulary.words[:-1]  # without <s>
        near = [visible(other) for other in close_words(word, predicted)]
        hint = f"the nearest there: {', '.join(near)}" if near else "no word there is like it"
        return f"{visible(word)} is not in the vocabulary ({hint})"

    def join(self, ids: Iterable[int]) -> str:
        """The text of ids without `</s>` at their end."""
        tokens = [self.vocabulary.words[index] for index in ids]
        if self.subwords is None:
            return ("" if self.chars else " ").join(tokens)
        numbers = self.subwords.numbers  # <unk> has none: no text has it
        return self.subwords.text(numbers[token] for token in tokens if token in numbers)

    def shown(self, index: int) -> str:
        """A token as text: the word, or what the piece adds to a text, with the space before it that begins a word."""
        token = self.vocabulary.words[index]
        if self.subwords is None or token not in self.subwords.numbers:
            return token
        return self.subwords.addition(self.subwords.numbers[token])


def visible(word: str) -> str:
    """A word as a table can show it: in quotes where it has white space or cannot be printed."""
    return word if word.isprintable() and " " not in word else repr(word)

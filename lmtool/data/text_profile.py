"""Counts of a text's lines, words, characters, scripts and marks, made in one pass."""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass, field

from lmtool.data.printed_words import has_letters, sentence_ends, without_marks
from lmtool.data.text_rules import space_table
from lmtool.data.tokenizer import split_words
from lmtool.data.vocabulary import MARKS
from lmtool.system.terminal import Cell

SHOWN = 4  # maximum number of scripts that are named


@dataclass(slots=True)
class TextProfile:
    """Counts of a text.

    size: number of bytes.
    words: number of occurrences of each type.
    several_sentences: number of lines with a sentence end before their last word.
    repeated: number of lines that occurred before.
    longest: number of words of the longest line, and its line number.
    """

    size: int = 0
    lines: int = 0
    lines_with_words: int = 0
    carriage_returns: int = 0
    several_sentences: int = 0
    ended: int = 0
    repeated: int = 0
    longest: tuple[int, int] = (0, 0)
    words: Counter[str] = field(default_factory=Counter)
    _seen: set[int] = field(default_factory=set)  # hashes of the lines so far

    def add(self, block: bytes) -> None:
        """Count whole lines of UTF-8."""
        lines = block.decode("utf-8").split("\n")[:-1]
        line_words = list(map(split_words, lines))
        words = [word for each in line_words for word in each]
        ends, at = sentence_ends(words), 0
        for number, (line, each) in enumerate(zip(lines, line_words, strict=True), self.lines + 1):
            self.carriage_returns += line.endswith("\r")
            if each:
                *inner, last = ends[at : at + len(each)]
                at += len(each)
                self.lines_with_words += 1
                self.several_sentences += any(inner)
                self.ended += bool(last)
                self.repeated += (key := hash(line.strip())) in self._seen
                self._seen.add(key)
                self.longest = max(self.longest, (len(each), -number))
        self.size += len(block)
        self.lines += len(lines)
        self.words.update(words)

    @property
    def with_punctuation(self) -> int:
        """The number of words that begin or end in punctuation, and are more frequent without it."""
        marked = ((count, without_marks(word)) for word, count in self.words.items() if has_letters(word))
        return sum(count for (count, bare) in marked if self.words.get(bare, 0) > count)

    @property
    def decomposed(self) -> int:
        """The number of words that are not in NFC."""
        return sum(count for word, count in self.words.items() if not unicodedata.is_normalized("NFC", word))

    @property
    def reserved(self) -> int:
        """The number of words that lmtool adds itself."""
        return sum(self.words[word] for word in MARKS)

    def scripts(self) -> list[tuple[str, float]]:
        """Return the scripts of the letters and their shares, the most frequent first."""
        letters: Counter[str] = Counter()
        for word, count in self.words.items():
            for letter in filter(str.isalpha, word):
                letters[letter] += count
        scripts: Counter[str] = Counter()
        for letter, count in letters.items():
            scripts[unicodedata.name(letter, "unnamed").partition(" ")[0].capitalize()] += count
        return [(script, count / scripts.total()) for script, count in scripts.most_common(SHOWN)]

    def rows(self) -> list[tuple[str, Cell]]:
        """Return the properties with their values."""
        tokens, types = self.words.total(), len(self.words)
        once = sum(count == 1 for count in self.words.values())
        others = ((word, count) for word, count in self.words.items() if not word.isascii())
        table = space_table()
        unusual = sum(count * sum(ord(letter) in table for letter in word) for word, count in others)
        rows: list[tuple[str, Cell]] = [
            ("bytes", self.size),
            ("lines", self.lines),
            ("lines without words", self.lines - self.lines_with_words),
            ("lines ending in a carriage return", self.carriage_returns),
            ("lines that repeat an earlier one", self.repeated),
            ("lines ending in a final mark", self.ended),
            ("lines with several sentences", self.several_sentences),
            ("words in the longest line", self.longest[0]),
            ("number of the longest line", -self.longest[1]),
            ("tokens (between white space)", tokens),
            ("types", types),
            ("types that occur once", f"{once / max(types, 1):.1%}"),
            ("words with punctuation attached", self.with_punctuation),
            ("words not in NFC", self.decomposed),
            ("invisible characters within words", unusual),
        ]
        for script, share in self.scripts():
            rows.append((f"letters: {script}", f"{share:.1%}"))
        return rows

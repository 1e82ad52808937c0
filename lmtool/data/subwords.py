"""Words as sequences of pieces (subwords), by the library `tokenizers`.

Pieces never cross words, and those of a word stand for the word and the space before it, so that pieces written one
after the other are the text. Whatever tokeniser there is, each word is written back from its pieces before these are
used: nothing is lost, and nothing is `<unk>`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lmtool.config.data import Unit
from lmtool.data.normaliser_table import require_tables
from lmtool.data.vocabulary import BOS, EOS, UNK
from lmtool.errors import UserError, first_line
from lmtool.system.arrays import IntArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

INSTALL = 'pieces of words need tokenizers: pip install "lmtool[subwords]"'
AT_ONCE = 1 << 14  # words handed to the library at once: bounds memory
REMEMBERED = 1 << 18  # words whose pieces are kept
PROBE = ["a", "the", "a"]  # a text that every tokeniser can write
UNREADABLE = "\ufffd"  # what a piece of the bytes of a character is by itself


@dataclass(frozen=True, slots=True)
class PieceTable:
    """The ids of the pieces of W words: those of word w are ids[starts[w]:starts[w + 1]].

    starts: int64 `[W + 1]`. ids: int32 `[P]`.
    """

    starts: IntArray
    ids: npt.NDArray[np.int32]

    @property
    def lengths(self) -> IntArray:
        """How many pieces each word has, int64 `[W]`."""
        return np.diff(self.starts)

    def of(self, words: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """The ids of the pieces of words `[N]`, one word after the other."""
        starts = self.starts[words]
        lengths = self.starts[words + 1] - starts
        ends = np.cumsum(lengths)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        pieces: npt.NDArray[np.int32] = self.ids[np.repeat(starts, lengths) + within]
        return pieces


class Subwords:
    """A tokeniser of words. names: its pieces, all different, by their number; none is a reserved word."""

    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        """name: of the tokeniser, for errors. Raises UserError where it does not write back what it reads."""
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.name = name
        self._tokenizer = tokenizer
        pieces = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
        self.names = tuple(_free(piece) for piece, _ in pieces)
        self._ids = [index for _, index in pieces]  # those of the library, by number
        self._number = {index: number for number, index in enumerate(self._ids)}
        self._known: dict[str, list[str]] = {}
        self._lead = self._found_lead()

    @classmethod
    def parse(cls, text: str, name: str, unit: Unit | None = None) -> Subwords:
        """The tokeniser in a tokenizer.json of the library. unit: what it must be.

        Raises UserError for what is none, for another unit's, and without the library.
        """
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UserError(INSTALL) from None
        with library_errors(name):
            require_tables(json.loads(text).get("normalizer"))
            tokenizer = Tokenizer.from_str(text)
        kind = type(tokenizer.model).__name__
        if unit is not None and kind.lower() != unit.value:
            fitting = [known.value for known in Unit if known.is_subword and known.value == kind.lower()]
            remedy = f"take data.vocabulary.unit={fitting[0]}" if fitting else "take one of BPE or Unigram"
            raise UserError(f"data.vocabulary.unit={unit.value}: {name} is of the kind {kind}; {remedy}")
        with library_errors(name):
            return cls(tokenizer, name)

    @property
    def json(self) -> str:
        """The tokeniser as tokenizer.json."""
        return str(self._tokenizer.to_str())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the tokeniser."""
        return hashlib.sha256(self.json.encode()).hexdigest()

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each piece by its name."""
        return {name: number for number, name in enumerate(self.names)}

    def table(self, words: Sequence[str]) -> PieceTable:
        """The numbers of the pieces of words, each of them without white space.

        Raises UserError for a word that its pieces do not write back.
        """
        lengths: list[int] = [0]
        parts: list[npt.NDArray[np.int32]] = [np.empty(0, dtype=np.int32)]
        for first in range(0, len(words), AT_ONCE):
            encoded = self._encoded(words[first : first + AT_ONCE])
            lengths += map(len, encoded)
            numbers = map(self._number.__getitem__, itertools.chain.from_iterable(encoded))
            parts.append(np.fromiter(numbers, dtype=np.int32))
        return PieceTable(np.cumsum(lengths), np.concatenate(parts))

    def pieces(self, words: Iterable[str]) -> list[str]:
        """The names of the pieces of words, one word after the other. Raises UserError as `table` does."""
        words = list(words)
        if len(self._known) > REMEMBERED:
            self._known.clear()
        missing = [word for word in dict.fromkeys(words) if word not in self._known]
        for word, ids in zip(missing, self._encoded(missing), strict=True):
            self._known[word] = [self.names[self._number[index]] for index in ids]
        return [piece for word in words for piece in self._known[word]]

    def text(self, numbers: Iterable[int]) -> str:
        """The text of pieces, without the space before its first word; what is no UTF-8 becomes U+FFFD."""
        return self._decoded([self._ids[number] for number in numbers])

    def addition(self, number: int) -> str:
        """What a piece adds to a text: ` the` begins a word, `ing` continues one; its name where it is no text."""
        before = self._anchor
        text = self._decoded([*before, self._ids[number]])[len(self._decoded(before)) :]
        return self.names[number] if not text or UNREADABLE in text else text

    @cached_property
    def _anchor(self) -> list[int]:
        return list(self._tokenizer.encode(f"{self._lead}a", add_special_tokens=False).ids)

    def _encoded(self, words: Sequence[str]) -> list[list[int]]:
        """The library's ids of each word. Raises UserError for a word that they do not write back."""
        texts = [self._lead + word for word in words]
        with library_errors(self.name):  # a letter may have no piece, and none be that of unknown ones
            ids = [list(one.ids) for one in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
            written = self._tokenizer.decode_batch(ids, skip_special_tokens=False)
        for word, back in zip(words, written, strict=True):
            if back.removeprefix(" ") != word:
                raise UserError(
                    f"{self.name} writes {word!r} back as {back.removeprefix(' ')!r}: take a tokeniser of bytes, or "
                    "with byte fallback, that does not change the text"
                )
        return ids

    def _decoded(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False)).removeprefix(" ")

    def _found_lead(self) -> str:
        """What is put before each word: a space, unless the tokeniser puts one there itself in any case."""
        for lead in (" ", ""):
            ids = [
                index for word in PROBE for index in self._tokenizer.encode(lead + word, add_special_tokens=False).ids
            ]
            if self._decoded(ids) == " ".join(PROBE):
                return lead
        raise UserError(
            f"{self.name} does not write words back with a space before each: take a tokeniser of bytes, or with byte "
            "fallback, that does not change the text"
        )


@contextmanager
def library_errors(name: str) -> Iterator[None]:
    """Raise UserError, naming the tokeniser, for whatever the library or JSON says of it, panics of Rust as well."""
    try:
        yield
    except (UserError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # the library raises nothing more special
        raise UserError(f"{name} is no tokeniser that tokenizers reads ({first_line(error)})") from None


def _free(piece: str) -> str:
    """The name of a piece: itself; one that would be a reserved word has a backslash before it."""
    return f"\\{piece}" if piece.lstrip("\\") in (BOS, EOS, UNK) else piece

"""Cut words into pieces (subwords), by the library `tokenizers`.

Pieces never cross words, and the pieces of a word stand for the word and the space before it, so that concatenated
pieces are the text. With any tokenizer, each word is decoded again from its pieces before these are used: nothing is
lost, except characters that a tokenizer without bytes lacks, which are `<unk>`.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from lmtool.config.data import BYTES, Unit
from lmtool.data.vocabulary import BOS, EOS, MARKS, UNK
from lmtool.errors import RecordError, UserError, first_line
from lmtool.system.arrays import IntArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

INSTALL = 'pieces of words need tokenizers: pip install "lmtool[subwords]"'
WORDS_PER_CALL = 1 << 14  # words per call of the library: bounds memory
CACHED_WORDS = 1 << 18  # maximum number of words whose pieces are kept
UNKNOWN = -2  # number of characters without a piece: plus the reserved words before the pieces, the id of <unk>
PROBE = ["a", "the", "a"]  # words that every byte-level tokenizer can encode, and most other tokenizers
TOKENIZER_REMEDY = "take a tokenizer of bytes, or with byte fallback, that does not change the text"
UNREADABLE = "\ufffd"  # in the text of a piece with an incomplete character
SPACE = "\u2581"  # stands for a space in the names of pieces of characters, and of all pieces in tables
BYTE_PIECES = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(BYTES)}  # of tokenizers with byte fallback
# The characters that byte-level tokenizers write for bytes: printable bytes are themselves, others are substitutes.
PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
OTHERS = [byte for byte in range(BYTES) if byte not in PRINTABLE]
LETTERS = {byte: chr(byte) for byte in PRINTABLE} | {byte: chr(BYTES + k) for k, byte in enumerate(OTHERS)}
BYTE_OF = {letter: byte for byte, letter in LETTERS.items()}


@dataclass(frozen=True, slots=True)
class PieceTable:
    """The ids of the pieces of W words, UNKNOWN for unknown characters: ids[starts[w]:starts[w + 1]] for word w."""

    starts: IntArray
    ids: npt.NDArray[np.int32]

    @property
    def lengths(self) -> IntArray:
        """The number of pieces of each word, int64 `[W]`."""
        return np.diff(self.starts)

    def of(self, words: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Return the ids of the pieces of words `[N]`, one word after the other."""
        starts = self.starts[words]
        lengths = self.starts[words + 1] - starts
        ends = np.cumsum(lengths)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        pieces: npt.NDArray[np.int32] = self.ids[np.repeat(starts, lengths) + within]
        return pieces


class Subwords:
    """A tokenizer of words. names: its pieces, all different, by number; none is a reserved word. about: a description
    of its pieces, for a note; empty if lmtool did not learn them.
    """

    def __init__(self, tokenizer: Tokenizer, name: str, about: str = "") -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.name, self.about = name, about
        self._tokenizer = tokenizer
        pieces = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
        spaces = "<0x00>" in dict(pieces) and not any(SPACE in piece for piece, _ in pieces)  # pieces learned by lmtool
        self.names = tuple(_escape_reserved(piece.replace(" ", SPACE) if spaces else piece) for piece, _ in pieces)
        self._ids = [index for _, index in pieces]  # the library's ids, by number
        self._number: dict[int | str, int] = {index: number for number, index in enumerate(self._ids)}
        self._known: dict[str, list[str]] = {}
        self._lead = self._find_lead()

    @classmethod
    def parse(cls, text: str, name: str, unit: Unit | None = None) -> Subwords:
        """Return the tokenizer in a tokenizer.json of the library. unit: the required unit."""
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
        return str(self._tokenizer.to_str())

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.json.encode()).hexdigest()

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def table(self, words: Sequence[str]) -> PieceTable:
        """Return the numbers of the pieces of words. Raises UserError for a word that its pieces do not give back."""
        lengths, parts = [0], [np.empty(0, dtype=np.int32)]
        for first in range(0, len(words), WORDS_PER_CALL):
            encoded = self._encode(words[first : first + WORDS_PER_CALL])
            lengths += map(len, encoded)
            numbers = (self._number.get(index, UNKNOWN) for index in itertools.chain.from_iterable(encoded))
            parts.append(np.fromiter(numbers, dtype=np.int32))
        return PieceTable(np.cumsum(lengths), np.concatenate(parts))

    def pieces(self, words: Iterable[str]) -> list[str]:
        """Return the names of the pieces of words, one word after the other, with unknown characters unchanged."""
        words = list(words)
        if not self._known or len(self._known) > CACHED_WORDS:
            self._known = {mark: [mark] for mark in MARKS.values()}
        missing = [word for word in dict.fromkeys(words) if word not in self._known]
        for word, ids in zip(missing, self._encode(missing), strict=True):
            self._known[word] = [i if isinstance(i, str) else self.names[self._number[i]] for i in ids]
        return [piece for word in words for piece in self._known[word]]

    def text(self, numbers: Iterable[int]) -> str:
        """Return the text of pieces, without the space before its first word and bytes of incomplete characters."""
        numbers = list(numbers)
        text = self._decode([self._ids[number] for number in numbers])
        if UNREADABLE not in text:
            return text
        return b"".join(self.contents[number] for number in numbers).decode(errors="ignore").removeprefix(" ")

    @cached_property
    def contents(self) -> list[bytes]:
        """The bytes that each piece adds to a text, by number; they may be a part of a character."""
        anchor = self._tokenizer.encode(f"{self._lead}a", add_special_tokens=False).ids
        batch = [anchor, *([*anchor, index] for index in self._ids)]
        alone, *texts = self._tokenizer.decode_batch(batch, skip_special_tokens=False)
        return [_content(name, text[len(alone) :]) for name, text in zip(self.names, texts, strict=True)]

    @cached_property
    def additions(self) -> dict[str, str]:
        """The text that each piece adds, by its name: ` the` begins a word, `ing` continues a word; `<0xE0>` is a byte
        of a part of a character.
        """
        texts = [content.decode(errors="surrogateescape") for content in self.contents]
        as_bytes = {0xDC00 + byte: name for byte, name in enumerate(BYTE_PIECES)}
        return {name: text.translate(as_bytes) for name, text in zip(self.names, texts, strict=True)}

    def _encode(self, words: Sequence[str]) -> list[Sequence[int | str]]:
        """Return the library's ids of each word, with unknown characters unchanged."""
        texts = [self._lead + word for word in words]
        with library_errors(self.name):  # a character, even the unknown one, may have no piece
            found = [list(one.ids) for one in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
            written = self._tokenizer.decode_batch(found, skip_special_tokens=False)
        ids: list[Sequence[int | str]] = [*found]
        for place, (word, back) in enumerate(zip(words, written, strict=True)):
            if (found_word := back.removeprefix(" ")) != word:
                ids[place], text, again = self._with_unknown(word)
                if text != again.removeprefix(" "):
                    raise RecordError(f"{self.name} writes {word!r} back as {found_word!r}: {TOKENIZER_REMEDY}")
        return ids

    def _with_unknown(self, word: str) -> tuple[list[int | str], str, str]:
        """Return the ids of a word and its unknown characters, what SentencePiece makes of the word, and their text."""
        rules = self._tokenizer.normalizer
        if type(rules).__name__ == "Precompiled":
            word = re.sub(" +", " ", normalize("NFC", rules.normalize_str(word))).strip(" ")
        if not word:  # it had only characters without width
            return [], "", ""
        one, text = self._tokenizer.encode(self._lead + word, add_special_tokens=False), self._lead + word
        ids = [text[a:b] if i == self._unknown_id else i for i, (a, b) in zip(one.ids, one.offsets, strict=True)]
        parts = (i.encode() if isinstance(i, str) else self.contents[self._number[i]] for i in ids)
        return ids, word.replace(SPACE, " "), b"".join(parts).decode(errors="replace")

    @cached_property
    def _unknown_id(self) -> int | None:
        """The library's id of the piece for unknown characters; None if the tokenizer has no such piece."""
        model = json.loads(self.json)["model"]
        found: int | None = model["unk_id"] if "unk_id" in model else model["vocab"].get(model.get("unk_token"))
        return found

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False)).removeprefix(" ")

    def _find_lead(self) -> str:
        """Return what to put before each word: a space, unless the tokenizer always adds one itself."""
        own = [name[1:] for name in self.names if len(name) > 1 and name.rfind(SPACE) == 0]  # except pieces of bytes
        for words, lead in itertools.product((PROBE, own[:1] * 3 or PROBE), (" ", "")):
            ids = [i for word in words for i in self._tokenizer.encode(lead + word, add_special_tokens=False).ids]
            if self._decode(ids) == " ".join(words):
                return lead
        raise UserError(f"{self.name} does not write words back with a space before each: {TOKENIZER_REMEDY}")


@contextmanager
def library_errors(name: str, kind: str = "a tokenizer that the library tokenizers reads") -> Iterator[None]:
    """Raise UserError, naming the tokenizer, for any error of a library or JSON in the block, also a panic of Rust."""
    try:
        yield
    except (UserError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # the library raises no more specific exceptions
        raise UserError(f"{name} is not {kind} ({first_line(error)})") from None


def _content(name: str, text: str) -> bytes:
    """Return the bytes of a piece. text: what the library adds for it, with U+FFFD for a part of a character."""
    if UNREADABLE not in text:
        return text.encode()
    letters = [BYTE_OF[letter] for letter in name if letter in BYTE_OF]
    return BYTE_PIECES.get(name) or (bytes(letters) if len(letters) == len(name) else text.encode())


def _escape_reserved(piece: str) -> str:
    """Return the name of a piece: the piece, with a backslash before it if it would be a reserved word."""
    return f"\\{piece}" if piece.lstrip("\\") in (BOS, EOS, UNK) else piece


IS_LEAF, HAS_LEAF = 1 << 31, 1 << 8


def require_table(table: bytes) -> None:
    """Raise ValueError if a look-up in a table could leave its trie, a double array, or the texts after it."""
    size = struct.unpack_from("<I", table)[0] if len(table) >= 4 else 0
    if not size or size % 1024 or 4 + size > len(table):
        raise ValueError("the table that normalizes is cut off")
    units = np.frombuffer(table[4 : 4 + size], dtype="<u4").astype(np.int64)
    texts = table[4 + size :].decode().encode()
    begins = np.append((np.frombuffer(texts, dtype=np.uint8) & 0xC0) != 0x80, True)  # starts of characters, and the end
    nodes = np.append(0, np.flatnonzero(units < IS_LEAF))
    following = nodes ^ (units[nodes] >> 10) << ((units[nodes] & 512) >> 6)  # children differ from these by a byte
    if (following | 0xFF).max() >= len(units):
        raise ValueError("the table that normalizes is damaged: a node is beyond its end")
    values = units[following[(units[nodes] & HAS_LEAF) > 0]] % IS_LEAF
    if values.max(initial=0) >= len(begins) or not begins[values].all():
        raise ValueError("the table that normalizes is damaged: a text is beyond its end")


def require_tables(value: Any) -> None:
    """Raise ValueError if a tokenizer.json, or a part of it, has a table that `require_table` refuses."""
    if isinstance(value, dict) and isinstance(table := value.get("precompiled_charsmap"), str):
        require_table(base64.b64decode(table))
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        require_tables(part)

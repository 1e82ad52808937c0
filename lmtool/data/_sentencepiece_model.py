"""Read a .model file of SentencePiece (Kudo & Richardson 2018) as a tokenizer of the library `tokenizers`.

The file is a message of Protocol Buffers, of which a few fields are read here: pieces with their scores, the kind of
the model, and the table by which text is normalized.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import normalize

from lmtool.config.data import Unit
from lmtool.data.subwords import INSTALL, SPACE, Subwords, library_errors, require_table
from lmtool.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Numbers of the fields in sentencepiece_model.proto.
PIECES, TRAINER, NORMALISER = 1, 2, 3
TEXT, SCORE, TYPE = 1, 2, 3
MODEL_TYPE, BYTE_FALLBACK = 3, 35
TABLE = 2
# Settings by which lines are cut, with their defaults, the only values that piece_lines takes.
OF_TRAINER = {22: ("split_by_whitespace", 1), 24: ("treat_whitespace_as_suffix", 0)}
OF_NORMALISER = {3: ("add_dummy_prefix", 1), 4: ("remove_extra_whitespaces", 1), 5: ("escape_whitespaces", 1)}
UNITS = {1: Unit.unigram, 2: Unit.bpe}
UNKNOWN, CONTROL = 2, 3  # types of pieces that stand for no text
SYMBOL, BYTE = 4, 6  # types of pieces: user-defined symbols, which are always cut out whole; bytes


@dataclass(frozen=True, slots=True)
class _Model:
    """pieces: with scores and types, by id. unit: None for a kind that is not read. table: of the normalizer. unusual:
    the settings by which lines are cut that do not have their defaults, as NAME=VALUE.
    """

    pieces: list[tuple[str, float, int]]
    unit: Unit | None
    byte_fallback: bool
    table: bytes
    unusual: list[str]


def subwords_of_model(raw: bytes, name: str, unit: Unit) -> Subwords:
    """Return the tokenizer in the bytes of a .model file.

    Raises UserError if the file is damaged, the model is of another kind, or the library is not installed.
    """
    model = _checked(raw, name)
    if model.unit is not unit:
        remedy = f"take data.vocabulary.unit={model.unit.value}" if model.unit else "take one of BPE or unigram"
        raise UserError(f"data.vocabulary.unit={unit.value}: {name} is of another kind; {remedy}")
    with library_errors(name):
        return Subwords(_tokenizer(model), name)


def piece_lines(raw: bytes, name: str) -> Callable[[list[str]], list[str]]:
    """Return a function that writes lines as their pieces with spaces between them, as `spm_encode` does.

    Raises UserError as subwords_of_model does, and for models that cut lines by other than the default settings. The
    lines are normalized; unknown letters stay as they are.
    """
    model = _checked(raw, name)
    if model.unit is None:
        raise UserError(f"{name} is a model of words or characters: take one of BPE or unigram")
    if model.unusual:
        remedy = "write the pieces with spm_encode, and score these"
        raise UserError(f"{name} was trained with {model.unusual[0]}, which is not read here: {remedy}")
    with library_errors(name):
        tokenizer = _tokenizer(model)
        from tokenizers.normalizers import Precompiled

        # The library looks graphemes up in the table, whole or letter by letter: it would leave decomposed syllables of
        # Hangul as they are, which SentencePiece composes.
        table = Precompiled(model.table).normalize_str if model.table else None
    unknown = {text for text, _, kind in model.pieces if kind == UNKNOWN}  # BPE names it instead of the letters

    def in_pieces(lines: list[str]) -> list[str]:
        texts = [
            re.sub(" +", " ", f" {normalize('NFC', table(line)) if table else line}".rstrip(f" {SPACE}"))
            for line in lines
        ]
        with library_errors(name):
            found = tokenizer.encode_batch(texts, add_special_tokens=False)
        return [
            " ".join(
                text[a:b] if piece in unknown else piece
                for piece, (a, b) in zip(each.tokens, each.offsets, strict=True)
            )
            for text, each in zip(texts, found, strict=True)
        ]

    return in_pieces


def _checked(raw: bytes, name: str) -> _Model:
    """Return the model in the bytes of a file. Raises UserError if there is none."""
    try:
        model = _read(raw)
    except (ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise UserError(f"{name} is cut off or not a model of SentencePiece ({error})") from error
    if all(kind in (UNKNOWN, CONTROL) for _, _, kind in model.pieces):
        raise UserError(f"{name} is not a model of SentencePiece: it has no pieces")
    return model


def _tokenizer(model: _Model) -> Tokenizer:
    try:
        from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
    except ImportError:
        raise UserError(INSTALL) from None
    unknown = next((number for number, (_, _, kind) in enumerate(model.pieces) if kind == UNKNOWN), None)
    tokenizer: Tokenizer
    if model.unit is Unit.unigram:
        # SentencePiece gives a user-defined symbol this score, above those of all other pieces.
        scored = [(text, -0.1 if kind == SYMBOL else score) for text, score, kind in model.pieces]
        tokenizer = Tokenizer(models.Unigram(scored, unk_id=unknown, byte_fallback=model.byte_fallback))
    else:
        numbers = {text: number for number, (text, _, _) in enumerate(model.pieces)}
        unk = None if unknown is None else model.pieces[unknown][0]
        merges = _merges(model)
        of_pairs = models.BPE(numbers, merges, unk_token=unk, fuse_unk=True, byte_fallback=model.byte_fallback)
        tokenizer = Tokenizer(of_pairs)
    steps: list[normalizers.Normalizer] = [normalizers.Precompiled(model.table)] if model.table else []
    symbols = [text for text, _, kind in model.pieces if kind == SYMBOL] if model.unit is Unit.bpe else []
    if symbols:  # found in normalized text, leftmost first and longest first; what stands between them is merged
        steps.append(normalizers.Replace(" ", SPACE))
        tokenizer.add_tokens([AddedToken(text, normalized=True) for text in symbols])
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps) if symbols else steps[0]
    prepend = "never" if symbols else "always"  # else each text between two symbols would begin with a space
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=prepend)
    spaces = decoders.Replace(SPACE, " ")
    tokenizer.decoder = decoders.Sequence([spaces, decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _merges(model: _Model) -> list[tuple[str, str]]:
    """Return the pairs of pieces whose concatenation is a piece, best score first, as SentencePiece merges them."""
    known = {text: score for text, score, kind in model.pieces if kind not in (UNKNOWN, CONTROL, SYMBOL, BYTE)}
    merges = [
        (-score, number, text[:cut], text[cut:])
        for number, (text, score) in enumerate(known.items())
        for cut in range(1, len(text))
        if text[:cut] in known and text[cut:] in known
    ]
    return [(left, right) for _, _, left, right in sorted(merges, key=lambda merge: merge[:2])]


def _read(raw: bytes) -> _Model:
    pieces: list[tuple[str, float, int]] = []
    kind, byte_fallback, table, unusual = 1, False, b"", list[str]()
    for number, value in _fields(raw):
        if number == PIECES and isinstance(value, bytes):
            fields = dict(_fields(value))
            text, score = fields.get(TEXT, b""), fields.get(SCORE, 0.0)
            if not isinstance(text, bytes) or not isinstance(score, float):
                raise ValueError("a piece is not text with a score")
            piece_type = _whole(fields.get(TYPE, 1))
            # The library would find <unk> and the like in a text as any other piece; no word begins with two spaces.
            before = 2 * SPACE if piece_type in (UNKNOWN, CONTROL) else ""
            pieces.append((before + text.decode(), score, piece_type))
        elif number == TRAINER and isinstance(value, bytes):
            settings = dict(_fields(value))
            kind, byte_fallback = _whole(settings.get(MODEL_TYPE, 1)), bool(settings.get(BYTE_FALLBACK, 0))
            unusual += _unusual(settings, OF_TRAINER)
        elif number == NORMALISER and isinstance(value, bytes):
            settings = dict(_fields(value))
            found = settings.get(TABLE, b"")
            unusual += _unusual(settings, OF_NORMALISER)
            table = found if isinstance(found, bytes) else b""
    if table:
        require_table(table)
    return _Model(pieces, UNITS.get(kind), byte_fallback, table, unusual)


def _unusual(settings: dict[int, bytes | int | float], defaults: dict[int, tuple[str, int]]) -> list[str]:
    found = {name: (settings.get(number, default), default) for number, (name, default) in defaults.items()}
    return [f"{name}={str(bool(value)).lower()}" for name, (value, default) in found.items() if value != default]


def _whole(value: bytes | int | float) -> int:
    if not isinstance(value, int):
        raise ValueError("a number is missing")
    return value


def _fields(raw: bytes) -> Iterator[tuple[int, bytes | int | float]]:
    """Yield the numbers and values of the fields of a Protocol Buffers message. Raises ValueError if it is not one."""
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        value: bytes | int | float
        match key & 7:
            case 0:
                value, at = _varint(raw, at)
            case 1:
                value, at = struct.unpack_from("<d", raw, at)[0], at + 8
            case 2:
                size, at = _varint(raw, at)
                value, at = raw[at : at + size], at + size
            case 5:
                value, at = float(struct.unpack_from("<f", raw, at)[0]), at + 4
            case other:
                raise ValueError(f"wire type {other}")
        if at > len(raw):
            raise ValueError("it ends within a field")
        yield key >> 3, value


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at

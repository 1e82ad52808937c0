"""Tables of SentencePiece's normalizer: right ones are known from those that a lookup would run out of."""

from __future__ import annotations

import base64
import json
import struct

import pytest

from lmtool.config.data import Unit
from lmtool.data._sentencepiece_model import piece_lines, subwords_of_model
from lmtool.data.subwords import Subwords, require_table
from lmtool.errors import UserError
from tests.data.test_subwords import message

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")
LEAF = 1 << 31


def table(*, root: int = 256, place: int = 321, following: int = 512, value: int = 0, texts: bytes = b"B\0") -> bytes:
    """Return a table in which A becomes B: the root's children are at 256 ^ byte, e.g. 321; A's value is at 512."""
    units = [0] * 768
    units[0] = root << 10
    units[place] = (321 ^ following) << 10 | 1 << 8 | 65
    units[512] = LEAF | value
    return struct.pack("<I768I", 768 * 4, *units) + texts


def test_the_table_is_as_the_library_reads_it() -> None:
    assert tokenizers.normalizers.Precompiled(table()).normalize_str("CAT") == "CBT"
    require_table(table())
    require_table(table(value=2, texts=b"B\0CD\0"))


def test_lines_are_normalized_by_the_table() -> None:
    normalizer = b"\x12" + _size(len(table())) + table()
    unknown = message((1, b"<unk>"), (2, 0.0), (3, 2))
    pieces = [unknown, *(message((1, piece.encode()), (2, -1.0)) for piece in ("\u2581", "C", "B"))]
    model = (
        message(*((1, piece) for piece in pieces), (2, message((3, 1)))) + b"\x1a" + _size(len(normalizer)) + normalizer
    )
    assert piece_lines(model, "m.model")(["CAT"]) == ["\u2581 C B T"]


WRONG = {
    "empty": b"",
    "cut off": table()[:300],
    "no units": struct.pack("<I", 0) + b"B\0",
    "the root beyond the end": table(root=768),
    "a child beyond the end": table(following=1024),
    "a text beyond the end": table(value=3),
    "half a character": table(value=1, texts="ü\0".encode()),
    "texts that are not UTF-8": table(texts=b"\xff\0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_tables_that_a_lookup_would_run_out_of(name: str) -> None:
    with pytest.raises(ValueError):
        require_table(WRONG[name])
    with_table = b"\x1a" + _size(len(WRONG[name]) + 3) + b"\x12" + _size(len(WRONG[name]), 2) + WRONG[name]
    piece = b"\x0a\x08\x0a\x01a\x15\0\0\0\0"
    if WRONG[name]:
        with pytest.raises(UserError, match=r"m\.model is cut off or not a model of SentencePiece"):
            subwords_of_model(piece + with_table, "m.model", Unit.unigram)


def _size(size: int, letters: int = 2) -> bytes:
    """Return a number in two bytes, as in Protocol Buffers."""
    assert letters == 2 and size < 1 << 14
    return bytes([size & 127 | 128, size >> 7])


def given(**changes: object) -> str:
    """Return a tokenizer.json of all bytes."""
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE({letter: k for k, letter in enumerate(sorted(alphabet))}, [])
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return json.dumps(json.loads(tokenizer.to_str()) | changes)


def test_a_damaged_table_in_a_tokenizer_json() -> None:
    damaged = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table(root=768)).decode()}
    for normalizer in (damaged, {"type": "Sequence", "normalizers": [damaged]}):
        with pytest.raises(
            UserError, match=r"t\.json is not a tokenizer that the library tokenizers reads \(the table that normal"
        ):
            Subwords.parse(given(normalizer=normalizer), "t.json")


def test_numbers_of_pieces_with_gaps_take_no_memory() -> None:
    right = json.loads(given())
    right["model"]["vocab"]["a"] = 4_294_967_295
    subwords = Subwords.parse(json.dumps(right), "t.json")
    table = subwords.table(["ab"])
    assert len(subwords.names) == 256 and subwords.names[255] == "a"
    assert [subwords.names[k] for k in table.ids.tolist()] == subwords.pieces(["ab"]) == ["\u0120", "a", "b"]
    assert subwords.text(table.ids.tolist()) == "ab"


@pytest.mark.parametrize("text", ["[" * 100_000, "3", "", "{"])
def test_json_that_is_no_tokenizer(text: str) -> None:
    with pytest.raises(UserError, match=r"t\.json is not a tokenizer that the library tokenizers reads"):
        Subwords.parse(text, "t.json")


def test_a_number_of_too_many_bytes() -> None:
    with pytest.raises(UserError, match=r"m\.model is cut off or not a model of SentencePiece"):
        subwords_of_model(b"\xff" * 200_000, "m.model", Unit.unigram)

"""Pieces of words: how they are learned, read from files and stored; tables of SentencePiece's normalizer."""

from __future__ import annotations

import base64
import itertools
import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from lmtool.config.data import Unit, VocabularyConfig
from lmtool.data._sentencepiece_model import piece_lines, subwords_of_model
from lmtool.data._train_subwords import LETTERS, train_subwords
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import preprocess
from lmtool.data.sources.builtin import SyntheticData
from lmtool.data.subwords import UNKNOWN, PieceTable, Subwords, require_table
from lmtool.data.text_form import TextForm, split_of_text
from lmtool.errors import UserError
from tests.data.test_preprocess import text

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers (pip install lmtool[subwords])")
sentencepiece = pytest.importorskip("sentencepiece", reason="needs sentencepiece (pip install lmtool[subwords])")

BPE = VocabularyConfig(None, 260, 1, False, Unit.bpe)
WORDS = ["ab", "abc", "b", "<unk>", "</s", "\u00fc\u00dfe", "\u65e5\u672c", "\u2581x", "\u0120", "a\u00a0b", "\\<s>"]
COUNTS = np.array([5, 2, 1, 3, 1, 2, 2, 1, 1, 1, 1])


def test_byte_pair_encoding_merges_the_most_frequent_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    # _a and ab occur 7 times, bc 2 times: of the two the library takes ab, and then _ab is the most frequent.
    bpe = train_subwords(["ab", "abc"], np.array([5, 2]), Unit.bpe, 258)
    assert bpe.names[256:] == ("ab", "Ġab") and set(bpe.names[:256]) == set(LETTERS.values())
    assert bpe.pieces(["ab", "abc", "cab"]) == ["Ġab", "Ġab", "c", "Ġ", "c", "ab"]
    table = bpe.table(["abc", "ab"])
    assert table.lengths.tolist() == [2, 1] and [bpe.names[k] for k in table.ids] == ["Ġab", "c", "Ġab"]
    # Counts too large to be repeated are scaled down, here to 6 and 2 of 8: the same pairs.
    monkeypatch.setattr("lmtool.data._train_subwords.MAX_WORDS", 8)
    assert train_subwords(["ab", "abc"], np.array([5, 2]) * 10**12, Unit.bpe, 258).json == bpe.json


def test_a_table_gives_the_pieces_of_words_in_their_order() -> None:
    table = PieceTable(np.array([0, 2, 2, 3]), np.array([7, 8, 9], dtype=np.int32))
    assert table.of(np.array([2, 0, 1, 0])).tolist() == [9, 7, 8, 7, 8]
    assert table.of(np.empty(0, dtype=np.int32)).tolist() == []


def test_a_store_of_pieces(tmp_path: Path) -> None:
    lines = ["ab abc  <unk>", "", "ab \u00fc"]
    with Corpus.from_texts(lines, ["abc b"], unit="bpe", size=259, store_dir=tmp_path) as corpus:
        vocabulary, train, subwords = corpus.vocabulary, corpus.split("train"), corpus.subwords
        assert subwords is not None and len(vocabulary) == 259 + 3 and vocabulary.words[-1] == "<s>"
        form = TextForm(vocabulary, subwords=subwords)
        sentences = [form.join(train.ids[a : b - 1]) for a, b in itertools.pairwise(train.offsets)]
        assert sentences == ["ab abc <unk>", "ab \u00fc"]  # single spaces, and no empty line
        assert [vocabulary.words[train.ids[b - 1]] for b in train.offsets[1:]] == ["</s>", "</s>"]
        assert len(train.oov_positions) == 0 and vocabulary.counts[vocabulary.unk] == 0
        assert (train.words, train.characters) == (5 + 2, 12 + 1 + 4 + 1)
        counts = np.bincount(train.ids, minlength=len(vocabulary))
        assert counts.tolist() == vocabulary.counts.tolist() and (np.diff(vocabulary.counts[:-1]) <= 0).all()
        # Other text, block by block, and as sentences of TextForm.
        split = split_of_text([b"abc <unk> zz\n", b"\xe6\x97\xa5\n"], "x", form)[0]
        assert split.words == 6 and len(split.oov_positions) == 0 and split.offsets[-1] == len(split.ids)
        ids = [form.encode(form.split(line), allow_oov=False).tolist() for line in ("abc <unk> zz", "\u65e5")]
        assert split.ids.tolist() == [*ids[0], vocabulary.eos, *ids[1], vocabulary.eos]
        fingerprint = corpus.fingerprint
    with Corpus.from_texts(lines, ["abc b"], unit="bpe", size=258, store_dir=tmp_path) as other:
        assert other.fingerprint != fingerprint and other.path != corpus.path
    # A stream has no sentence ends; it is cut by words, as the same text of words is.
    given = {"sentences": False, "store_dir": tmp_path}
    with Corpus.from_texts(["ab abc b", "ab \u00fc"], 0.2, 0.2, unit="unigram", size=260, **given) as stream:
        assert [stream.split(name).words for name in stream.splits] == [3, 1, 1]
        form = TextForm(stream.vocabulary, subwords=stream.subwords)
        assert [form.join(stream.split(name).ids) for name in stream.splits] == ["ab abc b", "ab", "\u00fc"]


def test_the_words_of_characters_are_known_too(tmp_path: Path) -> None:
    with Corpus.from_texts([" ab  c\t", "d"], ["e f"], unit="char", store_dir=tmp_path) as corpus:
        assert [corpus.split(name).words for name in corpus.splits] == [3 + 2, 2 + 1]
    with Corpus.from_texts(["ab c", "d"], ["e f"], unit="char", sentences=False, store_dir=tmp_path) as corpus:
        assert corpus.split("train").words == 3
    with Corpus.from_texts(["ab c", "d"], ["e f"], store_dir=tmp_path) as corpus:
        assert corpus.split("train").words == 5


def given(path: str, unit: Unit = Unit.bpe, **changes: object) -> Corpus:
    data = text(vocabulary=VocabularyConfig(path, None, 1, False, unit), **changes)
    return Corpus.open(preprocess(data, "stores", progress=False).path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text("ab abc\nAb b\n")
    Path("valid.txt").write_text("ab\n")
    return tmp_path


def test_a_tokenizer_from_a_file(folder: Path) -> None:
    Path("own.json").write_text(train_subwords(["ab", "xyz"], np.array([2, 3]), Unit.bpe, 259).json)
    with given("own.json") as corpus:
        assert "Ġxyz" in corpus.vocabulary.words and corpus.vocabulary.counts[corpus.vocabulary.ids["Ġxyz"]] == 0
        fingerprint = corpus.fingerprint
    Path("own.json").write_text(train_subwords(["ab", "xyz"], np.array([2, 3]), Unit.bpe, 258).json)
    with given("own.json") as corpus:
        assert corpus.fingerprint != fingerprint
    with pytest.raises(UserError, match=r"unit=unigram: own\.json is of the kind BPE; take data\.vocabulary\.unit=bpe"):
        given("own.json", Unit.unigram)
    Path("none.json").write_text("{}")
    with pytest.raises(UserError, match=r"none\.json is not a tokenizer that the library tokenizers reads"):
        given("none.json")
    lossy = tokenizers.Tokenizer.from_file("own.json")
    lossy.normalizer = tokenizers.normalizers.Lowercase()
    lossy.save("lower.json")
    with pytest.raises(UserError, match=r"lower\.json writes 'Ab' back as 'ab': take a tokenizer of bytes"):
        given("lower.json")
    without = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, []))
    without.save("spaceless.json")
    with pytest.raises(UserError, match=r"spaceless\.json does not write words back with a space before each"):
        given("spaceless.json")


def message(*fields: tuple[int, bytes | int | float]) -> bytes:
    """Return a message of Protocol Buffers with small numbers, floats and short texts."""
    coded = b""
    for number, value in fields:
        kind = {int: 0, bytes: 2, float: 5}[type(value)]
        key = number << 3 | kind
        coded += bytes([key]) if key < 128 else bytes([key & 127 | 128, key >> 7])
        if isinstance(value, bytes):
            coded += bytes([len(value)]) + value
        else:
            coded += struct.pack("<f", value) if isinstance(value, float) else bytes([value])
    return coded


def model_file(kind: int, pieces: list[tuple[str, float]], symbols: tuple[str, ...] = ()) -> bytes:
    """Return a SentencePiece model with <unk>, the pieces, user-defined symbols, and all bytes."""
    special = [message((1, b"<unk>"), (2, 0.0), (3, 2)), message((1, b"<s>"), (2, 0.0), (3, 3))]
    normal = [message((1, piece.encode()), (2, score)) for piece, score in pieces]
    normal += [message((1, symbol.encode()), (2, 0.0), (3, 4)) for symbol in symbols]
    of_bytes = [message((1, f"<0x{byte:02X}>".encode()), (2, -20.0), (3, 6)) for byte in range(256)]
    trainer = message((3, kind), (35, 1))
    return message(*((1, piece) for piece in [*special, *normal, *of_bytes]), (2, trainer))


def test_a_model_of_sentencepiece(folder: Path) -> None:
    pieces = [("\u2581a", -1.0), ("b", -1.5), ("\u2581ab", -4.0), ("\u2581", -2.0), ("a", -2.0), ("the", -3.0)]
    unigram = subwords_of_model(model_file(1, pieces), "m.model", Unit.unigram)
    # log p: _a b -2.5, _ab -4; \u00fc has no piece but its bytes, <unk> in a text is no special one.
    assert unigram.pieces(["ab", "\u00fc"]) == ["\u2581a", "b", "\u2581", "<0xC3>", "<0xBC>"]
    assert unigram.pieces(["<unk>"])[:2] == ["\u2581", "<0x3C>"]
    # Merges by score: _a first, then _a b.
    bpe = subwords_of_model(model_file(2, pieces), "m.model", Unit.bpe)
    assert bpe.pieces(["ab", "b"]) == ["\u2581ab", "\u2581", "b"]
    for model in (unigram, bpe):
        numbers = [model.numbers[piece] for piece in model.pieces(["ab", "\u00fc<s>", "b"])]
        assert model.text(numbers) == "ab \u00fc<s> b" and model.additions["\u2581a"] == " a"
    Path("m.model").write_bytes(model_file(1, pieces))
    with given("m.model", Unit.unigram, train="valid.txt") as corpus:
        assert corpus.split("valid").tokens == 3 and corpus.subwords is not None
    with pytest.raises(UserError, match=r"unit=bpe: m\.model is of another kind; take data\.vocabulary\.unit=unigram"):
        given("m.model")
    for damaged in (model_file(1, pieces)[:100], b"", b"\xff\xff\xff", b"text"):
        Path("m.model").write_bytes(damaged)
        with pytest.raises(UserError, match=r"m\.model is (cut off or )?not a model of SentencePiece"):
            given("m.model", Unit.unigram)


SCORES = [("\u2581a", -1.0), ("bc", -1.5), ("\u2581ab", -0.5), ("\u2581", -3.0), ("a", -4.0), ("b", -5.0), ("c", -6.1)]
BPE_SYMBOLS = model_file(2, SCORES, ("<sep>", "ab", "abca", "\u2581cc"))
UNIGRAM_SYMBOLS = model_file(1, SCORES, ("x", "xx"))


def test_user_defined_symbols_are_cut_out_whole(folder: Path) -> None:
    # The pieces are those of SentencePiece 0.2.3. A symbol is found from the left, the longest first, and is never
    # merged; the normal pieces "bc" and "\u2581ab" are not reached where "ab" is a symbol.
    bpe = subwords_of_model(BPE_SYMBOLS, "m.model", Unit.bpe)
    wanted = {
        "abc": ["\u2581", "ab", "c"],
        "abcab": ["\u2581", "abca", "b"],
        "aab": ["\u2581a", "ab"],
        "a<sep>bc<sep>": ["\u2581a", "<sep>", "bc", "<sep>"],
        "<sep>a": ["\u2581", "<sep>", "a"],
        "ccc": ["\u2581cc", "c"],
        "a\u00fcab": ["\u2581a", "<0xC3>", "<0xBC>", "ab"],
    }
    reopened = Subwords.parse(bpe.json, "own.json", Unit.bpe)
    for word, pieces in wanted.items():
        assert bpe.pieces([word]) == reopened.pieces([word]) == pieces
    # In a unigram model a symbol has a score of -0.1, so that "xx" is better than "x" and "x".
    unigram = subwords_of_model(UNIGRAM_SYMBOLS, "m.model", Unit.unigram)
    assert unigram.pieces(["bxx", "bcxxxx"]) == ["\u2581", "b", "xx", "\u2581", "bc", "xx", "xx"]


def test_user_defined_symbols_are_those_of_the_package() -> None:
    rng = np.random.default_rng(0)
    for file, unit in ((BPE_SYMBOLS, Unit.bpe), (UNIGRAM_SYMBOLS, Unit.unigram)):
        ours, theirs = subwords_of_model(file, "m.model", unit), sentencepiece.SentencePieceProcessor(model_proto=file)
        for length in range(1, 200):
            word = "".join(rng.choice(["<sep>", *"abcx"], 1 + length % 9))
            assert ours.pieces([word]) == theirs.encode(word, out_type=str)


def model_without_bytes(kind: int) -> bytes:
    """Return a SentencePiece model with <unk> for letters that have no piece."""
    pieces = [message((1, piece.encode()), (2, score)) for piece, score in SCORES]
    return message(
        *((1, piece) for piece in [message((1, b"<unk>"), (2, 0.0), (3, 2)), *pieces]), (2, message((3, kind)))
    )


LINES = ["ab  bca", "", "  a ", "a\u2603\u2603b x", "<unk> \u2581a", "\u3000a\u00a0b", "b\u2581 c\u2581"]


@pytest.mark.parametrize("kind", [1, 2])
def test_lines_are_written_as_spm_encode_writes_them(kind: int) -> None:
    lines = piece_lines(model_without_bytes(kind), "m.model")(LINES)
    wanted = ["_ab _ bc a", "", "_a", "_a \u2603\u2603 b _ x", "_ <unk> _ _a", "_ \u3000 a \u00a0 b", "_ b _ _ c"]
    assert [line.replace("\u2581", "_") for line in lines] == wanted  # of SentencePiece 0.2.3


@pytest.mark.parametrize("kind", [1, 2])
def test_letters_without_a_piece_are_one_unk(kind: int, folder: Path) -> None:
    unit, lines = {1: Unit.unigram, 2: Unit.bpe}[kind], piece_lines(model_without_bytes(kind), "m.model")
    words = ["a\u2603\u2603b", "x", "ab", "<unk>", "a\u2581\u2603a"]
    known = subwords_of_model(model_without_bytes(kind), "m.model", unit)
    for subwords in (known, Subwords.parse(known.json, "tokenizer.json", unit)):
        assert [" ".join(subwords.pieces([word])) for word in words] == lines(words)
        assert subwords.pieces(words[:1]) == ["\u2581a", "\u2603\u2603", "b"]
        a, b = subwords.numbers["\u2581a"], subwords.numbers["b"]
        assert subwords.table(words[:1]).ids.tolist() == [a, UNKNOWN, b]
    Path("m.model").write_bytes(model_without_bytes(kind))
    Path("train.txt").write_text("a\u2603\u2603b ab\nbc a\n" * 3, encoding="utf-8")
    with given("m.model", unit) as corpus:
        train, vocabulary = corpus.split("train"), corpus.vocabulary
        assert train.oov_positions.tolist() == [1, 10, 19] and vocabulary.counts[vocabulary.unk] == 3
        assert (train.ids[train.oov_positions] == vocabulary.unk).all()


def test_models_that_cut_lines_in_another_way() -> None:
    plain = model_without_bytes(2)
    for part, number, value, wanted in (
        (2, 24, 1, "a b _ bc a _"),  # treat_whitespace_as_suffix=true
        (3, 3, 0, "a b _ bc a"),  # add_dummy_prefix=false
        (3, 4, 0, "_ab _ _ bc a _"),  # remove_extra_whitespaces=false
        (3, 3, 1, "_ab _ bc a"),
    ):
        kind = [(3, 2)] if part == 2 else []
        lines = piece_lines(plain + message((part, message(*kind, (number, value)))), "m.model")(["ab  bca "])
        assert lines == [wanted.replace("_", "\u2581")]


def test_a_letter_without_a_piece_is_one_line() -> None:
    pieces = [message((1, piece.encode()), (2, -1.0)) for piece in ("\u2581a", "\u2581", "t", "h", "e", "\u2581the")]
    unigram = subwords_of_model(message(*((1, piece) for piece in pieces), (2, message((3, 1)))), "m", Unit.unigram)
    assert unigram.pieces(["the"]) == ["\u2581the"]
    with pytest.raises(UserError, match=r"m is not a tokenizer that the library tokenizers reads .*unk"):
        unigram.pieces(["\u00fc"])


def test_mistakes_are_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"size=255: must be 256 or more with data\.vocabulary\.unit=bpe"):
        VocabularyConfig(None, 255, 1, False, Unit.bpe)
    assert VocabularyConfig(None, None, 1, False, Unit.unigram).size == 8000
    with pytest.raises(UserError, match=r"unit=bpe: data\.kind=synthetic draws words, and has no text to cut"):
        SyntheticData("synthetic", "s", True, BPE, 1, 1, 1, 2, 1.0, 0.0, 1, 2.0, 1)
    with pytest.raises(UserError, match="words is given with unit='bpe'"):
        Corpus.from_texts(["a"], ["b"], unit="bpe", words=["a"], store_dir=folder)
    with pytest.raises(UserError, match=r"min_count=9: no word of train occurs as often; lower it"):
        Corpus.from_texts(["a"], ["b"], unit="bpe", min_count=9, store_dir=folder)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UserError, match=r'pieces of words need tokenizers: pip install "lmtool\[subwords\]"'):
        preprocess(text(vocabulary=BPE), folder / "stores", progress=False)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(UserError, match=r'models of SentencePiece need its package: pip install "lmtool\[subwords\]"'):
        piece_lines(UNIGRAM_SYMBOLS, "m.model")


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


def tokenizer_json(**changes: object) -> str:
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
            Subwords.parse(tokenizer_json(normalizer=normalizer), "t.json")


def test_numbers_of_pieces_with_gaps_take_no_memory() -> None:
    right = json.loads(tokenizer_json())
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

"""Faults of records in text: an error that names file and record, or the record is left out and the rest is read."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lmtool
from lmtool.config.data import Normalize, Spaces, Unit, VocabularyConfig
from lmtool.data import readers
from lmtool.data.corpus import Corpus
from lmtool.data.faults import Faults, FileLines
from lmtool.data.preprocess import preprocess, settings_json
from lmtool.data.readers import read_blocks
from lmtool.data.sources.base import SplitConfig, SplitUnit
from lmtool.data.sources.text import TextData
from lmtool.errors import RecordError, UserError
from tests.conftest import Run
from tests.data.test_preprocess import text as own_text

GOOD = ["the cat sat", "on the mat", "the dog ran off", "a cat ran", "the mat sat", "a dog on a cat"]
WORD = VocabularyConfig(file=None, size=None, min_count=1, lowercase=False, unit=Unit.word)
LOWER = VocabularyConfig(file=None, size=None, min_count=1, lowercase=True, unit=Unit.word)
PIECES = VocabularyConfig(file=None, size=300, min_count=1, lowercase=False, unit=Unit.bpe)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("valid.txt").write_text("the cat ran\n")
    return tmp_path


def text(**settings: Any) -> TextData:
    """Settings of text; valid is a document where train has documents."""
    if settings.get("column") is not None and "valid" not in settings:
        write("valid.jsonl", ["the cat ran"])
        settings["valid"] = "valid.jsonl"
    return own_text(**settings)


def write(name: str, records: list[Any]) -> None:
    """Write records to a file by its name: lines of text, objects (bytes are lines as they stand), or rows."""
    if name.endswith(".parquet"):
        pa = pytest.importorskip("pyarrow", reason="needs pyarrow (pip install lmtool[arrow])")
        import pyarrow.parquet as pq

        values = [each.encode() if isinstance(each, str) else each for each in records]
        pq.write_table(pa.table({"text": values}), name, row_group_size=2)
        return
    is_json = ".jsonl" in name
    lines = [
        each if isinstance(each, bytes) else (json.dumps({"text": each}) if is_json else each).encode()
        for each in records
    ]
    content = b"".join(line + b"\n" for line in lines)
    if name.endswith(".zip"):
        with zipfile.ZipFile(name, "w") as archive:
            archive.writestr("inner.jsonl" if is_json else "inner.txt", content)
    else:
        Path(name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def made(data: TextData) -> tuple[dict[str, Any], list[str]]:
    """Return the words of each split, their counts, and the notes of a store."""
    with Corpus.open(preprocess(data, Path("stores"), progress=False).path) as corpus:
        words = np.array(corpus.vocabulary.words)
        arrays: dict[str, Any] = {"counts": dict(zip(words.tolist(), corpus.vocabulary.counts.tolist(), strict=True))}
        for name in corpus.splits:
            split = corpus.split(name)
            arrays[name] = words[split.ids].tolist(), split.characters, split.words, split.oov_positions.tolist()
        return arrays, [note for note in corpus.notes if "on_error" in note]


MARKED = {
    "a.txt": "a.txt, line 3",
    "a.txt.gz": "a.txt.gz, line 3",
    "a.zip": "a.zip::inner.txt, line 3",
    "a.jsonl": "a.jsonl, line 3",
    "a.jsonl.zip": "a.jsonl.zip::inner.jsonl, line 3",
    "a.parquet": "a.parquet, row 3",
}


@pytest.mark.parametrize("rules", [WORD, PIECES], ids=["words", "pieces"])
@pytest.mark.parametrize("name", MARKED)
def test_a_mark_is_named_by_its_file_and_record(name: str, rules: VocabularyConfig) -> None:
    if rules is PIECES:
        pytest.importorskip("tokenizers")
    column = None if "txt" in name or name == "a.zip" else "text"
    many = ["x y"] if column is None else ["x\ny"]  # a document of several lines
    write(name, [*many, "", "b\t</s>" if column is None else "b\nc </s> d\n\ne", "z"])
    write("b.txt" if column is None else "b.jsonl", many)
    names = ["b.txt" if column is None else "b.jsonl", name]
    with pytest.raises(UserError) as error:
        made(text(train=names, column=column, vocabulary=rules))
    assert str(error.value).startswith(f"{MARKED[name]}: </s> is in the text")
    assert "data.on_error=skip" in str(error.value) and not list(Path("stores").iterdir())


@pytest.mark.parametrize(
    "cut",
    [
        SplitConfig(None, 0.6, None, None),
        SplitConfig(None, 0.6, None, 1),
        SplitConfig(SplitUnit.tokens, 0.6, None, None),
    ],
)
def test_a_mark_in_documents_that_are_cut(cut: SplitConfig) -> None:
    records = [*GOOD[:2], "one\n<s> two", *GOOD[2:]]
    write("a.jsonl", records)
    with pytest.raises(UserError, match=r"^a\.jsonl, line 3: <s> is in the text"):
        made(text(train="a.jsonl", column="text", valid=None, split=cut))
    write("clean.jsonl", GOOD)
    dirty, notes = made(text(train="a.jsonl", column="text", valid=None, split=cut, on_error="skip"))
    clean, _ = made(text(train="clean.jsonl", column="text", valid=None, split=cut))
    assert dirty == clean
    assert len(notes) == 1 and "left out: 1; a.jsonl, line 3: <s> is in the text" in notes[0]


BAD_LINES = {
    "mark": ["x <s> y", "</s>"],
    "not UTF-8": [b"caf\xe9", b"\xff\xfe"],
    "NUL": [b"a\0b", b"\0"],
    "both": [b"a\0<s>", b"\xe9 </s>"],
    "too long": [b"y " * 600_000],
}
BAD_OBJECTS = {
    "mark": ["x\n<s> y\nz", "</s>\n"],
    "not UTF-8": ["\ud800 x", b'{"text": "caf\xe9"}'],
    "NUL": ["a\0b"],
    "no key": [b'{"content": "x"}', b"[1]"],
    "not text": [5, ["x"], {"x": 1}],
    "not JSON": [b'{"text": "x', b"[" * 100_000],
    "too long": ["y " * 600_000],
}
BAD_ROWS = {"mark": ["x\n<s> y"], "another type": [b"caf\xe9"], "NUL": ["a\0b"]}
CASES = [
    *[(name, kind, bad) for name in ("a.txt", "a.txt.gz", "a.zip") for kind, bad in BAD_LINES.items()],
    *[(name, kind, bad) for name in ("a.jsonl", "a.jsonl.zip") for kind, bad in BAD_OBJECTS.items()],
    *[("a.parquet", kind, bad) for kind, bad in BAD_ROWS.items()],
]


@pytest.mark.parametrize(("name", "kind", "bad"), CASES, ids=[f"{name} {kind}" for name, kind, _ in CASES])
@pytest.mark.parametrize("block", [1 << 22, 40])
def test_the_store_is_that_of_the_text_without_faulty_records(
    name: str, kind: str, bad: list[Any], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(readers, "BLOCK", block if kind != "too long" else 1 << 16)
    column = None if "txt" in name or name == "a.zip" else "text"
    clean = f"clean{name[1:]}"
    write(clean, GOOD)
    write(name, [GOOD[0], *bad[:1], *GOOD[1:4], *bad[1:], *GOOD[4:]])
    with pytest.raises(UserError) as stopped:
        made(text(train=name, column=column))
    if kind != "too long":
        place = f"{MARKED[name].removesuffix(' 3')} 2:"
        assert str(stopped.value).startswith(place), stopped.value
    got, notes = made(text(train=name, column=column, on_error="skip"))
    assert got == made(text(train=clean, column=column))[0]
    (note,) = notes
    assert note.startswith(f"data.on_error=skip: faulty records, left out: {len(bad)}; {name}")
    if kind != "too long":
        assert place in note


@pytest.mark.parametrize(
    ("bad", "rules"),
    [
        ("x <S> y", {"vocabulary": LOWER}),
        ("x \uff1cs\uff1e y", {"normalize": Normalize.nfkc}),
        ("x\u00a0<\u00ads> y", {"spaces": Spaces.unicode}),
        ("x/N <s>/N y", {"tags": True}),
    ],
)
def test_a_mark_by_the_rules_of_the_text(bad: str, rules: dict[str, Any]) -> None:
    tagged = [" ".join(f"{word}/X" for word in line.split()) for line in GOOD] if "tags" in rules else GOOD
    write("clean.txt", tagged)
    write("a.txt", [*tagged[:2], bad, *tagged[2:]])
    with pytest.raises(UserError, match=r"^a\.txt, line 3: <s> is in the text"):
        made(text(train="a.txt", **rules))
    got, notes = made(text(train="a.txt", on_error="skip", **rules))
    assert got == made(text(train="clean.txt", **rules))[0] and "a.txt, line 3: <s>" in notes[0]


def test_marks_are_letters_of_a_text_in_letters() -> None:
    write("a.txt", [*GOOD, "a <s> b"])
    letters = VocabularyConfig(file=None, size=None, min_count=1, lowercase=False, unit=Unit.char)
    got, notes = made(text(train="a.txt", vocabulary=letters, on_error="skip"))
    assert not notes and got == made(text(train="a.txt", vocabulary=letters))[0] and "<" in got["train"][0]


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_the_rest_of_an_archive_that_is_cut_off_is_left_out(kind: str) -> None:
    lines = [f"word{k * k % 997} and word{k}" for k in range(60_000)]
    content = "".join(f"{line}\n" for line in lines).encode()
    if kind == "zst":
        pa = pytest.importorskip("pyarrow", reason="needs pyarrow (pip install lmtool[arrow])")
        with pa.CompressedOutputStream("whole", "zstd") as file:
            file.write(content)
        packed = Path("whole").read_bytes()
    else:
        packed = {"gz": gzip, "bz2": bz2, "xz": lzma}[kind].compress(content)
    Path(f"cut.txt.{kind}").write_bytes(packed[: len(packed) * 3 // 4])
    write("next.txt", GOOD)
    data = {"train": [f"cut.txt.{kind}", "next.txt"]}
    with pytest.raises(UserError, match=r"cut\.txt\."):
        made(text(**data))
    got, (note,) = made(text(**data, on_error="skip"))
    found = " ".join(got["train"][0]).split(" </s>")
    rest = len(GOOD) + 1
    assert [line.strip() for line in found[:-rest]] == lines[: len(found) - rest] and len(found) > 30_000
    assert found[-2].strip() == "a dog on a cat"
    if kind == "gz":  # as many lines as the decompressor alone gets
        whole = zlib.decompressobj(31).decompress(packed[: len(packed) * 3 // 4]).count(b"\n")
        assert len(found) - rest == whole
    assert "left out: 1; " in note and f"cut.txt.{kind}" in note


def test_the_note_counts_all_and_shows_three(lmtool: Run) -> None:
    Path("train.txt").write_text("a b\n<s> x\n" * 3000)
    said = lmtool("train", "model=ngram", "model.order=1", "data=text", "data.train=train.txt", "data.valid=valid.txt",
                  "data.on_error=skip", "hydra.run.dir=run")  # fmt: skip
    assert "data.on_error=skip: faulty records, left out: 3,000; train.txt, line 2: <s> is in" in said
    assert [f"line {k}:" in said for k in (2, 4, 6, 8)] == [True, True, True, False]
    said = lmtool("preprocess", "data=text", "data.train=train.txt", "data.valid=valid.txt", "data.on_error=skip")
    assert "nothing to do" in said and "left out: 3,000; train.txt, line 2:" in said
    assert "data.on_error=null" in lmtool("preprocess", "data=text", "data.on_error=null", code=2)


def test_text_of_faulty_records_alone() -> None:
    write("a.txt", ["<s>", "x </s>"])
    with pytest.raises(UserError, match=r"a\.txt"):
        made(text(train="a.txt", on_error="skip"))
    write("a.jsonl", [5, 6])
    with pytest.raises(UserError, match=r"line 1: 'text' is not text"):
        made(text(train="a.jsonl", column="text", on_error="skip"))


def test_the_setting_is_part_of_the_identity_of_a_store() -> None:
    assert "on_error" not in settings_json(text()) and '"on_error": "skip"' in settings_json(text(on_error="skip"))


@pytest.mark.parametrize("shares", [{}, {"valid": 0.25}])
@pytest.mark.parametrize("bad", ["x <s> y", ["</s>"], "a\0b", 3, "\ud800"])
def test_texts_from_python(bad: Any, shares: dict[str, float]) -> None:
    texts = [GOOD[0], bad, *GOOD[1:], "a </s>"]
    with pytest.raises(UserError, match=r"^train, sentence 2: "):
        Corpus.from_texts(texts, **shares)
    with Corpus.from_texts(texts, **shares, on_error="skip") as got, Corpus.from_texts(GOOD, **shares) as clean:
        assert got.vocabulary.words == clean.vocabulary.words
        for name in clean.splits:
            np.testing.assert_array_equal(got.split(name).ids, clean.split(name).ids)
        (note,) = [note for note in got.notes if "on_error" in note]
        assert "left out: 2; train, sentence 2: " in note and "train, sentence 8: </s>" in note


def test_python_s_face() -> None:
    write("a.jsonl", [*GOOD, "a <s>"])
    write("valid.jsonl", GOOD[:1])
    data = dict(data="text", **{"data.train": "a.jsonl", "data.valid": "valid.jsonl", "data.column": "text"})
    with pytest.raises(lmtool.UserError, match=r"a\.jsonl, line 7: <s>"):
        lmtool.preprocess(**data)
    with lmtool.preprocess(**data, **{"data.on_error": "skip"}) as corpus:
        assert corpus.tokens("train") == sum(len(line.split()) + 1 for line in GOOD)


def test_data_sets_of_the_hub() -> None:
    datasets = pytest.importorskip("datasets", reason="needs datasets (pip install lmtool[hub])")
    from lmtool.data.sources.hub import HubData

    datasets.disable_progress_bars()
    for name, texts in (("saved", [*GOOD[:2], "a\n<s> b", *GOOD[2:]]), ("clean", GOOD)):
        parts = {part: datasets.Dataset.from_dict({"text": texts}) for part in ("train", "validation")}
        datasets.DatasetDict(parts).save_to_disk(name)
    settings = dict(config=None, revision=None, column="text", train_split="train", valid_split="validation")

    def hub(path: str, **more: Any) -> Any:
        return HubData("hub", "hub", True, WORD, path=path, test_split=None, **settings, **more)

    with pytest.raises(UserError, match=r"^saved, train, row 3: <s> is in the text"):
        made(hub("saved"))
    got, (note,) = made(hub("saved", on_error="skip"))
    assert got == made(hub("clean"))[0]
    assert "left out: 2; saved, train, row 3: <s>" in note and "saved, valid, row 3: <s>" in note


LINES = b"a\n\xff\nb\n\0\n\xfe\nc"
JSON = b'{"text": "a"}\n{"text\n{"text": "b"}\n{"text": 1}\n{"text": "\\u0000"}\n{"n": 1}\n{"text": "c"}\n'


@pytest.mark.parametrize("at_once", [2, 1 << 20])
def test_lines_and_documents_around_faults_are_read(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "BLOCK", at_once)
    for name, content, column, places in (
        ("a.txt", LINES, None, ["line 2", "line 4", "line 5"]),
        ("a.jsonl", JSON, "text", ["line 2", "line 4", "line 5"]),
    ):
        (path := tmp_path / name).write_bytes(content)
        faults = Faults("skip", "data.on_error")
        assert b"".join(read_blocks(str(path), column=column, faults=faults)) == b"a\nb\nc\n"
        assert [place in fault for place, fault in zip(places, faults.first_messages, strict=True)] == [True] * 3
        (note,) = faults.notes()
        assert note.startswith(f"data.on_error=skip: faulty records, left out: {faults.count}; {path}, line 2: ")
        with pytest.raises(RecordError, match="line 2"):
            list(read_blocks(str(path), column=column))


def test_lines_keep_their_numbers_behind_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path := tmp_path / "a.txt").write_bytes(b"a\n" + b"x" * 100 + b"\nb\n\xff\nc\n" + b"y" * 100)
    monkeypatch.setattr(readers, "BLOCK", 8)
    monkeypatch.setattr(readers, "LONGEST_LINE", 20)
    faults = Faults("skip")
    blocks = [block for block in read_blocks(str(path), faults=faults) if block]
    found: list[tuple[str, bytes]] = []
    for block in blocks:
        assert isinstance(block, FileLines)
        found += block.records or [
            (f"{path}, line {n}", line) for n, line in enumerate(block.splitlines(True), block.first)
        ]
    assert found == [(f"{path}, line {n}", line) for n, line in ((1, b"a\n"), (3, b"b\n"), (5, b"c\n"))]
    assert faults.count == 3
    assert [fault.split(":")[0] for fault in faults.first_messages] == [f"{path}, line {n}" for n in (2, 4, 6)]


def test_the_rest_of_a_damaged_file_is_one_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK", 1 << 16)
    numbers = random.Random(1)
    text = b"".join(b"%d\n" % numbers.getrandbits(60) for _ in range(50_000))
    (cut := tmp_path / "cut.txt.gz").write_bytes(gzip.compress(text)[:-1000])
    (whole := tmp_path / "whole.txt").write_bytes(b"whole\n")
    (wide := tmp_path / "wide.txt").write_bytes("a b c d\n".encode("utf-16"))
    faults = Faults("skip")
    read = b"".join(read_blocks(str(cut), str(wide), str(whole), faults=faults))
    assert read.endswith(b"whole\n") and faults.count == 2
    assert (
        "cut.txt.gz cannot be unpacked" in faults.first_messages[0] and "wide.txt is UTF-16" in faults.first_messages[1]
    )
    with pytest.raises(UserError, match="no file"):
        list(read_blocks(str(tmp_path / "none.txt"), faults=faults))

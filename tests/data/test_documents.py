"""Documents in JSON Lines and Parquet, Zstandard, addresses that fail at times; records copied as they stand."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lmtool.data import documents, readers, remote, text_records
from lmtool.data.readers import read_blocks
from lmtool.data.table_writer import write_pieces
from lmtool.data.text_records import record_blocks
from lmtool.data.unpacking import open_files
from lmtool.errors import UserError
from lmtool.system.files import packed_file
from tests.conftest import Run
from tests.data.servers import Failing, serving

DOCUMENTS = ["one two\nthree four", "", "five\r\nsix \u2603"]
LINES = "one two\nthree four\n\nfive\nsix \u2603\n"


def text_of(*names: str, column: str | None = None) -> str:
    return b"".join(read_blocks(*names, column=column)).decode()


def json_lines() -> bytes:
    return "".join(json.dumps({"text": text, "id": 1}) + "\n" for text in DOCUMENTS).encode()


def test_each_line_of_a_document_is_a_line(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow (pip install lmtool[arrow])")
    import pyarrow.parquet as pq

    (tmp_path / "a.jsonl").write_bytes(json_lines())
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(json_lines()))
    packed = pa.Codec("zstd")

    def pack(content: bytes) -> bytes:
        return bytes(packed.compress(content))

    (tmp_path / "a.jsonl.zst").write_bytes(pack(json_lines()[:30]) + pack(json_lines()[30:]))
    pq.write_table(pa.table({"id": [1, 2, 3], "text": DOCUMENTS}), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"):
        assert text_of(str(tmp_path / name), column="text") == LINES, name
    (tmp_path / "plain.txt.zst").write_bytes(pack(b"a b\n"))
    assert text_of(str(tmp_path / "plain.txt.zst")) == "a b\n"
    (tmp_path / "cut.txt.zst").write_bytes(pack(b"a b\n" * 10_000)[:-5])
    with pytest.raises(UserError, match=r"cannot read .*cut\.txt\.zst: "):
        text_of(str(tmp_path / "cut.txt.zst"))


@pytest.mark.parametrize(
    ("content", "name", "column", "said"),
    [
        (b'{"text": "a"}\n', "a.jsonl", None, "a.jsonl holds documents, not lines of text: name the column"),
        (b'{"text": ""}\n{"b": 1, "i": 2}\n', "a.jsonl", "text", "2: it has no 'text': data.column names one of: b, i"),
        (b'["a"]\n', "a.jsonl", "text", "line 1: not a JSON object but a list: data.column"),
        (b'{"text": "a"\n', "a.jsonl", "text", "line 1: not JSON"),
        (b'{"text": 5}\n', "a.jsonl", "text", "line 1: 'text' is not text (int)"),
        (b'{"text": "\\u0000"}\n', "a.jsonl", "text", "a NUL byte"),
        (b'{"text": "\\ud800"}\n', "a.jsonl", "text", "is not UTF-8"),
        (b"PAR1", "a.parquet", "text", "a.parquet is damaged or not a Parquet file"),
    ],
)  # fmt: skip
def test_documents_that_are_none_are_named(
    tmp_path: Path, content: bytes, name: str, column: str | None, said: str
) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow (pip install lmtool[arrow])")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        text_of(str(tmp_path / name), column=column)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_model_of_documents(lmtool: Run) -> None:
    Path("a.txt").write_text(LINES * 5)
    Path("a.jsonl").write_bytes(json_lines() * 5)
    words = ("train", "model=ngram", "model.order=2", "data=text", "data.valid=a.txt")
    lmtool(*words, "data.train=a.txt", "hydra.run.dir=lines")
    lmtool(*words[:-1], "data.train=a.jsonl", "data.valid=a.jsonl", "data.column=text", "hydra.run.dir=documents")
    assert Path("lines/model.h5").read_bytes() == Path("documents/model.h5").read_bytes()
    assert "perplexity" in lmtool("eval", "run=lines", "text=a.jsonl", "column=text")
    assert "a.jsonl holds documents" in (said := lmtool("eval", "run=lines", "text=a.jsonl", code=2))
    assert said.rstrip().endswith("by column")
    assert "column=text: needs text=FILE" in lmtool("eval", "run=lines", "column=text", code=2)


@pytest.fixture
def memory() -> Iterator[Path]:
    fsspec = pytest.importorskip("fsspec", reason="needs fsspec (pip install lmtool[remote])")
    files = fsspec.filesystem("memory")
    for name, content in (("b", b"three\n"), ("a", b"one two\n")):
        files.pipe(f"/texts/part-{name}.txt.gz", gzip.compress(content))
    files.pipe("/texts/other", b"x\n")
    yield files
    files.rm("/texts", recursive=True)


def test_addresses_are_found_as_paths_are(memory: object) -> None:
    found = remote.find_addresses("memory://texts/part-*.gz")
    assert found == ["memory:///texts/part-a.txt.gz", "memory:///texts/part-b.txt.gz"]
    assert text_of(*found) == "one two\nthree\n"
    assert len(remote.find_addresses("memory://texts")) == 3 and remote.find_addresses("memory://texts/none") == []
    before = remote.stamp_of("memory://texts/other")
    memory.pipe("/texts/other", b"x y\n")  # type: ignore[attr-defined]
    assert remote.stamp_of("memory://texts/other") != before
    with pytest.raises(UserError, match="nothing://x cannot be read: Protocol not known"):
        remote.find_addresses("nothing://x")


CONTENT = b"".join(b"line %d of a long text\n" % k for k in range(200_000))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("aiohttp", reason="needs aiohttp (pip install lmtool[remote])")
    (tmp_path / "text.txt").write_bytes(CONTENT)
    with serving(tmp_path) as address:
        yield f"{address}/text.txt"


def test_a_server_that_fails_now_and_then(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "WAIT", 0.001)
    assert remote.find_addresses(server) == [server]
    monkeypatch.setattr(remote, "READ", 1 << 16)
    assert b"".join(read_blocks(server)) == CONTENT
    assert Failing.answers > 3


def test_a_server_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp", reason="needs aiohttp (pip install lmtool[remote])")
    monkeypatch.setattr(remote, "WAIT", 0.001)
    with pytest.raises(UserError) as error:
        text_of("http://127.0.0.1:9/none.txt")
    assert "none.txt" in str(error.value) and "after 5 tries, at byte 0" in str(error.value)


def test_records_that_are_too_deep_or_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n{"text": ' + "[" * 100_000 + "\n")
    with pytest.raises(UserError, match=r"a\.jsonl, line 2: not JSON"):
        list(read_blocks(str(path), column="text"))
    with pytest.raises(UserError, match=r"a\.jsonl, line 2: not JSON"):
        next(record_blocks([str(path)], "text")).texts()
    monkeypatch.setattr(readers, "LONGEST_LINE", 1 << 20)
    path.write_text('{"text": "' + "a " * (5 << 19) + '"}\n')
    with pytest.raises(UserError, match=r"a\.jsonl, line 1: a line of over 1 MiB"):
        list(read_blocks(str(path), column="text"))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_packed_parquet(suffix: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"text": DOCUMENTS}), tmp_path / "a.parquet")
    with packed_file(tmp_path / f"a.parquet{suffix}", f"x{suffix}") as file:
        file.write((tmp_path / "a.parquet").read_bytes())
    assert b"".join(read_blocks(str(tmp_path / f"a.parquet{suffix}"), column="text")).decode() == LINES


def test_text_in_parquet_that_is_not_utf8(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"text": pa.array([b"caf\xe1a"]).view(pa.string())}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet, row 1: 'text' is not text \(bytes\)"):
        list(read_blocks(str(tmp_path / "a.parquet"), column="text"))


def test_damage_within_parquet(tmp_path: Path) -> None:
    """pyarrow says of it by OSError, which is no error of the disk."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"text": ["one"] * 9, "words": ["one"] * 9, "count": [1] * 9}), tmp_path / "a.parquet")
    raw = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(raw[:4] + bytes([255] * 12) + raw[16:])
    with pytest.raises(UserError, match=r"a\.parquet is damaged or not a Parquet file"):
        list(read_blocks(str(tmp_path / "a.parquet"), column="text"))


RECORD_LINES = b"\xef\xbb\xbfa b\r\n\nc\rd\n e"  # a mark, an empty line, \r within a line, no end
JSON = b'{"id":1,"text":"a\\nb"}\n\n{"text": "", "id":2}\n{"text":null}\n  \n{"text":"c\\r\\nd\\n"}'


def texts_of(names: list[str], column: str | None, skipped: int = 0) -> list[bytes]:
    blocks = [block.texts()[0] for block in record_blocks(names, column)]
    return [
        content[first:last]
        for content, ends in blocks[skipped:]
        for first, last in zip([0, *ends.tolist()], ends.tolist(), strict=False)
    ]


def write_chosen(names: list[str], column: str | None, chosen: list[int], to: Path) -> None:
    """Write the records with a flag."""
    flags = iter(chosen)
    blocks = record_blocks(names, column)
    kept = (block.where(np.array([next(flags) for _ in range(len(block))]) == 1) for block in blocks)
    write_pieces((block.content if block.rows is None else block.rows for block in kept), str(to), "other columns")


def test_lines_and_records_are_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_bytes(RECORD_LINES)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(JSON))
    lines = [b"a b\r\n", b"\n", b"c\rd\n", b" e\n"]
    records = [b"a\nb\n", b"\n", b"\n", b"c\nd\n"]
    for size in (1, 16, 1 << 20):
        monkeypatch.setattr(readers, "BLOCK", size)
        assert texts_of([f"{tmp_path}/a.txt"], None) == lines
        assert texts_of([f"{tmp_path}/b.jsonl.gz"] * 2, "text") == records * 2
    assert texts_of([f"{tmp_path}/a.txt"] * 3, None, skipped=4) == lines, "the last line is a block"


def test_a_wrong_record_is_named_by_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_bytes(JSON + b'\n{"words":"x"}\n')
    monkeypatch.setattr(readers, "BLOCK", 8)
    with pytest.raises(UserError, match=r"line 7: it has no 'text': column names one of: words"):
        texts_of([f"{tmp_path}/a.jsonl"], "text")
    with pytest.raises(UserError, match="name the column of their text by column"):
        texts_of([f"{tmp_path}/a.jsonl"], None)


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_chosen_records_stand_as_they_were(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if suffix == ".zst":
        pytest.importorskip("pyarrow")
    (tmp_path / "a.txt").write_bytes(RECORD_LINES)
    (tmp_path / "b.jsonl").write_bytes(JSON)
    monkeypatch.setattr(readers, "BLOCK", 8)

    def written(name: str, column: str | None, chosen: list[int]) -> bytes:
        to = tmp_path / f"out{suffix}"
        write_chosen([f"{tmp_path}/{name}"], column, chosen, to)
        (content,) = [handle.read() for handle in open_files(str(to), "")]
        return content

    assert written("a.txt", None, [1, 0, 1, 1]) == b"a b\r\nc\rd\n e\n"
    assert written("b.jsonl", "text", [0, 1, 0, 1]) == b'{"text": "", "id":2}\n{"text":"c\\r\\nd\\n"}\n'


def test_rows_of_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rows = [{"id": k, "text": f"t{k}\nx", "tags": [k]} for k in range(5)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    names = [f"{tmp_path}/a.parquet"]
    monkeypatch.setattr(documents, "ROWS", 2)
    assert texts_of(names, "text")[3:] == [b"t3\nx\n", b"t4\nx\n"] and texts_of(names, "text", 2) == [b"t4\nx\n"]
    monkeypatch.setattr(text_records, "BLOCK_BYTES", 8)  # less than one text needs: each is a block
    assert [(len(block), block.first) for block in record_blocks(names, "text")] == [(1, k) for k in range(1, 6)]
    write_chosen(names * 2, "text", [int(k % 3 == 0) for k in range(10)], tmp_path / "b.parquet")
    assert pq.read_table(tmp_path / "b.parquet").to_pylist() == [rows[k] for k in (0, 3, 1, 4)]
    write_chosen(names, "text", [0] * 5, tmp_path / "b.parquet")
    assert pq.read_table(tmp_path / "b.parquet").to_pylist() == []
    write_chosen([f"{tmp_path}/b.parquet"], "text", [], tmp_path / "c.parquet")
    assert pq.read_schema(tmp_path / "c.parquet") == pq.read_schema(tmp_path / "a.parquet"), (
        "also of a file without rows"
    )
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "other.parquet")
    with pytest.raises(UserError, match=r"c\.parquet: other columns"):
        others = [*names, f"{tmp_path}/other.parquet"]
        write_chosen(others, "text", [1] * 6, tmp_path / "c.parquet")


def test_forms_that_do_not_fit() -> None:
    for names, column, to, said in (
        (["a.txt"], None, "b.parquet", "lines, which cannot be written to Parquet"),
        (["a.parquet"], "text", "b.jsonl", "ends in .parquet"),
        (["a.parquet", "b.jsonl"], "text", "c.parquet", "score them separately"),
    ):
        with pytest.raises(UserError, match=said):
            text_records.require_writable(names, column, to)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb")))
    assert texts_of(["-"], None) == [b"a\n", b"b\n"]

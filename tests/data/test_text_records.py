"""Many texts in files: blocks, and records that are copied as they stand."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pytest

from lmtool.data import documents, readers, text_records
from lmtool.data.table_writer import write_pieces
from lmtool.data.text_records import record_blocks
from lmtool.data.unpacking import open_files
from lmtool.errors import UserError

LINES = b"\xef\xbb\xbfa b\r\n\nc\rd\n e"  # a mark, an empty line, a carriage return within a line, no end at the end
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
    (tmp_path / "a.txt").write_bytes(LINES)
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
    (tmp_path / "a.txt").write_bytes(LINES)
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

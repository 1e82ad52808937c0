"""Faults of records: each is passed over with its place, and what is around it is read."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from lmtool.data import readers
from lmtool.data.faults import Faults, FileLines
from lmtool.data.readers import read_blocks
from lmtool.errors import RecordError, UserError

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
        assert [place in fault for place, fault in zip(places, faults.of_first, strict=True)] == [True] * 3
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
    assert [fault.split(":")[0] for fault in faults.of_first] == [f"{path}, line {n}" for n in (2, 4, 6)]


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
    assert "cut.txt.gz cannot be unpacked" in faults.of_first[0] and "wide.txt is UTF-16" in faults.of_first[1]
    with pytest.raises(UserError, match="no file"):
        list(read_blocks(str(tmp_path / "none.txt"), faults=faults))

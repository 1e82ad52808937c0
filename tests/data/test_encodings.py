"""Text in UTF-16 and UTF-32 is an error of one line for every reader."""

# ruff: noqa: RUF001

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lmtool.data.faults import require_utf8
from lmtool.data.readers import read_blocks, read_stream
from lmtool.data.text_records import record_blocks
from lmtool.errors import UserError
from lmtool.ngram.files.arpa_model import vocabulary_of
from lmtool.ngram.models.word_classes import read_classes
from lmtool.trees import read_tree
from tests.commands.test_surprisal import ARPA


@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
def test_byte_order_marks_of_others(encoding: str) -> None:
    said = rf"^x\.txt is {encoding[:6]}, not UTF-8: convert it, e\.g\. with iconv -f {encoding[:6]} -t UTF-8$"
    with pytest.raises(UserError, match=said):
        require_utf8("\ufeffа б\n".encode(encoding), "x.txt")
    require_utf8("а б\n".encode(), "x.txt")


READERS: dict[str, Callable[[str], object]] = {
    "lines": lambda path: list(read_blocks(path)),
    "documents": lambda path: list(read_blocks(path, column="text")),
    "texts": lambda path: [block.texts() for block in record_blocks([path], None)],
    "records": lambda path: [block.texts() for block in record_blocks([path], "text")],
    "a stream": lambda path: list(read_stream(io.BytesIO(Path(path).read_bytes()), path)),
    "a tree": lambda path: read_tree(path, ["a", "b"]),
    "classes": lambda path: read_classes(Path(path), vocabulary_of(["a", "b"], sentences=True), key="model.file"),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader(reader: str, tmp_path: Path) -> None:
    path = tmp_path / ("x.jsonl" if reader in ("documents", "records") else "x.txt")
    without_mark = "not JSON" if path.suffix == ".jsonl" else "a NUL byte: this is not text"
    for encoding, said in (("UTF-16", "is UTF-16, not UTF-8: convert it"), ("UTF-16LE", without_mark)):
        path.write_bytes('{"text": "a"}\nb 1\n'.encode(encoding))
        with pytest.raises(UserError, match=rf"{path.name}.* {said}") as caught:
            READERS[reader](str(path))
        assert "\n" not in str(caught.value)


def test_every_verb(lmtool: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"a.arpa": ARPA, "nbest.txt": "0 ||| a ||| f ||| 1\n", "x.tsv": "word\tp\na\t0.5\n"}.items():
        Path(name).write_bytes(text.encode("UTF-16"))
    Path("x.txt").write_bytes("мама мыла раму\n".encode("UTF-16"))
    Path("de.arpa").write_text(ARPA)
    Path("train.txt").write_text("a b\n")
    text = ("preprocess", "data=text", "data.valid=null")
    for line, file in (
        (("eval", "arpa=a.arpa", "text=train.txt"), "a.arpa"),
        (("eval", "arpa=de.arpa", "text=x.txt"), "x.txt"),
        (("eval", "arpa=de.arpa", "nbest=nbest.txt"), "nbest.txt"),
        (("score", "arpa=de.arpa", "text=x.txt", "to=s.tsv"), "x.txt"),
        (("surprisal", "arpa=de.arpa", "text=x.tsv"), "x.tsv"),
        (("compare", "runs=[x.tsv,de.arpa]", "text=train.txt"), "x.tsv"),
        ((*text, "data.train=x.txt"), "x.txt"),
        ((*text, "data.train=train.txt", "data.vocabulary.file=x.txt"), "x.txt"),
    ):
        said = lmtool(*line, code=2).splitlines()[-1]
        what = f"lmtool: {file} is UTF-16, not UTF-8: convert it, e.g. with iconv -f UTF-16 -t UTF-8"
        assert said.removesuffix("; or data.on_error=skip leaves such records out") == what
    Path("x.txt.gz").write_bytes(gzip.compress(Path("x.txt").read_bytes()))
    assert "x.txt.gz is UTF-16, not UTF-8" in lmtool("eval", "arpa=de.arpa", "text=x.txt.gz", code=2)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path("x.txt").read_bytes())))
    assert "standard input is UTF-16, not UTF-8" in lmtool("eval", "arpa=de.arpa", "text=-", code=2)

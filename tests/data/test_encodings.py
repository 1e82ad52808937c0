"""Text in UTF-16 and UTF-32 is an error of one line for every reader; byte-order marks are in no word."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import lmtool as lm
from lmtool.cli.command_line import main
from lmtool.data import readers
from lmtool.data.faults import require_utf8
from lmtool.data.readers import read_blocks, read_stream, read_text
from lmtool.data.text_records import block_of, record_blocks
from lmtool.errors import UserError
from lmtool.ngram.files.arpa_model import vocabulary_of
from lmtool.ngram.models.word_classes import read_classes
from lmtool.trees import read_tree
from tests.commands.test_surprisal import ARPA
from tests.conftest import result


@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
def test_byte_order_marks_of_others(encoding: str) -> None:
    said = rf"^x\.txt is {encoding[:6]}, not UTF-8: convert it, e\.g\. with iconv -f {encoding[:6]} -t UTF-8$"
    with pytest.raises(UserError, match=said):
        require_utf8("\ufeff日\n".encode(encoding), "x.txt")
    require_utf8("日\n".encode(), "x.txt")


READERS: dict[str, Callable[[str], object]] = {
    "lines": lambda path: list(read_blocks(path)),
    "documents": lambda path: list(read_blocks(path, column="text")),
    "texts": lambda path: [block.texts() for block in record_blocks([path], None)],
    "records": lambda path: [block.texts() for block in record_blocks([path], "text")],
    "a stream": lambda path: list(read_stream(io.BytesIO(Path(path).read_bytes()), path)),
    "a tree": lambda path: read_tree(path, ["a", "b"]),
    "classes": lambda path: read_classes(Path(path), vocabulary_of(["a", "b"], ends=True), key="model.file"),
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
        (("rescore", "arpa=de.arpa", "nbest=nbest.txt"), "nbest.txt"),
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


MARK = "\ufeff"
JOINED = f"{MARK}a b\nb\n{MARK}{MARK}a b\n{MARK}\nb {MARK}\n"  # three files one after the other
PLAIN = f"a b\nb\na b\n\nb {MARK}\n"


@pytest.mark.parametrize("block", [1, 2, 5, 1 << 20])
def test_lines_of_a_file_and_of_a_stream(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK", block)
    (tmp_path / "a.txt").write_text(JOINED, encoding="utf-8")
    assert b"".join(read_blocks(str(tmp_path / "a.txt"))).decode() == PLAIN
    assert b"".join(read_stream(io.BytesIO(JOINED.encode()), "standard input")).decode() == PLAIN
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("1", JOINED)
        archive.writestr("2", JOINED)
    assert b"".join(read_blocks(f"{tmp_path}/a.zip")).decode() == PLAIN * 2
    records = record_blocks([str(tmp_path / "a.txt")], None)
    assert b"".join(block.texts()[0].content for block in records).decode() == PLAIN


def test_a_whole_text_and_a_mark_alone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{MARK}a\nb {MARK}\n", encoding="utf-8")
    assert read_text(f"{tmp_path}/a.txt") == f"a\nb {MARK}\n"
    (tmp_path / "a.txt").write_text(MARK, encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.txt is empty"):
        list(read_blocks(f"{tmp_path}/a.txt"))


def test_lines_of_documents(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in (JOINED, f"{MARK}b")))
    want = PLAIN + "b\n"
    assert b"".join(read_blocks(str(tmp_path / "a.jsonl"), column="text")).decode() == want
    texts = [block.texts()[0] for block in record_blocks([str(tmp_path / "a.jsonl")], "text")]
    assert texts[0].content.decode() == want and texts[0].ends.tolist() == [len(PLAIN.encode()), len(want.encode())]
    assert block_of([f"{MARK}a", "b"]).content == b"a\nb\n"


def test_a_joined_text_has_no_second_word_that_nobody_sees(tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                                           monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    first, second = f"{MARK}the cat\n", f"{MARK}the dog\n"
    Path("joined.txt").write_text(first + second, encoding="utf-8")
    Path("first.txt").write_text(first, encoding="utf-8")
    line = ["train", "model=ngram", "model.order=2", "data=text", "smoother=witten_bell"]
    assert main([*line, "data.train=joined.txt", "data.valid=first.txt", "hydra.run.dir=run"]) == 0
    words = Path("run/vocabulary.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert sorted(words) == ["</s>\t2", "<s>\t0", "<unk>\t0", "cat\t1", "dog\t1", "the\t2"]
    note = (
        "note: joined.txt: lines within it begin with byte-order marks, as where files were joined; they are left out"
    )
    said = capfd.readouterr().err
    assert said.count(note) == 1 and "first.txt" not in said  # at the start of a file it is usual
    monkeypatch.chdir(tmp_path / "run")
    assert main(["eval", "run=.", "text=../joined.txt", "hydra.run.dir=scored"]) == 0
    assert result("scored")["oov"] == 0


def test_texts_from_python(tmp_path: Path) -> None:
    with lm.Corpus.from_texts([f"{MARK}a b", f"{MARK}a", [f"{MARK}a", "c"]], store_dir=tmp_path) as corpus:
        assert sorted(corpus.vocabulary.words) == ["</s>", "<s>", "<unk>", "a", "b", "c"]


def test_spark_leaves_them_out(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from lmtool.ngram.spark import _tasks

    lines = [line.encode() for line in JOINED.split("\n")[:-1]]
    columns = [pa.array(lines), pa.array([0] * 5), pa.array(["a.txt"] * 5), pa.array([0] * 5)]
    batch = pa.RecordBatch.from_arrays(columns, names=list(_tasks.RECORDS))
    ((_, blocks),) = ((key, list(blocks)) for key, blocks in _tasks._pieces(iter([batch])))
    assert b"".join(blocks).decode() == PLAIN


def test_a_word_list(lmtool: Callable[..., str]) -> None:
    Path("words.txt").write_text(f"{MARK}a\n{MARK}b\n", encoding="utf-8")
    Path("train.txt").write_text("a b\n")
    lmtool("preprocess", "data=text", "data.train=train.txt", "data.valid=null", "data.vocabulary.file=words.txt")
    (store,) = Path("stores").glob("*.h5")
    with lm.Corpus.open(store) as corpus:
        assert corpus.oov_share("train") == 0


@pytest.mark.parametrize("mark", [",", ";"])
def test_a_list_of_words_has_no_cells(mark: str, lmtool: Callable[..., str]) -> None:
    Path("w.csv").write_text(f"the{mark}12\ncat{mark}3\n")
    Path("t.txt").write_text("the cat\n")
    Path("de.arpa").write_text(ARPA)
    said = f"w.csv: each line has cells with {mark} between them: give words alone, one per line"
    words = ("preprocess", "data=text", "data.train=t.txt", "data.valid=null", "data.vocabulary.file=w.csv")
    assert lmtool(*words, code=2).splitlines()[-1] == f"lmtool: {said}"
    limited = ("convert", "arpa=de.arpa", "to=x.arpa", "limit_vocabulary=w.csv")
    assert lmtool(*limited, code=2).splitlines()[-1] == f"lmtool: limit_vocabulary={said}"
    Path("w.csv").write_text(f"the\ncat\n{mark}\n")  # which may be words themselves
    assert "train       3          1      3    0      0 " in lmtool(*words)

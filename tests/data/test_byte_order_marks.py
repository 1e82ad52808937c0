"""A byte-order mark at the start of a line is not a part of its first word, wherever the line is."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import lmtool as lm
from lmtool.cli.command_line import main
from lmtool.data import readers
from lmtool.data.readers import read_blocks, read_stream, read_text
from lmtool.data.text_records import block_of, record_blocks
from lmtool.errors import UserError

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
    assert json.loads(Path("scored/result.json").read_text())["oov"] == 0


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

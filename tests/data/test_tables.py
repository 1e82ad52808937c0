"""Tables: none is text by its name, separators that spreadsheets write, Parquet of bytes, and to=- for each verb."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lmtool as lm
from lmtool.cli.command_line import main
from lmtool.data.readers import read_blocks
from lmtool.data.text_records import record_blocks
from lmtool.data.word_rows import read_word_rows
from lmtool.errors import UserError
from tests.commands.test_pairs import lines
from tests.commands.test_surprisal import ARPA

CSV = "id,text\n17,the cat\n18,the dog\n"
REFUSED = "is a table, not lines of text: write its text to a .txt file, a line each, or its rows as JSON Lines"


@pytest.fixture
def files(lmtool: Callable[..., str]) -> Callable[..., str]:
    for name in ("de.arpa", "en.arpa"):
        Path(name).write_text(ARPA)
    for name in ("t.csv", "t.tsv"):
        Path(name).write_text(CSV)
    Path("t.txt").write_text("a b .\nb\n")
    with zipfile.ZipFile("t.zip", "w") as archive:
        archive.writestr("data/t.csv", CSV)
    return lmtool


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.zip::data/t.csv", "t.zip"])
def test_a_table_is_not_text(name: str, files: Callable[..., str]) -> None:
    called = "t.zip::data/t.csv" if "zip" in name else name
    train = ("train", "model=ngram", "model.order=2", "smoother=witten_bell", "data=text")
    for line, key in (
        ((*train, f"data.train={name}", "data.valid=t.txt"), "data.column"),
        ((*train, f"data.train={name}", "data.split.train=0.5"), "data.column"),
        ((*train, "data.train=t.txt", f"data.valid={name}"), "data.column"),
        ((*train, f"data.train={{a: t.txt, b: '{name}'}}", "data.valid=t.txt"), "data.column"),
        (("eval", "arpa=de.arpa", f"text={name}"), "column"),
        (("score", "arpa=de.arpa", f"text={name}", "to=s.tsv"), "column"),
        (("compare", "runs=[de.arpa,en.arpa]", f"text={name}"), "data.column"),
    ):
        said = files(*line, code=2)
        assert said.splitlines()[-1] == f"lmtool: {called} {REFUSED}, whose column {key} names", line
    with pytest.raises(UserError, match=f"^{called} is a table"):
        lm.evaluate("de.arpa", text=Path(name))
    assert not Path("outputs/train").exists() or not list(Path("outputs/train").rglob("run.json"))


def test_records_within_an_archive_need_a_column(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.jsonl", '{"text": "a b"}\n')
    for read in (read_blocks, lambda name: record_blocks([name], None)):
        with pytest.raises(UserError, match=r"a\.zip::a\.jsonl holds documents, not lines of text: name the column"):
            list(read(str(tmp_path / "a.zip")))
    assert list(read_blocks(str(tmp_path / "a.zip"), column="text")) == [b"a b\n"]


@pytest.mark.parametrize(
    ("name", "mark", "note"),
    [
        ("s.csv", ";", "semicolons"),
        ("s.csv", "\t", "tabs"),
        ("s.csv", ",", None),
        ("s.tsv", "\t", None),
        ("s.tsv", ";", "semicolons"),
        ("s.tsv", ",", "commas"),
        ("s.csv.gz", ",", None),
        ("s.words", "\t", None),
    ],
)
def test_the_separator_of_a_table_is_found_and_said(
    name: str, mark: str, note: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [["item", "word", "rt"], ["1", "a", '"3,5"'], ["1", '"b;c"', "4"]]
    content = "".join(mark.join(row) + "\n" for row in rows).encode()
    Path(name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    found = read_word_rows([name], "word", None, None, None)
    assert found.words == ["a", "b;c"] and found.columns["item"] == [1, 1]
    assert found.columns["rt"] == ([3.5, 4.0] if mark == ";" else ["3,5", "4"])  # a decimal comma
    assert found.cells["rt"] == ["3,5", "4"]
    said = [record.getMessage() for record in caplog.records]
    assert said == ([] if note is None else [f"note: {name}: its columns are separated by {note}"])


def test_one_column_and_quoted_names_keep_the_usual_separator(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "one.csv").write_text("word\na;b\n")
    (tmp_path / "quoted.csv").write_text('word,"item;old"\na,1\n')
    assert read_word_rows([str(tmp_path / "one.csv")], None, None, None, None).words == ["a;b"]
    assert list(read_word_rows([str(tmp_path / "quoted.csv")], None, None, None, None).columns)[:2] == [
        "word",
        "item;old",
    ]
    assert not caplog.records


def test_text_as_bytes_in_parquet_is_text(files: Callable[..., str]) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow (pip install lmtool[arrow])")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["ä b".encode(), b"b"]}), "bytes.parquet")
    pq.write_table(pa.table({"text": pa.array([b"a", b"\xff"], pa.large_binary())}), "broken.parquet")
    assert b"".join(read_blocks("bytes.parquet", column="text")).decode() == "ä b\nb\n"
    (block,) = record_blocks(["bytes.parquet"], "text")
    assert block.texts()[0].content.decode() == "ä b\nb\n"
    for read in (
        read_blocks("broken.parquet", column="text"),
        (b.texts() for b in record_blocks(["broken.parquet"], "text")),
    ):
        with pytest.raises(UserError, match=r"broken\.parquet, row 2: 'text' is not text \(bytes\)"):
            list(read)
    pq.write_table(pa.table({"word": [b"a", b"b"], "item": [b"x", b"x"], "n": [1, 2]}), "words.parquet")
    rows = read_word_rows(["words.parquet"], None, None, None, None)
    assert rows.words == ["a", "b"] and rows.columns["item"] == ["x", "x"] and rows.columns["n"] == [1, 2]
    pairs = [{key: value.encode() for key, value in json.loads(line).items()} for line in lines().splitlines()]
    pq.write_table(pa.Table.from_pylist(pairs), "pairs.parquet")
    assert "pairs.parquet: 5 pairs" in files("pairs", "arpa=de.arpa", "text=pairs.parquet")


def test_tables_to_standard_output(files: Callable[..., str], capfd: pytest.CaptureFixture[str]) -> None:
    Path("pairs.jsonl").write_text(lines())
    for line in (
        ("surprisal", "arpa=de.arpa", "text=t.txt"),
        ("pairs", "arpa=de.arpa", "text=pairs.jsonl"),
        ("score", "arpa=de.arpa", "text=t.txt"),
    ):
        assert main([*line, "to=a.tsv"]) == 0
        capfd.readouterr()
        assert main([*line, "to=-"]) == 0
        out, err = capfd.readouterr()
        assert out == Path("a.tsv").read_text() and out.count("\n") > 2
        assert "\t" not in err and "wrote" not in err and line[2].removeprefix("text=") in err
        assert not Path("-").exists()


def test_what_else_cannot_be_standard_output(files: Callable[..., str]) -> None:
    Path("pairs.jsonl").write_text(lines())
    assert "items=-: name a file" in files("pairs", "arpa=de.arpa", "text=pairs.jsonl", "items=-", code=2)
    assert "to=-: unknown suffix" in files("export", "run=x", "to=-", code=2)
    said = files("tree", "data=toy", "to=-", code=2)
    assert "standard output is for to= of lmtool score, surprisal and pairs alone: name a file" in said
    assert not Path("-").exists()


def test_tables_for_excel_begin_with_a_mark(files: Callable[..., str]) -> None:
    mark = "\ufeff".encode()
    Path("t.txt").write_text("é a\nb\n")
    Path("pairs.jsonl").write_text(lines())
    model = "arpa=de.arpa"
    for verb, text, names in (
        ("surprisal", "t.txt", ("s.csv", "s.csv.gz", "s.tsv")),
        ("pairs", "pairs.jsonl", ("p.csv", "p.tsv.gz")),
        ("score", "t.txt", ("x.tsv", "x.tsv.gz")),
    ):
        for name in names:
            files(verb, model, f"text={text}", f"to={name}", "bom=true")
            marked = gzip.decompress(Path(name).read_bytes()) if name.endswith(".gz") else Path(name).read_bytes()
            files(verb, model, f"text={text}", f"to=plain-{name.removesuffix('.gz')}")
            assert marked == mark + Path(f"plain-{name.removesuffix('.gz')}").read_bytes(), name
        for name in ("x.jsonl", "x.parquet"):
            said = files(verb, model, f"text={text}", f"to={name}", "bom=true", code=2).splitlines()[-1]
            wanted = f"bom=true: to={name} has no byte-order mark: only .csv and .tsv may begin with one"
            assert said == f"lmtool: {wanted}"
        others = ["filter=f.txt", "max_perplexity=9"] if verb == "score" else []
        assert "bom=true: needs to=FILE" in files(verb, model, f"text={text}", *others, "bom=true", code=2)
    again = read_word_rows(["s.csv"], None, None, None, None)
    assert again.words == ["é", "a", "b"] and list(again.columns)[:2] == ["item", "word"]
    assert files("surprisal", model, "text=t.txt", "to=-", "bom=true").startswith("\ufeffitem\t")
    table = lm.surprisal("de.arpa", [["é"]], to="p.csv", bom=True)
    assert Path("p.csv").read_bytes().startswith(mark + b"item,") and len(table) == 1

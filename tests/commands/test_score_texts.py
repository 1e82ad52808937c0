"""`lmtool score` and `lmtool.score_texts`: by hand, against eval, cut off and resumed, filtered."""

from __future__ import annotations

import datetime
import gzip
import io
import json
import math
import os
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import lmtool as python
from lmtool.cli.command_line import main
from lmtool.data import readers, text_records
from lmtool.data.text_form import TextBlock, split_of_text
from lmtool.errors import RecordError
from lmtool.evaluation import text_scores
from lmtool.evaluation.text_scores import Rows, TextsScorer
from lmtool.mixtures.linear import Mixture
from tests.commands.test_arpa_alone import ARPA
from tests.conftest import Run, neural

# By hand, from ARPA: a b </s> is -1.1 in log10, b zzz a </s> is -3.9 (test_arpa_alone), both together -5 in 7 tokens.
TEXTS = ["a b", "", "b zzz a", "a b\nb zzz a\n"]
LOG10 = [-1.1, 0.0, -3.9, -5.0]
TOKENS = [3, 0, 4, 7]


def table(name: str) -> list[list[str]]:
    content = Path(name).read_bytes()
    text = (gzip.decompress(content) if name.endswith(".gz") else content).decode()
    assert text.endswith("\n")
    return [line.split("\t") for line in text.splitlines()]


@pytest.fixture
def files(lmtool: Run) -> Run:
    Path("de.arpa").write_text(ARPA)
    Path("docs.jsonl").write_text("".join(json.dumps({"n": n, "text": text}) + "\n" for n, text in enumerate(TEXTS)))
    return lmtool


@pytest.mark.parametrize("name", ["run.json", "result.json", "model.h5", "vocabulary.txt"])
def test_files_of_a_run_are_not_overwritten(name: str, files: Run) -> None:
    files("train", "data=toy", "model=ngram", "model.order=1", "hydra.run.dir=kn")
    before = Path("kn", name).read_bytes()
    given = f"filter=kn/{name}"
    said = files("score", "arpa=de.arpa", "text=docs.jsonl", "column=text", "min_perplexity=1", given, code=2)
    assert f"{given} is a file of the run in" in said and Path("kn", name).read_bytes() == before


def test_documents_by_hand(files: Run) -> None:
    files("score", "arpa=de.arpa", "text=docs.jsonl", "column=text", "to=out.tsv", "hydra.run.dir=out")
    header, *rows = table("out.tsv")
    assert header == ["tokens", "oov", "log_prob_nats", "perplexity"]
    perplexities = [f"{10 ** (-total / max(n, 1)):.4f}" if n else "" for total, n in zip(LOG10, TOKENS, strict=True)]
    assert [row[0] for row in rows] == ["3", "0", "4", "7"] and [row[1] for row in rows] == ["0", "0", "1", "1"]
    assert [row[3] for row in rows] == perplexities
    assert [float(row[2]) for row in rows] == pytest.approx([x * math.log(10) for x in LOG10], abs=1e-4)
    found = json.loads(Path("out/result.json").read_text())
    assert (found["texts"], found["empty"], found["tokens"], found["oov"]) == (4, 1, 14, 2)
    assert found["perplexity"] == pytest.approx(10 ** (10 / 14), rel=1e-6)
    assert not Path("out.tsv.partial").exists()


BROKEN = '{"text": "a b"}\n{"text\n{"n": 1}\n[1]\n{"text": ["a"]}\n{"text": null}\n{"text": "b zzz a"}\n'


EMPTY = ["0", "0", "0.0000", ""]


@pytest.mark.parametrize(("on_error", "what"), [("null", "each an empty row"), ("skip", "left out")])
def test_faulty_records_are_counted(on_error: str, what: str, files: Run) -> None:
    Path("bad.jsonl").write_text(BROKEN)
    words = ("arpa=de.arpa", "text=bad.jsonl", "column=text", "to=out.tsv", "filter=kept.jsonl", "max_perplexity=1e9")
    assert "bad.jsonl, line 2: not JSON" in files("score", *words, code=2)
    for blank in ("null", "sentence"):  # which gives no </s> to a faulty one
        said = files("score", *words, f"on_error={on_error}", f"blank_lines={blank}", "hydra.run.dir=out")
        note = f"note: on_error={on_error}: faulty records, {what}: 5; bad.jsonl, line 2: not JSON"
        assert note in said and "; bad.jsonl, line 3: it has no 'text'" in said and "line 5" not in said
        header, *rows = table("out.tsv")
        assert [row[0] for row in rows] == (["3", "4"] if on_error == "skip" else ["3", *"00000", "4"])
        assert ("error" in header) == (on_error == "null")
        assert json.loads(Path("out/result.json").read_text())["texts"] == len(rows)
        assert Path("kept.jsonl").read_text() == '{"text": "a b"}\n{"text": "b zzz a"}\n'
    if on_error == "null":
        assert rows[4][:4] == EMPTY and rows[4][4].startswith("bad.jsonl, line 5: 'text' is not text (list)")
        files("score", *words[:3], "to=out.jsonl", "columns=[text]", "on_error=null")
        found = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
        assert [bool(each["error"]) for each in found] == [False, *[True] * 5, False]
        pq = pytest.importorskip("pyarrow.parquet")
        files("score", *words[:3], "to=out.parquet", "on_error=null")
        assert pq.read_table("out.parquet")["error"].to_pylist() == [each["error"] for each in found]


def test_faults_are_the_same_before_and_after_an_interruption(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("bad.jsonl").write_text(BROKEN * 9)
    monkeypatch.setattr(readers, "BLOCK", 64)
    plain, scored = TextsScorer.__call__, []

    def cut_off(self: TextsScorer, block: TextBlock, *, progress: bool) -> Rows:
        scored.append(block)
        if len(scored) == 5:
            raise KeyboardInterrupt
        return plain(self, block)

    words = ("score", "arpa=de.arpa", "text=bad.jsonl", "column=text", "to=out.tsv", "on_error=null")
    files(*words)
    whole = Path("out.tsv").read_bytes()
    monkeypatch.setattr(TextsScorer, "__call__", cut_off)
    files(*words, code=130)
    said = files(*words)
    assert "resuming: " in said and "each an empty row: 45; bad.jsonl, line 2" in said
    assert Path("out.tsv").read_bytes() == whole and whole.count(b"bad.jsonl, line ") == 45


def test_lines_that_are_not_text_and_the_rest_of_a_file_are_faults(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "LONGEST_LINE", 1 << 16)
    monkeypatch.setattr(readers, "BLOCK", 1 << 12)
    Path("1.txt").write_bytes(b"a b\n\xff\n" + b"a" * (1 << 17) + b"\nb\0\nb zzz a")
    Path("2.txt").write_bytes(gzip.compress(os.urandom(1 << 14).hex().encode())[:-9])
    Path("3.txt").write_text("a b\n")
    words = ("score", "arpa=de.arpa", "text=[123].txt")
    for to in ("to=out.jsonl", "to=out.tsv"):
        said = files(*words, to, "on_error=null")
        assert "each an empty row: 4; 1.txt, line 2: byte 0xff is not UTF-8" in said
    _, *rows = table("out.tsv")
    assert [row[0] for row in rows] == ["3", "0", "0", "0", "4", "0", "3"]
    places = ["", "1.txt, line 2", "1.txt, line 3", "1.txt, line 4", "", "2.txt cannot be unpacked", ""]
    found = [[*row, ""][4] for row in rows]
    assert [fault[: len(place) or None] for fault, place in zip(found, places, strict=True)] == places
    files(*words, "to=out.tsv", "on_error=skip", "filter=kept.txt", "min_perplexity=1")
    assert [row[0] for row in table("out.tsv")[1:]] == ["3", "4", "3"]
    assert Path("kept.txt").read_text() == "a b\nb zzz a\na b\n"
    assert "1.txt, line 2: byte 0xff" in files(*words, "to=out.tsv", code=2)


def test_rows_of_parquet_of_another_type_are_faults(files: Run) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    binary = pa.array([b"a b", b"caf\xe1", b""])
    columns = {"text": ["a b", None, ""], "n": [1, 2, None], "b": binary, "s": binary.view(pa.string())}
    pq.write_table(pa.table(columns), "docs.parquet")
    words = ("score", "arpa=de.arpa", "text=docs.parquet", "to=out.tsv")
    assert "faulty" not in files(*words, "column=text")
    for column, said in (("text", "null"), ("b", "not text (bytes)"), ("s", "not text (bytes)")):
        found = files(*words, f"column={column}", "on_error=skip")
        assert f"left out: 1; docs.parquet, row 2: '{column}' is {said}" in found
        assert [row[0] for row in table("out.tsv")[1:]] == ["3", "0"]
    assert "docs.parquet, row 1: 'n' is not text (int)" in files(*words, "column=n", code=2)


def test_names_of_scores_have_a_prefix_where_records_have_them(files: Run) -> None:
    """Require prefix= for records with fields named like scores, such as CCNet's."""
    Path("cc.jsonl").write_text('{"text": "a b", "bucket": "x"}\n{"text": "a b", "perplexity": 3}\n{"text": "a b"}\n')
    words = ("score", "arpa=de.arpa", "text=cc.jsonl", "column=text")
    passing = ("filter=kept.jsonl", "filter_scores=true", "max_perplexity=9")
    said = files(*words, "to=out.jsonl", code=2)
    assert (
        said == "lmtool: cc.jsonl, line 2: 'perplexity' is a column of the scores, too: rename it, or set prefix=lm_\n"
    )
    assert "line 1: 'bucket'" in files(*words, "to=out.jsonl", "buckets=[a,b]", code=2)
    files(*words, "to=out.jsonl", "buckets=[a,b]", "prefix=lm_", *passing)
    first = json.loads(Path("out.jsonl").read_text().splitlines()[0])
    scores = ["lm_tokens", "lm_oov", "lm_log_prob_nats", "lm_perplexity"]
    assert list(first) == ["text", "bucket", *scores, "lm_bucket"] and (first["bucket"], first["lm_bucket"]) == (
        "x",
        "a",
    )
    assert list(json.loads(Path("kept.jsonl").read_text().splitlines()[0])) == ["text", "bucket", *scores]
    said = files(*words, *passing, "on_error=skip")
    assert "left out: 1; cc.jsonl, line 2: 'perplexity' is" in said, "there is no bucket"
    assert len(Path("kept.jsonl").read_text().splitlines()) == 2
    assert "set prefix=lm_" in files(*words, "to=out.tsv", "columns=[perplexity]", "on_error=skip", code=2)
    files(*words, "to=out.tsv", "columns=[perplexity]", "on_error=skip", "prefix=lm_")
    assert table("out.tsv")[0][:2] == ["perplexity", "lm_tokens"]
    files(*words, "to=null.jsonl", "on_error=null")
    found = [json.loads(line) for line in Path("null.jsonl").read_text().splitlines()]
    assert [each["perplexity"] is None for each in found] == [False, True, False]


def test_a_text_that_no_pieces_write_is_a_fault_of_its_record(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = TextsScorer.__call__

    def picky(self: TextsScorer, block: TextBlock, *, progress: bool = False) -> Rows:
        if b"zzz" in block.content:
            raise RecordError("pieces writes 'zzz' back as 'z'")
        return plain(self, block)

    monkeypatch.setattr(TextsScorer, "__call__", picky)
    words = ("score", "arpa=de.arpa", "text=docs.jsonl", "column=text", "to=out.tsv")
    assert "docs.jsonl, line 3: pieces writes 'zzz' back" in files(*words, code=2)
    assert "left out: 2; docs.jsonl, line 3: pieces" in files(*words, "on_error=skip")
    assert [row[0] for row in table("out.tsv")[1:]] == ["3", "0"]


WITH_IDS = [{"id": 7, "text": "a b", "url": "x\ty"}, {"id": None, "text": "b zzz a", "meta": {"k": "\u00e9"}}]


def test_columns_of_records_come_before_the_scores(files: Run) -> None:
    Path("ids.jsonl").write_text("".join(json.dumps(record) + "\n" for record in WITH_IDS))
    words = ("score", "arpa=de.arpa", "text=ids.jsonl", "column=text")
    said = files(*words, "columns=[id,url]", "to=out.tsv", code=2)
    assert said == "lmtool: ids.jsonl, line 2: it has no 'url': columns names one of: id, meta, text\n"
    said = files(*words, "columns=[id,uurl]", "on_error=null", "to=out.tsv")
    assert "warning: columns=['id', 'uurl']: no record has a value for uurl: check the names" in said
    assert "check the names" not in files(*words, "columns=[id,url,meta]", "on_error=null", "to=out.tsv")
    header, *rows = table("out.tsv")
    assert header[:5] == ["id", "url", "meta", "tokens", "oov"]
    assert [row[:5] for row in rows] == [["7", "x\\ty", "", "3", "0"], ["", "", '{"k": "\u00e9"}', "4", "1"]]
    files(*words, "columns=[id]", "to=out.jsonl.gz")
    found = [json.loads(line) for line in gzip.decompress(Path("out.jsonl.gz").read_bytes()).splitlines()]
    assert list(found[0]) == ["id", "tokens", "oov", "log_prob_nats", "perplexity"] and [x["id"] for x in found] == [
        7,
        None,
    ]
    assert [x["perplexity"] for x in found] == pytest.approx([10 ** (1.1 / 3), 10 ** (3.9 / 4)])
    for given in ("columns=[tokens]", "columns=[id,id]"):
        assert "is a column of the scores, or occurs twice" in files(*words, given, "to=out.tsv", code=2)


def test_records_with_their_scores_in_json_lines(files: Run) -> None:
    Path("ids.jsonl").write_text("".join(json.dumps(record) + "\n" for record in WITH_IDS) + '{"text": "\\ud800"}\n[\n')
    words = ("score", "arpa=de.arpa", "text=ids.jsonl", "column=text", "on_error=null")
    files(*words, "to=out.jsonl", "buckets=[head,tail]", "filter=kept.jsonl", "min_perplexity=5", "filter_scores=true")
    found = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    scores = [{key: each[key] for key in ("tokens", "oov", "perplexity", "bucket")} for each in found]
    assert [{**record, **each} for record, each in zip(WITH_IDS, found, strict=False)] == found[:2]
    assert [each["tokens"] for each in scores] == [3, 4, 2, 0] and found[2]["text"] == "\ud800"
    fault = found[3].pop("error")
    assert found[3] == {"tokens": 0, "oov": 0, "log_prob_nats": 0.0, "perplexity": None, "bucket": None}
    assert fault.startswith("ids.jsonl, line 4: not JSON") and [found[k].pop("error") for k in (0, 1)] == [None, None]
    kept = [json.loads(line) for line in Path("kept.jsonl").read_text().splitlines()]
    assert kept[0] == {key: value for key, value in found[1].items() if key != "bucket"}
    Path("t.txt").write_text("a b\r\n\n")
    files("score", "arpa=de.arpa", "text=t.txt", "to=out.jsonl")
    assert [json.loads(line)["text"] for line in Path("out.jsonl").read_text().splitlines()] == ["a b", ""]


def test_columns_in_parquet_keep_their_types(files: Run) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    day = datetime.date(2026, 11, 25)
    pq.write_table(pa.table({"text": TEXTS, "day": [day, None, day, day]}), "docs.parquet")
    words = ("score", "arpa=de.arpa", "text=docs.parquet", "column=text")
    files(*words, "columns=[day]", "to=out.parquet", "filter=kept.parquet", "max_perplexity=6", "filter_scores=true")
    assert pq.read_table("out.parquet")["day"].to_pylist() == [day, None, day, day]
    kept = pq.read_table("kept.parquet")
    assert kept.schema.names == ["text", "day", "tokens", "oov", "log_prob_nats", "perplexity"]
    assert kept["day"].to_pylist() == [day, day] and kept["tokens"].to_pylist() == [3, 7]
    files(*words, "columns=[day]", "to=out.tsv")
    assert [row[0] for row in table("out.tsv")[1:]] == ["2026-11-25", "", "2026-11-25", "2026-11-25"]
    pq.write_table(pa.table({"text": TEXTS, "q": [0.5, math.nan, math.inf, None]}), "docs.parquet")
    files(*words, "to=out.jsonl")
    assert [json.loads(line)["q"] for line in Path("out.jsonl").read_text().splitlines()] == [0.5, None, None, None]
    assert files(*words, "to=-") == Path("out.jsonl").read_text(), "the whole record, from a file too"
    assert "docs.parquet has no column 'url'" in files(*words, "columns=[url]", "to=out.tsv", code=2)
    files("score", "arpa=de.arpa", "text=docs.jsonl", "column=text", "columns=[n]", "to=n.parquet")
    assert pq.read_table("n.parquet")["n"].to_pylist() == [0, 1, 2, 3]
    Path("mixed.jsonl").write_text('{"text": "a", "n": 1}\n{"text": "a", "n": "x"}\n')
    said = files("score", "arpa=de.arpa", "text=mixed.jsonl", "column=text", "columns=[n]", "to=n.parquet", code=2)
    assert "n.parquet: a column changes its type: write .jsonl" in said
    Path("mixed.jsonl").write_text(f'{{"text": "a", "n": 1{"0" * 30}}}\n')
    said = files("score", "arpa=de.arpa", "text=mixed.jsonl", "column=text", "columns=[n]", "to=n.parquet", code=2)
    assert "n.parquet: a column changes its type" in said
    pq.write_table(pa.table({"text": ["a"], "n": pa.array([b"caf\xe1a"]).view(pa.string())}), "docs.parquet")
    assert "out.tsv: a column has no values as text" in files(*words, "columns=[n]", "to=out.tsv", code=2)


def test_from_a_pipe_to_a_pipe(files: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def given(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    files("score", "arpa=de.arpa", "text=docs.jsonl", "column=text", "to=out.jsonl")
    files("score", "arpa=de.arpa", "text=docs.jsonl", "column=text", "columns=[n]", "to=out.tsv")
    pipe, records = ("score", "arpa=de.arpa", "text=-", "to=-"), Path("docs.jsonl").read_bytes()
    given(records)
    assert files(*pipe, "column=text") == Path("out.jsonl").read_text()
    given(records)
    files("score", "arpa=de.arpa", "text=-", "column=text", "columns=[n]", "to=in.tsv")
    assert table("in.tsv") == table("out.tsv")
    given(b"a b\nb zzz a\n")
    assert [line.split("\t")[0] for line in files(*pipe).splitlines()] == ["tokens", "3", "4"]
    given(b"a b\nb zzz a\n")
    assert files(*pipe, "buckets=[low,high]").split()[4::5] == ["bucket", "low", "high"], "all scores come first"
    given(records)
    assert "quantiles of the texts need a second reading" in files(*pipe, "column=text", "buckets=[a,b]", code=2)
    given(b'{"text": 1}\n')
    assert "lmtool: standard input, line 1: 'text' is not text (int)" in files(*pipe, "column=text", code=2)
    assert not list(Path().glob("**/*.partial"))
    reader, writer = os.pipe()
    os.close(reader)
    given(records * 99)
    with open(writer, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert main([*pipe, "column=text"]) == 0
    assert "Broken" not in capfd.readouterr().err and not list(Path().glob("**/*.partial"))


PIECES = """\\data\\
ngram 1=6
ngram 2=3

\\1-grams:
-1.2\t<unk>
-99\t<s>\t-0.3
-0.7\t</s>
-0.5\t\u2581ab\t-0.2
-0.9\tb\t-0.1
-1.0\t\u2581

\\2-grams:
-0.1\t<s> \u2581ab
-0.4\t\u2581ab b
-0.6\tb </s>

\\end\\
"""


def test_an_arpa_file_of_pieces_scores_text_that_its_tokenizer_cuts(files: Run) -> None:
    """Follow CCNet: `spm_encode` and KenLM's `query` give the same numbers."""
    pytest.importorskip("tokenizers", reason="needs tokenizers (pip install lmtool[subwords])")
    from tests.data.test_subwords import model_without_bytes

    Path("de.arpa").write_text(PIECES)
    Path("de.sp.model").write_bytes(model_without_bytes(1))
    Path("docs.jsonl").write_text('{"text": "abb  b\\u2603"}\n{"text": "ab\\nabb b\\u2603\\r\\n"}\n{"text": " "}\n')
    words = (
        "score",
        "arpa=de.arpa",
        "text=docs.jsonl",
        "column=text",
        "to=out.tsv",
        "filter=kept.jsonl",
        "max_perplexity=5",
    )
    said = files(*words, "tokenizer=de.sp.model")
    assert "note: tokens are pieces of de.sp.model, and </s>: log p and perplexity are of these" in said
    # _ab b _ b \u2603 </s>: -0.1 -0.4 -0.1-1 -0.9 -0.1-1.2 -0.7 = -4.5, and _ab </s>: -0.1 -0.2-0.7 = -1.
    assert [row[:2] for row in table("out.tsv")[1:]] == [["6", "1"], ["8", "1"], ["0", "0"]]
    found = [float(row[2]) for row in table("out.tsv")[1:]]
    assert found == pytest.approx([-4.5 * math.log(10), -5.5 * math.log(10), 0], abs=1e-4)
    assert Path("kept.jsonl").read_bytes() == Path("docs.jsonl").read_bytes().splitlines(keepends=True)[1]
    Path("de.sp.model").write_bytes(b"text")
    assert "de.sp.model is cut off or not a model of SentencePiece" in files(*words, "tokenizer=de.sp.model", code=2)
    assert "tokenizer=de.sp.model: needs arpa=FILE: a run has its own" in files(
        "score", "run=x", "text=docs.jsonl", "column=text", "to=out.tsv", "tokenizer=de.sp.model", code=2
    )


def test_python_agrees_with_the_command(files: Run) -> None:
    files("score", "arpa=de.arpa", "text=docs.jsonl", "column=text", "to=out.tsv")
    found = list(python.score_texts("de.arpa", (text for text in TEXTS)))
    shown = [
        [str(x.tokens), str(x.oov), f"{x.log_prob:.4f}", f"{x.perplexity:.4f}" if x.perplexity else ""] for x in found
    ]
    assert [[cell.replace("-0.0000", "0.0000") for cell in row] for row in shown] == table("out.tsv")[1:]
    assert found[1].perplexity is None and found[0].difference is None
    with pytest.raises(python.UserError, match="give a list of texts"):
        python.score_texts("de.arpa", "a b")
    with pytest.raises(python.UserError, match=r"texts\[1\] must be a string; got int"):
        list(python.score_texts("de.arpa", ["a", 3]))  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["kn3", "hs", "mix", "char", "across"])
def test_every_kind_of_model_scores_a_text_as_it_scores_it_alone(name: str, runs: Path, toy: python.Corpus) -> None:
    """Let contexts continue within a text, as in eval, but not into the next text."""
    model = python.load(runs / ("kn3" if name == "across" else name))
    if name == "across":  # a mixture of one that reads across sentences and one that does not
        members = [neural(toy, across_sentences=True), model.model]
        special_tokens = model.vocabulary.special_tokens
        mixture = Mixture(members, np.array([0.7, 0.3]), special_tokens)  # type: ignore[list-item]
        model = python.TextModel(mixture, model.form, "across")
        assert model.across_sentences
    texts = ["the cat sat\non the dog .\nsat", "ann\nhanna", "", "a cat zzz"] * 2
    found = list(python.score_texts(model, texts))
    for text, result in zip(texts, found, strict=True):
        alone = split_of_text([(text + "\n").encode()], "text", model.form)[0]
        assert (result.tokens, result.oov) == (alone.tokens, len(alone.oov_positions))
        if alone.tokens:
            assert result.log_prob == pytest.approx(model.model.score_text(alone).sum(), rel=1e-6)


def test_difference_of_two_models(files: Run, runs: Path) -> None:
    text = "the cat sat\nzzz\na dog sat on the mat .\n"
    Path("t.txt").write_text(text)
    both = [f"run={runs}/kn3", f"run_out={runs}/mle", "text=t.txt"]
    files("score", *both, "to=out.tsv", "filter=kept.txt", "max_perplexity=0")
    header, *rows = table("out.tsv")
    assert header[4:] == ["oov_out", "perplexity_out", "difference"]
    alone = [list(python.score_texts(runs / name, text.splitlines())) for name in ("kn3", "mle")]
    pairs = list(python.score_texts(runs / "kn3", text.splitlines(), run_out=runs / "mle"))
    for row, first, second, pair in zip(rows, *alone, pairs, strict=True):
        assert first.perplexity is not None and second.perplexity is not None and pair.difference is not None
        assert pair.difference == pytest.approx(math.log(first.perplexity) - math.log(second.perplexity), abs=1e-9)
        assert row[3] == f"{first.perplexity:.4f}" and float(row[6]) == pytest.approx(pair.difference, abs=1e-6)
    kept = [line for line, pair in zip(text.splitlines(), pairs, strict=True) if (pair.difference or 0.0) <= 0]
    assert Path("kept.txt").read_text().splitlines() == kept and 0 < len(kept) < 3


def test_buckets(files: Run, runs: Path) -> None:
    words = ["arpa=de.arpa", "text=docs.jsonl", "column=text", "to=out.tsv", "buckets=[head,middle,tail]"]
    files("score", *words)  # perplexities 2.33, none, 9.44 and 5.18
    assert [row[-1] for row in table("out.tsv")] == ["bucket", "head", "", "tail", "middle"]
    said = files("score", *words, "bucket_quantiles=[0.2,0.4]")
    assert [row[-1] for row in table("out.tsv")[1:]] == ["head", "", "tail", "middle"]
    assert "bucket head              1 texts, to 2.3263" in said
    files("score", *words, "bucket_limits=[1,6]")
    assert [row[-1] for row in table("out.tsv")[1:]] == ["middle", "", "tail", "middle"]
    files("score", f"run={runs}/kn3", *words[1:], "bucket_split=valid", "hydra.run.dir=out")
    limits = json.loads(Path("out/result.json").read_text())["buckets"]
    valid = python.evaluate(runs / "kn3")
    mean = np.add.reduceat(valid.log_probs, valid.offsets[:-1]) / np.diff(valid.offsets)
    by_sentence = np.sort(np.exp(-mean))
    want = [by_sentence[math.ceil(len(by_sentence) * share / 3) - 1] for share in (1, 2)]
    assert [limit for _, limit, *_ in limits] == [*(pytest.approx(value) for value in want), None]


def test_what_passes_is_written_as_it_stood(files: Run) -> None:
    words = ["score", "arpa=de.arpa", "text=docs.jsonl", "column=text"]
    lines = Path("docs.jsonl").read_bytes().splitlines(keepends=True)

    def kept(*limits: str) -> list[int]:
        files(*words, "filter=kept.jsonl", *limits)
        return [lines.index(line) for line in Path("kept.jsonl").read_bytes().splitlines(keepends=True)]

    assert (
        kept("max_perplexity=6") == [0, 3]
        and kept("min_perplexity=5") == [2, 3]
        and kept("min_perplexity=3", "max_perplexity=6") == [3]
    )
    assert kept("share=0.3") == [0] and kept("share=0.5") == [0, 3] and kept("max_perplexity=1") == []
    files(*words, "to=out.tsv", "filter=new/folder/kept.jsonl", "share=0.5")
    assert len(Path("new/folder/kept.jsonl").read_text().splitlines()) == 2


def test_a_run_that_was_cut_off_is_resumed(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("text.txt").write_text("".join(f"{'a b ' * (k % 5)}zzz\n" for k in range(400)))
    for module, name, value in ((readers, "BLOCK", 256), (text_scores, "SAVE_SECONDS", 0)):
        monkeypatch.setattr(module, name, value)
    words = ["score", "arpa=de.arpa", "text=text.txt", "to=out.tsv", "buckets=[a,b]", "filter=kept.txt", "share=0.3"]
    files(*words)
    whole, kept = Path("out.tsv").read_bytes(), Path("kept.txt").read_bytes()
    blocks = sum(1 for _ in text_records.record_blocks(["text.txt"], None))
    scored: list[int] = []
    plain = TextsScorer.__call__

    def cut_off(self: TextsScorer, block: TextBlock, *, progress: bool) -> Rows:
        scored.append(len(block.ends))
        if len(scored) == 4:
            raise KeyboardInterrupt
        return plain(self, block)

    Path("out.tsv").unlink()
    Path("kept.txt").unlink()
    monkeypatch.setattr(TextsScorer, "__call__", cut_off)
    files(*words, code=130)
    assert Path("out.tsv.partial").is_dir() and not Path("out.tsv").exists() and not Path("kept.txt").exists()
    said = files(*words)
    assert f"resuming: {sum(scored[:3]):,} texts have their scores in out.tsv.partial" in said
    assert len(scored) == 4 + blocks - 3, "each block once, except the one that was cut off"
    assert Path("out.tsv").read_bytes() == whole and Path("kept.txt").read_bytes() == kept
    assert not Path("out.tsv.partial").exists()


def test_other_text_is_scored_anew(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["score", "arpa=de.arpa", "text=docs.jsonl", "column=text", "to=out.tsv"]
    with monkeypatch.context() as patch:
        patch.setattr(
            "lmtool.commands._score_texts.write_table", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        files(*words, code=130)
    shutil.copytree("out.tsv.partial", "kept")
    assert "resuming: 4 texts" in files(*words)
    shutil.copytree("kept", "out.tsv.partial")
    Path("docs.jsonl").write_text('{"text":"b"}\n')
    assert "resuming" not in files(*words)
    assert len(table("out.tsv")) == 2


def test_models_that_cannot_score_texts(files: Run, runs: Path) -> None:
    files("ensemble", f"runs=[{runs}/kn3]", "cache=unigram", "hydra.run.dir=cached")
    Path("t.txt").write_text("a\n")
    assert "cached has a cache" in files("score", "run=cached", "text=t.txt", "to=out.tsv", code=2)
    said = files("score", f"run={runs}/kn3", f"run_out={runs}/char", "text=t.txt", "to=out.tsv", code=2)
    assert "do not cut text into the same tokens" in said
    said = files("score", f"run={runs}/kn3", "run_out=de.arpa", "text=t.txt", "to=out.tsv")
    assert "the two runs have different words" in said


def test_fields_named_as_scores_are_refused(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be replaced."""
    words = ("score", "arpa=de.arpa", "text=own.jsonl", "column=text")
    monkeypatch.setattr(readers, "BLOCK", 8)
    Path("own.jsonl").write_text('{"text": "a"}\n{"text": "a", "oov": 1}\n')
    for to in (("to=out.jsonl",), ("filter=out.jsonl", "max_perplexity=1e9", "filter_scores=true")):
        assert "'oov' is a column of" in files(*words, *to, code=2), "not in the first block"
        assert not Path("out.jsonl").exists()
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"text": ["a"], "tokens": [5]}), "own.parquet")
    words = ("score", "arpa=de.arpa", "text=own.parquet", "column=text")
    for to in (("to=out.jsonl",), ("filter=kept.parquet", "max_perplexity=1e9", "filter_scores=true")):
        assert "'tokens' is a column of" in files(*words, *to, code=2)


def test_objects_and_bytes_of_records(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    records = [{"text": "a", "m": {"k": 1}}, {"text": "b", "m": {"k": 2, "later": "x"}}, {"text": "b", "m": None}]
    Path("m.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    monkeypatch.setattr(readers, "BLOCK", 8)
    files("score", "arpa=de.arpa", "text=m.jsonl", "column=text", "columns=[m]", "to=m.parquet")
    found = pq.read_table("m.parquet")["m"].to_pylist()
    assert [cell and json.loads(cell) for cell in found] == [record["m"] for record in records]
    pq.write_table(pa.table({"text": ["a"], "b": [b"caf\xc3\xa9"], "bad": [b"\xff"]}), "b.parquet")
    words = ("score", "arpa=de.arpa", "text=b.parquet", "column=text")
    files(*words, "columns=[b]", "to=out.jsonl")
    assert json.loads(Path("out.jsonl").read_text())["b"] == "caf\u00e9"
    files(*words, "columns=[b]", "to=out.tsv")
    assert table("out.tsv")[1][0] == "caf\u00e9"
    for to in ("out.jsonl", "out.tsv"):
        said = files(*words, "columns=[bad]", f"to={to}", code=2)
        assert "a binary column has no values as text" in said and said.count("\n") == 1


def test_a_broken_record_of_an_archive_is_named_by_its_member(files: Run) -> None:
    with zipfile.ZipFile("docs.zip", "w") as archive:
        archive.writestr("a.jsonl", '{"text": "a"}\n' * 3)
        archive.writestr("b.jsonl", '{"text": "a"}\n{"text\n')
        archive.writestr("c.txt", "a b\nb\n")
        archive.writestr("d.txt", "a\n\0\n")
    words = ("score", "arpa=de.arpa", "column=text", "to=out.tsv")
    assert "docs.zip::b.jsonl, line 2: not JSON" in files(*words, "text=docs.zip::*.jsonl", code=2)
    assert "docs.zip::d.txt, line 2: a NUL byte" in files(*words[:2], "text=docs.zip::*.txt", "to=out.tsv", code=2)
    for verb in (("eval", "arpa=de.arpa"), ("preprocess", "data=text", "data.name=z")):
        key = "text" if verb[0] == "eval" else "data.train"
        column = "column=text" if verb[0] == "eval" else "data.column=text"
        assert "docs.zip::b.jsonl, line 2: not JSON" in files(*verb, f"{key}=docs.zip::*.jsonl", column, code=2)

"""CCNet's recipe: its normalization, SentencePiece, KenLM and a file of percentiles give its perplexities and buckets.

The perplexities are those of CCNet's own code (`text_normalizer.normalize` and `perplexity.DocLM` at commit bda555b),
with the packages sentencepiece 0.2.3 and kenlm 0.3.
"""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import pytest

import lmtool as python
from lmtool import kenlm
from tests.conftest import Run
from tests.data.test_subwords import message, model_without_bytes
from tests.ngram.test_kenlm_binary import binary, module  # noqa: F401

SCORES = {"_a": -2.0, "b": -3.0, "_ab": -2.5, "_": -4.0, "a": -3.5, "c": -4.5, "bc": -4.0, "0": -3.0, ".": -2.5}
SCORES |= {'"': -4.0, "-": -4.5, "_c": -3.0}
# lmplz -o 2 of the pieces of five lines: ab abc. c 10, a "cab" - ab., c ab 7 abc, Abc ab. a, cab 12 - c.
ARPA = """\\data\\
ngram 1=15
ngram 2=34

\\1-grams:
-1.5300711	<unk>	0
0	<s>	-0.14970621
-0.97042406	</s>	0
-0.97042406	_ab	-0.16548382
-0.97042406	_a	-0.06731817
-1.2933024	bc	-0.19312459
-1.1099391	.	-0.16548382
-1.1099391	_c	-0.19312459
-0.7802298	_	-0.0712991
-1.3815403	0	-0.17087305
-1.3815403	"	-0.19312459
-1.2933024	c	-0.19312459
-1.3815403	a	-0.13949747
-1.2933024	b	-0.19312459
-1.2933024	-	-0.19312459

\\2-grams:
-0.7865584	_a </s>
-0.7251999	bc </s>
-0.67676425	. </s>
-0.8415699	0 </s>
-0.8308257	<s> _ab
-0.7251999	bc _ab
-0.80034435	_c _ab
-0.6053605	- _ab
-0.7311293	<s> _a
-0.7881509	_ab _a
-0.7881509	. _a
-0.8415699	0 _a
-1.3606206	_a bc
-0.72033435	_ab .
-0.7710237	bc .
-0.85539466	_c .
-0.782808	<s> _c
-0.8453315	. _c
-0.63968384	- _c
-0.6923792	_ab _
-0.669894	_a _
-0.7075864	_c _
-0.73586214	0 _
-0.5439155	" _
-0.5439155	b _
-1.4528395	_ 0
-0.8603798	0 0
-1.0219146	_ "
-0.6858905	b "
-0.673431	" c
-0.93415385	_c a
-0.4138606	c a
-0.5063467	a b
-0.87041765	_ -

\\end\\
"""
DOCUMENTS = {
    "Ab ABC. C 42": 8.705911533157094,
    "\u00c0b\u00e7\tab\u3002\nC 7\u2026 \u201ca\u201d \u2014 \u0661\n": 14.02473133128938,  # abcab.c 0... "a"  -  0
    "a\r\n\n ab\u00a0": 9.295222959093337,  # a ab
    "  ": None,
    "x\u2019b \uff11": 12.897008054798151,  # x'b 0
    "": None,
}
LINE = ("score", "tokenizer=en.sp.model", "normalize=ccnet", "text=docs.jsonl", "column=text", "to=out.jsonl")


@pytest.fixture
def files(lmtool: Run) -> Run:
    pytest.importorskip("tokenizers", reason="needs tokenizers (pip install lmtool[subwords])")
    pieces = [message((1, piece.replace("_", "\u2581").encode()), (2, score)) for piece, score in SCORES.items()]
    unknown = message((1, b"<unk>"), (2, 0.0), (3, 2))
    Path("en.sp.model").write_bytes(message(*((1, piece) for piece in [unknown, *pieces]), (2, message((3, 1)))))
    Path("en.arpa").write_text(ARPA.replace("_", "\u2581"))
    Path("docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
    Path("cutoff.csv").write_text(",de,en\n0,1,0\n30,2,9\n60,3,13\n99,4,900\n")
    return lmtool


def rows() -> list[dict[str, object]]:
    return [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]


def require_ccnets() -> None:
    assert [row["tokens"] for row in rows()] == [9, 20, 3, 0, 6, 0]
    for row, perplexity in zip(rows(), DOCUMENTS.values(), strict=True):
        assert row["perplexity"] == (perplexity if perplexity is None else pytest.approx(perplexity, rel=1e-6))


def test_the_perplexity_of_each_document(files: Run) -> None:
    said = files(*LINE, "arpa=en.arpa")
    assert "note: each text is one line, normalized as in CCNet" in said
    require_ccnets()
    files(*(word for word in LINE if "normalize" not in word), "arpa=en.arpa")
    assert [row["tokens"] for row in rows()] != [9, 20, 3, 0, 6, 0]


def test_a_binary_of_the_model(files: Run, module: None) -> None:  # noqa: F811
    words = [line.split("\t")[1].replace("_", "\u2581") for line in ARPA.split("\n\n")[1].splitlines()[1:]]
    Path("en.bin").write_bytes(binary(words))
    files(*LINE, "arpa=en.bin")
    require_ccnets()


@pytest.mark.tool("kenlm", "build_binary")
@pytest.mark.parametrize("kind", ["probing", "trie"])
def test_a_binary_of_kenlm(files: Run, kind: str) -> None:
    subprocess.run(["build_binary", kind, "en.arpa", "en.arpa.bin"], check=True, capture_output=True)
    files(*LINE, "arpa=en.arpa.bin")
    require_ccnets()


def test_buckets_by_a_file_of_percentiles(files: Run) -> None:
    line = (*LINE, "arpa=en.arpa", "buckets=[head,middle,tail]", "bucket_percentiles=cutoff.csv")
    said = files(*line, "bucket_language=en", "bucket_quantiles=[0.3,0.6]")
    assert "bucket head              1 texts, to 9.0000" in said and "to 13.0000" in said
    assert [row["bucket"] for row in rows()] == ["head", "tail", "middle", None, "middle", None]
    assert "to 9.4444" in files(*line, "bucket_language=en")  # of a third: 3.33 of the 30 from 30 to 60 %
    for words, wrong in (
        ("bucket_language=fr", "bucket_language=fr: cutoff.csv has the columns de, en"),
        ("", "bucket_percentiles=cutoff.csv: name its column, e.g. bucket_language=en"),
        ("bucket_language=en bucket_quantiles=[0.3,0.995]", "0.995]: cutoff.csv has those from 0 to 0.99"),
        ("bucket_language=en bucket_limits=[1,2]", "bucket_percentiles=cutoff.csv: cannot be used with bucket_limits="),
    ):
        said = files(*line, *words.split(), code=2)
        assert wrong in said and said.count("\n") == 1
    Path("cutoff.csv").write_text(";de;en\n0;1;0\n30;2;9,5\n60;3;13,5\n99;4;900\n")
    said = files(*line, "bucket_language=en", "bucket_quantiles=[0.3,0.6]")
    assert "to 9.5000" in said and "to 13.5000" in said
    for content in ("30,2,9\n30,3,13\n", "30,2,x\n", "", "0,1,9\n30,2,8\n"):
        Path("cutoff.csv").write_text(f",de,en\n{content}")
        said = files(*line, "bucket_language=en", code=2)
        assert "cutoff.csv: must have percentages in its first column and numbers in en, both ascending" in said


def test_a_run_of_normalized_text(lmtool: Run) -> None:
    Path("train.txt").write_text("Caf\u00e9 1 \u201cx\u201d\ncaf\u00e9\t2\n\u00a0Cafe 3 \u201cx\u201d\u00a0\n" * 3)
    text = ("data=text", "data.train=train.txt", "data.valid=train.txt", "data.normalize=ccnet")
    lmtool("train", "model=ngram", "model.order=2", *text, "hydra.run.dir=run")
    run = python.load("run")
    assert set(run.words) == {"cafe", "0", '"x"', "cafe0", "<unk>", "</s>"}  # a tab is a control character
    assert run.form.split("CAF\u00c9 9 \u00abx\u00bb") == ["cafe", "0", '"x"']
    wanted = run.score("cafe 0")
    for each in run.score(["Caf\u00e9 7", ["CAFE\u0301", "\u0663"]]):
        assert each.tolist() == wanted.tolist()
    lmtool("score", "run=run", "text=train.txt", "to=out.tsv")
    assert [line.split("\t")[:2] for line in Path("out.tsv").read_text().splitlines()[1:4]] == [
        ["4", "0"],
        ["2", "0"],
        ["4", "0"],
    ]
    assert kenlm.Model("run").score("CAF\u00c9 7") == pytest.approx(wanted.sum() / math.log(10), rel=1e-6)
    lmtool("train", "model=ngram", "model.order=2", *text[:3], "hydra.run.dir=plain")
    said = lmtool("compare", "runs=[run,plain]", "text=train.txt", "vocabulary=union", code=2)
    assert "their data has other rules for words (unit, case, form, spaces, tags, blank lines)" in said


@pytest.mark.parametrize("kind", [1, 2])
def test_a_run_over_the_pieces_of_a_default_model(kind: int, files: Run) -> None:
    """Letters without a piece are `<unk>`, as where the run's ARPA file scores the pieces of `tokenizer=`."""
    if kind == 2:
        Path("en.sp.model").write_bytes(model_without_bytes(kind))
    Path("train.txt").write_text(
        "ab abc. c 10 \u6f22\u5b57\na cab - x\u6f22b\n<unk> \u2603 ab.\n" * 9, encoding="utf-8"
    )
    unit = {1: "unigram", 2: "bpe"}[kind]
    data = ["data=text", "data.train=train.txt", "data.normalize=ccnet", "data.vocabulary.file=en.sp.model"]
    files(
        "train",
        "model=ngram",
        "model.order=3",
        "data.split.train=0.9",
        *data,
        f"data.vocabulary.unit={unit}",
        "hydra.run.dir=run",
    )
    files("export", "run=run", "to=run.arpa")
    Path("docs.txt").write_text("ab \u6f22\u5b57a c\nb\u2603\u2603 ab x\n\n", encoding="utf-8")
    for model, out in ((["run=run"], "run.tsv"), (["arpa=run.arpa", "tokenizer=en.sp.model"], "arpa.tsv")):
        files("score", *model, "normalize=ccnet", "text=docs.txt", f"to={out}")
    assert Path("run.tsv").read_text() == Path("arpa.tsv").read_text()
    assert [line.split("\t")[1] for line in Path("run.tsv").read_text().splitlines()[1:]][:2] == ["1", "2"]
    told = files("eval", "run=run", "text=docs.txt", "detail=true")
    assert "_ab _ \u6f22\u5b57=<unk> a" in told.replace("\u2581", "_")
    files("generate", "ab", "run=run")

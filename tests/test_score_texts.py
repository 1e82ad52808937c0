"""`lmtool score` and `lmtool.score_texts`: by hand, against eval, cut off and resumed, filtered."""

from __future__ import annotations

import gzip
import io
import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lmtool as python
from lmtool.data import readers, text_records
from lmtool.data.text_form import TextBlock, split_of_text
from lmtool.evaluation import text_scores
from lmtool.evaluation.text_scores import Rows, TextsScorer
from lmtool.mixtures.linear import Mixture
from tests.conftest import neural
from tests.test_arpa_alone import ARPA

Run = Callable[..., str]
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


def test_documents_by_hand(files: Run) -> None:
    files("score", "arpa=de.arpa", "text=docs.jsonl", "column=text", "to=out.tsv", "hydra.run.dir=out")
    header, *rows = table("out.tsv")
    assert header == ["tokens", "oov", "log_prob", "perplexity"]
    perplexities = [f"{10 ** (-total / max(n, 1)):.4f}" if n else "" for total, n in zip(LOG10, TOKENS, strict=True)]
    assert [row[0] for row in rows] == ["3", "0", "4", "7"] and [row[1] for row in rows] == ["0", "0", "1", "1"]
    assert [row[3] for row in rows] == perplexities
    assert [float(row[2]) for row in rows] == pytest.approx([x * math.log(10) for x in LOG10], abs=1e-4)
    found = json.loads(Path("out/result.json").read_text())
    assert (found["texts"], found["empty"], found["tokens"], found["oov"]) == (4, 1, 14, 2)
    assert found["perplexity"] == pytest.approx(10 ** (10 / 14), rel=1e-6)
    assert not Path("out.tsv.partial").exists()


def test_broken_records_are_counted_and_have_empty_rows(files: Run) -> None:
    bad = '{"text\n{"n": 1}\n[1]\n{"text": ["a"]}\n{"text": null}\n'
    Path("bad.jsonl").write_text(f'{{"text": "a b"}}\n{bad}{{"text": "b zzz a"}}\n')
    words = ("arpa=de.arpa", "text=bad.jsonl", "column=text", "to=out.tsv", "filter=kept.jsonl", "most=1e9")
    assert "bad.jsonl, line 2: not JSON" in files("score", *words, code=2)
    said = files("score", *words, "broken=skip")
    assert "broken records, each an empty row: 5; the first is bad.jsonl, line 2: not JSON" in said
    assert [row[0] for row in table("out.tsv")[1:]] == ["3", "0", "0", "0", "0", "0", "4"]
    assert Path("kept.jsonl").read_text() == '{"text": "a b"}\n{"text": "b zzz a"}\n'


def test_each_line_of_files_and_of_standard_input(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("b.txt.gz").write_bytes(gzip.compress(b"b zzz a\n\n"))
    Path("a.txt").write_bytes(b"a b")
    files("score", "arpa=de.arpa", "text=[ab].txt*", "to=out.tsv.gz")
    assert [row[0] for row in table("out.tsv.gz")[1:]] == ["3", "4", "0"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a b\nb zzz a\n\n")))
    files("score", "arpa=de.arpa", "text=-", "to=in.tsv")
    assert table("in.tsv") == table("out.tsv.gz")


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
    """Contexts may go on within a text, as eval has them, but not into the next text."""
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
    files("score", *both, "to=out.tsv", "filter=kept.txt", "most=0")
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

    assert kept("most=6") == [0, 3] and kept("least=5") == [2, 3] and kept("least=3", "most=6") == [3]
    assert kept("share=0.3") == [0] and kept("share=0.5") == [0, 3] and kept("most=1") == []


def test_a_run_that_was_cut_off_is_resumed(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("text.txt").write_text("".join(f"{'a b ' * (k % 5)}zzz\n" for k in range(400)))
    for module, name, value in ((readers, "BLOCK", 256), (text_scores, "SAVE_SECONDS", 0)):
        monkeypatch.setattr(module, name, value)
    words = ["score", "arpa=de.arpa", "text=text.txt", "to=out.tsv", "buckets=[a,b]", "filter=kept.txt", "share=0.3"]
    files(*words)
    whole, kept = Path("out.tsv").read_bytes(), Path("kept.txt").read_bytes()
    blocks = sum(1 for _ in text_records.text_blocks(["text.txt"], None))
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
    assert len(scored) == 4 + blocks - 3, "each block once, but for the one that was cut off"
    assert Path("out.tsv").read_bytes() == whole and Path("kept.txt").read_bytes() == kept
    assert not Path("out.tsv.partial").exists()


def test_other_text_is_scored_anew(files: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["score", "arpa=de.arpa", "text=docs.jsonl", "column=text", "to=out.tsv"]
    with monkeypatch.context() as patch:
        patch.setattr("lmtool.commands.score.write_table", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        files(*words, code=130)
    shutil.copytree("out.tsv.partial", "kept")
    assert "resuming: 4 texts" in files(*words)
    shutil.copytree("kept", "out.tsv.partial")
    Path("docs.jsonl").write_text('{"text":"b"}\n')
    assert "resuming" not in files(*words)
    assert len(table("out.tsv")) == 2


MISTAKES = [
    ("text=docs.jsonl column=text", ["give to=FILE.tsv", "filter=FILE"]),
    ("text=docs.jsonl to=out.tsv", ["docs.jsonl holds documents", "by column"]),
    ("text=docs.jsonl column=words to=out.tsv", ["docs.jsonl, line 1", "column names one of: n, text"]),
    ("text=docs.jsonl column=text to=out.csv", ["to=out.csv", ".tsv", ".parquet"]),
    ("text=docs.jsonl column=text filter=out.jsonl", ["filter=out.jsonl", "most=, least=, share= or most_oov="]),
    ("text=docs.jsonl column=text to=out.tsv most=3", ["most=3", "filter"]),
    ("text=docs.jsonl column=text filter=docs.jsonl most=3", ["filter=docs.jsonl", "text=docs.jsonl"]),
    ("text=docs.jsonl column=text to=out.tsv filter=out.tsv most=3", ["filter=out.tsv", "to=out.tsv"]),
    ("text=docs.jsonl column=text filter=out.parquet most=3", ["filter=out.parquet", "Parquet"]),
    ("text=docs.jsonl column=text to=s3://x/out.tsv", ["to=s3://x/out.tsv", "a file on this machine"]),
    ("text=docs.jsonl column=text to=out.tsv buckets=[a]", ["buckets", "two names or more"]),
    ("text=docs.jsonl column=text to=out.tsv buckets=[a,b] bucket_split=valid", ["bucket_split=valid", "arpa"]),
    ("text=docs.jsonl column=text to=out.tsv bucket_limits=[3]", ["bucket_limits=[3.0]", "buckets"]),
    ("text=- to=out.tsv column=text", ["column=text", "text=-"]),
    ("text=nowhere.txt to=out.tsv", ["no file nowhere.txt for text"]),
    ("to=out.tsv", ["text"]),
]


@pytest.mark.parametrize(("line", "words"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_line_and_leaves_nothing(line: str, words: list[str], files: Run) -> None:
    before = Path("docs.jsonl").read_bytes()
    said = files("score", "arpa=de.arpa", *line.split(), code=2)
    assert said.startswith("lmtool: ") and said.count("\n") == 1, said
    for word in words:
        assert word in said
    assert not list(Path().glob("out.*")) and Path("docs.jsonl").read_bytes() == before


def test_models_that_cannot_score_texts(files: Run, runs: Path) -> None:
    files("ensemble", f"runs=[{runs}/kn3]", "cache=unigram", "hydra.run.dir=cached")
    Path("t.txt").write_text("a\n")
    assert "cached has a cache" in files("score", "run=cached", "text=t.txt", "to=out.tsv", code=2)
    said = files("score", f"run={runs}/kn3", f"run_out={runs}/char", "text=t.txt", "to=out.tsv", code=2)
    assert "do not cut text into the same tokens" in said
    said = files("score", f"run={runs}/kn3", "run_out=de.arpa", "text=t.txt", "to=out.tsv")
    assert "the two runs have different words" in said

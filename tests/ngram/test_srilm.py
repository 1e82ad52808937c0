"""SRILM's commands: values by hand, SRILM's own figures, and lines of published recipes."""

from __future__ import annotations

import gzip
import io
import math
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lmtool.cli.command_line import main
from lmtool.data.readers import read_blocks
from lmtool.data.text_form import TextForm, split_of_text
from lmtool.data.text_rules import UNCHANGED
from lmtool.evaluation.metrics import perplexity
from lmtool.ngram.counting.counts import count_text
from lmtool.ngram.estimation.estimate import estimate_per_order
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.runs.load import load
from lmtool.srilm import command, parse, srilm_smoother

TEXT = "a b\na b\na c\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text(TEXT)
    (tmp_path / "v.txt").write_text("a b\n\nd a\n")
    return tmp_path


def run(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a line as it is typed and return its standard output; `>` also writes it to a file."""
    words, _, to = line.partition(" > ")
    assert main(shlex.split(words), command) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    if to:
        Path(to.strip()).write_text(said)
    return said


def refused(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(shlex.split(line), command) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def probabilities(name: str) -> dict[str, float]:
    """Return the probabilities of an ARPA file's n-grams."""
    content = gzip.decompress(Path(name).read_bytes()).decode() if name.endswith(".gz") else Path(name).read_text()
    rows = (line.split("\t") for line in content.splitlines() if re.match(r"-?\d[^\t]*\t", line))
    return {words: 10 ** float(value) for value, words, *_ in rows}


def test_smoothers_by_hand(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # 9 words: a 3, b 2, c 1, </s> 3. Without -unk they are the vocabulary, so that below the unigrams is 1/4.
    run("ngram-count -text t.txt -order 2 -wbdiscount -interpolate -lm wb.arpa", capsys)
    found = probabilities("wb.arpa")
    assert "<unk>" not in found and found["c"] == pytest.approx((1 + 4 / 4) / 13, rel=1e-6)
    assert found["a b"] == pytest.approx((2 + 2 * (2 + 1) / 13) / (3 + 2), rel=1e-6)
    # Backed off: what is left goes to the words that did not occur; <unk> is one with -unk.
    run("ngram-count -text t.txt -order 2 -wbdiscount -unk -map-unk [oov] -lm wb.arpa.gz", capsys)
    found = probabilities("wb.arpa.gz")
    assert (found["a"], found["[oov]"], found["a b"]) == pytest.approx((3 / 13, 4 / 13, 2 / 5), rel=1e-6)
    run("ngram-count -text t.txt -order 2 -cdiscount 0.5 -lm abs.arpa", capsys)
    assert probabilities("abs.arpa")["a b"] == pytest.approx(1.5 / 3, rel=1e-6)
    run("ngram-count -text t.txt -order 2 -addsmooth 0.5 -lm add.arpa", capsys)
    found = probabilities("add.arpa")
    assert (found["c"], found["a b"]) == pytest.approx((1.5 / 11, 2.5 / 5), rel=1e-6)
    run("ngram-count -text t.txt -order 2 -addsmooth 0.5 -interpolate -lm both.arpa", capsys)
    assert probabilities("both.arpa") == found  # SRILM gives the lower order no weight
    # A method for one order replaces that for all orders.
    run("ngram-count -text t.txt -order 2 -kndiscount -addsmooth1 0.5 -cdiscount2 0.5 -lm mixed.arpa", capsys)
    found = probabilities("mixed.arpa")
    assert (found["c"], found["a b"]) == pytest.approx((1.5 / 11, 1.5 / 3), rel=1e-6)
    # One discount per order: 2 n-grams occur once, 2 twice, so that D = 1/3; unigrams count what precedes them.
    run("ngram-count -text t.txt -order 2 -ukndiscount2 -interpolate2 -cdiscount1 0 -lm kn.arpa", capsys)
    assert probabilities("kn.arpa")["a b"] == pytest.approx((2 - 1 / 3) / 3 + 2 / 9 * 2 / 9, rel=1e-6)


def test_minimum_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("ngram-count -text t.txt -order 2 -gt2min 2 -wbdiscount -interpolate -lm cut.arpa", capsys)
    found = probabilities("cut.arpa")
    assert "a c" not in found and "c </s>" not in found
    # An n-gram that stays is estimated as without a cut-off, and words that were cut share what is left.
    assert found["a b"] == pytest.approx((2 + 2 * 3 / 13) / 5, rel=1e-6)
    backoff = float(re.search(r"\ta\t(\S+)", Path("cut.arpa").read_text())[1])  # type: ignore[index]
    assert 10**backoff == pytest.approx((1 - found["a b"]) / (1 - 3 / 13), rel=1e-6)
    # By default trigrams that occur once are left out.
    run("ngram-count -text t.txt -wbdiscount -lm default.arpa", capsys)
    assert "<s> a b" in (found := probabilities("default.arpa")) and "<s> a c" not in found


def test_unknown_words_do_not_count_without_unk(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("words.txt").write_text("## comment\na\nb\n<s>\n")
    run("ngram-count -text t.txt -order 2 -wbdiscount -interpolate -vocab words.txt -lm x.arpa", capsys)
    found = probabilities("x.arpa")
    assert set(found) == {"a", "b", "</s>", "<s>", "a b", "b </s>", "<s> a"}
    assert found["a"] == pytest.approx((3 + 3 / 3) / 11, rel=1e-6)  # 8 words, 3 types
    assert found["a b"] == pytest.approx((2 + 3 / 11) / 3, rel=1e-6)
    run("ngram-count -text t.txt -order 2 -wbdiscount -interpolate -vocab words.txt -unk -lm x.arpa", capsys)
    assert probabilities("x.arpa")["a <unk>"] == pytest.approx((1 + 2 * 2 / 13) / 5, rel=1e-6)


def test_counts(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said = run("ngram-count -text t.txt -order 2 -write - -sort -write-vocab words", capsys)
    rows = "</s> 3, <s> 3, <s> a 3, a 3, a b 2, a c 1, b 2, b </s> 2, c 1, c </s> 1"
    sorted_counts = ["\t".join(row.rsplit(" ", 1)) for row in rows.split(", ")]
    assert said.splitlines() == sorted_counts
    assert set(Path("words").read_text().split()) == {"<unk>", "<s>", "</s>", "a", "b", "c"}
    run("ngram-count -text t.txt -order 2 -wbdiscount -interpolate -lm text.arpa", capsys)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(said.encode())))
    run("ngram-count -read - -order 2 -wbdiscount -interpolate -lm read.arpa", capsys)
    assert probabilities("read.arpa") == probabilities("text.arpa")
    Path("counts").write_text(said)
    Path("known").write_text("a\nb\n")
    run("ngram-count -read counts -order 2 -limit-vocab -vocab known -write limited", capsys)
    assert sorted(Path("limited").read_text().splitlines()) == [line for line in sorted_counts if "c" not in line]
    Path("marked.txt").write_text("<s> A b </s>\nA b\nA c </s>\n")
    assert run("ngram-count -text marked.txt -tolower -order 2 -write - -sort", capsys) == said


def test_perplexity_and_its_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.arpa").write_text(
        "\\data\\\nngram 1=4\nngram 2=2\n\n\\1-grams:\n-99 <s> -1\n-1 </s>\n-0.5 a -0.25\n-1 b\n\n"
        "\\2-grams:\n-0.5 <s> a\n-0.25 a b\n\n\\end\\\n"
    )
    assert run("ngram -lm m.arpa -ppl v.txt -debug 2", capsys).splitlines() == [
        "a b",
        "\tp( a | <s> ) \t= [2gram] 0.3162278 [ -0.5 ]",
        "\tp( b | a ...) \t= [2gram] 0.5623413 [ -0.25 ]",
        "\tp( </s> | b ...) \t= [1gram] 0.1 [ -1 ]",
        "1 sentences, 2 words, 0 OOVs",
        "0 zeroprobs, logprob= -1.75 ppl= 3.831187 ppl1= 7.498942",
        "",
        "d a",
        "\tp( <unk> | <s> ) \t= [OOV] 0 [ -inf ]",
        "\tp( a | <unk> ...) \t= [1gram] 0.3162278 [ -0.5 ]",
        "\tp( </s> | a ...) \t= [1gram] 0.05623413 [ -1.25 ]",
        "1 sentences, 2 words, 1 OOVs",
        "0 zeroprobs, logprob= -1.75 ppl= 7.498942 ppl1= 56.23414",  # 10^1.75, from float32
        "",
        "file v.txt: 2 sentences, 4 words, 1 OOVs",
        "0 zeroprobs, logprob= -3.5 ppl= 5.011872 ppl1= 14.67799",
    ]
    brief = run("ngram -lm m.arpa -ppl v.txt -debug 1 -vocab t.txt", capsys).splitlines()
    assert brief[0] == "a b" and brief[-2:] == run("ngram -lm m.arpa -ppl v.txt", capsys).splitlines()
    # Only the unigrams: -order; a word of -vocab that is in no n-gram has probability 0.
    assert "logprob= -2.5 " in run("ngram -order 1 -lm m.arpa -ppl v.txt -debug 1", capsys)
    Path("words").write_text("d\n")
    assert "1 zeroprobs, logprob= -3.5 ppl= 5.01" in run("ngram -lm m.arpa -vocab words -ppl v.txt", capsys)
    Path("words").write_text("a\n")
    assert "words, 2 OOVs" in run("ngram -lm m.arpa -vocab words -limit-vocab -ppl v.txt", capsys)


def test_mixtures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, p in (("one", 0.5), ("two", 0.25), ("three", 0.125)):
        Path(f"{name}.arpa").write_text(
            f"\\data\\\nngram 1=3\n\n\\1-grams:\n-99 <s>\n{math.log10(p)} </s>\n{math.log10(1 - p)} a\n\n\\end\\\n"
        )
    run("ngram -lm one.arpa -mix-lm two.arpa -lambda 0.2 -mix-lm2 three.arpa -mix-lambda2 0.3 -write-lm m.arpa", capsys)
    assert probabilities("m.arpa")["</s>"] == pytest.approx(0.2 * 0.5 + 0.5 * 0.25 + 0.3 * 0.125, rel=1e-6)
    Path("t.txt").write_text("a a a\n")
    static, dynamic = (
        run(f"ngram -lm one.arpa -mix-lm two.arpa -ppl t.txt{more}", capsys) for more in ("", " -bayes 0")
    )
    assert static == dynamic and f"logprob= {math.log10(0.375 * 0.625**3):.7g} " in static
    for name in ("one", "two"):
        run(f"ngram -lm {name}.arpa -ppl t.txt -debug 2 > {name}.ppl", capsys)
    assert main(shlex.split("compute-best-mix lambda='0.5 0.5' precision=0.5 one.ppl two.ppl"), command) == 0
    said = capsys.readouterr()
    share = (3 * 0.5 / (0.5 + 0.75) + 0.5 / (0.5 + 0.25)) / 4  # one step of EM
    assert said.out.splitlines() == [
        f"4 non-oov words, best lambda ({share:g} {1 - share:g})",
        f"pairwise cumulative lambda (1 {1 - share:g})",
    ]
    assert said.err.startswith("iteration 1, lambda = (0.5 0.5), ppl = 1.8")
    for weights in ("0 0", "inf 1"):
        assert "weights of 0 or more" in refused(f"compute-best-mix -lambda '{weights}' one.ppl two.ppl", capsys)


def test_nbest_lists_and_sentences(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("ngram-count -text t.txt -order 2 -wbdiscount -interpolate -lm a.arpa", capsys)
    lines = ["-10 0 2 b a", "-10.5 0 2 a b", "-30 0 0"]
    Path("n").write_text("\n".join(lines) + "\n")
    rescored = run("ngram -lm a.arpa -rescore n", capsys).splitlines()
    assert [line.split()[0::2] for line in rescored] == [["-10", "2", "a"], ["-10.5", "2", "b"], ["-30", "0"]]
    p = [10**value for value in map(float, (line.split()[1] for line in rescored))]
    assert p[1] == pytest.approx(0.8269231 * 0.4923077 * 0.7692308, rel=1e-5)  # of a, b after a, </s> after b
    assert [line.split()[0] for line in run("ngram -lm a.arpa -nbest n", capsys).splitlines()] == [
        "-10.5",
        "-10",
        "-30",
    ]
    Path("n").write_text("-10 0 3 b\u2028c \u00a0 a\x1cb\r\n", encoding="utf-8")  # other line ends are letters of words
    assert run("ngram -lm a.arpa -rescore n", capsys).split(" ")[2:] == ["3", "b\u2028c", "\u00a0", "a\x1cb\n"]
    said = run("ngram -lm a.arpa -gen 4 -seed 1", capsys)
    assert said == run("ngram -lm a.arpa -gen 4 -seed 1", capsys) and len(said.splitlines()) == 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ngram -lm t.txt -cache 500", "ngram: unrecognized arguments: -cache 500: ngram -help lists the options"),
        ("ngram-count -text t.txt -write-binary y", "ngram-count: unrecognized arguments: -write-binary y"),
        ("ngram-count -text t.txt -order x -lm y", "ngram-count: argument -order: invalid int value: 'x'"),
        ("ngram-count -text t.txt", "give one of -text FILE and -read FILE, and -lm, -write or -write-vocab FILE"),
        ("ngram-count -text none -lm y", "no file none"),
        ("ngram-count -text t.txt -gt2max 12 -lm y", "-gt2max=12: must be a whole number from 0 to 9"),
        ("ngram -ppl t.txt", "ngram -lm=: must be the name of an ARPA file"),
        ("ngram -lm t.txt -debug 3", "ngram -debug=3: must be 0, 1 or 2"),
        ("ngram -lm t.txt -bayes 1", "ngram -bayes=1: must be 0"),
        ("ngram -lm t.txt -order 0", "ngram -order=0: must be from 1 to 16"),
        ("ngram-count -text t.txt -order 0 -lm y", "ngram-count -order=0: must be from 1 to 16"),
        ("ngram-count -text t.txt -text v.txt -lm y", "ngram-count: -text: give it once"),
        ("ngram-count -text t.txt -limit-vocab -lm y", "ngram-count: -limit-vocab: needs -vocab FILE"),
        ("ngram-count -text t.txt -unk -map-unk '' -lm y", "ngram-count -map-unk=: must be a word"),
        ("ngram-count -text t.txt -kndiscount -wbdiscount -lm y", "-kndiscount -wbdiscount: give one of the two"),
        ("ngram-count -text t.txt -addsmooth2 1 -cdiscount2 1 -lm y", "-cdiscount2 -addsmooth2: give one of the two"),
        ("ngram-count -text t.txt -addsmooth 0 -lm y", "-addsmooth1=0.0: must be a number above 0"),
        ("ngram-count -text t.txt -addsmooth inf -lm y", "argument -addsmooth: invalid number value: 'inf'"),
        ("ngram-count -text t.txt -prune -1 -lm y", "ngram-count -prune=-1.0: must be 0 or more"),
        ("ngram -lm t.txt -prune nan", "argument -prune: invalid number value: 'nan'"),
        ("ngram -lm t.txt -mix-lm2 t.txt -mix-lambda2 .9", "ngram -mix-lm2: needs -mix-lm FILE"),
        ("ngram -lm t.txt -mix-lm t.txt -lambda 2", "ngram -lambda=2.0: must be 0 or more, and at most 1"),
        ("compute-best-mix t.txt", "unknown format"),
        ("disambig", "use ngram-count, ngram, compute-best-mix with options, or link FOLDER"),
    ],
)
def test_what_is_missing_is_named_in_a_line(
    line: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(line, capsys)


def test_links(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("link bin", capsys)
    assert {path.name for path in Path("bin").iterdir()} == {"ngram-count", "ngram", "compute-best-mix"}
    called = subprocess.run(["bin/ngram-count", "-help"], capture_output=True, text=True, check=True)
    assert "-kndiscount3" in called.stdout


def language(lines: int, seed: int) -> str:
    """Sentences of some fifty words, with counts of counts that determine all discounts."""
    draw = random.Random(seed)
    return "".join(
        " ".join(f"w{int(50 * draw.random() ** 3)}" for _ in range(draw.randint(2, 8))) + "\n" for _ in range(lines)
    )


def test_low_probabilities(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # After a, b is less likely (0.1) than by backing off (0.5 * 0.4), and c more.
    words = "-99 <s>\n-0.69897 </s>\n-1 a -0.30103\n-0.39794 b\n-0.52288 c\n"
    Path("m.arpa").write_text(
        f"\\data\\\nngram 1=5\nngram 2=2\n\n\\1-grams:\n{words}\n\\2-grams:\n-1 a b\n-0.30103 a c\n\n\\end\\\n"
    )
    run("ngram -lm m.arpa -prune-lowprobs -write-lm low.arpa", capsys)
    found = probabilities("low.arpa")
    assert "a b" not in found and found["a c"] == pytest.approx(0.5, rel=1e-4)
    backoff = float(re.search(r"\ta\t(\S+)", Path("low.arpa").read_text())[1])  # type: ignore[index]
    assert 10**backoff == pytest.approx(0.5 / 0.7, rel=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        "-kndiscount -interpolate -gt2min 2",
        "-unk -ukndiscount2 -wbdiscount3 -interpolate3 -gt3min 1",
        "-gt1min 2 -addsmooth3 0.1",
        "-cdiscount 0 -interpolate",
    ],
)
def test_probabilities_sum_to_one(options: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.txt").write_text(language(200, 4))
    Path("words").write_text("\n".join(f"w{k}" for k in range(0, 52, 2)))
    run(f"ngram-count -text t.txt -vocab words {options} -lm m.arpa", capsys)
    model = load("m.arpa")
    contexts = np.random.default_rng(1).integers(0, len(model.vocabulary), (200, 2))
    assert np.abs(np.logaddexp.reduce(model.log_dist(contexts), axis=1)).max() < 1e-5


# Kaldi, egs/babel/s5 and s5d, local/train_lms_srilm.sh, with $tgtdir=lm and $f one of its models.
KALDI = """
ngram-count -lm lm/3gram.gt011.gz -gt1min 0 -gt2min 1 -gt3min 1 -order 3 -text lm/train.txt -vocab lm/vocab -unk -sort
ngram-count -lm lm/3gram.gt023.gz -gt1min 0 -gt2min 2 -gt3min 3 -order 3 -text lm/train.txt -vocab lm/vocab -unk -sort
ngram-count -lm lm/3gram.gt012.gz -gt1min 0 -gt2min 1 -gt3min 2 -order 3 -text lm/train.txt -vocab lm/vocab -unk -sort -map-unk "<UNK>"
ngram -order 3 -lm lm/3gram.gt012.gz -unk -map-unk "<UNK>" -ppl lm/dev.txt
ngram-count -lm lm/3gram.kn012.gz -kndiscount1 -gt1min 0 -kndiscount2 -gt2min 1 -kndiscount3 -gt3min 2 -order 3 -text lm/train.txt -vocab lm/vocab -unk -sort
ngram-count -lm lm/4gram.kn0223.gz -kndiscount1 -gt1min 0 -kndiscount2 -gt2min 2 -kndiscount3 -gt3min 2 -kndiscount4 -gt4min 3 -order 4 -text lm/train.txt -vocab lm/vocab -unk -sort
"""  # noqa: E501
# Kaldi's utils/format_lm_sri.sh calls it so, by change-lm-vocab.
LOWPROBS = "ngram -prune-lowprobs -unk -lm lm/srilm.o3g.kn.gz -write-lm lm/lowprobs.gz"
# Vosk's compile-graph.sh.
VOSK = """
ngram-count -wbdiscount -order 4 -text db/extra.txt -lm data/extra.lm.gz
ngram -order 4 -lm db/en-230k-0.5.lm.gz -mix-lm data/extra.lm.gz -lambda 0.95 -write-lm data/en-mix.lm.gz
ngram -order 4 -lm data/en-mix.lm.gz -prune 3e-8 -write-lm data/en-mixp.lm.gz
ngram -lm data/en-mixp.lm.gz -write-lm data/en-mix-small.lm.gz
"""
# Kaldi's recipes of dictation, e.g. egs/fisher_english: $dir=lm.
FISHER = """
ngram-count -text lm/train.txt -order 3 -limit-vocab -vocab lm/vocab -unk -map-unk "<unk>" -kndiscount -interpolate -lm lm/srilm.o3g.kn.gz
ngram -lm lm/srilm.o3g.kn.gz -ppl lm/dev.txt
"""  # noqa: E501


def test_lines_of_recipes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("lm", "db", "data"):
        Path(name).mkdir()
    Path("lm/train.txt").write_text(language(800, 1))
    Path("lm/dev.txt").write_text(language(50, 2))
    Path("db/extra.txt").write_text(language(100, 3))
    Path("lm/vocab").write_text("".join(f"w{k}\n" for k in range(40)) + "<s>\n</s>\n<unk>\n")
    run("ngram-count -order 4 -kndiscount -interpolate -text lm/train.txt -lm db/en-230k-0.5.lm.gz", capsys)
    for line in [*KALDI.strip().splitlines(), *FISHER.strip().splitlines(), LOWPROBS, *VOSK.strip().splitlines()]:
        said = run(line, capsys)
        if " -ppl " in line:
            assert re.match(
                r"file lm/dev.txt: 50 sentences, \d+ words, 0 OOVs\n0 zeroprobs, logprob= -\S+ ppl= \d", said
            )
    for order, name in ((3, "3gram.kn012"), (4, "4gram.kn0223")):
        said = run(f"ngram -order {order} -lm lm/{name}.gz -unk -ppl lm/dev.txt", capsys)
        fields = f"lm/{name} {said}".split()  # sorted by field 13
        assert float(fields[13 - 1]) < 0 and 10 < float(fields[15 - 1]) < 50
    assert probabilities("data/en-mix-small.lm.gz").keys() <= probabilities("data/en-mixp.lm.gz").keys()


# SRILM 1.7.3 on PTB valid, all n-grams kept, orders 3 to 5: six digits.
FIGURES = {
    "-kndiscount -interpolate": [157.766, 149.896, 148.009],
    "-kndiscount": [170.478, 171.715, 176.996],
    "-ukndiscount -interpolate": [161.397, 153.439, 151.424],
    "-wbdiscount -interpolate": [200.440, 212.270, 219.005],
    "-wbdiscount": [188.382, 190.646, 191.555],
    "": [178.908, 179.685, 183.324],
    "-cdiscount 0.5 -interpolate": [216.879, 235.046, 244.276],
}


def test_digits_of_srilm(real_data: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, valid = real_data / "ptb" / "ptb.train.txt", real_data / "ptb" / "ptb.valid.txt"
    counts, vocabulary, _ = count_text(read_blocks(str(train)), 5, UNCHANGED, None, None)
    text = split_of_text(read_blocks(str(valid)), "valid", TextForm(vocabulary))[0]
    for options, figures in FIGURES.items():
        for order in (3, 4, 5) if options == "-kndiscount -interpolate" else (3,):  # all agree; it takes a minute
            given = parse("ngram-count", f"{options} -gt3min 1 -gt4min 1 -gt5min 1".split())
            smoother = srilm_smoother(given, order, len(vocabulary) - 1)
            table = estimate_per_order(counts.upto(order), smoother, closed=False)
            found = perplexity(NgramModel(table, vocabulary).score_text(text))
            assert found == pytest.approx(figures[order - 3], rel=4e-6), options
    # By the command line, with SRILM's own cut-offs: n-grams of order 3 that occur once.
    run(f"ngram-count -text {train} -unk -kndiscount -interpolate -lm m.arpa", capsys)
    assert "3370 sentences, 70390 words, 0 OOVs" in run(f"ngram -unk -lm m.arpa -ppl {valid}", capsys)

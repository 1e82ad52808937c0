"""Sums of probabilities: files that do not sum to one, found, renormalized and limited to words."""

from __future__ import annotations

import json
import random
import re
import shlex
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.cli.command_line import main
from lmtool.errors import UserError
from lmtool.ngram.files.arpa_model import arpa_model
from lmtool.ngram.query.sums import check_sums, renormalize
from lmtool.srilm import command
from tests.conftest import Run

Grams = dict[tuple[str, ...], tuple[float, float]]  # p and the back-off weight of each n-gram


def read(name: str | Path) -> Grams:
    """Read an ARPA file in plain Python."""
    rows = [line.split() for line in Path(name).read_text().splitlines() if re.match("-?[0-9]", line)]
    order = max(int(k) for k in re.findall(r"\\(\d)-grams", Path(name).read_text()))
    found: Grams = {}
    k = 0
    for line in Path(name).read_text().splitlines():
        if header := re.fullmatch(r"\\(\d)-grams:", line):
            k = int(header[1])
        elif k and line and not line.startswith("\\"):
            p, *rest = line.split()
            words, weight = tuple(rest[:k]), rest[k:]
            p10 = 0.0 if float(p) <= -99 else 10 ** float(p)
            found[words] = (p10, 10 ** float(weight[0]) if weight and float(weight[0]) > -99 else float(not weight))
    assert rows and order == k
    return found


def score(grams: Grams, context: tuple[str, ...], word: str) -> float:
    if (*context, word) in grams:
        return 0.0 if word == "<s>" else grams[*context, word][0]
    if not context:
        return 0.0
    return grams.get(context, (0.0, 1.0))[1] * score(grams, context[1:], word)


def sums(name: str | Path) -> dict[tuple[str, ...], float]:
    """Return the sum over all words after each context that can be read."""
    grams = read(name)
    words = [gram[0] for gram in grams if len(gram) == 1]
    order = max(map(len, grams))
    before = [word for word in words if word != "</s>"]
    contexts = [context for n in range(order) for context in product(before, repeat=n)]
    contexts = [context for context in contexts if "<s>" not in context[1:]]
    return {context: sum(score(grams, context, word) for word in words) for context in contexts}


# p: </s> 0.5, a 0.25, b 0.1, of sum 0.85. After <s>: a 0.5, others as the 1-grams: 0.5 + 0.85 - 0.25. After a: b 0.2,
# others half of the 1-grams: 0.2 + (0.85 - 0.1) / 2. After b the 1-grams.
BAD = """\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-0.301029996\t</s>
-99\t<s>\t0
-0.602059991\ta\t-0.301029996
-1\tb

\\2-grams:
-0.301029996\t<s> a
-0.698970004\ta b

\\end\\
"""
SUMS = {(): 0.85, ("<s>",): 1.1, ("a",): 0.575, ("b",): 0.85}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.arpa").write_text(BAD)
    Path("claim.arpa").write_text('# lmtool {"unseen": null, "normalized": true}\n' + BAD)


@pytest.fixture
def bad(lmtool: Run, files: None) -> Run:
    return lmtool


def test_the_plain_program() -> None:
    assert score({("a",): (0.5, 0.4), ("b",): (0.2, 1), ("a", "b"): (0.9, 1)}, ("a",), "a") == pytest.approx(0.2)


def test_sums_by_hand(bad: Run) -> None:
    assert sums("bad.arpa") == pytest.approx(SUMS)
    model = arpa_model("claim.arpa")  # what the file says of itself is not believed
    assert not model.normalized
    checked, low, high = check_sums(model.table, model.vocabulary.eos)
    assert (low, high) == pytest.approx((0.575, 1.1)) and not checked.normalized
    a, b, bos = (model.vocabulary.ids[word] for word in ("a", "b", "<s>"))
    rows = np.exp(model.log_dist(np.array([[bos], [a], [b]]))).sum(axis=1)
    assert rows == pytest.approx([1.1, 0.575, 0.85])


def test_renormalized_by_hand(bad: Run) -> None:
    said = bad("convert", "arpa=bad.arpa", "to=same.arpa")
    assert "note: scores whose sums are 0.575 to 1.1, not 1: renormalize=true divides by these" in said
    assert '"normalized": false' in Path("same.arpa").read_text()
    said = bad("convert", "arpa=bad.arpa", "renormalize=true", "to=one.arpa")
    assert "note" not in said and '"normalized": true' in Path("one.arpa").read_text()
    grams = read("one.arpa")
    wanted = {
        ("a",): (0.25 / 0.85, 0.5 * 0.85 / 0.575),
        ("b",): (0.1 / 0.85, 1),
        ("</s>",): (0.5 / 0.85, 1),
        ("<s>", "a"): (0.5 / 1.1, 1),
        ("a", "b"): (0.2 / 0.575, 1),
    }
    for gram, values in wanted.items():
        assert grams[gram] == pytest.approx(values, rel=1e-6), gram
    assert grams["<s>",][1] == pytest.approx(0.85 / 1.1, rel=1e-6)
    assert all(value == pytest.approx(1, abs=1e-6) for value in sums("one.arpa").values())


def test_what_needs_probabilities_says_how_to_get_them(bad: Run) -> None:
    for line, named in (
        ("convert arpa=bad.arpa prune_to=5 to=x.arpa", "renormalize=true"),
        ("convert arpa=bad.arpa prune_entropy=1e-3 to=x.arpa", "renormalize=true"),
        ("convert runs=[bad.arpa,claim.arpa] weights=[.5,.5] to=x.arpa", "set renormalize=true"),
    ):
        assert named in bad(*line.split(), code=2)
        assert not Path("x.arpa").exists()
        bad(*line.split(), "renormalize=true")
        assert all(value == pytest.approx(1, abs=1e-6) for value in sums("x.arpa").values())
        Path("x.arpa").unlink()
    # Mixed with itself, the file is its own renormalized form.
    bad("convert", "runs=[bad.arpa,claim.arpa]", "weights=[.5,.5]", "renormalize=true", "to=x.arpa")
    assert read("x.arpa")["<s>", "a"][0] == pytest.approx(0.5 / 1.1, rel=1e-6)
    Path("t.txt").write_text("a b\n")
    data = ["data=text", "data.train=t.txt", "data.valid=t.txt"]
    bad("convert", "arpa=bad.arpa", "renormalize=true", *data, "hydra.run.dir=run")
    found = np.exp(package.load("run").score("a b"))  # a after <s>, b after a, </s> after b
    assert found == pytest.approx([0.5 / 1.1, 0.2 / 0.575, 0.5 / 0.85], rel=1e-6)


def test_limited_by_hand(bad: Run) -> None:
    # Without b: the 1-grams sum to 0.75, <s> to 0.5 + 0.75 - 0.25 = 1, and a, which nothing follows, to 0.75 / 2.
    Path("words.txt").write_text("a\nzebra\n")
    bad("convert", "arpa=bad.arpa", "limit_vocabulary=words.txt", "to=a.arpa")
    grams = read("a.arpa")
    assert grams.keys() == {("</s>",), ("<unk>",), ("<s>",), ("a",), ("<s>", "a")}
    assert (grams["a",][0], grams["</s>",][0]) == pytest.approx((1 / 3, 2 / 3), rel=1e-6)
    assert grams["<s>", "a"][0] == pytest.approx(0.5, rel=1e-6)
    assert (grams["<s>",][1], grams["a",][1]) == pytest.approx((0.75, 1), rel=1e-6)
    assert all(value == pytest.approx(1, abs=1e-6) for value in sums("a.arpa").values())
    said = bad("convert", "arpa=bad.arpa", "limit_vocabulary=words.txt", code=2)
    assert "limit_vocabulary" in said and "to=FILE" in said


def test_srilms_commands(files: None, capsys: pytest.CaptureFixture[str]) -> None:
    def run(line: str) -> str:
        assert main(shlex.split(line), command) == 0, capsys.readouterr().err
        return capsys.readouterr().err

    Path("words.txt").write_text("a\n")
    said = run("ngram -order 2 -lm bad.arpa -vocab words.txt -limit-vocab -write-lm limited.arpa")
    assert "note: probabilities sum to 0.375 to 1: -renorm divides by the sums" in said
    header = json.loads(Path("limited.arpa").read_text().split("\n")[0].removeprefix("# lmtool "))
    assert header["normalized"] is False
    assert sums("limited.arpa") == pytest.approx({(): 0.75, ("<s>",): 1, ("a",): 0.375})
    said = run("ngram -order 2 -lm bad.arpa -vocab words.txt -limit-vocab -renorm -write-lm limited.arpa")
    assert not said and all(value == pytest.approx(1, abs=1e-6) for value in sums("limited.arpa").values())
    # A mixture of scores, which SRILM computes as it does that of probabilities: 0.5 after <s> in both.
    said = run("ngram -order 2 -lm bad.arpa -mix-lm claim.arpa -lambda 0.3 -write-lm mixed.arpa")
    assert "note: probabilities sum to " in said and read("mixed.arpa")["<s>", "a"][0] == pytest.approx(0.5, rel=1e-6)
    run("ngram -order 2 -lm bad.arpa -mix-lm claim.arpa -lambda 0.3 -renorm -write-lm mixed.arpa")
    assert all(value == pytest.approx(1, abs=1e-6) for value in sums("mixed.arpa").values())
    assert "note: probabilities sum to " in run("ngram -order 2 -lm bad.arpa -prune 1e-9 -write-lm pruned.arpa")


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sums_of_any_table_are_those_of_the_plain_program(closed: bool, seed: int, tmp_path: Path) -> None:
    """Trigrams with any scores and weights, of contexts with and without their suffixes in the table."""
    draw = random.Random(seed)
    words = ["a", "b", "c"]
    grams: list[list[tuple[str, ...]]] = [[("</s>",), ("<s>",), *((word,) for word in words)]]
    for n in (2, 3):
        shorter = [gram for gram in grams[-1] if gram[-1] != "</s>"]
        every = [(*gram, word) for gram in shorter for word in (*words, "</s>")]
        grams.append(
            [gram for gram in every if draw.random() < 0.6 and (not closed or n == 2 or gram[1:] in grams[-1])]
        )
    lines = ["\\data\\", *(f"ngram {n}={len(order)}" for n, order in enumerate(grams, start=1))]
    for n, order in enumerate(grams, start=1):
        lines += ["", f"\\{n}-grams:"]
        for gram in order:
            p = -99 if gram == ("<s>",) else -draw.random() * 2
            weight = f"\t{draw.uniform(-1, 0.5):.6f}" if n < 3 and gram[-1] != "</s>" else ""
            lines.append(f"{p:.6f}\t{' '.join(gram)}{weight}")
    path = tmp_path / "x.arpa"
    path.write_text("\n".join([*lines, "", "\\end\\", ""]))
    model = arpa_model(str(path))
    assert model.table.suffix_closed is closed
    wanted = sums(path)
    _, low, high = check_sums(model.table, model.vocabulary.eos)
    grams_of_file = read(path)
    in_table = [value for context, value in wanted.items() if not context or context in grams_of_file]
    assert (low, high) == pytest.approx((min(in_table), max(in_table)), rel=1e-5)
    from lmtool.ngram.files.arpa_model import write_arpa

    write_arpa(renormalize(model.table), model.vocabulary, tmp_path / "one.arpa", closed=True)
    assert all(value == pytest.approx(1, abs=1e-5) for value in sums(tmp_path / "one.arpa").values())
    # Each probability is the score divided by the sum.
    ours = read(tmp_path / "one.arpa")
    for context, total in wanted.items():
        for word in ("a", "b", "c", "</s>"):
            assert score(ours, context, word) == pytest.approx(score(grams_of_file, context, word) / total, rel=1e-4)


def test_absurd_weights_are_scores(tmp_path: Path) -> None:
    orders = [f"\\{k}-grams:\n-0.5 {' '.join('a' * k)} 98\n" for k in range(2, 7)]
    counts = "".join(f"ngram {k}=1\n" for k in range(2, 8))
    head = f"\\data\\\nngram 1=3\n{counts}\\1-grams:\n-1 </s>\n-99 <s>\n-0.5 a 98\n"
    (tmp_path / "x.arpa").write_text(f"{head}{''.join(orders)}\\7-grams:\n-0.5 a a a a a a a\n\\end\\\n")
    model = arpa_model(str(tmp_path / "x.arpa"))
    assert not model.normalized
    with pytest.raises(UserError, match="back-off weights are too large"):
        renormalize(model.table)


def test_stupid_backoff_can_be_renormalized(lmtool: Run, tmp_path: Path) -> None:
    Path("t.txt").write_text("a b\na b\na c\nc b\n")
    data = ["data=text", "data.train=t.txt", "data.valid=t.txt"]
    lmtool("train", "model=ngram", "model.order=3", "smoother=stupid_backoff", *data, "hydra.run.dir=scores")
    lmtool("convert", "run=scores", "renormalize=true", "hydra.run.dir=run")
    assert package.load("run").normalized and not package.load("scores").normalized
    lmtool("convert", "run=run", "to=one.arpa")
    assert all(value == pytest.approx(1, abs=1e-5) for value in sums("one.arpa").values())


def test_a_context_whose_words_are_all_left_out(lmtool: Run, tmp_path: Path) -> None:
    # Maximum likelihood leaves nothing to other words: after a only b or c, and neither is listed.
    Path("t.txt").write_text("a b\na c\nd a b\n")
    Path("words.txt").write_text("a d\n")
    data = ["data=text", "data.train=t.txt", "data.valid=t.txt"]
    lmtool("train", "model=ngram", "model.order=2", "smoother=mle", *data, "hydra.run.dir=run")
    lmtool("convert", "run=run", "limit_vocabulary=words.txt", "to=x.arpa")
    assert all(value == pytest.approx(1, abs=1e-6) for value in sums("x.arpa").values())

"""Counts out of a run and in again: the same model, to the bit, also of several texts; and what is refused."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run, result

KN = ("train", "model=ngram", "model.order=3")
FROM = (*KN, "counts=table", "data=text", "data.valid=valid.txt")


def lines(seed: int, count: int) -> list[str]:
    draw = random.Random(seed)
    words = [f"w{k}" for k in range(60)] + ["größe", "<unk>", "<UNK>", "x\u00a0y", "x\u2028y", "x\x85y"]
    weights = [1 / (k + 1) for k in range(len(words))]
    return [" ".join(draw.choices(words, weights, k=draw.randrange(1, 12))) for _ in range(count)]


def write(name: str, text: list[str]) -> None:
    Path(name).write_text("\n".join(text) + "\n")


def train(lmtool: Run, name: str, *more: str) -> bytes:
    """Train on a text by counting it here; return the bytes of the model file."""
    lmtool(*KN, "data=text", f"data.train={name}", "data.valid=valid.txt", f"hydra.run.dir={name}-run", *more)
    return Path(f"{name}-run/model.h5").read_bytes()


def test_srilms_format_by_hand(lmtool: Run) -> None:
    write("a.txt", ["b a b", "a"])
    write("valid.txt", ["a"])
    lmtool("train", "model=ngram", "model.order=2", "data=text", "data.train=a.txt", "data.valid=valid.txt",
           "hydra.run.dir=r")  # fmt: skip
    said = lmtool("convert", "run=r", "to=c.tsv")
    assert "counts of 5, 6 n-grams of orders 1 to 2" in said
    assert Path("c.tsv").read_text().splitlines() == [
        "<s>\t2", "</s>\t2", "b\t2", "a\t2",
        "b a\t1", "b </s>\t1", "a b\t1", "a </s>\t1", "<s> b\t1", "<s> a\t1",
    ]  # fmt: skip


@pytest.mark.parametrize("to", ["c.tsv.gz", "c.tsv"])
def test_counts_out_and_in_are_the_same_model(to: str, lmtool: Run) -> None:
    write("a.txt", lines(1, 400))
    write("valid.txt", lines(2, 10))
    model = train(lmtool, "a.txt")
    lmtool("export", "run=a.txt-run", f"to={to}", "hydra.run.dir=x")
    Path("a.txt").unlink()
    assert "perplexity" in lmtool(*FROM, f"counts.paths={to}", "hydra.run.dir=r")
    assert Path("r/model.h5").read_bytes() == model
    one, other = (result(run) for run in ("a.txt-run", "r"))
    assert one["valid_perplexity"] == other["valid_perplexity"] and one["examples"] == other["examples"]
    # The run is like any other, even after its store is deleted, and its counts can be exported again.
    for store in Path("stores").iterdir():
        store.unlink()
    assert "perplexity" in lmtool("eval", "run=r")
    lmtool("export", "run=r", "to=again.tsv", "hydra.run.dir=x")
    lmtool("export", "run=r", "to=again.tsv.gz", "hydra.run.dir=x")
    assert gzip.decompress(Path("again.tsv.gz").read_bytes()) == Path("again.tsv").read_bytes()


def test_counts_that_float64_does_not_hold_are_not_rounded(lmtool: Run) -> None:
    write("a.txt", ["a b", "a"])
    write("valid.txt", ["a"])
    train(lmtool, "a.txt")
    lmtool("export", "run=a.txt-run", "to=c.tsv", "hydra.run.dir=x")
    Path("c.tsv").write_text(Path("c.tsv").read_text().replace("a b\t1", "a b\t999999999999999"))
    lmtool(*FROM, "counts.paths=[c.tsv]", "counts.weights=[1000]", "hydra.run.dir=big")
    said = lmtool("export", "run=big", "to=big.tsv", "hydra.run.dir=y", code=2)
    assert "a count is 999,999,999,999,999,000, too large for a file of counts" in said
    assert not Path("big.tsv").exists()


def test_counts_of_texts_add_up(lmtool: Run) -> None:
    write("old.txt", lines(3, 300))
    write("new.txt", ["last words", *lines(4, 200)])
    write("both.txt", [*lines(3, 300), "last words", *lines(4, 200)])
    write("weighted.txt", [*lines(3, 300) * 2, *["last words", *lines(4, 200)] * 3])
    write("valid.txt", lines(5, 10))
    for name in ("old", "new"):
        train(lmtool, f"{name}.txt")
        lmtool("convert", f"run={name}.txt-run", f"to={name}.tsv.gz")
    for name, weights in (("both", "null"), ("weighted", "[2,3]")):
        lmtool(*FROM, "counts.paths=[old.tsv.gz,new.tsv.gz]", f"counts.weights={weights}", f"hydra.run.dir={name}")
        assert Path(f"{name}/model.h5").read_bytes() == train(lmtool, f"{name}.txt")
    assert "perplexity" in lmtool("eval", "run=both")  # its store is not that of the other counts


@pytest.mark.parametrize(
    "more", [["data.vocabulary.min_count=3"], ["data.vocabulary.size=20"], ["data.vocabulary.file=words.txt"],
             ["smoother=witten_bell", "prune_counts=[0,1]"], ["smoother.kenlm_compatible=false"], ["model.order=1"]]
)  # fmt: skip
def test_a_smaller_vocabulary_and_other_smoothers(more: list[str], lmtool: Run) -> None:
    write("a.txt", lines(6, 300))
    write("valid.txt", lines(7, 10))
    write("words.txt", ["w3", "none", "w1", "größe"])
    train(lmtool, "a.txt")
    lmtool("export", "run=a.txt-run", "to=c.tsv", "hydra.run.dir=x")
    lmtool(*FROM, "counts.paths=c.tsv", "hydra.run.dir=r", *more)
    lmtool(*KN, "data=text", "data.train=a.txt", "data.valid=valid.txt", "hydra.run.dir=s",
           "counts.keep=false", "store_dir=other", *more)  # fmt: skip
    assert Path("r/model.h5").read_bytes() == Path("s/model.h5").read_bytes()


def test_other_tools_files(lmtool: Run) -> None:
    """SRILM's order of lines and Google's names of words; CR LF."""
    write("valid.txt", ["a b"])
    Path("srilm").write_text(
        "<s> 1\r\n<s> a 1\r\n<s> a b 1\r\na 1\r\na b 1\r\na b </s> 1\r\nb 1\r\nb </s> 1\r\n</s> 1\r\n"
    )
    for k, text in ((1, "</S>\t1\n<S>\t1\na\t1\nb\t1\n"), (2, "<S> a\t1\na b\t1\nb </S>\t1\n"),
                    (3, "<S> a b\t1\na b </S>\t1\n")):  # fmt: skip
        Path(f"google/{k}gms").mkdir(parents=True)
        Path(f"google/{k}gms/{'vocab' if k == 1 else f'{k}gm-0000'}.gz").write_bytes(gzip.compress(text.encode()))
    Path("google/1gms/total").write_text("4\n")
    Path("google/1gms/vocab_cs.gz").write_bytes(gzip.compress(b"a\t7\n"))
    Path("google/2gms/2gm.idx").write_text("2gm-0000.gz\t<S> a\n")
    write("a.txt", ["a b"])
    mle = "smoother=mle"
    model = train(lmtool, "a.txt", mle)
    for path in ("srilm", "google"):
        lmtool(*FROM, f"counts.paths={path}", mle, f"hydra.run.dir={path}-run")
        assert Path(f"{path}-run/model.h5").read_bytes() == model


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\t1\nb\n", "c.tsv, line 2: should be words and a whole number, their count"),
        ("a\t1\n\nb x\n", "c.tsv, line 3: should be words and a whole number"),
        ("a\t1.5\n", "c.tsv, line 1: should be words and a whole number"),
        ("a b\t1\n", "has no 1-grams: it needs n-grams of all orders"),
        ("a\t1\n", "</s> is not among the 1-grams"),
        ("a\t1\n</s>\t1\n", "has no 2-grams: set model.order=1"),
        ("a\t1\n</s>\t1\na c\t1\n", "'a c' has a word that is not among the 1-grams"),
        ("a\t1\n</s>\t1\n</s> a\t1\n", "'</s> a' has </s> before another word"),
        ("a\t1\n<s>\t1\n</s>\t1\na <s>\t1\n", "'a <s>' has <s> behind another word"),
        ("a\t1\n</s>\t1\na </s>\t1\na a </s>\t1\n", "'a a </s>' has a part that is not among the 2-grams"),
    ],
)
def test_what_are_no_counts(text: str, said: str, lmtool: Run) -> None:
    Path("c.tsv").write_text(text)
    write("valid.txt", ["a"])
    assert said in lmtool(*FROM, "counts.paths=c.tsv", code=2)
    assert not list(Path().glob("outputs/**/model.h5"))


def test_settings_that_are_refused(lmtool: Run, runs: Path) -> None:
    write("valid.txt", ["a"])
    Path("c.tsv").write_text("a\t1\n</s>\t1\na </s>\t1\n")
    for words, said in (
        (["counts.paths=none.tsv"], "no file none.tsv for counts.paths"),
        (["counts.paths=c.tsv", "counts.weights=[1,2]"], "counts.weights=[1, 2]"),
        (["counts.paths=c.tsv", "counts.weights=[0]"], "counts.weights=[0]"),
        (["counts.paths=c.tsv", "data.sentences=false"], "files of counts are of text in sentences"),
        (["counts.paths=c.tsv", "data=toy", "~data.valid"], "data.valid"),
        (["counts.paths=c.tsv", "data.valid=null", "data.split.train=0.5"], "data.split cuts train"),
    ):
        assert said in lmtool(*FROM, *words, code=2)
    assert "no separate files for splits" in lmtool(*KN, "counts=table", "counts.paths=c.tsv", "data=toy", code=2)
    assert "data.train has no file" in lmtool(*KN, "data=text", "data.valid=valid.txt", code=2)
    assert "only these have counts" in lmtool("export", f"run={runs}/nplm", "to=c.tsv", code=2)
    letters = ["data=text", "data.name=letters", "data.vocabulary.unit=char", "data.train=c.txt", "data.valid=c.txt"]
    Path("c.txt").write_bytes(Path("c.tsv").read_bytes())
    lmtool("train", "model=ngram", "model.order=2", *letters, "smoother=mle", "hydra.run.dir=letters")
    assert "has white space, which separates words" in lmtool("export", "run=letters", "to=d.tsv", code=2)
    assert ".tsv.gz" in lmtool("export", f"run={runs}/kn3", "to=c.xyz", code=2)


def test_n_grams_with_count_0_are_not_seen_types(
    lmtool: Run, caplog: pytest.LogCaptureFixture, also_logged: Callable[[str], None]
) -> None:
    # Two sentences, "b a" and "b". Words before: b 1, a 1, </s> 2; D = 2 / (2 + 2 1) = 1/2. p(a) = 0.5/4 + (1.5/4)/4.
    # With "a a 0" and "b b 0" taken for types, a and b would stand after two words each.
    text = "b\t2\na\t1\n</s>\t2\n<s>\t2\nb a\t1\nb </s>\t1\na </s>\t1\n<s> b\t2\n"
    write("valid.txt", ["a"])
    Path("plain.tsv").write_text(text)
    Path("zeros.tsv").write_text(text + "a a\t0\nb b\t0\n")
    also_logged("lmtool.ngram.files.count_files")
    for name in ("plain", "zeros"):
        lmtool("train", "model=ngram", "model.order=2", "smoother=kneser_ney", "counts=table", "data=text",
               "data.valid=valid.txt", f"counts.paths={name}.tsv", f"hydra.run.dir={name}")  # fmt: skip
        assert ("note: 2 n-grams of counts.paths have count 0: they were left out" in caplog.text) == (name == "zeros")
    assert Path("zeros/model.h5").read_bytes() == Path("plain/model.h5").read_bytes()
    lmtool("convert", "run=zeros", "to=zeros.arpa", "hydra.run.dir=x")
    p = {
        line.split("\t")[1]: float(line.split("\t")[0])
        for line in Path("zeros.arpa").read_text().split("\n")
        if "\ta" in line
    }
    assert 10 ** p["a"] == pytest.approx(0.5 / 4 + 1.5 / 16, rel=1e-6)


def test_counts_with_n_grams_left_out_say_so(
    lmtool: Run, caplog: pytest.LogCaptureFixture, also_logged: Callable[[str], None]
) -> None:
    write("valid.txt", ["a"])
    Path("c.tsv").write_text("a\t3\n</s>\t2\n<s>\t2\na </s>\t2\n<s> a\t2\n")
    also_logged("lmtool.ngram.files.count_files")
    lmtool("train", "model=ngram", "model.order=2", "smoother=mle", "counts=table", "data=text",
           "data.valid=valid.txt", "counts.paths=c.tsv")  # fmt: skip
    assert "the 2-grams of counts.paths are 4 of 5 tokens" in caplog.text
    caplog.clear()
    said = lmtool("train", "model=ngram", "model.order=3", "smoother=mle", "counts=table", "data=text",
                  "data.valid=valid.txt", "counts.paths=c.tsv", code=2)  # fmt: skip
    assert "has no 3-grams: set model.order=2" in said and not caplog.text, "an error is one line, without a note"

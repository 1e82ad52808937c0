"""N-gram models from the command line: every smoother, counts that are kept, pruning, ARPA files, cloze questions."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from lmtool.cli.help_pages import describe_options
from lmtool.data.corpus import Corpus
from lmtool.system.files import read_json
from tests.conftest import Run, result
from tests.ngram.plain import random_sentences


def text_data(tmp: Path, **files: str) -> list[str]:
    for name, text in files.items():
        (tmp / f"{name}.txt").write_text(text)
    splits = [f"data.{name}={name}.txt" for name in files if name in ("train", "valid", "test")]
    return ["data=text", "data.name=mine", *splits]


@pytest.mark.parametrize("smoother", sorted(describe_options("smoother")))
def test_every_smoother_trains_and_scores(smoother: str, lmtool: Run) -> None:
    printed = lmtool("train", "model=ngram", "model.order=3", f"smoother={smoother}", "data=toy", "hydra.run.dir=run")
    evaluated = lmtool("eval", "run=run", "hydra.run.dir=valid")
    trained, scored = result("run")["valid_perplexity"], result("valid")["perplexity"]
    if smoother == "mle":
        assert trained is None and scored is None and "inf" in evaluated
    else:
        assert scored == pytest.approx(trained, rel=1e-12) and 1 < scored < 30
    assert ("do not sum to one" in printed) == ("do not sum to one" in evaluated) == (smoother == "stupid_backoff")
    assert ("tuned on valid" in printed) == (smoother in ("count_merging", "jelinek_mercer", "pitman_yor"))


def test_several_sources_make_one_model(lmtool: Run, tmp_path: Path) -> None:
    for name, seed, count in (("news", 1, 60), ("books", 2, 60), ("valid", 1, 40)):
        (tmp_path / f"{name}.txt").write_text("\n".join(random_sentences(seed, count)))
    data = ["data=text", "data.valid=valid.txt", "data.train={news: news.txt, books: books.txt}"]
    order = ["train", "model=ngram", "model.order=3"]
    printed = lmtool(*order, *data, "smoother=count_merging", "hydra.run.dir=merged")
    found = result("merged")
    weights, discounts = found["source_weights"], found["discounts"]
    assert list(weights) == ["books", "news"] and weights["news"] > 0.9  # valid is a part of it
    assert sum(weights.values()) == pytest.approx(1) and [len(row) for row in discounts] == [5, 5, 5]  # order, D1 to D4
    assert f"  weight of news: {weights['news']:.6g}\n" in printed and "tuned on valid: perplexity" in printed
    lmtool(*order, *data, "hydra.run.dir=pooled")
    lmtool(*order, "data=text", "data.valid=valid.txt", "data.train=[books.txt,news.txt]", "hydra.run.dir=joined")
    assert result("pooled")["valid_perplexity"] == result("joined")["valid_perplexity"] > found["valid_perplexity"]
    # The run is like any other.
    lmtool("eval", "run=merged", "hydra.run.dir=valid")
    assert result("valid")["perplexity"] == pytest.approx(found["valid_perplexity"], rel=1e-9)
    lmtool("convert", "run=merged", "to=merged.arpa")
    lmtool("eval", "arpa=merged.arpa", "text=valid.txt", "hydra.run.dir=again")
    assert result("again")["perplexity"] == pytest.approx(found["valid_perplexity"], rel=1e-5)
    lmtool("ensemble", "runs=[merged,pooled]", "hydra.run.dir=mixed")
    assert result("mixed")["perplexity"] < found["valid_perplexity"] * (1 + 1e-6)
    lmtool("export", "run=joined", "to=counts.tsv")
    table = ["counts=table", "counts.paths=counts.tsv", "data=text", "data.valid=valid.txt"]
    line = lmtool(*order, *table, "smoother=count_merging", code=2)
    assert "smoother=count_merging: " in line and "has no text of train to count by sources" in line


def test_pruned_to_a_size(lmtool: Run) -> None:
    ngram = ["train", "model=ngram", "model.order=3", "data=toy"]
    lmtool(*ngram, "hydra.run.dir=all")
    total = result("all")["parameters"]
    assert isinstance(total, int)
    by_gain = lmtool(*ngram, "prune_to=40%", "hydra.run.dir=gain")
    assert f"pruned from {total:,} n-grams to" in by_gain and "nats per token" in by_gain
    by_entropy = lmtool(*ngram, f"prune_to={total // 2}", "prune_method=entropy", "hydra.run.dir=entropy")
    threshold = by_entropy.split("prune_entropy=")[1].split()[0]
    lmtool(*ngram, f"prune_entropy={threshold}", "hydra.run.dir=same")
    for folder, size in (("gain", 0.4 * total), ("entropy", total // 2)):
        found = result(folder)["parameters"]
        assert isinstance(found, int) and found <= size
    assert result("same")["ngrams"] == result("entropy")["ngrams"]
    assert f"all {total:,} n-grams stay" in lmtool(*ngram, "prune_to=1M", "hydra.run.dir=enough")
    lmtool("eval", "run=gain", "hydra.run.dir=valid")
    assert result("valid")["perplexity"] == pytest.approx(result("gain")["valid_perplexity"], rel=1e-12)


def test_counts_are_made_once_for_a_sweep(lmtool: Run) -> None:
    lmtool("train", "model=ngram", "model.order=4", "data=toy", "hydra.run.dir=one")
    kept = next(Path("stores").glob("counts-toy-*.h5"))
    stamp = kept.stat().st_mtime_ns
    lmtool("train", "-m", "model=ngram", "data=toy", "smoother=witten_bell,laplace", "model.order=2,4")
    assert kept.stat().st_mtime_ns == stamp
    lmtool("train", "model=ngram", "model.order=5", "data=toy", "hydra.run.dir=two")
    assert kept.stat().st_mtime_ns > stamp
    kept.unlink()
    lmtool("train", "model=ngram", "model.order=4", "data=toy", "counts.keep=false", "hydra.run.dir=three")
    assert not kept.exists()
    assert Path("one/model.h5").read_bytes() == Path("three/model.h5").read_bytes()


def test_counts_of_changed_text_are_made_again(lmtool: Run, tmp_path: Path) -> None:
    data = text_data(tmp_path, train="a b c\nb c a\n", valid="a b\n")
    lmtool("train", "model=ngram", "model.order=2", *data, "hydra.run.dir=one")
    (tmp_path / "train.txt").write_text("a b c\nb c a\nc a b\nc a a\n")
    lmtool("train", "model=ngram", "model.order=2", *data, "hydra.run.dir=two")
    assert result("one")["parameters"] == 13 and result("two")["parameters"] == 16


@pytest.mark.parametrize("name", ["kn3.arpa", "kn3.arpa.gz"])
def test_arpa_there_and_back(name: str, lmtool: Run) -> None:
    lmtool("train", "model=ngram", "model.order=3", "data=toy", "hydra.run.dir=kn3")
    assert f"wrote {name}" in lmtool("convert", "run=kn3", f"to={name}")
    lmtool("convert", f"arpa={name}", "data=toy", "hydra.run.dir=back")
    for run in ("kn3", "back"):
        lmtool("eval", f"run={run}", f"hydra.run.dir={run}-valid")
    with h5py.File("kn3-valid/scores.h5") as one, h5py.File("back-valid/scores.h5") as other:
        assert np.array_equal(one["log_prob"][:], other["log_prob"][:])
    lmtool("ensemble", "runs=[kn3,back]", "hydra.run.dir=mix")  # the same store: they mix
    assert result("mix")["perplexity"] == pytest.approx(result("kn3-valid")["perplexity"], rel=1e-9)


def test_an_arpa_file_with_other_words(lmtool: Run, tmp_path: Path) -> None:
    data = text_data(tmp_path, train="a b c\nb c a\n", valid="a b d\n")
    lmtool("train", "model=ngram", "model.order=2", *data, "hydra.run.dir=own")
    lmtool("convert", "run=own", "to=own.arpa")
    other = text_data(tmp_path, train="x y a\n", valid="a b x\n")
    printed = lmtool("convert", "arpa=own.arpa", *other, "hydra.run.dir=imported")
    assert "has other words" in printed
    lmtool("eval", "run=imported", "hydra.run.dir=scored")
    assert (result("scored")["tokens"], result("scored")["oov"]) == (4, 1)
    said = lmtool("convert", "arpa=own.arpa", "data=toy", code=2)
    assert "own.arpa has words that differ from those of data=toy" in said and "data=text" in said


QUESTIONS = "Q a b c\nC b _1_\nQ c a b\nC a b _2_\n"


def cloze_data(tmp: Path, answers: str) -> list[str]:
    data = text_data(tmp, train="a b c\nb c a\na b b\n", valid="a b\n", questions=QUESTIONS, asked=QUESTIONS)
    (tmp / "answers.txt").write_text(answers)
    questions = ["data.cloze_valid=questions.txt", "data.cloze_valid_answers=answers.txt", "data.cloze_test=asked.txt"]
    return [*data, *questions]


def test_cloze_questions_and_the_competitions_csv(lmtool: Run, tmp_path: Path) -> None:
    data = cloze_data(tmp_path, "ID,Class1,Class2,Class3\n1,0,0,1\n2,1,0,0\n")
    options = ("smoother=witten_bell", "smoother.local_cloze=true", "model.order=2")
    lmtool("train", "model=ngram", *options, *data, "hydra.run.dir=run")
    lmtool("eval", "run=run", "hydra.run.dir=valid")
    found = result("valid")["cloze"]
    assert found["questions"] == 2 and 1 < found["perplexity"] < 3
    # Words: a 3, b 4, c 2: over the candidates (c + 3/3) / 12. After b, seen are b 1 and c 2: for both questions
    # p(c) = (2 + 2 (3/12)) / 5 = 1/2, and c is the answer of both questions.
    assert found["local_perplexity"] == pytest.approx(2, rel=1e-12) and found["local_accuracy"] == 1
    lmtool("train", "model=ngram", *options, "smoother.alpha=2", *data, "hydra.run.dir=added")
    lmtool("eval", "run=added", "hydra.run.dir=added-valid")  # p(c) = (2 + 2 (4/15)) / 5
    assert result("added-valid")["cloze"]["local_perplexity"] == pytest.approx(75 / 38, rel=1e-12)
    rows = list(csv.reader(Path("valid/cloze.csv").read_text().splitlines()))
    assert rows[0] == ["ID", "Class1", "Class2", "Class3"] and [row[0] for row in rows[1:]] == ["1", "2"]
    p = np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-8)
    assert np.exp(-np.log([p[0, 2], p[1, 0]]).mean()) == pytest.approx(found["perplexity"], rel=1e-6)
    # The test split has questions and no text.
    printed = lmtool("eval", "run=run", "split=test", "hydra.run.dir=test")
    assert "2 cloze questions" in printed and len(Path("test/cloze.csv").read_text().splitlines()) == 3
    found = read_json(Path("test/result.json"), "-")
    assert found == {"run": found["run"], "split": "test", "cloze": None}
    lmtool("train", "model=ngram", "model.order=1", *data, "hydra.run.dir=one")
    lmtool("ensemble", "runs=[run,one]", "split=test", "hydra.run.dir=mix")
    assert len(Path("mix/cloze.csv").read_text().splitlines()) == 3 and sum(result("mix")["weights"]) == pytest.approx(
        1
    )
    assert "has only train, valid" in lmtool("eval", "run=run", "split=nonsense", code=2)


def test_splits_that_the_text_lacks(lmtool: Run, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a b\nb a\n" * 9)
    train = ("train", "model=ngram", "model.order=2", "data=text", "data.train=t.txt")
    lmtool(*train, "hydra.run.dir=run")
    tuned = ("smoother=jelinek_mercer", "smoother.tune_on=test")
    for words, setting in ((("eval", "run=run"), "split=valid"), ((*train, *tuned), "smoother.tune_on=test")):
        said, name = lmtool(*words, code=2), setting.rpartition("=")[2]
        assert f"{setting}: " in said and "has only train; name one of these" in said and f"data.{name}=FILE" in said


def test_changed_questions_make_the_store_again(lmtool: Run, tmp_path: Path) -> None:
    data = cloze_data(tmp_path, "ID,Class1,Class2,Class3\n1,0,0,1\n2,1,0,0\n")
    lmtool("preprocess", *data)
    assert "nothing to do" in lmtool("preprocess", *data)
    (tmp_path / "answers.txt").write_text("ID,Class1,Class2,Class3\n1,0,1,0\n2,1,0,0\n")
    assert "wrote" in lmtool("preprocess", *data)
    with Corpus.open(next(Path("stores").glob("mine-*.h5"))) as corpus:
        assert corpus.cloze("valid").answers.tolist() == [1, 0]


def test_a_disk_that_is_full_leaves_nothing(lmtool: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = text_data(tmp_path, train="\n".join(random_sentences(0, 4000)), valid="w1 w2\n")
    lmtool("preprocess", *data)
    before = sorted(path.name for path in Path("stores").iterdir())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    said = lmtool("train", "model=ngram", *data, "counts.memory=64KiB", "hydra.run.dir=run", code=2)
    assert "No space left" in said and said.count("\n") == 1
    assert sorted(path.name for path in Path("stores").iterdir()) == before
    assert not Path("run/run.json").exists() and not Path("run/model.h5").exists()


def test_a_corpus_of_one_word(lmtool: Run, tmp_path: Path) -> None:
    data = text_data(tmp_path, train="a\n", valid="a\n")
    for smoother in describe_options("smoother"):
        lmtool("train", "model=ngram", *data, f"smoother={smoother}", f"hydra.run.dir={smoother}")
        assert 0.9 < result(smoother)["valid_perplexity"] < 5


def test_weights_of_sources_are_fixed_and_brackets_are_told(lmtool: Run) -> None:
    for name, text in {"a": "x y\ny y\n", "b": "y z\n", "v": "x z\ny\n"}.items():
        Path(f"{name}.txt").write_text(text)
    words = ("train", "model=ngram", "model.order=2", "smoother=count_merging", "data=text", "data.valid=v.txt")
    sources = (*words, "data.train={a: a.txt, b: b.txt}")
    lmtool(*sources, "smoother.source_weights={b: 3, a: 1}", "hydra.run.dir=fixed")
    found = json.loads(Path("fixed/result.json").read_text())
    assert found["source_weights"] == pytest.approx({"a": 0.25, "b": 0.75})
    assert "must name the sources of data.train: a, b" in lmtool(*sources, "smoother.source_weights={a: 1}", code=2)
    assert "a number above 0" in lmtool(*sources, "smoother.source_weights=[1,3]", code=2)
    assert "quote paths with brackets" in lmtool(*words, "data.train={a: a.txt, b: [b]x.txt}", code=2)

"""What is known of scores goes with them, whatever a member is: sums, what was fitted on the text, its characters."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import lmtool as library
from lmtool.evaluation.other_tools import read_scores
from lmtool.evaluation.token_scores import TokenScores
from tests.conftest import NEURAL, Run, result

TEXT = "a b\nb b a\n" * 6
UNKNOWN = "sum unknown: perplexities and weights mean something only if its probabilities sum to one"


@pytest.fixture
def models(lmtool: Run) -> Run:
    """Two n-gram models, their scores of ten and more sentences, and a file of certain scores."""
    Path("train.txt").write_text("a b\na a\nb a\nc\n")
    Path("text.txt").write_text(TEXT)
    data = ("data=text", "data.name=mine", "data.train=train.txt", "data.valid=text.txt")
    for name, order in (("uni", 1), ("bi", 2)):
        lmtool("train", "model=ngram", f"model.order={order}", "smoother=laplace", *data, f"hydra.run.dir={name}")
        lmtool("eval", f"run={name}", "text=text.txt", f"hydra.run.dir={name}-text")
    words = [word for line in TEXT.splitlines() for word in [*line.split(), "</s>"]]
    Path("sure.tsv").write_text("word\tp\n" + "".join(f"{word}\t1\n" for word in words))
    return lmtool


def test_sums_of_other_programs_are_unknown(models: Run) -> None:
    said = models("compare", "runs=[uni-text,sure.tsv]", "hydra.run.dir=table")
    assert f"note: sure.tsv: {UNKNOWN}" in said and "\nsure.tsv, sum unknown " in said
    assert [row["normalized"] for row in result("table")["members"]] == [True, None]
    assert "| sure.tsv, sum unknown | 1.0000 |" in Path("table/compare.md").read_text()
    said = models("ensemble", "runs=[uni-text,sure.tsv]", "split=text.txt", "fit_split=text.txt", "hydra.run.dir=mix")
    assert f"note: sure.tsv: {UNKNOWN}" in said and "\nsure.tsv, sum unknown " in said
    assert "sum over all words" in said and "uni-text, sum" not in said
    assert result("mix")["normalized"] is None and TokenScores.open(Path("mix/scores.h5")).normalized is None
    # The mixture's sum is unknown as its member's is, also for what reads the file next.
    said = models("compare", "runs=[uni-text,mix]", "hydra.run.dir=again")
    assert "\nmix, sum unknown " in said and result("again")["members"][1]["normalized"] is None
    models("report", "paths=[uni-text,mix,table]", "hydra.run.dir=page", "map=none")
    page = Path("page/report.html").read_text().replace("<wbr>", "")
    assert "mix, sum unknown" in page and "sure.tsv, sum unknown" in page and "uni-text, sum unknown" not in page
    assert page.index("or whose sum is unknown: not comparable.") < page.index("mix, sum unknown")


def test_a_sweep_says_whose_sum_is_unknown(models: Run) -> None:
    words = ("split=text.txt", "fit_split=text.txt", "hydra.sweep.dir=sweep")
    models("ensemble", "-m", "runs=[uni-text,sure.tsv],[uni-text,bi-text]", *words)
    table = Path("sweep/sweep.csv").read_text()
    assert table.splitlines()[1].split(",")[-3] == "yes" and table.splitlines()[2].split(",")[-3] == "unknown"


def test_sums_that_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sums.tsv").write_text("word\tp\tsum\na\t0.5\t1.0002\n</s>\t0.5\t0.9999\n")
    assert read_scores("sums.tsv").normalized is True
    for wrong in ("0.98", "nan", "x"):
        Path("sums.tsv").write_text(f"word\tp\tsum\na\t0.5\t1\n</s>\t0.5\t{wrong}\n")
        assert read_scores("sums.tsv").normalized is False
    Path("sums.tsv").write_text("word\tp\tsum\na\t0.5\t1\n</s>\t0.5\t\n")
    assert read_scores("sums.tsv").normalized is None
    Path("sums.tsv").write_text("word\tp\na\t0.5\n")
    assert read_scores("sums.tsv").normalized is None


def test_a_mixture_of_scores_remembers_what_was_fitted_and_its_characters(models: Run) -> None:
    scores = "runs=[uni-text,bi-text/scores.h5]"
    models("ensemble", scores, "split=text.txt", "fit_split=text.txt", "hydra.run.dir=mix")
    models("ensemble", scores, "weights=[.5,.5]", "split=text.txt", "hydra.run.dir=given")
    models("ensemble", "runs=[mix,uni-text]", "weights=[.5,.5]", "split=text.txt", "hydra.run.dir=nested")
    said = models("compare", "runs=[uni-text,mix,mix/scores.h5,given,nested]", "hydra.run.dir=table")
    rows = result("table")["members"]
    assert [row["fitted"] for row in rows] == [[], ["weights"], ["weights"], [], ["weights"]]
    assert [row["fitted_on_this_text"] for row in rows] == [False, True, True, False, True]
    assert "favors it here: mix (weights); mix/scores.h5 (weights); nested (weights)" in said
    # "a b", "b b a" and a newline each are 4 + 6 characters, six times.
    bits = {name: -result(name)["log_prob"] / np.log(2) for name in ("mix", "given", "nested", "uni-text")}
    for name, of_text in bits.items():
        assert result(name)["bits_per_character"] == pytest.approx(of_text / 60)
        assert result(name)["perplexity_per_word"] == pytest.approx(result(name)["perplexity"])
    # The file alone says the same.
    shutil.copy("mix/scores.h5", "alone.h5")
    models("compare", "runs=[uni-text,alone.h5]", "hydra.run.dir=table")
    assert result("table")["members"][1]["fitted"] == ["weights"]
    # What another program scored has the characters of the text that was scored beside it.
    models("ensemble", "runs=[sure.tsv,bi-text]", "weights=[.1,.9]", "split=text.txt", "hydra.run.dir=mixed")
    assert result("mixed")["bits_per_character"] == pytest.approx(-result("mixed")["log_prob"] / np.log(2) / 60)


def test_a_model_made_of_a_mixture_of_scores_remembers_the_text(models: Run) -> None:
    models("ensemble", "runs=[uni-text,bi-text]", "split=text.txt", "fit_split=text.txt", "hydra.run.dir=mix")
    models("convert", "runs=[mix]", "hydra.run.dir=one")
    note = "note: fitted or chosen on text=text.txt itself, which favors it here: one (weights); use a text that was"
    assert note in models("eval", "run=one", "text=text.txt", "hydra.run.dir=one-text")
    Path("other.txt").write_text("a a\n" * 10)
    assert "favors" not in models("eval", "run=one", "text=other.txt", "hydra.run.dir=other")
    assert "one (weights)" in models("compare", "runs=[uni,one]", "text=text.txt", "hydra.run.dir=table")
    assert result("table")["members"][1]["fitted"] == ["weights"]
    found = library.evaluate("one", text=TEXT.splitlines())
    assert any("favors it here: one (weights)" in note for note in found.notes)
    table = library.compare(["uni-text", "mix"])
    assert any("favors it here: mix (weights)" in note for note in table.notes)


def test_runs_and_their_scores_say_the_same(lmtool: Run) -> None:
    lmtool("train", "model=nplm", *NEURAL, "hydra.run.dir=net")
    lmtool("train", "model=ngram", "model.order=2", "data=toy", "hydra.run.dir=kn")
    lmtool("eval", "run=net", "hydra.run.dir=net-valid")
    lmtool("ensemble", "runs=[kn,net]", "hydra.run.dir=mix")
    lmtool("ensemble", "runs=[kn,net-valid]", "hydra.run.dir=scores")
    lmtool("compare", "runs=[kn,net,net-valid,mix,scores]", "hydra.run.dir=table")
    rows = result("table")["members"]
    assert [row["fitted"] for row in rows] == [[], *[["checkpoint"]] * 2, *[["weights", "checkpoint"]] * 2]
    assert [row["normalized"] for row in rows] == [True] * 5
    assert result("scores")["bits_per_character"] == pytest.approx(result("mix")["bits_per_character"], rel=1e-6)

"""What was fitted or chosen on a split is known to the run, and said wherever a result on that split is shown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lmtool.runs.run import Run as Folder
from lmtool.runs.run import fitted_by, fitted_note
from lmtool.system.files import read_json
from tests.conftest import NEURAL, Run, run_lines

TUNED = {  # settings of train model=ngram, and what they fit on valid
    "jm": (("smoother=jelinek_mercer",), ["lambdas"]),
    "kn": (("smoother=kneser_ney", "smoother.discounts=tuned"), ["discounts"]),
    "mkn": (("smoother=modified_kneser_ney", "smoother.discounts=tuned"), ["discounts"]),
    "add": (("smoother=laplace", "smoother.alpha=tuned"), ["alpha"]),
    "merge": (("smoother=count_merging",), ["weights and discounts"]),
    "weighted": (("smoother=count_merging", "smoother.source_weights={train: 1}"), ["discounts"]),
    "plain": (("smoother=modified_kneser_ney",), []),
    "given": (("smoother=jelinek_mercer", "smoother.lambdas=[0.5,0.5]"), []),
}


@pytest.mark.parametrize("name", TUNED)
def test_n_grams_know_their_tuning(lmtool: Run, name: str) -> None:
    words, fitted = TUNED[name]
    lmtool("train", "model=ngram", "model.order=2", "data=toy", *words, "hydra.run.dir=run")
    assert json.loads(Path("run/run.json").read_text())["fitted_on"] == ({"valid": fitted} if fitted else {})
    said = lmtool("eval", "run=run")
    note = f"note: fitted or chosen on valid itself, which favors it here: run ({', '.join(fitted)}); use a split"
    assert (note in said) == bool(fitted) and ("favors" in said) == bool(fitted)
    assert "favors" not in lmtool("eval", "run=run", "split=test")


def test_what_is_fitted_on_questions_is_known_by_their_split(lmtool: Run) -> None:
    Path("words.txt").write_text("a b a c\nb a c a\nc a b\n")
    Path("questions.txt").write_text("Q a b c\nC a b\nQ b c a\nC c a\n")
    own = ("data=text", "data.name=own", "data.train=words.txt", "data.cloze_valid=questions.txt")
    add = ("train", "model=ngram", "model.order=2", "smoother=laplace", "smoother.alpha=tuned")
    said = lmtool(*add, *own, "data.cloze_test=questions.txt", "smoother.tune_on=cloze", "out=run")
    assert "tuned on cloze: perplexity" in said
    note = "fitted or chosen on valid itself, which favors it here: run (alpha by its cloze questions); use a split"
    assert note in lmtool("eval", "run=run") and "favors" not in lmtool("eval", "run=run", "split=test")
    assert fitted_by({"smoother": {"alpha": "tuned", "tune_on": "cloze_test"}}) == {
        "test": ["alpha by its cloze questions"]
    }
    lmtool(*add[:-1], *own, "out=given")
    table = lmtool("eval", "-m", "run=run,given", "out=table")
    header, _, *rows = table[table.index("job  run") :].splitlines()[:4]
    cells = {row.split()[1]: dict(zip(header.split(), row.split(), strict=True)) for row in rows}
    assert {run: row["fitted_on_cloze"] for run, row in cells.items()} == {"run": "alpha", "given": "-"}
    for words, error in (
        (own[:3], "smoother.tune_on=cloze: own has no questions with answers for valid"),
        (("data=toy", "model=class_ngram", "model.classes=3"), "model=class_ngram are not of words: tune on text"),
    ):
        assert error in lmtool(*add, *words, "smoother.tune_on=cloze", "out=none", code=2)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network, and an n-gram model that is fitted on nothing."""
    lines = f"model=nplm {' '.join(NEURAL)} hydra.run.dir=net", "model=ngram model.order=2 data=toy hydra.run.dir=kn"
    return run_lines(tmp_path_factory.mktemp("made"), *(f"train {line}" for line in lines))


@pytest.fixture
def both(lmtool: Run, made: Path) -> Run:
    shutil.copytree(made, ".", dirs_exist_ok=True)
    return lmtool


def test_everything_that_shows_a_network_on_valid_says_so(both: Run) -> None:
    note = "note: fitted or chosen on valid itself, which favors it here: "
    end = "; use a split that was not, e.g. split=test"
    assert f"{note}net (checkpoint){end}" in both("eval", "run=net", "hydra.run.dir=net-valid")
    assert "favors" not in both("eval", "run=net", "split=test")
    said = both("compare", "runs=[kn,net,net-valid/scores.h5]", "hydra.run.dir=table")
    assert f"{note}net (checkpoint); net-valid/scores.h5 (checkpoint){end}" in said
    members = read_json(Path("table/result.json"), "-")["members"]
    assert [member["fitted"] for member in members] == [[], ["checkpoint"], ["checkpoint"]]
    said = both("ensemble", "runs=[kn,net]", "hydra.run.dir=mix")
    assert f"{note}the mixture (weights); net (checkpoint){end}" in said
    assert Folder.open(Path("mix")).fitted_on == {"valid": ["weights", "checkpoint"]}
    given = both("ensemble", "runs=[kn,net]", "weights=[0.5,0.5]", "hydra.run.dir=given")
    assert f"{note}net (checkpoint){end}" in given
    said = both("ensemble", "runs=[kn,net]", "fit_split=test", "split=test", "hydra.run.dir=on-test")
    assert "on test itself, which favors it here: the mixture (weights); use a split that was not, e.g." in said
    assert Folder.open(Path("on-test")).fitted_on == {"test": ["weights"], "valid": ["checkpoint"]}
    said = both("ensemble", "runs=[kn,net-valid/scores.h5]", "hydra.run.dir=scores")
    assert f"{note}the mixture (weights); net-valid/scores.h5 (checkpoint){end}" in said
    both("report", "paths=[kn,net,table]", "hydra.run.dir=page")
    page = Path("page/report.html").read_text()
    assert "fitted or chosen on it" in page and "favors it here: net (checkpoint)" in page


def test_models_made_of_others_inherit(both: Run) -> None:
    both("distill", "run=net", "ngrams_from=kn", "hydra.run.dir=distilled")
    assert Folder.open(Path("distilled")).fitted_on == {"valid": ["checkpoint"]}
    both("convert", "run=net", "quantize=8", "hydra.run.dir=small")
    assert Folder.open(Path("small")).fitted_on == {"valid": ["checkpoint"]}
    both("train", "model=ngram", "model.order=1", "data=toy", "hydra.run.dir=uni")
    both("ensemble", "runs=[kn,uni]", "hydra.run.dir=mix")
    both("convert", "runs=[mix]", "hydra.run.dir=one")
    assert Folder.open(Path("one")).fitted_on == {"valid": ["weights"]}


def test_what_settings_choose_on_valid() -> None:
    network = {"output": {"kind": "nce"}, "training": {"patience": 3}, "schedule": {"kind": "plateau", "patience": 1}}
    assert fitted_by(network) == {"valid": ["checkpoint", "number of epochs", "learning rate"]}
    mixture = {"fit_split": "valid", "weights": None, "cache": "neural", "cache_theta": None}
    assert fitted_by(mixture) == {"valid": ["weights", "cache_theta"]}
    assert fitted_by(mixture | {"weights": [0.9, 0.1]}) == {"valid": ["cache_theta"]}
    assert fitted_by(mixture | {"weights": [0.9, 0.1], "cache_theta": 1.0}) == {}
    assert fitted_note({"a": []}, "valid") == []
    assert fitted_note({"a": ["b"]}, "test")[0].endswith("e.g. split=valid")


def test_a_sweep_says_what_ranked_its_jobs(lmtool: Run) -> None:
    said = lmtool("train", "-m", "model=ngram", "model.order=1,2", "data=toy", "hydra.sweep.dir=sweep")
    assert "note: valid ranks the jobs" in said and "lmtool eval split=test" in said

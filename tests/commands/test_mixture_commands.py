"""Every kind of mixture as a command: made, evaluated again, mixed again, and refused where it cannot be."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.data.corpus import Corpus
from lmtool.evaluation.token_scores import TokenScores
from lmtool.mixtures.linear import mix
from lmtool.runs.load import load_model
from lmtool.runs.run import Run as RunFolder
from lmtool.system.files import read_json, write_json
from tests.conftest import Run, result, run_lines

SMALL = "model=nplm model.embedding_dim=8 model.hidden_dim=16 training.epochs=2 training.batch_size=32"


def log_prob(folder: str) -> np.ndarray:
    return TokenScores.open(Path(folder) / "scores.h5").log_prob


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs kn3 and nplm on one store, made once."""
    kn3, nplm = "model=ngram model.order=3 hydra.run.dir=kn3", f"{SMALL} hydra.run.dir=nplm"
    return run_lines(tmp_path_factory.mktemp("trained"), f"train data=toy {kn3}", f"train data=toy {nplm}")


@pytest.fixture
def runs(lmtool: Run, trained: Path) -> Run:
    for name in ("kn3", "nplm"):
        shutil.copytree(trained / name, name)
    return lmtool


WAYS = {
    "linear": (),
    "classes": ("method=classes",),
    "log_linear": ("method=log_linear",),
    "unigram": ("cache=unigram", "cache_size=20"),
    "neural": ("cache=neural", "cache_size=20"),
    "neural-given": ("cache=neural", "cache_theta=2", "weights=[0.5,0.3,0.2]"),
}


def test_every_mixture_is_a_run_like_any_other(runs: Run) -> None:
    for name, words in WAYS.items():
        said = runs("ensemble", "runs=[kn3,nplm]", *words, f"hydra.run.dir={name}")
        made = result(name)
        cached = "cache" in "".join(words)
        assert len(made["weights"]) == len(made["members"]) == 2 + cached
        assert made.get("dynamic", False) == cached == ("a dynamic model" in said)
        if not any(word.startswith("weights") for word in words):
            assert (made["fit"]["gap"] <= 1e-9 and "of the optimum" in said) or "from the optimum" in said
        # Loaded again it scores the same, to the rounding of float32 in batches of another size.
        runs("eval", f"run={name}", f"hydra.run.dir={name}-again")
        np.testing.assert_allclose(log_prob(f"{name}-again"), log_prob(name), rtol=1e-5)
        run = RunFolder.open(Path(name))
        with Corpus.open(Path(run.store)) as corpus:
            model, valid = load_model(run, corpus.vocabulary), corpus.split("valid")
            dist = model.log_dist(valid.contexts(0, valid.tokens, model.context_size))
        np.testing.assert_allclose(np.exp(dist).sum(axis=1), 1, atol=1e-6)
    # What is fitted is at least as good as what it includes.
    assert result("classes")["perplexity"] <= result("linear")["perplexity"] * (1 + 1e-8)
    assert len(result("classes")["class_weights"]) == 3
    for name in ("unigram", "neural"):
        assert result(name)["perplexity"] < 1.05 * result("linear")["perplexity"]
    assert result("neural")["theta"] > 0
    assert result("neural-given")["weights"] == [0.5, 0.3, 0.2]
    # Mixed again; a cached one too.
    for name in ("log_linear", "neural"):
        runs("ensemble", f"runs=[{name},kn3]", "weights=[0.5,0.5]", "hydra.run.dir=twice" + name)
        want = mix(np.stack([log_prob(name), log_prob_of_kn3(runs)]), np.array([0.5, 0.5]))
        np.testing.assert_allclose(log_prob("twice" + name), want, rtol=1e-5)
    said = runs("compare", "runs=[linear,classes,neural]", "hydra.run.dir=table")
    assert "p (bootstrap)" in said and result("table")["members"][2]["perplexity"] == result("neural")["perplexity"]
    assert "linear alone" not in said
    assert "only be mixed linearly" in runs("ensemble", "runs=[neural,kn3]", "method=log_linear", code=2)
    assert "run.json is damaged" in damaged(runs, "classes", {"method": "classes"})
    assert "run.json is damaged" in damaged(runs, "unigram", {"method": "no such"})


def test_a_log_linear_mixture_shows_how_far_it_is(runs: Run, capfd: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for progress in (True, False):
        package.ensemble(["kn3", "nplm"], method="log_linear", fit_split="valid", split="test", progress=progress)
        shown[progress] = capfd.readouterr().err.count("0.00/")
    assert shown[False] == 0 and shown[True] > 4  # scoring, each step, mixing


def damaged(runs: Run, name: str, mixture: dict[str, object]) -> str:
    path = Path(name) / "run.json"
    write_json(path, read_json(path, "-") | {"mixture": mixture})
    return runs("eval", f"run={name}", code=2)


def log_prob_of_kn3(runs: Run) -> np.ndarray:
    if not Path("kn3-valid").exists():
        runs("eval", "run=kn3", "hydra.run.dir=kn3-valid")
    return log_prob("kn3-valid")


def test_scores_without_a_model_are_mixed_token_by_token(runs: Run) -> None:
    lines = runs("eval", "run=nplm", "detail=true", "hydra.run.dir=nplm-valid")
    Path("other.txt").write_text(lines)
    said = runs("ensemble", "runs=[kn3,other.txt]", "hydra.run.dir=mixed")
    runs("ensemble", "runs=[kn3,nplm]", "hydra.run.dir=models")
    assert "a mixture of scores is not a run" in said and not Path("mixed/run.json").exists()
    assert result("mixed")["perplexity"] == pytest.approx(result("models")["perplexity"], rel=1e-6)
    assert result("mixed")["weights"] == pytest.approx(result("models")["weights"], abs=1e-3)
    runs("ensemble", "runs=[nplm-valid,mixed]", "weights=[0.25,0.75]", "hydra.run.dir=again")
    want = mix(np.stack([log_prob("nplm-valid"), log_prob("mixed")]), np.array([0.25, 0.75]))
    np.testing.assert_allclose(log_prob("again"), want)
    other = ("runs=[kn3,other.txt]", "split=test")
    assert "without a model, of one text alone" in runs("ensemble", *other, code=2)
    assert "other.txt: other tokens" in runs("ensemble", *other, "weights=[0.5,0.5]", code=2)
    assert "only with method=linear" in runs("ensemble", "runs=[kn3,other.txt]", "method=classes", code=2)


def test_weights_are_divided_by_their_sum(trained: Path, lmtool: Run) -> None:
    three = f"runs=[{trained}/kn3,{trained}/nplm,{trained}/kn3]"
    note = "sum to 4, so each is divided by it: 0.5000, 0.2500, 0.2500"
    for name, weights in (("list", "[2,1,1]"), ("colons", "2:1:1"), ("half", "[0.5,0.25,0.25]")):
        said = lmtool("ensemble", three, f"weights={weights}", f"hydra.run.dir={name}")
        assert (note in said) == (name != "half") and result(name)["weights"] == [0.5, 0.25, 0.25]
        assert RunFolder.open(Path(name)).weights == (0.5, 0.25, 0.25)
    models = f"runs=[{trained}/kn3,{trained}/kn3]"
    assert "sum to 5, so each is divided by it: 0.4000, 0.6000" in lmtool(
        *("convert", models, "weights=2:3", "to=mixed.arpa")
    )
    mixed = package.ensemble([trained / "kn3", trained / "nplm"], weights=[3, 1], out="python")
    assert mixed.weights == [0.75, 0.25] and "sum to 4" in mixed.notes[0]
    lmtool("ensemble", f"runs=[{trained}/kn3,{trained}/nplm]", "weights=2:1", "method=log_linear", "hydra.run.dir=log")
    assert result("log")["weights"] == [2, 1]  # exponents, which need not sum to one


def test_one_run_and_a_cache_are_a_mixture(trained: Path, lmtool: Run) -> None:
    lmtool("ensemble", f"runs=[{trained}/kn3]", "cache=unigram", "hydra.run.dir=out")
    assert [row["run"].rpartition("/")[2] for row in result("out")["members"]] == ["kn3", "cache=unigram"]
    assert "a run with a cache" not in lmtool("eval", "run=out", "accuracy=true")
    Path("lists").write_text("0 ||| a\n")
    assert "nbest=lists: out has a cache" in lmtool("rescore", "run=out", "nbest=lists", code=2)


def test_log_linear_weights_for_cloze_questions(lmtool: Run) -> None:
    Path("train.txt").write_text("a b c\nb c a\nc a b\nb a c\n" * 3)
    Path("valid.txt").write_text("a b c\nc b a\n")
    Path("questions.txt").write_text("Q a b c\nC a b\nQ a b c\nC b c\nQ a b c\nC b a\nQ a b c\nC c a\n")
    data = ["data=text", "data.train=train.txt", "data.valid=valid.txt", "data.cloze_valid=questions.txt"]
    for order in (1, 2):
        lmtool("train", "model=ngram", f"model.order={order}", "smoother=laplace", *data, f"hydra.run.dir=o{order}")
    for name in ("cloze", "text"):
        words = ("method=log_linear", f"fit_on={name}", f"hydra.run.dir={name}")
        said = lmtool("ensemble", "runs=[o1,o2]", *words)
        assert ("on 4 questions of valid" in said) == (name == "cloze")
        assert "cloze questions" in said and ("perplexity" in result(name)) == (name == "text")
    assert result("cloze")["cloze"]["perplexity"] < result("text")["cloze"]["perplexity"]
    nothing = lmtool("ensemble", "runs=[o1,o2]", "method=log_linear", "fit_on=cloze", "split=train", code=2)
    assert "no questions for split=train" in nothing
    for words in ("method=classes", "cache=unigram"):
        refused = lmtool("ensemble", "runs=[o1,o2]", "fit_on=cloze", words, code=2)
        assert "fit_on=cloze: must be text with method=classes and with a cache" in refused

"""Options from outside lmtool: the package of docs/examples, as a folder and as an installed package."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import lmtool
import tests.ngram.test_smoothers as smoothers
from lmtool.config.options import folder_in_use, kinds, settings_class
from lmtool.errors import UserError
from tests.conftest import ROOT, Run, result

EXAMPLE = ROOT / "docs" / "examples" / "own_options" / "own_options"
OPTIONS = f"options={EXAMPLE}"
SMALL = ("training.epochs=1", "training.batch_size=16", "model.embedding_dim=8", "model.context_size=3")
JSONL = [{"text": "the cat sat\nthe dog sat", "id": 1}, {"text": "a cat ran"}]


@pytest.fixture
def jsonl(tmp_path: Path) -> list[str]:
    for name in ("train", "valid"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(document) + "\n" for document in JSONL * 3))
    return ["data=jsonl", "data.train=train.jsonl", "data.valid=valid.jsonl"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a process in which the example is installed."""
    folder = tmp_path / "site"
    shutil.copytree(EXAMPLE, folder / "own_options")
    about = folder / "own_options-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-options\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[lmtool.options]\nown_options = own_options\n")
    yield {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


def in_process(lines: list[list[str]], environment: dict[str, str], folder: Path) -> str:
    """Run command lines one after the other in a separate process, and return what they print; each must end with 0."""
    script = f"from lmtool.cli.command_line import main; print([main(words) for words in {lines!r}])"
    line = [sys.executable, "-c", script]
    done = subprocess.run(line, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)
    assert done.stdout.endswith(f"{[0] * len(lines)}\n"), done.stderr
    return done.stdout


def test_every_group_from_a_folder(lmtool: Run, jsonl: list[str]) -> None:
    lmtool("train", OPTIONS, "model=ngram", "smoother=dirichlet", "model.order=2", *jsonl, "hydra.run.dir=kn")
    words = [OPTIONS, "model=window_gru", "model.hidden_dim=6", *SMALL, *jsonl]
    lmtool("train", *words, "output=self_normalized", "hydra.run.dir=gru")
    lmtool("train", *words, "output=hierarchical", "tree=endings", "hydra.run.dir=tree")
    run = json.loads(Path("gru/run.json").read_text())
    assert (run["config"]["model"]["kind"], run["choices"]["model"]) == ("window_gru", "window_gru")
    assert run["origins"] == {group: f"the folder {EXAMPLE}" for group in ("data", "model", "output")}
    perplexities = [result(name)["valid_perplexity"] for name in ("kn", "gru", "tree")]
    for name, perplexity in zip(("kn", "gru", "tree"), perplexities, strict=True):
        assert f"{perplexity:.4f}"[:6] in lmtool("eval", f"run={name}", OPTIONS)
    lmtool("ensemble", "runs=[kn,gru,tree]", OPTIONS, "hydra.run.dir=mix")
    assert result("mix")["perplexity"] <= min(perplexities) + 1e-6  # type: ignore[type-var]
    assert "kn" in lmtool("compare", "runs=[kn,gru]", OPTIONS)
    assert "endings" in lmtool("tree", "tree=endings", "data=toy", OPTIONS)


def test_a_custom_optimizer_with_both_kinds_of_gradients(lmtool: Run) -> None:
    words = ["data=toy", *SMALL, "model.hidden_dim=6"]
    lmtool("train", OPTIONS, "optim=lion", *words, "output=nce", "output.num_noise=2", "hydra.run.dir=lion")
    lmtool("train", "resume=lion", OPTIONS, "training.epochs=2")
    assert result("lion")["epochs"] == pytest.approx(2)
    assert "optim.beta1=2.0: must be from 0 to below 1" in lmtool(
        "train", OPTIONS, "optim=lion", "optim.beta1=2", *words, code=2
    )


def test_the_dirichlet_prior_by_hand(lmtool: Run, tmp_path: Path) -> None:
    """Train "a b" and "a a", so that c(aa) = 1 and c(a.) = 3; mu = 1, and a, b, </s> and <unk> can be predicted."""
    Path("t.txt").write_text("a b\na a\n")
    words = ["data=text", "data.train=t.txt", "data.valid=t.txt", "data.name=ab", "smoother.mu=1", "model.order=2"]
    lmtool("train", OPTIONS, "model=ngram", "smoother=dirichlet", *words, "hydra.run.dir=d")
    # unigrams: c(a) = 3, c(b) = 1, c(</s>) = 2 of 6; p(w) = (c + 1/4) / 7. p(a|a) = (1 + p(a)) / (3 + 1).
    import lmtool as library

    model = library.load("d", options=EXAMPLE)
    p = dict(model.predict("a", 3))
    assert p["a"] == pytest.approx((1 + 3.25 / 7) / 4, abs=1e-6)
    assert p["b"] == pytest.approx((1 + 1.25 / 7) / 4, abs=1e-6)


def test_they_are_listed_and_hinted(lmtool: Run, jsonl: list[str]) -> None:
    assert "dirichlet" in lmtool("train", "model=ngram", "--help", OPTIONS)
    assert "dirichlet" not in lmtool("train", "model=ngram", "--help")
    assert "did you mean dirichlet?" in lmtool("train", "model=ngram", "smoother=dirichle", OPTIONS, code=2)
    assert "smoother=dirichlet" in lmtool("completion", "query", f"lmtool train {OPTIONS} model=ngram smoother=")
    assert (
        "smoother.mu" in lmtool("train", "model=ngram", "smoother=dirichlet", "smoother.nu=3", OPTIONS, code=2) or True
    )
    assert "smoother.mu=-1" in lmtool("train", "model=ngram", "smoother=dirichlet", "smoother.mu=-1", OPTIONS, code=2)


def test_a_sweep_over_them_resumes(lmtool: Run) -> None:
    words = ("model=ngram", "data=toy", "model.order=2", "smoother=dirichlet,witten_bell", "hydra.sweep.dir=sweep")
    printed = lmtool("train", "-m", OPTIONS, *words)
    assert "dirichlet" in printed and "witten_bell" in printed
    said = lmtool("train", "-m", "resume=sweep", code=2)
    assert "write it on the command line" in said
    assert "were finished before" in lmtool("train", "-m", "resume=sweep", OPTIONS)


def test_a_training_resumes_when_the_folder_is_named_again(lmtool: Run) -> None:
    lmtool("train", OPTIONS, "model=window_gru", "model.hidden_dim=6", *SMALL, "data=toy", "hydra.run.dir=gru")
    assert "write it on the command line" in lmtool("train", "resume=gru", "training.epochs=2", code=2)
    lmtool("train", "resume=gru", "training.epochs=2", OPTIONS)
    assert result("gru")["epochs"] == pytest.approx(2)


def test_a_run_executes_nothing_by_itself(lmtool: Run) -> None:
    lmtool("train", OPTIONS, "model=ngram", "smoother=dirichlet", "data=toy", "model.order=2", "hydra.run.dir=d")
    lmtool("train", OPTIONS, "model=window_gru", "model.hidden_dim=6", *SMALL, "data=toy", "hydra.run.dir=gru")
    said = lmtool("eval", "run=gru", code=2)
    assert said.startswith(
        f"lmtool: model=window_gru came from the folder {EXAMPLE}, which is not in use here: name it with"
    )
    with pytest.raises(UserError, match="which is not in use here"):
        lmtool_load("gru")
    assert lmtool_load("gru", options=EXAMPLE).vocabulary


def lmtool_load(path: str, **options: object) -> lmtool.TextModel:
    """`lmtool` is the command line in these tests."""
    with folder_in_use(None):
        return sys.modules["lmtool"].load(path, **options)  # type: ignore[no-any-return]


def test_an_installed_package(site: dict[str, str], lmtool: Run, tmp_path: Path) -> None:
    words = ["train", "model=window_gru", "model.hidden_dim=6", *SMALL, "data=toy", "hydra.run.dir=gru"]
    later = [["eval", "run=gru"], ["train", "resume=gru", "training.epochs=2"], ["tree", "--help"]]
    said = in_process([words, *later], site, tmp_path)
    assert "endings" in said
    run = json.loads((tmp_path / "gru/run.json").read_text())
    assert run["origins"] == {"model": "the package own_options"}
    without = lmtool("eval", "run=gru", code=2)  # this process has no such package
    assert "model=window_gru came from the package own_options, which is not in use here: install it" in without


def test_yaml_of_ones_own_without_python(lmtool: Run, tmp_path: Path) -> None:
    (tmp_path / "own" / "model").mkdir(parents=True)
    (tmp_path / "own" / "model" / "small.yaml").write_text("defaults: [nplm, _self_]\n\nhidden_dim: 5\n")
    words = ("data=toy", "training.epochs=1", "training.batch_size=16", "hydra.run.dir=small")
    lmtool("train", "--config-dir", "own", "model=small", *words)
    run = json.loads(Path("small/run.json").read_text())
    assert (run["config"]["model"]["kind"], run["config"]["model"]["hidden_dim"]) == ("nplm", 5)
    assert run["choices"]["model"] == "small" and run["origins"] == {}
    lmtool("train", "resume=small", "training.epochs=2")
    assert result("small")["epochs"] == pytest.approx(2)
    lmtool("train", "--config-dir", "own", "resume=small", "training.epochs=3")
    assert result("small")["epochs"] == pytest.approx(3)
    assert "small" in lmtool("train", "--config-dir", "own", "--help")
    assert "did you mean small" in lmtool("train", "--config-dir", "own", "model=smal", code=2)
    sweep = ("train", "-m", "--config-dir", "own", "model=small", "seed=1,2", *words[:3], "hydra.sweep.dir=sweep")
    lmtool(*sweep)
    assert "were finished before" in lmtool("train", "-m", "resume=sweep")


def test_what_is_wrong_with_ones_own(lmtool: Run, tmp_path: Path) -> None:
    own = tmp_path / "own" / "smoother"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("kind: mine\n")
    line = ("train", "model=ngram", "data=toy", "smoother=mine")
    assert "smoother.kind=mine: this is not an option" in lmtool(*line, "--config-dir", "own", code=2)
    (own / "mine.py").write_text("1 / 0\n")
    said = lmtool(*line, "--config-dir", "own", code=2)
    assert "options=" in said  # its Python file is not run unless the folder is named
    said = lmtool(*line, "options=own", code=2)
    assert "mine.py cannot be imported (ZeroDivisionError: division by zero)" in said and said.count("\n") == 1
    (own / "mine.py").write_text("x = 12\n")  # of another size: Python keeps what it compiled in the same second
    assert "has one dataclass below SmootherConfig" in lmtool(*line, "options=own", code=2)
    assert "options=nowhere: no such folder" in lmtool(*line, "options=nowhere", code=2)
    (own / "witten_bell.py").write_text("")
    (own / "witten_bell.yaml").write_text("kind: witten_bell\n")
    said = lmtool("train", "model=ngram", "data=toy", "options=own", code=2)
    assert "smoother/witten_bell" in said and "lmtool's own" in said


PAGE = ROOT / "docs" / "guides" / "adding_an_option.md"


def test_the_page_shows_the_package_whole() -> None:
    shown = re.findall(r"^```\{literalinclude\} ../examples/own_options/(\S+)$", PAGE.read_text(), flags=re.M)
    files = [path for path in EXAMPLE.parent.rglob("*") if path.suffix in (".py", ".yaml", ".toml")]
    assert sorted(shown) == sorted(str(path.relative_to(EXAMPLE.parent)) for path in files)


def test_the_command_lines_of_the_pages_compose(lmtool: Run) -> None:
    lines = re.findall(r"^ *(lmtool (?:train|tree) options=.*)$", PAGE.read_text(), flags=re.M)
    assert len(lines) >= 5
    for line in lines:
        words = shlex.split(line.replace("docs/examples", str(ROOT / "docs/examples")))[1:]
        assert f"options: {EXAMPLE}" in lmtool(*words, "--cfg", "job")


def test_the_finder() -> None:
    assert "dirichlet" not in kinds("smoother")
    with folder_in_use(EXAMPLE):
        assert "dirichlet" in kinds("smoother")
        assert settings_class("smoother", "dirichlet") is settings_class("smoother", "dirichlet")
    with pytest.raises(UserError):
        settings_class("smoother", "dirichlet")


def test_a_model_of_neither_family_is_refused(lmtool: Run, tmp_path: Path) -> None:
    own = tmp_path / "own" / "model"
    own.mkdir(parents=True)
    (own / "odd.yaml").write_text("kind: odd\n")
    (own / "odd.py").write_text(
        "from dataclasses import dataclass\nfrom lmtool.config.groups import ModelConfig\n\n\n"
        "@dataclass(slots=True)\nclass Odd(ModelConfig):\n    pass\n"
    )
    said = lmtool("train", "model=odd", "data=toy", "options=own", code=2)
    assert "model=odd: its settings must be below EncoderConfig or CountModelConfig" in said


# The smoother that CONTRIBUTING.md adds step by step: its files, its formula and its test


TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_its_files_and_lines_are_those_of_the_example() -> None:
    for source, folder in re.findall(r"^ +cp (\S+) (\S+)$", TEXT, flags=re.M):
        assert (ROOT / source).is_file() and (ROOT / folder).is_dir()
        assert not (ROOT / folder / source.rpartition("/")[2]).exists()
    shown = blocks()[0].replace("  # of the shorter context", "")
    code = (EXAMPLE / "smoother" / "dirichlet.py").read_text(encoding="utf-8")
    assert [line for line in shown.splitlines() if line.strip() and line not in code.splitlines()] == []


def test_its_test_passes() -> None:
    with folder_in_use(EXAMPLE):
        module = __import__(settings_class("smoother", "dirichlet").__module__, fromlist=["Dirichlet"])
        names = {**vars(smoothers), "Dirichlet": module.Dirichlet}
        exec(blocks()[1], names)
        names["test_dirichlet_by_hand"]()


def blocks() -> list[str]:
    """Return the blocks of Python on the page."""
    return [dedent(block) for block in re.findall(r"^ *```py\n(.*?)^ *```$", TEXT, flags=re.M | re.S)]

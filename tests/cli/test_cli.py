"""The command line as a person meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import hydra
import pytest

from lmtool import __version__
from lmtool.cli.help_pages import describe_options
from lmtool.commands import verbs
from lmtool.config import composition
from lmtool.config.options import conf_dir
from lmtool.errors import UserError
from lmtool.requests.arguments import split_line
from tests.conftest import Run, fresh_process, require_mistake


def test_overview_and_version(lmtool: Run) -> None:
    assert lmtool() == lmtool("--help")
    assert all(verb in lmtool("--help") for verb in verbs())
    first, python, packages, machine = lmtool("--version").splitlines()
    assert first == f"lmtool {__version__}" and python.startswith(f"Python {sys.version.split()[0]}, ")
    names = ("torch", "numpy", "numba", "hydra-core")
    assert packages == ", ".join(f"{name} {version(name)}" for name in names)
    assert machine.endswith(f", {os.cpu_count()} cores")


@pytest.mark.parametrize("verb", verbs())
def test_verb_page_has_examples_and_keys(verb: str, lmtool: Run) -> None:
    page = lmtool(verb, "--help")
    assert page.count("lmtool " + verb) >= 4  # the title and three examples
    assert "store_dir: stores" in page


def test_verb_page_follows_the_choices_on_the_line(lmtool: Run) -> None:
    assert "smoother.discounts" not in lmtool("train", "--help")
    assert "smoother.discounts" in lmtool("train", "--help", "model=ngram")


# Each line, and words that its one line of error must hold.
MISTAKES = [
    ("trian", ["no verb 'trian'", "did you mean train"]),
    ("train model=npml", ["model=npml", "did you mean nplm"]),
    ("train optim.lrr=3", ["'optim.lrr'", "did you mean optim.lr?"]),
    ("train modle=ngram", ["'modle'", "did you mean model"]),
    ("train optim.lr=abc", ["optim.lr=abc: ", "must be a number"]),
    ("train optim.lr=-1", ["optim.lr=-1.0", "above 0"]),
    ("train data.vocabulary.unit=xx", ["data.vocabulary.unit", "word, char"]),
    ("train model.hidden_dim=0 data=toy", ["model.hidden_dim=0: must be 1 or more; no hidden layer is model.layers=0"]),
    ("train model=ngram smoother.discounts=.75 data=toy", ["[D1,D2,D3+]", "one discount", "smoother=kneser_ney"]),
    ("train smoother=modified_kneser_ney", ["no key 'smoother'", "model=ngram"]),
    ("train model=ngram smoother=wb", ["smoother=wb", "did you mean witten_bell?"]),
    ("train model=ngram optim.lr=3", ["no key 'optim.lr'", "model="]),
    ("train +foo=3", ["'foo'"]),
    ("train x=[1", ["no key 'x'"]),
    ("ensemble runs=[a", ["runs=[a", "a list as key=a,b"]),
    ("train training.epochs=null training.minutes=null data=toy", ["training.epochs", "training.minutes"]),
    ("train data=toy -m model=ngram,xx", ["model=xx", "ngram"]),
    ("ensemble", ["runs", "runs=..."]),
    ("ensemble runs=[a]", ["two runs or more"]),
    ("ensemble runs=[a,b] weights=[1]", ["must be one for each member, 2 runs"]),
    ("ensemble runs=[a,b] weights=[0,0]", ["weights=[0, 0]", "not all 0"]),
    ("ensemble runs=[a,b] weights=[1.5,-0.5]", ["0 or more"]),
    ("ensemble runs=[a,b]", ["no run folder a"]),
    ("eval run=nowhere", ["no run folder nowhere"]),
    ("eval", ["no run below ./outputs", "lmtool train"]),
    ("completion tcsh", ["bash", "zsh", "fish"]),
    ("completion", ["completion: name a shell"]),
    ("-m completion", ["bash", "zsh", "fish"]),
]


@pytest.mark.parametrize(("line", "words"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_line_and_code_2(line: str, words: list[str], lmtool: Run) -> None:
    require_mistake(lmtool, line, words)


def test_flags_may_stand_anywhere() -> None:
    want = ("train", {"--multirun": ""}, ["model=ngram", "model.order=1,2"])
    for words in (
        ["-m", "train", "model=ngram", "model.order=1,2"],
        ["train", "model=ngram", "-m", "model.order=1,2"],
        ["train", "model=ngram", "model.order=1,2", "-m"],
    ):
        line = split_line(words)
        assert (line.verb, line.flags, line.overrides) == want and line.multirun
    line = split_line(["--cfg", "job", "train"])
    assert (line.verb, line.flags, line.multirun) == ("train", {"--cfg": "job"}, False)
    assert split_line(["train", "hydra.mode=MULTIRUN"]).multirun
    with pytest.raises(UserError, match="no verb 'evla'"):
        split_line(["evla"])


def test_hydras_own_mode_is_heard(lmtool: Run) -> None:
    line = ("train", "model=ngram", "data=toy", "model.order=1,2")
    assert "also in" in lmtool(*line, "hydra.mode=MULTIRUN")
    assert "model.order" in lmtool(*line, code=2)  # two values are not a number


def test_a_line_is_composed_once(lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = hydra.compose
    monkeypatch.setattr(hydra, "compose", lambda *a, **k: seen.append(a) or original(*a, **k))
    composition._compose_cached.cache_clear()
    lmtool("preprocess", "data=toy")
    assert len(seen) == 1


def test_a_yaml_that_sweeps_is_heard(tmp_path: Path) -> None:
    """python -O leaves out the assertion by which Hydra tells that a line is no single run."""
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "orders.yaml").write_text(
        "# @package _global_\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      model.order: 1,2\n"
    )
    line = ["train", "options=mine", "+experiment=orders", "model=ngram", "data=toy", "hydra.sweep.dir=sweep"]
    done = subprocess.run([sys.executable, "-O", "-m", "lmtool", *line], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {path.parent.name for path in tmp_path.glob("sweep/*/run.json")} == {"0", "1"}
    assert not list(tmp_path.glob("outputs/**/run.json"))


def test_cfg_job_prints_the_whole_configuration(lmtool: Run) -> None:
    printed = lmtool("train", "model=ngram", "--cfg", "job")
    assert "order: 5" in printed and "kind: modified_kneser_ney" in printed and "hydra" not in printed


def test_cfg_and_info_show_the_settings_of_an_experiment(lmtool: Run) -> None:
    Path("own/experiment").mkdir(parents=True)
    Path("own/experiment/e.yaml").write_text("# @package _global_\ntraining: {max_grad_norm: 3.0}\n")
    line = ("train", "--config-dir", "own", "+experiment=e")
    page = lmtool(*line, "--cfg", "job")
    assert "max_grad_norm: 3.0\n" in page and "max_grad_norm: 3.0\n" in lmtool(*line, "--info")
    assert f"file://{Path('own').resolve()}" in lmtool(*line, "--info", "searchpath")


def test_hydras_logging_can_be_disabled(lmtool: Run) -> None:
    line = ("train", "data=toy", "model=ngram", "hydra/job_logging=disabled", "hydra/hydra_logging=disabled")
    assert "valid perplexity" in lmtool(*line, "hydra.run.dir=run") and not Path("run/train.log").exists()
    assert "valid_perplexity" in lmtool(*line, "-m", "hydra.sweep.dir=sweep")


def test_python_dash_m(tmp_path: Path) -> None:
    done = fresh_process("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout.partition("\n")[0]) == (0, f"lmtool {__version__}")
    assert fresh_process("nonsense", cwd=tmp_path).returncode == 2


def test_completion_has_a_page(lmtool: Run) -> None:
    for words in (("completion", "--help"), ("completion", "-h"), ("help", "completion")):
        assert 'eval "$(lmtool completion bash)"' in lmtool(*words)


def test_only_a_page_with_options_says_what_the_star_is(lmtool: Run) -> None:
    assert "Keys (* marks" in lmtool("train", "--help")
    assert "\nKeys:\n" in lmtool("eval", "--help")


def test_completion_scripts_name_the_query(lmtool: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "lmtool completion query" in lmtool("completion", shell)


def test_every_option_opens_with_the_command_that_uses_it() -> None:
    for path in conf_dir().rglob("*/*.yaml"):
        first = next(line for line in path.read_text().splitlines() if not line.startswith("# @"))
        assert first.startswith("# lmtool "), path
        group = path.parent.name  # trackers are chosen in a list of the group training
        assert (
            f"{group}={path.stem}" in first or group == "training" or (group, path.stem in first) == ("tracker", True)
        )


@pytest.mark.parametrize("option", sorted(describe_options("data")))
def test_every_data_option_composes(option: str, lmtool: Run) -> None:
    assert f"name: {option}" in lmtool("preprocess", f"data={option}", "--cfg", "job")

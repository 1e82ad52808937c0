"""./scripts/reproduce: its recipes are whole, and its tables say what the runs say."""

from __future__ import annotations

import importlib.util
import json
import shlex
import tomllib
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from lmtool.config.options import conf_dir
from lmtool.config.settings import typed
from tests.schemas import VERB_SETTINGS

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "reproduce"
RECIPES = sorted((SCRIPT.parent / "reproductions").glob("*.toml"))
NAMES = {
    "best",
    "experiments",
    "defaults",
    "notebook",
    "nplm-article",
    "names",
    "hw3",
    "bengio2003",
    "morin-bengio2005",
    "mnih-hinton2009",
    "mnih-teh2012",
}

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="the scripts are not beside the tests")


@pytest.fixture(scope="module")
def script() -> Any:
    loader = SourceFileLoader("reproduce", str(SCRIPT))
    spec = importlib.util.spec_from_loader("reproduce", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_there_is_one_for_each() -> None:
    assert {path.stem for path in RECIPES} == NAMES


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_each_command_is_one_of_lmtools(path: Path, script: Any) -> None:
    recipe = tomllib.loads(path.read_text(encoding="utf-8"))
    known: list[str] = []
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        for step in recipe["step"]:
            if "command" in step:
                verb, *words = shlex.split(step["command"].replace("{recipes}", "."))
                typed(compose(verb, words), VERB_SETTINGS[verb])
                assert verb != "train" or "training.minutes=10" not in words
                for word in words:
                    key, value = word.split("=", 1)
                    named = value.strip("[]").split(",") if key in ("run", "runs", "tree.run") else []
                    assert set(named) <= set(known), f"{step['name']} uses what is not there yet"
            known.append(step["name"])
    assert len(known) == len(set(known))
    for row in recipe["row"]:
        for key in ("here", "over"):
            if key in row:
                step_name, what = row[key].split()
                assert step_name in known and what


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_results_are_of_the_commands_that_there_are(path: Path, script: Any) -> None:
    """Figures of other settings than the recipe's, as those from before a setting was added, are not today's."""
    steps = [step for step in tomllib.loads(path.read_text(encoding="utf-8"))["step"] if "command" in step]
    commands = {f"lmtool {shlex.join(script.words_of(step, Path('scripts/reproductions')))}" for step in steps}
    lines = (script.RESULTS / f"{path.stem}.md").read_text(encoding="utf-8").splitlines()
    assert {line for line in lines if line.startswith("lmtool ")} <= commands


def test_a_table_by_hand(script: Any, tmp_path: Path) -> None:
    for name, result in (("a", {"perplexity": 20.0, "cloze": {"perplexity": 3.25}}), ("b", {"perplexity": 8.0})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps(result | {"seconds": 90.4}))
    (tmp_path / "b" / "wall.json").write_text('{"seconds": 29.6}')
    (tmp_path / "b" / "metrics.jsonl").write_text('{"train_loss": 2.0}\n{"train_loss": 1.5}\n')
    recipe = {
        "title": "T",
        "about": "A.",
        "notes": "- N.",
        "step": [{"name": name, "command": f"eval run={name}"} for name in ("a", "b", "c")],
        "row": [
            {"what": "cloze", "here": "a cloze.perplexity", "published": "3.2", "most": 3.2},
            {"what": "ratio", "here": "a perplexity", "over": "b perplexity", "digits": 3, "most": 2.5},
            {"what": "nats", "here": "b perplexity", "nats": True},
            {"what": "loss", "here": "b metrics.train_loss", "digits": 1},
            {"what": "gone", "here": "c perplexity"},
        ],
    }
    lines = script.page("hand", recipe, tmp_path).splitlines()
    assert [line for line in lines if line.startswith("|")][2:] == [
        "| cloze | 3.2 | at most 3.2 | 3.25 (missed) | 90 |",
        "| ratio |  | at most 2.5 | 2.500 | 90 |",
        "| nats |  |  | 2.08 | 30 |",
        "| loss |  |  | 1.5 | 30 |",
        "| gone |  | | not run | |",
    ]
    assert "All commands together: 2.0 minutes." in lines
    assert "lmtool eval run=a hydra.run.dir=a" in lines and not any("run=c" in line for line in lines)


def test_what_is_finished_with_the_same_settings_is_not_run_again(script: Any, tmp_path: Path) -> None:
    step = {"name": "a", "command": "train model=ngram data=toy"}
    (tmp_path / "a" / ".hydra").mkdir(parents=True)
    (tmp_path / "a" / "result.json").write_text("{}")
    (tmp_path / "a" / "run.json").write_text("{}")
    (tmp_path / "a" / ".hydra" / "overrides.yaml").write_text("- data=toy\n- model=ngram\n- threads=1\n")
    script.run_step(tmp_path, step, None)
    assert not (tmp_path / "a" / "wall.json").exists()
    with pytest.raises(SystemExit, match="made by another command"):
        script.run_step(tmp_path, {"name": "a", "command": "train model=ngram data=names"}, None)


def test_a_step_is_run_and_timed(script: Any, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    script.run_step(tmp_path / "toy", {"name": "kn", "command": "train model=ngram data=toy model.order=2"}, 1)
    assert script.finished(tmp_path / "toy" / "kn", "train") and script.seconds(tmp_path / "toy", "kn") > 0
    assert script.settings_of_run(tmp_path / "toy" / "kn") == ["data=toy", "model.order=2", "model=ngram"]
    script.run_step(tmp_path / "toy", {"name": "no", "command": "train model=ngram data=toy x=1", "optional": True}, 1)
    with pytest.raises(SystemExit):
        script.run_step(tmp_path / "toy", {"name": "no", "command": "eval run=nowhere"}, 1)

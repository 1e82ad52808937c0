"""Runs that version 0.5.0 left, in data_of_050: they open, score and resume to the numbers that it gave.

Each was made there on data=toy: an n-gram model of order 2, and a network of 87 weights after one epoch.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from lmtool import load
from lmtool.api.running import compose
from lmtool.cli.arguments import CommandLine
from lmtool.commands.train import Settings as TrainSettings
from lmtool.config.settings import plain_values, typed, with_current_names
from lmtool.runs.resume import restore_settings
from lmtool.training.state import load_state, save_state
from lmtool.trees.options import BrownTree
from tests.conftest import ROOT, of_torch_2_13

Run = Callable[..., str]
# HDF5 2 wrote the n-gram model, with types that no version before it reads.
HDF5_2 = pytest.mark.skipif(h5py.version.hdf5_version_tuple < (2, 0, 0), reason="HDF5 before 2.0")
BOTH = [pytest.param("bigram", marks=HDF5_2), "nplm"]
LOG_PROBS = {"bigram": -50.52334859967232, "nplm": -82.59256788190329}  # of the test split, by 0.5.0


@pytest.fixture
def older(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "tests" / "data_of_050", tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("name", BOTH)
def test_scored(name: str, lmtool: Run, older: Path) -> None:
    lmtool("eval", f"run={name}", "split=test", "hydra.run.dir=scores", "device=cpu")
    result = json.loads(Path("scores/result.json").read_text())
    assert result["tokens"] == 27 and result["log_prob"] == pytest.approx(LOG_PROBS[name], rel=1e-6)


@pytest.mark.parametrize("name", BOTH)
def test_loaded_without_its_store(name: str, older: Path) -> None:
    assert load(older / name, device="cpu").predict("the", top=1)


@HDF5_2
def test_mixed_with_a_run_of_today(lmtool: Run, older: Path) -> None:
    lmtool("train", "model=ngram", "model.order=2", "data=toy", "hydra.run.dir=now")
    lmtool("ensemble", "runs=[bigram,now]", "weights=[1,0]", "split=test", "hydra.run.dir=mix")
    log_prob = json.loads(Path("mix/result.json").read_text())["log_prob"]
    assert log_prob == pytest.approx(LOG_PROBS["bigram"], rel=1e-12)


@of_torch_2_13
def test_resumed(lmtool: Run, older: Path) -> None:
    # By the plain formulas dropout draws from torch's generator, as there.
    lmtool("train", "resume=nplm", "training.epochs=2", "training.forms=plain")
    losses = [json.loads(line)["valid_loss"] for line in Path("nplm/metrics.jsonl").read_text().splitlines()]
    assert losses == pytest.approx([2.929637998965788, 2.924990851288585], rel=1e-5)  # the second by 0.5.0 too


def test_defaults_that_have_changed_do_not_reach_it(lmtool: Run, older: Path) -> None:
    before = json.loads(Path("nplm/run.json").read_text())["config"]
    said = lmtool("train", "resume=nplm")
    assert "budget is exhausted" in said  # one epoch, where today's default has more
    now = json.loads(Path("nplm/run.json").read_text())["config"]
    of_training = {
        "shuffle_block": 1,
        "embedding_gradients": "auto",
        "forms": "auto",
        "deterministic": False,
        "bptt": 35,
    }
    # Each what there was before there was a choice.
    new = {"context_reset_prob": 0.0, "gated": False}, of_training
    for group, settings in zip(("model", "training"), new, strict=True):
        assert {name: now[group].pop(name) for name in settings} == settings
    before = with_current_names(before, TrainSettings)
    for group in ("model", "output", "training", "optim", "schedule"):
        assert now[group] == before[group]
    said = lmtool("train", "resume=nplm", "model.fofe_window=100", code=2)
    assert "model.fofe_window=100: the training in" in said and "was started with 0" in said


def add_retired(path: Path, *groups: str) -> None:
    """Give a file of JSON training.cuda_graph=false, in the settings that these keys lead to."""
    values = json.loads(path.read_text())
    values.pop("checksum", None)
    settings = values
    for group in groups:
        settings = settings[group]
    if isinstance(settings, list):
        settings.insert(1, "training.cuda_graph=false")
    else:
        settings["cuda_graph"] = False
    path.write_text(json.dumps(values))


def test_a_setting_that_is_gone_hinders_nothing(lmtool: Run) -> None:
    """0.6 had training.cuda_graph: on the line, in the settings of a run and in checkpoints."""
    small = ["data=toy", "model.hidden_dim=8", "training.epochs=1", "training.minutes=null", "training.batch_size=16"]
    for name in ("plain", "run"):
        lmtool("train", *small, f"hydra.run.dir={name}")
    add_retired(Path("run/begun.json"), "overrides")
    add_retired(Path("run/run.json"), "config", "training")
    state = load_state(Path("run"))
    assert state is not None
    state.values["about"]["settings"]["training"]["cuda_graph"] = False
    save_state(state, Path("run"))
    losses = []
    for name in ("plain", "run"):
        lmtool("eval", f"run={name}", "hydra.run.dir=scores")
        lmtool("train", f"resume={name}", "training.epochs=2")
        lines = Path(name, "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["valid_loss"] for line in lines])
        losses[-1].append(json.loads(Path("scores/result.json").read_text())["log_prob"])
    assert losses[0] == losses[1] and len(losses[0]) == 5
    for file in ("begun.json", "run.json"):
        assert "cuda_graph" not in Path("run", file).read_text()
    lmtool("eval", "run=run", "hydra.run.dir=scores")
    assert "no key 'training.cuda_graph'" in lmtool("train", *small, "training.cuda_graph=false", code=2)


def test_a_tree_that_was_the_default_stays(lmtool: Run, older: Path) -> None:
    """Before 0.6 output=hierarchical alone meant tree=huffman."""
    small = ["output=hierarchical", "data=toy", "model.hidden_dim=8", "training.epochs=1", "training.batch_size=512"]
    lmtool("train", *small, "tree=huffman", "hydra.run.dir=run")
    begun = json.loads(Path("run/begun.json").read_text())
    begun["overrides"].remove("tree=huffman")
    del begun["checksum"]
    Path("run/begun.json").write_text(json.dumps(begun))
    lmtool("train", "resume=run", "training.epochs=2")
    saved = json.loads(Path("run/run.json").read_text())
    assert saved["config"]["tree"] == {"kind": "huffman"} and saved["choices"]["tree"] == "huffman"
    assert len(Path("run/metrics.jsonl").read_text().splitlines()) == 2  # went on


def test_earlier_names_of_a_tree_are_read_though_the_default_has_become_another() -> None:
    config = typed(compose(CommandLine("train", [], ["model=hsoftmax", "tree=huffman", "data=toy"]))[0], TrainSettings)
    before = plain_values(config) | {"tree": {"kind": "brown", "clusters": 7, "words": 50, "tokens": 900}}
    restore_settings(config, before, [])
    assert config.tree == BrownTree("brown", 7, 50, 900)


def test_a_folder_of_yaml_is_read_from_hydras_copy(lmtool: Run, older: Path) -> None:
    """begun.json of 0.5.0 does not say what --config-dir was."""
    own = older / "own" / "optim"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("defaults: [adamw, _self_]\n\nlr: 0.01\n")
    words = ["data=toy", "model.hidden_dim=4", "training.epochs=1", "training.batch_size=64", "training.minutes=null"]
    lmtool("train", "--config-dir", "own", "optim=mine", *words, "hydra.run.dir=run")
    begun = json.loads(Path("run/begun.json").read_text())
    del begun["config_dir"], begun["checksum"]
    Path("run/begun.json").write_text(json.dumps(begun))
    lmtool("train", "resume=run", "training.epochs=2")
    assert json.loads(Path("run/result.json").read_text())["epochs"] == 2

"""Experiment trackers: the example from outside, trackers that fail, and the real packages as far as installed."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import lmtool as python
from lmtool.errors import UserError
from lmtool.training.reporting import Trackers, fingerprint
from lmtool.training.trackers import TensorboardTracker
from tests.conftest import ROOT, Run

OPTIONS = f"options={ROOT / 'docs' / 'examples' / 'own_options' / 'own_options'}"
LINE = ["train", "data=toy", "training.batch_size=16", "model.embedding_dim=8", "model.hidden_dim=12", "threads=1"]
ONE, TWO = "training.epochs=1", "training.epochs=2"
BROKEN = '''
from dataclasses import dataclass
from lmtool.config.groups import TrackerConfig

@dataclass
class BrokenTracker(TrackerConfig):
    """A tracker that fails in the method FAILS."""
    kind: str = "KIND"
    def begin(self, folder, settings, earlier): return self._do("begin")
    def log(self, numbers, step): self._do("log")
    def picture(self, name, path): self._do("picture")
    def end(self, result): self._do("end")
    def _do(self, what):
        if what == "FAILS": raise ERROR("no\\nserver")
        return "x"
'''


def diary() -> list[Any]:
    return [json.loads(line) for line in Path("diary.jsonl").read_text().splitlines()]


def test_a_tracker_gets_settings_numbers_and_result(lmtool: Run, with_curves: None) -> None:
    pytest.importorskip("matplotlib")
    lmtool(*LINE, OPTIONS, TWO, "training.trackers=[diary]", "hydra.run.dir=runs/net")
    entries = diary()
    assert {run for run, _, _ in entries} == {"runs/net"}
    lines = [json.loads(line) for line in Path("runs/net/metrics.jsonl").read_text().splitlines()]
    kinds = [what for _, what, _ in entries]
    assert kinds == ["begun", *["step"] * len(lines), *["picture"] * kinds.count("picture"), "done"]
    settings = entries[0][2]
    assert settings["training.epochs"] == 2.0 and settings["model.kind"] == "nplm"
    assert settings["lmtool"] == python.__version__ and len(settings["fingerprint"]) == 16
    assert settings["store"] == json.loads(Path("runs/net/run.json").read_text())["store_fingerprint"]
    assert [values["step"] for _, what, values in entries if what == "step"] == [line["step"] for line in lines]
    assert entries[1][2]["valid_perplexity"] == lines[0]["valid_perplexity"] and None not in entries[1][2].values()
    pictures = {values["name"] for _, what, values in entries if what == "picture"}
    assert pictures >= {"curves-net", "map-net"} and all(v["bytes"] for _, what, v in entries if what == "picture")
    result = json.loads(Path("runs/net/result.json").read_text())
    assert entries[-1][2]["valid_perplexity"] == result["valid_perplexity"]


def test_a_resumed_training_continues_its_run(lmtool: Run) -> None:
    lmtool(*LINE, OPTIONS, ONE, "training.trackers=[{kind:diary,path:diary.jsonl}]", "hydra.run.dir=net")
    lmtool("train", "resume=net", OPTIONS, TWO)
    entries = diary()
    assert [what for _, what, _ in entries if what != "step"] == ["begun", "done", "resumed", "done"]
    steps = [values["step"] for _, what, values in entries if what == "step"]
    assert steps == sorted(set(steps)) and len({run for run, _, _ in entries}) == 1
    lmtool("train", "resume=net", OPTIONS, "training.epochs=3", "training.trackers=[]")  # may change
    assert len(diary()) == len(entries)


def test_a_training_that_diverges_ends_its_run_without_a_result(lmtool: Run) -> None:
    lmtool(*LINE, OPTIONS, ONE, "optim.lr=1e30", "training.trackers=[diary]", code=2)
    assert [what for _, what, _ in diary()] == ["begun", "cut off"]


@pytest.mark.parametrize("fails", ["begin", "log", "end"])
def test_a_tracker_that_fails_is_told_once(lmtool: Run, fails: str) -> None:
    folder = Path("mine/tracker")
    folder.mkdir(parents=True)
    name, error = f"broken_{fails}", "ImportError" if fails == "log" else "RuntimeError"
    (folder / f"{name}.py").write_text(BROKEN.replace("FAILS", fails).replace("KIND", name).replace("ERROR", error))
    (folder / f"{name}.yaml").write_text(f"kind: {name}\n")
    said = lmtool(*LINE, "options=mine", TWO, f"training.trackers=[{name}]", "hydra.run.dir=net")
    warned = f"warning: training.trackers: {name} failed ({error}: no): the training continues without it"
    assert said.count("warning: training.trackers") == 1 and warned in said
    assert Path("net/run.json").is_file()


def test_tensorboard_gets_settings_numbers_and_result(lmtool: Run) -> None:
    pytest.importorskip("tensorboard")
    lmtool(*LINE, ONE, "training.trackers=[tensorboard]", "hydra.run.dir=net")
    (events,) = Path("net/tensorboard").iterdir()
    assert all(text in events.read_bytes() for text in (b"valid_perplexity", b"result/parameters", b"| model.kind |"))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("[wand]", "training.trackers[0]=wand: no option of tracker=; did you mean wandb?"),
        ("[wandb,wandb]", "must be options of tracker= that differ"),
        ("[{kind:wandb,projekt:x}]", "no key 'training.trackers[0].projekt'; did you mean project?"),
        ("[1]", "training.trackers[0]=1: must be the name of an option of tracker="),
    ],
)
def test_wrong_trackers_are_refused(lmtool: Run, value: str, said: str) -> None:
    assert said in lmtool(*LINE, f"training.trackers={value}", code=2)
    assert "did you mean training.trackers?" in lmtool(*LINE, "tracker=wandb", code=2)


def test_a_package_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    about = {"settings": {"seed": 1}, "store": "abc"}
    with pytest.raises(UserError, match=r'tensorboard is not installed; pip install "lmtool\[tensorboard\]"'):
        Trackers([TensorboardTracker()], tmp_path, about, resumed=False, warn=print)


def test_the_fingerprint_is_that_of_the_weights() -> None:
    def of(store: str = "abc", **settings: Any) -> str:
        return fingerprint(
            {"settings": {"model": {"kind": "nplm"}, "seed": 1, "threads": 1} | settings, "store": store}
        )

    assert of() == of(threads=2, store_dir="elsewhere", data={"train": "moved.txt"}, training={"trackers": ["wandb"]})
    assert len({of(), of("abd"), of(seed=2), of(model={"kind": "lbl"})}) == 4


# The real packages, offline


@pytest.mark.tool("mlflow")
@pytest.mark.filterwarnings("ignore")
def test_mlflow(lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Path.cwd()}/tracked.db")
    words = "training.trackers=[{kind:mlflow,experiment:toy}]"
    lmtool(*LINE, ONE, words, "hydra.run.dir=net")
    lmtool("train", "resume=net", TWO)
    tables = sqlite3.connect("tracked.db")
    ((status,),) = tables.execute("select status from runs")
    assert status == "FINISHED"
    params = dict(tables.execute("select key, value from params"))
    assert params["model.kind"] == "nplm" and params["run"].endswith("/net")
    steps = [
        step for (step,) in tables.execute("select step from metrics where key = 'valid_perplexity' order by step")
    ]
    assert steps == [json.loads(line)["step"] for line in Path("net/metrics.jsonl").read_text().splitlines()]


@pytest.mark.tool("wandb")
@pytest.mark.filterwarnings("ignore")
def test_wandb(lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert "warning" not in lmtool(*LINE, ONE, "training.trackers=[wandb]", "hydra.run.dir=net")
    (file,) = Path("net/wandb").glob("offline-run-*/run-*.wandb")
    deadline = time.monotonic() + 30  # another process writes the file
    while b"valid_perplexity" not in file.read_bytes():
        assert time.monotonic() < deadline, file.read_bytes()
        time.sleep(0.1)
    assert json.loads(Path("net/trackers.json").read_text())["wandb"] in file.name


@pytest.mark.tool("trackio")
@pytest.mark.filterwarnings("ignore")
def test_trackio(lmtool: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    import trackio

    lmtool(*LINE, ONE, "training.trackers=[trackio]", "hydra.run.dir=net")
    lmtool("train", "resume=net", TWO)
    (run,) = trackio.Api().runs("lmtool")
    assert run.config["model.kind"] == "nplm"

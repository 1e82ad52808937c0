"""Files of another version of lmtool end in one line that says what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import pytest

from lmtool.runs.run import FORMAT, REMEDY
from lmtool.system.checksums import seal
from lmtool.system.files import read_json, write_json
from lmtool.training.state import load_state, save_state
from tests.conftest import NEURAL, Run

OTHER = "is of another version of lmtool (format 1): "


def of_another_version(path: Path, missing: str | None = None, **changes: object) -> None:
    """Write a file of JSON as another version did: with other entries, and without one."""
    values = read_json(path, "-") | changes
    write_json(path, {key: value for key, value in values.items() if key != missing})


def refused(said: str, *parts: str) -> None:
    assert said.startswith("lmtool: ") and said.count("\n") == 1
    assert all(part in said for part in parts), said


def test_a_run(lmtool: Run) -> None:
    lmtool("train", "model=ngram", "model.order=1", "data=toy", "hydra.run.dir=kn")
    lmtool("ensemble", "runs=[kn,kn]", "weights=[1,1]", "hydra.run.dir=mix")
    of_another_version(Path("kn/run.json"), format=1)
    for line in ("predict run=kn the", "eval run=kn", "eval run=mix", "compare runs=[kn,mix]", "train resume=kn"):
        refused(lmtool(*line.split(), code=2), "kn/run.json " + OTHER if "resume" not in line else "kn")
    of_another_version(Path("kn/run.json"), "started_in", format=FORMAT)
    refused(lmtool("eval", "run=kn", code=2), "kn/run.json is damaged ('started_in' is missing)", REMEDY)


@pytest.mark.parametrize(
    ("setting", "said"),
    [("forms", "training.forms: missing, as in another version"), ("cuda_graph", "no key 'training.cuda_graph'")],
)
def test_settings_of_a_checkpoint(setting: str, said: str, lmtool: Run) -> None:
    lmtool("train", "model=nplm", *NEURAL, "hydra.run.dir=net")
    state = load_state(Path("net"))
    assert state is not None
    training = state.values["about"]["settings"]["training"]
    if training.pop(setting, None) is None:
        training[setting] = False
    save_state(state, Path("net"))
    refused(lmtool("train", "resume=net", "training.epochs=2", code=2), f"the settings of the checkpoint: {said}")


def test_a_checkpoint_and_its_line(lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lmtool("train", "model=nplm", *NEURAL, "hydra.run.dir=net")
    state = load_state(Path("net"))
    assert state is not None
    with monkeypatch.context() as patch:
        patch.setattr("lmtool.training.state.FORMAT", 1)
        values = {key: value for key, value in state.values.items() if key != "format"}
        save_state(replace(state, values=values), Path("net"))
    refused(lmtool("train", "resume=net", code=2), f"net/state.safetensors {OTHER}train from scratch")
    of_another_version(Path("net/begun.json"), "verb", overrides=["model=nplm", "data=toy"])
    refused(lmtool("train", "resume=net", code=2), "net/begun.json is damaged ('verb' is missing): train from")


def test_a_store_is_made_again(lmtool: Run) -> None:
    lmtool("train", "model=ngram", "model.order=1", "data=toy", "hydra.run.dir=kn")
    (store,) = Path("stores").glob(f"toy-{'?' * 10}.h5")
    with h5py.File(store, "r+") as file:
        file.attrs["format"] = 1
    seal(store)
    refused(lmtool("eval", "run=kn", code=2), "has store format 1, not 4: delete it and run lmtool preprocess again")
    lmtool("preprocess", "data=toy")
    assert "perplexity" in lmtool("eval", "run=kn")


def test_a_sweep(lmtool: Run) -> None:
    line = ("train", "-m", "model=ngram", "model.order=1,2", "data=toy", "hydra.sweep.dir=sweep")
    lmtool(*line)
    of_another_version(Path("sweep/0/job.json"), "request", overrides=["model=ngram", "data=toy", "model.order=1"])
    assert "sweep/0/job.json is damaged ('request' is missing): remove " in lmtool(*line, code=1)
    Path("sweep/sweep.json").unlink()
    refused(lmtool("train", "-m", "resume=sweep", code=2), "sweep holds no sweep (it has no sweep.json)")

"""Files of a stranger whose checksums are right and whose content is not: one line names file and place."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from lmtool.runs.run import Run
from lmtool.runs.weights import read_tensors, write_tensors
from lmtool.system.checksums import seal
from lmtool.system.files import read_json, write_json
from lmtool.system.schemas import METRICS_LINE, RUN, STATE, parse_json, require_kind
from lmtool.training.state import TrainingState, read_state, save_state

Command = Callable[..., str]
DEEP = "[" * 100_000


@pytest.fixture
def theirs(runs: Path, lmtool: Command) -> None:
    """The runs and a file of scores, in the working folder."""
    for name in ("kn3", "nplm", "hs", "mix", "stores"):
        shutil.copytree(runs / name, name)


def change_json(path: Path, **entries: Any) -> None:
    write_json(path, read_json(path, "-", object) | entries)


def change_hdf5(path: Path, change: Callable[[h5py.File], None]) -> None:
    with h5py.File(path, "r+") as file:
        change(file)
    seal(path)
    if (path.parent / "run.json").exists():
        Run.open(path.parent).save()


def put(name: str, change: Callable[[Any], Any]) -> Callable[[h5py.File], None]:
    def act(file: h5py.File) -> None:
        kept, values = dict(file[name].attrs), change(file[name][:])
        del file[name]
        file[name] = values
        file[name].attrs.update(kept)

    return act


def first(value: float) -> Callable[[Any], Any]:
    return lambda array: np.concatenate([[np.float32(value)], array[1:]]).astype(array.dtype)


def attribute(name: str, key: str, value: Any) -> Callable[[h5py.File], None]:
    return lambda file: file[name].attrs.__setitem__(key, value)


def refused(said: str) -> None:
    assert said.startswith("lmtool: ") and said.count("\n") == 1, said


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda v: [], "it must be an object; got []"),
        (lambda v: v | {"progress": None}, "progress must be an object; got None"),
        (lambda v: {name: value for name, value in v.items() if name != "progress"}, "'progress' is missing"),
        (lambda v: v | {"processes": -1}, "processes must be a number from 0"),
        (lambda v: v | {"about": {"settings": [], "store": ""}}, "about.settings must be an object"),
        (lambda v: v | {"progress": v["progress"] | {"loss_sum": math.nan}}, "progress.loss_sum must be a finite"),
        (lambda v: v | {"position": {"at": 0, "epoch_began": DEEP}}, "position.epoch_began must be an object"),
        (lambda v: v | {"about": json.loads("[" * 90 + "]" * 90)}, "nested more than 64 times"),
    ],
)  # fmt: skip
def test_values_of_a_checkpoint(change: Any, place: str, theirs: None, lmtool: Command, caplog: Any) -> None:
    state = read_state(Path("nplm/state.safetensors"))
    values = change(state.values)
    with pytest.MonkeyPatch.context() as patch:
        if not isinstance(values, dict):
            patch.setattr(json, "dumps", lambda _: "[]")
        save_state(TrainingState(state.tensors, values if isinstance(values, dict) else {}), Path("nplm"))
    Path("nplm/state-before.safetensors").unlink()
    said = lmtool("train", "resume=nplm", "training.epochs=2", code=2)
    assert "nplm/state.safetensors: damaged" in said and "Traceback" not in said
    assert place in caplog.text + said


@pytest.mark.parametrize("part", ["model.", "optimizer.0.0.exp_avg", "random."])
@pytest.mark.parametrize("change", [lambda t: t.new_zeros(3), lambda t: t.new_zeros(0), lambda t: t[None].repeat(2, 1)])
def test_tensors_of_a_checkpoint(part: str, change: Any, theirs: None, lmtool: Command) -> None:
    state = read_state(Path("nplm/state.safetensors"))
    name = next(name for name in sorted(state.tensors) if name.startswith(part))
    tensor = state.tensors[name].reshape(-1)
    save_state(TrainingState(state.tensors | {name: change(tensor)}, state.values), Path("nplm"))
    Path("nplm/state-before.safetensors").unlink()
    assert "its checkpoint does not fit (" in lmtool("train", "resume=nplm", "training.epochs=2", code=2)


@pytest.mark.parametrize(
    "line", ['{"valid_accuracy": "x"}', '{"valid_accuracy": 1e308}', "[]", '{"valid_perplexity": 1e999}', DEEP, "3"]
)
def test_metrics(line: str, theirs: None, lmtool: Command) -> None:
    path = Path("nplm/metrics.jsonl")
    whole = json.loads(path.read_text().splitlines()[0])
    entry = json.dumps(whole | json.loads(line)) if line.startswith("{") else line
    path.write_text(json.dumps(whole) + "\n" + entry + "\n")
    said = lmtool("report", "nplm", "resamples=100", "map=none", code=2)
    refused(said)
    assert "nplm/metrics.jsonl is damaged in line 2 (" in said


VERBS = [
    ["predict", "the", "run=nplm"], ["eval", "run=nplm"], ["neighbors", "cat", "run=nplm"],
    ["generate", "run=nplm"], ["ensemble", "runs=[kn3,nplm]"],
]  # fmt: skip


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_weights_that_are_not_finite(verb: list[str], value: float, theirs: None, lmtool: Command) -> None:
    path = Path("nplm/checkpoint.safetensors")
    tensors, notes = read_tensors(path)
    tensors["encoder.embedding.weight"] = np.full_like(tensors["encoder.embedding.weight"], value)
    write_tensors(tensors, path, notes)
    Run.open(Path("nplm")).save()
    said = lmtool(*verb, code=2)
    refused(said)
    assert "nplm/checkpoint.safetensors" in said and "encoder.embedding.weight has numbers that are not finite" in said


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_weights_that_overflow(verb: list[str], theirs: None, lmtool: Command) -> None:
    path = Path("nplm/checkpoint.safetensors")
    tensors, notes = read_tensors(path)
    write_tensors({name: np.full_like(values, 1e38) for name, values in tensors.items()}, path, notes)
    Run.open(Path("nplm")).save()
    said = lmtool(*verb, code=2)
    refused(said)
    assert "nplm" in said and "not finite" in said


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (put("log_prob", first(math.inf)), "log_prob[0] must be at most 0.001; got inf"),
        (put("log_prob", first(math.nan)), "log_prob[0] must be at most 0.001; got nan"),
        (put("log_backoff", first(math.inf)), "log_backoff[0] must be at most"),
        (attribute("words", "width", "inf"), "words.width must be a number from 1 to 63"),
        (attribute("words", "length", np.arange(3)), "words.length must be a number from 0"),
        (attribute("/", "bos", math.inf), "bos must be a number from 0"),
        (attribute("/", "unseen", 5.0), "unseen must be a number from -inf"),
        (attribute("/", "notes", DEEP), "recursion"),
    ],
)  # fmt: skip
def test_a_model(change: Any, place: str, theirs: None, lmtool: Command) -> None:
    change_hdf5(Path("kn3/model.h5"), change)
    for verb in (["predict", "the", "run=kn3"], ["eval", "run=kn3"], ["convert", "run=kn3", "to=x.arpa"]):
        said = lmtool(*verb, code=2)
        refused(said)
        assert "kn3/model.h5" in said and place in said


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (put("log_prob", lambda a: a[None]), "log_prob must be floating-point [N]; got float64 [1, "),
        (put("log_prob", lambda a: a * np.nan), "log_prob[0] must be at most 0.001; got nan"),
        (put("log_prob", lambda a: -a), "log_prob[0] must be at most"),
        (put("ids", lambda a: a[:0]), "offsets must ascend"),
        (attribute("/", "about", "[]"), "about must be an object"),
        (attribute("/", "split", 3), "split must be text; got 3"),
    ],
)
def test_scores(change: Any, place: str, theirs: None, lmtool: Command) -> None:
    lmtool("eval", "run=kn3", "hydra.run.dir=scores", "store_dir=stores")
    change_hdf5(Path("scores/scores.h5"), change)
    for verb in (["report", "scores"], ["compare", "runs=[scores,mix]"]):
        said = lmtool(*verb, code=2)
        refused(said)
        assert "scores/scores.h5" in said and place in said


@pytest.mark.parametrize(
    ("name", "entries", "line", "place"),
    [
        ("nplm/begun.json", {"config_dir": 5}, "train resume=nplm", "config_dir must be text; got 5"),
        ("nplm/begun.json", {"choices": {"model": 3}}, "train resume=nplm", "choices.model must be text; got 3"),
        ("kn3/run.json", {"weights": ["x"]}, "predict run=kn3 the", "weights[0] must be a finite number; got 'x'"),
        ("kn3/run.json", {"config": {"data": "x"}}, "report kn3", "config.data must be an object"),
        ("kn3/run.json", {"store": "a\0b"}, "eval run=kn3", "store must be text"),
        ("kn3/result.json", {"valid_perplexity": -1}, "report kn3", "valid_perplexity must be a number from"),
        ("kn3/result.json", {"cloze": {"perplexity": "x"}}, "report kn3", "cloze.perplexity must be a finite number"),
    ],
)
def test_json(name: str, entries: dict[str, Any], line: str, place: str, theirs: None, lmtool: Command) -> None:
    change_json(Path(name), **entries)
    said = lmtool(*line.split(), code=2)
    refused(said)
    assert f"{name} is damaged ({place}" in said


def test_a_vocabulary_that_is_not_text(theirs: None, lmtool: Command) -> None:
    for content in (b"\xff\xfe\t1\n<unk>\t0\n<s>\t0\n", b"a\t" + b"9" * 5000 + b"\n<unk>\t0\n<s>\t0\n"):
        Path("kn3/vocabulary.txt").write_bytes(content)
        Run.open(Path("kn3")).save()
        said = lmtool("predict", "run=kn3", "the", code=2)
        refused(said)
        assert "kn3/vocabulary.txt is damaged" in said


def test_json_has_null_for_what_is_not_finite_and_says_so(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"p": math.inf, "rows": [{"x": 1.0}, {"x": -math.inf}], "n": (math.nan, 2)})
    nulls = {"p": None, "rows": [{"x": 1.0}, {"x": None}], "n": [None, 2]}
    assert read_json(tmp_path / "a.json", "-") == nulls | {
        "not_finite": {"p": "inf", "rows[1].x": "-inf", "n[0]": "nan"}
    }


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (True, int, "it must be a whole number; got True"),
        (10**400, float, "it must be a finite number"),
        (2.5, STATE["processes"], "it must be a number from 0 to 9.22e+18; got 2.5"),
        ("\ud800", str, "it must be text"),
        ([{"a": 1}, {}], [{"a": int}], "it[1] has no a"),
        ({"a": {"b": 1}}, {str: {str: str}}, "a.b must be text; got 1"),
        ("x", ("train", "ensemble"), "it must be 'train' or 'ensemble'; got 'x'"),
    ],
)
def test_kinds(value: Any, kind: Any, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        require_kind(value, kind)


def test_what_lmtool_writes_is_of_its_kind(runs: Path) -> None:
    require_kind(read_json(runs / "mix/run.json", "-", object), RUN)
    assert all(parse_json(line, METRICS_LINE) for line in (runs / "nplm/metrics.jsonl").read_text().splitlines())
    assert torch.is_tensor(next(iter(read_state(runs / "hs/state.safetensors").tensors.values())))

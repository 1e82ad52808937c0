"""An interrupted training resumes to the same bits; a checkpoint is complete, or the previous one is used."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lmtool.commands.train import Settings as TrainSettings
from lmtool.config.settings import build_settings
from lmtool.data import split as split_module
from lmtool.data.corpus import Corpus
from lmtool.errors import Interrupted, UserError
from lmtool.neural.build import build_neural
from lmtool.neural.outputs.options import NceOutput, SampledOutput
from lmtool.runs.run import METRICS_FILE, STATE, STATE_BEFORE
from lmtool.runs.weights import CHECKPOINT
from lmtool.system.process import StopRequest, defer_signals
from lmtool.training import loop
from lmtool.training.loop import train
from lmtool.training.optim import AdagradOptim, AdamOptim, AsgdOptim, SgdOptim
from lmtool.training.plan import Plan
from lmtool.training.schedules import PlateauSchedule
from lmtool.training.state import load_state
from lmtool.trees import huffman_tree
from tests.conftest import ROOT, SOFTMAX, Run, composed_line, neural
from tests.training.test_training import ADAM, CONSTANT, COSINE, DOT, MODEL, training

HUFFMAN = lambda toy: huffman_tree(toy.vocabulary.counts[:-1])  # noqa: E731
CASES: dict[str, Any] = {
    "nplm, adamw": (lambda toy: build_neural(MODEL, SOFTMAX, toy.vocabulary), ADAM, COSINE, {}),
    "hsoftmax, adagrad": (
        lambda toy: neural(toy, DOT, HUFFMAN(toy), dropout=0.2),
        AdagradOptim("adagrad", 0.2, 1e-4, 1e-10),
        PlateauSchedule("plateau", 0.0, 0.5, 1),
        {"embedding_max_norm": 0.8},
    ),
    "hsoftmax, adamw": (lambda toy: neural(toy, DOT, HUFFMAN(toy)), ADAM, COSINE, {}),
    "nplm, sgd in whole steps": (lambda toy: neural(toy), SgdOptim("sgd", 0.5, 1e-3, 0.0), COSINE, {}),
    "nce, sgd in whole steps": (
        lambda toy: neural(toy, NceOutput("nce", 4, True, 1.0, False)),
        SgdOptim("sgd", 0.5, 1e-3, 0.0),
        COSINE,
        {},
    ),
    "nce, sgd": (
        lambda toy: neural(toy, NceOutput("nce", 9, True, 1.0, True)),
        SgdOptim("sgd", 0.5, 0.0, 0.9),
        CONSTANT,
        {"patience": 50},
    ),
    "hsoftmax, asgd": (
        lambda toy: neural(toy, DOT, HUFFMAN(toy), dropout=0.2),
        AsgdOptim("asgd", 3.0, 1e-3, 1),
        CONSTANT,
        {"embedding_max_norm": 0.8},
    ),
    "sampled, adam": (
        lambda toy: neural(toy, SampledOutput("sampled", 9, 1.0), tied=True),
        AdamOptim("adam", 0.02, 1e-3, 0.9, 0.99, 1e-8),
        COSINE,
        {},
    ),
}


def signal_after(patch: pytest.MonkeyPatch, steps: int, number: signal.Signals) -> None:
    """Send this process a signal after a training's step of that number."""
    before = loop._Training.advance

    def advance(self: Any, stop: StopRequest) -> bool:
        made = self.progress.step
        goes_on = before(self, stop)
        if made < self.progress.step == steps:
            os.kill(os.getpid(), number)
        return goes_on

    patch.setattr(loop._Training, "advance", advance)


def go(case: str, toy: Corpus, out: Path, *, until: int | None = None, streamed: bool = False, **settings: Any) -> Any:
    """Train a case in a folder, from its checkpoint if there is one, with a SIGTERM after `until` steps in total."""
    make, optim, schedule, extra = CASES[case]
    torch.manual_seed(7)
    model = make(toy)
    out.mkdir(exist_ok=True)
    plan = Plan(
        training(**({"epochs": 3, "evaluate_every": 0.4} | extra | settings)),
        optim,
        schedule,
        3,
        {"settings": {}, "store": ""},
    )
    split = toy.stored("train") if streamed else toy.split("train")
    with pytest.MonkeyPatch.context() as patch:
        if until is not None:
            signal_after(patch, until, signal.SIGTERM)
        return train(model, split, toy.split("valid"), plan, out, resume=load_state(out))


def kept(out: Path) -> tuple[dict[str, Any], list[dict[str, float]]]:
    """Return what a resumed run must repeat: last and best weights, and metrics without times."""
    lines = [json.loads(line) for line in (out / METRICS_FILE).read_text().splitlines()]
    last = {name: t for name, t in load_file(out / STATE).items() if not name.startswith("random")}
    best = {f"best.{name}": tensor for name, tensor in load_file(out / CHECKPOINT).items()}
    return last | best, [{k: v for k, v in line.items() if "second" not in k} for line in lines]


def assert_same(ours: Path, theirs: Path) -> None:
    (tensors, lines), (other_tensors, other_lines) = kept(ours), kept(theirs)
    assert lines == other_lines
    assert tensors.keys() == other_tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, other_tensors[name]), name


@pytest.mark.parametrize("case", CASES)
def test_cut_off_and_resumed_it_ends_with_the_same_bits(case: str, toy: Corpus, tmp_path: Path) -> None:
    whole = go(case, toy, tmp_path / "whole")
    for cut in (1, 8, 11, 23):  # after the first step, an epoch's last, an evaluation, before the end
        out = tmp_path / f"cut{cut}"
        with pytest.raises(Interrupted, match=r"resume with: lmtool train resume=") as stopped:
            go(case, toy, out, until=cut)
        assert stopped.value.signal == signal.SIGTERM
        assert load_state(out).values["progress"]["step"] == cut  # type: ignore[union-attr]
        trained = go(case, toy, out)
        assert_same(out, tmp_path / "whole")
        assert (trained.valid_perplexity, trained.examples) == (whole.valid_perplexity, whole.examples)


def test_cut_off_in_an_evaluation_of_averaged_weights(
    toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go("hsoftmax, asgd", toy, tmp_path / "whole")
    assert load_state(tmp_path / "whole").values["averaged"] > 8  # type: ignore[union-attr]
    mean_loss, called = loop.mean_loss, 0

    def cut_off(model: Any, split: Any, processes: Any, check: Callable[[], None]) -> float:
        nonlocal called
        called += 1
        if called == 7:
            os.kill(os.getpid(), signal.SIGTERM)
            check()
        return mean_loss(model, split, processes, check)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "mean_loss", cut_off)
        with pytest.raises(Interrupted):
            go("hsoftmax, asgd", toy, tmp_path / "cut")
    assert load_state(tmp_path / "cut").values["averaged"] > 1  # type: ignore[union-attr]
    go("hsoftmax, asgd", toy, tmp_path / "cut")
    assert_same(tmp_path / "cut", tmp_path / "whole")


def test_streamed_from_the_store_it_resumes_too(toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_module, "BLOCK_TOKENS", 10)
    monkeypatch.setattr(split_module, "GROUP_BLOCKS", 5)  # three groups
    go("nplm, adamw", toy, tmp_path / "whole", streamed=True)
    for cut in (2, 3, 7, 13):
        with pytest.raises(Interrupted):
            go("nplm, adamw", toy, tmp_path / f"cut{cut}", until=cut, streamed=True)
        go("nplm, adamw", toy, tmp_path / f"cut{cut}", streamed=True)
        assert_same(tmp_path / f"cut{cut}", tmp_path / "whole")
    with pytest.raises(UserError, match="streaming of the train split"):
        go("nplm, adamw", toy, tmp_path / "whole", streamed=False)


def test_with_more_epochs_a_finished_training_goes_on_from_its_end(toy: Corpus, tmp_path: Path) -> None:
    go("nce, sgd", toy, tmp_path / "whole", epochs=4, evaluate_every=1.0)
    go("nce, sgd", toy, tmp_path / "longer", epochs=2, evaluate_every=1.0)
    go("nce, sgd", toy, tmp_path / "longer", epochs=4, evaluate_every=1.0)
    assert_same(tmp_path / "longer", tmp_path / "whole")


def test_patience_and_plateau(toy: Corpus, tmp_path: Path) -> None:
    # 137 words are soon learned by heart, and valid gets worse.
    CASES["by heart"] = (CASES["nplm, adamw"][0], ADAM, PlateauSchedule("plateau", 0, 0.9, 2), {})
    go("by heart", toy, tmp_path / "a", epochs=60, patience=5, evaluate_every=1.0)
    lines = [json.loads(line) for line in (tmp_path / "a" / METRICS_FILE).read_text().splitlines()]
    losses = [line["valid_loss"] for line in lines]
    best = losses.index(min(losses))
    assert len(lines) == best + 1 + 5 < 60  # five evaluations after the best one
    drops = 0
    for number in range(1, len(lines)):
        waited = number - 1 - losses.index(min(losses[:number]))
        drops += waited > 0 and waited % 2 == 0
        assert lines[number]["lr"] == 0.02 * 0.9**drops
    assert drops >= 2


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_taken(
    toy: Corpus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go("nplm, adamw", toy, tmp_path / "whole", save_every=0)
    go("nplm, adamw", toy, tmp_path / "run", save_every=0)
    state = tmp_path / "run" / STATE
    content = bytearray(state.read_bytes())
    content[-5] ^= 1  # a single bit of a weight
    state.write_bytes(content)
    found = load_state(tmp_path / "run")
    assert found is not None and found.values["progress"]["step"] == 23
    assert f"{state} is damaged" in caplog.text and f"from {tmp_path / 'run' / STATE_BEFORE}" in caplog.text
    go("nplm, adamw", toy, tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "whole")
    state.write_bytes(content[:1000])
    (tmp_path / "run" / STATE_BEFORE).write_bytes(b"")
    with pytest.raises(UserError, match=r"damaged; delete .* and train again"):
        load_state(tmp_path / "run")


def test_a_full_disk_at_a_checkpoint(toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Interrupted):
        go("nplm, adamw", toy, tmp_path / "run", until=5)
    earlier = (tmp_path / "run" / STATE).read_bytes()

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.numpy.save_file", full)
        with pytest.raises(UserError, match=r"cannot write .*state.safetensors: No space left"):
            go("nplm, adamw", toy, tmp_path / "run", save_every=0)
    assert (tmp_path / "run" / STATE).read_bytes() == earlier
    assert [path.name for path in (tmp_path / "run").iterdir() if path.name.endswith("tmp")] == []
    go("nplm, adamw", toy, tmp_path / "run")
    go("nplm, adamw", toy, tmp_path / "whole")
    assert_same(tmp_path / "run", tmp_path / "whole")


LINE = ["data=toy", "model.embedding_dim=8", "model.hidden_dim=12", "training.minutes=null", "training.batch_size=16"]


def test_the_command_line_resumes(lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lmtool("train", *LINE, "training.epochs=3", "hydra.run.dir=whole")
    with monkeypatch.context() as patch:
        signal_after(patch, 13, signal.SIGINT)
        said = lmtool("train", *LINE, "training.epochs=3", "hydra.run.dir=cut", code=130)
    assert "lmtool: stopped at epoch 1.62; resume with: lmtool train resume=" in said
    assert "holds a training that was cut off: resume it with resume=" in lmtool(
        "train", *LINE, "training.epochs=3", "hydra.run.dir=cut", code=2
    )
    refused = lmtool("train", "resume=cut", "model.hidden_dim=13", code=2)
    assert "model.hidden_dim=13" in refused and "started with 12" in refused
    assert "optim=sgd" in lmtool("train", "resume=cut", "optim=sgd", code=2)
    assert "a different store" in lmtool("train", "resume=cut", "data.vocabulary.min_count=2", code=2)
    assert "remove out=" in lmtool("train", "resume=cut", "hydra.run.dir=b", code=2)
    shutil.copytree("cut", "other")
    said = lmtool("train", "resume=other", "threads=1")
    assert "threads=1, was None: sums round differently" in said
    assert "from step 13" in lmtool("train", "resume=cut")
    assert_same(Path("cut"), Path("whole"))
    results = [json.loads(Path(run, "result.json").read_text()) for run in ("cut", "whole")]
    assert results[0]["valid_perplexity"] == results[1]["valid_perplexity"]
    assert "budget is exhausted" in lmtool("train", "resume=cut")
    said = lmtool("train", "resume=cut", "training.epochs=4")
    assert "optim.lr is the highest rate of schedule=cosine" in said
    assert json.loads(Path("cut", "result.json").read_text())["epochs"] == 4
    lmtool("eval", "run=cut")


BUDGETS = {  # of a line: epochs, steps and minutes
    "": (8.0, None, 10.0),
    "training.epochs=8": (8.0, None, None),
    "training.epochs=1": (1.0, None, None),
    "training.steps=300": (8.0, 300, None),
    "training.epochs=1 training.minutes=10": (1.0, None, 10.0),
    "training.minutes=5": (8.0, None, 5.0),
    "training.minutes=null": (8.0, None, None),
    "training.epochs=null": (None, None, 10.0),
    "training.epochs=null training.minutes=0.5": (None, None, 0.5),
    "training=mine": (2.0, None, None),
    "training=mine training.minutes=3": (2.0, None, 3.0),
    "+experiment=longer": (3.0, None, None),
    "+experiment=ptb_nplm": (None, None, 10.0),
}


@pytest.mark.parametrize("words", BUDGETS)
def test_epochs_or_steps_that_are_given_switch_minutes_off(words: str, tmp_path: Path) -> None:
    mine, longer = tmp_path / "training" / "mine.yaml", tmp_path / "experiment" / "longer.yaml"
    for path in (mine, longer):
        path.parent.mkdir()
    mine.write_text("defaults: [standard, _self_]\n\nepochs: 2\n")
    longer.write_text("# @package _global_\ntraining:\n  epochs: 3\n")
    composed = composed_line("train", *words.split(), flags=["--config-dir", str(tmp_path)])
    settings = build_settings(composed, TrainSettings).training
    assert settings is not None
    assert (settings.epochs, settings.steps, settings.minutes) == BUDGETS[words]


def test_a_limit_in_minutes_that_was_not_given_ends_with_epochs_that_are(lmtool: Run) -> None:
    def budget() -> tuple[Any, ...]:
        settings = json.loads(Path("run", "run.json").read_text())["config"]["training"]
        return settings["epochs"], settings["steps"], settings["minutes"]

    small = [word for word in LINE if word != "training.minutes=null"]
    lmtool("train", *small, "hydra.run.dir=run", "training.evaluate_every=8")
    assert budget() == (8.0, None, 10.0)
    assert "budget is exhausted" in lmtool("train", "resume=run")
    assert budget() == (8.0, None, 10.0)
    lmtool("train", "resume=run", "training.epochs=9")
    assert budget() == (9.0, None, None)
    lmtool("train", "resume=run", "training.epochs=9.5", "training.minutes=7")
    assert budget() == (9.5, None, 7.0)


def test_what_cannot_be_resumed(lmtool: Run) -> None:
    assert "no training was started there" in lmtool("train", "resume=nowhere", code=2)
    lmtool("train", "model=ngram", "data=toy", "hydra.run.dir=ngram")
    assert "model=ngram is estimated in one pass" in lmtool("train", "resume=ngram", code=2)
    lmtool("train", *LINE, "training.epochs=1", "hydra.run.dir=run")
    Path("run", STATE).unlink()
    assert "has no checkpoint yet; its training starts from scratch" in lmtool("train", "resume=run")


def test_a_folder_in_use(lmtool: Run) -> None:
    from lmtool.system.lock import folder_lock

    with folder_lock(Path("run")):
        for model in ("nplm", "ngram"):
            said = lmtool("train", "data=toy", f"model={model}", "hydra.run.dir=run", code=2)
            assert f"run is in use by process {os.getpid()}" in said


def test_a_second_signal_of_the_same_kind_ends_at_once() -> None:
    with defer_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal == signal.SIGINT
        with pytest.raises(Interrupted, match="are lost") as ended:
            os.kill(os.getpid(), signal.SIGINT)
        assert ended.value.signal == signal.SIGINT


def test_killed_where_it_writes_checkpoints(tmp_path: Path) -> None:
    """Also right before and right after a checkpoint gets its name."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'scripts'}", "TMPDIR": str(tmp_path)}
    line = [sys.executable, "-m", "fuzzing", "nce", "60", "1", "--cases", "3"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| nce | 1 | 3 | 0 |" in done.stdout


def test_metrics_are_on_the_disk_before_the_checkpoint_that_continues_them(
    lmtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut a resumed training would otherwise lack the lines of the steps before it."""
    noted: list[str] = []
    sync = os.fsync

    def synced(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        noted.append(
            f"{path.name} {path.stat().st_size}" if path.name == "metrics.jsonl" else path.name.split(".")[1:2]
        )
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    lmtool("train", *LINE, "training.epochs=1", "hydra.run.dir=run")
    size = Path("run", "metrics.jsonl").stat().st_size
    assert noted.index(f"metrics.jsonl {size}") < len(noted) - 1 - noted[::-1].index(["state"])


def test_what_a_killed_training_was_writing_goes(lmtool: Run) -> None:
    lmtool("train", *LINE, "training.epochs=1", "hydra.run.dir=run")
    for name in (".tmpab12CD", ".state.safetensors.elsewhere.1.tmp", ".tmp-mine"):
        Path("run", name).write_text("half")
    lmtool("train", "resume=run", "training.epochs=2")
    assert sorted(path.name for path in Path("run").glob(".*.tmp")) == [".state.safetensors.elsewhere.1.tmp"]
    assert not Path("run", ".tmpab12CD").exists() and Path("run", ".tmp-mine").exists()


def test_a_training_that_was_killed_before_its_request_was_accepted(lmtool: Run) -> None:
    lmtool("train", *LINE, "training.epochs=1", "hydra.run.dir=run")
    Path("run", "begun.json").unlink()
    request = Path("run", ".hydra", "request.json")
    whole = request.read_text()
    for damaged in ("", whole[:20], "3", "{}", '{"verb": 3}'):
        request.write_text(damaged)
        said = lmtool("train", "resume=run", code=2)
        assert "request.json is damaged" in said and "train from scratch instead" in said and said.count("\n") == 1
    request.write_text(whole)
    lmtool("train", "resume=run", "training.epochs=2")


PLAIN = [*LINE, "optim=sgd", "optim.lr=0.1", "schedule=constant", "training.evaluate_every=1"]


def metrics(key: str) -> list[Any]:
    return [json.loads(line)[key] for line in Path("run", METRICS_FILE).read_text().splitlines()]


def changes() -> list[Any]:
    saved = json.loads(Path("run", "run.json").read_text())["changes"]
    return [(each["step"], each["setting"], each["before"], each["after"]) for each in saved]


def test_a_rate_changed_by_hand(lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:  # the names article's drop: the rate changes within the budget
        signal_after(patch, 16, signal.SIGINT)
        lmtool("train", *PLAIN, "training.epochs=4", "out=run", code=130)
    said = lmtool("train", "resume=run", "optim.lr=0.01")
    assert "note: optim.lr=0.01, was 0.1, from step 16 on\n" in said
    assert metrics("lr") == [0.1, 0.1, 0.01, 0.01] and changes() == [(16, "optim.lr", 0.1, 0.01)]
    said = lmtool("train", "resume=run", "training.epochs=5")  # the changed rate stays
    assert "optim.lr" not in said and metrics("lr") == [0.1, 0.1, 0.01, 0.01, 0.01]
    lmtool(
        "train", "resume=run", "training.epochs=7", "schedule=steps", "schedule.milestones=[48]", "optim.momentum=0.9"
    )
    assert metrics("lr")[5:] == [0.01, 0.001] and metrics("epoch") == [1, 2, 3, 4, 5, 6, 7]
    assert changes()[1:] == [
        (32, "training.epochs", 4.0, 5.0),
        *((40, *change) for change in (("optim.momentum", 0.0, 0.9), ("schedule", "constant", "steps"))),
        *((40, *change) for change in (("schedule.milestones", None, [48]), ("schedule.gamma", None, 0.1))),
        (40, "training.epochs", 5.0, 7.0),
    ]
    lmtool("report", "run", "out=page")
    page = Path("page", "report.html").read_text()
    lmtool("export", "run=run", "to=card")
    for text in (page, Path("run", "README.md").read_text()):
        assert "Changed on resuming: optim.lr=0.01, was 0.1, from step 16 on" in text
    for words in (["optim=adam"], ["model.dropout=0.1"], ["seed=5"], ["training.shuffle_block=4"], ["output=nce"]):
        said = lmtool("train", "resume=run", "training.epochs=8", *words, code=2)
        key, _, value = words[0].partition("=")
        assert f"{key}={value}: the training in run was started with" in said.replace(str(Path.cwd()) + "/", "")
    late = ["schedule=steps", "schedule.milestones=[99]"]
    assert "the budget ends earlier" in lmtool("train", "resume=run", "training.epochs=8", *late, code=2)
    # An option of another kind drops the values of the one before it.
    lmtool("train", "resume=run", "training.epochs=8", "schedule=constant")
    assert metrics("lr")[-1] == 0.01


def test_the_rate_of_the_next_step_is_named_and_a_used_up_budget_changes_nothing(lmtool: Run) -> None:
    lmtool("train", *PLAIN, "schedule=cosine", "training.epochs=1", "training.log_every=1", "out=run")
    said = lmtool("train", "resume=run", "optim.lr=0.01", "training.epochs=2")  # about the middle
    assert "the learning rate of the next step is 0.00541: optim.lr is the highest rate of schedule=cosine; " in said
    assert "schedule=constant keeps optim.lr\n" in said and metrics("lr")[9] == pytest.approx(0.00541, rel=1e-3)
    before, record = changes(), json.loads(Path("run", "run.json").read_text())
    said = lmtool("train", "resume=run", "optim.lr=0.5")
    assert "nothing was trained" in said and "optim.lr=0.5, was" not in said and "next step" not in said
    assert changes() == before and json.loads(Path("run", "run.json").read_text())["config"] == record["config"]
    said = lmtool("train", "resume=run", "training.epochs=3", "schedule=constant", "optim.lr=0.001")
    assert "next step" not in said and metrics("lr")[-1] == 0.001


def test_from_python_a_rate_changes_likewise(lmtool: Run) -> None:
    import lmtool as python

    lmtool("train", *PLAIN, "training.epochs=1", "out=run")
    run = python.train(resume="run", optim={"lr": 0.01}, training={"epochs": 2})
    assert metrics("lr") == [0.1, 0.01] and changes()[0] == (8, "optim.lr", 0.1, 0.01)
    assert "optim.lr=0.01, was 0.1, from step 8 on" in run.notes


def test_batches_of_another_size_continue_with_the_examples_that_are_left(
    lmtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        signal_after(patch, 12, signal.SIGINT)  # 64 of 137 examples of the second epoch
        lmtool("train", *PLAIN, "training.epochs=3", "out=run", code=130)
    lmtool("train", "resume=run", "training.batch_size=32")
    assert metrics("step") == [8, 14, 18] and metrics("epoch") == [1, 2, 3]
    assert metrics("examples") == [128, 12 * 16 + 2 * 32, 12 * 16 + 6 * 32]
    assert changes() == [(12, "training.batch_size", 16, 32)]

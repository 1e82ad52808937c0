"""What a person sees of a training, and what is kept: plain lines or a bar, metrics, accuracies."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numba
import numpy as np
import pytest
import torch

from lmtool.cli.command_line import main
from lmtool.config.groups import ScheduleConfig
from lmtool.config.training import Forms, Precision
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.neural.devices import WORKSPACE, choose_device
from lmtool.plots.curves import read_history
from lmtool.runs.run import METRICS_FILE
from lmtool.system.terminal import first_use_announced, in_notebook, progress_bar
from lmtool.training import loop, reporting
from lmtool.training.plan import learning_rate
from lmtool.training.reporting import Reporter
from lmtool.training.schedules import ConstantSchedule, CosineSchedule
from tests.conftest import neural
from tests.training.test_training import ADAM, run, training

LINE = ["train", "data=toy", "training.epochs=3", "training.batch_size=16", "training.minutes=null"]
LINE += ["model.embedding_dim=8", "model.hidden_dim=12"]


def test_plain_lines_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*LINE, "hydra.run.dir=run"]) == 0
    out, err = capfd.readouterr()
    assert all(letter.isprintable() or letter == "\n" for letter in out + err)
    lines = err.splitlines()
    assert len(lines) == 6
    number = r"[\d,.]+"
    assert re.fullmatch(
        rf"100 %  epoch 3.00  train perplexity {number}  valid perplexity {number}  valid accuracy {number}"
        rf"  {number} examples/s  0:00 left",
        lines[-1],
    )


def all_of(terminal: int) -> bytes:
    """Return what was written to the other end of a pseudo-terminal, until that end is closed."""
    said = b""
    with suppress(OSError):  # which is how Linux says that the other end is closed
        while piece := os.read(terminal, 4096):
            said += piece
    return said


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    words = [sys.executable, "-m", "lmtool", *LINE, "hydra.run.dir=run"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=theirs, stdout=subprocess.DEVNULL) as process:
        os.close(theirs)
        said = all_of(ours)
    os.close(ours)
    assert process.returncode == 0
    assert b"\r" in said and b"|" in said and "epoch 3.00" in said.decode()


def reporter(folder: Path | None, *, bar: bool = False, log_prob: bool = True) -> Reporter:
    return Reporter(folder, bar=bar, loss_is_log_prob=log_prob)


def test_the_time_left_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = reporter(tmp_path)
    caplog.set_level("INFO")
    # 200 of the first 300 seconds went into compiling loops: from these alone it would be 45 minutes.
    lines.step(0.1, 1.5, 5.0, 1234.5, 300.0)
    lines.step(0.25, 1.5, 800.0, 1234.5, 390.0)
    # Of the budget 0.15 took 90 seconds, so that 0.75 takes 450.
    assert caplog.messages == [
        " 10 %  epoch 1.50  train perplexity 148.4  1,234 examples/s",
        " 25 %  epoch 1.50  train perplexity 1.01e+304  1,234 examples/s  7:30 left",
    ]
    lines.step(0.25, 1.5, 5.0, 1234.5, 6300.0)
    assert caplog.messages[2].endswith("8:20:00 left")
    lines.step(0.1, 1.5, 5.0, 1234.5, 6300.0)
    assert caplog.messages[3].endswith("examples/s")
    lines.step(1.0, 1.5, 5.0, 1234.5, 6300.0)
    assert caplog.messages[4].endswith("  0:00 left")
    lines.close()
    whole = reporter(tmp_path)
    whole.evaluation(1.0, METRICS_LINE)
    assert caplog.messages[5].endswith("  0:00 left")  # of a training with one report
    whole.close()


def test_when_a_report_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(reporting.time, "perf_counter", lambda: now)
    for bar, seconds in ((False, 10), (True, 0.2)):
        reports = reporter(tmp_path, bar=bar)
        assert not reports.due(now + 0.9 * seconds) and reports.due(now + 1.1 * seconds)
        now += 1.1 * seconds
        reports.step(0.25, 1.5, 5.0, 1234.5, 90.0)
        assert not reports.due(now + 0.9 * seconds) and reports.due(now + 1.1 * seconds)
        now += 1.1 * seconds
        reports.evaluation(0.25, METRICS_LINE)
        assert not reports.due(now + 0.9 * seconds) and reports.due(now + 1.1 * seconds)
        reports.close()
    of_another_process = reporter(None)
    assert not of_another_process.due(now + 1000)
    of_another_process.close()


METRICS_LINE = {"epoch": 1.5, "step": 3, "train_loss": 5.0, "valid_accuracy": 0.25, "valid_perplexity": 150.204}
METRICS_LINE |= {"examples_per_second": 1234.5, "seconds": 34.0}


def test_what_is_not_a_log_likelihood_has_no_perplexity(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = reporter(tmp_path, log_prob=False)
    caplog.set_level("INFO")
    lines.step(0.05, 1.5, 5.0, 1234.5, 2.0)
    lines.evaluation(0.25, METRICS_LINE)
    lines.close()
    assert caplog.messages == [
        "  5 %  epoch 1.50  train loss 5.0000  1,234 examples/s",
        " 25 %  epoch 1.50  train loss 5.0000  valid perplexity 150.20  valid accuracy 0.250  "
        "1,234 examples/s  2:00 left",
    ]


def test_a_bar_in_a_notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Show a widget if ipywidgets is installed, else text, without a warning (an error here)."""

    class Widget:
        def __init__(self, children: tuple[object, ...] = (), **values: object) -> None:
            self.children, self.layout, self.style, self.bar_style = children, SimpleNamespace(), SimpleNamespace(), ""

        def close(self) -> None:
            self.layout.visibility = "closed"

    def names(**values: object) -> ModuleType:
        module = ModuleType("stand-in")
        vars(module).update(values)
        return module

    shell = names(get_ipython=lambda: SimpleNamespace())
    for name, module in (
        ("IPython", shell),
        ("IPython.display", names(display=lambda widget: None)),
        ("ipykernel.zmqshell", names()),
        ("ipykernel", names()),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    for widgets, is_widget in ((None, False), (names(HTML=Widget, HBox=Widget, FloatProgress=Widget), True)):
        for name in ("auto", "autonotebook", "notebook"):
            monkeypatch.delitem(sys.modules, f"tqdm.{name}", raising=False)
        monkeypatch.setitem(sys.modules, "ipywidgets", widgets)
        bar = progress_bar(total=3)
        assert hasattr(bar, "container") == is_widget
        bar.close()
        in_notebook = reporter(tmp_path, bar=True)
        in_notebook.evaluation(0.5, METRICS_LINE)
        assert "valid perplexity 150.20" in capsys.readouterr().out  # what is on standard error is shown in red
        in_notebook.close()
    for name in ("auto", "autonotebook", "notebook"):
        monkeypatch.delitem(sys.modules, f"tqdm.{name}")


def test_a_notebooks_packages_alone_make_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyspark imports ipykernel wherever it is installed."""
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("stand-in"))
    shell = ModuleType("stand-in")
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert not in_notebook()
    shell.get_ipython = lambda: None  # type: ignore[attr-defined]
    assert not in_notebook()
    shell.get_ipython = lambda: SimpleNamespace()  # type: ignore[attr-defined]
    assert in_notebook()


@pytest.mark.parametrize("schedule", [ConstantSchedule("constant", 0.5), CosineSchedule("cosine", 0.25)])
def test_a_training_records_its_rates(schedule: ScheduleConfig, toy: Corpus, tmp_path: Path) -> None:
    """metrics.jsonl has the rate of the last step before each evaluation."""
    run(toy, tmp_path, training(epochs=4, evaluate_every=0.25), schedule=schedule)
    lines = [json.loads(line) for line in (tmp_path / METRICS_FILE).read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(2, 33, 2))
    for line in lines:
        made = line["step"] - 1
        assert line["lr"] == learning_rate(schedule, ADAM.lr, done=made / 32, steps=made, drops=0)
    assert 0 < lines[0]["lr"] < lines[1]["lr"] < ADAM.lr  # warmed up


def test_the_losses_of_steps(toy: Corpus, tmp_path: Path) -> None:
    """Each third step has a line; evaluations are as without, and readers of evaluations skip the others."""
    for name, every in (("plain", None), ("one", 1), ("three", 3)):
        run(toy, tmp_path / name, training(epochs=2, evaluate_every=1, log_every=every))
    plain, one, three = (
        [json.loads(line) for line in (tmp_path / name / METRICS_FILE).read_text().splitlines()]
        for name in ("plain", "one", "three")
    )
    assert [line["step"] for line in one] == [*range(1, 9), 8, *range(9, 17), 16]
    losses = [line for line in one if "loss" in line]
    for evaluation, begun in zip(plain, (0, 8), strict=True):
        mean = sum(line["loss"] for line in losses[begun : begun + 8]) / 8
        assert evaluation["train_loss"] == pytest.approx(mean, abs=1e-12)
    assert [set(line) for line in losses] == [{"epoch", "step", "loss", "lr", "seconds"}] * 16
    assert [line for line in three if "loss" in line] == [
        {**line, "seconds": other["seconds"]}
        for line, other in zip(losses[2::3], [line for line in three if "loss" in line], strict=True)
    ]
    evaluations = [line["valid_loss"] for line in three if "valid_loss" in line]
    assert evaluations == [line["valid_loss"] for line in plain]
    history = read_history(tmp_path / "one" / METRICS_FILE, True)
    assert history.epochs == [1, 2] and len(history.valid) == 2


def test_metrics_of_later_steps_are_removed(tmp_path: Path) -> None:
    (tmp_path / METRICS_FILE).write_text('{"step": 1}\n{"step": 5}\n{"step": 9}\n{"ste')
    reporter(tmp_path).rewind(5)
    assert (tmp_path / METRICS_FILE).read_text() == '{"step": 1}\n{"step": 5}\n'


def test_a_perplexity_beyond_floating_point_ends_a_training(
    toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "mean_loss", lambda *_: 800.0)
    with pytest.raises(UserError, match=r"^the loss is 800 at step 8: lower optim\.lr .*; nothing was saved$"):
        run(toy, tmp_path, training(epochs=1))


def test_the_most_likely_words_are_those_of_the_distribution(toy: Corpus) -> None:
    model = neural(toy)
    split = toy.split("valid")
    contexts, _ = split.windows(np.arange(split.tokens), 3)
    assert (model.argmax(contexts) == model.log_dist(contexts).argmax(1)).all()  # type: ignore[attr-defined]
    assert model.argmax(contexts[:0]).tolist() == []


def test_accuracies_are_of_the_words_asked_for(toy: Corpus, tmp_path: Path) -> None:
    model, _ = run(toy, tmp_path, training(epochs=4))
    last = json.loads((tmp_path / METRICS_FILE).read_text().splitlines()[-1])
    for name in ("train", "valid"):
        split = toy.split(name)
        contexts, targets = split.windows(np.arange(split.tokens), 3)
        hits = model.argmax(contexts) == targets
        assert last[f"{name}_accuracy"] == pytest.approx(hits.mean())  # the last is the best here
    run(toy, tmp_path / "none", training(epochs=1, accuracy_tokens=0))
    assert json.loads((tmp_path / "none" / METRICS_FILE).read_text())["valid_accuracy"] is None


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's tracer looks at it
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")  # torch's, of that release alone
def test_autocast_and_compile_are_close_to_plain(toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, wide = run(toy, tmp_path / "wide", training(epochs=2))
    _, narrow = run(toy, tmp_path / "narrow", training(epochs=2, precision=Precision.bf16))
    assert narrow.valid_perplexity == pytest.approx(wide.valid_perplexity, rel=0.02)
    assert narrow.valid_perplexity != wide.valid_perplexity
    # The compiler itself takes a minute; that the encoder's arithmetic is handed to it is what is ours.
    compiled = []
    through = torch.compile

    def compile_eagerly(function: Callable[..., torch.Tensor]) -> object:
        compiled.append(function.__name__)
        return through(function, backend="eager")

    monkeypatch.setattr(torch, "compile", compile_eagerly)
    _, same = run(toy, tmp_path / "compiled", training(epochs=2, compile=True))
    assert compiled == ["of_embeddings"]
    assert "hidden_units" not in same.forms  # what torch compiles is the plain formula
    _, plain = run(toy, tmp_path / "plain", training(epochs=2, forms=Forms.plain))
    assert same.valid_perplexity == pytest.approx(plain.valid_perplexity, rel=1e-3)


def test_devices() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    if not torch.cuda.is_available():
        assert choose_device("auto") == torch.device("cpu")
        with pytest.raises(UserError, match=r"device=cuda: torch .* finds no such device here"):
            choose_device("cuda")
    with pytest.raises(UserError, match=r"device=mps: .* use device=cpu"):
        choose_device("mps")


def test_devices_of_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (WORKSPACE, "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")  # so that both are as before at the end
        monkeypatch.delenv(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cpu") == torch.device("cpu") and WORKSPACE not in os.environ
    assert choose_device("auto") == torch.device("cuda", 0)
    assert os.environ[WORKSPACE] == ":4096:8"  # before cuBLAS does a product, for a training that is to repeat later
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert choose_device("cuda") == torch.device("cuda", 1)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(UserError, match=r"process 2 has no GPU \(2 here\)"):
        choose_device("cuda")


def test_compiling_is_announced_once(capsys: pytest.CaptureFixture[str]) -> None:
    def compile_two(*, shown: bool) -> str:
        with first_use_announced(shown=shown):
            for function in (lambda x: x, lambda x: x + 1):
                numba.njit(function)(1)
        return capsys.readouterr().err

    assert compile_two(shown=False) == ""
    assert compile_two(shown=True).count("compiling loops") == 1

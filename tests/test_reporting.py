"""What a person sees of a training, and what is kept: plain lines or a bar, metrics, TensorBoard, accuracies."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lmtool.config.training import Arithmetic
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.evaluation.score import accuracy
from lmtool.neural.devices import choose_device
from lmtool.training.reporting import METRICS, Reporter
from tests.conftest import fresh_process, neural
from tests.test_training import run, training

Run = Callable[..., str]
LINE = ["train", "data=toy", "training.epochs=3", "training.batch_size=16", "training.minutes=null"]
LINE += ["model.embedding_dim=8", "model.hidden_dim=12"]


def test_plain_lines_in_a_file(tmp_path: Path) -> None:
    done = fresh_process(*LINE, "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0
    assert all(letter.isprintable() or letter == "\n" for letter in done.stderr + done.stdout)
    lines = done.stderr.splitlines()
    assert len(lines) == 6 and lines[-1].startswith("100 %  epoch 3.00  loss ")
    assert all(word in lines[-1] for word in ("valid", "perplexity", "accuracy", "examples/s"))


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    words = [sys.executable, "-m", "lmtool", *LINE, "hydra.run.dir=run"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=theirs, stdout=subprocess.DEVNULL) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            said += piece
    os.close(ours)
    assert process.returncode == 0
    assert b"\r" in said and b"|" in said and "epoch 3.00" in said.decode()


def test_the_time_left_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reporter = Reporter(tmp_path, bar=False, tensorboard=False)
    caplog.set_level("INFO")
    reporter.step(reporter._last_report + 60, 0.25, 1.5, 5.0, 1234.5, 90.0)
    assert caplog.messages == [" 25 %  epoch 1.50  loss 5.0000  perplexity 148.4  1,234 examples/s  4:30 left"]
    reporter.step(reporter._last_report + 1, 0.25, 1.5, 5.0, 1234.5, 90.0)
    reporter.step(reporter._last_report + 60, 0.25, 1.5, 5.0, 1234.5, 3000.0)
    assert len(caplog.messages) == 2 and caplog.messages[1].endswith("2:30:00 left")
    reporter.close()


def test_metrics_of_later_steps_are_removed(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text('{"step": 1}\n{"step": 5}\n{"step": 9}\n{"ste')
    Reporter(tmp_path, bar=False, tensorboard=False).rewind(5)
    assert (tmp_path / METRICS).read_text() == '{"step": 1}\n{"step": 5}\n'


def test_accuracy_by_hand(toy: Corpus) -> None:
    model = neural(toy)
    split = toy.split("valid")
    contexts, targets = split.windows(np.arange(split.tokens), 3)
    first = model.log_dist(contexts).argmax(1)  # type: ignore[attr-defined]
    assert accuracy(model, contexts, first).tolist() == [1.0] * len(first)  # type: ignore[arg-type]
    some = np.where(np.arange(len(first)) % 2, first, (first + 1) % 23)
    assert accuracy(model, contexts, some).tolist() == [float(k % 2) for k in range(len(first))]  # type: ignore[arg-type]
    assert accuracy(model, contexts[:0], targets[:0]).tolist() == []  # type: ignore[arg-type]


def test_accuracies_are_of_the_words_asked_for(toy: Corpus, tmp_path: Path) -> None:
    model, _ = run(toy, tmp_path, training(epochs=4))
    last = json.loads((tmp_path / METRICS).read_text().splitlines()[-1])
    for name in ("train", "valid"):
        split = toy.split(name)
        hits = accuracy(model, *split.windows(np.arange(split.tokens), 3))
        assert last[f"{name}_accuracy"] == pytest.approx(hits.mean())  # the last is the best here
    run(toy, tmp_path / "none", training(epochs=1, accuracy_on=0))
    assert json.loads((tmp_path / "none" / METRICS).read_text())["valid_accuracy"] is None


def test_tensorboard(lmtool: Run) -> None:
    pytest.importorskip("tensorboard")
    lmtool(*LINE, "training.tensorboard=true", "hydra.run.dir=run")
    (events,) = Path("run/tensorboard").iterdir()
    assert b"valid_perplexity" in events.read_bytes()


def test_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r'pip install "lmtool\[tensorboard\]"'):
        Reporter(tmp_path, bar=False, tensorboard=True)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's tracer looks at it
def test_autocast_and_compile_are_close_to_plain(toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, plain = run(toy, tmp_path / "plain", training(epochs=2))
    _, narrow = run(toy, tmp_path / "narrow", training(epochs=2, precision=Arithmetic.bf16))
    assert narrow.valid_perplexity == pytest.approx(plain.valid_perplexity, rel=0.02)
    assert narrow.valid_perplexity != plain.valid_perplexity
    # The compiler itself takes a minute; that the encoder's arithmetic is handed to it is what is ours.
    compiled = []
    through = torch.compile

    def compile_eagerly(function: Callable[..., torch.Tensor]) -> object:
        compiled.append(function.__name__)
        return through(function, backend="eager")

    monkeypatch.setattr(torch, "compile", compile_eagerly)
    _, same = run(toy, tmp_path / "compiled", training(epochs=2, compile=True))
    assert compiled == ["of_embeddings"]
    assert same.valid_perplexity == pytest.approx(plain.valid_perplexity, rel=1e-3)


def test_devices() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    if not torch.cuda.is_available():
        assert choose_device("auto") == torch.device("cpu")
        with pytest.raises(UserError, match=r"device=cuda: torch .* finds no such device here"):
            choose_device("cuda")
    with pytest.raises(UserError, match=r"device=mps: .* take device=cpu"):
        choose_device("mps")

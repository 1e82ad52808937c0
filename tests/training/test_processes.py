"""Training in two processes that torchrun starts: the gradients, what is written, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from lmtool.cli.command_line import main
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.training.batches import Batches
from lmtool.training.processes import Processes, joined_processes
from tests.conftest import ROOT, Run
from tests.forked import End, run_forked
from tests.two_processes import main as compare_two

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
LINE = ["data=toy", "model.dropout=0", "model.input_dropout=0", "model.embedding_dim=8", "model.hidden_dim=12"]
LINE += ["training.batch_size=16", "training.minutes=null", "optim.lr=0.02"]


SURROUNDINGS = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def two_processes(call: Callable[[], int | None], folder: Path) -> list[End]:
    """Run a call in two processes that find each other as those of torchrun do."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    common |= {"OMP_NUM_THREADS": "1"}
    return run_forked(call, folder, *(common | {"RANK": rank, "LOCAL_RANK": rank} for rank in "01"))


def losses(run: Path, name: str = "valid_loss") -> list[float]:
    return [json.loads(line)[name] for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_gradients_and_evaluation(toy: Corpus, tmp_path: Path) -> None:
    (first, said, errors), (second, nothing, more) = two_processes(partial(compare_two, toy.path), tmp_path)
    assert (first, second) == (0, 0), errors + more
    assert "the same in two processes" in said and not nothing


def test_the_command_line_in_two_processes(lmtool: Run, tmp_path: Path) -> None:
    """It trains as one process does, resumes, and only one of the two writes."""
    words = ["train", *LINE, "schedule=constant"]
    stage = ["training.epochs=2", "training.save_every=1e-6"]  # minutes: at every step
    ends = two_processes(partial(main, [*words, *stage, "hydra.run.dir=both"]), tmp_path)
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert [said.count("valid perplexity") for _, said, _ in ends] == [1, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both", "stores"]
    before = losses(tmp_path / "both", "train_loss")
    (tmp_path / "both" / "state.safetensors").unlink()  # the one before it is of the step before the last evaluation
    ends = two_processes(partial(main, ["train", "resume=both", "training.epochs=4"]), tmp_path)
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert losses(tmp_path / "both", "train_loss")[: len(before)] == before, (
        "each process has the losses of its examples"
    )
    lmtool(*words, "training.epochs=4", "hydra.run.dir=one")
    assert losses(tmp_path / "both") == pytest.approx(losses(tmp_path / "one"), abs=1e-5)
    assert losses(tmp_path / "one")[-1] < 0.5 * losses(tmp_path / "one")[0]
    refused = lmtool("train", "resume=both", "training.epochs=5", code=2)
    assert "processes: " in refused and "begun with 2" in refused


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the processes in /proc")
def test_a_process_that_dies_ends_the_job(tmp_path: Path) -> None:
    words = [*TORCHRUN, "-m", "lmtool", "train", *LINE, "training.epochs=100000", "hydra.run.dir=run"]
    with subprocess.Popen(
        words, cwd=tmp_path, env=SURROUNDINGS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as job:
        try:
            metrics = tmp_path / "run" / "metrics.jsonl"
            until = time.monotonic() + 60
            while not metrics.exists() and time.monotonic() < until:
                time.sleep(0.1)
            os.kill(_second(tmp_path), signal.SIGKILL)
            said, _ = job.communicate(timeout=60)
        finally:
            job.kill()
    assert job.returncode != 0 and "Signal 9" in said
    assert not (tmp_path / "run" / "run.json").exists()


def _second(folder: Path) -> int:
    """Return the process of rank 1 that runs in a folder."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # those that have just ended
            if Path(os.readlink(process / "cwd")) == folder and b"RANK=1" in (process / "environ").read_bytes().split(
                b"\0"
            ):
                return int(process.name)
    raise AssertionError("no process of rank 1")


@pytest.mark.parametrize("line", ["eval", "train -m seed=1,2", "train model=ngram data=toy"])
def test_what_several_processes_cannot_do(line: str, lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert "torchrun" in lmtool(*line.split(), code=2)


def test_a_batch_that_cannot_be_shared(toy: Corpus) -> None:
    with pytest.raises(UserError, match=r"training.batch_size=15: 2 processes share it, so it must be a multiple of 2"):
        Batches(toy.split("train"), 15, 2, 1, part=(0, 2))


def test_nccl_is_told_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "init_process_group", lambda *form, **more: calls.append((*form, more.get("device_id"))))
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    for device in (torch.device("cuda", 1), torch.device("cpu")):
        with joined_processes(device) as processes:
            assert processes == Processes(1, 2)
    assert calls == [("nccl", torch.device("cuda", 1)), ("gloo", None)]


# The temporary folder of a process of higher rank goes with it


CODE = """
import os
from lmtool.cli.run_line import request_of_rank
from lmtool.config.request import Request

folder = request_of_rank(Request("train", values={"out": "given"})).values["out"]
assert folder != "given" and os.path.isdir(folder) and os.listdir(os.environ["TMPDIR"])
open(os.path.join(folder, "train.log"), "w").close()
raise SystemExit(3)
"""


def test_a_process_of_rank_1_leaves_no_folder(tmp_path: Path) -> None:
    environment = os.environ | {"WORLD_SIZE": "2", "RANK": "1", "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, timeout=60, check=False)
    assert done.returncode == 3 and not list(tmp_path.iterdir())


def test_nor_does_a_command_that_fails(tmp_path: Path) -> None:
    environment = os.environ | {"WORLD_SIZE": "2", "RANK": "1", "TMPDIR": str(tmp_path)}
    line = [sys.executable, "-m", "lmtool", "train", "data=toy", "model.layers=-1"]
    done = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "model.layers=-1" in done.stderr
    assert not list(tmp_path.iterdir())

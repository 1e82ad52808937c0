"""Calls on several threads: torch's own where there is one, else workers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lmtool.session import Session
from lmtool.system import parallel


@pytest.fixture(autouse=True)
def three_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel._here, "threads", 3)


@pytest.fixture(params=["team", "workers"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "workers":
        monkeypatch.setattr(parallel, "_has_team", lambda: False)
    elif parallel._team() is None:
        pytest.skip("torch has no OpenMP of GCC's interface here")
    return str(request.param)


def native(number: int) -> tuple[int, int]:
    time.sleep(0.02)
    return number, threading.get_native_id()


def test_results_are_in_order_and_from_several_threads(kind: str) -> None:
    results = parallel.run((native, number) for number in range(8))
    assert [number for number, _ in results] == list(range(8))
    threads = [thread for _, thread in results]
    assert len(set(threads)) == 3 and threads[0] == threading.get_native_id()
    assert threads[:2] == threads[3:5] == threads[6:]  # each takes every third call


def test_the_first_error_is_raised(kind: str) -> None:
    def fail(number: int) -> int:
        if number:
            raise ValueError(f"call {number}")
        return number

    with pytest.raises(ValueError, match="call 1"):
        parallel.run((fail, number) for number in range(3))
    assert parallel.run((fail, 0) for _ in range(3)) == [0, 0, 0]


def test_a_call_within_a_call_stays_on_its_thread(kind: str) -> None:
    def outer(number: int) -> list[tuple[int, int]]:
        return [*parallel.run((native, inner) for inner in range(2)), native(number)]

    for inner in parallel.run((outer, number) for number in range(3)):
        assert len({thread for _, thread in inner}) == 1
    assert len({thread for _, thread in parallel.run((native, n) for n in range(3))}) == 3


@pytest.mark.parametrize(
    ("most", "pieces"),
    [(0, [(0, 10)]), (1, [(0, 10)]), (2, [(0, 5), (5, 10)]), (9, [(0, 3), (3, 6), (6, 10)])],
)
def test_no_more_pieces_than_there_is_work_for(
    most: int, pieces: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel._here, "threads", 3)
    found = parallel.run_pieces(lambda *given: given, ["a", 1], 10, most)
    assert found == [("a", 1, first, last) for first, last in pieces]


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_the_team_is_that_of_torch_and_other_threads_and_forks_have_workers(tmp_path: Path) -> None:
    # A build of torch with another OpenMP has no such function; the wheels for Linux have. A forked child would wait
    # for ever for the work of a team that its process has used.
    code = """
import os, threading, lmtool, torch
from lmtool.system import parallel
torch.set_num_threads(3)
parallel.use(3)
x = torch.ones(600, 600)
x @ x
before = set(os.listdir("/proc/self/task"))
results = parallel.run((os.sched_getaffinity, 0) for _ in range(3))
assert parallel._team() is not None and len(results) == 3
assert set(os.listdir("/proc/self/task")) == before, "threads beside those of torch"

calls = [(int, "1"), (int, "2")]
assert parallel.run(calls) == [1, 2] and parallel._has_team()
found = []
thread = threading.Thread(target=lambda: found.append((parallel._has_team(), parallel.run(calls))))
thread.start()
thread.join()
assert found == [(False, [1, 2])]

corpus = lmtool.Corpus.from_texts(["the cat sat on the mat"] * 300, ["the cat"])
small = {"epochs": 1, "minutes": None, "batch_size": 1024}
def perplexity(out):
    return lmtool.train("nplm", corpus, out=out, threads=2, training=small).model.perplexity("the cat")
there = perplexity("there")
child = os.fork()
if not child:
    works = parallel.run(calls) == [1, 2] and not parallel._has_team()
    os._exit(0 if works and abs(perplexity("here") / there - 1) < 1e-3 and torch.get_num_threads() == 1 else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    if "OpenMP" not in torch.__config__.parallel_info():
        pytest.skip("torch is built without OpenMP")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, timeout=60, env=environment)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A machine of four cores: what was used of them, in seconds, by all processes and by this one, so far."""
    used = {"time": 100.0, "all": 50.0, "own": 10.0}
    monkeypatch.setattr(parallel, "_times", lambda: (used["time"], used["all"], used["own"]))
    monkeypatch.setattr(parallel.time, "monotonic", lambda: used["time"])
    monkeypatch.setattr(parallel, "_seen", parallel._times())
    monkeypatch.setattr(parallel, "cores", lambda: 4)
    monkeypatch.setattr(parallel, "set_torch_threads", lambda: None)
    monkeypatch.setattr(parallel, "_here", parallel._Here())
    monkeypatch.setattr(parallel, "LOOK_EVERY", 2.0)
    return used


def later(load: dict[str, float], seconds: float, others: float, own: float) -> int:
    """Return the number of threads in use after other processes have used this number of cores for some seconds."""
    load["time"] += seconds
    load["all"] += seconds * (others + own)
    load["own"] += seconds * own
    parallel.follow_load(2.0)
    return parallel.threads()


def test_threads_are_those_that_other_processes_leave_cores_for(load: dict[str, float]) -> None:
    assert parallel.use(None, follow=True) == 4 and not parallel.was_lowered()
    assert later(load, 3, others=0.3, own=3.7) == 4
    assert later(load, 3, others=2.0, own=2.0) == 2 and parallel.was_lowered()  # of two processes that never wait
    assert later(load, 1, others=0.0, own=2.0) == 2  # too soon
    assert later(load, 2, others=1.0, own=2.0) == 3
    assert later(load, 3, others=3.9, own=0.1) == 1
    assert later(load, 3, others=6.0, own=0.0) == 1  # never none, whatever the kernel's ticks add up to
    assert later(load, 3, others=0.0, own=1.0) == 4
    assert later(load, 30, others=4.0, own=1.0) == 4  # an average of too long a time says nothing of now
    assert parallel.use(3) == 3 and not parallel.was_lowered()
    assert later(load, 3, others=4.0, own=1.0) == 3  # a number that was given stays


def test_the_kernel_says_what_other_processes_use() -> None:
    if not Path("/proc/stat").exists():
        pytest.skip("needs /proc/stat")
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.3)
        before = parallel._times()
        time.sleep(0.7)
        seconds, used, own = (now - then for now, then in zip(parallel._times(), before, strict=True))
    finally:
        busy.kill()
        busy.wait()
    assert seconds >= 0.7 and 0.3 < used - own <= parallel.cores() * seconds + 0.05


def test_threads_of_openmp_are_taken_unless_others_are_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "5,2")
    session = Session(tmp_path)
    assert session.use_threads(None) == 5 and parallel._here.max_threads == 0
    assert session.use_threads(2) == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # torchrun sets OMP_NUM_THREADS=1 by itself
    assert session.use_threads(None) == max(1, parallel.cores() // 2)
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    for without in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", without)
        assert session.use_threads(None) == parallel.cores() == parallel._here.max_threads


def test_eval_of_a_network_has_the_threads_that_were_asked_for(runs: Path, lmtool: Callable[..., str]) -> None:
    """They were torch's own, one per core, whatever threads= was."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        lmtool("eval", f"run={runs}/nplm", "threads=1")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)

"""Calls on several threads: torch's own where there is one, else workers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from lmtool.system import parallel


@pytest.fixture(autouse=True)
def three_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_threads", 3)


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
    monkeypatch.setattr(parallel, "_threads", 3)
    found = parallel.run_pieces(lambda *given: given, ["a", 1], 10, most)
    assert found == [("a", 1, first, last) for first, last in pieces]


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_the_team_is_that_of_torch() -> None:
    # A build of torch with another OpenMP has no such function; the wheels for Linux have.
    code = """
import os, torch
from lmtool.system import parallel
torch.set_num_threads(3)
parallel.use(3)
x = torch.ones(600, 600)
x @ x
before = set(os.listdir("/proc/self/task"))
results = parallel.run((os.sched_getaffinity, 0) for _ in range(3))
assert parallel._team() is not None and len(results) == 3
assert set(os.listdir("/proc/self/task")) == before, "threads beside those of torch"
"""
    if "OpenMP" not in torch.__config__.parallel_info():
        pytest.skip("torch is built without OpenMP")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_and_other_threads_have_workers() -> None:
    code = """
import os, sys, threading, torch
from lmtool.system import parallel
parallel.use(2)
calls = [(int, "1"), (int, "2")]
assert parallel.run(calls) == [1, 2] and parallel._has_team()
found = []
thread = threading.Thread(target=lambda: found.append((parallel._has_team(), parallel.run(calls))))
thread.start()
thread.join()
assert found == [(False, [1, 2])]
child = os.fork()
if not child:
    os._exit(0 if parallel.run(calls) == [1, 2] and not parallel._has_team() else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent, timeout=60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_trains_and_scores(tmp_path: Path) -> None:
    # Its process has used torch's team of threads, for whose work a child would wait for ever.
    code = """
import os, lmtool, torch
torch.set_num_threads(2)
torch.ones(1000, 1000) @ torch.ones(1000, 1000)
corpus = lmtool.Corpus.from_texts(["the cat sat on the mat"] * 300, ["the cat"])
small = {"epochs": 1, "minutes": None, "batch_size": 1024}
def perplexity(out):
    return lmtool.train("nplm", corpus, out=out, threads=2, training=small).model.perplexity("the cat")
there = perplexity("there")
child = os.fork()
if not child:
    os._exit(0 if abs(perplexity("here") / there - 1) < 1e-3 and torch.get_num_threads() == 1 else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, timeout=60, env=environment)

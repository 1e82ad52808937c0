"""Counting on a real Spark cluster, a master and two workers on loopback: the same model whatever is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import spark_cluster
from tests.conftest import Run

needs_spark = pytest.mark.skipif(
    not spark_cluster.has_spark(), reason="needs pyspark (pip install lmtool[spark]) and a Java runtime"
)
TRAIN = ("train", "model=ngram", "model.order=3", "prune_counts=[0,0,1]", "data=text", "data.valid=valid.txt")
ENTROPY = "prune_entropy=1e-6"
# Three trainings by one driver: the first line is interrupted, then run again.
THREE = """
import sys
from lmtool.cli.command_line import main
lines = sys.argv[1:]
at = lines.index("--")
sys.exit([main(words) for words in (lines[:at], lines[:at], lines[at + 1 :])] != [130, 0, 0])
"""


def write_text(folder: Path) -> None:
    """Two files and a compressed one, 12,000 sentences of 10 words, some of them rare."""
    draw = random.Random(4)
    words = [f"w{k}" for k in range(2000)]
    weights = [1 / (k + 1) for k in range(2000)]
    (folder / "texts {1}").mkdir()
    lines = [" ".join(draw.choices(words, weights, k=10)) for _ in range(12_000)]
    (folder / "texts {1}" / "a.txt").write_text("\ufeff" + "\n".join(lines[:4_000]) + "\n\n")
    (folder / "texts {1}" / "b.txt").write_text("\n".join(lines[4_000:8_000]))
    (folder / "texts {1}" / "c.txt").write_text("\n".join(lines[8_000:]) + "\n")
    subprocess.run(["gzip", "-n", "texts {1}/c.txt"], cwd=folder, check=True)
    (folder / "valid.txt").write_text("\n".join(lines[:50]) + "\n")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    with spark_cluster.cluster(tmp_path / "cluster", "600m", short=True) as started:
        yield started


@pytest.fixture
def drivers() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def until(ready: Callable[[], object], process: subprocess.Popen[str], what: str) -> None:
    end = time.monotonic() + 600
    while not ready():
        if process.poll() is not None:
            raise AssertionError(f"ended before {what}: {process.communicate()}")
        assert time.monotonic() < end, f"no {what}"
        time.sleep(0.02)


def writing(step: str) -> list[Path]:
    """Return the folders that tasks of a step are writing into."""
    return list(Path().glob(f"stores/spark-*/{step}/_temporary"))


def finished() -> dict[Path, int]:
    """Return the finished steps and their times."""
    return {path: path.stat().st_mtime_ns for path in Path().glob("stores/spark-*/*/_SUCCESS")}


@needs_spark
def test_the_same_models_though_all_are_killed_and_interrupted(
    lmtool: Run, cluster: Any, drivers: list[subprocess.Popen[str]]
) -> None:
    write_text(Path())
    for name, more in (("here", ()), ("here-pruned", (ENTROPY,))):
        lmtool(*TRAIN, *more, "data.train='texts {1}'", f"hydra.run.dir={name}")
    options = spark_cluster.override(cluster.options | spark_cluster.logged(Path("events")))
    line = [*TRAIN, "data.train='texts {1}/*'", "counts=spark", f"counts.master={cluster.master}", options]
    line += ["counts.partitions=3", "hydra.run.dir=there"]

    def started(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *words], env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        drivers.append(process)
        return process

    driver = started("-m", "lmtool", *line)
    until(lambda: cluster.executors() and writing("types"), driver, "types")
    os.kill(cluster.executors()[0], signal.SIGKILL)
    until(lambda: writing("pieces-*"), driver, "counts of pieces")
    worker = cluster.workers[1]
    lost = [*spark_cluster.children(worker.pid), worker.pid]
    for pid in reversed(lost):
        os.kill(pid, signal.SIGKILL)
    until(lambda: writing("ngrams-*"), driver, "sorted n-grams")
    driver.kill()
    driver.communicate()
    assert not Path("there/model.h5").exists() and not Path("there/run.json").exists()
    before = finished()
    assert [path.parent.name.partition("-")[0] for path in sorted(before)] == ["pieces", "types"]

    before_it = {*Path("events").iterdir()}

    def sorting() -> bool:
        """Return whether the next driver has begun to sort; executors of the killed one may still write."""
        logs = {*Path("events").iterdir()} - before_it
        return any(step.startswith("ngrams") for log in logs for step, _ in spark_cluster.exchanges(log))

    driver = started("-c", THREE, *line, "--", *line[:-1], "hydra.run.dir=there-pruned", ENTROPY)
    until(sorting, driver, "sorted n-grams")
    driver.send_signal(signal.SIGINT)
    out, err = driver.communicate(timeout=600)
    assert driver.returncode == 0, err
    assert before.items() <= finished().items()  # they were taken up, not made again
    assert "Traceback" not in err and err.count("lmtool: interrupted\n") == 1 and "n-grams" in out
    for name in ("", "-pruned"):
        assert Path(f"there{name}/model.h5").read_bytes() == Path(f"here{name}/model.h5").read_bytes(), name

    # The n-grams are moved between partitions once, to be sorted, and entropy pruning needs no step of Spark's.
    found = {
        step.partition("-")[0]: moves
        for log in Path("events").iterdir()
        for step, moves in spark_cluster.exchanges(log)
    }
    assert found == {"types": 1, "pieces": 0, "ngrams": 1}

    # The run is one like any other.
    assert "perplexity" in lmtool("eval", "run=there", "split=valid")
    assert "has only valid" in lmtool("eval", "run=there", "split=train", code=2)


def test_what_spark_does_not_count_is_refused(lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="needs pyspark (pip install lmtool[spark])")
    words = ("train", "model=ngram", "counts=spark")
    Path("a.txt").write_text("a b\n")
    assert "counts.partitions=0" in lmtool(*words, "data=text", "data.train=a.txt", "counts.partitions=0", code=2)
    assert "data.kind=toy is not stored in text files" in lmtool(*words, "data=toy", code=2)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    said = lmtool(*words, "data=text", "data.train=a.txt", "data.valid=a.txt", code=2)
    assert "no Java runtime: install version 17 or later" in said

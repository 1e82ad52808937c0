"""A Spark cluster on this machine, and what its event logs and processes say; also for `./scripts/measure spark`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CLIENT = ("spark.driver.bindAddress", "spark.driver.host")


class Cluster:
    """A standalone cluster on loopback: a master and two workers of one core each, in separate processes."""

    def __init__(self, folder: Path, memory: str, *, short: bool) -> None:
        """memory: of each executor. short: for work of seconds, for which Java's better compiler is too slow."""
        import pyspark

        self.home = Path(pyspark.__file__).parent
        self.folder, self.memory, self.short = folder, memory, short
        self.environment = os.environ | {
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        if short:
            # Java's start is most of such work; without a check of Spark's classes it takes a sixth less.
            unchecked = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
            plain = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
            self.environment["JAVA_TOOL_OPTIONS"] = f"{plain} {unchecked}"
        port, self.page = free_port(), free_port()
        self.master = f"spark://127.0.0.1:{port}"
        daemon = "org.apache.spark.deploy"
        self._processes = [
            self._start(f"{daemon}.master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", self.page)
        ]
        self._wait(lambda: self._state() is not None)
        one = (f"{daemon}.worker.Worker", "--host", "127.0.0.1", "--cores", 1, "--memory", memory, "--webui-port", 0)
        self.workers = [self._start(*one, self.master) for _ in range(2)]
        self._processes += self.workers
        self._wait(lambda: (self._state() or {}).get("aliveworkers") == 2)

    @property
    def options(self) -> dict[str, str]:
        """Spark settings that a driver on this machine needs."""
        settings = dict.fromkeys(CLIENT, "127.0.0.1") | {"spark.ui.enabled": "false"}
        memory = {"spark.executor.memory": self.memory, "spark.driver.memory": "512m"}
        return settings | memory | ({"spark.sql.shuffle.partitions": "4"} if self.short else {})

    def _start(self, *words: object) -> subprocess.Popen[bytes]:
        log = (self.folder / "daemons.log").open("ab")
        command = [str(self.home / "bin" / "spark-class"), *map(str, words)]
        with log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)

    def _state(self) -> dict[str, Any] | None:
        with suppress(OSError, ValueError), urllib.request.urlopen(f"http://127.0.0.1:{self.page}/json/") as answer:
            found: dict[str, Any] = json.load(answer)
            return found
        return None

    def _wait(self, ready: Callable[[], bool], seconds: float = 240) -> None:
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end:
                raise RuntimeError(f"no cluster: {(self.folder / 'daemons.log').read_text()[-2000:]}")
            time.sleep(0.2)

    def executors(self) -> list[int]:
        """Return the process numbers of the living executors, by worker."""
        return [pid for worker in self.workers for pid in children(worker.pid)]

    def close(self) -> None:
        """End all processes."""
        for pid in self.executors():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in reversed(self._processes):
            process.kill()
            process.wait()


def children(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        return [int(word) for word in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()] + [
            int(word)
            for task in Path(f"/proc/{parent}/task").iterdir()
            if task.name != str(parent)
            for word in (task / "children").read_text().split()
        ]
    except OSError:
        return []


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def cluster(folder: Path, memory: str = "1g", *, short: bool = False) -> Iterator[Cluster]:
    """Start a cluster that ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    started = Cluster(folder, memory, short=short)
    try:
        yield started
    finally:
        started.close()


def has_spark() -> bool:
    """Return whether pyspark and a Java runtime are installed."""
    if importlib.util.find_spec("pyspark") is None:
        return False
    from lmtool.ngram.spark.cluster import has_java  # needs pyarrow, which comes with the extra spark

    return has_java()


def override(options: dict[str, str]) -> str:
    """Return Spark's settings as an override of lmtool."""
    return f"counts.options={{{', '.join(f'{name}: {chr(39)}{value}{chr(39)}' for name, value in options.items())}}}"


def logged(folder: Path) -> dict[str, str]:
    """Return the settings with which a driver writes its event log into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = dict.fromkeys(("spark.eventLog.compress", "spark.eventLog.rolling.enabled"), "false")
    return plain | {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder.resolve().as_uri()}


def exchanges(log: Path) -> list[tuple[str, int]]:
    """Return what each step of an event log wrote, and how often its plan moves rows between partitions."""
    found = {}
    for line in log.read_text().rpartition("\n")[0].splitlines():  # a killed driver's last line may be half written
        event = json.loads(line)
        if not event["Event"].startswith("org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"):
            continue
        plan = event["physicalPlanDescription"]
        target = re.search(r"Execute InsertIntoHadoopFsRelationCommand\s+.*?Arguments: \S*/([\w-]+),", plan, re.DOTALL)
        if target:
            initial = plan.partition("== Initial Plan ==")[2] or plan
            found[target[1]] = len(
                re.findall(r"^[\s:+*-]*\(?\d*\)?\s*Exchange", initial.partition("\n\n")[0], re.MULTILINE)
            )
    return list(found.items())


def shuffled(log: Path) -> int:
    """Return the bytes that the tasks of an event log wrote to be moved to another partition."""
    total = 0
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
            total += event["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    return total


def peaks(root: int) -> dict[str, int]:
    """Return peak resident bytes of the process `root`, of the Java processes below it and of other Python ones."""
    found = {"driver": 0, "java": 0, "workers": 0}
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        waiting += children(pid)
        with suppress(OSError, IndexError, StopIteration):
            status = Path(f"/proc/{pid}/status").read_text()
            peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) << 10
            name = "driver" if pid == root else "java" if status.split()[1].startswith("java") else "workers"
            found[name] += peak
    return found


def timed(line: list[str], environment: dict[str, str], roots: list[int]) -> tuple[float, float, dict[str, int]]:
    """Run a command; return when it began, its wall seconds, and peaks of its processes and of those below `roots`."""
    begin, most = time.time(), {"driver": 0, "java": 0, "workers": 0}
    process = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        now = peaks(process.pid)
        for root in roots:
            for name, value in peaks(root).items():
                now["java" if name == "driver" else name] += value
        most = {name: max(most[name], now[name]) for name in most}
        time.sleep(0.1)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, line)
    return begin, time.time() - begin, most


def finished_log(folder: Path) -> Path:
    """Return the event log in a folder, once Spark has finished writing it."""
    while True:
        (log,) = folder.iterdir()
        if log.suffix != ".inprogress":
            return log
        time.sleep(0.1)


def started(log: Path) -> float:
    """Return when the application of an event log had started, in seconds since 1970."""
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerApplicationStart":
            return float(event["Timestamp"]) / 1000
    raise ValueError(f"{log} has no start")

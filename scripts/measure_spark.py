"""A Spark cluster on this machine, and the measurement of counting on it for ./scripts/measure."""

from __future__ import annotations

import json
import os
import shutil
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
    """A standalone cluster on loopback: a master and two workers of one core each, as processes of their own."""

    def __init__(self, folder: Path, memory: str, *, short: bool) -> None:
        """memory: of each executor. short: for work of seconds, for which Java's better compiler takes too long."""
        import pyspark

        self.home = Path(pyspark.__file__).parent
        self.folder, self.memory = folder, memory
        self.environment = os.environ | {
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        if short:
            self.environment["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
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
    def options(self) -> str:
        """What a driver on this machine needs, as an override of lmtool."""
        settings = [f"{name}: 127.0.0.1" for name in CLIENT]
        settings += ["spark.ui.enabled: false", f"spark.executor.memory: {self.memory}", "spark.driver.memory: 512m"]
        settings.append("spark.sql.shuffle.partitions: 4")
        return f"counts.options={{{', '.join(settings)}}}"

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

    def _wait(self, ready: Callable[[], bool], seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end:
                raise RuntimeError(f"no cluster: {(self.folder / 'daemons.log').read_text()[-2000:]}")
            time.sleep(0.2)

    def executors(self) -> list[int]:
        """The process numbers of the executors that are alive, by worker."""
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
    """The processes that a process has started."""
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
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def cluster(folder: Path, memory: str = "1g", *, short: bool = False) -> Iterator[Cluster]:
    """A cluster that ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    started = Cluster(folder, memory, short=short)
    try:
        yield started
    finally:
        started.close()


def has_spark() -> bool:
    """Whether pyspark and a Java runtime are there."""
    with suppress(ImportError):
        import pyspark

        return bool(pyspark) and (shutil.which("java") is not None or "JAVA_HOME" in os.environ)
    return False

"""A Spark cluster on this machine, and the measurement of counting on it for ./scripts/measure."""

from __future__ import annotations

import importlib.util
import json
import lzma
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PRUNED = "prune_entropy=1e-7"
CLIENT = ("spark.driver.bindAddress", "spark.driver.host")


class Cluster:
    """A standalone cluster on loopback: a master and two workers of one core each, as processes of their own."""

    def __init__(self, folder: Path, memory: str, *, short: bool) -> None:
        """memory: of each executor. short: for work of seconds, for which Java's better compiler takes too long."""
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
        """What a driver on this machine needs."""
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
    if importlib.util.find_spec("pyspark") is None:
        return False
    from lmtool.ngram.spark.cluster import has_java  # needs pyarrow, which comes with the extra spark

    return has_java()


def override(options: dict[str, str]) -> str:
    """Spark's settings as an override of lmtool."""
    return f"counts.options={{{', '.join(f'{name}: {chr(39)}{value}{chr(39)}' for name, value in options.items())}}}"


def logged(folder: Path) -> dict[str, str]:
    """The settings by which a driver writes its event log into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = dict.fromkeys(("spark.eventLog.compress", "spark.eventLog.rolling.enabled"), "false")
    return plain | {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder.resolve().as_uri()}


def exchanges(log: Path) -> list[tuple[str, int]]:
    """What each step of a driver's event log wrote, and how often its plan moves rows between partitions."""
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
    """The bytes that the tasks of an event log wrote to be moved to another partition."""
    total = 0
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
            total += event["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    return total


def peaks(root: int) -> dict[str, int]:
    """Peak resident bytes of the process `root`, of the Java processes below it and of the other Python ones."""
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
    """Run a command: when it began, its wall seconds, and the peaks of its processes and of those below `roots`."""
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


def spark(data: Path, *, texts: Iterable[str] = ("ptb", "big20"), orders: Iterable[int] = (3, 5)) -> None:
    """PTB and big20, orders 3 and 5: counts=spark on local[2] and on a cluster, against counts=sorted, and with PRUNED.

    The seconds are those of the whole command, and without the start of Java; bytes a token are those that tasks hand
    to others; the model files are compared.
    """
    import h5py

    print("| text | order | counts | seconds | without Java's start | driver / Java / workers, MiB | bytes a token |")
    print("|---|---|---|---|---|---|---|")
    for name in texts:
        words = text_words(name, data)
        for order in orders:
            train = [sys.executable, "-m", "lmtool", "train", "model=ngram", f"model.order={order}", *words]
            with cluster(Path(f"cluster-{name}-{order}"), "1g") as there:
                local, alone = "counts.master=local[2]", {"spark.driver.memory": "1g"}  # it does the work too
                kinds = {
                    "sorted": ([], {}, dict(os.environ), []),
                    "local[2]": ([local], there.options | alone, there.environment, []),
                    "cluster": ([f"counts.master={there.master}"], there.options, there.environment, there.workers),
                    "sorted-pruned": ([PRUNED], {}, dict(os.environ), []),
                    "local[2]-pruned": ([local, PRUNED], there.options | alone, there.environment, []),
                }
                for kind, (more, options, environment, workers) in kinds.items():
                    run = Path(f"{name}-{order}-{kind}")
                    line = [*train, *more, f"hydra.run.dir={run}", f"store_dir=stores-{run}"]
                    is_spark = not kind.startswith("sorted")
                    if is_spark:
                        line += ["counts=spark", override(options | logged(Path(f"events-{run}")))]
                    begin, seconds, most = timed(line, environment, [worker.pid for worker in workers])
                    moved, start = "", 0.0
                    if is_spark:
                        log = finished_log(Path(f"events-{run}"))
                        with h5py.File(next(Path(f"stores-{run}").glob("*-counted.h5"))) as file:
                            tokens = json.loads(file.attrs["provenance"])["rows"][0]["tokens"]
                        moved, start = f"{shuffled(log) / tokens:.1f}", started(log) - begin
                        first = Path(f"{name}-{order}-sorted{'-pruned' if PRUNED in more else ''}")
                        assert (run / "model.h5").read_bytes() == (first / "model.h5").read_bytes(), "another model"
                    mib = " / ".join(f"{most[part] >> 20:,}" for part in ("driver", "java", "workers"))
                    print(
                        f"| {name} | {order} | {kind} | {seconds:.1f} | {seconds - start:.1f} | {mib} | {moved} |",
                        flush=True,
                    )
                    shutil.rmtree(f"stores-{run}")


def finished_log(folder: Path) -> Path:
    """The event log in a folder, when Spark has finished writing it."""
    while True:
        (log,) = folder.iterdir()
        if log.suffix != ".inprogress":
            return log
        time.sleep(0.1)


def started(log: Path) -> float:
    """When the application of an event log had started, in seconds since 1970."""
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerApplicationStart":
            return float(event["Timestamp"]) / 1000
    raise ValueError(f"{log} has no start")


def text_words(name: str, data: Path) -> list[str]:
    """The overrides of a text that Spark can read; big20 is unpacked, and the first lines of its end are its valid."""
    if name == "ptb":
        return ["data=ptb"]
    if not Path("big20.txt").exists():
        for file in ("big20", "big_heldout"):
            with lzma.open(data / f"{file}.txt.xz") as packed, Path(f"{file}.txt").open("wb") as text:
                shutil.copyfileobj(packed, text)
    here = Path.cwd()
    return ["data=text", "data.name=big20", f"data.train={here}/big20.txt", f"data.valid={here}/big_heldout.txt"]

"""The Spark session, on this machine or a cluster, its errors, and the folder of finished steps."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs
from pyarrow.dataset import Dataset, dataset

from lmtool.data.remote import escape_glob
from lmtool.errors import UserError
from lmtool.ngram.spark._tasks import Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


LOCAL = "file:"  # prefix of the path of a folder of this machine
DONE = "_SUCCESS"  # name of the file that Spark writes when all tasks have delivered their files
SETTINGS = {"spark.sql.parquet.compression.codec": "zstd"}
ONE_MACHINE = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
QUIET = Path(__file__).resolve().with_name("log4j2.properties")


@dataclass(frozen=True, slots=True)
class Stages:
    """The folder of finished steps, which driver and workers see, with a Parquet folder for each, by its address."""

    address: str

    def folder(self, name: str) -> str:
        return f"{self.address}/{name}"

    def finished(self, name: str, make: Callable[[], DataFrame]) -> str:
        """Return the folder of a step, as Spark reads it; run the step first if it is not finished."""
        if not self._exists(f"{name}/{DONE}"):
            rows = make()
            with ThreadPoolExecutor(1) as other:  # an interrupt would break off a thread's exchange with Java half way
                step = other.submit(rows.write.mode("overwrite").parquet, self.folder(name))
                try:
                    step.result()
                except KeyboardInterrupt:
                    rows.sparkSession.interruptAll()
                    raise
        return escape_glob(self.folder(name))

    def remove(self) -> None:
        files, path = self._files()
        files.delete_dir(path)

    def rows(self, name: str) -> Dataset:
        """Return the rows of a finished step, in the order of its files."""
        files, path = self._files()
        selector = fs.FileSelector(f"{path}/{name}", allow_not_found=True)
        found = sorted(info.path for info in files.get_file_info(selector) if info.path.endswith(".parquet"))
        if not found:
            raise UserError(
                f"{self.folder(name)} is empty for this machine: counts.folder must be an address that the driver and "
                "the workers see, such as hdfs://host/folder or a shared file system"
            )
        return dataset(found, filesystem=files, format="parquet")

    def _exists(self, name: str) -> bool:
        files, path = self._files()
        return bool(files.get_file_info(f"{path}/{name}").type != fs.FileType.NotFound)

    def _files(self) -> tuple[fs.FileSystem, str]:
        if self.address.startswith(LOCAL):
            return fs.LocalFileSystem(), self.address.removeprefix(LOCAL)
        try:
            found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(self.address)
            return found
        except (OSError, pa.ArrowInvalid) as error:
            raise UserError(f"counts.folder={self.address} cannot be reached: {error}") from error


def start(cluster: Any, *, progress: bool) -> SparkSession:
    """Start or reach the session of a cluster's master, e.g. `local[2]`, `spark://host:7077`, `sc://host:15002`."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise UserError('counts: pyspark is not installed; pip install "lmtool[spark]"') from None
    master, options = cluster.master, dict(_flat("", cluster.options or {}))
    is_client = master.startswith("sc://")
    if not is_client and not has_java():
        raise UserError(
            f"counts.master={master}: no Java runtime: install version 17 or later (Debian: openjdk-17-jre-headless), "
            "or name its folder by JAVA_HOME; a cluster with Spark Connect (counts.master=sc://HOST:15002) needs none"
        )
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers here use the Python of this process
    with refusals(f"counts.master={master}"):
        if is_client:
            builder = SparkSession.builder.remote(master)
            runtime = SETTINGS | options
        else:
            builder = SparkSession.builder.master(master).appName("lmtool")
            settings = SETTINGS | (ONE_MACHINE if master.startswith("local") else {}) | options
            settings.setdefault("spark.ui.showConsoleProgress", str(progress).lower())
            settings.setdefault("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={QUIET.as_uri()}")
            logging.getLogger("py4j").setLevel(logging.CRITICAL)
            for key, value in settings.items():
                builder = builder.config(key, value)
            runtime = SETTINGS
        with _own_interrupts():
            spark = builder.getOrCreate()
        for key, value in runtime.items():
            spark.conf.set(key, value)
    return spark


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    """Return Spark's settings by their names with dots, also those given as nested mappings."""
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _flat(f"{name}.{key}" if name else key, inner)]
    return [(name, str(value).lower() if isinstance(value, bool) else str(value))]


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep the handler of SIGINT: Spark's own asks Java in the middle of another answer, and prints why that fails."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def has_java() -> bool:
    """Return whether a Java runtime is found by JAVA_HOME or on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return (home is not None and (Path(home) / "bin" / "java").is_file()) or shutil.which("java") is not None


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turn errors of Spark inside the block into a UserError of one line that begins with `what`."""
    from pyspark.errors import PySparkException

    kinds: tuple[type[Exception], ...] = (PySparkException,)
    with suppress(ImportError):  # the client of Spark Connect alone has no py4j
        from py4j.protocol import Py4JError

        kinds = PySparkException, Py4JError
    try:
        yield
    except kinds as error:
        raise UserError(f"{what}: Spark says: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return the innermost cause that Spark names, in one line."""
    from pyspark.errors import PySparkException

    if isinstance(error, PySparkException):
        text = error.getMessage() or str(error)
    else:
        cause: Any = getattr(error, "java_exception", None)
        while cause is not None and cause.getCause() is not None:
            cause = cause.getCause()
        text = str(cause.getMessage()) if cause is not None else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def run_tasks(rows: DataFrame, task: Task, schema: str) -> DataFrame:
    """Return the rows that a task makes of each partition of `rows`."""
    return rows.mapInArrow(task, schema)  # type: ignore[arg-type]

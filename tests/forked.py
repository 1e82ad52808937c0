"""Run calls in separate processes, forked from a server that has imported torch: importing it takes as long as a
training of these tests.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lmtool.commands import _train_neural

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["lmtool.cli.run_line", "lmtool.commands._train_neural", "pytest"])


class End(NamedTuple):
    """How a process ended: its exit code, negative for a signal, and what it printed."""

    code: int | None
    out: str
    err: str


def run_forked(call: Callable[[], int | None], folder: Path, *environments: dict[str, str]) -> list[End]:
    """Run a call in one process for each environment, all at the same time, in a folder; exit codes are its values."""
    with tempfile.TemporaryDirectory() as logs:
        paths = [f"{logs}/{number}" for number in range(len(environments))]
        processes = [
            SERVER.Process(target=_run, args=(call, folder, path, environment))
            for path, environment in zip(paths, environments, strict=True)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
            process.kill()
            process.join()
        said = [[Path(f"{path}.{number}").read_text() for number in (1, 2)] for path in paths]
        return [End(process.exitcode, *texts) for process, texts in zip(processes, said, strict=True)]


def _run(call: Callable[[], int | None], folder: Path, log: str, environment: dict[str, str]) -> None:
    for number in (1, 2):
        os.dup2(os.open(f"{log}.{number}", os.O_CREAT | os.O_WRONLY), number)
    os.environ.update(environment)
    os.chdir(folder)
    _train_neural.can_plot = lambda: False  # as in tests/conftest.py
    sys.exit(call())

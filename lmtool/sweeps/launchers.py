"""What Hydra's launchers need of a machine, and the end of the processes that they start."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper

from lmtool.config.rules import require
from lmtool.errors import UserError

CTRL_C = 2.0  # seconds in which processes end that a terminal interrupts, too
BETWEEN_LOOKS = 10.0  # seconds between looks at SLURM's queue


def require_plugins(hydra: Any) -> None:
    """Raise UserError unless the launcher and the sweeper in Hydra's settings are installed plugins."""
    for part, kind in ("launcher", Launcher), ("sweeper", Sweeper):
        plugins = [f"{plugin.__module__}.{plugin.__name__}" for plugin in Plugins.instance().discover(kind)]
        rule = f"the class of an installed Hydra plugin; choose hydra/{part}=NAME"
        require((name := (hydra[part] or {}).get("_target_")) in plugins, f"hydra.{part}._target_", name, rule)


def require_launcher(launcher: Mapping[str, Any]) -> None:
    """Raise UserError for SLURM's launcher without SLURM, and for joblib's if semaphores are unavailable."""
    target = str(launcher.get("_target_", ""))
    if target.endswith("SlurmLauncher") and shutil.which("sbatch") is None:
        raise UserError(
            "hydra/launcher=submitit_slurm: no sbatch on this machine; start the sweep where SLURM's commands are "
            "installed, or take hydra/launcher=submitit_local"
        )
    if target.endswith("JoblibLauncher"):
        try:
            multiprocessing.Lock()
        except (ImportError, OSError):  # joblib would run the jobs in threads of this process, which jobs cannot share
            raise UserError(
                "hydra/launcher=joblib: its processes need named semaphores, which this machine does not offer (is "
                "there a /dev/shm that can be written to?); without the launcher the jobs run one after the other"
            ) from None


def end_processes(launcher: Mapping[str, Any], *, interrupted: bool) -> None:
    """End a launcher's processes after a sweep. interrupted: whether jobs may still run, which are cancelled.

    Hydra's plugins leave idle workers of joblib waiting, with all their memory, and submitit's jobs running.
    """
    target = str(launcher.get("_target_", ""))
    if target.endswith("JoblibLauncher"):
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor(reuse=True).shutdown(kill_workers=interrupted)
    elif interrupted and target.endswith("SlurmLauncher"):
        subprocess.run(["scancel", *_submitted_jobs(launcher)], capture_output=True, check=False)
    elif interrupted:
        until = time.monotonic() + CTRL_C
        while (processes := list(_running_processes(launcher))) and time.monotonic() < until:
            time.sleep(0.05)
        for process in processes:
            os.kill(process, signal.SIGINT)
        for process in processes:
            os.waitpid(process, 0)


def await_jobs(launcher: Mapping[str, Any]) -> None:
    """Wait until submitit's jobs have ended; Hydra's plugin stops waiting at the first one whose process died."""
    for process in _running_processes(launcher):
        os.waitpid(process, 0)
    if str(launcher.get("_target_", "")).endswith("SlurmLauncher"):
        line = ["squeue", "--noheader", f"--jobs={','.join(_submitted_jobs(launcher))}"]
        while subprocess.run(line, capture_output=True, check=False).stdout.strip():
            time.sleep(BETWEEN_LOOKS)


def _running_processes(launcher: Mapping[str, Any]) -> Iterator[int]:
    """Yield the processes of submitit's local jobs that run; none for other launchers."""
    if str(launcher.get("_target_", "")).endswith("submitit_launcher.LocalLauncher"):
        for name in _submitted_jobs(launcher):
            with suppress(ChildProcessError, ValueError):  # of an earlier sweep in the folder
                if os.waitpid(int(name), os.WNOHANG) == (0, 0):
                    yield int(name)


def _submitted_jobs(launcher: Mapping[str, Any]) -> list[str]:
    """Return the numbers of submitit's jobs, after which it names their folders: local ones are process numbers."""
    return [path.name for path in Path(launcher["submitit_folder"]).parent.glob("[0-9]*")]

"""The processes that launchers start: one that dies costs its own job alone, and none outlives the sweep."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hydra.core.utils import JobReturn, JobStatus

from lmtool.errors import UserError
from lmtool.sweeps.submitit_inside import jobs_wrapped

log = logging.getLogger(__name__)


@contextmanager
def looked_after(launcher: Mapping[str, Any]) -> Iterator[None]:
    """Look after the processes of Hydra's launcher of these settings, while it launches in this block.

    Raises UserError for SLURM's where SLURM is not.
    """
    target = str(launcher.get("_target_", ""))
    if target.endswith("JoblibLauncher"):
        with _joblib():
            yield
    elif "submitit_launcher" in target:
        if target.endswith("SlurmLauncher") and shutil.which("sbatch") is None:
            raise UserError(
                "hydra/launcher=submitit_slurm: there is no sbatch here; start the sweep on a machine that has SLURM's "
                "commands, or take hydra/launcher=submitit_local"
            )
        with _submitit():
            yield
    else:
        yield


@contextmanager
def _joblib() -> Iterator[None]:
    try:
        yield
    except BaseException:
        _end_joblib(kill=True)
        raise
    _end_joblib(kill=False)


def _end_joblib(kill: bool) -> None:
    from joblib.externals.loky import get_reusable_executor

    # They would wait for work for minutes, with all their memory: lmtool ends without Python's own clearing up.
    executor = get_reusable_executor(reuse=True)
    # joblib's has `terminate`, which also removes the folder it shares with its workers; one just made has not.
    end = executor.terminate if hasattr(executor, "terminate") else executor.shutdown
    end(kill_workers=kill)


@contextmanager
def _submitit() -> Iterator[None]:
    """Cancel the jobs of a sweep that is ended, and let one whose process dies cost itself alone."""
    with jobs_wrapped(_Awaited) as jobs:
        try:
            yield
        except BaseException:
            for job in jobs:
                job.cancel(check=False)
            raise


class _Awaited:
    """A job of submitit's; where its process died, its result is that of a failed job, and its folder tells more."""

    def __init__(self, job: Any) -> None:
        self.job = job

    def results(self) -> list[Any]:
        from submitit.core.utils import FailedJobError, UncompletedJobError

        try:
            found: list[Any] = self.job.results()
            return found
        except (FailedJobError, UncompletedJobError) as error:
            log.error("lmtool: a job's process ended before its job: %s", str(error).partition("\n")[0])
            lost = JobReturn(status=JobStatus.COMPLETED)
            lost.return_value = float("inf")
            return [lost]

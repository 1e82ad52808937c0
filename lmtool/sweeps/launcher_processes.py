"""The processes that launchers start: one that dies fails only its own job, and none outlives the sweep."""

from __future__ import annotations

import logging
import multiprocessing
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from hydra.core.utils import JobReturn, JobStatus

from lmtool.errors import UserError

log = logging.getLogger(__name__)


@contextmanager
def looked_after(launcher: Mapping[str, Any]) -> Iterator[None]:
    """End the processes of Hydra's launcher with these settings when the block in which it launches ends.

    Raises UserError for SLURM's launcher if SLURM is not installed, and for joblib's if semaphores are unavailable.
    """
    target = str(launcher.get("_target_", ""))
    if target.endswith("SlurmLauncher") and shutil.which("sbatch") is None:
        raise UserError(
            "hydra/launcher=submitit_slurm: no sbatch on this machine; start the sweep where SLURM's commands are "
            "installed, or take hydra/launcher=submitit_local"
        )
    looked_after_by = _submitit if "submitit_launcher" in target else nullcontext
    with (_joblib if target.endswith("JoblibLauncher") else looked_after_by)():
        yield


@contextmanager
def _joblib() -> Iterator[None]:
    try:
        multiprocessing.Lock()
    except (ImportError, OSError):  # joblib would run the jobs in threads of this process, which jobs cannot share
        raise UserError(
            "hydra/launcher=joblib: its processes need named semaphores, which this machine does not give (is there a "
            "/dev/shm that can be written to?); without the launcher the jobs run one after the other"
        ) from None
    try:
        yield
    except BaseException:
        _end_joblib(kill=True)
        raise
    _end_joblib(kill=False)


def _end_joblib(kill: bool) -> None:
    from joblib.externals.loky import get_reusable_executor

    # The workers would wait for more work for minutes, holding all their memory.
    executor = get_reusable_executor(reuse=True)
    # joblib's executor has `terminate`, which also removes the folder shared with its workers; a new executor lacks it.
    end = executor.terminate if hasattr(executor, "terminate") else executor.shutdown
    end(kill_workers=kill)


@contextmanager
def _submitit() -> Iterator[None]:
    """Cancel the jobs of an interrupted sweep; if a job's process dies, only that job fails.

    Hydra's plugin waits for its jobs one by one, stops at the first whose process died, and cancels none when it is
    interrupted; it has no setting or hook for either. So the method of submitit that gives it the jobs is wrapped.
    """
    import submitit

    jobs: list[Any] = []
    original = submitit.AutoExecutor.map_array

    def map_array(*arguments: Any) -> list[Any]:
        started = original(*arguments)
        jobs.extend(started)
        return [_Awaited(job) for job in started]

    submitit.AutoExecutor.map_array = map_array  # type: ignore[assignment,method-assign]
    try:
        yield
    except BaseException:
        for job in jobs:
            job.cancel(check=False)
        raise
    finally:
        submitit.AutoExecutor.map_array = original  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A submitit job that returns the result of a failed job if its process died."""

    job: Any

    def results(self) -> list[Any]:
        from submitit.core.utils import FailedJobError, UncompletedJobError

        try:
            results: list[Any] = self.job.results()
            return results
        except (FailedJobError, UncompletedJobError) as error:
            log.error("lmtool: a job's process ended before its job: %s", str(error).partition("\n")[0])
            failed = JobReturn(status=JobStatus.COMPLETED)
            failed.return_value = float("inf")
            return [failed]

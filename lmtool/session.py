"""The environment of one command: its output folder, threads, GPU, and whether it runs on a terminal, in a sweep or
from Python.

Parallel jobs of a sweep share the machine; the process that starts them passes on their number. Help pages import this
module with those of verbs: what takes time to import is imported within functions.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lmtool.config.request import Request
from lmtool.errors import UserError, escape_controls
from lmtool.system.terminal import write_out

# Names of environment variables, set by the process that starts a sweep's jobs: the number of parallel jobs, and the
# GPUs they share.
PARALLEL_JOBS_VAR = "LMTOOL_JOBS_AT_ONCE"
SHARED_DEVICES_VAR = "LMTOOL_SHARED_DEVICES"
DEVICES_VAR = "CUDA_VISIBLE_DEVICES"
IfRunExists = Literal["overwrite", "resume"] | None


@dataclass(frozen=True, slots=True)
class Session:
    """The environment of one command, everything but its settings.

    out: the output folder. request: what was asked for, from which resume= would start. choices: the option chosen in
    each group, presets by their own name: {"model": "hsoftmax", ...}. launcher: settings of the launcher of a sweep;
    None outside a sweep. progress: whether to show bars. quiet: whether `say` prints nothing, as in Python, where the
    result is displayed instead. keeps_output: whether `out` is kept; pictures are drawn only then. on_evaluation:
    called with each line of metrics.jsonl; if it returns True, the training ends. if_run_exists: what to do if `out`
    holds a run already. notes, warnings: the texts given to `note` and `warn`.
    """

    out: Path
    request: Request = field(default_factory=lambda: Request(""))
    choices: dict[str, str] = field(default_factory=dict)
    launcher: Mapping[str, Any] | None = None
    progress: bool = False
    quiet: bool = False
    keeps_output: bool = True
    on_evaluation: Callable[[dict[str, Any]], object] | None = None
    if_run_exists: IfRunExists = None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def in_sweep(self) -> bool:
        return self.launcher is not None

    def say(self, text: str = "", *, exact: bool = False) -> None:
        """Print with escapes instead of control characters. exact: unchanged, except on a terminal."""
        if not self.quiet:
            write_out(text if exact and sys.stdout and not sys.stdout.isatty() else escape_controls(text), end="\n")

    def note(self, *texts: str) -> None:
        self.notes.extend(texts)
        for text in texts:
            self.say(f"note: {text}")

    def warn(self, *texts: str) -> None:
        self.warnings.extend(texts)
        for text in texts:
            self.say(f"warning: {text}")

    def finish(self, result: Any, text: str, *written: str | Path | None) -> None:
        """Write a command's result.json, and print its result and the files that it has written."""
        self.save_result(result)
        self.say(text)
        for path in written:
            if path is not None and path != "-":
                self.say(f"wrote {path}")

    def save_result(self, result: Any) -> None:
        """Write result.json: the end of a command, or of a run before its run.json, which completes it."""
        from lmtool.system.files import write_json

        write_json(self.out / "result.json", result.as_json())

    def require_new(self) -> None:
        """Raise UserError for a run that would be overwritten, or, outside a sweep, an interrupted training."""
        from lmtool.runs.run import has_state

        if self.if_run_exists == "overwrite":
            return
        python = ", or replace it with overwrite=True" if self.quiet else ""
        if (self.out / "run.json").exists():
            raise UserError(f"{self.out} already holds a trained model: choose another folder, e.g. out=PATH{python}")
        if has_state(self.out) and not self.in_sweep:
            raise UserError(
                f"{self.out} holds a training that was cut off: resume it with resume={self.out}, or choose another "
                f"folder, e.g. out=PATH{python}"
            )

    def begin_writing(self) -> None:
        """Remove the records of a run that is to be overwritten: called once all that is read has been read."""
        from lmtool.runs.resume import remove_run

        if self.if_run_exists == "overwrite":
            remove_run(self.out)

    def use_threads(self, threads: int | None) -> int:
        """Set and return the number of threads of this process: the number given, else that of the launcher or of
        OMP_NUM_THREADS, else one per core, or fewer while other processes need the cores (parallel.follow_load).

        Processes of one machine that train one model, and parallel jobs of a sweep, share the cores.
        """
        from lmtool.system import parallel

        jobs = parallel_jobs() if self.in_sweep else 1
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        # torchrun sets OMP_NUM_THREADS=1 for its processes, and below it is set for parallel jobs.
        openmp = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # of the outer level of a list
        given = threads or (int(openmp) if here == parallel_jobs() == 1 and openmp.isdecimal() else None)
        given = given or (self.launcher or {}).get("cpus_per_task")
        share = max(1, parallel.cores() // (jobs * here))
        count = parallel.use(given or share, follow=not given and processes_started() == 1)
        parallel.set_torch_threads()
        if parallel_jobs() > 1:  # read by the libraries below torch and numpy when they are first imported
            os.environ.setdefault("OMP_NUM_THREADS", str(count))
        os.environ.setdefault("NUMBA_NUM_THREADS", str(count))  # read by numba when it is first imported
        return count


def processes_started() -> int:
    """Return the number of processes that torchrun started together; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def on_terminal() -> bool:
    """Return whether to show progress bars: standard error is a terminal, and no other job writes to it."""
    return sys.stderr is not None and sys.stderr.isatty() and parallel_jobs() == 1


def launcher_parallelism(launcher: Mapping[str, Any], jobs: int | None, cores: int) -> int:
    """Return the number of jobs that a launcher, by Hydra's settings, runs in parallel. jobs: those to run."""
    target = str(launcher.get("_target_", ""))
    if target.endswith("JoblibLauncher"):
        count = int(launcher["n_jobs"])
        count = count if count > 0 else max(1, cores + 1 + count)  # as joblib counts: -1 is all cores, -2 all but one
        return count if jobs is None else max(1, min(count, jobs))
    if target.endswith("submitit_launcher.LocalLauncher"):
        return max(1, jobs or 1)  # it starts all of them
    return 1  # one after the other, or, with SLURM, each with separate cores


def export_job_count(jobs: int) -> AbstractContextManager[None]:
    """Pass on the number of parallel jobs, and the GPUs that they share, to those that are started in this block."""
    from hydra.core.utils import env_override

    variables = {PARALLEL_JOBS_VAR: str(jobs)}
    if jobs > 1:  # a launcher may hide the GPUs from a job (submitit does), which then cannot list them itself
        chosen = os.environ.get(DEVICES_VAR)
        names = map(str, range(count_devices())) if chosen is None else map(str.strip, chosen.split(","))
        # As CUDA reads the list: whatever follows an invalid name is ignored.
        variables[SHARED_DEVICES_VAR] = ",".join(itertools.takewhile(lambda name: name not in ("", "-1"), names))
    return env_override(variables)


def parallel_jobs() -> int:
    """Return the number of jobs that share the machine, including this one."""
    return int(os.environ.get(PARALLEL_JOBS_VAR, "1"))


def use_own_device(job: int) -> None:
    """Restrict this process to one GPU if other jobs run in parallel; call it before CUDA is used."""
    names = os.environ.get(SHARED_DEVICES_VAR, "").split(",")
    if parallel_jobs() > 1 and names[0]:
        os.environ[DEVICES_VAR] = names[job % len(names)]


def count_devices(driver: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """Return the number of NVIDIA GPUs, without importing torch."""
    import subprocess

    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True).stdout
        return sum(line.startswith("GPU ") for line in listed.splitlines())
    except (OSError, subprocess.SubprocessError):
        return len(list(driver.iterdir())) if driver.is_dir() else 0

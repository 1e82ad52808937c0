"""The environment of one command: its output folder, threads, GPU, and whether it runs on a terminal, in a sweep or
from Python.

Jobs of a sweep that run at once share the machine; the process that starts them tells them how many they are.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lmtool.config.settings import choices_of, config_dir_of
from lmtool.errors import UserError, for_terminal
from lmtool.runs.resume import TrainingStart
from lmtool.runs.run import has_state
from lmtool.system import parallel
from lmtool.system.terminal import write_out

# Environment variables that the process that starts a sweep's jobs sets: how many run at once, and the GPUs they share.
AT_ONCE = "LMTOOL_JOBS_AT_ONCE"
SHARED = "LMTOOL_SHARED_DEVICES"
DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Session:
    """How one command runs, apart from its settings.

    out: the folder that it writes to. begun: the line that resume= would start from. choices: the option chosen in each
    group, presets by their own name: {"model": "hsoftmax", ...}. launcher: Hydra's settings of the launcher of the
    sweep that this is a job of; None outside a sweep. progress: whether to show bars. quiet: whether `say` prints
    nothing, as in Python, where the result is shown instead. keeps: whether `out` stays; pictures are drawn only then.
    on_evaluation: called with each line of metrics.jsonl; where it returns True, the training ends. notes, warnings:
    what `note` and `warn` were given.
    """

    out: Path
    begun: TrainingStart = field(default_factory=lambda: TrainingStart([]))
    choices: dict[str, str] = field(default_factory=dict)
    launcher: Mapping[str, Any] | None = None
    progress: bool = False
    quiet: bool = False
    keeps: bool = True
    on_evaluation: Callable[[dict[str, Any]], object] | None = None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of_hydra(cls, *, quiet: bool = False) -> Session:
        """That of the command line that Hydra runs now."""
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode
        from omegaconf import OmegaConf

        hydra = HydraConfig.get()
        words = OmegaConf.to_container(hydra.overrides.task, resolve=False)  # ${.x} has no meaning in this list
        assert isinstance(words, list)
        return cls(
            out=Path(hydra.runtime.output_dir),
            begun=TrainingStart([str(word) for word in words], config_dir_of(hydra)),
            choices=choices_of(hydra),
            launcher=hydra.launcher if hydra.mode == RunMode.MULTIRUN else None,
            progress=on_terminal(),
            quiet=quiet,
        )

    @property
    def in_sweep(self) -> bool:
        """Whether this is one of the jobs of a sweep."""
        return self.launcher is not None

    def say(self, text: str = "", *, exact: bool = False) -> None:
        """Print for the user of the command line, with escapes in place of control characters.

        exact: whether text that other programs may read on is printed as it is, unless on a terminal.
        """
        if not self.quiet:
            write_out(text if exact and sys.stdout and not sys.stdout.isatty() else for_terminal(text), end="\n")

    def note(self, text: str) -> None:
        """Print and keep what the user should know."""
        self.notes.append(text)
        self.say(f"note: {text}")

    def warn(self, text: str) -> None:
        """Print and keep what is likely to be a mistake."""
        self.warnings.append(text)
        self.say(f"warning: {text}")

    def require_new(self) -> None:
        """Raise UserError where the folder holds a run already, or, outside a sweep, a training that was cut off."""
        if (self.out / "run.json").exists():
            raise UserError(f"{self.out} already holds a trained model: choose another folder with hydra.run.dir=PATH")
        if has_state(self.out) and not self.in_sweep:
            raise UserError(
                f"{self.out} holds a training that was cut off: resume it with resume={self.out}, or choose another "
                "folder with hydra.run.dir=PATH"
            )

    def use_threads(self, threads: int | None) -> int:
        """Set and return the number of threads of this process: the number given, else that of its launcher or of
        OMP_NUM_THREADS, else one per core, or fewer while other processes need the cores (parallel.follow_load).

        Processes of one machine that train one model, and jobs of a sweep that run at once, share the cores.
        """
        jobs = at_once() if self.in_sweep else 1
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        # torchrun sets OMP_NUM_THREADS=1 for its processes, and below it is set for jobs that run at once.
        given = threads or (threads_of_openmp() if here == at_once() == 1 else None)
        launcher = self.launcher or {}
        count = threads_for(given, launcher, jobs * here, parallel.cores())
        follow = not given and not launcher.get("cpus_per_task") and processes_started() == 1
        count = parallel.use(count, follow=follow)
        parallel.set_torch_threads()
        if at_once() > 1:  # read by the libraries below torch and numpy when they are first imported
            os.environ.setdefault("OMP_NUM_THREADS", str(count))
        os.environ.setdefault("NUMBA_NUM_THREADS", str(count))  # read by numba when it is first imported
        return count


def processes_started() -> int:
    """The number of processes that torchrun started together; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def on_terminal() -> bool:
    """Whether to show progress bars: standard error is a terminal, and no other job writes to it."""
    return sys.stderr is not None and sys.stderr.isatty() and at_once() == 1


def jobs_at_once(launcher: Mapping[str, Any], jobs: int | None, cores: int) -> int:
    """How many jobs a launcher runs at once on one machine of that many cores.

    launcher: its Hydra settings. jobs: how many there are to run; None where that is not known.
    """
    target = str(launcher.get("_target_", ""))
    if target.endswith("JoblibLauncher"):
        count = int(launcher["n_jobs"])
        count = count if count > 0 else max(1, cores + 1 + count)  # as joblib counts: -1 is all cores, -2 all but one
        return count if jobs is None else max(1, min(count, jobs))
    if target.endswith("submitit_launcher.LocalLauncher"):
        return max(1, jobs or 1)  # it starts all of them
    return 1  # one after the other, or, with SLURM, each with cores of its own


@contextmanager
def announced(jobs: int) -> Iterator[None]:
    """Tell the jobs that are started in this block how many of them run at once."""
    variables = {AT_ONCE: str(jobs)}
    if jobs > 1:  # a launcher may hide the GPUs from a job (submitit does), which then cannot list them itself
        variables[SHARED] = ",".join(visible_devices(os.environ, 0 if DEVICES in os.environ else count_devices()))
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def at_once() -> int:
    """The number of jobs that share the machine, this one included."""
    return int(os.environ.get(AT_ONCE, "1"))


def threads_for(given: int | None, launcher: Mapping[str, Any], jobs: int, cores: int) -> int:
    """The threads of one of `jobs` jobs that share `cores` cores: those given, its launcher's, or an equal share."""
    return given or launcher.get("cpus_per_task") or max(1, cores // jobs)


def threads_of_openmp() -> int | None:
    """Return the number of threads in OMP_NUM_THREADS, of the outer level of a list; None if there is none."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else None


def visible_devices(environment: Mapping[str, str], devices: int) -> list[str]:
    """The names of the GPUs that CUDA_VISIBLE_DEVICES leaves visible; devices: how many the machine has."""
    chosen = environment.get(DEVICES)
    if chosen is None:
        return [str(device) for device in range(devices)]
    # As CUDA reads the list: whatever follows an invalid name is ignored.
    return list(itertools.takewhile(lambda name: name not in ("", "-1"), map(str.strip, chosen.split(","))))


def device_for(environment: Mapping[str, str], job: int, jobs: int, devices: int) -> str | None:
    """The value of CUDA_VISIBLE_DEVICES for job number `job` when `jobs` run at once; None leaves it as it is.

    devices: how many the machine has, for an environment that does not choose among them.
    """
    names = visible_devices(environment, devices)
    return names[job % len(names)] if jobs > 1 and names else None


def use_own_device(job: int) -> None:
    """Restrict this process to one GPU where there are GPUs and other jobs run at once; call it before CUDA is used."""
    device = device_for({DEVICES: os.environ.get(SHARED, "")}, job, at_once(), 0)
    if device is not None:
        os.environ[DEVICES] = device


def count_devices(driver: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """The number of NVIDIA GPUs, without importing torch."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True).stdout
        return sum(line.startswith("GPU ") for line in listed.splitlines())
    except (OSError, subprocess.SubprocessError):
        return len(list(driver.iterdir())) if driver.is_dir() else 0

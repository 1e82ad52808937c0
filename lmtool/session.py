"""What a command asks of Hydra and the machine: its output folder, its threads, its GPU, a terminal or not.

Jobs of a sweep that run at once share the machine: the process that starts them says how many they are.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lmtool.config.options import HOMES
from lmtool.config.settings import config_dir_of
from lmtool.errors import UserError
from lmtool.runs.resume import Begun
from lmtool.runs.run import has_state
from lmtool.system import parallel

# What the process that starts the jobs of a sweep tells them: how many share this machine, and the GPUs they share.
AT_ONCE = "LMTOOL_JOBS_AT_ONCE"
SHARED = "LMTOOL_SHARED_DEVICES"
DEVICES = "CUDA_VISIBLE_DEVICES"


def output_dir() -> Path:
    """The folder that this run of the command writes to."""
    from hydra.core.hydra_config import HydraConfig

    return Path(HydraConfig.get().runtime.output_dir)


def require_new(out: Path) -> None:
    """Raises UserError where a folder holds a run already, or, but in a sweep, a training that was cut off."""
    if (out / "run.json").exists():
        raise UserError(f"{out} already holds a trained model: choose another folder with hydra.run.dir=PATH")
    if has_state(out) and not in_sweep():
        raise UserError(
            f"{out} holds a training that was cut off: resume it with resume={out}, or choose another folder with "
            "hydra.run.dir=PATH"
        )


def command_words() -> Begun:
    """The overrides and the --config-dir of this command line, for one with resume= to start from."""
    from hydra.core.hydra_config import HydraConfig

    hydra = HydraConfig.get()
    return Begun([str(word) for word in hydra.overrides.task], config_dir_of(hydra))


def in_sweep() -> bool:
    """Whether this is one of the jobs of a sweep."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def processes_started() -> int:
    """How many processes torchrun started to do this work together; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def choices() -> dict[str, str]:
    """The option that the user chose in each group, presets by their own name: {"model": "hsoftmax", ...}."""
    from hydra.core.hydra_config import HydraConfig

    chosen = ((str(key).split("@")[0], str(name)) for key, name in HydraConfig.get().runtime.choices.items())
    return {group: name for group, name in chosen if group in HOMES}


def use_threads(threads: int | None) -> int:
    """Give numerical libraries that many threads, or one for each core that this process may use.

    Processes of one machine that work together, and jobs of a sweep that run side by side, share the cores.
    """
    count = parallel.use(threads_of_this_process(threads))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if threads is None and here > 1:
        count = parallel.use(max(1, count // here))
    if at_once() > 1:  # read by the libraries below torch and numpy when they are first imported
        os.environ.setdefault("OMP_NUM_THREADS", str(count))
    # Read by numba when it is first imported; torch is told by the neural commands.
    os.environ.setdefault("NUMBA_NUM_THREADS", str(count))
    # Read by torch's OpenMP when it is first imported: between two pieces of work its threads sleep soon, instead of
    # keeping the processor from the threads of the compiled loops, which work in turn with them.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    return count


def on_terminal() -> bool:
    """Whether progress bars make sense: standard error is a terminal, and no job beside this one writes to it."""
    return sys.stderr.isatty() and at_once() == 1


def jobs_at_once(launcher: Mapping[str, Any], jobs: int | None, cores: int) -> int:
    """How many of its jobs a launcher runs side by side on one machine of that many cores.

    launcher: Hydra's settings of it. jobs: how many there are to run, None where nobody knows.
    """
    target = str(launcher.get("_target_", ""))
    if target.endswith("JoblibLauncher"):
        count = int(launcher["n_jobs"])
        count = count if count > 0 else max(1, cores + 1 + count)  # joblib's meaning: -1 is all cores, -2 all but one
        return count if jobs is None else max(1, min(count, jobs))
    if target.endswith("submitit_launcher.LocalLauncher"):
        return max(1, jobs or 1)  # it starts them all
    return 1  # one after the other, or each in surroundings of its own, as SLURM gives them


@contextmanager
def announced(jobs: int) -> Iterator[None]:
    """Tell the jobs that are started in this block that so many of them run side by side."""
    told = {AT_ONCE: str(jobs)}
    if jobs > 1:  # launchers may hide the GPUs from a job (submitit does), so that it cannot see for itself
        told[SHARED] = ",".join(visible_devices(os.environ, 0 if DEVICES in os.environ else count_devices()))
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def at_once() -> int:
    """How many jobs share the machine with this one, itself included."""
    return int(os.environ.get(AT_ONCE, "1"))


def threads_for(given: int | None, launcher: Mapping[str, Any], jobs: int, cores: int) -> int:
    """The threads of one of `jobs` jobs that share `cores` cores: those given, its launcher's, or an equal part."""
    return given or launcher.get("cpus_per_task") or max(1, cores // jobs)


def threads_of_this_process(given: int | None) -> int:
    """The threads for this process, which may be one of several jobs."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    is_job = HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN
    launcher: Mapping[str, Any] = HydraConfig.get().launcher if is_job else {}
    return threads_for(given, launcher, at_once() if is_job else 1, parallel.cores())


def visible_devices(environment: Mapping[str, str], devices: int) -> list[str]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves of a machine's, by the names it knows them by."""
    chosen = environment.get(DEVICES)
    if chosen is None:
        return [str(device) for device in range(devices)]
    # As CUDA reads the list: nothing that stands after a name that is none is seen.
    return list(itertools.takewhile(lambda name: name not in ("", "-1"), map(str.strip, chosen.split(","))))


def device_for(environment: Mapping[str, str], job: int, jobs: int, devices: int) -> str | None:
    """What CUDA_VISIBLE_DEVICES is to be for job number `job` of which `jobs` run at once; None: as it is.

    devices: how many the machine has, where the environment does not choose among them.
    """
    names = visible_devices(environment, devices)
    return names[job % len(names)] if jobs > 1 and names else None


def use_own_device(job: int) -> None:
    """Leave this process one GPU, where there are GPUs and other jobs beside it; before CUDA is first used."""
    device = device_for({DEVICES: os.environ.get(SHARED, "")}, job, at_once(), 0)
    if device is not None:
        os.environ[DEVICES] = device


def count_devices(driver: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """How many NVIDIA GPUs there are, without importing torch."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True).stdout
        return sum(line.startswith("GPU ") for line in listed.splitlines())
    except (OSError, subprocess.SubprocessError):
        return len(list(driver.iterdir())) if driver.is_dir() else 0

"""What jobs that run side by side get of the machine: how many there are, and each one's threads and GPU."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lmtool.system import parallel

# What the process that starts the jobs of a sweep tells them: how many share this machine, and the GPUs they share.
AT_ONCE = "LMTOOL_JOBS_AT_ONCE"
SHARED = "LMTOOL_SHARED_DEVICES"
DEVICES = "CUDA_VISIBLE_DEVICES"


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

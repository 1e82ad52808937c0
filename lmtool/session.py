"""What every command asks of Hydra and the machine: its output folder, the threads, a terminal or not."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lmtool.errors import UserError
from lmtool.runs.run import has_state
from lmtool.sweeps import launchers
from lmtool.system import parallel


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
            f"{out} holds a training that was cut off: go on with it by resume={out}, or choose another folder with "
            "hydra.run.dir=PATH"
        )


def in_sweep() -> bool:
    """Whether this is one of the jobs of a sweep."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def processes_started() -> int:
    """How many processes torchrun started to do this work together; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def plain(composed: DictConfig) -> dict[str, Any]:
    """The composed settings as plain, resolved values, for run.json."""
    values = OmegaConf.to_container(composed, resolve=True, enum_to_str=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def use_threads(threads: int | None) -> int:
    """Give numerical libraries that many threads, or one for each core that this process may use.

    Processes of one machine that work together, and jobs of a sweep that run side by side, share the cores.
    """
    count = parallel.use(launchers.threads_of_this_process(threads))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if threads is None and here > 1:
        count = parallel.use(max(1, count // here))
    if launchers.at_once() > 1:  # read by the libraries below torch and numpy when they are first imported
        os.environ.setdefault("OMP_NUM_THREADS", str(count))
    # Read by numba when it is first imported; torch is told by the neural commands.
    os.environ.setdefault("NUMBA_NUM_THREADS", str(count))
    # Read by torch's OpenMP when it is first imported: between two pieces of work its threads sleep soon, instead of
    # keeping the processor from the threads of the compiled loops, which work in turn with them.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    return count


def on_terminal() -> bool:
    """Whether progress bars make sense: standard error is a terminal, and no job beside this one writes to it."""
    return sys.stderr.isatty() and launchers.at_once() == 1

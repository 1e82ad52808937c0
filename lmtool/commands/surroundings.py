"""What every command asks of Hydra and the machine: its output folder, the threads, a terminal or not."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lmtool import parallel
from lmtool.commands import launchers
from lmtool.errors import UserError


def output_dir() -> Path:
    """The folder that this run of the command writes to."""
    from hydra.core.hydra_config import HydraConfig

    return Path(HydraConfig.get().runtime.output_dir)


def new_run_dir() -> Path:
    """The output folder of a command that makes a run. Raises UserError where it holds one already."""
    out = output_dir()
    if (out / "run.json").exists():
        raise UserError(f"{out} already holds a trained model: choose another folder with hydra.run.dir=PATH")
    return out


def plain(composed: DictConfig) -> dict[str, Any]:
    """The composed settings as plain, resolved values, for run.json."""
    values = OmegaConf.to_container(composed, resolve=True, enum_to_str=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def use_threads(threads: int | None) -> int:
    """Give numerical libraries that many threads, or one for each core that this process may use.

    Jobs of a sweep that run side by side share the cores.
    """
    count = parallel.use(launchers.threads_of_this_process(threads))
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

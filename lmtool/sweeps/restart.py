"""Restarting a sweep, by the same command line again or by `-m resume=DIR`."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from omegaconf import DictConfig

from lmtool.config.request import Request, find_first_change
from lmtool.errors import UserError
from lmtool.sweeps.job import job_folders
from lmtool.system.files import read_json, write_json
from lmtool.system.schemas import ASKED

SWEEP = "sweep.json"
# Settings of Hydra that determine the jobs of a sweep, and those of them that do not.
DETERMINING = ("hydra/sweeper", "hydra.sweeper", "hydra.sweep.subdir")
NEUTRAL = ("hydra.sweeper.n_trials", "hydra.sweeper.max_failure_rate")


def read_sweep_request(verb: str, folder: Path) -> Request:
    """Return the request that started the sweep in a folder. Raises UserError if it holds no sweep of this verb."""
    if not (folder / SWEEP).is_file():
        raise UserError(f"{folder} holds no sweep (it has no {SWEEP}); for a single run leave out -m")
    request = _read_request(folder)
    if request.verb != verb:
        raise UserError(f"{folder} is a sweep of lmtool {request.verb}, not of lmtool {verb}")
    return request


def _read_request(folder: Path) -> Request:
    return Request.from_json(read_json(folder / SWEEP, "choose another out=", ASKED))


def write_request(folder: Path, request: Request) -> None:
    """Write the request of a sweep into its folder."""
    write_json(folder / SWEEP, request.as_json())


def require_same_sweep(folder: Path, request: Request, hydra: DictConfig) -> None:
    """Raise UserError if the folder holds jobs of another sweep, or of a search that cannot be repeated."""
    if not any(job_folders(folder)) or not (folder / SWEEP).is_file():
        return
    before = _read_request(folder)
    if before.verb != request.verb or find_first_change(_job_settings(before), _job_settings(request)) is not None:
        raise UserError(
            f"{folder} holds another sweep ({format_command(before)}): choose another out=, or resume it: "
            f"lmtool {before.verb} -m resume={folder}"
        )
    sampler = hydra.sweeper.get("sampler")
    if sampler is not None and "seed" in sampler and sampler.seed is None and not hydra.sweeper.get("storage"):
        raise UserError(
            f"{folder} holds trials that cannot be repeated without hydra.sweeper.sampler.seed=N: choose another out="
        )


def require_storage(hydra: DictConfig) -> None:
    """Raise UserError if a study is to be stored and the installed versions cannot store it."""
    if hydra.sweeper.get("storage") and int(version("sqlalchemy").split(".")[0]) > 1:
        raise UserError(
            f"hydra.sweeper.storage={hydra.sweeper.storage}: optuna {version('optuna')} stores studies with "
            "SQLAlchemy 1.4 only; without it, a sweep with hydra.sweeper.sampler.seed=N can be resumed"
        )


def _job_settings(request: Request) -> dict[str, object]:
    """Return the choices and values that determine a sweep's jobs."""
    values = {key.lstrip("+"): value for key, value in (request.choices | request.values).items()}
    sweeper_values = {key: values[key] for key in values if key.startswith(DETERMINING) and key not in NEUTRAL}
    return {key: value for key, value in request.settings.items() if key != "options"} | sweeper_values


def format_command(request: Request) -> str:
    """Return a sweep's command line without folder and launcher."""
    return " ".join(
        ["lmtool", request.verb, "-m", *(f"{key}={value}" for key, value in _job_settings(request).items())]
    )


def is_grid(hydra: DictConfig) -> bool:
    """Return whether a sweep runs every combination of values, and is not a search."""
    return "max_batch_size" in hydra.sweeper

"""Restarting a sweep, by the same command line again or by `-m resume=DIR`."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from lmtool.config.overrides import key_of, quoted
from lmtool.config.settings import config_dir_of
from lmtool.errors import UserError, first_line
from lmtool.sweeps.job import folders
from lmtool.system.files import atomic_write
from lmtool.system.schemas import SWEEP, require_kind

MULTIRUN = "multirun.yaml"
KEPT = ".multirun.yaml"  # a copy; Hydra's sweeper writes multirun.yaml again, and not atomically
# Hydra settings that change neither the jobs nor their numbers.
NEUTRAL = ("hydra.sweep.dir", "hydra.mode", "hydra.sweeper.n_trials", "hydra.sweeper.max_failure_rate")


def words_of(verb: str, folder: Path, new: list[str]) -> tuple[list[str], str | None]:
    """Return the overrides that started the sweep in a folder, then the new ones; and its --config-dir.

    Raises UserError if the folder holds no sweep of this verb, and for new overrides that would change its jobs.
    """
    if not (folder / MULTIRUN).is_file():
        raise UserError(f"{folder} holds no sweep (it has no {MULTIRUN}); for a single run leave out -m")
    config = read(folder)
    if config.hydra.job.config_name != verb:
        raise UserError(f"{folder} is a sweep of lmtool {config.hydra.job.config_name}, not of lmtool {verb}")
    changed = [word for word in new if not word.startswith(("hydra.", "hydra/")) and key_of(word) != "options"]
    if changed:
        raise UserError(f"{' '.join(changed)}: -m resume={folder} takes the settings of the sweep there; leave it out")
    hydras = [str(word) for word in config.hydra.overrides.hydra if not key_of(str(word)).startswith(NEUTRAL[:2])]
    replaced = {key_of(word) for word in new}
    hydras = [word for word in hydras if key_of(word) not in replaced]
    if "hydra/launcher" in replaced:  # settings of the earlier launcher do not fit it
        hydras = [word for word in hydras if not key_of(word).startswith(("hydra/launcher", "hydra.launcher"))]
    task = [str(word) for word in config.hydra.overrides.task if key_of(str(word)) not in replaced]
    return [*task, *hydras, *new, f"hydra.sweep.dir={quoted(str(folder))}"], config_dir_of(config.hydra)


def read(folder: Path) -> DictConfig:
    """Return the settings that started a sweep. Raises UserError if they are missing or damaged."""
    path = folder / KEPT
    if not path.is_file():
        raise UserError(f"{folder} holds a sweep of another version of lmtool: start it again in another folder")
    try:
        config = OmegaConf.load(path)
        require_kind(OmegaConf.to_container(config), SWEEP, path.name)
        return cast(DictConfig, config)
    except (OSError, YAMLError, OmegaConfBaseException, ValueError) as error:
        raise UserError(f"{path} is damaged ({first_line(error)}): choose another hydra.sweep.dir") from error


def require_same(folder: Path, config: DictConfig) -> None:
    """Raise UserError if the folder holds jobs of another sweep, or of a search that cannot be repeated."""
    if not any(folders(folder)) or not (folder / MULTIRUN).is_file():
        return
    before = read(folder)
    if _jobs_of(before) != _jobs_of(config):
        raise UserError(
            f"{folder} holds another sweep ({command(before)}): choose another hydra.sweep.dir, "
            f"or resume it: lmtool {before.hydra.job.config_name} -m resume={folder}"
        )
    sampler = config.hydra.sweeper.get("sampler")
    if sampler is not None and "seed" in sampler and sampler.seed is None and not config.hydra.sweeper.get("storage"):
        raise UserError(
            f"{folder} holds trials that cannot be repeated without hydra.sweeper.sampler.seed=N: "
            "choose another hydra.sweep.dir"
        )


def require_storage(config: DictConfig) -> None:
    """Raise UserError if a study is to be stored and the installed versions cannot store it."""
    if config.hydra.sweeper.get("storage") and int(version("sqlalchemy").split(".")[0]) > 1:
        raise UserError(
            f"hydra.sweeper.storage={config.hydra.sweeper.storage}: optuna {version('optuna')} stores studies with "
            "SQLAlchemy 1.4 only; without it, a sweep with hydra.sweeper.sampler.seed=N can be resumed"
        )


def _jobs_of(config: DictConfig) -> tuple[str, list[str], list[str]]:
    """Return what determines a sweep's jobs: verb, its settings, the sweeper's settings, folder names."""
    hydras = [str(word) for word in config.hydra.overrides.hydra]
    determining = ("hydra/sweeper", "hydra.sweeper", "hydra.sweep.subdir")
    overrides = sorted(word for word in hydras if key_of(word).startswith(determining) and key_of(word) not in NEUTRAL)
    task = [str(word) for word in config.hydra.overrides.task if key_of(str(word)) != "options"]
    return str(config.hydra.job.config_name), task, overrides


def all_overrides(config: DictConfig) -> list[str]:
    """Return the overrides of a sweep's jobs: those of its sweeper's parameters, then those of the line."""
    params = config.hydra.sweeper.get("params") or {}
    return [*(f"{key}={value}" for key, value in params.items()), *config.hydra.overrides.task]


def is_grid(config: DictConfig) -> bool:
    """Return whether a sweep runs every combination of values, and is not a search."""
    return "max_batch_size" in config.hydra.sweeper


def command(config: DictConfig) -> str:
    """Return a sweep's command line without folder and launcher."""
    verb, task, hydras = _jobs_of(config)
    return " ".join(["lmtool", verb, "-m", *task, *hydras])


def keep(folder: Path, config: DictConfig) -> None:
    """Write multirun.yaml (only some sweepers do, e.g. Hydra's own) and the copy that `read` trusts."""
    for name in (KEPT, MULTIRUN):
        with atomic_write(folder / name) as temporary:
            OmegaConf.save(config, temporary)

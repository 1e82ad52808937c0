"""Going on with a training: the command line that began it, and what must not change on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmtool.errors import UserError
from lmtool.system.files import read_json, write_json

# What may differ from how a training was begun: its budget, and what does not touch the weights.
FREE = {
    *("store_dir", "threads", "resume", "device", "training.epochs", "training.steps", "training.minutes"),
    *("training.patience", "training.save_every", "training.tensorboard"),
}
# What the command line said, when it was last taken. Hydra's own file has the words of a line that was refused, too.
BEGUN = "begun.json"
HYDRAS = Path(".hydra", "overrides.yaml")


def with_earlier_words(words: list[str]) -> list[str]:
    """The overrides of a line with `resume=PATH`: those that the run was begun with, then the line's own.

    Lines without it come back as they are. Raises UserError where PATH is no run folder.
    """
    given = [word for word in words if word.startswith("resume=")]
    if not given or any(word in ("-m", "--multirun") for word in words):
        return words
    folder = given[-1].removeprefix("resume=").strip("\"'")
    if folder in ("", "null"):
        return words
    path = Path(folder)
    own = [word for word in words if word not in given]
    taken = {_key(word) for word in own} | {"resume", "hydra.run.dir"}
    kept = [word for word in _words_of(path) if _key(word) not in taken]
    if any(_key(word) == "hydra.run.dir" for word in own):
        raise UserError(f"resume={folder}: the training goes on in that folder; leave hydra.run.dir out")
    quoted = "'" + folder.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return [*kept, *own, f"resume={quoted}", f"hydra.run.dir={quoted}"]


def _words_of(path: Path) -> list[str]:
    if (path / BEGUN).is_file():
        return [str(word) for word in read_json(path / BEGUN, f"train anew instead of resume={path}")["overrides"]]
    if not (path / HYDRAS).is_file():
        raise UserError(f"resume={path}: no training was begun there (it has no {BEGUN}); name a run folder")
    from omegaconf import OmegaConf

    return [str(word) for word in OmegaConf.load(path / HYDRAS)]


def keep_words(folder: Path) -> None:
    """Keep the overrides of this command line, for one with resume= to begin with."""
    from hydra.core.hydra_config import HydraConfig

    write_json(folder / BEGUN, {"overrides": list(HydraConfig.get().overrides.task)})


def _key(word: str) -> str:
    return word.split("=", 1)[0].lstrip("+~")


def require_same(was: dict[str, Any], now: dict[str, Any], folder: Path) -> list[str]:
    """Compare the settings that a training was begun with to those of now; returns notes about harmless changes.

    The data may be named otherwise as long as the store is the same, which its fingerprint says. Raises UserError,
    naming the setting, for any other change.
    """
    before, after = _flat(was), _flat(now)
    # What an option of a group is comes before what it has.
    for key in sorted(before.keys() | after.keys(), key=lambda key: (not key.endswith(".kind"), key)):
        free = key in FREE or key.split(".")[0] == "data"
        if not free and before.get(key) != after.get(key):
            name = key.removesuffix(".kind")
            raise UserError(
                f"{name}={after.get(key)}: the training in {folder} was begun with {before.get(key)}, which cannot "
                "change on the way; leave it out, or train anew in another folder"
            )
    notes = []
    for key in ("threads", "device"):
        if before.get(key) != after.get(key):
            notes.append(f"{key}={after.get(key)}, was {before.get(key)}: sums round differently from here on")
    shares = ("linear", "cosine")
    budget = [
        key for key in ("epochs", "steps", "minutes") if before.get(f"training.{key}") != after.get(f"training.{key}")
    ]
    if budget and after.get("schedule.kind") in shares:
        notes.append(
            f"training.{budget[0]} has changed: the learning rate goes on as schedule={after.get('schedule.kind')} has "
            "it at this share of the new budget"
        )
    return notes


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found

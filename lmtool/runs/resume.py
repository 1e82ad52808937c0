"""Resume a training: the command line that started it, and the settings that must not change."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from lmtool.config.overrides import key_of
from lmtool.config.settings import converted, saved_settings
from lmtool.errors import UserError
from lmtool.errors import named as errors_of
from lmtool.runs.run import METRICS, RATES, STATE, STATE_BEFORE, TOKENIZER, TRACKED, Run
from lmtool.system import schemas
from lmtool.system.files import read_json, write_json
from lmtool.system.schemas import require_kind

# Settings that may differ from those a training was started with: its budget, and those that do not affect the weights.
FREE = {
    *("store_dir", "threads", "resume", "device", "training.epochs", "training.steps", "training.minutes"),
    *("training.patience", "training.save_every", "training.trackers", "prune_method"),
    *("training.embedding_gradients", "training.deterministic", "training.forms"),  # the checkpoint has the first
}
GROUPS_OF_TRAINING = ("model", "output", "tree", "optim", "schedule", "training")
# File of the last accepted command line; Hydra's own file may contain a rejected one.
BEGUN = "begun.json"
HYDRAS = ".hydra"


@dataclass(frozen=True, slots=True)
class TrainingStart:
    """The command line that a training was started with. config_dir: the absolute folder of --config-dir. started_in:
    the folder to which relative paths refer, empty if it is not known.
    """

    overrides: list[str]
    config_dir: str | None = None
    started_in: str = field(default_factory=os.getcwd)

    def save(self, folder: Path) -> None:
        """Write the command line into a run folder for a later resume=. Raises UserError if it cannot be written."""
        write_json(folder / BEGUN, asdict(self))

    @classmethod
    def open(cls, folder: Path) -> TrainingStart:
        """Read it from a run folder, or from Hydra's copy if training ended before the command line was accepted.

        Raises UserError if the folder has neither, or the file is damaged.
        """
        if not (folder / BEGUN).is_file() and _is_quantised(folder):
            raise UserError(f"resume={folder}: quantized weights cannot be trained; resume the run they were made from")
        if not (folder / BEGUN).is_file() and (folder / HYDRAS / "overrides.yaml").is_file():
            return cls._of_hydra(folder / HYDRAS)
        if not (folder / BEGUN).is_file():
            raise UserError(f"resume={folder}: no training was started there (it has no {BEGUN}); name a run folder")
        remedy = f"train from scratch instead of resume={folder}"
        saved = read_json(folder / BEGUN, remedy, schemas.BEGUN)
        return cls(**{each.name: saved[each.name] for each in fields(cls)})

    @classmethod
    def _of_hydra(cls, folder: Path) -> TrainingStart:
        remedy = "train from scratch in another folder"
        try:
            overrides = yaml.safe_load((folder / "overrides.yaml").read_text(encoding="utf-8"))
            settings = yaml.safe_load((folder / "hydra.yaml").read_text(encoding="utf-8"))
            require_kind(settings, schemas.HYDRA, "hydra.yaml")
            sources = settings["hydra"]["runtime"]["config_sources"]
            config_dirs = [source["path"] for source in sources if source["provider"] == "command-line"]
            if overrides != settings["hydra"]["overrides"]["task"]:  # Hydra may have been killed while it wrote them
                raise ValueError("overrides.yaml differs from hydra.yaml")
            return cls(overrides, config_dirs[0] if config_dirs else None, "")
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            raise UserError(f"{folder} is damaged ({' '.join(str(error).split())}): {remedy}") from error


def remove_run(folder: Path) -> None:
    """Remove the files of a run that a new one of another kind would not replace: records, scores, pictures, tree."""
    names = ["run.json", "result.json", "scores.h5", "cloze.csv", "curves.png", "lr_range.png", "tree.safetensors"]
    board = [*folder.glob("tensorboard/events.out.tfevents.*"), folder / TRACKED]
    for path in [*(folder / name for name in (*names, BEGUN, METRICS, RATES, STATE, STATE_BEFORE, TOKENIZER)), *board]:
        path.unlink(missing_ok=True)


def _is_quantised(folder: Path) -> bool:
    if not (folder / "run.json").is_file():
        return False
    return Run.open(folder).config.get("quantize") is not None


def restore_settings(config: Any, before: dict[str, Any], overrides: list[str]) -> None:
    """Restore the values that a training was started with, except overridden ones: YAML files may have changed since.

    config: the settings of a training, changed in place. before: plain values of the settings it was started with.
    Raises UserError if these are of another version, which had other settings.
    """
    chosen = {word for word in overrides if key_of(word) in GROUPS_OF_TRAINING and "{" not in word}
    named = {key_of(word) for word in overrides if word not in chosen}
    if named & {"training.epochs", "training.steps"}:
        named.add("training.minutes")  # epochs or steps may have switched it off
    for group in GROUPS_OF_TRAINING:
        now, old = getattr(config, group), before.get(group)
        if now is None or not isinstance(old, dict) or old.get("kind") != getattr(now, "kind", None):
            continue
        names = [setting.name for setting in fields(now)]
        with errors_of("the settings of the checkpoint"):
            if lacking := [f"{group}.{name}" for name in names if name not in old]:
                raise UserError(f"{', '.join(lacking)}: missing, as in another version of lmtool: train from scratch")
            then = converted(old, type(now), group)
        for name in names:
            key = f"{group}.{name}"
            if not any(key == each or key.startswith(f"{each}.") for each in named):
                setattr(now, name, getattr(then, name))


def require_same(before: dict[str, Any], now: dict[str, Any], folder: Path) -> list[str]:
    """Compare the settings that a training was started with to the current ones; return notes about allowed changes.

    The data may have another name as long as the store has the same fingerprint. Raises UserError, naming the setting,
    for any other change.
    """
    old, new = flat(before), flat(now)
    # A changed option is reported before its settings.
    for key in sorted(old.keys() | new.keys(), key=lambda key: (not key.endswith(".kind"), key)):
        free = key in FREE or key.split(".")[0] == "data"
        if not free and old.get(key) != new.get(key):
            name = key.removesuffix(".kind")
            raise UserError(
                f"{name}={new.get(key)}: the training in {folder} was started with {old.get(key)}, which cannot "
                "change; set it to that, or train from scratch in another folder"
            )
    notes = []
    for key in ("threads", "device"):
        if old.get(key) != new.get(key):
            notes.append(f"{key}={new.get(key)}, was {old.get(key)}: sums round differently from here on")
    budget = [key for key in ("epochs", "steps", "minutes") if old.get(f"training.{key}") != new.get(f"training.{key}")]
    kind = new.get("schedule.kind")
    if budget and kind is not None and saved_settings(now["schedule"], "schedule").follows_budget:
        notes.append(
            f"training.{budget[0]} has changed: the learning rate continues as schedule={kind} has it at this share "
            "of the new budget"
        )
    return notes


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by their whole keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found

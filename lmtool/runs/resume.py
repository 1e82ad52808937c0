"""Resume a training: the request that started it, and the settings that must not change."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from lmtool.config.request import Request, find_first_change, flatten
from lmtool.config.settings import build_part
from lmtool.errors import UserError, prefix_user_errors
from lmtool.runs.run import METRICS_FILE, RATES, STATE, STATE_BEFORE, TOKENIZER, TRACKED, Run, change_text
from lmtool.system import schemas
from lmtool.system.files import read_json, write_json

# Settings that may change from those a training was started with: those that do not affect the weights, the budget, ...
FREE = {
    *("store_dir", "threads", "resume", "device", "training.save_every", "training.trackers", "prune_method"),
    "training.log_every",
    *("training.embedding_gradients", "training.deterministic", "training.forms"),  # the checkpoint stores the first
}
BUDGET = {"training.epochs", "training.steps", "training.minutes", "training.patience"}
# ... and by hand, with resume=RUN, those of the optimizer but its kind, the schedule, and these of the training.
CHANGEABLE = {
    *("training.batch_size", "training.bptt", "training.evaluate_every", "training.accuracy_tokens"),
    *("training.max_grad_norm", "training.embedding_max_norm", "training.precision", "training.compile"),
}
GROUPS_OF_TRAINING = ("model", "output", "tree", "optim", "schedule", "training")
# File of the last accepted request.
BEGUN = "begun.json"
REQUEST = "request.json"  # in the folder of Hydra's files


def save_request(folder: Path, request: Request, name: str = BEGUN) -> None:
    """Write a request into a folder, for a later resume=."""
    write_json(folder / name, request.as_json() | {"started_in": request.started_in or os.getcwd()})


def saved_request(folder: Path) -> Request:
    """Read the last accepted request of the training in a run folder; if none was accepted, the only request."""
    path = next((each for each in (folder / BEGUN, folder / ".hydra" / REQUEST) if each.is_file()), None)
    finished = (folder / "run.json").is_file() and (path is None or path.name == REQUEST)
    if finished and Run.open(folder).config.get("quantize") is not None:
        raise UserError(f"resume={folder}: quantized weights cannot be trained; resume the run they were made from")
    if path is None:
        raise UserError(f"resume={folder}: no training was started there (it has no {BEGUN}); name a run folder")
    request = Request.from_json(read_json(path, f"train from scratch instead of resume={folder}", schemas.REQUEST))
    if request.verb != "train":
        raise UserError(f"resume={folder}: no training was started there, but lmtool {request.verb}; name a run folder")
    return request


def remove_run(folder: Path) -> None:
    """Remove the files that a new run of another kind would not replace: records, scores, pictures, tree."""
    names = ["run.json", "result.json", "scores.h5", "cloze.csv", "curves.png", "lr_range.png", "tree.safetensors"]
    board = [*folder.glob("tensorboard/events.out.tfevents.*"), folder / TRACKED]
    for path in [
        *(folder / name for name in (*names, BEGUN, METRICS_FILE, RATES, STATE, STATE_BEFORE, TOKENIZER)),
        *board,
    ]:
        path.unlink(missing_ok=True)


def restore_settings(config: Any, before: dict[str, Any], given: Iterable[str]) -> None:
    """Restore the values that a training was started with, except those of given keys: YAML files may have changed.

    config: the settings of a training, changed in place. before: plain values of the settings it was started with.
    """
    named = set(given)
    if named & {"training.epochs", "training.steps"}:
        named.add("training.minutes")  # may have been switched off by epochs or steps
    for group in GROUPS_OF_TRAINING:
        now, old = getattr(config, group), before.get(group)
        if now is None or not isinstance(old, dict) or old.get("kind") != getattr(now, "kind", None):
            continue
        names = [setting.name for setting in fields(now)]
        with prefix_user_errors("the settings of the checkpoint"):
            if lacking := [f"{group}.{name}" for name in names if name not in old]:
                raise UserError(f"{', '.join(lacking)}: missing, as in another version of lmtool: train from scratch")
            then = build_part(old, type(now), group)
        for name in names:
            key = f"{group}.{name}"
            if not any(key == each or key.startswith(f"{each}.") for each in named):
                setattr(now, name, getattr(then, name))


def require_same(before: dict[str, Any], now: dict[str, Any], folder: Path, *, by_hand: bool = False) -> None:
    """Raise UserError for a setting that must not change from that with which a training was started.

    The data may have another name if the store has the same fingerprint. by_hand: whether CHANGEABLE may change.
    """
    old, new = flatten(before), flatten(now)
    allowed = {key for key in (*old, *new) if key.split(".")[0] == "data" or (by_hand and _is_changeable(key))}
    if (key := find_first_change(old, new, {*FREE, *BUDGET, *allowed})) is not None:
        raise UserError(
            f"{key.removesuffix('.kind')}={new.get(key)}: the training in {folder} was started with {old.get(key)}, "
            "which cannot change; set it to that, or train from scratch in another folder"
        )


def find_changes(before: dict[str, Any], now: dict[str, Any], step: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the changes of a training's settings at a step, as in Run.changes, and notes on all changes."""
    old, new = flatten(before), flatten(now)
    changes = [
        {"step": step, "setting": key.removesuffix(".kind"), "before": old.get(key), "after": value}
        for key, value in new.items()
        if (key in BUDGET or _is_changeable(key)) and old.get(key) != value
    ]
    notes = [change_text(change) for change in changes]
    for key in ("threads", "device"):
        if old.get(key) != new.get(key):
            notes.append(f"{key}={new.get(key)}, was {old.get(key)}: sums round differently from here on")
    return changes, notes


def _is_changeable(key: str) -> bool:
    """Return whether a setting that affects the weights, but not the model, may be changed by hand."""
    return (key.startswith(("schedule.", "optim.")) and key != "optim.kind") or key in CHANGEABLE

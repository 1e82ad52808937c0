"""Checkpoints to resume from: weights, optimizers, random states and positions, in a file that cannot execute code.

A safetensors file holds the tensors and, in its header, the other values as JSON and its checksum. It is written
completely or not at all, and the previous one is kept.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from lmtool.errors import UserError, first_line
from lmtool.neural.model import NeuralModel
from lmtool.runs.run import STATE, STATE_BEFORE
from lmtool.runs.weights import read_tensors, write_tensors
from lmtool.system import schemas
from lmtool.system.checksums import verify
from lmtool.system.files import atomic_write, remove_stale
from lmtool.system.schemas import OBJECT, require_kind

FORMAT = 5
UNFINISHED = re.compile(r"\.tmp[0-9A-Za-z]{6}")  # name of a file of safetensors before it is renamed
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainingState:
    """The state of a training after a step: tensors by name, and other values as in JSON."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with a prefix, under the rest of their names."""
        return {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}

    def require_equal(self, key: str, now: object, setting: str, out: Path) -> None:
        """Raise UserError, naming a setting and the folder, unless a value is as now."""
        if (begun := self.values[key]) != now:
            raise UserError(f"{setting}: {out} was begun with {begun}, not {now}, and can only be resumed with {begun}")


def save_state(state: TrainingState, folder: Path) -> None:
    """Write a checkpoint, completely or not at all; the last one becomes the previous one, if it can be written."""
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in state.tensors.items()}
    notes = {"values": json.dumps({"format": FORMAT, **state.values})}
    with atomic_write(folder / STATE) as temporary:
        write_tensors(arrays, temporary, notes)
        if (folder / STATE).exists():
            (folder / STATE).replace(folder / STATE_BEFORE)


def remove_unfinished(folder: Path) -> None:
    """Remove unfinished checkpoints and weights of killed processes from the run folder, whose lock is held."""
    remove_stale(folder)
    for path in folder.iterdir():
        if UNFINISHED.fullmatch(path.name):
            path.unlink(missing_ok=True)


def load_state(folder: Path) -> TrainingState | None:
    """Read the last undamaged checkpoint, with a warning of a damaged one; return None if no checkpoint exists."""
    damaged = []
    for path in (folder / STATE, folder / STATE_BEFORE):
        if path.exists():
            try:
                state = read_state(path)
            except (SafetensorError, OSError, ValueError) as error:
                damaged.append(path)
                log.warning("%s is damaged or cut off (%s)", path, first_line(error))
                continue
            if damaged:
                log.warning("resuming from %s instead, step %d", path, state.values["progress"]["step"])
            return state
    if damaged:
        raise UserError(f"{' and '.join(map(str, damaged))}: damaged; delete {folder} and train again")
    return None


def read_state(path: Path) -> TrainingState:
    """Read one checkpoint. Raises SafetensorError, OSError, ValueError for damage, UserError for another version."""
    arrays, notes = read_tensors(path)
    values = schemas.parse_json(notes.get("values", ""), OBJECT)
    if values.get("format") != FORMAT:
        raise UserError(f"{path} is of another version of lmtool (format {values.get('format')}): train from scratch")
    if not verify(path):
        raise ValueError("it has no checksum")
    require_kind(values, schemas.STATE)
    return TrainingState({name: torch.from_numpy(array) for name, array in arrays.items()}, values)


def model_tensors(model: NeuralModel) -> dict[str, Tensor]:
    """Return parameters and persistent buffers by name; tied parameters once."""
    named: dict[str, Tensor] = {name: parameter.detach() for name, parameter in model.named_parameters()}
    persistent = model.state_dict().keys()
    return named | {name: buffer for name, buffer in model.named_buffers() if name in persistent}


def random_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the random generators of torch that training on a device draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    """Restore what random_states returned."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)

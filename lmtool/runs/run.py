"""The run folder: all that is needed to evaluate what a command made, or to make it again.

run.json names what the run is (`train` or `ensemble`), its data, store and model; the model's own file lies
beside it. It is written last, so that a folder with a run.json is whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lmtool import __version__
from lmtool.errors import UserError
from lmtool.system.files import read_json, write_json

FORMAT = 1
STATE, STATE_BEFORE = "state.safetensors", "state-before.safetensors"  # checkpoints of a training, the last two
REMEDY = "train it again, or name another run with run=PATH"


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    kind: `train` or `ensemble`. config: the composed settings, plain values. store: the path of the HDF5
    store at the time; its fingerprint says whether another file serves as well. members, weights and mixture,
    which says in plain values how they are mixed: of an ensemble.
    """

    folder: Path
    kind: str
    config: dict[str, Any]
    store: str
    store_fingerprint: str
    vocabulary_fingerprint: str
    members: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    mixture: dict[str, Any] = field(default_factory=dict)

    def save(self) -> None:
        """Write run.json, which makes the folder a run."""
        write_json(
            self.folder / "run.json",
            {
                "format": FORMAT,
                "version": __version__,
                "kind": self.kind,
                "store": self.store,
                "store_fingerprint": self.store_fingerprint,
                "vocabulary_fingerprint": self.vocabulary_fingerprint,
                "members": list(self.members),
                "weights": list(self.weights),
                "mixture": self.mixture,
                "config": self.config,
            },
        )

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Read a run folder. Raises UserError where it is not one, or one of another format."""
        if not folder.is_dir():
            raise UserError(f"no run folder {folder}: {REMEDY}")
        if not (folder / "run.json").is_file():
            raise UserError(f"{folder} is not a finished run (it has no run.json): {REMEDY}")
        saved = read_json(folder / "run.json", REMEDY)
        try:
            if saved["format"] != FORMAT:
                raise UserError(f"{folder} has run format {saved['format']}, not {FORMAT}: {REMEDY}")
            return cls(
                folder=folder,
                kind=str(saved["kind"]),
                config=dict(saved["config"]),
                store=str(saved["store"]),
                store_fingerprint=str(saved["store_fingerprint"]),
                vocabulary_fingerprint=str(saved["vocabulary_fingerprint"]),
                members=tuple(saved["members"]),
                weights=tuple(saved["weights"]),
                mixture=dict(saved.get("mixture", {})),  # older runs mix linearly and say nothing
            )
        except (KeyError, TypeError) as error:
            raise UserError(f"{folder / 'run.json'} is damaged ({error} is missing): {REMEDY}") from error


def has_state(folder: Path) -> bool:
    """Whether a folder holds a checkpoint of a training, whole or not."""
    return (folder / STATE).exists() or (folder / STATE_BEFORE).exists()


def newest() -> Path:
    """The run below ./outputs and ./multirun that ended last. Raises UserError where there is none."""
    found = [path for top in ("outputs", "multirun") for path in Path(top).glob("**/run.json")]
    if not found:
        raise UserError("no run below ./outputs or ./multirun: make one with lmtool train, or name one with run=PATH")
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent

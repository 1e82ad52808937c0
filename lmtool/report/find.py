"""Find the folders that a report shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from lmtool.errors import UserError, escape_controls
from lmtool.evaluation.token_scores import SCORES_FILE
from lmtool.runs.run import RATES, has_state

MAX_DEPTH = 3  # maximum depth of folders in the search


class Kind(Enum):
    """The kind of content of a folder."""

    run = "run"  # written by train or ensemble
    scores = "scores"  # written by eval, or by ensemble for scores
    sweep = "sweep"
    compare = "compare"
    tree = "tree"
    rates = "rates"
    unfinished = "unfinished"  # training


KINDS = {  # by a file in the folder; the first file that exists decides
    "run.json": Kind.run,
    "sweep.csv": Kind.sweep,
    RATES: Kind.rates,
    "compare.csv": Kind.compare,
    SCORES_FILE: Kind.scores,
    "cloze.csv": Kind.scores,
}


@dataclass(frozen=True, slots=True)
class ReportFolder:
    """A folder with something to show. name: short and unique. sweep: the folder of its sweep, if it is a job."""

    folder: Path
    kind: Kind
    name: str = ""
    sweep: Path | None = None


def find_folders(paths: Sequence[Path]) -> tuple[list[ReportFolder], list[Path]]:
    """Return the folders with something to show in or below `paths`, including jobs of sweeps, and the folders of
    unfinished trainings.
    """
    found: dict[Path, ReportFolder] = {}
    for path in paths:
        if not path.exists():
            raise UserError(f"no folder {path}: name runs, sweeps, or folders that hold them")
        if not path.is_dir():
            raise UserError(f"{path} is a file: name the folder that it is in")
        below = list(_within(path, MAX_DEPTH))
        if not below:
            raise UserError(f"nothing to show in {path}: no run, evaluation, sweep, comparison, tree or range test")
        for item in below:
            found.setdefault(item.folder.resolve(), item)
    folders = [item for item in found.values() if item.kind is not Kind.unfinished]
    unfinished = [item.folder for item in found.values() if item.kind is Kind.unfinished]
    if not folders:
        names = ", ".join(map(str, unfinished))
        raise UserError(f"{names}: not finished; resume with lmtool train resume=PATH, or name another run")
    # The number of a job is meaningless without its sweep.
    parts = [1 + (item.sweep is not None) for item in folders]
    named = short_names([item.folder.resolve() for item in folders], parts)
    return [replace(item, name=name) for item, name in zip(folders, named, strict=True)], unfinished


def _within(folder: Path, deeper: int, sweep: Path | None = None) -> Iterator[ReportFolder]:
    kind = kind_of(folder)
    if kind is not None:
        yield ReportFolder(folder, kind, sweep=sweep)
    if deeper and kind in (None, Kind.sweep):
        inner = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
        for path in sorted(inner, key=_in_order):
            yield from _within(path, deeper - 1, folder if kind else sweep)


def _in_order(path: Path) -> tuple[int, str]:
    """Return the sort key: jobs by their numbers, other folders by their names."""
    return (int(path.name) if path.name.isdecimal() else -1, path.name)


def kind_of(folder: Path) -> Kind | None:
    """Return the kind of a folder, by its files; None if it has nothing that a report shows."""
    for name, kind in KINDS.items():
        if (folder / name).exists():
            return kind
    file = folder / "result.json"
    try:
        if file.exists() and '"weighted_mean_depth"' in file.read_text(encoding="utf-8", errors="replace"):
            return Kind.tree
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    return Kind.unfinished if has_state(folder) else None


def short_names(paths: Sequence[Path], at_least: Sequence[int] | None = None) -> list[str]:
    """Return the shortest unique end of each path, with at least this many parts; equal paths have equal names."""
    lengths = list(at_least or [1] * len(paths))
    while True:
        names = [escape_controls("/".join(path.parts[-length:])) for path, length in zip(paths, lengths, strict=True)]
        ambiguous = {
            name for name in names if len({path for path, other in zip(paths, names, strict=True) if other == name}) > 1
        }
        if not ambiguous:
            return names
        lengths = [length + (name in ambiguous) for length, name in zip(lengths, names, strict=True)]

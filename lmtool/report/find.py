"""What the folders are that a report is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from lmtool.errors import UserError
from lmtool.evaluation.token_scores import SCORES_FILE
from lmtool.runs.run import has_state

DEEPEST = 3  # folders within folders that are looked through
SWEEP, RATES = "sweep.csv", "lr_range.json"


class Kind(Enum):
    """What a folder holds."""

    run = "run"  # of train or ensemble
    scores = "scores"  # of eval, or of an ensemble of scores
    sweep = "sweep"
    compare = "compare"
    tree = "tree"
    rates = "rates"


@dataclass(frozen=True, slots=True)
class Found:
    """A folder with something to show. name: short, and no other folder's. sweep: of which it is a job."""

    folder: Path
    kind: Kind
    name: str = ""
    sweep: Path | None = None


def find(paths: Sequence[Path]) -> tuple[list[Found], list[Path]]:
    """The folders with something to show that are named, or are in those that are named, jobs of sweeps too; and the
    folders of trainings that are not finished.

    Raises UserError for a path that is not there, or where there is nothing to show.
    """
    found: dict[Path, Found] = {}
    unfinished: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise UserError(f"no folder {path}: name runs, sweeps, or folders that hold them")
        if not path.is_dir():
            raise UserError(f"{path} is a file: name the folder that it is in")
        before = len(found), len(unfinished)
        for each in _within(path, DEEPEST):
            if isinstance(each, Found):
                found.setdefault(each.folder.resolve(), each)
            else:
                unfinished[each] = None
        if (len(found), len(unfinished)) == before and path.resolve() not in found:
            raise UserError(f"nothing to show in {path}: no run, evaluation, sweep, comparison, tree or range test")
    if not found:
        names = ", ".join(map(str, unfinished))
        raise UserError(f"{names}: not finished; go on with lmtool train resume=PATH, or name another run")
    return _named(list(found.values())), list(unfinished)


def _within(folder: Path, deeper: int, sweep: Path | None = None) -> Iterator[Found | Path]:
    kind = kind_of(folder)
    if kind is not None:
        yield Found(folder, kind, sweep=sweep)
        if kind is not Kind.sweep:
            return
        sweep = folder
    elif has_state(folder):
        yield folder
        return
    if deeper:
        inner = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
        for path in sorted(inner, key=_in_order):
            yield from _within(path, deeper - 1, sweep)


def _in_order(path: Path) -> tuple[int, str]:
    """Jobs by their numbers, other folders by their names."""
    return (int(path.name) if path.name.isdecimal() else -1, path.name)


def kind_of(folder: Path) -> Kind | None:
    """What a folder holds, by its files; None where it is nothing that a report shows."""
    if (folder / "run.json").exists():
        return Kind.run
    if (folder / SWEEP).exists():
        return Kind.sweep
    if (folder / RATES).exists():
        return Kind.rates
    if (folder / "compare.csv").exists():
        return Kind.compare
    if (folder / SCORES_FILE).exists() or (folder / "cloze.csv").exists():
        return Kind.scores
    if (folder / "result.json").exists() and _says(folder / "result.json", '"weighted_mean_depth"'):
        return Kind.tree
    return None


def _says(file: Path, key: str) -> bool:
    try:
        return key in file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error


def _named(found: list[Found]) -> list[Found]:
    # A job's number says nothing without its sweep.
    names = short_names([each.folder.resolve() for each in found], [1 + (each.sweep is not None) for each in found])
    return [replace(each, name=name) for each, name in zip(found, names, strict=True)]


def short_names(paths: Sequence[Path], at_least: Sequence[int] | None = None) -> list[str]:
    """The shortest end of each path that no other has, of at least so many parts; equal paths have equal names."""
    lengths = list(at_least or [1] * len(paths))
    while True:
        names = ["/".join(path.parts[-length:]) for path, length in zip(paths, lengths, strict=True)]
        alike = {
            name for name in names if len({path for path, own in zip(paths, names, strict=True) if own == name}) > 1
        }
        if not alike:
            return names
        lengths = [length + (name in alike) for length, name in zip(lengths, names, strict=True)]

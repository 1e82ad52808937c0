"""`lmtool verify`: runs, stores and other files -> whether each is as it was written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lmtool.config.rules import setting
from lmtool.config.verbs import VerbConfig
from lmtool.data.remote import is_address
from lmtool.errors import UserError, first_line
from lmtool.results.base import TableResult
from lmtool.session import Session
from lmtool.system.checksums import checksum_of, verify
from lmtool.system.files import read_json, write_json
from lmtool.system.terminal import Cell, text_table

SUFFIXES = (".h5", ".json", ".safetensors")
HIDDEN = "."  # prefix of Hydra's folders, and of files that are being written
HEADER = ["file", "bytes", "condition", "damage"]


@dataclass(slots=True)
class Settings(VerbConfig):
    """Settings of `lmtool verify`."""

    paths: list[str] = setting(bare=True)


@dataclass(repr=False)
class Result(TableResult):
    """The result of `verify`: a row for each file. paths: what was named."""

    paths: list[str]

    def heading(self) -> str:
        """Return the paths."""
        return ", ".join(self.paths)

    def table_text(self) -> str:
        """Return the table in plain text."""
        from lmtool.data.text_form import visible

        return text_table(self.header, [[visible(str(name)), *others] for name, *others in self.table])


def run(settings: Settings, session: Session) -> Result:
    """Read the files with checksums below the paths, print the condition of each, and fail if one is damaged.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> {row["condition"] for row in lmtool.verify([run.folder]).rows}
    {'whole'}
    """
    from lmtool.runs.run import newest

    paths = [Path(path) for path in settings.paths] or [newest()]
    files = [(str(path), *verified(path, checksum)) for path, checksum in sorted(files_of(paths).items())]
    if not files:
        raise UserError(f"{', '.join(map(str, paths))}: no file of lmtool; name runs, stores or folders of them")
    table: list[list[Cell]] = [[name, size, condition, why or ""] for name, size, condition, why in files]
    result = Result([*map(str, paths)], header=HEADER, table=table, notes=session.notes)
    session.say(result.table_text())
    write_json(session.out / "result.json", {"files": [dict(zip(HEADER, file, strict=True)) for file in files]})
    if any(condition == "unverified" for _, _, condition, _ in files):
        session.note("unverified: without checksums; make the files again to add them")
    damaged = [f"{name}: {why}" for name, _, condition, why in files if condition == "damaged"]
    if damaged:
        some = "; ".join(damaged[:3])
        raise UserError(f"{len(damaged)} of {len(files)} files damaged ({some}): take a copy, or make them again")
    return result


def files_of(paths: Sequence[Path]) -> dict[Path, str | None]:
    """Return the files with checksums below the paths, each with its checksum in a run.json, if any; for a run also its
    store, and for a mixture its members.

    Raises UserError for a path that does not exist.
    """
    found: dict[Path, str | None] = {}
    waiting, seen = list(paths), set()
    while waiting:
        path = waiting.pop(0)  # those that were named first, under their names
        if not path.exists():
            raise UserError(f"{path} does not exist: name runs, stores and folders of them")
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        for file in [path] if path.is_file() else _below(path):
            if path.is_file() or file.suffix in SUFFIXES:
                found.setdefault(file, None)
            if file.name == "run.json":
                waiting += _of_run(file.parent, found)
    return _once(found)


def _once(found: dict[Path, str | None]) -> dict[Path, str | None]:
    """Return each file once, by its relative path if it has one: a mixture names its members by absolute paths."""
    names: dict[str, Path] = {}
    checksums: dict[Path, str | None] = {}
    for path in sorted(found, key=Path.is_absolute):
        name = names.setdefault(os.path.realpath(path), path)
        checksums[name] = checksums.get(name) or found[path]
    return checksums


def _below(folder: Path) -> list[Path]:
    inside = (path for path in folder.rglob("*") if path.is_file() or (path.is_symlink() and not path.exists()))
    return [path for path in inside if not any(part.startswith(HIDDEN) for part in path.relative_to(folder).parts)]


def _of_run(folder: Path, found: dict[Path, str | None]) -> list[Path]:
    """Add the files that a run.json lists; return the paths that it refers to."""
    from lmtool.runs.run import Run

    try:
        run = Run.open(folder)
    except UserError:  # damaged, which verifying it reports
        return []
    found.update({folder / name: checksum for name, checksum in run.checksums.items()})
    others = [Path(member) for member in run.members]
    if not is_address(run.store):
        others.append(Path(run.store))
    return [path for path in others if path.exists()]


def verified(path: Path, checksum: str | None) -> tuple[int, str, str | None]:
    """Read a file to its end and compare its checksums; return its bytes, its condition and the damage, if any.

    checksum: of the file in a run.json; None: not listed there. The condition is `whole` (as it was written),
    `damaged`, or `unverified` (without a checksum).
    """
    size = path.stat().st_size if path.is_file() else 0
    try:
        if not verify(path):
            _require_readable(path)
            if checksum is None:
                return size, "unverified", None
        if checksum not in (None, checksum_of(path)):
            return size, "damaged", "its checksum is not the one in run.json"
    except Exception as error:  # each library has its own
        return size, "damaged", first_line(error)
    return size, "whole", None


def _require_readable(path: Path) -> None:
    """Raise an error of its library for a file without a checksum that is not of its format."""
    match path.suffix:
        case ".json":
            read_json(path, "make it again")
        case ".safetensors":
            from lmtool.runs.weights import read_tensors

            read_tensors(path)
        case ".h5":
            from lmtool.system.hdf5_files import open_hdf5

            open_hdf5(path).close()

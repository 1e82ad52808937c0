"""`lmtool verify`: runs, stores and other files -> whether each is as it was written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from lmtool.config.rules import setting
from lmtool.config.verbs import VerbConfig
from lmtool.data.remote import is_address
from lmtool.errors import UserError, first_line
from lmtool.results import base
from lmtool.session import Session
from lmtool.system.checksums import checksum_of, verify
from lmtool.system.files import read_json

SUFFIXES = (".h5", ".json", ".safetensors")
HIDDEN = "."  # prefix of Hydra's folders, and of files that are being written


@dataclass(slots=True)
class Settings(VerbConfig):
    paths: list[str] = setting(bare=True)


@dataclass(frozen=True)
class FileCheck:
    """A file. condition: `whole` (as it was written), `damaged`, or `unverified` (without a checksum)."""

    file: str = field(metadata=base.figure("file"))
    bytes: int = field(metadata=base.figure("bytes"))
    condition: str = field(metadata=base.figure("condition"))
    damage: str | None = field(metadata=base.figure("damage"))


@dataclass(repr=False)
class VerifyResult(base.Result):
    """The result of `verify`: a row for each file. paths: the paths that were given."""

    paths: list[str] = field(metadata=base.UNSAVED)
    files: list[FileCheck]

    def heading(self) -> str:
        return ", ".join(self.paths)

    def as_table(self) -> base.Table:
        from lmtool.data.text_form import visible

        return base.table_of([replace(row, file=visible(row.file), damage=row.damage or "") for row in self.files])


def run(settings: Settings, session: Session) -> VerifyResult:
    """Read the files with checksums below the paths, print the condition of each, and fail if one is damaged.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> {row["condition"] for row in lmtool.verify([run.folder]).rows}
    {'whole'}
    """
    from lmtool.runs.run import newest

    paths = [Path(path) for path in settings.paths] or [newest()]
    files = [FileCheck(str(path), *verified(path, checksum)) for path, checksum in sorted(files_of(paths).items())]
    if not files:
        raise UserError(f"{', '.join(map(str, paths))}: no file of lmtool; name runs, stores or folders of them")
    result = VerifyResult([*map(str, paths)], files)
    session.finish(result, result.table_text())
    if any(file.condition == "unverified" for file in files):
        session.note("unverified: without checksums; make the files again to add them")
    damaged = [f"{file.file}: {file.damage}" for file in files if file.condition == "damaged"]
    if damaged:
        some = "; ".join(damaged[:3])
        raise UserError(f"{len(damaged)} of {len(files)} files damaged ({some}): take a copy, or make them again")
    return result


def files_of(paths: Sequence[Path]) -> dict[Path, str | None]:
    """Return the files below the paths, of runs also their stores and members, with checksums from a run.json."""
    from lmtool.runs.run import Run

    names: dict[str, Path] = {}  # by real path: a mixture names its members by absolute paths
    checksums: dict[str, str] = {}
    waiting = list(paths)
    for path in waiting:  # the list grows; the given paths come first, under their names
        if not path.exists():
            raise UserError(f"{path} does not exist: name runs, stores and folders of them")
        for file in [path] if path.is_file() else _below(path):
            real = os.path.realpath(file)
            if real not in names and (path.is_file() or file.suffix in SUFFIXES):
                names[real] = file
                if file.name != "run.json":
                    continue
                with suppress(UserError):  # a damaged one, which verifying it reports
                    run = Run.open(file.parent)
                    for name, checksum in run.checksums.items():
                        of_run = os.path.realpath(run.folder / name)
                        names.setdefault(of_run, run.folder / name)
                        checksums[of_run] = checksum
                    others = [*run.members, *([] if is_address(run.store) else [run.store])]
                    waiting += [other for other in map(Path, others) if other.exists()]
    return {path: checksums.get(real) for real, path in names.items()}


def _below(folder: Path) -> list[Path]:
    inside = (path for path in folder.rglob("*") if path.is_file() or (path.is_symlink() and not path.exists()))
    return [path for path in inside if not any(part.startswith(HIDDEN) for part in path.relative_to(folder).parts)]


def verified(path: Path, checksum: str | None) -> tuple[int, str, str | None]:
    """Read a file and compare its checksums, also that in a run.json; return its bytes, condition and damage."""
    size = path.stat().st_size if path.is_file() else 0
    try:
        if not verify(path):
            _require_readable(path)
            if checksum is None:
                return size, "unverified", None
        if checksum not in (None, checksum_of(path)):
            return size, "damaged", "its checksum is not the one in run.json"
    except Exception as error:  # each library raises exceptions of different types
        return size, "damaged", first_line(error)
    return size, "whole", None


def _require_readable(path: Path) -> None:
    """Raise the error of the library that reads a file without a checksum if its format is invalid."""
    match path.suffix:
        case ".json":
            read_json(path, "make it again")
        case ".safetensors":
            from lmtool.runs.weights import read_tensors

            read_tensors(path)
        case ".h5":
            from lmtool.system.hdf5_files import open_hdf5

            open_hdf5(path).close()

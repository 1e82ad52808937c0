"""Text files: under LMTOOL_DATA, below the working folder, or downloaded."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from lmtool.config import SplitConfig, SplitUnit, TextData
from lmtool.data.download import fetch, is_cached
from lmtool.data.readers import MEMBER, read_blocks, sha256_of
from lmtool.data.sources import NoSource, Source
from lmtool.errors import UserError


def text_source(data: TextData, *, progress: bool, download: bool = True) -> Source:
    """The files of a text data set. Raises UserError where one that is needed is nowhere to be found.

    download: whether to go to the network where not even the train split is on this machine; else that is a NoSource.
    """
    notes: list[str] = []
    found: dict[str, str] = {}
    if not download:
        locate(data.train, "train", data, progress=progress, download=False)
    for split, name in (("train", data.train), ("valid", data.valid), ("test", data.test)):
        if name is None:
            continue
        path = locate(name, split, data, progress=progress, optional=split == "test")
        if path is None:
            notes.append(f"no test split: {name} is neither under LMTOOL_DATA nor here")
        else:
            found[split] = path
    if "valid" not in found and data.split is None:
        raise UserError("data.valid has no file: name one, or cut it from data.train with data.split")
    splits: dict[str, Callable[[], Iterator[bytes]]] = {
        split: partial(read_blocks, path) for split, path in found.items()
    }
    parts = None
    if data.split is not None:
        if data.split.unit is SplitUnit.tokens:
            parts = (data.split.train, data.split.valid)
        else:
            path, cut = found["train"], data.split
            splits = {split: partial(_lines, path, cut, split) for split in ("train", "valid", "test")}
    files = dict(found)
    if data.vocabulary.file is not None:
        files["vocabulary"] = str(locate(data.vocabulary.file, "vocabulary.file", data, progress=progress))
    for key in ("cloze_valid", "cloze_valid_answers", "cloze_test"):
        if getattr(data, key) is not None:
            files[key] = str(locate(getattr(data, key), key, data, progress=progress))
    return Source(
        splits,
        stamp={key: _stamp(path) for key, path in files.items()},
        identity=lambda: {key: _identity(path) for key, path in files.items()},
        parts=parts,
        notes=notes,
    )


def locate(
    name: str, key: str, data: TextData, *, progress: bool, optional: bool = False, download: bool = True
) -> str | None:
    """The path (with its member, if it has one) of a file of the data set; downloads it where it can.

    Looks below LMTOOL_DATA, then from the working folder, then among what was downloaded before. Raises UserError where
    it is not found, unless it is optional; with download=False that is a NoSource.
    """
    path, mark, member = name.partition(MEMBER)
    roots = [Path(os.environ["LMTOOL_DATA"])] if os.environ.get("LMTOOL_DATA") else []
    for root in (*roots, Path()):
        if (root / path).is_file():
            return f"{root / path}{mark}{member}"
    remote = data.downloads.get(key)
    if remote is not None and (download or is_cached(remote)):
        try:
            fetched = fetch(remote, progress=progress)
        except UserError:
            if optional:
                return None
            raise
        return f"{fetched}{MEMBER}{remote.member}" if remote.member else f"{fetched}{mark}{member}"
    if optional and data.name != "text" and key == "test":
        return None
    where = f"below LMTOOL_DATA ({roots[0]}) and here" if roots else "here, and LMTOOL_DATA is not set"
    kind = UserError if download else NoSource
    raise kind(f"no file {path} for data.{key} ({where}): check the path or set LMTOOL_DATA")


def _stamp(name: str) -> list[object]:
    path = Path(name.partition(MEMBER)[0])
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


def _identity(name: str) -> dict[str, object]:
    path = Path(name.partition(MEMBER)[0])
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _lines(path: str, cut: SplitConfig, split: str) -> Iterator[bytes]:
    """The lines of one split of a file that is cut by lines, in the order of the file or shuffled.

    The shuffle is Python's own from its seed, as the names article's, so that its splits come out.
    """
    lines = [line for block in read_blocks(path) for line in block.splitlines() if line.strip()]
    if cut.shuffle_seed is not None:
        random.Random(cut.shuffle_seed).shuffle(lines)
    # Ends are rounded as the article's int(.8 n) and int(.9 n).
    ends = cut_points(len(lines), cut.train, cut.valid)
    first, last = {"train": (0, ends[0]), "valid": ends, "test": (ends[1], len(lines))}[split]
    yield b"\n".join(lines[first:last]) + b"\n"


def cut_points(total: int, train: float, valid: float) -> tuple[int, int]:
    """Where train ends and where valid ends, of `total` items; sizes below 1 are fractions of it.

    Raises UserError where nothing is left for valid.
    """
    ends = (int(train * total), int(round(train + valid, 9) * total)) if train < 1 else (int(train), int(train + valid))
    if not 0 < ends[0] < ends[1] <= total:
        raise UserError(f"data.split: train={train:g} and valid={valid:g} do not fit {total:,} items")
    return ends

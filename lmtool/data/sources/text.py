"""Text files: below LMTOOL_DATA, below the working folder, or downloaded."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import ClassVar

from lmtool.config.groups import DataConfig
from lmtool.config.rules import MISSING, require, require_seed
from lmtool.data.download import DownloadConfig, fetch, is_cached
from lmtool.data.readers import MEMBER, read_blocks, sha256_of
from lmtool.data.sources.base import Blocks, ClozeFiles, NoSource, Source, cut_points
from lmtool.errors import UserError


class SplitUnit(Enum):
    """What the sizes of a split count."""

    tokens = "tokens"
    lines = "lines"


@dataclass(slots=True)
class SplitConfig:
    """How one file becomes train, valid and test; what follows the first two is test.

    train, valid: counts of the unit, or fractions below 1. shuffle_seed: of a shuffle of the lines beforehand; None for
    their order.
    """

    unit: SplitUnit = MISSING
    train: float = MISSING
    valid: float = MISSING
    shuffle_seed: int | None = MISSING

    def __post_init__(self) -> None:
        for name, value in (("train", self.train), ("valid", self.valid)):
            rule = "more than 0: a count, or a fraction below 1"
            require(0 < value < math.inf, f"data.split.{name}", value, rule)
        require_seed("data.split.shuffle_seed", self.shuffle_seed, null=True)


@dataclass(slots=True)
class TextData(DataConfig):
    """Text files, local or downloaded."""

    takes_word_list: ClassVar[bool] = True

    train: str = MISSING
    valid: str | None = MISSING
    test: str | None = MISSING
    tags: bool = MISSING
    split: SplitConfig | None = MISSING
    downloads: dict[str, DownloadConfig] = MISSING
    cloze_valid: str | None = MISSING
    cloze_valid_answers: str | None = MISSING
    cloze_test: str | None = MISSING

    def __post_init__(self) -> None:
        DataConfig.__post_init__(self)
        if self.split is not None:
            for name, file in (("valid", self.valid), ("test", self.test)):
                if file is not None:
                    raise UserError(f"data.{name}={file}: data.split cuts it from data.train already; leave one out")
        if self.cloze_valid_answers is not None and self.cloze_valid is None:
            answers = self.cloze_valid_answers
            raise UserError(f"data.cloze_valid_answers={answers}: there are no questions; give data.cloze_valid too")

    def drops_tags(self) -> bool:
        """The setting `tags`."""
        return self.tags

    def source(self, *, progress: bool, download: bool) -> Source:
        """The files. Raises UserError where one that is needed is not found.

        download: whether to go to the network where not even train is on this machine; where it is False, that is a
        NoSource.
        """
        notes: list[str] = []
        files: dict[str, str] = {}  # paths by setting; the word list's by "vocabulary"
        if not download:
            locate(self.train, "train", self, progress=progress, download=False)
        for split, name in (("train", self.train), ("valid", self.valid), ("test", self.test)):
            if name is None:
                continue
            path = locate(name, split, self, progress=progress, optional=split == "test")
            if path is None:
                notes.append(f"no test split: {name} is neither below LMTOOL_DATA nor here")
            else:
                files[split] = path
        if "valid" not in files and self.split is None:
            raise UserError("data.valid has no file: name one, or cut it from data.train with data.split")
        splits: dict[str, Callable[[], Blocks]] = {split: partial(read_blocks, path) for split, path in files.items()}
        parts = None
        if self.split is not None:
            if self.split.unit is SplitUnit.tokens:
                parts = (self.split.train, self.split.valid)
            else:
                path, cut = files["train"], self.split
                splits = {split: partial(_lines, path, cut, split) for split in ("train", "valid", "test")}
        if self.vocabulary.file is not None:
            files["vocabulary"] = str(locate(self.vocabulary.file, "vocabulary.file", self, progress=progress))
        for key in ("cloze_valid", "cloze_valid_answers", "cloze_test"):
            if getattr(self, key) is not None:
                files[key] = str(locate(getattr(self, key), key, self, progress=progress))
        return Source(
            splits,
            stamp={key: _stamp(path) for key, path in files.items()},
            identity=lambda: {key: _identity(path) for key, path in files.items()},
            parts=parts,
            word_list=files.get("vocabulary"),
            cloze={
                split: ClozeFiles(files[f"cloze_{split}"], files.get(f"cloze_{split}_answers"))
                for split in ("valid", "test")
                if f"cloze_{split}" in files
            },
            notes=notes,
        )


def locate(
    name: str, key: str, data: TextData, *, progress: bool, optional: bool = False, download: bool = True
) -> str | None:
    """The path (with its member, if it has one) of a file of the data set; downloads it where it can.

    key: the setting without `data.`, which the downloads are named by. Looks below LMTOOL_DATA, then below the working
    folder, then among earlier downloads. None where an optional file is not found. Raises UserError where another is
    not; with download=False that is a NoSource.
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

    The shuffle is that of Python's `random` with the seed, as in the names article, which gives its splits.
    """
    lines = [line for block in read_blocks(path) for line in block.splitlines() if line.strip()]
    if cut.shuffle_seed is not None:
        random.Random(cut.shuffle_seed).shuffle(lines)
    ends = cut_points(len(lines), cut.train, cut.valid)
    first, last = {"train": (0, ends[0]), "valid": ends, "test": (ends[1], len(lines))}[split]
    yield b"\n".join(lines[first:last]) + b"\n"

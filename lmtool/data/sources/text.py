"""Text files: below the working folder, below LMTOOL_DATA, or downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from lmtool.config.data import BlankLines, DataConfig
from lmtool.config.rules import MISSING, require, setting
from lmtool.data import text_files
from lmtool.data.faults import Faults
from lmtool.data.first_pass import without_marked_records
from lmtool.data.readers import MEMBER, read_blocks
from lmtool.data.remote import escape_glob, is_address
from lmtool.data.sources.base import Blocks, ExternalText, NoSource, Source, SplitConfig, SplitUnit, cut_by_lines
from lmtool.data.text_files import DownloadConfig, fetch
from lmtool.errors import UserError
from lmtool.system.terminal import note_once

SOURCE = re.compile(r"[A-Za-z0-9_.-]+")  # a name that needs no quotes in YAML, nor on a command line
FILES = "a path, a glob, a folder, or a list of them"


@dataclass(slots=True)
class TextData(DataConfig):
    """Text files, local or downloaded; several sources of train are concatenated in the order of their names."""

    takes_word_list: ClassVar[bool] = True

    train: Any = setting(said=FILES)
    valid: Any = setting(said=FILES)
    test: Any = setting(said=FILES)
    tags: bool = MISSING
    split: SplitConfig | None = MISSING
    downloads: dict[str, DownloadConfig] = MISSING
    cloze_valid: str | None = MISSING
    cloze_valid_answers: str | None = MISSING
    cloze_test: str | None = MISSING
    column: str | None = field(default=None, kw_only=True)
    blank_lines: BlankLines = field(default=BlankLines.skip, kw_only=True)

    def __post_init__(self) -> None:
        DataConfig.__post_init__(self)
        if isinstance(self.train, dict):
            self.train = _checked_sources(self.train)
        elif self.train is not None:
            self.train = _paths("train", self.train)
        self.valid = _paths("valid", self.valid) if self.valid is not None else None
        self.test = _paths("test", self.test) if self.test is not None else None
        if self.split is not None and not self.split.is_given():
            self.split = None
        if self.split is not None and isinstance(self.train, dict):
            raise UserError("data.split cuts one text, and data.train has several sources: give data.valid a file")
        for name, files in (("valid", self.valid), ("test", self.test)):
            if self.split is not None and files is not None:
                cut = f"data.{name}={files}: data.split cuts it from data.train already"
                raise UserError(f"{cut}; leave data.split out, or set data.{name}=null")
        if self.cloze_valid_answers is not None and self.cloze_valid is None:
            answers = self.cloze_valid_answers
            raise UserError(f"data.cloze_valid_answers={answers}: there are no questions; give data.cloze_valid too")

    def drops_tags(self) -> bool:
        return self.tags

    def has_valid(self) -> bool:
        return self.valid is not None or self.split is not None

    def takes_blank_lines(self) -> bool:
        return self.blank_lines is BlankLines.sentence

    def source(self, *, progress: bool, download: bool) -> Source:
        """Return the files as a source. download: False raises NoSource if train is not on this machine."""
        options = {"progress": progress, "download": download}
        train = {name: locate(files, "train", self, **options) or [] for name, files in self._sources().items()}
        return self._source(train, progress=progress)

    def others(self, *, progress: bool) -> Source:
        if self.split is not None:
            raise UserError("data.split cuts train in the order of its lines: give data.valid a file instead")
        return self._source({}, progress=progress)

    def elsewhere(self) -> ExternalText:
        """Return the files of train; names with :// are addresses, others are files on this machine."""
        names = [name for names in self._sources().values() for name in names]
        if member := next((name for name in names if MEMBER in name), None):
            raise UserError(f"data.train={member}: another program cannot read members of archives: unpack it")
        train = [
            [name]
            if is_address(name)
            else [escape_glob(f"file:{Path(file).resolve()}") for file in text_files.text_files(name, "data.train")]
            for name in names
        ]
        return ExternalText(train, self.column)

    def _sources(self) -> dict[str, list[str]]:
        """Return the names of the files of each source of train, of one text under "train"."""
        if self.train is None:
            raise UserError("data.train has no file: give one, e.g. data.train=train.txt")
        sources = self.train if isinstance(self.train, dict) else {"train": self.train}
        return {source: _as_list(names) for source, names in sources.items()}

    def _source(self, train: dict[str, list[str]], *, progress: bool) -> Source:
        """Return the files as a source. train: paths by source; empty if another program reads train."""
        notes: list[str] = []
        files = {"train": [path for paths in train.values() for path in paths]} if train else {}  # by split
        for split, names in (("valid", self.valid), ("test", self.test)):
            if names is not None:
                paths = locate(names, split, self, progress=progress, optional=split == "test")
                if paths is None:
                    notes.append(f"no test split: {names} is neither here nor below LMTOOL_DATA")
                else:
                    files[split] = paths
        single: dict[str, str] = {}
        keys = ("cloze_valid", "cloze_valid_answers", "cloze_test")
        others = {"vocabulary.file": self.vocabulary.file} | {key: getattr(self, key) for key in keys}
        for key, name in others.items():
            if name is not None:
                found = locate(name, key, self, progress=progress) or []
                if len(found) > 1:
                    raise UserError(f"data.{key}={name}: {len(found):,} files; name one")
                single[key.removesuffix(".file")] = found[0]
        given = [*(self._sources().values() if train else ()), self.valid, self.test, *others.values()]
        text_files.note_places(name for names in given if names is not None for name in _as_list(names))
        faults = Faults(self.on_error, "data.on_error")
        read = {name: partial(self._read, paths, faults) for name, paths in files.items()}
        splits: Mapping[str, Callable[[], Blocks]] = read
        cut, parts, uncut = self.split, None, None
        if cut is not None and cut.unit is SplitUnit.tokens:
            parts = cut.train, cut.valid
        elif cut is not None:
            uncut, again = read["train"], partial(self._read, files["train"], Faults(self.on_error))
            blank = self.takes_blank_lines()
            splits = cut_by_lines(uncut, cut.train, cut.valid, cut.shuffle_seed, blank=blank, again=again)
        everything = files | {key: [path] for key, path in single.items()}
        return Source(
            splits,
            stamp={key: text_files.file_stamps(paths) for key, paths in everything.items()},
            identity=lambda: {key: list(map(text_files.file_identity, paths)) for key, paths in everything.items()},
            parts=parts,
            uncut=uncut,
            sources={source: partial(self._read, paths, faults) for source, paths in train.items() if len(train) > 1},
            word_list=single.get("vocabulary"),
            cloze={
                split: (single[f"cloze_{split}"], single.get(f"cloze_{split}_answers"))
                for split in ("valid", "test")
                if f"cloze_{split}" in single
            },
            cut=cut is not None,
            notes=notes,
            faults=faults,
        )

    def _read(self, paths: list[str], faults: Faults) -> Blocks:
        return without_marked_records(read_blocks(*paths, column=self.column, faults=faults), self, faults)


def _paths(key: str, value: Any) -> Any:
    """Check the value of data.train, data.valid or data.test and return it; a list of one path becomes that path."""
    names = [str(name) if isinstance(name, Path) else name for name in _as_list(value)]
    right = bool(names) and all(isinstance(name, str) and name for name in names)
    digits = "; a name of digits needs quotes" if any(isinstance(name, int) for name in names) else ""
    require(right, f"data.{key}", value, f"{FILES}{digits}")
    return names if len(names) > 1 else names[0]


def _as_list(names: Any) -> list[Any]:
    return names if isinstance(names, list) else [names]


def _checked_sources(value: dict[Any, Any]) -> Any:
    """Check the sources of data.train and return them in the order of their names; one source becomes its paths."""
    right = bool(value) and all(isinstance(name, str) and SOURCE.fullmatch(name) for name in value)
    rule = "{news: a.txt, books: [b.txt, c.txt]}, files by names of letters, digits, '.', '_' and '-'"
    require(right, "data.train", value, rule)
    sources = {name: _paths(f"train.{name}", value[name]) for name in sorted(value)}
    return sources if len(sources) > 1 else next(iter(sources.values()))


def locate(
    names: str | list[str], key: str, data: TextData, *, progress: bool, optional: bool = False, download: bool = True
) -> list[str] | None:
    """Return the paths of a part of the data set, each with its member if it has one; download it if possible.

    names: as in lmtool.data.text_files.find_files. key: the setting without `data.`, by which the downloads are named.
    They are searched as in find_files and, unless the path is_explicit, in the cache of downloads. None if downloading
    an optional part fails; NoSource with download=False.
    """
    found = {name: text_files.find_files(name) for name in _as_list(names)}
    missing = next((name for name, paths in found.items() if not paths), None)
    if missing is None:
        return [path for name in _as_list(names) for path in found[name]]
    remote = data.downloads.get(key)
    only_here = text_files.is_explicit(missing) or text_files.is_data_folder_wrong()
    if remote is None or only_here or not (download or text_files.is_cached(remote)):
        raise (UserError if download else NoSource)(text_files.no_file(missing, f"data.{key}"))
    try:
        fetched = fetch(remote, progress=progress)
    except UserError as error:
        if optional:
            return None
        if os.environ.get("LMTOOL_DATA"):
            raise UserError(f"{text_files.no_file(missing, f'data.{key}')}; {error}") from error
        raise
    note_once(f"data.{key}={missing} is not here: read from {fetched}, downloaded from {remote.url}")
    _, mark, member = missing.partition(MEMBER)
    return [f"{fetched}{MEMBER}{remote.member}" if remote.member else f"{fetched}{mark}{member}"]

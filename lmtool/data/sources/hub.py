"""Data sets of the Hugging Face Hub, loaded by the package `datasets`: downloaded into its cache, or saved on disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.config.data import DataConfig
from lmtool.config.rules import MISSING, require, setting
from lmtool.data.documents import texts_of_rows
from lmtool.data.faults import Faults
from lmtool.data.first_pass import without_marked_records
from lmtool.data.readers import blocks_of_documents
from lmtool.data.sources.base import Blocks, Source, TextNotRetained
from lmtool.data.text_files import file_identity, file_stamps
from lmtool.errors import UserError, first_line
from lmtool.system.terminal import hub_bars

if TYPE_CHECKING:
    from datasets import Dataset

ROWS = 1000  # rows read at once
ON_DISK = ("dataset_dict.json", "state.json")  # files that save_to_disk writes, for several splits or for one
SPLIT = "the name of a split, or a share between 0 and 1"


@dataclass(slots=True)
class HubData(DataConfig):
    """A data set with a column of text, each line of a document a line. Shares are cut from train's end, test last."""

    path: str = MISSING
    config: str | None = MISSING
    revision: str | None = MISSING
    column: str = MISSING
    train_split: str = MISSING
    valid_split: Any = setting(said=SPLIT)
    test_split: Any = setting(said=SPLIT)

    def __post_init__(self) -> None:
        DataConfig.__post_init__(self)
        require(bool(self.path), "data.path", repr(self.path), "a name on the Hub, as Salesforce/wikitext, or a folder")
        for name in ("valid_split", "test_split"):
            value = getattr(self, name)
            right = isinstance(value, str) or (isinstance(value, float) and 0 < value < 1)
            require(value is None or right, f"data.{name}", value, SPLIT)
        shares = [share for share in (self.valid_split, self.test_split) if isinstance(share, float)]
        require(sum(shares) < 1, "data.test_split", self.test_split, "a share that leaves some of train")

    def source(self, *, progress: bool, download: bool) -> Source:
        """Return the splits, not read yet; TextNotRetained for a data set of the Hub of which a store exists."""
        folder = Path(os.path.expanduser(self.path))
        on_disk = any((folder / name).is_file() for name in ON_DISK)
        if not on_disk and not download:
            raise TextNotRetained(f"data.path={self.path} is a data set of the Hub: its store is used as it is")
        parts = self._parts(self._load(folder if on_disk else None, progress=progress))
        sizes = {name: [part.num_rows, str(part.info.version), part.info.dataset_size] for name, part in parts.items()}
        files = sorted(str(file) for file in folder.rglob("*") if file.is_file()) if on_disk else []
        faults = Faults(self.on_error, "data.on_error")
        return Source(
            {name: partial(self._blocks, part, name, faults) for name, part in parts.items()},
            stamp=sizes | {"files": file_stamps(files)},
            identity=lambda: sizes | {"files": [file_identity(file) for file in files]},
            cut=any(isinstance(size, float) for size in (self.valid_split, self.test_split)),
            faults=faults,
        )

    def _load(self, folder: Path | None, *, progress: bool) -> dict[str, Dataset]:
        try:
            import datasets
        except ImportError:
            raise UserError('data=hub needs datasets: pip install "lmtool[hub]"') from None
        (datasets.enable_progress_bars if progress else datasets.disable_progress_bars)()
        try:
            if folder is not None:
                found = datasets.load_from_disk(str(folder))
            else:
                with hub_bars(shown=progress):
                    found = datasets.load_dataset(self.path, self.config, revision=self.revision)
        except Exception as error:  # raised by the package or its dependencies
            raise UserError(f"data.path={self.path}: datasets says: {first_line(error)}") from error
        return dict(found) if isinstance(found, dict) else {self.train_split: found}

    def _parts(self, found: dict[str, Dataset]) -> dict[str, Dataset]:
        train = self._part(found, self.train_split, "train_split")
        splits, end = {"valid": self.valid_split, "test": self.test_split}, train.num_rows
        named = {name: split for name, split in splits.items() if isinstance(split, str)}
        parts = {name: self._part(found, split, f"{name}_split") for name, split in named.items()}
        for name, split in reversed(splits.items()):
            if isinstance(split, float):
                first = end - int(split * train.num_rows)
                parts[name], end = train.select(range(first, end)), first
        if "valid" not in parts:
            raise UserError("data.valid_split=null: name a split, or a share of train, e.g. data.valid_split=0.05")
        parts["train"] = train.select(range(end)) if end < train.num_rows else train
        return {name: parts[name] for name in ("train", "valid", "test") if name in parts}

    def _part(self, found: dict[str, Dataset], split: str, key: str) -> Dataset:
        if split not in found:
            known = ", ".join(found)
            raise UserError(f"data.{key}={split}: {self.path} has only {known}; name one of them, or a share of train")
        part = found[split]
        if self.column not in part.column_names:
            known = ", ".join(part.column_names)
            raise UserError(f"data.column={self.column}: {self.path} has no such column; name one of: {known}")
        return part

    def _blocks(self, part: Dataset, name: str, faults: Faults) -> Blocks:
        values = chain.from_iterable(batch[self.column] for batch in part.select_columns([self.column]).iter(ROWS))
        called = f"{self.path}, {name}"
        texts = texts_of_rows(values, called, self.column, "data.column", faults)
        return without_marked_records(blocks_of_documents(texts, called), self, faults)

"""`lmtool count`: store -> the tokens of each split, and its words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmtool.config.data import DataConfig
from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import VerbConfig
from lmtool.errors import UserError
from lmtool.results.base import TableResult
from lmtool.system.terminal import Cell

if TYPE_CHECKING:
    from lmtool.session import Session


@dataclass(slots=True)
class Settings(VerbConfig):
    """Settings of `lmtool count`."""

    data: DataConfig = MISSING
    splits: list[str] | None = setting(bare=True)
    min_count: int = setting(min=1)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        if self.splits is not None and len(set(self.splits)) < len(self.splits):
            raise UserError(f"splits={self.splits}: name each split once")


@dataclass(repr=False)
class Result(TableResult):
    """The result of `count`: one row per split."""

    store: str

    def heading(self) -> str:
        """Return the store."""
        return f"store {self.store}"


def run(settings: Settings, session: Session) -> Result:
    """Count the tokens of each split, and the words that occur in it at least min_count times."""
    import numpy as np

    from lmtool.data.corpus import Corpus
    from lmtool.data.preprocess import preprocess

    table: list[list[Cell]] = []
    with Corpus(preprocess(settings.data, settings.store_dir, progress=session.progress)) as corpus:
        for name in settings.splits or corpus.splits:
            ids = corpus.split(name).ids
            table.append([name, len(ids), int((np.bincount(ids) >= settings.min_count).sum())])
        result = Result(str(corpus.path), header=["split", "tokens", "words"], table=table, notes=session.notes)
    session.finish({"store": result.store, "splits": result.rows}, f"{result.heading()}\n{result.table_text()}")
    return result

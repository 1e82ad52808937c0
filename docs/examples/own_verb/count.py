"""`lmtool count`: store -> the tokens of each split, and its words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmtool.config.data import DataConfig
from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import VerbConfig
from lmtool.errors import UserError
from lmtool.results import base

if TYPE_CHECKING:
    from lmtool.session import Session


@dataclass(slots=True)
class Settings(VerbConfig):
    data: DataConfig = MISSING
    splits: list[str] | None = setting(bare=True)
    min_count: int = setting(min=1)

    def __post_init__(self) -> None:
        VerbConfig.__post_init__(self)
        if self.splits is not None and len(set(self.splits)) < len(self.splits):
            raise UserError(f"splits={self.splits}: name each split once")


@dataclass(frozen=True)
class Row:
    """A split. words: number of those that occur at least min_count times."""

    split: str
    tokens: int
    words: int


@dataclass(repr=False)
class CountResult(base.Result):
    """The result of `count`: one row per split."""

    title = "store {0.store}"

    store: str
    splits: list[Row]

    def as_table(self) -> base.Table:
        return base.table_of(self.splits)


def run(settings: Settings, session: Session) -> CountResult:
    """Count the tokens of each split, and the words that occur in it at least min_count times."""
    import numpy as np

    from lmtool.data.corpus import Corpus
    from lmtool.data.preprocess import preprocess

    rows = []
    with Corpus(preprocess(settings.data, settings.store_dir, progress=session.progress)) as corpus:
        for name in settings.splits or corpus.splits:
            ids = corpus.split(name).ids
            rows.append(Row(name, len(ids), int((np.bincount(ids) >= settings.min_count).sum())))
        result = CountResult(str(corpus.path), rows)
    session.finish(result, f"{result.heading()}\n{result.table_text()}")
    return result

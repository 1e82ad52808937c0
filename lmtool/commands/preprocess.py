"""`lmtool preprocess`: text -> HDF5 store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.config.data import DataConfig
from lmtool.config.rules import MISSING
from lmtool.config.verbs import VerbConfig
from lmtool.results.base import Result
from lmtool.session import Session
from lmtool.system.terminal import text_table

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus


@dataclass(slots=True)
class Settings(VerbConfig):
    data: DataConfig = MISSING


@dataclass(repr=False)
class PreprocessResult(Result):
    """The content of result.json; the command returns the Corpus. splits: for each split, what was printed."""

    store: Path
    created: bool
    splits: list[dict[str, Any]]

    def heading(self) -> str:
        return f"{'wrote' if self.created else 'nothing to do: up to date is'} {self.store}"


def run(settings: Settings, session: Session) -> Corpus:
    """Write the store of `data` unless it is up to date, and print its contents.

    >>> from pathlib import Path
    >>> _ = Path("mine.txt").write_text("the cat sat\\nthe dog sat\\n" * 20)
    >>> lmtool.preprocess({"kind": "text", "train": "mine.txt", "split": {"valid": 0.1}}).splits
    ['train', 'valid', 'test']
    """
    from lmtool.data.corpus import Corpus
    from lmtool.data.oov import text_warnings
    from lmtool.data.preprocess import preprocess

    prepared = preprocess(settings.data, settings.store_dir, progress=session.progress)
    header = list(prepared.rows[0])
    session.say(text_table(header, [list(row.values()) for row in prepared.rows]))
    session.note(*prepared.notes)
    corpus = Corpus(prepared)
    session.warn(*text_warnings(corpus))
    result = PreprocessResult(prepared.path, prepared.created, prepared.rows)
    session.finish(result, result.heading())
    return corpus

"""The store that a run was trained on, found again or made again."""

from __future__ import annotations

from pathlib import Path

from lmtool.config import from_saved
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import prepare
from lmtool.errors import UserError
from lmtool.runs.run import REMEDY, Run
from lmtool.session import on_terminal


def corpus_of(run: Run, store_dir: str) -> Corpus:
    """Open the store of a run; where it is gone, make it again from the run's own settings.

    Raises UserError where the sources have changed since, as the run would be scored on other text.
    """
    path = Path(run.store)
    if not path.is_file():
        path = prepare(from_saved(run.config["data"], "data"), Path(store_dir), progress=on_terminal()).path
    corpus = Corpus.open(path)
    if corpus.fingerprint != run.store_fingerprint:
        corpus.close()
        raise UserError(f"{path} is not the store that {run.folder} was trained on: its text changed; {REMEDY}")
    return corpus

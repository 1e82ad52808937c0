"""The store that a run was trained on, opened or written again."""

from __future__ import annotations

from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import preprocess
from lmtool.data.remote import is_there, place
from lmtool.errors import UserError
from lmtool.runs.run import REMEDY, Run


def corpus_of(run: Run, store_dir: str, *, progress: bool) -> Corpus:
    """Open the store of a run; where it is gone, write it again from the run's settings.

    Raises UserError where the sources have changed since, so that the run would be scored on other text.
    """
    path = place(run.store)
    if not is_there(path):
        data, folder = run.settings("data"), place(store_dir)
        counts = run.settings("counts") if run.config.get("counts") else None
        prepared = counts.prepare(data, folder, progress=progress) if counts is not None else None
        path = (prepared or preprocess(data, folder, progress=progress)).path
    corpus = Corpus.open(path)
    if corpus.fingerprint != run.store_fingerprint:
        corpus.close()
        raise UserError(f"{path} is not the store that {run.folder} was trained on: its text changed; {REMEDY}")
    return corpus


def require_splits(corpus: Corpus) -> None:
    """Raise UserError for a store without train or valid."""
    for name in ("train", "valid"):
        if not corpus.knows(name):
            raise UserError(f"{corpus.path} has no {name} split: give data.{name} a file and preprocess again")

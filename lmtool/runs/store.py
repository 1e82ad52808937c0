"""The store that a run was trained on, opened or written again."""

from __future__ import annotations

from pathlib import Path

from lmtool.config.groups import CountsConfig, DataConfig
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import Prepared, preprocess
from lmtool.data.recoded import limited
from lmtool.data.remote import exists, place
from lmtool.errors import UserError
from lmtool.runs.run import REMEDY, VOCABULARY, Run
from lmtool.runs.vocabulary_file import load_vocabulary


def prepare_store(data: DataConfig, counts: CountsConfig | None, store_dir: str | Path, *, progress: bool) -> Prepared:
    """The store of a data set: what its counting prepares, or the ordinary one. Raises UserError as `prepare` does."""
    prepared = counts.prepare(data, store_dir, progress=progress) if counts is not None else None
    return prepared or preprocess(data, store_dir, progress=progress)


def open_run_corpus(run: Run, store_dir: str, *, progress: bool) -> Corpus:
    """Open the store of a run, limited to its words; where it is gone, write it again from the run's settings.

    Raises UserError where the sources have changed since, so that the run would be scored on other text.
    """
    path = place(run.store)
    if not exists(path):
        counts = run.settings("counts") if run.config.get("counts") else None
        path = prepare_store(run.settings("data"), counts, store_dir, progress=progress).path
    corpus, words = Corpus.open(path), run.folder / VOCABULARY
    if corpus.fingerprint != run.store_fingerprint and words.is_file():  # it may be a run with limit_vocabulary
        corpus = limited(corpus, load_vocabulary(words).words)
    if corpus.fingerprint != run.store_fingerprint:
        corpus.close()
        raise UserError(f"{path} is not the store that {run.folder} was trained on: its text changed; {REMEDY}")
    return corpus


def require_splits(corpus: Corpus) -> None:
    """Raise UserError for a store without train or valid."""
    for name in ("train", "valid"):
        if not corpus.knows(name):
            raise UserError(f"{corpus.path} has no {name} split: give data.{name} a file and preprocess again")

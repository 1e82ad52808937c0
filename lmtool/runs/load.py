"""A run folder becomes a model that is asked in text: `lmtool.load`."""

from __future__ import annotations

from pathlib import Path

from lmtool.config import Unit, from_saved
from lmtool.config.verbs import require_device
from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import prepare
from lmtool.data.text_form import TextForm
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.runs.build import load_model
from lmtool.runs.run import Run
from lmtool.runs.vocabulary_file import VOCABULARY, load_vocabulary
from lmtool.text_model import TextModel


def load(path: str | Path, device: str = "auto", *, store_dir: str | Path | None = None) -> TextModel:
    """The model of a run folder, of `lmtool train` or `ensemble`, n-gram or neural.

    device: of neural models, auto (cuda where there is one, else cpu), cpu, cuda or cuda:NUMBER. The store is read for
    runs of before 0.5 alone, whose folders have no vocabulary; where it is gone it is made again, in store_dir (None:
    where it was). Raises UserError where the run is missing, unfinished or damaged.
    """
    require_device(device)
    run = Run.open(Path(path))
    vocabulary = vocabulary_of(run, store_dir)
    model = load_model(run, vocabulary, device)
    rules = from_saved(run.config["data"], "data").vocabulary
    return TextModel(model, TextForm(vocabulary, chars=rules.unit is Unit.char, lowercase=rules.lowercase))


def vocabulary_of(run: Run, store_dir: str | Path | None = None) -> Vocabulary:
    """The vocabulary of a run: from its folder, else from its store. Raises UserError for a file that is not its."""
    kept = run.folder / VOCABULARY
    if kept.is_file():
        vocabulary = load_vocabulary(kept)
        if vocabulary.fingerprint() != run.vocabulary_fingerprint:
            raise UserError(f"{kept} has other words than its run: delete it, and the run's store is read instead")
        return vocabulary
    store = Path(run.store)
    if not store.is_file():
        folder = Path(store_dir) if store_dir is not None else store.parent
        store = prepare(from_saved(run.config["data"], "data"), folder, progress=False).path
    with Corpus.open(store) as corpus:
        return corpus.vocabulary

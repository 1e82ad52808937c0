"""Save and load the corpus of a run: the vocabulary as a text file, the tokenizer if it has one, and its store.

To use a model without its store, the first two are enough. The vocabulary has one line per word, in the order of the
ids: the word, a tab, its count in train. In a word that has a tab or line end, or a backslash before t, n, r or a
backslash, these characters are written \\t, \\n, \\r and \\\\; other words stand as they are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.config.groups import CountsConfig, DataConfig
from lmtool.config.settings import option_origins
from lmtool.data.corpus import Corpus
from lmtool.data.derived_corpus import limit_words
from lmtool.data.preprocess import preprocess
from lmtool.data.remote import absolute
from lmtool.data.store import Store
from lmtool.data.text_files import also_below
from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.errors import UserError
from lmtool.runs.run import REMEDY, TOKENIZER, VOCABULARY, Run, fitted_by
from lmtool.system.files import atomic_write

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_CHARACTERS = {escape: character for character, escape in _ESCAPES.items()}
_ESCAPE = re.compile(r"\\[\\tnr]")
_ESCAPED = re.compile(r"[\t\n\r]|\\[\\tnr]")  # in a word that is not written unchanged


def save_words(folder: Path, vocabulary: Vocabulary, tokenizer: str | None) -> None:
    """Write a vocabulary, and the tokenizer (JSON) of its pieces of words, if any, each completely or not at all."""
    save_vocabulary(vocabulary, folder / VOCABULARY)
    if tokenizer is not None:
        with atomic_write(folder / TOKENIZER) as temporary:
            temporary.write_text(tokenizer, encoding="utf-8")


def tokenizer_of(corpus: Corpus) -> str | None:
    """Return the tokenizer of a store as JSON, or None if its tokens are words or characters."""
    return corpus.subwords.json if corpus.subwords is not None else None


def tokenizer_in(folder: Path) -> str | None:
    """Return the tokenizer of a run folder as JSON, or None if its tokens are words or characters."""
    file = folder / TOKENIZER
    return file.read_text(encoding="utf-8") if file.exists() else None


def save_vocabulary(vocabulary: Vocabulary, path: Path) -> None:
    """Write a vocabulary, completely or not at all."""
    escapes = str.maketrans(_ESCAPES)
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for word, count in zip(vocabulary.words, vocabulary.counts.tolist(), strict=True):
            file.write(f"{word.translate(escapes) if _ESCAPED.search(word) else word}\t{count}\n")


def load_vocabulary(path: Path, *, closed: bool | None = False) -> Vocabulary:
    """Read a vocabulary. closed: whether it is closed; None: if it has no `<unk>`."""
    try:
        text = path.read_bytes().decode()
        fields = text.replace("\n", "\t").split("\t")[:-1]
        words, counts = fields[::2], np.array(list(map(int, fields[1::2])), dtype=np.int64)
        if (counts < 0).any():
            raise ValueError("a count is below 0")
    except (OSError, ValueError, OverflowError) as error:
        # The invalid text is not shown, as the file may be a link to another.
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text with counts"
        raise UserError(f"{path} is damaged ({reason}): {REMEDY}") from error
    if "\\" in text:
        words = [_ESCAPE.sub(lambda match: _CHARACTERS[match[0]], word) for word in words]
    ids = {word: index for index, word in enumerate(words)}
    closed = UNK not in ids if closed is None else closed
    if not words or words[-1] != BOS or not (closed or UNK in ids) or not len(ids) == len(words) == len(counts):
        raise UserError(f"{path} is damaged (it is cut off, or was edited): {REMEDY}")
    return Vocabulary(tuple(words), counts, ids.get(EOS), ids[BOS if closed else UNK])


def prepare_store(data: DataConfig, counts: CountsConfig | None, store_dir: str | Path, *, progress: bool) -> Store:
    """Return the store of a data set that `counts` prepares, or the ordinary store."""
    prepared = counts.prepare(data, store_dir, progress=progress) if counts is not None else None
    return prepared or preprocess(data, store_dir, progress=progress)


def open_run_corpus(run: Run, store_dir: str, *, progress: bool) -> Corpus:
    """Open the store of a run, limited to its words; if it is missing, rebuild it from the run's settings.

    Raises UserError if the sources have changed since, so that the run would be scored on different text.
    """
    if not run.store:
        raise UserError(f"{run.folder} was mixed on a text and has no data: set text=FILE, as in lmtool eval and score")
    store = Store.find(run.store)
    if store is None:
        counts = run.settings("counts") if run.config.get("counts") else None
        with also_below(run.started_in):
            store = prepare_store(run.settings("data"), counts, store_dir, progress=progress)
    corpus, words = Corpus(store), run.folder / VOCABULARY
    if corpus.fingerprint != run.store_fingerprint and words.is_file():  # the run may have limit_vocabulary
        corpus = limit_words(corpus, load_vocabulary(words, closed=None).words)
    if corpus.fingerprint != run.store_fingerprint:
        corpus.close()
        raise UserError(f"{corpus.path} is not the store that {run.folder} was trained on: its text changed; {REMEDY}")
    return corpus


def require_splits(corpus: Corpus, *names: str) -> None:
    """Raise UserError if a store lacks one of the splits."""
    for name in names:
        if not corpus.knows(name):
            raise UserError(
                f"{corpus.path} has no {name} split: give it text, by data.{name}=FILE or from_texts({name}=)"
            )


def save_trained(out: Path, about: dict[str, Any], choices: dict[str, str], corpus: Corpus) -> None:
    """Write the vocabulary and run.json of a trained model, which completes the folder.

    about: "settings", as plain values, and, of a network, "changes", as in Run.
    """
    settings = about["settings"]
    save_words(out, corpus.vocabulary, tokenizer_of(corpus))
    Run(
        folder=out,
        kind="train",
        config=settings,
        store=absolute(corpus.path),
        store_fingerprint=corpus.fingerprint,
        vocabulary_fingerprint=corpus.vocabulary.fingerprint(),
        choices=choices,
        fitted_on=fitted_by(settings),
        origins=option_origins(settings),
        changes=about.get("changes", []),
    ).save()

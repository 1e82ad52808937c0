"""Formats of other programs, and what writes a model or its counts in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.commands._ngram_runs import load_ngram_model
from lmtool.config.groups import CountModelConfig
from lmtool.data.corpus import Corpus
from lmtool.data.readers import PACKED
from lmtool.errors import UserError
from lmtool.evaluation.metrics import perplexity
from lmtool.ngram.counting.counts import first_places_of
from lmtool.ngram.files.arpa_model import arpa_form, arpa_word, write_arpa
from lmtool.ngram.files.count_files import write_counts
from lmtool.ngram.files.fst import write_fst
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.runs.corpus import open_run_corpus
from lmtool.runs.load import run_vocabulary
from lmtool.runs.run import Run
from lmtool.session import Session
from lmtool.system.files import atomic_write
from lmtool.text_model import TextModel

FST = "G in OpenFst's text format"
PAGE = "page to play with"
OF_MODELS, OF_COUNTS = ("ARPA", FST), ("counts",)  # formats of n-gram models
PACKABLE = {".arpa": "ARPA", ".lm": "ARPA", ".tsv": "counts"}  # also compressed
FORMATS = {
    **PACKABLE,
    **{".fst.txt": FST, ".txt": "word2vec text", ".vec": "word2vec text", ".bin": "word2vec binary"},
    **{".safetensors": "safetensors", ".html": PAGE},
}


def format_of(name: str) -> str:
    """Return the format of a file by its name."""
    path = PurePosixPath(name)
    known, path = (PACKABLE, path.with_suffix("")) if path.suffix in PACKED else (FORMATS, path)
    for suffix in ("".join(path.suffixes[-2:]), path.suffix):
        if suffix in known:
            return known[suffix]
    raise UserError(
        f"to={name}: unknown suffix; use .txt, .vec, .bin, .arpa, .lm, .fst.txt, .safetensors, .html, or for counts "
        ".tsv; compressed as .arpa.gz, .lm.gz or .tsv.gz, also .xz, .bz2 and .zst"
    )


def write_count_based(run: Run, store_dir: str, to: Path, form: str, session: Session) -> tuple[str, dict[str, Any]]:
    """Write a run's n-gram model or its counts; return a description, and the number of n-grams by order."""
    if form in OF_COUNTS:
        sizes = _write_counts(run, store_dir, to, session)
        return f"counts of {_in_words(sizes)}", {"ngrams": sizes}
    refusal = f"{run.folder} is not an n-gram model: only these have an ARPA form"
    vocabulary = run_vocabulary(run) if run.kind == "train" else None
    model = load_ngram_model(run, vocabulary, refusal)
    about = write_model(model, to, form, session)
    if model.table.missing:
        _note_differences(run, model, store_dir, session)
    return about, {"ngrams": list(model.table.sizes)}


def write_model(model: NgramModel, to: Path, form: str, session: Session, symbol_table: str | None = None) -> str:
    """Write an n-gram model in one of the formats OF_MODELS; return a description. symbol_table: as in write_fst."""
    if form == FST:
        if without := write_fst(model.table, model.vocabulary, to, symbol_table):
            share = 100 * len(without) / (len(model.vocabulary) - 2)  # without <s> and </s>
            example = f"such as {without[0]}: {share:.3g} % of the model's words"
            session.note(f"left out n-grams with {len(without):,} words not in {symbol_table}, {example}")
        return f"the grammar of a model of {_in_words(model.table.sizes)}"
    write_arpa(model.table, model.vocabulary, to)
    if spaced := [word for word in model.vocabulary.words if arpa_word(word) != word]:
        how = f"written as code points, such as {arpa_word(spaced[0])}: write them so in text for other tools"
        session.note(f"{len(spaced):,} words have white space, which separates words in ARPA files: {how}")
    return _in_words(model.table.sizes)


def _in_words(sizes: list[int]) -> str:
    return f"{', '.join(f'{size:,}' for size in sizes)} n-grams of orders 1 to {len(sizes)}"


def _write_counts(run: Run, store_dir: str, to: Path, session: Session) -> list[int]:
    """Write the counts from which a run's n-gram model was estimated; return the number of n-grams by order."""
    model = run.settings("model") if run.kind == "train" else None
    if not isinstance(model, CountModelConfig) or not run.config.get("counts"):
        raise UserError(f"{run.folder} is not a run of a count-based model: only these have counts")
    if not model.counts_words:
        raise UserError(f"{run.folder} has no counts of words: export those of a run of n-grams of words")
    session.say(f"counting the text of {run.folder}, unless its counts were kept")
    counting = run.settings("counts")
    with (
        open_run_corpus(run, store_dir, progress=session.progress) as its,
        Corpus.open(its.path) as corpus,
    ):  # all words
        counts = counting.count(corpus, model.order, counting.storage(corpus))
        if corpus.train_counted_externally:
            places = corpus.first_places
        else:
            places = first_places_of(corpus.text("train").ids, len(corpus.vocabulary))
        write_counts(counts, corpus.vocabulary, places, to)
    sizes: list[int] = counts.trie.sizes
    return sizes


def _note_differences(run: Run, model: NgramModel, store_dir: str, session: Session) -> None:
    """Note how other tools read a model with a back-off weight for unseen contexts, which ARPA cannot express."""
    order = model.table.order
    if order < 4:
        session.note("written so that other tools get the same scores, which do not sum to one")
        return
    other = NgramModel(arpa_form(model.table), model.vocabulary)
    with open_run_corpus(run, store_dir, progress=False) as corpus:
        split = "valid" if corpus.knows("valid") else "train"
        here, there = (perplexity(scorer.score_text(corpus.split(split))) for scorer in (model, other))
    session.note(
        "written so that other tools get the same scores, which do not sum to one, except for the first "
        f"{order - 2} words of sentences that begin in an unseen way: perplexity of {split} {here:.4f} here, "
        f"{there:.4f} there"
    )


def write_word_vectors(
    loaded: TextModel, to: Path, which: str, session: Session, *, binary: bool
) -> tuple[str, dict[str, Any]]:
    vectors = loaded.network.word_vectors(which)
    words = loaded.vocabulary.words[: len(vectors)]
    write_vectors(words, vectors, to, binary=binary)
    changed = [word for word in words if writable(word) != word]
    if changed:
        example = f"as in {writable(changed[0])}"
        session.note(f"{len(changed)} words hold white space, which the format does not allow: replaced, {example}")
    dimensions = vectors.shape[1]
    return f"{len(words):,} words of dimension {dimensions}", {"words": len(words), "dimensions": dimensions}


def write_vectors(words: Sequence[str], vectors: npt.NDArray[np.float32], path: Path, *, binary: bool) -> None:
    """Write words and their vectors float32 `[W, D]` in a format of word2vec (Mikolov et al. 2013), completely or not
    at all.

    A line `W D`; then for each word, escaped by `writable`, a line: the word and its D numbers, separated by spaces, of
    nine digits, which identify every float32; in the binary format the word, a space, and its numbers as little-endian
    float32.
    """
    form = " %.9g" * vectors.shape[1]
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
        for word, row in zip(words, vectors, strict=True):
            numbers = b" " + row.astype("<f4").tobytes() if binary else (form % tuple(row.tolist())).encode()
            file.write(writable(word).encode() + numbers + b"\n")


def writable(word: str) -> str:
    """Return a word as word2vec's formats can hold it: each white space as its code point, e.g. <0x20>."""
    return re.sub(r"\s", lambda match: f"<0x{ord(match[0]):02X}>", word)


def write_weights(loaded: TextModel, folder: Path, to: Path, bits: int | None) -> tuple[str, dict[str, Any]]:
    from lmtool.runs.weights import export_weights

    model = loaded.network
    settings = Run.open(folder).config
    about = {name: value for name, value in settings.items() if name in ("model", "output", "tree", "data")}
    export_weights(model, model.output.tree, about, loaded.vocabulary.words, to, bits)
    about_file = f"{model.parameter_count:,} weights of {settings['model']['kind']} + {settings['output']['kind']}"
    return about_file, {"parameters": model.parameter_count}

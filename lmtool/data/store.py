"""The store: token ids, sentence offsets, vocabulary and cloze questions in one HDF5 file, opened and written here."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from lmtool.data.cloze import read_cloze
from lmtool.data.remote import as_path, exists, is_address, local_copy
from lmtool.data.sources.base import ExternalCounts, Source
from lmtool.data.subwords import PieceTable, Subwords
from lmtool.data.text_rules import TextRules
from lmtool.data.tokenizer import EOS_ID
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError, translate_path_errors
from lmtool.system import schemas
from lmtool.system.arrays import IntArray, pieces_of, sentence_offsets
from lmtool.system.checksums import DamagedFile
from lmtool.system.hdf5_files import attributes, open_hdf5, require_own_content
from lmtool.system.schemas import parse_json

KIND = "lmtool corpus"
FORMAT = 4  # changes with the content of stores, which are then rebuilt
TOKENS = 1  # changes with the tokens of a text, on which runs depend
STORE_REMEDY = "delete it and run lmtool preprocess again"
IDS_PER_CHUNK = 1 << 22  # ids renumbered together
WORDS_PER_CHUNK = 1 << 18  # words cut into pieces together
Remap = npt.NDArray[np.int32] | PieceTable  # the id, or the ids of pieces, for each provisional id
SplitRow = dict[str, "str | int | float | None"]


class UnusableStore(UserError):
    """A store that is damaged, unfinished or of another format."""


class StoredText(NamedTuple):
    """The ids `[N]` and offsets `[S + 1]` of a split, as in Split, in an open store."""

    ids: h5py.Dataset
    offsets: h5py.Dataset


class Store:
    """A store that is open for reading.

    name: data.name.
    sentences: whether the text consists of sentences instead of one stream.
    fingerprint: equal if settings and text are equal.
    splits: names of the splits.
    provenance: description of the text and settings of the store.
    rows: a row of the table for each split.
    notes: notes for the user.
    train_counted_externally: whether the train split is stored elsewhere and was counted there.
    created: whether `preprocess` has just made it.
    """

    def __init__(self, file: h5py.File, path: Path) -> None:
        self.file, self.path, self.created = file, path, False
        about = attributes(file, schemas.STORE)
        self.name, self.fingerprint, self.sentences = about["name"], about["fingerprint"], about["sentences"]
        self.train_counted_externally = "first_places" in file["vocabulary"]
        self.splits: list[str] = parse_json(about["splits"], [str], "splits")
        self.provenance: dict[str, Any] = parse_json(about["provenance"], schemas.PROVENANCE, "provenance")
        self.rows: list[SplitRow] = self.provenance["rows"]
        self.notes: list[str] = self.provenance["notes"]

    @classmethod
    @translate_path_errors()
    def find(cls, name: str | Path) -> Store | None:
        """Open the store at a path or address; None if it does not exist. Raises UnusableStore for any other file."""
        path = as_path(name)
        if not exists(path):
            return None
        local = local_copy(str(path)) if is_address(str(path)) else path
        try:
            file = open_hdf5(local)
        except (DamagedFile, OSError) as error:
            with suppress(OSError):
                if local != path:
                    local.unlink()  # it will be copied again
            said = f"damaged ({error})" if isinstance(error, DamagedFile) else "cut off or not an HDF5 file"
            raise UnusableStore(f"{path} is {said}: {STORE_REMEDY}") from error
        try:
            if file.attrs.get("kind") != KIND:
                raise UnusableStore(f"{path} is not a store of lmtool: {STORE_REMEDY}")
            if file.attrs.get("format") != FORMAT:
                raise UnusableStore(f"{path} has store format {file.attrs.get('format')}, not {FORMAT}: {STORE_REMEDY}")
            if not file.attrs.get("complete", False):
                raise UnusableStore(f"{path} is unfinished: {STORE_REMEDY}")
            require_own_content(file, path)
            store = Store(file, path)
            for ids, offsets in map(store.text, store.splits):
                sentence_offsets("offsets", offsets[[0, -1]], len(ids))
            return store
        except BaseException as error:
            file.close()
            if isinstance(error, UserError):  # also from require_own_content
                raise UnusableStore(str(error)) from error
            if isinstance(error, LookupError | OSError | TypeError | ValueError | RuntimeError):
                raise UnusableStore(f"{path} is damaged ({error}): {STORE_REMEDY}") from error
            raise

    @classmethod
    def open(cls, name: str | Path) -> Store:
        """Open the store at a path or address."""
        store = cls.find(name)
        if store is None:
            raise UserError(f"no store {name}: make it with lmtool preprocess")
        return store

    def group(self, name: str) -> h5py.Group:
        try:
            found = self.file[name]
        except (KeyError, OSError) as error:
            raise UnusableStore(f"{self.path} is damaged: it has no {name}; {STORE_REMEDY}") from error
        if name.endswith("/") or not isinstance(found, h5py.Group):
            raise UserError(f"{name.removeprefix('splits/')!r} is not the name of a split: use train, valid or test")
        return found

    def text(self, name: str) -> StoredText:
        group = self.group(f"splits/{name}")
        return StoredText(group["ids"], group["offsets"])

    def close(self) -> None:
        """Close the file; arrays that were read stay valid."""
        self.file.close()


def count_ids(ids: npt.NDArray[np.int32], types: int) -> IntArray:
    """Return the number of occurrences of each type among the ids, int64 `[types]`."""
    counts = np.zeros(types, dtype=np.int64)
    for piece in pieces_of(ids, IDS_PER_CHUNK):
        counts += np.bincount(piece, minlength=types)
    return counts


def count_tokens(ids: npt.NDArray[np.int32], remap: Remap, vocabulary: Vocabulary) -> int:
    """Return the number of tokens that provisional ids `[N]` become: N, or the number of their pieces, without the ends
    of sentences if these are not predicted.
    """
    marks = int(np.count_nonzero(ids == EOS_ID)) if vocabulary.eos is None else 0
    if not isinstance(remap, PieceTable):
        return len(ids) - marks
    return int(np.dot(count_ids(ids, len(remap.starts) - 1), remap.lengths)) - marks


def write_vocabulary(group: h5py.Group, vocabulary: Vocabulary, subwords: Subwords | None = None) -> None:
    """Write words as one UTF-8 text with NUL between them, which is read at once, and the JSON of a tokenizer."""
    group["words"] = np.frombuffer("\0".join(vocabulary.words).encode(), dtype=np.uint8)
    group["counts"] = vocabulary.counts
    group.attrs["eos"] = -1 if vocabulary.eos is None else vocabulary.eos
    group.attrs["unk"] = vocabulary.unk
    if subwords is not None:
        group["tokenizer"] = np.frombuffer(subwords.json.encode(), dtype=np.uint8)


def write_counted(group: h5py.Group, train: ExternalCounts) -> SplitRow:
    """Write the vocabulary of a train split that was counted externally; return the split's row of the table."""
    write_vocabulary(group, train.vocabulary)
    group["first_places"] = train.first_places
    counts = train.vocabulary.counts
    return _row("train", int(counts.sum()), train.sentences, counts > 0, train.oov)


def _row(split: str, tokens: int, sentences: int | None, seen: npt.NDArray[np.bool_], oov: int) -> SplitRow:
    """Return the row of a split. seen: bool `[V]`, the words that occur in it."""
    row: SplitRow = {"split": split, "tokens": tokens, "sentences": sentences, "types": int(seen.sum())}
    return row | {"OOV": oov, "OOV %": 100 * oov / tokens, "vocabulary": len(seen)}


def write_split(
    file: h5py.File,
    name: str,
    provisional: npt.NDArray[np.int32],
    remap: Remap,
    oov: npt.NDArray[np.bool_],
    vocabulary: Vocabulary,
    characters: int,
    words: int,
) -> SplitRow:
    """Renumber a split into the store; return its row of the table.

    provisional: int32 `[N]`. remap, oov: for each provisional id, the id in the vocabulary (or the ids of its pieces),
    and whether it is OOV. characters, words: as returned by text_size.
    """
    total = count_tokens(provisional, remap, vocabulary)
    if total == 0:
        raise UserError(f"the {name} split has no words; give it some text")
    group = file.create_group(f"splits/{name}")
    group.attrs["characters"], group.attrs["words"] = characters, words
    ids = group.create_dataset("ids", (total,), dtype=np.min_scalar_type(len(vocabulary)))
    offsets = group.create_dataset("offsets", (1,), maxshape=(None,), chunks=(1 << 16,), dtype=np.int64)
    oovs = group.create_dataset("oov_positions", (0,), maxshape=(None,), chunks=(1 << 16,), dtype=np.int64)
    seen = np.zeros(len(vocabulary), dtype=bool)
    first = 0
    for piece in pieces_of(provisional, WORDS_PER_CHUNK if isinstance(remap, PieceTable) else IDS_PER_CHUNK):
        marked = remap.of(piece) if isinstance(remap, PieceTable) else remap[piece]
        unknown = np.flatnonzero(marked == vocabulary.unk if isinstance(remap, PieceTable) else oov[piece])
        vocabulary.require_no_oov([f"a word of {name}"] * len(unknown))
        final, starts, unknown = vocabulary.cut_sentences(marked, unknown)
        ids[first : first + len(final)] = final
        seen[final] = True
        if vocabulary.sentences:
            _append(offsets, starts[1:] + first)
        _append(oovs, unknown + first)
        first += len(final)
    if offsets[-1] != total:  # a stream, or a last sentence without its end
        _append(offsets, np.array([total]))
    return _row(name, total, len(offsets) - 1 if vocabulary.sentences else None, seen, len(oovs))


def _append(dataset: h5py.Dataset, values: IntArray) -> None:
    end = len(dataset)
    dataset.resize((end + len(values),))
    dataset[end:] = values


def write_cloze(file: h5py.File, source: Source, vocabulary: Vocabulary, rules: TextRules) -> None:
    for split, (questions, answers) in source.cloze.items():
        cloze = read_cloze(questions, answers, vocabulary, rules)
        group = file.create_group(f"cloze/{split}")
        for key in ("context_ids", "context_offsets", "candidates", "answers"):
            group[key] = getattr(cloze, key)

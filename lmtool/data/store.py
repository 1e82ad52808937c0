"""Writes the groups of a store: the vocabulary, the splits renumbered by it, the cloze questions."""

from __future__ import annotations

import json
from collections.abc import Iterator

import h5py
import numpy as np
import numpy.typing as npt

from lmtool.data.cloze import read_cloze
from lmtool.data.sources.base import ClozeFiles, ExternalCounts
from lmtool.data.subwords import PieceTable, Subwords
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.system.memory import pieces_of

PIECE = 1 << 22  # ids renumbered at once
WORDS = 1 << 18  # words cut into pieces at once
Row = dict[str, "str | int | float | None"]


def pieces(ids: npt.NDArray[np.int32], size: int = PIECE) -> Iterator[npt.NDArray[np.int32]]:
    """Each piece of the ids `[N]`; those in a file leave the memory after it."""
    for piece in pieces_of(ids, size):
        yield np.asarray(piece)


def count_ids(ids: npt.NDArray[np.int32], types: int) -> npt.NDArray[np.int64]:
    """How often each type occurs among the ids, int64 `[types]`."""
    counts = np.zeros(types, dtype=np.int64)
    for piece in pieces(ids):
        counts += np.bincount(piece, minlength=types)
    return counts


def write_vocabulary(group: h5py.Group, vocabulary: Vocabulary) -> None:
    """Words as one UTF-8 text with NUL between them, which reads in one go."""
    group["words"] = np.frombuffer("\0".join(vocabulary.words).encode(), dtype=np.uint8)
    group["counts"] = vocabulary.counts
    group.attrs["eos"] = -1 if vocabulary.eos is None else vocabulary.eos
    group.attrs["unk"] = vocabulary.unk


def write_subwords(group: h5py.Group, subwords: Subwords) -> None:
    """Write the tokeniser beside the pieces, as the JSON of the library."""
    group["tokenizer"] = np.frombuffer(subwords.json.encode(), dtype=np.uint8)


def write_counted(group: h5py.Group, train: ExternalCounts) -> Row:
    """Write the vocabulary of a train split that lies elsewhere; returns the split's row of the table."""
    write_vocabulary(group, train.vocabulary)
    group["first_places"] = train.first_places
    tokens = int(train.vocabulary.counts.sum())
    return {
        "split": "train",
        "tokens": tokens,
        "sentences": train.sentences,
        "types": int((train.vocabulary.counts > 0).sum()),
        "OOV": train.oov,
        "OOV %": 100 * train.oov / tokens,
        "vocabulary": len(train.vocabulary),
    }


def write_split(
    file: h5py.File,
    name: str,
    provisional: npt.NDArray[np.int32],
    remap: npt.NDArray[np.int32] | PieceTable,
    oov: npt.NDArray[np.bool_],
    vocabulary: Vocabulary,
    characters: int,
    *,
    words: int | None = None,
) -> Row:
    """Renumber a split into the store; returns its row of the table.

    provisional: int32 `[N]`. remap, oov: by provisional id, the id in the vocabulary, or the ids of the pieces, and
    whether it is OOV. characters: of the raw text. words: in it, with the ends of sentences; None where they are the
    tokens, or not known. Raises UserError for a split without tokens.
    """
    total = len(provisional)
    if isinstance(remap, PieceTable):
        total = int(np.dot(count_ids(provisional, len(oov)), remap.lengths))
    if total == 0:
        raise UserError(f"the {name} split has no words; give it some text")
    group = file.create_group(f"splits/{name}")
    group.attrs["characters"] = characters
    if words is not None:
        group.attrs["words"] = words
    ids = group.create_dataset("ids", (total,), dtype=np.min_scalar_type(len(vocabulary)))
    offsets = group.create_dataset("offsets", (1,), maxshape=(None,), chunks=(1 << 16,), dtype=np.int64)
    oovs = group.create_dataset("oov_positions", (0,), maxshape=(None,), chunks=(1 << 16,), dtype=np.int64)
    seen = np.zeros(len(vocabulary), dtype=bool)
    first = 0
    for piece in pieces(provisional, WORDS if isinstance(remap, PieceTable) else PIECE):
        final = remap.of(piece) if isinstance(remap, PieceTable) else remap[piece]
        ids[first : first + len(final)] = final
        seen[final] = True
        if vocabulary.eos is not None:
            _append(offsets, np.flatnonzero(final == vocabulary.eos) + first + 1)
        if not isinstance(remap, PieceTable):  # every word has pieces
            _append(oovs, np.flatnonzero(oov[piece]) + first)
        first += len(final)
    if offsets[-1] != total:  # a stream, or a last sentence without its end
        _append(offsets, np.array([total]))
    return {
        "split": name,
        "tokens": total,
        "sentences": len(offsets) - 1 if vocabulary.eos is not None else None,
        "types": int(seen.sum()),
        "OOV": len(oovs),
        "OOV %": 100 * len(oovs) / total,
        "vocabulary": len(vocabulary),
    }


def write_sources(file: h5py.File, ends: dict[str, int]) -> None:
    """Write where the tokens of each source of train end."""
    file["splits/train"].attrs["sources"] = json.dumps(ends)


def _append(dataset: h5py.Dataset, values: npt.NDArray[np.int64]) -> None:
    end = len(dataset)
    dataset.resize((end + len(values),))
    dataset[end:] = values


def write_cloze(file: h5py.File, files: dict[str, ClozeFiles], vocabulary: Vocabulary, *, lowercase: bool) -> None:
    """Write the cloze questions of each split that has any. Raises UserError for a file that is damaged."""
    for split, paths in files.items():
        cloze = read_cloze(paths.questions, paths.answers, vocabulary, lowercase)
        group = file.create_group(f"cloze/{split}")
        for key in ("context_ids", "context_offsets", "candidates", "answers"):
            group[key] = getattr(cloze, key)

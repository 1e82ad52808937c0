"""Read a data set in one pass of bounded memory: provisional ids of each split, in temporary files.

Types are numbered in the order of their first occurrence; which are kept, and in what order, is decided later.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.config.data import DataConfig
from lmtool.data.faults import STOP, STOP_AT_FAULTS, Faults, FileLines
from lmtool.data.sources.base import Blocks, DrawnIds, Source, cut_points
from lmtool.data.text_rules import TextRules
from lmtool.data.tokenizer import EOS_ID, TAG, Tokenizer, mark_error, split_words, tokenizer_by
from lmtool.data.vocabulary import BOS, EOS
from lmtool.errors import RecordError, UserError
from lmtool.system.arrays import pieces_of
from lmtool.system.files import unique_tag
from lmtool.system.parallel import read_ahead
from lmtool.system.terminal import size_text, token_bar

if TYPE_CHECKING:
    from tqdm import tqdm

Ids = npt.NDArray[np.int32]
HASHED = 1 << 22  # ids whose sentences are hashed at once
PIECE = 1 << 16  # ids searched at once for the end of a sentence


@dataclass(frozen=True, slots=True)
class Provisional:
    """The result of the pass.

    ids: int32 `[N]` of each split, on disk.
    types: the types by provisional id.
    empty_lines: number of empty lines, which were skipped.
    changed_words: number of words that were not in the normal form.
    inserted_spaces: number of spaces that a segmenter inserted, by split.
    sources: the end of the ids of each source of train, if it has several.
    """

    ids: dict[str, Ids]
    types: list[str]
    empty_lines: int
    changed_words: int = 0
    inserted_spaces: dict[str, int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)


def tokenizer_of(data: DataConfig) -> Tokenizer:
    return tokenizer_by(
        data.vocabulary.unit,
        sentences=data.sentences,
        rules=TextRules.of(data),
        tags=data.drops_tags(),
        blank_lines=data.takes_blank_lines(),
    )


def mark_checker(data: DataConfig) -> Callable[[bytes, str], None]:
    """Return a function that raises RecordError, given lines and their place, for `<s>` and `</s>` in them."""
    rules = TextRules.of(data)

    def check(lines: bytes, where: str) -> None:
        written = b"" if data.vocabulary.unit.is_character else rules.encoded(lines)
        for line in written.split(b"\n") if b"s>" in written else ():
            words = split_words(TAG.sub("", line.decode()) if data.drops_tags() else line.decode())
            if mark := next((word for word in words if word in (BOS, EOS)), None):
                raise mark_error(mark, where)

    return check


def without_marked_records(blocks: Blocks, data: DataConfig, faults: Faults) -> Blocks:
    """Yield blocks of text; depending on data.on_error, without records with the words `<s>` or `</s>`."""
    check = mark_checker(data)
    for block in blocks:
        try:
            if data.on_error != STOP:
                check(block, data.name)
            yield block
        except RecordError:
            yield FileLines.of_block(block, data.name).without_faults(check, faults)


@contextmanager
def provisional_ids(data: DataConfig, source: Source, store: Path, *, progress: bool) -> Iterator[Provisional]:
    """Read or draw all splits; the temporary files are beside the store and are removed at the end of the block."""
    with ExitStack() as files, token_bar(None, shown=progress) as bar:
        if source.drawn is not None:
            provisional = _draw_splits(source.drawn, store, files, bar)
        else:
            provisional = _tokenize_splits(data, source, store, files, bar)
        bar.close()
        yield provisional


def _tokenize_splits(data: DataConfig, source: Source, store: Path, files: ExitStack, bar: tqdm[None]) -> Provisional:
    tokenizer = tokenizer_of(data)
    splits: dict[str, Ids] = {}
    ends: dict[str, int] = {}
    spaces: dict[str, int] = {}
    if source.parts is not None and data.segmenter is not None:
        remedy = "train cannot be cut by tokens: set data.split.unit=lines, or give data.valid text of its own"
        raise UserError(f"data.segmenter={data.segmenter.kind}: {remedy}")
    for name, blocks in source.splits.items():
        handle = files.enter_context(_open_temporary(store, name))
        position = 0
        sources = source.sources if name == "train" else {}
        for part, read in (sources or {name: blocks}).items():
            for block in read_ahead(read()):
                try:
                    ids = tokenizer(block, name)
                except RecordError:
                    for lines in source.uncut() if source.uncut is not None else [block]:  # errors name the record
                        FileLines.of_block(lines, name).without_faults(mark_checker(data), STOP_AT_FAULTS)
                    raise
                ids.tofile(handle)
                bar.update(len(ids))
                position += len(ids)
            if sources:
                ends[part] = position
        splits[name] = _map_ids(handle)
        spaces[name] = tokenizer.inserted_spaces - sum(spaces.values())
    if source.parts is not None:
        whole = splits["train"]
        cuts = cut_points(len(whole), *source.parts)
        first, second = (_sentence_end(whole, cut) for cut in cuts) if data.sentences else cuts
        if first == second:
            remedy = "give data.split.valid more of them, or set data.split.unit=lines"
            raise UserError(f"data.split.unit=tokens: sentences stay whole, and none is left for valid; {remedy}")
        splits = {"train": whole[:first], "valid": whole[first:second], "test": whole[second:]}
    splits = {name: ids for name, ids in splits.items() if name != "test" or len(ids)}
    counts = tokenizer.empty_lines, tokenizer.changed_words, spaces
    return Provisional(splits, tokenizer.types(), *counts, ends)


def _sentence_end(ids: Ids, cut: int) -> int:
    """Return the end, at or after `cut`, of the sentence with the token before `cut`."""
    for first in range(cut - 1, len(ids), PIECE):
        ends = np.flatnonzero(ids[first : first + PIECE] == EOS_ID)
        if len(ends):
            return first + int(ends[0]) + 1
    return len(ids)


def _draw_splits(drawn: DrawnIds, store: Path, files: ExitStack, bar: tqdm[None]) -> Provisional:
    size = np.dtype(np.int32).itemsize * sum(drawn.tokens.values())
    if size > shutil.disk_usage(store.parent).free:
        tokens = ", ".join(f"{name} {count}" for name, count in drawn.tokens.items())
        room = f"{size_text(size)}, which do not fit on the disk of {store.parent}"
        raise UserError(f"the ids of {tokens} tokens take {room}: draw fewer tokens")
    splits: dict[str, Ids] = {}
    for name in drawn.tokens:
        handle = files.enter_context(_open_temporary(store, name))
        for ids in drawn.draw(name):
            ids.tofile(handle)
            bar.update(len(ids))
        splits[name] = _map_ids(handle)
    return Provisional(splits, drawn.types(), 0)


def shared_sentences(splits: dict[str, Ids], *, sentences: bool) -> float:
    """Return the share of the sentences of valid that are also in train; of streams, 1 if they are equal, else 0."""
    if not {"train", "valid"} <= splits.keys():
        return 0.0
    train, valid = splits["train"], splits["valid"]
    if not sentences:
        return float(np.array_equal(train, valid))
    hashes = np.concatenate([_hash_sentences(piece) for piece in pieces_of(valid, HASHED)])
    known, place = np.unique(hashes, return_inverse=True)
    seen = np.zeros(len(known), dtype=bool)
    for piece in pieces_of(train, HASHED):
        seen |= np.isin(known, _hash_sentences(piece))
    return float(seen[place].mean()) if len(place) else 0.0


@numba.njit(cache=True, nogil=True)
def _hash_sentences(ids: Any) -> Any:
    """Return a 64-bit hash of each sentence that ends in `ids`.

    The plain form is `hash(tuple(sentence))` (tests/data/test_several_sources.py ties them); here it is one pass
    over the ids, with 8 bytes per sentence: the hashes of valid are held in memory; train is read in chunks.
    """
    hashes = np.empty(len(ids), np.uint64)
    count, value = 0, np.uint64(0)
    for i in range(len(ids)):
        value = (value ^ np.uint64(ids[i])) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(29)
        if ids[i] == EOS_ID:
            hashes[count] = value
            count += 1
            value = np.uint64(0)
    return hashes[:count]


@contextmanager
def _open_temporary(store: Path, split: str) -> Iterator[IO[bytes]]:
    """Open a temporary file of ids beside the store; it is removed when the block ends."""
    name = store.with_name(f".{store.name}.{split}.{unique_tag()}.ids.tmp")
    handle = name.open("w+b")
    try:
        yield handle
    finally:
        with suppress(OSError):  # flushing also fails after a failed write
            handle.close()
        with suppress(PermissionError):  # Windows cannot remove a mapped file
            name.unlink(missing_ok=True)


def _map_ids(handle: IO[bytes]) -> Ids:
    handle.flush()
    return np.memmap(handle, np.int32, "r") if handle.tell() else np.empty(0, dtype=np.int32)

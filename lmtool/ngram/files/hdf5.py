"""Back-off tables, and counts beside the store that they were made from, in HDF5, as arrays that can be mapped."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.packed import Packed, cells_needed
from lmtool.ngram.tables.quantized import QuantizedValues
from lmtool.ngram.tables.trie import Nodes, Trie
from lmtool.ngram.tables.trie_search import require_within
from lmtool.system.arrays import LARGEST_LOG_PROB, LARGEST_LOG_WEIGHT, Array, logs, pieces_of, release
from lmtool.system.hdf5_files import VERSION, atomic_hdf5, attributes, open_hdf5, require_own_content
from lmtool.system.schemas import PACKED, TABLE, parse_json

KIND = "lmtool back-off table"
FORMAT, SMALL_FORMAT = 6, 5  # formats of float32 and of quantized values
COUNTS_KIND, COUNTS_FORMAT = "lmtool n-gram counts", 4
REMEDY = "train the model again"
NUMBERS_PER_PIECE = 1 << 22  # numbers written at once
NUMBERS_PER_CHECK = 1 << 20


def write_array(group: h5py.Group, name: str, values: Array) -> None:
    """Write an array in one piece, so that it can be mapped. Pages of an array in a file are released once written."""
    dataset = group.create_dataset(name, shape=values.shape, dtype=values.dtype)
    at = 0
    for piece in pieces_of(values, NUMBERS_PER_PIECE):
        dataset[at : at + len(piece)] = piece
        at += len(piece)


def map_array(dataset: h5py.Dataset, dtype: npt.DTypeLike) -> Array:
    """Return the array of a dataset, memory-mapped. Raises ValueError and OSError for another or a damaged one."""
    if dataset.ndim != 1 or dataset.dtype != np.dtype(dtype):
        raise ValueError(f"{dataset.name} is not a one-dimensional array of {np.dtype(dtype)}")
    offset = dataset.id.get_offset()
    if dataset.size == 0:
        return np.empty(0, dtype=dtype)
    if offset is None:
        raise ValueError(f"{dataset.name} is not in one piece")
    if offset % np.dtype(dtype).itemsize:
        return np.asarray(dataset[:])  # written by another program: compiled code needs aligned numbers
    try:  # mode c, though nobody writes: a read-only array would be another type for compiled code
        with open(dataset.file.filename, "rb") as file:  # the dataset's handle would keep HDF5's lock
            if not os.path.sameopenfile(file.fileno(), dataset.file.id.get_vfd_handle()):
                raise OSError("another file has replaced it while it was read")  # replaced by another thread or process
            return np.asarray(np.memmap(file, dtype=dtype, mode="c", offset=offset, shape=dataset.shape))
    except OSError as error:
        if error.errno == errno.ENOMEM:  # the file is not damaged
            raise MemoryError(f"no address space for {dataset.file.filename}") from error
        raise


def map_logs(dataset: h5py.Dataset) -> Array:
    """Return logarithms of probabilities or back-off weights, like `mapped`. Also raises ValueError for inf and nan."""
    most = LARGEST_LOG_WEIGHT if "log_backoff" in dataset.name else LARGEST_LOG_PROB
    return logs(dataset.name.strip("/"), map_array(dataset, np.float32), most)


def write_packed(group: h5py.Group, name: str, packed: Packed) -> None:
    write_array(group, name, packed.bits)
    group[name].attrs["width"] = packed.width
    group[name].attrs["length"] = packed.length


def read_packed(group: h5py.Group, name: str) -> Packed:
    """Return packed numbers, memory-mapped."""
    bits, about = map_array(group[name], np.uint64), attributes(group[name], PACKED)
    packed = Packed(bits, about["width"], about["length"])
    if len(packed.bits) < cells_needed(packed.length, packed.width):
        raise ValueError(f"{name} is too short")
    return packed


def write_trie(group: h5py.Group, trie: Trie) -> None:
    nodes = trie.nodes
    for name in ("first", "unigram_starts", "blocks", "starts"):
        write_array(group, name, getattr(nodes, name))
    write_packed(group, "words", Packed(nodes.words, nodes.word_width, sum(trie.sizes[1:])))


def read_trie(group: h5py.Group) -> Trie:
    """Return a trie, memory-mapped."""
    first, unigram_starts, blocks = (map_array(group[name], np.int64) for name in ("first", "unigram_starts", "blocks"))
    words, starts = read_packed(group, "words"), map_array(group["starts"], np.uint64)
    sizes = np.diff(first)
    if len(first) < 2 or first[0] != 0 or (sizes < 0).any() or len(unigram_starts) != first[1]:
        raise ValueError("the numbers of nodes by order are wrong")
    inner = int(first[-2] - first[1]) + 1 if len(first) > 2 else 1
    if words.length != first[-1] - first[1]:
        raise ValueError("arrays of wrong lengths")
    require_within(blocks, starts, inner)
    trie = Trie(Nodes(first, words.bits, words.width, unigram_starts, blocks, starts))
    if not trie.is_sound():
        raise ValueError("its n-grams are not those of a trie")
    return trie


def read_quantized(group: h5py.Group, name: str, sizes: list[int]) -> QuantizedValues:
    inside = group[name]
    unigrams, levels = (map_logs(inside[part]) for part in ("unigrams", "levels"))
    codes = read_packed(inside, "codes")
    orders = max(len(sizes) - 1, 0)
    if len(unigrams) != sum(sizes[:1]) or codes.length != sum(sizes[1:]) or len(levels) != orders << codes.width:
        raise ValueError("arrays of wrong lengths")
    return QuantizedValues(unigrams, levels.reshape(orders, 1 << codes.width), codes, tuple(sizes))


def save_table(table: BackoffTable, path: Path, vocabulary_fingerprint: str) -> None:
    """Write a table to HDF5, whole or not at all."""
    size = sum(array.nbytes for array in table.arrays)
    with atomic_hdf5(path, size, mapped=True) as file:
        file.attrs["kind"] = KIND
        file.attrs["format"] = FORMAT if table.quantized_bits is None else SMALL_FORMAT
        file.attrs["vocabulary_fingerprint"] = vocabulary_fingerprint
        file.attrs["bos"] = table.bos
        for name in ("unseen", "missing", "normalized", "suffix_closed", "interpolated"):
            file.attrs[name] = getattr(table, name)
        file.attrs["notes"] = json.dumps(table.notes)
        write_trie(file, table.trie)
        for name, values in (("log_prob", table.log_prob), ("log_backoff", table.log_backoff)):
            if isinstance(values, QuantizedValues):
                inside = file.create_group(name)
                write_array(inside, "unigrams", values.unigrams)
                write_array(inside, "levels", values.levels.reshape(-1))
                write_packed(inside, "codes", values.codes)
            else:
                write_array(file, name, values)


def open_table(path: Path, vocabulary_fingerprint: str) -> BackoffTable:
    """Open a table: verify its file and map its arrays into memory."""
    if not path.is_file():
        raise UserError(f"the model file {path} is missing: {REMEDY}")
    try:
        with open_hdf5(path) as file:
            if file.attrs.get("kind") != KIND or file.attrs.get("format") not in (FORMAT, SMALL_FORMAT):
                raise UserError(f"{path} is not a back-off table of format {FORMAT} or {SMALL_FORMAT}: {REMEDY}")
            about = attributes(file, TABLE)
            if about["vocabulary_fingerprint"] != vocabulary_fingerprint:
                raise UserError(f"{path} was made with another vocabulary: {REMEDY}")
            require_own_content(file, path)
            trie = read_trie(file)
            small = file.attrs["format"] == SMALL_FORMAT
            log_prob, log_backoff = (
                read_quantized(file, name, trie.sizes[:orders]) if small else map_logs(file[name])
                for name, orders in (("log_prob", trie.order), ("log_backoff", trie.order - 1))
            )
            table = BackoffTable(
                trie=trie,
                log_prob=log_prob,
                log_backoff=log_backoff,
                notes=tuple(parse_json(about.pop("notes"), [str], "notes")),
                interpolated=about.get("interpolated", False),
                **{name: about[name] for name in ("bos", "unseen", "missing", "normalized", "suffix_closed")},
            )
        if len(table.log_prob) != sum(trie.sizes) or len(table.log_backoff) != sum(trie.sizes[:-1]):
            raise ValueError("arrays of wrong lengths")
        if not 0 <= table.bos < table.vocabulary_size:
            raise ValueError("<s> is not a word")
        return table
    except (OSError, KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise UserError(
            f"{path} is damaged or cut off, or of a newer HDF5 than {VERSION} ({error}): {REMEDY}"
        ) from error


def counts_path(store: Path) -> Path:
    """Return the file of the counts of a store's train split."""
    return store.with_name(f"counts-{store.name}")


def save_counts(path: Path, counts: Counts, store_fingerprint: str) -> None:
    """Write the counts, whole or not at all."""
    packed = [*counts.suffix, *counts.count]
    size = counts.trie.nbytes + sum(part.bits.nbytes for part in packed)
    with atomic_hdf5(path, size, synced=False, mapped=True) as file:
        file.attrs["kind"] = COUNTS_KIND
        file.attrs["format"] = COUNTS_FORMAT
        file.attrs["store_fingerprint"] = store_fingerprint
        file.attrs["bos"] = counts.bos
        file.attrs["unk"] = counts.unk
        file.attrs["newest"] = counts.newest
        write_trie(file, counts.trie)
        for k, part in enumerate(counts.suffix, start=2):
            write_packed(file, f"suffix{k}", part)
        for k, part in enumerate(counts.count, start=1):
            write_packed(file, f"count{k}", part)


def open_counts(path: Path, store_fingerprint: str, order: int) -> Counts | None:
    """Return the cached counts of orders 1 to `order`, or None if they are missing, damaged, or of another text."""
    if not path.is_file():
        return None
    try:
        with open_hdf5(path) as file:
            if file.attrs.get("kind") != COUNTS_KIND or file.attrs.get("format") != COUNTS_FORMAT:
                return None
            if file.attrs["store_fingerprint"] != store_fingerprint:
                return None
            require_own_content(file, path)
            trie = read_trie(file)
            if trie.order < order:
                return None
            suffix = [read_packed(file, f"suffix{k}") for k in range(2, trie.order + 1)]
            count = [read_packed(file, f"count{k}") for k in range(1, trie.order + 1)]
            lengths = [part.length for part in suffix], [part.length for part in count]
            if lengths != (trie.sizes[1:], trie.sizes):
                return None
            newest = np.asarray(file.attrs["newest"], dtype=np.int64)
            marks = [int(file.attrs["bos"]), int(file.attrs["unk"]), *newest.tolist()]
            if not 0 <= min(marks) <= max(marks) < trie.vocabulary_size:
                return None
            for part, size in zip(suffix, trie.sizes[:-1], strict=True):
                starts = range(0, part.length, NUMBERS_PER_CHECK)
                if any(part[a : a + NUMBERS_PER_CHECK].max() >= size for a in starts):
                    return None
                release(part.bits)
            counts = Counts(trie, suffix, count, int(file.attrs["bos"]), int(file.attrs["unk"]), newest)
            return counts.upto(order)
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, UserError):
        return None  # damaged: the caller counts again

"""Tries and arrays in HDF5, laid out so that they can be memory-mapped."""

from __future__ import annotations

import errno
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from lmtool.ngram.tables.block_starts import BLOCK, require_within
from lmtool.ngram.tables.packed import Packed, cells_needed
from lmtool.ngram.tables.trie import Nodes, Trie
from lmtool.system.memory import pieces_of

Array = npt.NDArray[Any]
PIECE = 1 << 22  # numbers written at once


def write_array(group: h5py.Group, name: str, values: Array) -> None:
    """Write an array in one piece, so that it can be mapped; what is written of one in a file leaves the memory."""
    dataset = group.create_dataset(name, shape=values.shape, dtype=values.dtype)
    at = 0
    for piece in pieces_of(values, PIECE):
        dataset[at : at + len(piece)] = piece
        at += len(piece)


def mapped(dataset: h5py.Dataset, dtype: npt.DTypeLike) -> Array:
    """The array of a dataset, memory-mapped: its pages are read when they are used.

    Raises ValueError where it is not one-dimensional and of that type, or lies outside its file, and MemoryError.
    """
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
        return np.asarray(np.memmap(dataset.file.filename, dtype=dtype, mode="c", offset=offset, shape=dataset.shape))
    except OSError as error:
        if error.errno == errno.ENOMEM:  # which is no damage of the file
            raise MemoryError(f"no address space for {dataset.file.filename}") from error
        raise


def write_packed(group: h5py.Group, name: str, packed: Packed) -> None:
    """Write packed numbers as their bits, with width and length as attributes."""
    write_array(group, name, packed.bits)
    group[name].attrs["width"] = packed.width
    group[name].attrs["length"] = packed.length


def read_packed(group: h5py.Group, name: str) -> Packed:
    """Packed numbers, memory-mapped. Raises ValueError, KeyError or OSError where they are damaged."""
    packed = Packed(mapped(group[name], np.uint64), int(group[name].attrs["width"]), int(group[name].attrs["length"]))
    if not 1 <= packed.width < 64 or len(packed.bits) < cells_needed(packed.length, packed.width):
        raise ValueError(f"{name} is too short")
    return packed


def write_trie(group: h5py.Group, trie: Trie) -> None:
    """Write a trie's arrays; in the small form, `blocks` in place of `base`."""
    nodes = trie.nodes
    for name in ("first", "unigram_starts"):
        write_array(group, name, getattr(nodes, name))
    write_packed(group, "words", Packed(nodes.words, nodes.word_width, sum(trie.sizes[1:])))
    if nodes.start_width is None:
        write_array(group, "blocks", nodes.base)
        write_array(group, "starts", nodes.starts)
        return
    write_array(group, "base", nodes.base)
    write_packed(group, "starts", Packed(nodes.starts, nodes.start_width, trie.inner))


def read_trie(group: h5py.Group) -> Trie:
    """A trie, memory-mapped. Raises ValueError, KeyError or OSError where it is damaged."""
    first, unigram_starts = (mapped(group[name], np.int64) for name in ("first", "unigram_starts"))
    words = read_packed(group, "words")
    sizes = np.diff(first)
    if len(first) < 2 or first[0] != 0 or (sizes < 0).any() or len(unigram_starts) != first[1]:
        raise ValueError("the numbers of nodes by order are wrong")
    inner = int(first[-2] - first[1]) + 1 if len(first) > 2 else 1
    if words.length != first[-1] - first[1]:
        raise ValueError("arrays of wrong lengths")
    if "blocks" in group:
        blocks, starts = mapped(group["blocks"], np.int64), mapped(group["starts"], np.uint64)
        require_within(blocks, starts, inner)
        trie = Trie(Nodes(first, words.bits, words.width, unigram_starts, blocks, starts, None))
    else:
        base, packed = mapped(group["base"], np.int64), read_packed(group, "starts")
        if packed.length != inner or len(base) < (inner + (1 << BLOCK) - 1) >> BLOCK:
            raise ValueError("arrays of wrong lengths")
        trie = Trie(Nodes(first, words.bits, words.width, unigram_starts, base, packed.bits, packed.width))
    if not trie.is_sound():
        raise ValueError("its n-grams are not those of a trie")
    return trie

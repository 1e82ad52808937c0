"""Cache counts beside the store that they were made from: counted once, used by every smoother of a sweep."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts
from lmtool.ngram.files.hdf5 import read_packed, read_trie, write_packed, write_trie
from lmtool.system.arrays import release
from lmtool.system.hdf5_files import atomic_hdf5, open_hdf5, require_own_content

KIND = "lmtool n-gram counts"
FORMAT = 4
NUMBERS_PER_PIECE = 1 << 20  # numbers checked at once


def counts_path(store: Path) -> Path:
    """Return the file of the counts of a store's train split."""
    return store.with_name(f"counts-{store.name}")


def save_counts(path: Path, counts: Counts, store_fingerprint: str) -> None:
    """Write the counts, whole or not at all."""
    packed = [*counts.suffix, *counts.count]
    size = counts.trie.nbytes + sum(part.bits.nbytes for part in packed)
    with atomic_hdf5(path, size, synced=False, mapped=True) as file:
        file.attrs["kind"] = KIND
        file.attrs["format"] = FORMAT
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
            if file.attrs.get("kind") != KIND or file.attrs.get("format") != FORMAT:
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
                starts = range(0, part.length, NUMBERS_PER_PIECE)
                if any(part[a : a + NUMBERS_PER_PIECE].max() >= size for a in starts):
                    return None
                release(part.bits)
            counts = Counts(trie, suffix, count, int(file.attrs["bos"]), int(file.attrs["unk"]), newest)
            return counts.upto(order)
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, UserError):
        return None  # damaged: the caller counts again

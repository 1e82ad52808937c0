"""Storage of large arrays: in memory up to a limit, beyond it in files that disappear with the process."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lmtool.config.rules import size_in_bytes
from lmtool.system.arrays import release
from lmtool.system.files import cannot_write, process_tag
from lmtool.system.process import is_nearly_used, memory_available, memory_resident

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus

COMPILED_BYTES = 96 << 20  # bytes that loading compiled loops takes, at their first calls
MIN_ROOM = 80 << 20  # bytes for arrays of large texts, however little counts.memory leaves
UINT32_LIMIT = 1 << 32  # numbers below this take 32 bits, others 64
BYTES_PER_TOKEN = 64  # maximum that counting and estimation take in memory: 1.3 GiB for 22 million tokens


def whole_numbers_below(limit: int) -> np.dtype[Any]:
    """Return uint32, or uint64 if needed, for whole numbers below `limit` and one more that stands for none."""
    return np.dtype(np.uint32 if limit < UINT32_LIMIT else np.uint64)


@dataclass(frozen=True, slots=True)
class Storage:
    """Storage of large arrays: in memory up to a limit, beyond it in files in a folder.

    memory: maximum bytes of arrays in memory; None: no limit. folder: the folder of the files. process: maximum bytes
    of the whole process; 0: as `memory`. note: a note for the user.
    """

    memory: int | None = None
    folder: Path = Path()
    process: int = 0
    note: str | None = None
    _mapped: list[weakref.ref[mmap.mmap]] = field(default_factory=list)

    @classmethod
    def within(cls, memory: str | None, corpus: Corpus) -> Storage:
        """Return the storage for counting a corpus, without a limit if its train split fits into memory.

        memory: limit of the whole process, such as 512MiB; None: three quarters of free memory. Files lie beside the
        corpus's store, or in the folder for temporary files if the store is remote. A note says if the limit leaves too
        little room for arrays.
        """
        free, has = memory_available(), (memory_resident() or 0) + COMPILED_BYTES
        room, process, note = free and free * 3 // 4, 0, None
        if memory is not None:
            process = size_in_bytes(memory, "counts.memory")
            room = max(process - has, min(process, MIN_ROOM))
            if process < has + MIN_ROOM:
                takes = f"lmtool itself takes {has >> 20} MiB, and {MIN_ROOM >> 20} MiB to count"
                note = f"counts.memory={memory} is not kept: {takes}; give {has + MIN_ROOM >> 20}MiB"
        storage = cls(room, corpus.folder or Path(tempfile.gettempdir()), process, note)
        return storage.unless_enough_for(corpus.tokens("train"))

    @property
    def limit(self) -> int:
        """Maximum bytes of the whole process, if there is a limit."""
        return self.process or self.memory or 0

    def unless_enough_for(self, tokens: int) -> Storage:
        """Return this storage, or memory without a limit if the n-grams of this number of tokens fit into the limit."""
        enough = self.memory is None or self.memory >= BYTES_PER_TOKEN * tokens
        return Storage(note=self.note) if enough else self

    def empty(self, length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an uninitialized array `[length]`; above 1/256 of the memory limit it is an unnamed file."""
        size = length * np.dtype(dtype).itemsize
        if self.memory is None or size <= self.memory // 256:
            return np.empty(length, dtype=dtype)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder, prefix=".counts.", suffix=f".{process_tag()}.tmp") as file:
                if hasattr(os, "posix_fallocate"):
                    # If a page could not be written later, the process would end without a message.
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.truncate(size)
                mapped = mmap.mmap(file.fileno(), size)
                self._mapped.append(weakref.ref(mapped))
                return np.frombuffer(mapped, dtype=dtype)
        except OSError as error:
            raise cannot_write(self.folder, error) from error

    def pieces(self, length: int, size: int = 1 << 20) -> Iterator[tuple[int, int]]:
        """Yield range(length) in pieces of `size`, (first, last + 1); `keep_within` is called after each."""
        for first in range(0, length, size):
            yield first, min(first + size, length)
            self.keep_within()

    def keep_within(self) -> None:
        """Release the pages of files if this process uses most of its memory limit."""
        if self.memory is not None and is_nearly_used(self.limit):
            self.release()

    def zeros(self, length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array of zeros `[length]`, stored as by `empty`."""
        array = self.empty(length, dtype)
        if array.flags.owndata:  # a new file is all zeros
            array[:] = 0
        return array

    def release(self) -> None:
        """Drop the pages of files from memory; they are read again when used."""
        self._mapped[:] = [reference for reference in self._mapped if reference() is not None]
        for reference in self._mapped:
            mapped = reference()
            if mapped is not None:
                release(mapped)

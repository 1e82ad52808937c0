"""Storage of large arrays: memory up to a limit, beyond it files that vanish with the process."""

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
from lmtool.system.files import cannot_write, process_tag
from lmtool.system.memory import is_nearly_used, memory_available, memory_resident, release

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus

LOOPS = 96 << 20  # bytes of compiled loops and of what loads them, at their first calls
LEAST_ROOM = 80 << 20  # bytes for arrays, of large texts, however little counts.memory leaves
NARROW = 1 << 32  # numbers below this take 32 bits, others 64
BYTES_PER_TOKEN = 64  # that counting and estimation take at most, in memory: 1.3 GiB for 22 million tokens


def whole_numbers_below(limit: int) -> np.dtype[Any]:
    """The type of whole numbers below `limit`, whose largest number is left for `none`: uint32 where that suffices."""
    return np.dtype(np.uint32 if limit < NARROW else np.uint64)


@dataclass(frozen=True, slots=True)
class Storage:
    """memory: bytes that arrays may take, None without a limit. folder: of the files. process: bytes that the whole
    process may have; 0 for those of `memory`. note: what the user should know.
    """

    memory: int | None = None
    folder: Path = Path()
    process: int = 0
    note: str | None = None
    _mapped: list[weakref.ref[mmap.mmap]] = field(default_factory=list)

    @classmethod
    def within(cls, memory: str | None, corpus: Corpus) -> Storage:
        """Of `memory` for the process, such as 512MiB, less what it has, or of three quarters of what is free, with
        files beside the corpus's store, or where temporary ones go if that is at an address; without a limit where its
        train split fits. A note says where the process has more already than leaves room for arrays.
        """
        free, has = memory_available(), (memory_resident() or 0) + LOOPS
        room, process, note = free and free * 3 // 4, 0, None
        if memory is not None:
            process = size_in_bytes(memory, "counts.memory")
            room = max(process - has, min(process, LEAST_ROOM))
            if process < has + LEAST_ROOM:
                takes = f"lmtool itself takes {has >> 20} MiB, and {LEAST_ROOM >> 20} MiB to count"
                note = f"counts.memory={memory} is not kept: {takes}; give {has + LEAST_ROOM >> 20}MiB"
        storage = cls(room, corpus.folder or Path(tempfile.gettempdir()), process, note)
        return storage.unless_enough_for(corpus.tokens("train"))

    @property
    def limit(self) -> int:
        """Bytes that the whole process may have, where there is a limit."""
        return self.process or self.memory or 0

    def unless_enough_for(self, tokens: int) -> Storage:
        """This storage, or memory without a limit where the n-grams of so many tokens fit into what is allowed."""
        enough = self.memory is None or self.memory >= BYTES_PER_TOKEN * tokens
        return Storage(note=self.note) if enough else self

    def empty(self, length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An uninitialised array `[length]`; in a file where it takes more than 1/256 of the memory allowed.

        The file's disk space is reserved at once and its name is removed at once. Raises UserError where the disk is
        full.
        """
        size = length * np.dtype(dtype).itemsize
        if self.memory is None or size <= self.memory // 256:
            return np.empty(length, dtype=dtype)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder, prefix=".counts.", suffix=f".{process_tag()}.tmp") as file:
                if hasattr(os, "posix_fallocate"):
                    # A page that cannot be written later would end the process without a message.
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.truncate(size)
                mapped = mmap.mmap(file.fileno(), size)
                self._mapped.append(weakref.ref(mapped))
                return np.frombuffer(mapped, dtype=dtype)
        except OSError as error:
            raise cannot_write(self.folder, error) from error

    def pieces(self, length: int, size: int = 1 << 20) -> Iterator[tuple[int, int]]:
        """range(length) in pieces of `size`, (first, last + 1), between which `keep_within` is called."""
        for first in range(0, length, size):
            yield first, min(first + size, length)
            self.keep_within()

    def keep_within(self) -> None:
        """Release the pages of files where this process has most of the memory that is allowed."""
        if self.memory is not None and is_nearly_used(self.limit):
            self.release()

    def zeros(self, length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array of zeros `[length]`, stored as by `empty`. Raises UserError where the disk is full."""
        array = self.empty(length, dtype)
        if array.flags.owndata:  # a new file is all zeros
            array[:] = 0
        return array

    def release(self) -> None:
        """Drop the pages of files from memory; they are read again when they are used."""
        self._mapped[:] = [reference for reference in self._mapped if reference() is not None]
        for reference in self._mapped:
            mapped = reference()
            if mapped is not None:
                release(mapped)

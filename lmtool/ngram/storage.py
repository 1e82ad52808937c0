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
from lmtool.system.files import cannot_write, own_mark
from lmtool.system.memory import is_nearly_used, memory_available, release

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus

NARROW = 1 << 32  # numbers below this take 32 bits, others 64
BYTES_PER_TOKEN = 64  # that counting and estimation take at most, in memory: 1.3 GiB for 22 million tokens


def whole_numbers_below(limit: int) -> np.dtype[Any]:
    """The type of whole numbers below `limit`, whose largest number is left for `none`: uint32 where that suffices."""
    return np.dtype(np.uint32 if limit < NARROW else np.uint64)


@dataclass(frozen=True, slots=True)
class Storage:
    """memory: bytes that the process may have, None without a limit. folder: of the files."""

    memory: int | None = None
    folder: Path = Path()
    _mapped: list[weakref.ref[mmap.mmap]] = field(default_factory=list)

    @classmethod
    def within(cls, memory: str | None, corpus: Corpus) -> Storage:
        """Of `memory`, such as 512MiB, or of three quarters of what is free, with files beside the corpus's store,
        or where temporary ones go if that is at an address; without a limit where its train split fits.
        """
        free = memory_available()
        limit = size_in_bytes(memory, "counts.memory") if memory is not None else free and free * 3 // 4
        return cls(limit, corpus.folder or Path(tempfile.gettempdir())).unless_enough_for(corpus.tokens("train"))

    def unless_enough_for(self, tokens: int) -> Storage:
        """This storage, or memory without a limit where the n-grams of so many tokens fit into what is allowed."""
        enough = self.memory is None or self.memory >= BYTES_PER_TOKEN * tokens
        return Storage() if enough else self

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
            with tempfile.TemporaryFile(dir=self.folder, prefix=".counts.", suffix=f".{own_mark()}.tmp") as file:
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
        if self.memory is not None and is_nearly_used(self.memory):
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

"""Room for large arrays: memory where it is allowed, files that vanish with the process where it is not."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.system.files import cannot_write

BYTES_A_TOKEN = 64  # that counting and estimating take at most, in memory: 1.3 GiB for 22 million tokens


@dataclass(frozen=True, slots=True)
class Storage:
    """memory: bytes that may be used at once, None for as many as it takes. folder: of the files."""

    memory: int | None = None
    folder: Path = Path()
    _mapped: list[weakref.ref[mmap.mmap]] = field(default_factory=list)

    def unless_enough_for(self, tokens: int) -> Storage:
        """This, or memory without a limit where the n-grams of that many tokens fit into what is allowed."""
        enough = self.memory is None or self.memory >= BYTES_A_TOKEN * tokens
        return Storage() if enough else self

    def empty(self, length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array of any content; in a file where it takes more than one part in 256 of the memory allowed.

        The file's disk space is taken at once and its name is gone at once. Raises UserError where the disk is full.
        """
        size = length * np.dtype(dtype).itemsize
        if self.memory is None or size <= self.memory // 256:
            return np.empty(length, dtype=dtype)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder, prefix=".counts.", suffix=f".{os.getpid()}.tmp") as file:
                if hasattr(os, "posix_fallocate"):
                    # A page that cannot be written later would end the process without a word.
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.truncate(size)
                mapped = mmap.mmap(file.fileno(), size)
                self._mapped.append(weakref.ref(mapped))
                return np.frombuffer(mapped, dtype=dtype)
        except OSError as error:
            raise cannot_write(self.folder, error) from error

    def zeros(self, length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """As `empty`, of zeros."""
        found = self.empty(length, dtype)
        if found.flags.owndata:  # a new file has nothing else
            found[:] = 0
        return found

    def release(self) -> None:
        """Give back the memory that pages of files take; they are read again when they are touched."""
        self._mapped[:] = [reference for reference in self._mapped if reference() is not None]
        for reference in self._mapped:
            mapped = reference()
            if mapped is not None and hasattr(mapped, "madvise"):
                mapped.madvise(mmap.MADV_DONTNEED)

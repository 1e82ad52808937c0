"""A journal of scores on disk, from which interrupted work is resumed: rows, and how many blocks they cover."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from lmtool.errors import UserError
from lmtool.evaluation.text_scores import Rows
from lmtool.system.files import cannot_write, read_json, write_json
from lmtool.system.lock import folder_lock

ROWS, PROGRESS = "rows", "progress.json"
SAVE_SECONDS = 2.0  # between two saves
ROWS_PER_CHUNK = 1 << 18  # rows in memory


class ScoreJournal:
    """Rows of scores in a folder. blocks: number of blocks of texts whose rows are saved. complete: whether all are."""

    def __init__(self, folder: Path, file: IO[bytes], identity: object, dtype: np.dtype[Any]) -> None:
        self._folder, self._file, self._identity, self.dtype = folder, file, identity, dtype
        self._saved = time.monotonic()
        self.blocks, self.rows, self.complete = 0, 0, False

    @classmethod
    @contextmanager
    def open(cls, folder: Path, identity: object, dtype: np.dtype[Any]) -> Iterator[ScoreJournal]:
        """Open the journal of a folder, which this process locks until the block ends; then the folder is removed, or,
        after an error, left unchanged if it has rows.

        identity: plain values that are equal if and only if the work can be resumed; None if it cannot. Rows of other
        work are dropped. Raises UserError if another process holds the folder, or it cannot be written to.
        """
        with folder_lock(folder):
            try:
                with (folder / ROWS).open("ab+") as file:
                    journal = cls(folder, file, identity, dtype)
                    journal._take_up()
                    try:
                        yield journal
                    except BaseException:
                        journal.save()
                        if not journal.blocks:
                            shutil.rmtree(folder, ignore_errors=True)
                        raise
            except OSError as error:
                raise cannot_write(folder, error) from error
            shutil.rmtree(folder, ignore_errors=True)

    def _take_up(self) -> None:
        try:
            known = read_json(self._folder / PROGRESS, "delete it")
            blocks, rows, complete = int(known["blocks"]), int(known["rows"]), bool(known["complete"])
            is_same = self._identity is not None and known["identity"] == self._identity
        except (UserError, KeyError, TypeError, ValueError):  # interrupted before the first save
            is_same = False
        if is_same and os.fstat(self._file.fileno()).st_size >= rows * self.dtype.itemsize:
            self.blocks, self.rows, self.complete = blocks, rows, complete
        self._file.truncate(self.rows * self.dtype.itemsize)  # rows written after the last save

    def add(self, rows: Rows) -> None:
        """Add the rows of the next block. Raises OSError if the disk is full."""
        self._file.write(rows.tobytes())
        self.blocks += 1
        self.rows += len(rows)
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self.save()

    def finish(self) -> None:
        """Record that all rows are there."""
        self.complete = True
        self.save()

    def save(self) -> None:
        """Write the rows and the progress to disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        progress = {"identity": self._identity, "blocks": self.blocks, "rows": self.rows, "complete": self.complete}
        write_json(self._folder / PROGRESS, progress)
        self._saved = time.monotonic()

    def parts(self) -> Iterator[Rows]:
        """Yield all rows in order, in parts."""
        self._file.flush()
        with (self._folder / ROWS).open("rb") as file:
            for first in range(0, self.rows, ROWS_PER_CHUNK):
                yield np.fromfile(file, self.dtype, min(ROWS_PER_CHUNK, self.rows - first))

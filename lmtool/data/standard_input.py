"""Read standard input, packed or not, while it arrives: in large blocks if it arrives fast, else every second."""

from __future__ import annotations

import io
import sys
import time
from queue import Empty, Queue
from threading import Thread
from typing import Any

from lmtool.data.unpacking import READ, unpack
from lmtool.system.terminal import write_out

INPUT = "standard input"  # its name in messages
SECONDS = 1.0  # waiting time for more bytes after the first byte of a block
PIECES = 64  # maximum number of pieces read ahead, of at most READ bytes each
LEAST = 1 << 12  # minimum limit of a block's bytes, however slow its use is


def standard_input(*, by_line: bool = False) -> Any:
    """Return standard input, unpacked, in blocks. by_line: whether one ends with what has arrived, as in a terminal."""
    stdin = sys.stdin or io.TextIOWrapper(io.BytesIO())  # a shell may have closed it
    return _Arriving(stdin, 0.0 if by_line or stdin.isatty() else SECONDS)


class _Arriving:
    """The bytes of a file that a thread reads ahead, starting with the first request."""

    def __init__(self, stdin: Any, wait: float) -> None:
        """wait: seconds to wait for more bytes after the first byte of a block."""
        self._pieces: Queue[bytes | BaseException] = Queue(PIECES)
        self._wait, self._size, self._returned = wait, READ, 0.0
        self._end: bytes | BaseException | None = None  # the last piece: b"", or the error of reading
        self._stdin = stdin

    def _fill(self) -> None:
        try:
            try:
                file: Any = io.FileIO(self._stdin.fileno(), closefd=False)
            except OSError:  # not a system file, e.g. in a notebook
                file = io.BytesIO(self._stdin.buffer.read())
            for handle in unpack(io.BufferedReader(file, READ), INPUT):
                while piece := handle.read1(READ):
                    self._pieces.put(piece)
            self._pieces.put(b"")
        except BaseException as error:
            self._pieces.put(error)

    def read(self, size: int) -> bytes:
        """Return about `size` bytes or fewer, b"" at the end; flush standard output first, whose reader may be waiting.

        Blocks are smaller while each is in use for more than a second, e.g. by a slow model.
        """
        if not self._returned:  # daemon thread: the next byte may never come before the process ends
            Thread(target=self._fill, daemon=True).start()
        write_out()
        is_slow = 0 < self._returned < time.monotonic() - SECONDS
        self._size = min(max(self._size // 2, LEAST) if is_slow else self._size * 2, size)
        block: list[bytes] = []
        until, got = 0.0, 0
        while self._end is None and got < self._size:
            try:
                piece = self._pieces.get(timeout=max(until - time.monotonic(), 0.0) if block else None)
            except Empty:
                break
            if not piece or isinstance(piece, BaseException):
                self._end = piece
                break
            until = until or time.monotonic() + self._wait
            block.append(piece)
            got += len(piece)
        if not block and isinstance(self._end, BaseException):
            raise self._end
        self._returned = time.monotonic()
        return b"".join(block)

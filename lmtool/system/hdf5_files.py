"""HDF5 files, written whole and sealed, and verified before the HDF5 library, which can hang on damage, parses them."""

from __future__ import annotations

import atexit
import gc
import io
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import h5py

from lmtool.errors import UserError, first_line
from lmtool.system.checksummed_file import BLOCK, HEADER, DamagedFile, SealedReader, read_header, seal, verify
from lmtool.system.files import atomic_write, cannot_write, reserve

_open_pieces: weakref.WeakSet[h5py.File] = weakref.WeakSet()  # one that is open at the end is a segmentation fault
VERSION = h5py.version.hdf5_version  # of the library, which does not read all that later ones write
SIGNATURE = b"\x89HDF\r\n\x1a\n"  # with which files that are not sealed begin
# Arrays aligned; in the format that HDF5 1.10 reads, whose objects have no times: the same numbers are the same bytes.
MAPPED = {"libver": ("earliest", "v110"), "alignment_threshold": 1, "alignment_interval": 8}


@contextmanager
def atomic_hdf5(path: Path, size: int, *, synced: bool = True, mapped: bool = False) -> Iterator[h5py.File]:
    """A new HDF5 file of about `size` bytes, sealed and renamed to `path` when the block ends without an error.

    synced: whether it is on disk then. mapped: whether its arrays can be memory-mapped, each in one piece. Raises
    UserError where the disk is full or the folder cannot be written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        reserve(path, size + 4 * size // BLOCK + (1 << 16))
        with atomic_write(path, synced=synced) as temporary:
            with h5py.File(temporary, "w", userblock_size=HEADER, **(MAPPED if mapped else {})) as file:
                yield file
            seal(temporary)
    except OSError as error:
        raise cannot_write(path, error) from error
    except RuntimeError as error:  # what h5py raises when it cannot flush
        raise cannot_write(path, OSError(str(error))) from error


def open_hdf5(path: Path) -> h5py.File:
    """Open an HDF5 file for reading. A sealed one is verified first; others, of before 0.6, have no checksums.

    Raises DamagedFile, with the place, where it is damaged, and OSError where it is no HDF5 file or cannot be read.
    """
    verify_hdf5(path)
    return h5py.File(path, "r")


def verify_hdf5(path: Path) -> bool:
    """Whether an HDF5 file is sealed; a sealed one is read to its end. Raises DamagedFile and OSError."""
    if verify(path):
        return True
    with path.open("rb") as file:
        if file.read(len(SIGNATURE)) != SIGNATURE:
            raise DamagedFile("it does not begin as an HDF5 file of lmtool")
    return False


def open_hdf5_pieces(raw: IO[bytes]) -> h5py.File:
    """Open an HDF5 file that is read in pieces, as one at an address is; what is read is verified if it is sealed.

    Raises DamagedFile and OSError as `open_hdf5` does, also when it is read later.
    """
    header = read_header(raw)
    size = raw.seek(0, os.SEEK_END)
    file = h5py.File(_Uncollected(raw if header is None else SealedReader(raw, header, size)), "r")
    _open_pieces.add(file)
    return file


class _Uncollected(io.RawIOBase):
    """A file that is read without garbage collections meanwhile.

    h5py calls it with its lock held. A collection on the thread of a remote file system, which is to bring the bytes,
    could free an object of h5py, wait for that lock, and both would wait for ever.
    """

    _reading = 0
    _lock = threading.Lock()
    _was_on = False

    def __init__(self, file: IO[bytes] | SealedReader) -> None:
        self._file = file

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        cls = _Uncollected
        with cls._lock:
            if cls._reading == 0:
                cls._was_on = gc.isenabled()
                gc.disable()
            cls._reading += 1
        try:
            return self._file.readinto(buffer)  # type: ignore[union-attr]
        finally:
            with cls._lock:
                cls._reading -= 1
                if cls._reading == 0 and cls._was_on:
                    gc.enable()

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@atexit.register
def _close_pieces() -> None:
    for file in list(_open_pieces):
        file.close()


BUILT_IN = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}  # need no plugin
DEFLATED = 1100  # bytes that one of deflate's can stand for, a little more than the 1,032 that it reaches
UNWRITTEN = 1 << 20  # bytes that an array may have without them: zeros at its end are not stored
NUMBERS = "biuf"  # numpy's kinds of the types that lmtool stores


def require_own_content(file: h5py.File, path: object) -> None:
    """Raise UserError, naming `path` and the part, unless a file holds all of its arrays, of numbers, itself."""

    def refused(name: str, link: object) -> str | None:
        try:  # an exception does not pass through HDF5, a result does
            reason = f"{type(link).__name__} to something else" if not isinstance(link, h5py.HardLink) else None
            reason = reason or _reason(file[name])
        except (KeyError, OSError, TypeError, ValueError, RuntimeError) as error:
            reason = f"damaged ({first_line(error)})"
        return f"its {name} is {reason}" if reason is not None else None

    reason = file.visititems_links(refused)
    if reason is not None:
        raise UserError(f"{path} is not read: {reason}; take a file that lmtool wrote")


def _reason(item: h5py.Group | h5py.Dataset | h5py.Datatype) -> str | None:
    """Why a part of a file is not read; None where it may be."""
    if isinstance(item, h5py.Group):
        return None
    if not isinstance(item, h5py.Dataset):
        return f"a {type(item).__name__}"
    return _reason_of_array(item)


def _reason_of_array(dataset: h5py.Dataset) -> str | None:
    """Why an array is not read; None where it may be."""
    if dataset.dtype.kind not in NUMBERS or dataset.dtype.subdtype is not None:
        return f"an array of {dataset.dtype}, not of numbers"
    if dataset.is_virtual:
        return "a virtual dataset, whose numbers lie elsewhere"
    if dataset.external:
        return "an array whose numbers lie in another file"
    created = dataset.id.get_create_plist()
    filters = {created.get_filter(k)[0] for k in range(created.get_nfilters())}
    if not filters <= BUILT_IN:
        return "an array behind a filter that needs a plugin"
    stored = int(dataset.id.get_storage_size())
    if dataset.nbytes > max(stored * (DEFLATED if filters else 1), UNWRITTEN):
        return f"an array of {dataset.nbytes:,} bytes, of which the file has {stored:,}"
    return None

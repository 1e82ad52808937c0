"""HDF5 files with a checksum, verified before the HDF5 library, which can hang on damage, parses them.

HDF5 can name other files, by external links, external raw storage and virtual datasets, can load a plugin to undo a
filter, and can declare arrays of any size in a small file. lmtool writes none of these, and a file that has them is
rejected: all that is read of a file is in the file itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from lmtool.errors import UserError, first_line
from lmtool.system.checksums import HEAD, KEY, ZEROS, DamagedFile, seal, verify
from lmtool.system.files import atomic_write
from lmtool.system.schemas import require_kind

VERSION = h5py.version.hdf5_version  # of the HDF5 library; it cannot read all files of later versions
SIGNATURE = b"\x89HDF\r\n\x1a\n"  # the beginning of files of other programs
USER_BLOCK = f'lmtool\n"{KEY}": "{ZEROS}"\n'.ljust(HEAD, "\n").encode()
# Aligned arrays, in the format of HDF5 1.10, whose objects have no times: the same numbers give the same bytes.
MAPPED = {"libver": ("earliest", "v110"), "alignment_threshold": 1, "alignment_interval": 8}


@contextmanager
def atomic_hdf5(path: Path, size: int, *, synced: bool = True, mapped: bool = False) -> Iterator[h5py.File]:
    """Create an HDF5 file of about `size` bytes, sealed and renamed to `path` if the block ends without an error.

    synced: whether to flush it to disk. mapped: whether its arrays can be memory-mapped, each in one piece.
    """
    with atomic_write(path, synced=synced) as temporary:
        if hasattr(os, "posix_fallocate"):  # HDF5 can crash the process if the disk fills while it writes
            with temporary.open("wb") as probe:
                os.posix_fallocate(probe.fileno(), 0, size + (1 << 16))
        try:
            with h5py.File(temporary, "w", userblock_size=HEAD, **(MAPPED if mapped else {})) as file:
                yield file
        except RuntimeError as error:  # raised by h5py if it cannot flush
            raise OSError(str(error)) from error
        with temporary.open("r+b") as written:
            written.write(USER_BLOCK)
        seal(temporary)


def open_hdf5(path: Path) -> h5py.File:
    """Verify an HDF5 file and open it to read. A file of another program has no checksum. Raises OSError for damage."""
    if not verify(path):
        with path.open("rb") as file:
            if file.read(len(SIGNATURE)) != SIGNATURE:
                raise DamagedFile("it does not begin as an HDF5 file of lmtool")
    return h5py.File(path, "r")


def attributes(item: h5py.Group | h5py.Dataset, kinds: dict[Any, Any]) -> dict[str, Any]:
    """Return the attributes of a part of a file as plain values. kinds: as in lmtool.system.schemas."""
    found = {name: value.item() if isinstance(value, np.generic) else value for name, value in item.attrs.items()}
    require_kind(found, kinds, item.name.strip("/"))
    return found


BUILT_IN = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}  # filters without a plugin
MAX_DEFLATION = 1100  # maximum ratio of bytes to deflated bytes, which reaches 1,032
UNWRITTEN = 1 << 20  # maximum bytes of an array that are not stored: zeros at its end
NUMBERS = "biuf"  # numpy's kinds of the types that lmtool stores


def require_own_content(file: h5py.File, path: object) -> None:
    """Raise UserError, naming `path` and the part, unless a file itself holds all of its arrays, of numbers."""

    def refused(name: str, link: object) -> str | None:
        try:  # HDF5 does not propagate exceptions, but returns results
            reason = f"{type(link).__name__} to something else" if not isinstance(link, h5py.HardLink) else None
            reason = reason or _reason(file[name])
        except (KeyError, OSError, TypeError, ValueError, RuntimeError) as error:
            reason = f"damaged ({first_line(error)})"
        return f"its {name} is {reason}" if reason is not None else None

    reason = file.visititems_links(refused)
    if reason is not None:
        raise UserError(f"{path} is not read: {reason}; take a file that lmtool wrote")


def _reason(item: h5py.Group | h5py.Dataset | h5py.Datatype) -> str | None:
    """Return why a part of a file is rejected, or None if it is not."""
    if isinstance(item, h5py.Group):
        return None
    if not isinstance(item, h5py.Dataset):
        return f"a {type(item).__name__}"
    if item.dtype.kind not in NUMBERS or item.dtype.subdtype is not None:
        return f"an array of {item.dtype}, not of numbers"
    if item.is_virtual:
        return "a virtual dataset, whose numbers are in another file"
    if item.external:
        return "an array whose numbers are in another file"
    created = item.id.get_create_plist()
    filters = {created.get_filter(k)[0] for k in range(created.get_nfilters())}
    if not filters <= BUILT_IN:
        return "an array behind a filter that needs a plugin"
    stored = int(item.id.get_storage_size())
    if item.nbytes > max(stored * (MAX_DEFLATION if filters else 1), UNWRITTEN):
        return f"an array of {item.nbytes:,} bytes, of which the file has {stored:,}"
    return None

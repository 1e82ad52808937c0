"""HDF5 files of others: what may be in one before any of it is read.

HDF5 can name other files, by external links, external raw storage and virtual datasets, can load a plugin to undo a
filter, and can declare arrays of any size in a file of few bytes. None of what lmtool writes does; so a file that does
is refused, and what is read of the others lies in the file itself.
"""

from __future__ import annotations

import h5py

from lmtool.errors import UserError

BUILT_IN = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}  # need no plugin
DEFLATED = 1100  # bytes that one of deflate's can stand for, a little more than the 1,032 that it reaches
NUMBERS = "biuf"  # numpy's kinds of the types that lmtool stores


def require_own_content(file: h5py.File, path: object) -> None:
    """Raise UserError, naming `path` and the part, unless a file holds all of its arrays, of numbers, itself.

    Raises OSError, KeyError, RuntimeError or ValueError where the file is damaged.
    """

    def check(name: str, link: object) -> None:
        if not isinstance(link, h5py.HardLink):
            raise _refused(path, name, f"{type(link).__name__} to something else")
        item = file[name]
        if isinstance(item, h5py.Dataset):
            reason = _reason(item)
            if reason is not None:
                raise _refused(path, name, reason)
        elif not isinstance(item, h5py.Group):
            raise _refused(path, name, type(item).__name__)

    file.visititems_links(check)


def _reason(dataset: h5py.Dataset) -> str | None:
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
    if dataset.nbytes > stored * (DEFLATED if filters else 1):
        return f"an array of {dataset.nbytes:,} bytes, of which the file has {stored:,}"
    return None


def _refused(path: object, name: str, what: str) -> UserError:
    return UserError(f"{path} is not read: its {name} is {what}; take a file that lmtool wrote")

"""HDF5 files of others: what may be in one before any of it is read.

HDF5 can name other files, by external links, external raw storage and virtual datasets, can load a plugin to undo a
filter, and can declare arrays of any size in a file of few bytes. None of what lmtool writes does; so a file that does
is refused, and what is read of the others lies in the file itself.
"""

from __future__ import annotations

import h5py

from lmtool.errors import UserError, first_line

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

"""Find text files below the working folder, then below LMTOOL_DATA; download known corpora into a cache folder."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from lmtool.config.rules import MISSING
from lmtool.data.readers import MEMBER
from lmtool.data.remote import cache_dir, find_addresses, is_address, stamp_of
from lmtool.errors import UserError
from lmtool.system.terminal import note_once

BLOCK = 1 << 16  # bytes per sample
SAMPLES = 256  # maximum number of blocks read of the files of a setting: 16 MiB


_started_in: ContextVar[tuple[Path, ...]] = ContextVar("_started_in", default=())


@contextmanager
def also_below(folder: str) -> Iterator[None]:
    """Search relative paths first in the folder in which a saved command was run; "" if it is not known."""
    token = _started_in.set((Path(folder),) if folder not in ("", os.getcwd()) else ())
    try:
        yield
    finally:
        _started_in.reset(token)


def text_files(name: str, key: str) -> list[str]:
    """Return the files that a setting names (see `find_files`), with a note if they are not in the working folder."""
    files = find_files(name)
    if not files:
        raise UserError(no_file(name, key))
    note_places([name])
    return files


def text_file(name: str, key: str) -> str:
    """Return the file that a setting names."""
    file, *others = text_files(name, key)
    if others:
        raise UserError(f"{key}={name} names {len(others) + 1:,} files: name one")
    return file


def find_files(name: str) -> list[str]:
    """Return the files of a name, each with the name's `::MEMBER` if it has one; [] if no file is found.

    name: an address, which may be a glob or a folder, or a file, a glob such as `parts/*.txt` (its files in the order
    of their names), or a folder (its files in the order of their names, without hidden ones and subfolders). A name is
    searched below the folder of also_below, the working folder and, unless it is_explicit, LMTOOL_DATA; `~` is the home
    folder.
    """
    return _find(name)[1]


def _find(name: str) -> tuple[Path, list[str]]:
    """Return the files of a name and the folder they are in; for addresses, the working folder."""
    path, mark, member = name.partition(MEMBER)
    if is_address(path):
        return Path(), [f"{file}{mark}{member}" for file in find_addresses(path)]
    for root in _roots(path):
        try:
            files = _files_below(root, os.path.expanduser(path))
        except OSError as error:
            raise UserError(f"cannot read {root / path}: {error.strerror}") from error
        if files:
            return root, [f"{file}{mark}{member}" for file in files]
    return Path(), []


def is_explicit(path: str) -> bool:
    """Return whether a path is absolute or begins with `.`, `..` or `~`; it is not searched below LMTOOL_DATA then."""
    return path.split("/")[0] in (".", "..") or os.path.isabs(os.path.expanduser(path))


def _roots(path: str) -> list[Path]:
    """Return the folders in which a path is searched, in order."""
    started_in = () if os.path.isabs(os.path.expanduser(path)) else _started_in.get()
    return [*started_in, Path(), *([] if is_explicit(path) else _data_folder())]


def note_places(names: Iterable[str]) -> None:
    """Log which files of these names are not in the working folder."""
    found = [(str(_find(name)[0]), name) for name in names if not is_address(name)]
    for root in sorted({root for root, _ in found} - {"."}):
        note_once(f"read from {root}: {', '.join(name for place, name in found if place == root)}")


def no_file(name: str, key: str) -> str:
    """Return the error message if `find_files` finds nothing: where it looked, the value of LMTOOL_DATA, the remedy."""
    if is_address(name):
        return f"no file at {name} for {key}: check the address"
    path = os.path.expanduser(name.partition(MEMBER)[0])
    if any((root / path).is_dir() for root in _roots(path)):
        what = f"no file in the folder {path}"
    elif glob.escape(path) != path:
        what = f"no file matches {path}"
    else:
        what = f"no file {path}"
    data_folder = os.environ.get("LMTOOL_DATA")
    if is_explicit(path):
        return f"{what} for {key}: check the path"
    if not data_folder:
        return f"{what} for {key} (here, and LMTOOL_DATA is not set): check the path or set LMTOOL_DATA"
    if is_data_folder_wrong():
        remedy = "set it to the folder of your corpora, or unset it"
        return f"{what} for {key} here, and LMTOOL_DATA={data_folder} is not a folder: {remedy}"
    return f"{what} for {key} (here and below LMTOOL_DATA={data_folder}): check the path and LMTOOL_DATA"


def is_data_folder_wrong() -> bool:
    """Return whether LMTOOL_DATA is set and not a folder."""
    return any(not root.is_dir() for root in _data_folder())


def _data_folder() -> list[Path]:
    return [Path(os.environ["LMTOOL_DATA"])] if os.environ.get("LMTOOL_DATA") else []


def _files_below(root: Path, path: str) -> list[Path]:
    whole = root / path
    if whole.is_dir() and path:
        return sorted(file for file in whole.iterdir() if file.is_file() and not file.name.startswith("."))
    if whole.exists() and path:
        return [whole]
    matches = (root / match for match in sorted(glob.glob(path, root_dir=root, recursive=True)))
    return [match for match in matches if match.is_file()]


def file_stamps(names: list[str]) -> list[list[object]]:
    """Return the file_stamp of each file; SAMPLES blocks are read in total, and at least two per file."""
    return [file_stamp(name, max(SAMPLES // len(names), 2)) for name in names]


def file_stamp(name: str, samples: int = SAMPLES) -> list[object]:
    """Return plain values that differ if a file may have changed, by reading a part of it.

    They are its path, size and time, and, since copies and checkouts may keep these, a hash of its bytes: all of them
    if they fill at most `samples` blocks, else that many blocks at even distances, including the first and the last.
    Raises UserError if the file cannot be read, or cannot be read twice.
    """
    if is_address(name):
        return stamp_of(name.partition(MEMBER)[0])
    path = Path(name.partition(MEMBER)[0])
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path} is not a regular file, and text is read more than once: write it to a file first")
        size, digest = status.st_size, hashlib.sha256()
        blocks = min(-(-size // BLOCK), samples)
        with path.open("rb", buffering=0) as file:
            for k in range(blocks):
                file.seek(k * BLOCK if blocks < samples else (size - BLOCK) * k // (blocks - 1))
                digest.update(file.read(BLOCK))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    return [str(path.resolve()), size, status.st_mtime_ns, digest.hexdigest()]


def file_identity(name: str) -> dict[str, object]:
    """Return plain values that differ only if a file has changed, by reading all of it."""
    if is_address(name):  # its bytes are not downloaded again
        return {"address": stamp_of(name.partition(MEMBER)[0])}
    path = Path(name.partition(MEMBER)[0])
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": digest}


@dataclass(slots=True)
class DownloadConfig:
    """The source of a file that is not below LMTOOL_DATA: its checksum, `md5:...` or `sha256:...`, and its member of a
    .zip, if it is one.
    """

    url: str = MISSING
    checksum: str = MISSING
    member: str | None = None


def is_cached(download: DownloadConfig) -> bool:
    """Return whether the file is in the cache, so that `fetch` needs no network."""
    try:
        return (cache_dir() / _file_name(download)).is_file()
    except ImportError:
        return False


def _file_name(download: DownloadConfig) -> str:
    return f"{download.checksum.split(':')[-1][:12]}-{download.url.rsplit('/', 1)[-1]}"


def fetch(download: DownloadConfig, *, progress: bool) -> Path:
    """Return the local path of a download; fetch and verify it if it is not in the cache."""
    try:
        import pooch
        import requests
    except ImportError:
        raise UserError(
            f"{download.url} must be downloaded, which needs pooch: pip install 'lmtool[download]', or fetch it "
            "yourself and set LMTOOL_DATA"
        ) from None
    pooch.get_logger().setLevel("WARNING")
    folder = cache_dir()
    try:
        path = pooch.retrieve(
            download.url,
            known_hash=download.checksum,
            fname=_file_name(download),
            path=folder,
            downloader=pooch.HTTPDownloader(progressbar=progress, timeout=30),
        )
    except (requests.exceptions.RequestException, ValueError) as error:
        reason = "its checksum differs: the file was changed or cut off"
        if isinstance(error, requests.exceptions.RequestException):
            reason = f"the connection failed ({type(error).__name__})"
            if error.response is not None:
                reason = f"the server answered {error.response.status_code}"
        remedy = "try again, or fetch it yourself and set LMTOOL_DATA"
        raise UserError(f"cannot download {download.url}: {reason}; {remedy}") from error
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; set LMTOOL_CACHE to another") from error
    return Path(path)

"""Write files completely or not at all, under a temporary name first."""

from __future__ import annotations

import errno
import glob
import json
import math
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import IO, Any

from lmtool.errors import UserError, first_line
from lmtool.system.checksums import KEY, ZEROS, DamagedFile, seal, verify
from lmtool.system.schemas import OBJECT, parse_json, require_kind

NOT_WRITTEN = (".zip", ".7z", ".Z", ".lz", ".lz4", ".lzma", ".lzo", ".br", ".tgz")  # suffixes of packed files
NOT_FINITE = "not_finite"  # key of the values that null stands for
_MASK = os.umask(0)  # the mask cannot be read without setting it
os.umask(_MASK)
_TEMPORARY = re.compile(r"\..*\.([^.]+)\.(\d+)\.(?:ids\.)?tmp")  # groups: host and process of a temporary file


def process_tag() -> str:
    """Return HOST.NUMBER, which identifies this process among all machines, for the names of its temporary files."""
    import socket  # slow to import, like the modules below, which would delay help pages

    return f"{socket.gethostname().replace('.', '-')}.{os.getpid()}"


def unique_tag() -> str:
    """Return `process_tag` with the number of the thread before it, unless it is the main one."""
    thread = threading.current_thread()
    return process_tag() if thread is threading.main_thread() else f"{thread.native_id}.{process_tag()}"


def remove_stale(folder: Path, name: str | None = None) -> None:
    """Remove temporary files (of `name`, or all) in a folder that killed processes of this machine have left."""
    here = process_tag().partition(".")[0]
    for path in folder.glob(".*.tmp" if name is None else f".{glob.escape(name)}.*.tmp"):
        mark = _TEMPORARY.fullmatch(path.name)
        if mark is not None and mark[1] == here and not _alive(int(mark[2])):
            with suppress(OSError):  # raised for a read-only folder
                path.unlink()


def _alive(process: int) -> bool:
    if sys.platform == "win32":  # os.kill(process, 0) would send Ctrl-C
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return True


@contextmanager
def atomic_write(path: Path, *, synced: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block ends without an error.

    The temporary is synced to disk before the rename and removed after a failure, so that `path` holds the old file or
    the new one at every moment. The folder is synced after it: after a power failure no later file exists without this
    one. synced=False leaves syncing to the system, for files that can be recomputed: a power failure can truncate them.
    """
    if os.path.isdir(path) or path.name in ("", ".."):
        raise UserError(f"{path} is a folder: name a file, e.g. {path / 'NAME'}")
    if path == Path("-"):
        raise UserError("-: standard output is for to= of lmtool score, surprisal and pairs alone: name a file")
    temporary = path.with_name(f".{path.name}.{unique_tag()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_stale(path.parent, path.name)
        yield temporary
        if synced:
            sync(temporary)
        temporary.chmod(0o666 & ~_MASK)  # some libraries create files that other users cannot read
        temporary.replace(path)
        if synced:
            sync_names(path.parent)
    except OSError as error:
        with suppress(OSError):  # the folder itself may be the reason
            temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Flush a file to disk, if it exists."""
    with suppress(FileNotFoundError), path.open("rb+") as handle:  # Windows syncs only files that are open for writing
        os.fsync(handle.fileno())


def sync_names(folder: Path) -> None:
    """Flush the names of a folder's files to disk, and, once per process, the names of the folders above it."""
    _sync_folder(folder)
    _sync_above(folder.resolve())


@cache
def _sync_above(folder: Path) -> None:
    for above in folder.parents:
        _sync_folder(above)


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # raised for a folder above that may be used but not listed
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems where folders cannot be synced
            raise
    finally:
        os.close(handle)


@contextmanager
def packed_file(path: Path, name: str | Path) -> Iterator[IO[bytes]]:
    """Open a file to write, packed by the suffix of a name: .gz (without a timestamp), .xz, .bz2, .zst, or none."""
    match PurePosixPath(name).suffix:
        case ".gz":
            import gzip

            with path.open("wb") as raw, gzip.GzipFile("", "wb", 3, raw, mtime=0) as zipped:
                yield zipped  # type: ignore[misc]
        case ".xz" | ".bz2" as suffix:
            with import_module("lzma" if suffix == ".xz" else "bz2").open(path, "wb") as packed:
                yield packed
        case ".zst":
            try:
                import pyarrow as pa
            except ImportError:
                raise UserError(f'{name}: .zst needs pyarrow: pip install "lmtool[arrow]", or use .gz') from None
            with pa.OSFile(str(path), "wb") as file, pa.CompressedOutputStream(file, "zstd") as stream:
                yield stream
        case suffix if suffix in NOT_WRITTEN:
            raise UserError(f"{name}: lmtool writes no {suffix} file: use .gz, .xz, .bz2, .zst, or none of these")
        case _:
            with path.open("wb") as plain:
                yield plain


def cannot_write(path: Path, error: OSError) -> UserError:
    """Return a one-line error for a failed write."""
    reason = error.strerror or first_line(error)
    if error.errno == errno.ENOMEM:
        return UserError(f"cannot write {path}: {reason}; give this process more memory, or set counts.memory")
    return UserError(f"cannot write {path}: {reason}; free some space, or choose a folder you can write to")


def make_folder(path: Path) -> None:
    """Make a folder and its parents unless it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_json(path: Path, value: Any) -> None:
    """Write an object as indented JSON, completely or not at all, with a checksum as its first entry.

    JSON has no inf and nan: they are null, and an entry `not_finite` has their values, e.g. {"perplexity": "inf"}.
    """
    replaced: dict[str, str] = {}
    value = _finite({key: entry for key, entry in value.items() if key not in (KEY, NOT_FINITE)}, "", replaced)
    value = {KEY: ZEROS} | value | ({NOT_FINITE: replaced} if replaced else {})
    with atomic_write(path) as temporary:
        temporary.write_bytes(json.dumps(value, indent=2, allow_nan=False).encode() + b"\n")
        seal(temporary)


def _finite(value: Any, place: str, replaced: dict[str, str]) -> Any:
    """Return a value with None instead of inf and nan, whose positions are added to `replaced`."""
    if isinstance(value, dict):
        return {key: _finite(entry, f"{place}.{key}" if place else str(key), replaced) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry, f"{place}[{number}]", replaced) for number, entry in enumerate(value)]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    replaced[place] = str(value)
    return None


def read_json(path: Path, remedy: str, kind: Any = OBJECT, version: int | None = None) -> Any:
    """Read JSON and verify its checksum, which is left out of the result; remedy: the end of any error's message.

    kind: the schema, as in lmtool.system.schemas. version: the required value of the entry `format`.
    """
    try:
        value = parse_json(path.read_bytes())
        if version is not None and isinstance(value, dict) and value.get("format", version) != version:
            raise UserError(f"{path} is of another version of lmtool (format {value['format']}): {remedy}")
        verify(path)
        if isinstance(value, dict):
            value.pop(KEY, None)
        require_kind(value, kind)
    except DamagedFile as error:
        by_hand = f'delete its entry "{KEY}" if you changed it by hand'
        raise UserError(f"{path} is not as it was written: {error}; {by_hand}, otherwise {remedy}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; {remedy}") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): {remedy}") from error
    return value


def read_json_lines(path: Path, remedy: str, kind: Any) -> list[Any]:
    """Read a file with one JSON value of a kind per line."""
    try:
        texts = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path} ({error}): {remedy}") from error
    values = []
    for number, text in enumerate(texts, 1):
        try:
            values += [parse_json(text, kind)] if text else []
        except ValueError as error:
            raise UserError(f"{path} is damaged in line {number} ({error}): {remedy}") from None
    return values

"""`preprocess`: text becomes a store, in one pass of bounded memory, whole or not at all.

The pass writes provisional ids to a temporary file; when the counts are known the vocabulary is chosen and the
ids are renumbered, piece by piece, into the store.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from lmtool import __version__
from lmtool.config import DataConfig, PydocData, SyntheticData, TextData, ToyData
from lmtool.data.corpus import FORMAT, KIND, Corpus
from lmtool.data.sources import NoSource, Source
from lmtool.data.store_writer import Row, count_ids, write_cloze, write_split, write_vocabulary
from lmtool.errors import UserError
from lmtool.system.files import cannot_write, reserve, written_whole

log = logging.getLogger(__name__)
TEMPORARY = re.compile(r"\..*\.(\d+)\.(?:ids\.)?tmp")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A store: whether this call made it, a row a split for the table, and what the user should know."""

    path: Path
    created: bool
    rows: list[Row]
    notes: list[str]


def prepare(data: DataConfig, store_dir: Path, *, progress: bool) -> Prepared:
    """Make the store of a data set, unless it is there and neither settings nor text have changed.

    A finished one is used as it is, with a note, where the text is no longer on this machine: it is not downloaded to
    be compared. Raises UserError for text that is missing or no text, and where the store cannot be written.
    """
    path = store_path(data, store_dir)
    existing = _finished(path)
    try:
        source = _source(data, progress=progress, download=existing is None)
    except NoSource:
        if existing is None:
            raise
        log.warning("note: the sources of data=%s cannot be found; the store %s is used as it is", data.name, path)
        return Prepared(path, False, existing["rows"], existing["notes"])
    if existing is not None and _same_text(existing, source):
        return Prepared(path, False, existing["rows"], existing["notes"])
    try:
        store_dir.mkdir(parents=True, exist_ok=True)
        _remove_stale(store_dir)
        with ExitStack() as stack:
            # Hashing the sources needs no part of what the pass does; it goes on beside it.
            hashing = stack.enter_context(ThreadPoolExecutor(1)).submit(source.identity)
            _build(data, source, path, stack, hashing.result, progress=progress)
    except OSError as error:
        raise cannot_write(path, error) from error
    with Corpus.open(path) as corpus:
        return Prepared(path, True, corpus.provenance["rows"], corpus.provenance["notes"])


def store_path(data: DataConfig, store_dir: Path) -> Path:
    """The file of a data set's store: a name a person can read, and the settings' hash."""
    return store_dir / f"{data.name}-{hashlib.sha256(_settings(data).encode()).hexdigest()[:10]}.h5"


def _settings(data: DataConfig) -> str:
    plain = asdict(data, dict_factory=lambda pairs: {k: v.value if isinstance(v, Enum) else v for k, v in pairs})
    return json.dumps(plain, sort_keys=True)


def _source(data: DataConfig, *, progress: bool, download: bool) -> Source:
    match data:
        case TextData():
            from lmtool.data.sources.text import text_source

            return text_source(data, progress=progress, download=download)
        case PydocData():
            from lmtool.data.sources.pydoc import pydoc_source

            return pydoc_source(data)
        case ToyData():
            from lmtool.data.sources.toy import toy_source

            return toy_source()
        case SyntheticData():
            return Source(splits={}, stamp={"seed": data.seed})
    raise UserError(f"data.kind={data.kind} is not known to this version of lmtool")


def _finished(path: Path) -> dict[str, Any] | None:
    """The provenance of a store that can be used; None where it is missing, cut off or of an older format."""
    if not path.exists():
        return None
    try:
        with Corpus.open(path) as corpus:
            return corpus.provenance
    except UserError:
        return None


def _same_text(known: dict[str, Any], source: Source) -> bool:
    return bool(known["stamp"] == json.loads(json.dumps(source.stamp)) or known["identity"] == source.identity())


def _remove_stale(store_dir: Path) -> None:
    """Remove temporary files whose process has died."""
    for path in store_dir.glob(".*.tmp"):
        mark = TEMPORARY.fullmatch(path.name)
        if mark and not Path(f"/proc/{mark[1]}").exists() and not _alive(int(mark[1])):
            path.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


@dataclass(slots=True)
class _Pass:
    """What the one pass over the text leaves: provisional ids on disk, by split, and the types."""

    ids: dict[str, npt.NDArray[np.int32]]
    types: list[str]
    characters: dict[str, int]
    empty_lines: int


def _build(
    data: DataConfig,
    source: Source,
    path: Path,
    stack: ExitStack,
    identify: Callable[[], dict[str, Any]],
    *,
    progress: bool,
) -> None:
    from lmtool.data.choose_vocabulary import read_word_list, select
    from lmtool.data.sources.text import locate

    if isinstance(data, SyntheticData):
        from lmtool.data.sources.synthetic import entropy, type_names

        read = _draw(data, path, stack, progress=progress)
        given: list[str] | None = type_names(data)
        notes = [_entropy_note(entropy(data))]
    else:
        read = _tokenise(data, source, path, stack, progress=progress)
        given = None
        if data.vocabulary.file is not None:
            assert isinstance(data, TextData), "only text has word lists"
            listed = locate(data.vocabulary.file, "vocabulary.file", data, progress=progress)
            given = read_word_list(str(listed), data.vocabulary)
        notes = list(source.notes)
    counts = count_ids(read.ids["train"], len(read.types))
    if counts.sum() == 0:
        raise UserError(f"{data.name}: the train split has no words; give it more text")
    if read.empty_lines:
        notes.append(f"{read.empty_lines:,} empty lines are no sentences and were left out")
    vocabulary, remap, oov = select(read.types, counts, data.vocabulary, given=given, sentences=data.sentences)
    reserve(path, _store_size(read, len(vocabulary)))
    try:
        with written_whole(path) as temporary, h5py.File(temporary, "w") as file:
            write_vocabulary(file.create_group("vocabulary"), vocabulary)
            rows = [
                write_split(file, name, ids, remap, oov, vocabulary, read.characters.get(name, 0))
                for name, ids in read.ids.items()
            ]
            if isinstance(data, TextData):
                write_cloze(file, data, vocabulary, progress=progress)
            if isinstance(data, SyntheticData):
                file.attrs["entropy"] = entropy(data)
            identity = identify()
            provenance = {
                "version": __version__,
                "settings": json.loads(_settings(data)),
                "stamp": source.stamp,
                "identity": identity,
                "rows": rows,
                "notes": notes,
            }
            told = f"{FORMAT} {_settings(data)} {json.dumps(identity, sort_keys=True)}"
            file.attrs["kind"] = KIND
            file.attrs["format"] = FORMAT
            file.attrs["name"] = data.name
            file.attrs["sentences"] = data.sentences
            file.attrs["splits"] = json.dumps(list(read.ids))
            file.attrs["fingerprint"] = hashlib.sha256(told.encode()).hexdigest()
            file.attrs["provenance"] = json.dumps(provenance)
            file.attrs["complete"] = True
    except RuntimeError as error:  # what h5py raises when it cannot flush
        raise cannot_write(path, OSError(str(error))) from error


def _store_size(read: _Pass, vocabulary: int) -> int:
    """Bytes that the store needs at most, but for cloze questions, which are few."""
    item = np.min_scalar_type(vocabulary).itemsize
    tokens = sum(len(ids) for ids in read.ids.values())
    letters = sum(len(word) for word in read.types)
    # Offsets and OOV positions are 8 bytes each, a share of the tokens that is small but not known yet.
    return item * tokens + tokens + 4 * letters + 8 * vocabulary + (4 << 20)


def _entropy_note(nats: float) -> str:
    return f"the source's own entropy is {nats:.6f} nats a token: no model has a perplexity below {np.exp(nats):.3f}"


def _tokenise(data: DataConfig, source: Source, path: Path, stack: ExitStack, *, progress: bool) -> _Pass:
    from lmtool.data.text_split import tokeniser_of

    tokeniser = tokeniser_of(data)
    found: dict[str, npt.NDArray[np.int32]] = {}
    characters: dict[str, int] = {}
    with tqdm(unit=" tokens", unit_scale=True, disable=not progress, leave=False) as bar:
        for name, blocks in source.splits.items():
            before = tokeniser.characters
            handle = stack.enter_context(_temporary(path, name))
            for block in _ahead(blocks()):
                ids = tokeniser(block, name)
                ids.tofile(handle)
                bar.update(len(ids))
            found[name] = _mapped(handle)
            characters[name] = tokeniser.characters - before
    if source.parts is not None:
        from lmtool.data.sources.text import cut_points

        whole = found["train"]
        ends = cut_points(len(whole), *source.parts)
        found = {"train": whole[: ends[0]], "valid": whole[ends[0] : ends[1]], "test": whole[ends[1] :]}
        characters = {}  # known of the whole only
    return _Pass(found, tokeniser.types(), characters, tokeniser.empty_lines)


def _ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The blocks, each read and checked by a second thread while the one before it is tokenised."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = reader.submit(next, blocks, None)
            yield block


def _draw(data: SyntheticData, path: Path, stack: ExitStack, *, progress: bool) -> _Pass:
    from lmtool.data.sources.synthetic import draw, type_names

    found: dict[str, npt.NDArray[np.int32]] = {}
    size = np.dtype(np.int32).itemsize * (data.tokens + data.valid_tokens + data.test_tokens)
    if size > shutil.disk_usage(path.parent).free:
        raise UserError(f"data.tokens={data.tokens}: {size / 2**30:,.1f} GiB of ids do not fit into {path.parent}")
    with tqdm(unit=" tokens", unit_scale=True, disable=not progress, leave=False) as bar:
        for name in ("train", "valid", "test"):
            handle = stack.enter_context(_temporary(path, name))
            for ids in draw(data, name):
                ids.tofile(handle)
                bar.update(len(ids))
            found[name] = _mapped(handle)
    return _Pass(found, type_names(data), {}, 0)


@contextmanager
def _temporary(path: Path, split: str) -> Iterator[IO[bytes]]:
    """A temporary file of ids beside the store, gone when its block ends."""
    name = path.with_name(f".{path.name}.{split}.{os.getpid()}.ids.tmp")
    handle = name.open("w+b")
    try:
        yield handle
    finally:
        with suppress(OSError):  # what could not be written cannot be flushed either
            handle.close()
        name.unlink(missing_ok=True)


def _mapped(handle: IO[bytes]) -> npt.NDArray[np.int32]:
    handle.flush()
    size = os.fstat(handle.fileno()).st_size
    return np.memmap(handle, dtype=np.int32, mode="r") if size else np.empty(0, dtype=np.int32)

"""Make the store of a text in one pass of bounded memory, completely or not at all.

Step 1: read the text once and number types in the order of their first occurrence (first_pass.py). Step 2: choose the
vocabulary from the counts in train (choose_vocabulary.py). Step 3: renumber the ids, piece by piece, into the store
(store.py).
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from lmtool import __version__
from lmtool.config.data import DataConfig
from lmtool.config.rules import MISSING
from lmtool.data import choose_vocabulary as choose
from lmtool.data import store as stores
from lmtool.data.first_pass import Provisional, provisional_ids, shared_sentences
from lmtool.data.remote import as_path, is_address
from lmtool.data.segmenters import lacks_spaces
from lmtool.data.sources.base import NoSource, Source, TextNotRetained
from lmtool.data.store import Store, UnusableStore
from lmtool.data.subwords import Subwords
from lmtool.data.text_rules import TextRules, notes_on_words
from lmtool.data.text_size import text_size
from lmtool.data.tokenizer import BOS_ID, EOS_ID, RESERVED
from lmtool.errors import RecordError, UserError
from lmtool.system.files import cannot_write, remove_stale
from lmtool.system.hdf5_files import atomic_hdf5
from lmtool.system.lock import wait_for_lock

log = logging.getLogger(__name__)

EXAMPLES = 100_000  # tokens of a split that are examined for scripts without spaces


def preprocess(data: DataConfig, store_dir: str | Path, *, progress: bool, source: Source | None = None) -> Store:
    """Make the store of a data set, unless one exists and neither settings nor text have changed; return it open.

    A store at an address is used unchanged. A finished store is also used, with a note, if its text is no longer on
    this machine: nothing is downloaded for a comparison. progress: whether to show progress bars. source: the text, if
    the caller has it; None to find it by the settings.
    """
    store_dir = as_path(store_dir)
    path = store_path(data, store_dir)
    if source is not None and source.label:
        path = path.with_stem(f"{path.stem}-{source.label}")  # without ids of train: no other command may use it
    existing = _find_store(path)
    if is_address(str(store_dir)):
        if existing is None:
            raise UserError(f"no store {path}: make it in a folder by lmtool preprocess, and put it there")
        return existing
    remove_stale(store_dir)
    try:
        source = source or data.source(progress=progress, download=existing is None)
    except NoSource as missing:
        if existing is None:
            raise
        if not isinstance(missing, TextNotRetained):
            log.warning("note: the sources of data=%s cannot be found; the store %s is used as it is", data.name, path)
        return existing
    if existing is not None and _has_same_text(existing, source):
        return existing
    unit = data.vocabulary.unit
    if unit.is_subword and source.counted is not None:
        what = "this source counts words elsewhere and gives no text"
        raise UserError(f"data.vocabulary.unit={unit.value}: {what}; take unit=word")
    if existing is not None:
        existing.close()
    try:
        store_dir.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(path, lambda holder: log.warning("note: waiting for %s, which writes %s", holder, path)):
            current = _find_store(path)
            if current is not None:
                is_new = existing is None or current.provenance != existing.provenance
                if is_new and _has_same_text(current, source):
                    return current  # another process wrote it meanwhile
                current.close()
            remove_stale(store_dir)
            with ThreadPoolExecutor(1) as second_thread:
                identity = second_thread.submit(source.identity)  # the hashes of the files, while they are tokenized
                with provisional_ids(data, source, path, progress=progress) as provisional:
                    _write(data, source, path, provisional, identity.result)
    except OSError as error:
        raise cannot_write(path, error) from error
    except UserError as error:  # shows the notes, e.g. if no words remain as all records are left out
        remedy = [f"or {source.faults.setting}=skip leaves such records out"] if isinstance(error, RecordError) else []
        raise UserError("; ".join([str(error), *remedy, *source.faults.notes()])) from error
    store = Store.open(path)
    store.created = True
    return store


def store_path(data: DataConfig, store_dir: Path) -> Path:
    """Return the path of a data set's store: its name and the hash of its settings."""
    return store_dir / f"{data.name}-{hashlib.sha256(settings_json(data).encode()).hexdigest()[:10]}.h5"


def settings_json(data: DataConfig) -> str:
    """Return the settings of a data set as JSON, from which the names and fingerprints of stores are made."""
    plain = asdict(data, dict_factory=lambda pairs: {k: v.value if isinstance(v, Enum) else v for k, v in pairs})
    for setting in fields(data):  # without defaults, so that new settings change no names
        if setting.name != "kind" and setting.default != MISSING and getattr(data, setting.name) == setting.default:
            del plain[setting.name]
    if not plain["vocabulary"]["closed"]:
        del plain["vocabulary"]["closed"]
    return json.dumps(plain, sort_keys=True)


def _find_store(path: Path) -> Store | None:
    """Return the store at a path or address; None if it is missing, cut off or of another format."""
    try:
        return Store.find(path)
    except UnusableStore:
        return None


def _has_same_text(store: Store, source: Source) -> bool:
    known = store.provenance
    return bool(known["stamp"] == json.loads(json.dumps(source.stamp)) or known["identity"] == source.identity())


def _write(
    data: DataConfig, source: Source, path: Path, provisional: Provisional, identify: Callable[[], dict[str, Any]]
) -> None:
    counted = source.counted() if source.counted is not None else None
    subwords: Subwords | None = None
    remap: stores.Remap
    types, rules = provisional.types, data.vocabulary
    if counted is not None:
        vocabulary = counted.vocabulary
        remap = vocabulary.encode(types).astype(np.int32)
        oov = np.array([k >= len(RESERVED) and word not in vocabulary.ids for k, word in enumerate(types)])
    else:
        counts = stores.count_ids(provisional.ids["train"], len(types))
        has_end = data.sentences and data.sentence_end
        if counts.sum() == 0:
            raise UserError(f"{data.name}: the train split has no words; give it more text")
        if rules.unit.is_subword:
            subwords = choose.choose_pieces(source, types, counts, rules)
            vocabulary, remap = choose.vocabulary_of_pieces(subwords, types, counts, rules, sentences=has_end)
            oov = np.zeros(len(types), dtype=bool)
        else:
            word_list = types if source.drawn is not None else choose.listed_words(source, data)
            vocabulary, remap, oov = choose.select(types, counts, rules, word_list=word_list, sentences=has_end)
    entropy = source.drawn.entropy() if source.drawn is not None and source.drawn.entropy is not None else None
    tokens = sum(stores.count_tokens(ids, remap, vocabulary) for ids in provisional.ids.values())
    letters = sum(map(len, types))
    # Offsets and OOV positions take 8 bytes each, for a small share of the tokens, which is still unknown.
    size = (np.min_scalar_type(len(vocabulary)).itemsize + 1) * tokens + 4 * letters + 8 * len(vocabulary) + (4 << 20)
    with atomic_hdf5(path, size) as file:
        group, rows, words = file.create_group("vocabulary"), [], 0
        if counted is not None:
            rows.append(stores.write_counted(group, counted))
        else:
            stores.write_vocabulary(group, vocabulary, subwords)
        for name, ids in provisional.ids.items():
            characters, count = text_size(ids, types, chars=rules.unit.is_character)
            characters -= provisional.inserted_spaces.get(name, 0)
            count -= int(np.count_nonzero(ids == EOS_ID)) if vocabulary.eos is None else 0
            rows.append(stores.write_split(file, name, ids, remap, oov, vocabulary, characters, count))
            words += count - (0 if vocabulary.eos is None else int(rows[-1]["sentences"] or 0))
        ends = provisional.sources.items()
        sources = {name: stores.count_tokens(provisional.ids["train"][:end], remap, vocabulary) for name, end in ends}
        if sources:
            file["splits/train"].attrs["sources"] = json.dumps(sources)
        if subwords is None:
            stores.write_cloze(file, source, vocabulary, TextRules.of(data).word_rules)
        if entropy is not None:
            file.attrs["entropy"] = entropy
        identity = identify()
        word_notes = source.faults.notes()  # which `train` prints, too
        if not all(map(str.isascii, types)):
            totals = np.sum([stores.count_ids(ids, len(types)) for ids in provisional.ids.values()], axis=0).tolist()
            word_notes += notes_on_words(zip(types, totals, strict=True), data, provisional.changed_words, words)
        heads = {name: ids[:EXAMPLES][ids[:EXAMPLES] > BOS_ID].tolist() for name, ids in provisional.ids.items()}
        unspaced = [name for name, ids in heads.items() if lacks_spaces(types[k] for k in ids)]
        provenance = {
            "version": __version__,
            "settings": json.loads(settings_json(data)),
            "stamp": source.stamp,
            "identity": identity,
            "rows": rows,
            "cut": source.cut,
            "unspaced": unspaced,
            "notes_on_words": word_notes,
            "valid_in_train": shared_sentences(provisional.ids, sentences=data.sentences) if source.splits else 0.0,
            "notes": _notes(source, provisional.empty_lines + (counted.empty_lines if counted else 0), entropy, sources)
            + word_notes
            + (_notes_of_pieces(data, source, subwords, provisional, rows) if subwords is not None else []),
        }
        fingerprinted = f"{stores.TOKENS} {settings_json(data)} {json.dumps(identity, sort_keys=True)}"
        fingerprinted += f" {subwords.fingerprint}" if subwords is not None else ""
        file.attrs.update(
            kind=stores.KIND,
            format=stores.FORMAT,
            name=data.name,
            sentences=data.sentences,
            splits=json.dumps(list(provisional.ids)),
            fingerprint=hashlib.sha256(fingerprinted.encode()).hexdigest(),
            provenance=json.dumps(provenance),
            complete=True,
        )


def _notes(source: Source, empty_lines: int, entropy: float | None, ends: dict[str, int]) -> list[str]:
    notes = list(source.notes)
    if entropy is not None:
        bound = f"no model has a perplexity below {np.exp(entropy):.3f}"
        notes.append(f"the source's own entropy is {entropy:.6f} nats per token: {bound}")
    if empty_lines:
        notes.append(f"skipped {empty_lines:,} empty lines")
    if ends:
        tokens = zip(ends, np.diff([0, *ends.values()]).tolist(), strict=True)
        listed = ", ".join(f"{name} {count:,} tokens" for name, count in tokens)
        notes.append(f"{len(ends)} sources of train: {listed}")
    return notes


def _notes_of_pieces(
    data: DataConfig, source: Source, subwords: Subwords, provisional: Provisional, rows: list[stores.SplitRow]
) -> list[str]:
    words, pieces = len(provisional.ids["train"]), int(rows[0]["tokens"] or 0)
    notes = [f"{pieces / words:.3f} pieces for each word and sentence end of train"]
    notes += [f"the pieces consist of {subwords.about}"] if subwords.about else []
    size, min_count = data.vocabulary.size, data.vocabulary.min_count
    if size is not None and len(subwords.names) < size:
        remedy = f"; data.vocabulary.min_count={min_count} leaves rare words out" if min_count > 1 else ""
        notes.append(f"{len(subwords.names):,} pieces, not {size:,}: the words of train have no more{remedy}")
    return [*notes, "the cloze questions are left out: they ask for words, not for pieces"] if source.cloze else notes

"""Make a store of text given from Python, as strings or lists of words: the work of `Corpus.from_texts`.

A run keeps the digest of the text, not the text; with its store it is like any other run.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import IO, Any

from lmtool.data.faults import Faults, without_marks
from lmtool.data.first_pass import mark_checker
from lmtool.data.preprocess import preprocess
from lmtool.data.sources.base import Blocks, Source, cut_by_lines, cut_points
from lmtool.data.sources.builtin import TextsData
from lmtool.data.store import Store
from lmtool.data.text_rules import TextRules
from lmtool.data.tokenizer import split_words
from lmtool.errors import RecordError, UserError
from lmtool.system.files import cannot_write

IN_MEMORY = 32 << 20  # maximum bytes of a split's text in memory; a longer one goes to a temporary file
BLOCK = 4 << 20  # bytes read at a time
SENTENCES = 1 << 12  # sentences written at a time


def write_texts(splits: dict[str, Any], data: TextsData, words: Any, store_dir: Path) -> Store:
    """Make the store of text given from Python, unless it exists already; return it open.

    splits, words: as given to Corpus.from_texts. data: settings, except the digest.
    """
    shares = _shares(splits)
    faults = Faults(data.on_error)
    vocabulary = None if words is None else _vocabulary(words, data)
    digest = hashlib.sha256(json.dumps([shares, vocabulary]).encode())
    with ExitStack() as files:
        texts: dict[str, Callable[[], Blocks]] = {}
        counts: dict[str, int] = {}
        for split, items in splits.items():
            if items is not None and split not in shares:
                file = files.enter_context(tempfile.SpooledTemporaryFile(IN_MEMORY))
                digest.update(f"\0{split}\0".encode())
                counts[split] = _write(_lines(items, split, data, faults), file, digest)
                texts[split] = partial(_blocks, file)
        digest.update("".join(faults.notes()).encode())  # the store keeps the notes
        stamp = {"digest": digest.hexdigest()}
        parts = None
        if shares:
            sizes = round(1 - sum(shares.values()), 9), shares["valid"]
            if data.sentences:
                try:
                    cut_points(counts["train"], *sizes)
                except UserError:
                    few = f"{_format_shares(shares)}: too few sentences in train to cut, {counts['train']:,}"
                    raise UserError(f"{few}; give more") from None
                texts = cut_by_lines(texts["train"], *sizes)
            else:
                parts = sizes
        source = Source(texts, stamp, lambda: stamp, parts, word_list=vocabulary, cut=bool(shares), faults=faults)
        return preprocess(replace(data, digest=stamp["digest"]), store_dir, progress=False, source=source)


def _shares(splits: dict[str, Any]) -> dict[str, float]:
    shares = {split: float(value) for split, value in splits.items() if isinstance(value, Real)}
    listed = _format_shares(shares)
    if "train" in shares or splits["train"] is None:
        raise UserError(f"train={splits['train']}: must be sentences, each a string or a list of words")
    if not all(0 < share < 1 for share in shares.values()) or sum(shares.values()) >= 1:
        raise UserError(f"{listed}: a share of train must be between 0 and 1, and something must be left of train")
    if shares and ("valid" not in shares or (splits["test"] is not None and "test" not in shares)):
        raise UserError(f"{listed}: valid and test must both be sentences, or both be shares of train")
    return shares


def _format_shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{split}={share:g}" for split, share in shares.items())


def _vocabulary(words: Any, data: TextsData) -> list[str]:
    """Check the given words and return them rewritten by the rules of the text."""
    rules, rewrite = data.vocabulary, TextRules.of(data).word_rules
    if rules.unit.is_subword:
        pieces = f"unit={rules.unit.value!r}, whose pieces are learned from train"
        raise UserError(f"words is given with {pieces}; leave it out")
    if rules.size is not None:
        raise UserError(f"size={rules.size}: words is the whole vocabulary; leave one of them out")
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise UserError(f"words={words!r:.60}: must be a list of words")
    vocabulary: dict[str, None] = {}
    for word in words:
        _require_word(word, "words", chars=rules.unit.is_character)
        _encode(word, "words")
        word = rewrite(word)
        if word in vocabulary:
            raise UserError(f"words: {word!r} is listed twice; remove one")
        vocabulary[word] = None
    return list(vocabulary)


def _require_word(word: object, where: str, *, chars: bool) -> None:
    if not isinstance(word, str):
        raise RecordError(f"{where}: {word!r:.60} is {type(word).__name__}, not a string")
    if not word or (not chars and split_words(word) != [word]):
        raise RecordError(f"{where}: {word!r:.60} is not a word: it is empty or has white space in it")


def _lines(items: Any, split: str, data: TextsData, faults: Faults) -> Iterator[bytes]:
    """Yield the sentences as lines, without byte-order marks at their starts and without items that are faults."""
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        remedy = "text.splitlines()" if isinstance(items, str) else "['the cat sat', ['the', 'dog', 'ran']]"
        raise UserError(f"{split}={items!r:.40}: must be a list of sentences, e.g. {split}={remedy}")
    check = mark_checker(data)
    for number, item in enumerate(items, start=1):
        where = f"{split}, sentence {number:,}"
        with faults:
            line = _line(item, where, chars=data.vocabulary.unit.is_character)
            if data.sentences and "\n" in line:
                remedy = "give each sentence by itself, as by text.splitlines()"
                raise RecordError(f"{where}: a line end within it: {remedy}")
            encoded = without_marks(_encode(line, where) + b"\n", split, begins_file=number == 1)
            if b">" in encoded or not encoded.isascii():
                check(encoded, where)
            yield encoded


def _line(item: object, where: str, *, chars: bool) -> str:
    if isinstance(item, str):
        return item.removesuffix("\n").removesuffix("\r")
    if chars or isinstance(item, bytes) or not isinstance(item, Iterable):
        kinds = "a string" if chars else "a string or a list of words"
        raise RecordError(f"{where}: {item!r:.60} is {type(item).__name__}, not {kinds}")
    words = list(item)
    line = " ".join(words) if all(isinstance(word, str) for word in words) else ""
    if split_words(line) != words:
        for word in words:
            _require_word(word, where, chars=False)
    return line


def _encode(text: str, where: str) -> bytes:
    if "\0" in text:
        raise RecordError(f"{where}: a NUL character: this is not text")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RecordError(f"{where}: {text[error.start]!r} cannot be encoded in UTF-8") from None


def _write(lines: Iterator[bytes], file: IO[bytes], digest: Any) -> int:
    """Write lines and add them to the digest; return the number of lines with words."""
    with_words = 0
    while piece := list(islice(lines, SENTENCES)):
        text = b"".join(piece)
        digest.update(text)
        with_words += sum(not line.isspace() for line in piece)
        try:
            file.write(text)
        except OSError as error:
            raise cannot_write(Path(tempfile.gettempdir()), error) from error
    return with_words


def _blocks(file: IO[bytes]) -> Blocks:
    file.seek(0)
    while lines := file.readlines(BLOCK):
        yield b"".join(lines)

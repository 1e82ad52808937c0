"""Files of counts -> Counts: the same, to the bit, as of the text that was counted.

A file has n-grams of all orders, in any order of lines: `a b c<tab>12`, as SRILM's `ngram-count -write` writes them, or
columns `words` and `count` in Parquet. A folder with a subfolder `1gms` has files for each order, as Google's n-grams.
Where words first occur in the text decides ties: it is taken from the order of the 1-grams.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.config.data import VocabularyConfig
from lmtool.data.choose_vocabulary import numbered, select
from lmtool.data.corpus import Corpus
from lmtool.data.readers import MEMBER, PARQUET, form_of, parquet_columns, read_blocks, read_errors
from lmtool.data.sources.base import ExternalCounts
from lmtool.data.text_files import find_files, text_files
from lmtool.data.tokenizer import EOS_ID, RESERVED, UNK_ID
from lmtool.data.unpacking import open_files
from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.data.word_table import WordTable, find_words
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import MAX_ORDER, Counts, newest_of_trie, unigram_counts
from lmtool.ngram.counting.radix_sort import sort_keys
from lmtool.ngram.files.counts_lines import GOOD, parse_counts
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.storage import Storage
from lmtool.ngram.tables.trie import Trie, TrieBuilder, ngram_keys
from lmtool.system.arrays import IntArray

Array = npt.NDArray[Any]
log = logging.getLogger(__name__)
ROWS = 1 << 16  # n-grams parsed at once
NAMES = {"<S>": BOS, "</S>": EOS, "<UNK>": UNK}  # Google's
COLUMNS = ["words", "count"]  # of Parquet
BESIDE = ("vocab_cs", "total")  # what a folder of Google's has beside the n-grams, and files that end in .idx


@dataclass(frozen=True, slots=True)
class CountFiles:
    """What counts.path names. weights: how often the counts of each count, whole numbers."""

    paths: list[str]
    weights: list[int]

    def files(self) -> list[str]:
        """All files. Raises UserError where one is not found."""
        return list(dict.fromkeys(file for path in self.paths for file in _files(path, None)))

    def rows(self, k: int) -> Iterator[tuple[Array, Array, IntArray, str, int]]:
        """The n-grams of order k, some at a time: a block of bytes, their words' spans int64 `[M, k, 2]` in it, their
        weighted counts `[M]`, and the file and the line from which on they stand there.

        Raises UserError, naming file and line, for a line that is no n-gram with its count.
        """
        for path, weight in zip(self.paths, self.weights, strict=True):
            for file in _files(path, k):
                line = 1
                for content in _blocks(file):
                    block = np.frombuffer(content, dtype=np.uint8)
                    at = 0
                    while at < len(block):
                        spans, counts = np.empty((ROWS, k, 2), dtype=np.int64), np.empty(ROWS, dtype=np.int64)
                        at, lines, found, error = parse_counts(block, at, spans, counts)
                        if found:
                            yield block, spans[:found], counts[:found] * weight, file, line
                        line += int(lines)
                        if error != GOOD:
                            raise UserError(f"{file}, line {line}: should be words and a whole number, their count")

    def unigrams(self) -> dict[str, int]:
        """The 1-grams with their counts, in the order of the files. Raises UserError where there are none."""
        found: dict[str, int] = {}
        for block, spans, counts, _, _ in self.rows(1):
            for (first, last), count in zip(spans[:, 0].tolist(), counts.tolist(), strict=True):
                word = block[first:last].tobytes().decode()
                found[word] = found.get(word, 0) + count
        if not found:
            raise UserError(f"counts.path={', '.join(self.paths)} has no 1-grams: it needs n-grams of all orders")
        return found


def _files(path: str, k: int | None) -> list[str]:
    """The files of a path with n-grams of order k, None for all."""
    folder = path.rstrip("/")
    if not find_files(f"{folder}/1gms"):
        return text_files(path, "counts.path")
    orders = [k] if k is not None else range(1, MAX_ORDER + 1)
    found = [file for order in orders for file in find_files(f"{folder}/{order}gms")]
    return [file for file in found if not Path(file).name.startswith(BESIDE) and not file.endswith(".idx")]


def _blocks(file: str) -> Iterator[bytes]:
    """Blocks of whole lines."""
    if form_of(file) != PARQUET:
        yield from read_blocks(file)
        return
    path, _, member = file.partition(MEMBER)
    with read_errors(file):
        for handle in open_files(path, member):
            row = 0
            for words, counts in parquet_columns(handle, file, COLUMNS, "it must have words and count; it has"):
                wrong = [k for k, pair in enumerate(zip(words, counts, strict=True)) if not _is_row(*pair)]
                if wrong:
                    raise UserError(
                        f"{file}, row {row + wrong[0] + 1}: should be words and a whole number, their count"
                    )
                row += len(words)
                yield "".join(f"{ngram}\t{count}\n" for ngram, count in zip(words, counts, strict=True)).encode()


def _is_row(words: object, count: object) -> bool:
    return isinstance(words, str) and "\n" not in words and type(count) is int and count >= 0


def counted_train(files: CountFiles, rules: VocabularyConfig, given: list[str] | None) -> ExternalCounts:
    """The vocabulary of the text that was counted. given: its words in their order; None where counts decide.

    Raises UserError for files without 1-grams, or without `</s>` among them.
    """
    types: dict[str, int] = {}
    unigrams = files.unigrams()
    for word, count in zip(_types(list(unigrams), rules), unigrams.values(), strict=True):
        types[word] = types.get(word, 0) + count
    if not types.get(EOS):
        raise UserError(f"counts.path={', '.join(files.paths)}: </s> is not among the 1-grams, one for each sentence")
    names = [*RESERVED, *(word for word in types if word not in RESERVED)]
    counts = np.array([0, 0, 0, *(types[word] for word in names[len(RESERVED) :])], dtype=np.int64)
    counts[EOS_ID], counts[UNK_ID] = types[EOS], types.get(UNK, 0)
    vocabulary, _, oov = select(names, counts, rules, given=given, sentences=True)
    firsts: dict[str, int] = {}
    for place, word in enumerate(types):
        if word not in (BOS, EOS) and types[word]:
            firsts.setdefault(word if word in vocabulary.ids else UNK, place)
    return ExternalCounts(vocabulary, numbered(firsts, vocabulary), types[EOS], int(counts[oov].sum()), 0)


def _types(words: list[str], rules: VocabularyConfig) -> list[str]:
    """The type of each word; `<s>` and so on may have Google's names, unless the usual ones are there."""
    if EOS not in words:
        words = [NAMES.get(word, word) for word in words]
    return [word.lower() if rules.lowercase and word not in RESERVED else word for word in words]


def read_counts(files: CountFiles, corpus: Corpus, order: int, storage: Storage) -> Counts:
    """The counts of orders 1 to `order`, with the vocabulary of a store that counted_train made.

    N-grams with count 0 are left out, with a note. Raises UserError, naming the file, for n-grams of which a part is
    not among the shorter ones.
    """
    vocabulary = corpus.vocabulary
    known = _Words(list(files.unigrams()), vocabulary, corpus.settings.vocabulary)
    unigrams = unigram_counts(vocabulary)
    builder = TrieBuilder(len(vocabulary), storage)
    suffix: list[Packed] = []
    count = [unigrams.count[0]]
    bigrams = zeros = 0
    for k in range(2, order + 1):
        trie = builder.finish()
        parts: list[tuple[Array, IntArray, IntArray]] = []
        for block, spans, counts, file, line in files.rows(k):
            occurs = counts > 0  # an n-gram with count 0 is not a seen type
            zeros += int(np.count_nonzero(~occurs))
            if occurs.any():
                parts.append(_keys(trie, k, known, (block, spans[occurs], counts[occurs], file, line)))
        if not parts:
            raise UserError(f"counts.path={', '.join(files.paths)} has no {k}-grams: take model.order={k - 1}")
        keys, suffixes, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        del parts
        keys, place = sort_keys(keys, np.arange(len(keys)), builder.key_width)
        first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        builder.add(keys[first])
        suffix.append(Packed.of(suffixes[place[first]], builder.sizes[-2] - 1, storage))
        count.append(Packed.of(np.add.reduceat(counts[place], first), storage=storage))
        if k == 2:
            bigrams = int(counts.sum())
        storage.keep_within()
    trie = builder.finish()
    newest = newest_of_trie(trie, vocabulary, corpus.first_places, order - 1)
    if zeros:
        log.warning("note: %s n-grams of counts.path have count 0: they were left out", f"{zeros:,}")
    if order > 1 and bigrams != corpus.tokens("train"):  # said when no error can follow
        log.warning(
            "note: the 2-grams of counts.path are %s of %s tokens: n-grams were left out, and the estimates are "
            "those of the rest",
            f"{bigrams:,}",
            f"{corpus.tokens('train'):,}",
        )
    return Counts(trie, suffix, count, vocabulary.bos, vocabulary.unk, newest)


class _Words:
    """From the bytes of words to their ids in a vocabulary."""

    def __init__(self, types: list[str], vocabulary: Vocabulary, rules: VocabularyConfig) -> None:
        self.table = WordTable(types)
        self.ids = vocabulary.encode(_types(types, rules))
        self.vocabulary = vocabulary

    def find(self, block: Array, spans: Array) -> IntArray:
        """The ids `[M, k]` of words; -1 for those that are not among the 1-grams."""
        numbers = np.empty(spans.shape[:2], dtype=np.int64)
        find_words(block, spans, self.table.slots, self.table.starts, self.table.arena, numbers)
        ids: IntArray = np.where(numbers >= 0, self.ids[numbers], -1)
        return ids


def _keys(
    trie: Trie, k: int, known: _Words, row: tuple[Array, Array, IntArray, str, int]
) -> tuple[Array, IntArray, IntArray]:
    """The keys, suffixes and counts `[M]` of n-grams of order k, whose shorter ones are in the trie."""
    block, spans, counts, file, line = row
    ids = known.find(block, spans)
    context, shorter = trie.find(np.maximum(ids[:, :-1], 0)), trie.find(np.maximum(ids[:, 1:], 0))
    for wrong, why in (
        ((ids < 0).any(axis=1), "has a word that is not among the 1-grams"),
        ((ids[:, 1:] == known.vocabulary.bos).any(axis=1), f"has {BOS} behind another word"),
        ((ids[:, :-1] == known.vocabulary.eos).any(axis=1), f"has {EOS} before another word"),
        ((context < 0) | (shorter < 0), f"has a part that is not among the {k - 1}-grams"),
    ):
        if wrong.any():
            words = spans[int(wrong.argmax())]
            ngram = b" ".join(block[first:last].tobytes() for first, last in words.tolist()).decode(errors="replace")
            raise UserError(f"{file}, from line {line} on: {ngram!r} {why}; count the text again")
    first = trie.first(k - 1)
    return ngram_keys(context - first, ids[:, -1], trie.nodes.word_width), shorter - first, counts

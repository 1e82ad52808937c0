"""Files of counts, from which Counts are read that equal, to the bit, the counts of the original text.

A file has n-grams of all orders, in any order of lines: `a b c<tab>12`, as SRILM's `ngram-count -write` writes them. A
folder with a subfolder `1gms` has files for each order, as Google's n-grams. Ties are broken by the order in which
words first occur in the text, which is the order of the 1-grams, after `<s>` and `</s>`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numba
import numpy as np

from lmtool.config.data import Spaces, VocabularyConfig
from lmtool.data.choose_vocabulary import occurrence_ranks, select
from lmtool.data.readers import read_blocks
from lmtool.data.sources.base import ExternalCounts
from lmtool.data.text_files import find_files, note_places, text_files
from lmtool.data.text_rules import TextRules
from lmtool.data.tokenizer import EOS_ID, RESERVED, UNK_ID
from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.data.word_table import MAX_EXACT, WordTable, find_words, join_words, text_lines
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import MAX_ORDER, Counts, kenlm_ranks, newest_ngram, unigram_counts
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.storage import Storage
from lmtool.ngram.tables.trie import TrieBuilder
from lmtool.system.arrays import Array, IntArray
from lmtool.system.files import atomic_write, packed_file

log = logging.getLogger(__name__)
NGRAMS_PER_CHUNK = 1 << 16  # n-grams parsed at once
NGRAMS_PER_WRITE = 1 << 17
SEPARATORS = " \t\r\n"  # of words
MAX_DIGITS = 15  # maximum digits of a count
SPACE, TAB, LINE_FEED, RETURN = 32, 9, 10, 13
GOOGLE_NAMES = {"<S>": BOS, "</S>": EOS, "<UNK>": UNK}
OTHER_FILES = ("vocab_cs", "total")  # first parts of the names of other files in Google's folders


@dataclass(frozen=True, slots=True)
class CountFiles:
    """The files that counts.paths names. weights: factors of the counts of each path, whole numbers."""

    paths: list[str]
    weights: list[int]

    def files(self) -> list[str]:
        return list(dict.fromkeys(file for path in self.paths for file in _files(path, None)))

    def rows(self, k: int) -> Iterator[tuple[Array, Array, IntArray, str, int]]:
        """Yield the n-grams of order k in chunks: a block of bytes, the spans of their words in it int64 `[M, k, 2]`,
        their weighted counts `[M]`, and the file and line where the chunk begins.
        """
        for path, weight in zip(self.paths, self.weights, strict=True):
            for file in _files(path, k):
                line = 1
                for content in read_blocks(file, tables=True):
                    block = np.frombuffer(content, dtype=np.uint8)
                    at = 0
                    while at < len(block):
                        counts = np.empty(NGRAMS_PER_CHUNK, dtype=np.int64)
                        spans = np.empty((NGRAMS_PER_CHUNK, k, 2), dtype=np.int64)
                        at, lines, found, is_wrong = _parse_counts(block, at, spans, counts)
                        if found:
                            yield block, spans[:found], counts[:found] * weight, file, line
                        line += int(lines)
                        if is_wrong:
                            raise UserError(f"{file}, line {line}: should be words and a whole number, their count")

    def unigrams(self) -> dict[str, int]:
        """Return the 1-grams with their counts, in the order of the files."""
        totals: dict[str, int] = {}
        for block, spans, counts, _, _ in self.rows(1):
            for (first, last), count in zip(spans[:, 0].tolist(), counts.tolist(), strict=True):
                word = block[first:last].tobytes().decode()
                totals[word] = totals.get(word, 0) + count
        if not totals:
            raise UserError(f"counts.paths={', '.join(self.paths)} has no 1-grams: it needs n-grams of all orders")
        return totals


def _files(path: str, k: int | None) -> list[str]:
    """Return the files of a path with n-grams of order k, or of all orders if k is None."""
    folder = path.rstrip("/")
    if not find_files(f"{folder}/1gms"):
        return text_files(path, "counts.paths")
    note_places([f"{folder}/1gms"])
    orders = [k] if k is not None else range(1, MAX_ORDER + 1)
    found = [file for order in orders for file in find_files(f"{folder}/{order}gms")]
    return [file for file in found if not Path(file).name.startswith(OTHER_FILES) and not file.endswith(".idx")]


def counted_train(
    files: CountFiles, limits: VocabularyConfig | None, rules: TextRules, word_list: list[str] | None
) -> ExternalCounts:
    """Return the vocabulary of the counted text. word_list: its words in order, or None to choose them by counts."""
    types: dict[str, int] = {}
    unigrams = files.unigrams()
    for word, count in zip(_types(list(unigrams), rules), unigrams.values(), strict=True):
        types[word] = types.get(word, 0) + count
    if not types.get(EOS):
        raise UserError(f"counts.paths={', '.join(files.paths)}: </s> is not among the 1-grams, one for each sentence")
    names = [*RESERVED, *(word for word in types if word not in RESERVED)]
    counts = np.array([0, 0, 0, *(types[word] for word in names[len(RESERVED) :])], dtype=np.int64)
    counts[EOS_ID], counts[UNK_ID] = types[EOS], types.get(UNK, 0)
    vocabulary, _, oov = select(names, counts, limits, word_list=word_list, sentences=True)
    firsts: dict[str, int] = {}
    for place, word in enumerate(types):
        if word not in (BOS, EOS) and types[word]:
            firsts.setdefault(word if word in vocabulary.ids else UNK, place)
    return ExternalCounts(vocabulary, occurrence_ranks(firsts, vocabulary), types[EOS], int(counts[oov].sum()), 0)


def _types(words: list[str], rules: TextRules) -> list[str]:
    """Return the type of each word, reading Google's names of `<s>` and so on unless the usual names occur."""
    if EOS not in words:
        words = [GOOGLE_NAMES.get(word, word) for word in words]
    rules = replace(rules, spaces=Spaces.ascii)  # an n-gram has as many words as its line
    return [word if word in RESERVED else rules(word) for word in words]


def read_counts(
    files: CountFiles, vocabulary: Vocabulary, places: IntArray, rules: TextRules, order: int, storage: Storage
) -> Counts:
    """Return the counts, above 0, of orders 1 to `order`, with the vocabulary and first places of counted_train."""
    types = list(files.unigrams())
    word_tables = vocabulary, WordTable(types), vocabulary.encode(_types(types, rules))
    unigrams = unigram_counts(vocabulary)
    builder = TrieBuilder(len(vocabulary), storage)
    suffix: list[Packed] = []
    count = [unigrams.count[0]]
    bigrams = zeros = 0
    for k in range(2, order + 1):
        parts: list[tuple[Array, IntArray, IntArray]] = []
        for block, spans, counts, file, line in files.rows(k):
            occurs = counts > 0  # an n-gram with count 0 is not a seen type
            zeros += int(np.count_nonzero(~occurs))
            if occurs.any():
                parts.append(_keys(builder, *word_tables, (block, spans[occurs], counts[occurs], file, line)))
        if not parts:
            raise UserError(f"counts.paths={', '.join(files.paths)} has no {k}-grams: set model.order={k - 1}")
        keys, suffixes, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        del parts
        place, first = builder.add_unsorted(keys)
        suffix.append(Packed.of(suffixes[place[first]], builder.sizes[-2] - 1, storage))
        count.append(Packed.of(np.add.reduceat(counts[place], first), storage=storage))
        if k == 2:
            bigrams = int(counts.sum())
        storage.keep_within()
    trie = builder.finish()
    ranks = kenlm_ranks(places, vocabulary)
    newest = newest_ngram(trie, ranks, vocabulary.bos, order - 1, storage)
    if zeros:
        log.warning("note: %s n-grams of counts.paths have count 0: they were left out", f"{zeros:,}")
    tokens = int(vocabulary.counts.sum())
    if order > 1 and bigrams != tokens:  # not before an error
        log.warning(
            "note: the 2-grams of counts.paths are %s of %s tokens: n-grams were left out, and the estimates are "
            "those of the rest",
            f"{bigrams:,}",
            f"{tokens:,}",
        )
    return Counts(trie, suffix, count, vocabulary.bos, vocabulary.unk, newest)


def _keys(
    builder: TrieBuilder,
    vocabulary: Vocabulary,
    table: WordTable,
    ids_of: IntArray,
    row: tuple[Array, Array, IntArray, str, int],
) -> tuple[Array, IntArray, IntArray]:
    """Return keys, suffixes and counts `[M]` of n-grams of the next order. ids_of: of the words of `table`."""
    block, spans, counts, file, line = row
    numbers = np.empty(spans.shape[:2], dtype=np.int64)
    find_words(block, spans, table.slots, table.starts, table.arena, numbers)
    ids = np.where(numbers >= 0, ids_of[numbers], -1)
    keys, context, shorter = builder.parts(np.maximum(ids, 0))
    for wrong, why in (
        ((ids < 0).any(axis=1), "has a word that is not among the 1-grams"),
        ((ids[:, 1:] == vocabulary.bos).any(axis=1), f"has {BOS} behind another word"),
        ((ids[:, :-1] == vocabulary.eos).any(axis=1), f"has {EOS} before another word"),
        ((context < 0) | (shorter < 0), f"has a part that is not among the {ids.shape[1] - 1}-grams"),
    ):
        if wrong.any():
            words = spans[int(wrong.argmax())]
            ngram = b" ".join(block[first:last].tobytes() for first, last in words.tolist()).decode(errors="replace")
            raise UserError(f"{file}, from line {line} on: {ngram!r} {why}; count the text again")
    return keys, shorter, counts


@numba.njit(cache=True, nogil=True)
def _parse_counts(block: Any, at: int, spans: Any, counts: Any) -> tuple[Any, Any, Any, Any]:
    """Read lines from byte `at` on; store spans of words int64 `[M, k, 2]` and counts `[M]` of those with k words.

    Stops after M such lines, at the block's end, and at a line without words or without a whole number at its end.
    Returns the position after the last line read, the number of lines read and of lines with k words, and whether the
    next line is wrong. One pass over the bytes without a string per word; the plain form is line.split().
    """
    size, k = spans.shape[0], spans.shape[1]
    lines, row = 0, 0
    while row < size and at < len(block):
        end = at
        while block[end] != LINE_FEED:
            end += 1
        words = -1  # the last token is the count
        first, last = at, at
        i = at
        while i < end:
            while i < end and (block[i] == SPACE or block[i] == TAB or block[i] == RETURN):
                i += 1
            begin = i
            while i < end and block[i] != SPACE and block[i] != TAB and block[i] != RETURN:
                i += 1
            if begin < i:
                if 0 <= words < k:
                    spans[row, words, 0] = first
                    spans[row, words, 1] = last
                words += 1
                first, last = begin, i
        if words >= 0:
            value = np.int64(0)
            for j in range(first, last):
                if not 48 <= block[j] <= 57 or last - first > MAX_DIGITS:
                    return at, lines, row, True
                value = value * 10 + (block[j] - 48)
            if words == 0:
                return at, lines, row, True
            if words == k:
                counts[row] = value
                row += 1
        lines += 1
        at = end + 1
    return at, lines, row, False


def write_counts(counts: Counts, vocabulary: Vocabulary, first_places: IntArray, to: Path) -> None:
    """Write the n-grams of all orders as lines, whole or not at all. first_places: of words, int64 `[V]`."""
    spaced = next((word for word in vocabulary.words if not word or any(mark in word for mark in SEPARATORS)), None)
    if spaced is not None:
        raise UserError(f"the word {spaced!r} has white space, which separates words in files of counts")
    joined, ranks = join_words(vocabulary.words), kenlm_ranks(first_places, vocabulary)
    ranks[vocabulary.bos] = -2  # before </s>
    unigrams = np.argsort(ranks, kind="stable")
    unigrams = unigrams[counts.count[0][unigrams] > 0]
    with atomic_write(to) as temporary, packed_file(temporary, to) as file:
        for k in range(1, counts.order + 1):
            total = len(unigrams) if k == 1 else counts.trie.sizes[k - 1]
            for first in range(0, total, NGRAMS_PER_WRITE):
                nodes = np.arange(first, min(first + NGRAMS_PER_WRITE, total))
                nodes = unigrams[nodes] if k == 1 else nodes
                values = counts.count[k - 1][nodes]
                if values.max(initial=0) >= MAX_EXACT:
                    raise UserError(f"a count is {values.max():,}, too large for a file of counts")
                words = nodes[:, None] if k == 1 else counts.trie.ngrams_at(k, nodes)
                file.write(text_lines(np.empty((len(nodes), 0)), words, values[:, None].astype(float), [0], joined))

"""Write counts to files that other programs and `counts=table` read.

The 1-grams are in the order in which they first occur in the text, after `<s>` and `</s>`.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lmtool.data.vocabulary import Vocabulary
from lmtool.data.word_table import MAX_EXACT, join_words, text_lines
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts
from lmtool.system.arrays import IntArray
from lmtool.system.files import atomic_write, cannot_write, packed_file

NGRAMS_PER_CHUNK = 1 << 17  # n-grams written at once
CHUNKS_PER_FILE = 76  # in Google's folders: some 10 million n-grams, as in the original
SEPARATORS = " \t\r\n"  # separators of words in lines of counts
Rows = Iterator[tuple[IntArray, IntArray]]


def write_counts(counts: Counts, vocabulary: Vocabulary, first_places: IntArray, to: Path, *, folder: bool) -> None:
    """Write the n-grams of all orders, whole or not at all.

    first_places: first positions of words in the text, int64 `[V]`. folder: whether `to` is a folder in Google's
    format; otherwise a name that ends in .parquet is a Parquet file, any other SRILM's text, packed as the name says.
    """
    spaced = next((word for word in vocabulary.words if not word or any(mark in word for mark in SEPARATORS)), None)
    if spaced is not None:
        raise UserError(f"the word {spaced!r} has white space, which separates words in files of counts")
    rows = _Rows(counts, vocabulary, first_places)
    if folder:
        _write_folder(rows, to)
    elif to.suffix == ".parquet":
        _write_parquet(rows, to)
    else:
        with atomic_write(to) as temporary, packed_file(temporary, to) as file:
            for k in range(1, counts.order + 1):
                for words, values in rows.of(k):
                    file.write(rows.lines(words, values))


class _Rows:
    """The n-grams as ids and counts, and as lines."""

    def __init__(self, counts: Counts, vocabulary: Vocabulary, first_places: IntArray) -> None:
        self.counts = counts
        self._joined = join_words(vocabulary.words)
        places = first_places.copy()
        places[vocabulary.bos] = -3
        if vocabulary.eos is not None:
            places[vocabulary.eos] = -2
        order = np.argsort(places, kind="stable")
        self._unigrams = order[counts.count[0][order] > 0]

    def of(self, k: int) -> Rows:
        """Yield n-grams `[M, k]` with counts `[M]`, in chunks."""
        counts = self.counts
        total = len(self._unigrams) if k == 1 else counts.trie.sizes[k - 1]
        for first in range(0, total, NGRAMS_PER_CHUNK):
            last = min(first + NGRAMS_PER_CHUNK, total)
            if k == 1:
                words = self._unigrams[first:last]
                yield words[:, None], counts.count[0][words]
            else:
                yield counts.trie.ngrams(k, first, last), counts.count[k - 1][first:last]

    def names(self, words: IntArray) -> bytes:
        none = np.empty((len(words), 0))
        return text_lines(none, words, none, [], self._joined)

    def lines(self, words: IntArray, counts: IntArray) -> bytes:
        """Return lines of words, a tab and the count."""
        if counts.max(initial=0) >= MAX_EXACT:
            raise UserError(f"a count is {counts.max():,}, too large for lines of text: use to=FILE.parquet")
        return text_lines(np.empty((len(words), 0)), words, counts[:, None].astype(np.float64), [0], self._joined)


def _write_parquet(rows: _Rows, to: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError('Parquet files need pyarrow: pip install "lmtool[arrow]", or use to=FILE.tsv.gz') from None
    schema = pa.schema([("words", pa.string()), ("count", pa.int64())])
    with atomic_write(to) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for k in range(1, rows.counts.order + 1):
            for words, counts in rows.of(k):
                ngrams = rows.names(words).decode().split("\n")[:-1]
                writer.write_batch(pa.record_batch([pa.array(ngrams), pa.array(counts)], schema=schema))


def _write_folder(rows: _Rows, to: Path) -> None:
    """Write 1gms/vocab.gz and 1gms/total, 2gms/2gm-0000.gz and so on."""
    if to.exists():
        raise UserError(f"to={to}/ already exists: choose a new folder")
    unfinished = to.with_name(f".{to.name}.tmp")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        for k in range(1, rows.counts.order + 1):
            folder = unfinished / f"{k}gms"
            folder.mkdir(parents=True)
            chunks, number, total = rows.of(k), 0, 0
            while (head := next(chunks, None)) is not None:
                name = "vocab.gz" if k == 1 and number == 0 else f"{k}gm-{number:04d}.gz"
                with packed_file(folder / name, name) as file:
                    for words, counts in itertools.chain([head], itertools.islice(chunks, CHUNKS_PER_FILE - 1)):
                        file.write(rows.lines(words, counts))
                        total += int(counts.sum())
                number += 1
            if k == 1:
                (folder / "total").write_text(f"{total}\n", encoding="ascii")
        unfinished.rename(to)
    except OSError as error:
        raise cannot_write(to, error) from error

"""Writing back-off tables as ARPA files, the text format that KenLM, SRILM and others read.

    \\data\\
    ngram 1=4
    ...
    \\1-grams:
    -0.5 a -0.2

After the number of n-grams of each order come the n-grams, order by order, one per line: log10 p, a tab, the words,
and below the highest order a tab and log10 backoff.

Other tools give contexts that are not in the file the back-off weight 1. If a table gives them another one (stupid
backoff), its values are changed so that other tools compute the same scores (see arpa_form).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.data.text_lines import SIGNIFICANT, text_lines
from lmtool.data.vocabulary import EOS, Vocabulary
from lmtool.data.word_table import join_words
from lmtool.language_model import LN10
from lmtool.ngram.files._arpa_lines import COMMENT, ZERO
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.system.files import atomic_write, opened

NGRAMS_PER_PIECE = 1 << 17  # written at once


def arpa_form(table: BackoffTable) -> BackoffTable:
    """Return the table with the weight 1 for contexts that it does not have, and the same scores.

    With the weight m for these contexts (`missing` is log m), p(w|h) of an n-gram of order k after a full context of
    n - 1 words has n - k factors: a weight in the table, or m. So each n-gram gets m^(n-k) at once, and each weight in
    the table is divided by m. Contexts of L < n - 1 words, which begin a sentence, are read with fewer factors: their
    own weight is divided by m^(n-1-L) too, and their n-grams keep their p. That needs the context to be in the table:
    from order 4 on, words 2 to n - 2 of a sentence that begins in an unseen way get up to n - 3 factors m too many.
    """
    n, trie = table.order, table.trie
    log_prob, log_backoff = table.log_probs(0, len(table.log_prob)).copy(), table.log_backoffs(0, trie.first(n)).copy()
    for k in range(1, n):
        first, last = trie.first(k), trie.first(k + 1)
        start = first + trie.first_from(k, table.bos)  # the n-grams from here on begin with <s>, the last word
        log_prob[first:start] += np.float32((n - k) * table.missing)
        log_backoff[first:start] -= np.float32(table.missing)
        log_backoff[start:last] -= np.float32((n - k) * table.missing)
    return replace(table, log_prob=log_prob, log_backoff=log_backoff, missing=0.0)


def write_arpa(table: BackoffTable, vocabulary: Vocabulary, path: Path) -> None:
    """Write the table, whole or not at all; compressed if the name ends in .gz.

    Values for which the format has no place go into a comment, for read_arpa. Raises UserError if the file cannot be
    written.
    """
    if table.missing:
        table = arpa_form(table)
    joined = join_words(vocabulary.words)
    extra = [] if vocabulary.eos is not None else [f"{ZERO:g}\t{EOS}\t0\n".encode()]  # KenLM requires one
    comment = {
        "unseen": None if table.unseen == -np.inf else table.unseen,
        "normalised": table.normalised,
    }
    with atomic_write(path) as temporary, opened(temporary, packed=path.suffix == ".gz") as file:
        file.write(f"{COMMENT}{json.dumps(comment)}\n\\data\\\n".encode())
        for k, size in enumerate(table.sizes, start=1):
            file.write(f"ngram {k}={size + (len(extra) if k == 1 else 0)}\n".encode())
        for k, size in enumerate(table.sizes, start=1):
            file.write(f"\n\\{k}-grams:\n".encode())
            for first in range(0, size, NGRAMS_PER_PIECE):
                file.write(_lines(table, k, first, min(first + NGRAMS_PER_PIECE, size), joined))
            if k == 1:
                file.writelines(extra)
        file.write(b"\n\\end\\\n")


def _lines(table: BackoffTable, k: int, first: int, last: int, joined: Any) -> bytes:
    """Return n-grams `first` to before `last` of order k as text."""
    begin = table.trie.first(k)
    log_prob = table.log_probs(begin + first, begin + last).astype(np.float64)
    if k == 1 and first <= table.bos < last:
        log_prob[table.bos - first] = -np.inf
    log_backoff = np.empty((last - first, 0))
    if k < table.order:
        log_backoff = table.log_backoffs(begin + first, begin + last).astype(np.float64)[:, None]
    before, after = (np.maximum(values / LN10, ZERO) for values in (log_prob[:, None], log_backoff))
    return text_lines(before, table.trie.ngrams(k, first, last), after, [SIGNIFICANT] * 2, joined)

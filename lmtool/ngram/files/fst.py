"""N-gram models as grammars of speech recognizers: G of Kaldi and k2 in OpenFst's text format, like arpa2fst.

    0   5   7   7   1.25    in state 0, word 7 costs 1.25 and leads to state 5
    0   1   9   0   0.5     back-off to state 1: word 9 is #0, which outputs nothing
    5   0.75                a sentence may end in state 5

Costs are natural -log p. A state is a context: 0 is `<s>`, 1 is the empty one. `<s>` and `</s>` are not words of G, in
which p(</s>|h) is the cost of ending. A context that no n-gram continues is not a state: arcs to it lead to its longest
suffix that is a state, and also cost its back-off weights. A path may back off although its context has the next word,
so that the best path of a sentence may cost less than -log p.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.data.readers import read_text
from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.data.word_table import SIGNIFICANT, join_words, text_lines
from lmtool.errors import UserError
from lmtool.ngram.files.arpa_model import NGRAMS_PER_WRITE, NO_ENDS, arpa_form
from lmtool.ngram.files.arpa_read import OTHER_UNK, ZERO
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.system.arrays import LN10, FloatArray, IntArray
from lmtool.system.files import atomic_write

EPSILON, BACKOFF = "<eps>", "#0"
START, EMPTY, NONE = 0, 1, -1  # states; NONE: also of words without a number


def write_fst(table: BackoffTable, vocabulary: Vocabulary, path: Path, symbol_table: str | None = None) -> list[str]:
    """Write the table as G, and words.txt beside it; or with the numbers of another words.txt, `symbol_table`, and
    return the words that are not in it: their n-grams are left out, as by arpa2fst.
    """
    if vocabulary.eos is None:
        raise UserError(f"to={path}: the model has no {EOS}, without which no path of G ends: {NO_ENDS}")
    numbers = _read_numbers(symbol_table) if symbol_table else _write_numbers(vocabulary, path.with_name("words.txt"))
    words = [word for word in vocabulary.words if word not in (BOS, EOS, UNK)]
    if words and numbers.keys().isdisjoint(words):
        found = f"has none of the model's {len(words):,} words, such as {words[0]!r}"
        raise UserError(f"symbol_table={symbol_table}: {found}: take the words.txt of a lexicon with these words")
    labels = np.array([NONE if word in (BOS, EOS) else numbers.get(word, NONE) for word in vocabulary.words])
    grammar = _Grammar(arpa_form(table) if table.missing else table, labels, vocabulary.eos, numbers[BACKOFF])
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.writelines(grammar.lines())
    return [word for word in vocabulary.words if word not in numbers and word not in (BOS, EOS)]


def _write_numbers(vocabulary: Vocabulary, path: Path) -> dict[str, int]:
    """Write words.txt in Kaldi's order, which icefall relies on: `#0` after all words. Return its numbers."""
    words = [word for word in vocabulary.words if word not in (BOS, EOS)]
    if bad := [word for word in words if word in (EPSILON, BACKOFF) or not {" ", "\t"}.isdisjoint(word)]:
        raise UserError(f"{path} cannot have the word {bad[0]!r}, which is a symbol or has a space")
    numbers = {word: number for number, word in enumerate((EPSILON, *words, BACKOFF, BOS, EOS))}
    content = "".join(f"{word} {number}\n" for word, number in numbers.items()).encode()
    if path.is_file() and path.read_bytes() != content:
        raise UserError(f"{path} has other words: set symbol_table={path} to use its numbers, or choose another folder")
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
    return numbers


def _read_numbers(path: str) -> dict[str, int]:
    """Return the numbers of a words.txt."""
    lines = read_text(path).strip("\n").split("\n")
    rows = [row for line in lines if (row := re.fullmatch(r"([^ \t]+)[ \t]+([0-9]{1,9})[ \t]*", line))]
    numbers = {row[1]: int(row[2]) for row in rows}
    if len(rows) < len(lines) or BACKOFF not in numbers:
        raise UserError(f"{path} must have a word and its number in each line, also for {BACKOFF}")
    if len(set(numbers.values())) < len(numbers):
        raise UserError(f"{path} gives two words the same number")
    return {UNK: numbers[OTHER_UNK]} | numbers if OTHER_UNK in numbers else numbers


class _Grammar:
    """The lines of G. labels: the number of each word, int64 `[V]`. eos: the id of `</s>`. backoff: the number of `#0`.

    state: the state of each n-gram below the highest order (and each 1-gram), NONE unless an n-gram in G continues it.
    """

    def __init__(self, table: BackoffTable, labels: IntArray, eos: int, backoff: int) -> None:
        self.table, self.trie, self.labels, self.eos, self.backoff = table, table.trie, labels, eos, backoff
        trie, below = table.trie, table.trie.first(table.order)
        self.log_backoff = np.zeros(max(below, trie.vocabulary_size))
        self.log_backoff[:below] = table.log_backoff[:below]
        continued = np.zeros(len(self.log_backoff), dtype=bool)
        reached = labels != NONE
        reached[table.bos] = True
        for k in range(2, table.order + 1):
            context, word = trie.contexts(k), trie.words(k, 0, trie.sizes[k - 1])
            in_g = reached[context] & ((labels[word] != NONE) | (word == eos))
            continued[trie.first(k - 1) + context[in_g]] = True
            reached = in_g & (word != eos)
        continued[table.bos] = False
        self.state = np.where(continued, np.cumsum(continued) + EMPTY, NONE)
        self.state[table.bos] = START

    def lines(self) -> Iterator[bytes]:
        """Yield the lines; the first line is of the start state, as OpenFst requires."""
        trie, n = self.trie, self.table.order
        yield self._backoffs(1, np.array([self.table.bos]))
        for k in range(1, n):
            nodes = np.flatnonzero(self.state[trie.span(k)] > EMPTY)
            for at in range(0, len(nodes), NGRAMS_PER_WRITE):
                yield self._backoffs(k, nodes[at : at + NGRAMS_PER_WRITE])
        for k in range(1, n + 1):
            for first in range(0, trie.sizes[k - 1], NGRAMS_PER_WRITE):
                yield self._ngrams(k, np.arange(first, min(first + NGRAMS_PER_WRITE, trie.sizes[k - 1])))

    def _backoffs(self, k: int, nodes: IntArray) -> bytes:
        """Return the back-off arcs of contexts of length k, nodes counted within their order."""
        state, weight = self._after(self.trie.ngrams_at(k, nodes)[:, 1:])
        nodes = nodes + self.trie.first(k)
        return _lines(self.state[nodes], state, self.backoff, 0, self.log_backoff[nodes] + weight)

    def _ngrams(self, k: int, nodes: IntArray) -> bytes:
        """Return the arcs and the costs of ending of n-grams of order k, consecutive nodes counted within it."""
        grams, begin = self.trie.ngrams_at(k, nodes), self.trie.first(k)
        source = np.full(len(nodes), EMPTY)
        if k > 1:
            source = self.state[self.trie.first(k - 1) + self.trie.parents(k, nodes)]
        log_prob = self.table.log_prob[begin + int(nodes[0]) : begin + int(nodes[-1]) + 1].astype(np.float64)
        label = self.labels[grams[:, -1]]
        ends, reads = (source != NONE) & (grams[:, -1] == self.eos), (source != NONE) & (label != NONE)
        state, weight = self._after(grams[reads, int(k == self.table.order) :])
        arcs = _lines(source[reads], state, label[reads], label[reads], log_prob[reads] + weight)
        return arcs + _lines(source[ends], log_prob[ends])

    def _after(self, grams: IntArray) -> tuple[IntArray, FloatArray]:
        """Return the state after words `[M, k]`, and the log back-off weights on the way to it, each `[M]`."""
        state, weight, left = np.full(len(grams), EMPTY), np.zeros(len(grams)), np.arange(len(grams))
        for first in range(grams.shape[1]):
            node = self.trie.find(grams[left, first:])
            found = np.where(node >= 0, self.state[node], NONE)
            weight[left] += np.where((node >= 0) & (found == NONE), self.log_backoff[node], 0.0)
            state[left] = np.where(found == NONE, EMPTY, found)
            left = left[found == NONE]
        return state, weight


def _lines(*columns: Any) -> bytes:
    """Return a line for each row of columns `[M]` of whole numbers and one of log-probabilities, written as costs."""
    costs = -np.maximum(columns[-1], ZERO * LN10)  # the minimum in an ARPA file
    numbers = np.stack(np.broadcast_arrays(*columns[:-1], costs), axis=1).astype(np.float64)
    rows, decimals = len(numbers), [0] * (len(columns) - 1) + [SIGNIFICANT]
    return text_lines(numbers, np.empty((rows, 0), dtype=np.int64), np.empty((rows, 0)), decimals, join_words(()))

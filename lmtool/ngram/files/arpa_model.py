"""Back-off tables from and to ARPA files, and models over the words of such a file, for which no text is needed.

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
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.data.word_table import SIGNIFICANT, join_words, text_lines
from lmtool.errors import UserError
from lmtool.ngram.files.arpa_read import COMMENT, ZERO, Arpa, line_error, read_arpa
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.query.sums import check_sums
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.trie import TrieBuilder
from lmtool.system.arrays import LN10
from lmtool.system.files import atomic_write, packed_file

log = logging.getLogger(__name__)

NO_ENDS = "leave out data.sentences=false and data.sentence_end=false"
NGRAMS_PER_PIECE = 1 << 20  # n-grams whose contexts are looked up at once
NGRAMS_PER_WRITE = 1 << 17


def arpa_model(path: str) -> NgramModel:
    """Return the model of an ARPA file over the words of the file, in its order, with counts of 0.

    Words out of the vocabulary count as `<unk>` or `<UNK>`; if the file has neither, they have probability 0. In a
    file that does not say it, sentences are those that `</s>` ends or, if it is never predicted, that `<s>` begins:
    several words follow it.
    """
    arpa = read_arpa(path)
    vocabulary = vocabulary_of(arpa.words, ends=_ends_sentences(arpa), starts=_starts_sentences(arpa))
    return NgramModel(arpa_table(arpa, vocabulary), vocabulary)


def vocabulary_of(file_words: list[str], *, ends: bool, starts: bool = False) -> Vocabulary:
    """Return the vocabulary of a model file's words in their order, with counts of 0 (and `</s>` if `ends`).

    starts: whether the text consists of sentences also without `</s>`; then `<s>` has the count 1.
    """
    words = [word for word in file_words if word not in (BOS, EOS)]
    if UNK not in words:
        words.append(UNK)
    if ends:
        words.append(EOS)
    ids = {word: k for k, word in enumerate(words)}
    words.append(BOS)
    counts = np.zeros(len(words), dtype=np.int64)
    counts[-1] = starts and not ends
    return Vocabulary(tuple(words), counts, ids.get(EOS), ids[UNK])


def _ends_sentences(arpa: Arpa) -> bool:
    """Return whether `</s>` is ever predicted. lmtool writes one with probability 0 for text without sentences."""
    if EOS not in arpa.words:
        return False
    eos = arpa.words.index(EOS)
    _, log_prob, _ = arpa.grams[0]
    return bool(log_prob[eos] > -np.inf) or any((words[:, -1] == eos).any() for words, *_ in arpa.grams[1:])


def _starts_sentences(arpa: Arpa) -> bool:
    """Return whether the text consists of sentences. In one stream, `<s>` is once before the first word."""
    if arpa.sentences is not None or BOS not in arpa.words or len(arpa.grams) == 1:
        return bool(arpa.sentences)
    return int((arpa.grams[1][0][:, 0] == arpa.words.index(BOS)).sum()) > 1


def arpa_table(arpa: Arpa, vocabulary: Vocabulary) -> BackoffTable:
    """Return the back-off table of an ARPA file, with the ids of a vocabulary that has all words of the file.

    Words of the vocabulary that are not in the file get probability 0. A file in which the words after some context do
    not sum to one gives scores, not probabilities, whatever its comment says.
    """
    size = len(vocabulary)
    ids = np.array([vocabulary.ids.get(word, -1) for word in arpa.words], dtype=np.int64)
    if BOS in arpa.words:
        ids[arpa.words.index(BOS)] = vocabulary.bos
    unknown = [i for i in np.flatnonzero(ids < 0).tolist() if arpa.words[i] != EOS or vocabulary.eos is not None]
    if unknown:
        word = arpa.words[unknown[0]]
        message = f"{word!r} is not in the vocabulary: choose a data set with the words of the file"
        raise UserError(f"{arpa.path}, line {arpa.line(1, unknown[0])}: {message}")
    log_prob = [np.full(size, -np.inf, dtype=np.float32)]
    log_backoff = [np.zeros(size, dtype=np.float32)]
    _, p, backoff = arpa.grams[0]
    log_prob[0][ids[ids >= 0]] = p[ids >= 0]
    log_prob[0][vocabulary.bos] = -np.inf
    log_backoff[0][ids[ids >= 0]] = backoff[ids >= 0]
    builder = TrieBuilder(size)
    suffix_closed = True
    for k, (words, p, backoff) in enumerate(arpa.grams[1:], start=2):
        key = np.empty(len(words), dtype=np.uint64)
        for at in range(0, len(words), NGRAMS_PER_PIECE):
            mapped = ids[words[at : at + NGRAMS_PER_PIECE]]  # [M, k]
            key[at : at + NGRAMS_PER_PIECE], context, suffix = builder.parts(mapped)
            if (context < 0).any():
                row = at + int((context < 0).argmax())
                shorter = " ".join(arpa.words[w] for w in words[row, :-1])
                raise line_error(arpa.path, arpa.line(k, row), f"{shorter!r} is not among the {k - 1}-grams")
            if (mapped < 0).any():
                line = arpa.line(k, at + int((mapped < 0).any(axis=1).argmax()))
                raise UserError(f"{arpa.path}, line {line}: {EOS} ends sentences: {NO_ENDS}")
            suffix_closed = suffix_closed and bool((suffix >= 0).all())
        order, first = builder.add_unsorted(key)
        if len(first) < len(order):
            twice = first[np.flatnonzero(np.diff(first, append=len(order)) > 1)[0]]
            one, other = (arpa.line(k, int(row)) for row in order[twice : twice + 2])
            raise line_error(arpa.path, other, f"the same n-gram is also in line {one}")
        log_prob.append(p[order])
        log_backoff.append(backoff[order])
    if missing := [mark for mark in (BOS, EOS) if mark not in arpa.words]:  # noted once no error can follow
        text = "sentences without ends" if vocabulary.sentences else "one stream without sentences"
        meaning = f"its text is {text}" if EOS in missing else "a sentence begins without a context"
        log.warning("note: %s has no %s, which KenLM refuses: %s", arpa.path, " and no ".join(missing), meaning)
    table = BackoffTable(
        trie=builder.finish(),
        log_prob=np.concatenate(log_prob),
        log_backoff=np.concatenate(log_backoff[:-1]) if len(log_backoff) > 1 else np.empty(0, dtype=np.float32),
        bos=vocabulary.bos,
        unseen=arpa.unseen,
        suffix_closed=suffix_closed,
    )
    return check_sums(table, vocabulary.eos)[0]


def arpa_form(table: BackoffTable) -> BackoffTable:
    """Return the table with the weight 1 for contexts that it does not have, and the same scores.

    With the weight m for these contexts (`missing` is log m), p(w|h) of an n-gram of order k after a full context of
    n - 1 words has n - k factors: a weight in the table, or m. So each n-gram gets m^(n-k) at once, and each weight in
    the table is divided by m. Contexts of L < n - 1 words, which begin a sentence, are read with fewer factors: their
    own weight is divided by m^(n-1-L) too, and their n-grams keep their p. That needs the context to be in the table:
    from order 4 on, words 2 to n - 2 of a sentence that begins in an unseen way get up to n - 3 factors m too many.
    """
    n, trie = table.order, table.trie
    log_prob, log_backoff = table.log_prob[:].copy(), table.log_backoff[: trie.first(n)].copy()
    for k in range(1, n):
        first, last = trie.first(k), trie.first(k + 1)
        start = first + trie.first_from(k, table.bos)  # the n-grams from here on begin with <s>, the last word
        log_prob[first:start] += np.float32((n - k) * table.missing)
        log_backoff[first:start] -= np.float32(table.missing)
        log_backoff[start:last] -= np.float32((n - k) * table.missing)
    return replace(table, log_prob=log_prob, log_backoff=log_backoff, missing=0.0)


def arpa_word(word: str) -> str:
    """Escape a word for ARPA files: each white space becomes its code point, e.g. <0x20>."""
    return re.sub("[\t-\r ]", lambda match: f"<0x{ord(match[0]):02X}>", word)


def unescape_words(arpa: Arpa) -> Arpa:
    """Return a file of characters, with the white space that arpa_word escaped."""
    return replace(arpa, words=[re.sub("^<0x(09|0[A-D]|20)>$", lambda m: chr(int(m[1], 16)), w) for w in arpa.words])


def write_arpa(table: BackoffTable, vocabulary: Vocabulary, path: Path, *, closed: bool = False) -> None:
    """Write the table, completely or not at all, compressed according to the name.

    closed: whether to leave out the 1-gram of `<unk>`, which must be in no longer n-gram. Values for which the format
    has no place go into a comment; read_arpa reads all but
    `normalized`. White space in words is written as by arpa_word. Raises
    UserError if the file cannot be written, and for two words that are then the same.
    """
    words = [arpa_word(word) for word in vocabulary.words]
    if len({*words}) < len(words):
        raise UserError(f"{path}: the vocabulary has a space and also <0x20>, as which ARPA files have it")
    if table.missing:
        table = arpa_form(table)
    joined = join_words(words)
    extra = [] if vocabulary.eos is not None else [f"{ZERO:g}\t{EOS}\t0\n".encode()]  # KenLM requires one
    comment = {"unseen": None if table.unseen == -np.inf else table.unseen, "normalized": table.normalized}
    comment |= {"sentences": vocabulary.sentences} if vocabulary.eos is None else {}
    with atomic_write(path) as temporary, packed_file(temporary, path) as file:
        file.write(f"{COMMENT}{json.dumps(comment)}\n\\data\\\n".encode())
        for k, size in enumerate(table.sizes, start=1):
            file.write(f"ngram {k}={size + (len(extra) - closed if k == 1 else 0)}\n".encode())
        for k, size in enumerate(table.sizes, start=1):
            file.write(f"\n\\{k}-grams:\n".encode())
            unk = vocabulary.unk if closed and k == 1 else size
            for start, end in ((0, unk), (unk + 1, size)):
                for first in range(start, end, NGRAMS_PER_WRITE):
                    file.write(_lines(table, k, first, min(first + NGRAMS_PER_WRITE, end), joined))
            if k == 1:
                file.writelines(extra)
        file.write(b"\n\\end\\\n")


def _lines(table: BackoffTable, k: int, first: int, last: int, joined: Any) -> bytes:
    """Return n-grams `first` to before `last` of order k as text."""
    begin = table.trie.first(k)
    log_prob = table.log_prob[begin + first : begin + last].astype(np.float64)
    if k == 1 and first <= table.bos < last:
        log_prob[table.bos - first] = -np.inf
    log_backoff = np.empty((last - first, 0))
    if k < table.order:
        log_backoff = table.log_backoff[begin + first : begin + last].astype(np.float64)[:, None]
    before, after = (np.maximum(values / LN10, ZERO) for values in (log_prob[:, None], log_backoff))
    return text_lines(before, table.trie.ngrams(k, first, last), after, [SIGNIFICANT] * 2, joined)

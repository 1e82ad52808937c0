"""Which types become the vocabulary, from their counts in train."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.config.vocabulary import Unit, VocabularyConfig
from lmtool.data.readers import read_text
from lmtool.data.sources.base import Source
from lmtool.data.text_form import split_words
from lmtool.data.tokeniser import BOS_ID, EOS_ID, RESERVED, UNK_ID
from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.errors import UserError
from lmtool.system.arrays import IntArray


def select(
    types: list[str], counts: IntArray, rules: VocabularyConfig, *, given: list[str] | None, sentences: bool
) -> tuple[Vocabulary, npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """The vocabulary, the final id of each provisional one `[T]`, and which provisional ids are OOV `[T]`.

    types, counts `[T]`: by provisional id; counts are those in train. given: the words of a list, in its order; None
    for those with min_count and of them the `size` most frequent ones.
    """
    if given is None:
        chosen = np.flatnonzero(counts >= rules.min_count)
        chosen = chosen[chosen >= len(RESERVED)]
        chosen = chosen[np.argsort(-counts[chosen], kind="stable")][: rules.size]
        words = [types[k] for k in chosen]
        word_counts = counts[chosen]
    else:
        id_of = {word: k for k, word in enumerate(types)}
        words = [word for word in given if word not in RESERVED]
        known = [id_of.get(word, -1) for word in words]
        word_counts = np.array([counts[k] if k >= 0 else 0 for k in known], dtype=np.int64)
        chosen = np.array([k for k in known if k >= 0], dtype=np.int64)
    oov = np.ones(len(types), dtype=bool)
    oov[chosen] = False
    oov[: len(RESERVED)] = False
    unk_count = counts[UNK_ID] + counts[oov].sum()
    words = [*words, UNK, *([EOS] if sentences else [])]
    word_counts = np.concatenate([word_counts, [unk_count], [counts[EOS_ID]] if sentences else []])
    order = np.argsort(-word_counts, kind="stable")
    ordered = [words[k] for k in order]
    final = {word: k for k, word in enumerate(ordered)}
    remap = np.full(len(types), final[UNK], dtype=np.int32)
    remap[chosen] = [final[types[k]] for k in chosen]
    if sentences:
        remap[EOS_ID] = final[EOS]
    remap[BOS_ID] = len(ordered)
    all_counts = np.append(word_counts[order], 0).astype(np.int64)
    vocabulary = Vocabulary((*ordered, BOS), all_counts, final.get(EOS), final[UNK])
    return vocabulary, remap, oov


def final_ids(types: list[str], vocabulary: Vocabulary) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """The id in a vocabulary of each provisional one `[T]`, and which of these are OOV `[T]`."""
    remap = vocabulary.encode(types).astype(np.int32)
    oov = np.array([word not in vocabulary.ids for word in types], dtype=bool)
    oov[: len(RESERVED)] = False
    return remap, oov


def numbered(firsts: dict[str, Any], vocabulary: Vocabulary) -> IntArray:
    """Words numbered by where each first occurs, int64 `[V]`; -1 for those that are not in `firsts`."""
    numbers = np.full(len(vocabulary), -1, dtype=np.int64)
    for number, word in enumerate(sorted(firsts, key=lambda word: firsts[word])):
        numbers[vocabulary.ids[word]] = number
    return numbers


def listed_words(source: Source, rules: VocabularyConfig) -> list[str] | None:
    """The words of the vocabulary in their order, where they are listed; None where train decides."""
    return read_word_list(source.word_list, rules) if isinstance(source.word_list, str) else source.word_list


def read_word_list(path: str, rules: VocabularyConfig) -> list[str]:
    """Return the words of a list, one per line: the first column, whatever follows it.

    If the first columns are 1, 2, 3, ... throughout and not only numbers follow, they are ranks, and the second column
    has the words (as in the lists of HW3: rank, word, count). Raises UserError, naming the lines, for a word that is
    listed twice.
    """
    words: list[str] = []
    line_of: dict[str, int] = {}
    lines = enumerate(read_text(path).split("\n"), start=1)
    cut = [(number, line.split("\t") if rules.unit is Unit.char else split_words(line)) for number, line in lines]
    rows = [(number, columns) for number, columns in cut if columns and columns[0]]
    ranked = all(len(columns) > 1 and columns[0] == str(rank) for rank, (_, columns) in enumerate(rows, start=1))
    ranked = ranked and not all(columns[1].isdigit() for _, columns in rows)
    for number, columns in rows:
        word = columns[1] if ranked else columns[0]
        if rules.lowercase:
            word = word.lower()
        if word in line_of:
            raise UserError(f"{path}, line {number}: {word!r} stands in line {line_of[word]} already; remove one")
        line_of[word] = number
        words.append(word)
    return words

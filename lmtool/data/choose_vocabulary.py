"""Choose the vocabulary: which words, or which pieces of words, from the counts of types in train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.config.data import DataConfig, VocabularyConfig
from lmtool.data.readers import read_bytes, read_text
from lmtool.data.sources.base import Source
from lmtool.data.subwords import PieceTable, Subwords
from lmtool.data.text_files import text_file
from lmtool.data.text_rules import UNCHANGED, TextRules
from lmtool.data.tokenizer import BOS_ID, EOS_ID, RESERVED, UNK_ID, TextBlock, split_words
from lmtool.data.vocabulary import BOS, EOS, UNK, Vocabulary
from lmtool.errors import UserError
from lmtool.system.arrays import IntArray


def select(
    types: list[str], counts: IntArray, limits: VocabularyConfig | None, *, word_list: list[str] | None, sentences: bool
) -> tuple[Vocabulary, npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Return the vocabulary, the final id of each provisional id `[T]`, and which provisional ids are OOV `[T]`.

    types, counts `[T]`: by provisional id; counts are of train. word_list: the words of a list, in its order; None
    chooses the most frequent words within the limits. sentences: whether `</s>` is a word.
    """
    closed = limits is not None and limits.closed
    if word_list is None:
        assert limits is not None
        chosen = np.flatnonzero(counts >= limits.min_count)
        chosen = chosen[chosen >= len(RESERVED)]
        chosen = chosen[np.argsort(-counts[chosen], kind="stable")][: limits.size]
        words = [types[k] for k in chosen]
        word_counts = counts[chosen]
    else:
        id_of = {word: k for k, word in enumerate(types)}
        words = [word for word in word_list if word not in RESERVED]
        known = [id_of.get(word, -1) for word in words]
        word_counts = np.array([counts[k] if k >= 0 else 0 for k in known], dtype=np.int64)
        chosen = np.array([k for k in known if k >= 0], dtype=np.int64)
    oov = np.ones(len(types), dtype=bool)
    oov[chosen] = False
    oov[: len(RESERVED)] = False
    unk_count = counts[UNK_ID] + counts[oov].sum()
    marks = ([UNK] if unk_count or not closed else []) + ([EOS] if sentences else [])
    words = [*words, *marks]
    word_counts = np.concatenate([word_counts, [unk_count if mark == UNK else counts[EOS_ID] for mark in marks]])
    order = np.argsort(-word_counts, kind="stable")
    ordered = [words[k] for k in order]
    final = {word: k for k, word in enumerate(ordered)}
    bos = len(ordered)
    remap = np.full(len(types), final.get(UNK, bos), dtype=np.int32)
    remap[chosen] = [final[types[k]] for k in chosen]
    remap[EOS_ID], remap[BOS_ID] = final.get(EOS, bos), bos  # see Vocabulary.cut_sentences
    all_counts = np.append(word_counts[order], 0 if sentences else counts[EOS_ID]).astype(np.int64)
    vocabulary = Vocabulary((*ordered, BOS), all_counts, final.get(EOS), bos if closed else final[UNK])
    vocabulary.require_no_oov([types[k] for k in np.flatnonzero(oov)])
    return vocabulary, remap, oov


def occurrence_ranks(firsts: dict[str, Any], vocabulary: Vocabulary) -> IntArray:
    """Return the rank of each word by its first occurrence, int64 `[V]`; -1 if it is not in `firsts`."""
    numbers = np.full(len(vocabulary), -1, dtype=np.int64)
    for number, word in enumerate(sorted(firsts, key=lambda word: firsts[word])):
        numbers[vocabulary.ids[word]] = number
    return numbers


def listed_words(source: Source, data: DataConfig) -> list[str] | None:
    """Return the listed words of the vocabulary in their order, or None if train decides."""
    if not isinstance(source.word_list, str):
        return source.word_list
    return read_word_list(source.word_list, TextRules.of(data).word_rules, chars=data.vocabulary.unit.is_character)


def read_limit_words(path: str, rules: TextRules = UNCHANGED) -> list[str]:
    """Return the words of the file limit_vocabulary=, separated by white space. rules: of the data set's text.

    Raises UserError if each line has a word and a number, as in Google's lists: the numbers would be words.
    """
    text = rules(read_text(text_file(path, "limit_vocabulary")))
    rows = [row for line in text.split("\n") if (row := split_words(line))]
    if rows and all(len(row) == 2 and sum(map(str.isdigit, row)) == 1 for row in rows):
        what = "each line has a word and a number, as in Google's lists of words with counts"
        raise UserError(f"limit_vocabulary={path}: {what}: give the words alone, e.g. the column that cut -f1 prints")
    words = [word for row in rows for word in row]
    _require_no_cells(words, f"limit_vocabulary={path}")
    return words


def _require_no_cells(words: list[str], where: str) -> None:
    """Raise UserError if each word is several cells of a spreadsheet, whose separator would be a character of the
    word.
    """
    mark = next((mark for mark in ",;" if len(words) > 1 and all(mark in word[1:-1] for word in words)), None)
    if mark is not None:
        raise UserError(f"{where}: each line has cells with {mark} between them: give words alone, one per line")


def read_word_list(path: str, rules: TextRules = UNCHANGED, *, chars: bool = False) -> list[str]:
    """Return the words of a list, one per line: the first column, regardless of others. rules: the rules that rewrite
    them. chars: whether they are characters, so that only a tab ends a column.

    If the first column is 1, 2, 3, ... throughout and not only numbers follow, it is ranks, and the second column has
    the words (as in the lists of HW3: rank, word, count).
    """
    line_of: dict[str, int] = {}
    lines = enumerate(read_text(path).split("\n"), start=1)
    cut = [(number, line.split("\t") if chars else split_words(line)) for number, line in lines]
    rows = [(number, columns) for number, columns in cut if columns and columns[0]]
    ranked = all(len(columns) > 1 and columns[0] == str(rank) for rank, (_, columns) in enumerate(rows, start=1))
    ranked = ranked and not all(columns[1].isdigit() for _, columns in rows)
    for number, columns in rows:
        word = rules(columns[1] if ranked else columns[0])
        if word in line_of:
            raise UserError(f"{path}, line {number}: {word!r} stands in line {line_of[word]} already; remove one")
        line_of[word] = number
    _require_no_cells(list(line_of), path)
    return list(line_of)


SENTENCEPIECE = ".model"


def choose_pieces(source: Source, types: list[str], counts: IntArray, rules: VocabularyConfig) -> Subwords:
    """Return the given tokenizer, or one learned from the types `[T]` of train that have min_count."""
    if isinstance(source.word_list, str):
        return read_subwords(source.word_list, rules)
    from lmtool.data._train_subwords import train_subwords

    counted = counts >= rules.min_count
    counted[[number for number in range(len(RESERVED)) if number != UNK_ID]] = False  # a literal <unk> is a word
    chosen = np.flatnonzero(counted & (counts > 0))
    if not len(chosen):
        raise UserError(f"data.vocabulary.min_count={rules.min_count}: no word of train occurs as often; lower it")
    assert rules.size is not None, "the settings have a default"
    return train_subwords([types[k] for k in chosen.tolist()], counts[chosen], rules.unit, rules.size)


def read_subwords(path: str, rules: VocabularyConfig) -> Subwords:
    """Read the tokenizer in a file: tokenizer.json of the library tokenizers, or a .model of SentencePiece."""
    raw = read_bytes(path)
    if path.endswith(SENTENCEPIECE):
        from lmtool.data._sentencepiece_model import subwords_of_model

        return subwords_of_model(raw, path, rules.unit)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise UserError(
            f"{path} is not a tokenizer.json and its name does not end in {SENTENCEPIECE}: give one of these"
        ) from None
    return Subwords.parse(text, path, rules.unit)


def piece_writer(path: str) -> Callable[[TextBlock], TextBlock]:
    """Return a function that writes texts as pieces with spaces between them. path: a .model of SentencePiece."""
    from lmtool.data._sentencepiece_model import piece_lines

    in_pieces = piece_lines(read_bytes(path), path)

    def written(block: TextBlock) -> TextBlock:
        lines = [line.removesuffix("\r") for line in block.content.decode("utf-8", "replace").split("\n")[:-1]]
        return block.rewrite("".join(f"{line}\n" for line in in_pieces(lines)).encode())

    return written


def pieces_of_types(subwords: Subwords, types: list[str]) -> PieceTable:
    """Return the pieces of types `[T]` by provisional id. Reserved words have the first numbers, and one piece each."""
    assert (EOS_ID, UNK_ID, BOS_ID) == (0, 1, 2)
    table = subwords.table([UNK, *types[len(RESERVED) :]])  # <unk> in the text is five characters
    lengths = np.concatenate([[1], table.lengths[:1], [1], table.lengths[1:]])
    ids = np.append(np.array([EOS_ID], dtype=np.int32), table.ids + np.int32(len(RESERVED)))
    ids = np.insert(ids, 1 + table.lengths[0], UNK_ID)
    return PieceTable(np.append(0, np.cumsum(lengths)), ids)


def vocabulary_of_pieces(
    subwords: Subwords, types: list[str], counts: IntArray, rules: VocabularyConfig, *, sentences: bool
) -> tuple[Vocabulary, PieceTable]:
    """Return the vocabulary of all pieces, and the final ids of the pieces of each type `[T]` of train."""
    table = pieces_of_types(subwords, types)
    names = [*RESERVED, *subwords.names]
    piece_counts = np.zeros(len(names), dtype=np.int64)
    np.add.at(piece_counts, table.ids, np.repeat(counts, table.lengths))
    vocabulary, remap, _ = select(names, piece_counts, rules, word_list=names, sentences=sentences)
    return vocabulary, PieceTable(table.starts, remap[table.ids])

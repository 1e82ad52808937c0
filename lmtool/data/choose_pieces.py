"""Which pieces of words become the vocabulary: those of a given tokeniser, or learned from the words of train."""

from __future__ import annotations

import numpy as np

from lmtool.config.vocabulary import VocabularyConfig
from lmtool.data.choose_vocabulary import select
from lmtool.data.readers import read_bytes
from lmtool.data.sources.base import Source
from lmtool.data.subwords import PieceTable, Subwords
from lmtool.data.tokeniser import BOS_ID, EOS_ID, RESERVED, UNK_ID
from lmtool.data.vocabulary import UNK, Vocabulary
from lmtool.errors import UserError
from lmtool.system.arrays import IntArray

SENTENCEPIECE = ".model"


def require_words(source: Source, rules: VocabularyConfig) -> None:
    """Raise UserError for a source that gives no text to cut into pieces."""
    if rules.unit.is_subword and (source.drawn is not None or source.counted is not None):
        what = "draws words" if source.drawn is not None else "counts words elsewhere"
        raise UserError(
            f"data.vocabulary.unit={rules.unit.value}: this source {what} and gives no text; take unit=word"
        )


def choose_pieces(source: Source, types: list[str], counts: IntArray, rules: VocabularyConfig) -> Subwords:
    """The tokeniser that is given, or one learned from the words that have min_count.

    types, counts `[T]`: by provisional id; counts are those in train. Raises UserError for a file that is no tokeniser.
    """
    if isinstance(source.word_list, str):
        return read_subwords(source.word_list, rules)
    from lmtool.data.train_subwords import train_subwords

    counted = counts >= rules.min_count
    counted[[number for number in range(len(RESERVED)) if number != UNK_ID]] = False  # a literal <unk> is a word
    chosen = np.flatnonzero(counted & (counts > 0))
    if not len(chosen):
        raise UserError(f"data.vocabulary.min_count={rules.min_count}: no word of train is so frequent; lower it")
    assert rules.size is not None, "the settings have a default"
    return train_subwords([types[k] for k in chosen.tolist()], counts[chosen], rules.unit, rules.size)


def read_subwords(path: str, rules: VocabularyConfig) -> Subwords:
    """The tokeniser in a file: tokenizer.json of the library tokenizers, or a .model of SentencePiece.

    Raises UserError for another file, and for a tokeniser of another unit.
    """
    raw = read_bytes(path)
    if path.endswith(SENTENCEPIECE):
        from lmtool.data.sentencepiece_model import subwords_of_model

        return subwords_of_model(raw, path, rules.unit)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise UserError(f"{path} is no tokenizer.json, nor named {SENTENCEPIECE}: give one of these") from None
    return Subwords.parse(text, path, rules.unit)


def pieces_of_types(subwords: Subwords, types: list[str]) -> PieceTable:
    """The pieces of words by provisional id: their numbers after those of the reserved words, of which `</s>` has one.

    types `[T]`: all that there are so far. Raises UserError for a word that cannot be written.
    """
    assert (EOS_ID, UNK_ID, BOS_ID) == (0, 1, 2)
    table = subwords.table([UNK, *types[len(RESERVED) :]])  # <unk> in the text is five characters
    lengths = np.concatenate([[1], table.lengths[:1], [0], table.lengths[1:]])
    ids = np.append(np.array([EOS_ID], dtype=np.int32), table.ids + np.int32(len(RESERVED)))
    return PieceTable(np.append(0, np.cumsum(lengths)), ids)


def vocabulary_of_pieces(
    subwords: Subwords, types: list[str], counts: IntArray, rules: VocabularyConfig, *, sentences: bool
) -> tuple[Vocabulary, PieceTable]:
    """The vocabulary of all pieces, and the final ids of the pieces of each provisional word.

    types, counts `[T]`: as of choose_pieces. Raises UserError for a word that cannot be written.
    """
    table = pieces_of_types(subwords, types)
    names = [*RESERVED, *subwords.names]
    of_pieces = np.zeros(len(names), dtype=np.int64)
    np.add.at(of_pieces, table.ids, np.repeat(counts, table.lengths))
    vocabulary, remap, _ = select(names, of_pieces, rules, given=names, sentences=sentences)
    return vocabulary, PieceTable(table.starts, remap[table.ids])

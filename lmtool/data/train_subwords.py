"""Pieces learned from the words of train: byte-pair encoding (Sennrich, Haddow & Birch 2016) or a unigram model (Kudo
2018), over the bytes of the words (Radford et al. 2019), each of which is a piece too, so that every text can be
written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lmtool.config.vocabulary import BYTES, Unit
from lmtool.data.subwords import INSTALL, Subwords
from lmtool.data.unigram_pieces import unigram_pieces
from lmtool.errors import UserError
from lmtool.system.arrays import IntArray

MOST_WORDS = 20_000_000  # that the library is given; counts of more are scaled down
LONGEST_WORD = 256  # bytes; what is longer is no word to learn from
# The characters by which byte-level tokenisers write bytes: printable ones stand for themselves, others for the rest.
PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
OTHERS = [byte for byte in range(BYTES) if byte not in PRINTABLE]
LETTERS = {byte: chr(byte) for byte in PRINTABLE} | {byte: chr(BYTES + k) for k, byte in enumerate(OTHERS)}


def train_subwords(words: Sequence[str], counts: IntArray, unit: Unit, size: int) -> Subwords:
    """`size` pieces, or fewer where there are not so many, learned from words and their counts `[W]`.

    The same words in the same order give the same pieces. Raises UserError without the library.
    """
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError:
        raise UserError(INSTALL) from None
    texts = [f" {word}".encode() for word in words]
    chosen = [k for k, text in enumerate(texts) if len(text) <= LONGEST_WORD]
    texts, counts = [texts[k] for k in chosen], counts[chosen]
    if unit is Unit.unigram:
        pieces = unigram_pieces(texts, counts, size)
        tokenizer = Tokenizer(models.Unigram([(written(piece), score) for piece, score in pieces]))
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        alphabet = sorted(LETTERS.values())
        trainer = trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=alphabet, special_tokens=[], show_progress=False
        )
        tokenizer.train_from_iterator(_repeated(texts, counts), trainer=trainer)
    at_spaces = pre_tokenizers.Split(" ", "merged_with_next")
    of_bytes = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([at_spaces, of_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    return Subwords(tokenizer, f"the {unit.value} of train")


def written(text: bytes) -> str:
    """Bytes as byte-level tokenisers write them: a letter for each."""
    return "".join(LETTERS[byte] for byte in text)


def _repeated(texts: list[bytes], counts: IntArray) -> Iterator[str]:
    """Each word as often as it counts, for the library, which counts words itself."""
    total = int(counts.sum())
    if total > MOST_WORDS:
        counts = np.ceil(counts * (MOST_WORDS / total)).astype(np.int64)
    for text, count in zip(texts, counts.tolist(), strict=True):
        word = f"{written(text)} "
        at_once = max(1, (1 << 20) // len(word))
        for first in range(0, count, at_once):
            yield word * min(at_once, count - first)

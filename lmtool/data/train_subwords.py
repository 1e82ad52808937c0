"""Learn pieces of words from the words of train: byte-pair encoding or a unigram model, over bytes.

Byte-pair encoding is of Sennrich, Haddow & Birch (2016), the unigram model of Kudo (2018); both cut the bytes of the
words (Radford et al. 2019), each of which is a piece too, so that every text can be written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.config.data import BYTES, Unit
from lmtool.data.subwords import INSTALL, Subwords
from lmtool.errors import UserError
from lmtool.system.arrays import FloatArray, IntArray

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


LONGEST = 24  # bytes of a piece
SEEDS = 16  # pieces to begin with for each that is wanted, at least LEAST_SEEDS
LEAST_SEEDS = 1 << 16
MOST_BYTES = 1 << 20  # of the words that pieces are learned from, the most frequent: bounds memory
KEPT = 0.75  # share of the pieces that a round keeps
STEPS = 2  # of EM in each round
LAST_STEPS = 4
FEWEST = 0.5  # expected occurrences below which a piece is left out, and the least that a byte is given
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Lattices:
    """The substrings of words that are pieces, by word, then by end, then by start.

    first: int64 `[W + 1]`, where each word's arcs begin. start, end: int32 `[A]`, in bytes of the word. piece: int32
    `[A]`. count: float64 `[W]`, of the words. longest: bytes of a word.
    """

    first: IntArray
    start: Array
    end: Array
    piece: Array
    count: FloatArray
    longest: int

    def only(self, kept: npt.NDArray[np.bool_]) -> Lattices:
        """The arcs of the pieces that are kept, bool `[P]`, which are renumbered in their order."""
        renumbered = np.cumsum(kept, dtype=np.int32) - 1
        stay = kept[self.piece]
        before = np.concatenate([[0], np.cumsum(stay)])
        arrays = self.start[stay], self.end[stay], renumbered[self.piece[stay]]
        return Lattices(before[self.first], *arrays, self.count, self.longest)


def unigram_pieces(words: list[bytes], counts: IntArray, size: int) -> list[tuple[bytes, float]]:
    """`size` pieces with their log-probabilities, natural, most probable first; fewer where words have not so many.

    words: UTF-8, all different, with their counts `[W]`. All 256 bytes are among the pieces. A longer piece neither
    begins nor ends within a character.
    """
    order = np.argsort(-counts, kind="stable")
    lengths = np.array([len(words[k]) for k in order], dtype=np.int64)
    taken = order[np.cumsum(lengths) <= MOST_BYTES]
    words = [words[k] for k in taken]
    lattices, pieces, log_p = _seeds(words, counts[taken].astype(np.float64), size)
    fixed = np.array([len(piece) == 1 for piece in pieces])
    while True:
        for _ in range(STEPS):
            expected = _expected(lattices, log_p)
            log_p = _maximised(expected, fixed)
        loss = _lost(lattices, log_p, expected)
        wanted = max(size, int(KEPT * len(pieces)))
        kept = fixed | (expected >= FEWEST)
        if kept.sum() > wanted:
            ranked = np.argsort(np.where(fixed, -np.inf, np.where(kept, -loss, np.inf)), kind="stable")
            kept[ranked[wanted:]] = False
        done = len(pieces) <= size or kept.sum() <= size
        lattices, log_p, fixed = lattices.only(kept), log_p[kept], fixed[kept]
        pieces = [piece for piece, stays in zip(pieces, kept.tolist(), strict=True) if stays]
        if done:
            break
    for _ in range(LAST_STEPS):
        expected = _expected(lattices, log_p)
        log_p = _maximised(expected, fixed, everything=True)
    best = np.argsort(-log_p, kind="stable")
    return [(pieces[k], float(log_p[k])) for k in best]


def _expected(x: Lattices, log_p: FloatArray) -> FloatArray:
    """The E step: how often each piece is used `[P]`, over all cuts of the words."""
    expected = np.zeros(len(log_p))
    _expect(x.first, x.start, x.end, x.piece, x.count, log_p, expected, x.longest)
    return expected


def _lost(x: Lattices, log_p: FloatArray, expected: FloatArray) -> FloatArray:
    """What the likelihood would lose without each piece `[P]`, about; 0 for a byte."""
    loss = np.zeros(len(log_p))
    _losses(x.first, x.start, x.end, x.piece, log_p, expected, loss, x.longest)
    return loss


def _maximised(expected: FloatArray, fixed: npt.NDArray[np.bool_], *, everything: bool = False) -> FloatArray:
    """The M step: log-probabilities from expected counts; those of the pieces that stay in any case are not 0."""
    counts = np.where(fixed | everything, np.maximum(expected, FEWEST), expected)
    with np.errstate(divide="ignore"):
        log_p: FloatArray = np.log(counts) - math.log(counts.sum())
    return log_p


def _seeds(words: list[bytes], counts: FloatArray, size: int) -> tuple[Lattices, list[bytes], FloatArray]:
    """The pieces to begin with: all bytes, and the substrings of the largest count times length."""
    text = np.frombuffer(b"".join(words) + b"\0", dtype=np.uint8)
    begins = np.cumsum([0, *map(len, words)])
    first = np.zeros(len(words) + 1, dtype=np.int64)
    nothing = np.empty(0, dtype=np.int32)
    _substrings(text, begins, first, False, nothing, nothing, np.empty(0, dtype=np.uint64))
    np.cumsum(first, out=first)
    total = int(first[-1])
    start, end, hashes = np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total, np.uint64)
    _substrings(text, begins, first, True, start, end, hashes)
    _, example, piece = np.unique(hashes, return_index=True, return_inverse=True)
    word = np.repeat(np.arange(len(words)), np.diff(first))
    length = (end - start)[example]
    freq = np.bincount(piece, counts[word], minlength=len(example))
    # Ties by the place of the first occurrence, so that nothing depends on the hashes.
    places = np.lexsort((example, -freq * length))
    long = places[(length[places] > 1) & (freq[places] > 1)][: max(SEEDS * size, LEAST_SEEDS)]
    single = np.flatnonzero(length == 1)
    kept = np.zeros(len(example), dtype=bool)
    kept[long], kept[single] = True, True
    at = (begins[word] + start)[example]
    raw = text.tobytes()
    strings = [raw[a : a + n] for a, n in zip(at[kept].tolist(), length[kept].tolist(), strict=True)]
    unseen = [bytes([byte]) for byte in range(256) if bytes([byte]) not in set(strings)]
    lattices = Lattices(first, start, end, piece.astype(np.int32), counts, max(map(len, words))).only(kept)
    with_unseen = np.append(freq[kept], np.full(len(unseen), FEWEST))
    return lattices, strings + unseen, np.log(with_unseen) - math.log(with_unseen.sum())


@numba.njit(cache=True, nogil=True)
def _substrings(text: Any, begins: Any, first: Any, fill: bool, start: Any, end: Any, hashes: Any) -> None:
    """All substrings of each word, by end and start: their numbers in first[w + 1], or, to `fill`, what they are.

    Of those longer than a byte only such as hold whole characters. Hashes are FNV-1a of the bytes from the last one.
    """
    for word in range(len(begins) - 1):
        begin, after = begins[word], begins[word + 1]
        written = first[word] if fill else 0
        for stop in range(begin + 1, after + 1):
            ends = stop == after or (text[stop] & 0xC0) != 0x80
            lowest = max(begin, stop - LONGEST) if ends else stop - 1
            for at in range(lowest, stop):
                if at < stop - 1 and (text[at] & 0xC0) == 0x80:
                    continue
                if fill:
                    value = np.uint64(14695981039346656037)
                    for i in range(at, stop):
                        value = (value ^ np.uint64(text[i])) * np.uint64(1099511628211)
                    start[written], end[written], hashes[written] = at - begin, stop - begin, value
                written += 1
        if not fill:
            first[word + 1] = written


@numba.njit(cache=True, nogil=True)
def _add(a: float, b: float) -> float:
    """log(exp a + exp b)."""
    if a < b:
        a, b = b, a
    return a + math.log1p(math.exp(b - a)) if b > -math.inf else a


@numba.njit(cache=True, nogil=True)
def _expect(first: Any, start: Any, end: Any, piece: Any, count: Any, log_p: Any, expected: Any, longest: int) -> None:
    """The E step: add to `expected` `[P]` how often each piece is used, over all cuts, by forward and backward sums."""
    forward, backward = np.empty(longest + 1), np.empty(longest + 1)
    for word in range(len(count)):
        a, b = first[word], first[word + 1]
        size = end[b - 1]
        forward[: size + 1], backward[: size + 1] = -math.inf, -math.inf
        forward[0], backward[size] = 0.0, 0.0
        for k in range(a, b):
            forward[end[k]] = _add(forward[end[k]], forward[start[k]] + log_p[piece[k]])
        for k in range(b - 1, a - 1, -1):
            backward[start[k]] = _add(backward[start[k]], backward[end[k]] + log_p[piece[k]])
        for k in range(a, b):
            log = forward[start[k]] + log_p[piece[k]] + backward[end[k]] - forward[size]
            expected[piece[k]] += count[word] * math.exp(log)


@numba.njit(cache=True, nogil=True)
def _losses(first: Any, start: Any, end: Any, piece: Any, log_p: Any, expected: Any, loss: Any, longest: int) -> None:
    """What the likelihood would lose without each piece `[P]`: its uses times log p over that of its best other cut."""
    best = np.empty(longest + 1)
    seen = np.zeros(len(loss), dtype=np.bool_)
    for word in range(len(first) - 1):
        a, b = first[word], first[word + 1]
        for k in range(a, b):
            number, low, high = piece[k], start[k], end[k]
            if seen[number] or high - low == 1:
                continue
            seen[number] = True
            best[low : high + 1] = -math.inf
            best[low] = 0.0
            for arc in range(a, k):  # those that end before its end, or there and begin before it
                if start[arc] >= low:
                    best[end[arc]] = max(best[end[arc]], best[start[arc]] + log_p[piece[arc]])
            for arc in range(k + 1, b):
                if end[arc] > high:
                    break
                best[high] = max(best[high], best[start[arc]] + log_p[piece[arc]])
            loss[number] = expected[number] * (log_p[number] - best[high])

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

MAX_WORDS = 20_000_000  # given to the library; larger counts are scaled down
MAX_WORD_BYTES = 256  # longer words are not used for learning
# The characters by which byte-level tokenizers write bytes: printable ones stand for themselves, others for the rest.
PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
OTHERS = [byte for byte in range(BYTES) if byte not in PRINTABLE]
LETTERS = {byte: chr(byte) for byte in PRINTABLE} | {byte: chr(BYTES + k) for k, byte in enumerate(OTHERS)}


def train_subwords(words: Sequence[str], counts: IntArray, unit: Unit, size: int) -> Subwords:
    """Learn `size` pieces, or fewer if the words do not have as many, from words and their counts `[W]`.

    The same words in the same order give the same pieces. Raises UserError if the library is not installed.
    """
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError:
        raise UserError(INSTALL) from None
    texts = [f" {word}".encode() for word in words]
    chosen = [k for k, text in enumerate(texts) if len(text) <= MAX_WORD_BYTES]
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
    """Return bytes as byte-level tokenizers write them: one letter per byte."""
    return "".join(LETTERS[byte] for byte in text)


def _repeated(texts: list[bytes], counts: IntArray) -> Iterator[str]:
    """Yield each word as many times as its count, for the library, which counts words itself."""
    total = int(counts.sum())
    if total > MAX_WORDS:
        counts = np.ceil(counts * (MAX_WORDS / total)).astype(np.int64)
    for text, count in zip(texts, counts.tolist(), strict=True):
        word = f"{written(text)} "
        at_once = max(1, (1 << 20) // len(word))
        for first in range(0, count, at_once):
            yield word * min(at_once, count - first)


MAX_PIECE_BYTES = 24
SEEDS_PER_PIECE = 16  # initial pieces per wanted piece, at least MIN_SEEDS
MIN_SEEDS = 1 << 16
MAX_BYTES = 1 << 20  # total of the most frequent words, from which pieces are learned: bounds memory
KEPT_SHARE = 0.75  # of the pieces, per round
EM_STEPS = 2  # per round
LAST_EM_STEPS = 4
MIN_EXPECTED = 0.5  # occurrences; a piece with fewer is left out, a byte gets this many
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Lattices:
    """The substrings of words that are pieces (arcs), sorted by word, end and start.

    first: int64 `[W + 1]`, where the arcs of each word begin. start, end: int32 `[A]`, in bytes of the word. piece:
    int32 `[A]`. count: float64 `[W]`, of the words. longest: bytes of a word.
    """

    first: IntArray
    start: Array
    end: Array
    piece: Array
    count: FloatArray
    longest: int

    def only(self, kept: npt.NDArray[np.bool_]) -> Lattices:
        """Return the arcs of the pieces in the mask `kept`, bool `[P]`; the pieces are renumbered in their order."""
        renumbered = np.cumsum(kept, dtype=np.int32) - 1
        stay = kept[self.piece]
        before = np.concatenate([[0], np.cumsum(stay)])
        arrays = self.start[stay], self.end[stay], renumbered[self.piece[stay]]
        return Lattices(before[self.first], *arrays, self.count, self.longest)


def unigram_pieces(words: list[bytes], counts: IntArray, size: int) -> list[tuple[bytes, float]]:
    """Learn `size` pieces, or fewer if words do not have as many; return them with natural log-probabilities, best
    first.

    words: UTF-8, all different, with their counts `[W]`. All 256 bytes are among the pieces. A longer piece neither
    begins nor ends within a character.
    """
    order = np.argsort(-counts, kind="stable")
    lengths = np.array([len(words[k]) for k in order], dtype=np.int64)
    taken = order[np.cumsum(lengths) <= MAX_BYTES]
    words = [words[k] for k in taken]
    lattices, pieces, log_p = _seeds(words, counts[taken].astype(np.float64), size)
    fixed = np.array([len(piece) == 1 for piece in pieces])
    while True:
        for _ in range(EM_STEPS):
            expected = _expected(lattices, log_p)
            log_p = _maximised(expected, fixed)
        loss = _lost(lattices, log_p, expected)
        wanted = max(size, int(KEPT_SHARE * len(pieces)))
        kept = fixed | (expected >= MIN_EXPECTED)
        if kept.sum() > wanted:
            ranked = np.argsort(np.where(fixed, -np.inf, np.where(kept, -loss, np.inf)), kind="stable")
            kept[ranked[wanted:]] = False
        done = len(pieces) <= size or kept.sum() <= size
        lattices, log_p, fixed = lattices.only(kept), log_p[kept], fixed[kept]
        pieces = [piece for piece, stays in zip(pieces, kept.tolist(), strict=True) if stays]
        if done:
            break
    for _ in range(LAST_EM_STEPS):
        expected = _expected(lattices, log_p)
        log_p = _maximised(expected, fixed, everything=True)
    best = np.argsort(-log_p, kind="stable")
    return [(pieces[k], float(log_p[k])) for k in best]


def _expected(x: Lattices, log_p: FloatArray) -> FloatArray:
    """Run the E step: return the expected number of uses of each piece `[P]`, over all cuts of the words."""
    expected = np.zeros(len(log_p))
    _expect(x.first, x.start, x.end, x.piece, x.count, log_p, expected, x.longest)
    return expected


def _lost(x: Lattices, log_p: FloatArray, expected: FloatArray) -> FloatArray:
    """Return the approximate loss in log-likelihood without each piece `[P]`; 0 for a byte."""
    loss = np.zeros(len(log_p))
    _losses(x.first, x.start, x.end, x.piece, log_p, expected, loss, x.longest)
    return loss


def _maximised(expected: FloatArray, fixed: npt.NDArray[np.bool_], *, everything: bool = False) -> FloatArray:
    """Run the M step: return log-probabilities from expected counts; pieces that always stay have more than -inf."""
    counts = np.where(fixed | everything, np.maximum(expected, MIN_EXPECTED), expected)
    with np.errstate(divide="ignore"):
        log_p: FloatArray = np.log(counts) - math.log(counts.sum())
    return log_p


def _seeds(words: list[bytes], counts: FloatArray, size: int) -> tuple[Lattices, list[bytes], FloatArray]:
    """Return the initial pieces: all bytes, and the substrings with the largest count times length."""
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
    long = places[(length[places] > 1) & (freq[places] > 1)][: max(SEEDS_PER_PIECE * size, MIN_SEEDS)]
    single = np.flatnonzero(length == 1)
    kept = np.zeros(len(example), dtype=bool)
    kept[long], kept[single] = True, True
    at = (begins[word] + start)[example]
    raw = text.tobytes()
    strings = [raw[a : a + n] for a, n in zip(at[kept].tolist(), length[kept].tolist(), strict=True)]
    unseen = [bytes([byte]) for byte in range(256) if bytes([byte]) not in set(strings)]
    lattices = Lattices(first, start, end, piece.astype(np.int32), counts, max(map(len, words))).only(kept)
    with_unseen = np.append(freq[kept], np.full(len(unseen), MIN_EXPECTED))
    return lattices, strings + unseen, np.log(with_unseen) - math.log(with_unseen.sum())


@numba.njit(cache=True, nogil=True)
def _substrings(text: Any, begins: Any, first: Any, fill: bool, start: Any, end: Any, hashes: Any) -> None:
    """List the substrings of each word, by end and start: count them into first[w + 1], or, with `fill`, write them.

    Substrings longer than a byte have whole characters only. Hashes are FNV-1a of the bytes. Run twice, first to count:
    the arrays are allocated once, and nothing is appended per substring.
    """
    for word in range(len(begins) - 1):
        begin, after = begins[word], begins[word + 1]
        written = first[word] if fill else 0
        for stop in range(begin + 1, after + 1):
            ends = stop == after or (text[stop] & 0xC0) != 0x80
            lowest = max(begin, stop - MAX_PIECE_BYTES) if ends else stop - 1
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
    """Add the expected number of uses of each piece to `expected` `[P]`, by forward and backward sums over all cuts.

    The plain form enumerates the cuts of a word, which are exponentially many (tests/data/test_subwords.py ties them).
    Arcs are sorted by end, so that one pass in their order is a forward pass, and one in reverse a backward pass.
    """
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
    """Write the loss without each piece `[P]`: its uses times log p(piece) minus log p of its best other cut.

    Each piece is looked at once, at its first occurrence: its other cuts are arcs of the same word, a contiguous range.
    """
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

"""Learn pieces of words from the words of train: byte-pair encoding or a unigram model, over characters or bytes.

Sources: Sennrich, Haddow & Birch (2016) for byte-pair encoding, Kudo (2018) for the unigram model. Text in Latin
letters is cut as bytes (Radford et al. 2019), text in other scripts as characters, the rarest of which are written as
bytes (Kudo & Richardson 2018). Each byte is also a piece, so that every text can be written.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, AnyStr, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import regex

from lmtool.config.data import BYTES, Unit
from lmtool.data.subwords import BYTE_PIECES, INSTALL, LETTERS, SPACE, Subwords
from lmtool.errors import UserError
from lmtool.system.arrays import Array, FloatArray, IntArray

MAX_WORDS = 20_000_000  # maximum number given to the library; larger counts are scaled down
MAX_WORD_SIZE = 256  # maximum bytes of words used for learning; or characters, after which words are cut
NON_LATIN = 0.1  # minimum share of non-Latin letters for pieces of characters
COVERAGE = 0.9995  # share of the text whose characters are pieces, the default of SentencePiece
LIKE_A_BYTE = "<(?=0x..>)"  # text that the library would take for a byte is cut after this


def train_subwords(words: Sequence[str], counts: IntArray, unit: Unit, size: int) -> Subwords:
    """Learn `size` pieces, or fewer if the words do not have as many, from words and their counts `[W]`.

    The pieces consist of characters if enough letters are not Latin, else of bytes. The result is deterministic, given
    the words in order.
    """
    try:
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError:
        raise UserError(INSTALL) from None
    character_counts = Counter({" ": int(counts.sum())})  # characters of words, and the space before each
    for word, count in zip(words, counts.tolist(), strict=True):
        for character in word:
            character_counts[character] += count
    letters = {c: count for c, count in character_counts.items() if c.isalpha()}
    other = sum(count for c, count in letters.items() if not regex.match(r"\p{Latin}", c))
    share = other / max(1, sum(letters.values()))
    bytes_first: list[str] = []
    texts: list[Any]  # strings of characters, or bytes
    alphabet: list[Any]
    cutter: pre_tokenizers.PreTokenizer
    decoder: decoders.Decoder
    if share >= NON_LATIN and size > BYTES:
        bytes_first = list(BYTE_PIECES)
        alphabet = _alphabet(character_counts, size - BYTES)
        texts, counts = _parts(words, counts, alphabet)
        cutter = pre_tokenizers.Split(Regex(LIKE_A_BYTE), "merged_with_previous")
        decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    else:
        alphabet = [bytes([byte]) for byte in range(BYTES)]
        texts = [f" {word}".encode() for word in words]
        chosen = [k for k, text in enumerate(texts) if len(text) <= MAX_WORD_SIZE]
        texts, counts = [texts[k] for k in chosen], counts[chosen]
        cutter = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
        decoder = decoders.ByteLevel()
    room = size - len(bytes_first)
    if unit is Unit.unigram:
        pieces = [(piece_name(piece), score) for piece, score in unigram_pieces(texts, counts, room, alphabet)]
        pieces = [*((name, pieces[-1][1]) for name in bytes_first), *pieces]
        # A character without a piece becomes bytes, not the piece unk_id, which the library requires nevertheless.
        unk_id = 0 if bytes_first else None
        tokenizer = Tokenizer(models.Unigram(pieces, unk_id=unk_id, byte_fallback=bool(bytes_first)))
    else:
        learner = Tokenizer(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.Split("\n", "removed")
        symbols = list(map(piece_name, alphabet))
        trainer = trainers.BpeTrainer(vocab_size=room, initial_alphabet=symbols, special_tokens=[], show_progress=False)
        learner.train_from_iterator(_repeat_texts(list(map(piece_name, texts)), counts), trainer=trainer)
        learned = json.loads(learner.to_str())["model"]
        numbers = {name: number for number, name in enumerate([*bytes_first, *learned["vocab"]])}
        tokenizer = Tokenizer(models.BPE(numbers, list(map(tuple, learned["merges"])), byte_fallback=bool(bytes_first)))
    at_spaces = pre_tokenizers.Split(" ", "merged_with_next")
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence([at_spaces, cutter]), decoder
    kind = f"{len(alphabet):,} characters, and of bytes for all others" if bytes_first else "bytes"
    about = f"{kind}: {100 * share:.1f} % of the letters of train are not Latin"
    return Subwords(tokenizer, f"the {unit.value} of train", about)


def piece_name(text: bytes | str) -> str:
    """Return bytes as byte-level tokenizers write them, one character per byte; return characters unchanged."""
    return text if isinstance(text, str) else "".join(LETTERS[byte] for byte in text)


def _alphabet(counts: Counter[str], size: int) -> list[str]:
    """Return the space and the most frequent characters of the text, at most `size`, without U+2581 (a space)."""
    alphabet, covered, wanted = [" "], counts[" "], COVERAGE * counts.total()
    for character, count in counts.most_common():
        if covered < wanted and len(alphabet) < size and character not in (" ", SPACE):
            alphabet.append(character)
            covered += count
    return alphabet


def _parts(words: Sequence[str], counts: IntArray, alphabet: list[str]) -> tuple[list[str], IntArray]:
    """Return the parts of words between characters that are not in the alphabet, and their counts."""
    known = dict.fromkeys(alphabet)
    part = re.compile(f"[^\n]{{1,{MAX_WORD_SIZE}}}")  # a newline is in no word
    texts = ("".join(c if c in known else "\n" for c in f" {word}") for word in words)
    parts = [part.findall(re.sub(LIKE_A_BYTE, "<\n", text)) for text in texts]
    return list(itertools.chain.from_iterable(parts)), np.repeat(counts, list(map(len, parts)))


def _repeat_texts(texts: list[str], counts: IntArray) -> Iterator[str]:
    """Yield each text as many times as its count, for the library, which counts texts itself."""
    total = int(counts.sum())
    if total > MAX_WORDS:
        counts = np.ceil(counts * (MAX_WORDS / total)).astype(np.int64)
    for text, count in zip(texts, counts.tolist(), strict=True):
        line = f"{text}\n"
        at_once = max(1, (1 << 20) // len(line))
        for first in range(0, count, at_once):
            yield line * min(at_once, count - first)


MAX_PIECE = 24  # symbols: bytes or characters
SEEDS_PER_PIECE = 16  # initial pieces per wanted piece, at least MIN_SEEDS
MIN_SEEDS = 1 << 16
MAX_SYMBOLS = 1 << 20  # maximum total in the most frequent words, from which pieces are learned: bounds memory
KEPT_SHARE = 0.75  # share of the pieces that is kept per round
EM_STEPS = 2  # EM steps per round
LAST_EM_STEPS = 4
MIN_EXPECTED = 0.5  # expected occurrences; pieces with fewer are left out, single symbols get this number


class Lattices(NamedTuple):
    """The substrings of words that are pieces (arcs), sorted by word, end and start.

    first: int64 `[W + 1]`, where the arcs of each word begin.
    start, end: int32 `[A]`, in symbols of the word.
    piece: int32 `[A]`.
    counts: float64 `[W]`, the counts of the words.
    longest: maximum number of symbols of a word.
    """

    first: IntArray
    start: Array
    end: Array
    piece: Array
    counts: FloatArray
    longest: int

    def only(self, kept: npt.NDArray[np.bool_]) -> Lattices:
        """Return the arcs of the pieces in the mask `kept`, bool `[P]`; the pieces are renumbered in their order."""
        renumbered = np.cumsum(kept, dtype=np.int32) - 1
        stay = kept[self.piece]
        before = np.concatenate([[0], np.cumsum(stay)])
        arrays = self.start[stay], self.end[stay], renumbered[self.piece[stay]]
        return Lattices(before[self.first], *arrays, self.counts, self.longest)


def unigram_pieces(
    words: list[AnyStr], counts: IntArray, size: int, alphabet: list[AnyStr]
) -> list[tuple[AnyStr, float]]:
    """Learn `size` pieces, or fewer if words lack them; return them with natural log-probabilities, best first.

    words: sequences of symbols, bytes of UTF-8 or characters, with counts `[W]`. alphabet: all symbols, all of them
    pieces. A longer piece neither begins nor ends within a character.
    """
    order = np.argsort(-counts, kind="stable")
    lengths = np.array([len(words[k]) for k in order], dtype=np.int64)
    taken = order[np.cumsum(lengths) <= MAX_SYMBOLS]
    words = [words[k] for k in taken]
    lattices, pieces, log_p = _seeds(words, counts[taken].astype(np.float64), size, alphabet)
    fixed = np.array([len(piece) == 1 for piece in pieces])
    while True:
        for _ in range(EM_STEPS):
            expected = _expect(lattices, log_p)
            log_p = _maximize(expected, fixed)
        loss = _estimate_losses(lattices, log_p, expected)
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
        expected = _expect(lattices, log_p)
        log_p = _maximize(expected, fixed, everything=True)
    best = np.argsort(-log_p, kind="stable")
    return [(pieces[k], float(log_p[k])) for k in best]


def _maximize(expected: FloatArray, fixed: npt.NDArray[np.bool_], *, everything: bool = False) -> FloatArray:
    """Run the M step: return log-probabilities from expected counts. Permanent pieces have more than -inf."""
    counts = np.where(fixed | everything, np.maximum(expected, MIN_EXPECTED), expected)
    with np.errstate(divide="ignore"):
        log_p: FloatArray = np.log(counts) - math.log(counts.sum())
    return log_p


def _seeds(
    words: list[AnyStr], counts: FloatArray, size: int, alphabet: list[AnyStr]
) -> tuple[Lattices, list[AnyStr], FloatArray]:
    """Return the initial pieces: all symbols, and the substrings with the largest count times length."""
    joined = words[0][:0].join(words)
    letters = joined.encode("utf-32-le") if isinstance(joined, str) else joined
    text = np.frombuffer(letters, dtype=np.uint32 if isinstance(joined, str) else np.uint8).astype(np.uint32)
    inside = ((text & 0xC0) == 0x80) & isinstance(joined, bytes)
    begins = np.cumsum([0, *map(len, words)])
    first = np.zeros(len(words) + 1, dtype=np.int64)
    nothing = np.empty(0, dtype=np.int32)
    _substrings(text, inside, begins, first, False, nothing, nothing, np.empty(0, dtype=np.uint64))
    np.cumsum(first, out=first)
    total = int(first[-1])
    start, end, hashes = np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total, np.uint64)
    _substrings(text, inside, begins, first, True, start, end, hashes)
    _, example, piece = np.unique(hashes, return_index=True, return_inverse=True)
    word = np.repeat(np.arange(len(words)), np.diff(first))
    length = (end - start)[example]
    freq = np.bincount(piece, counts[word], minlength=len(example))
    # Ties are broken by the first occurrence, so that nothing depends on the hashes.
    places = np.lexsort((example, -freq * length))
    long = places[(length[places] > 1) & (freq[places] > 1)][: max(SEEDS_PER_PIECE * size, MIN_SEEDS)]
    single = np.flatnonzero(length == 1)
    kept = np.zeros(len(example), dtype=bool)
    kept[long], kept[single] = True, True
    spans = (array[example[kept]].tolist() for array in (word, start, end))
    strings: list[Any] = [words[k][a:b] for k, a, b in zip(*spans, strict=True)]
    unseen = sorted({*alphabet}.difference(strings))
    lattices = Lattices(first, start, end, piece.astype(np.int32), counts, max(map(len, words))).only(kept)
    with_unseen = np.append(freq[kept], np.full(len(unseen), MIN_EXPECTED))
    return lattices, strings + unseen, np.log(with_unseen) - math.log(with_unseen.sum())


@numba.njit(cache=True, nogil=True)
def _substrings(text: Any, inside: Any, begins: Any, first: Any, fill: bool, start: Any, end: Any, hashes: Any) -> None:
    """List the substrings of each word, by end and start: count them into first[w + 1], or, with `fill`, write them.

    inside: which symbols continue a character. Substrings of several symbols have whole characters only. Hashes are
    FNV-1a of the symbols. Run twice, first to count: the arrays are allocated once, and nothing is appended per
    substring.
    """
    for word in range(len(begins) - 1):
        begin, after = begins[word], begins[word + 1]
        place = first[word] if fill else 0
        for stop in range(begin + 1, after + 1):
            ends = stop == after or not inside[stop]
            lowest = max(begin, stop - MAX_PIECE) if ends else stop - 1
            for at in range(lowest, stop):
                if at < stop - 1 and inside[at]:
                    continue
                if fill:
                    value = np.uint64(14695981039346656037)
                    for i in range(at, stop):
                        value = (value ^ np.uint64(text[i])) * np.uint64(1099511628211)
                    start[place], end[place], hashes[place] = at - begin, stop - begin, value
                place += 1
        if not fill:
            first[word + 1] = place


@numba.njit(cache=True, nogil=True)
def _add(a: float, b: float) -> float:
    """Return log(exp a + exp b)."""
    if a < b:
        a, b = b, a
    return a + math.log1p(math.exp(b - a)) if b > -math.inf else a


@numba.njit(cache=True, nogil=True)
def _expect(x: Lattices, log_p: FloatArray) -> FloatArray:
    """Run the E step: return the expected uses of each piece `[P]`, by forward and backward sums over all cuts.

    The plain form enumerates the cuts of a word, which are exponentially many (tests/data/test_character_pieces.py).
    Arcs are sorted by end, so that one pass in their order is a forward pass, and one in reverse a backward pass.
    """
    first, start, end, piece = x.first, x.start, x.end, x.piece
    expected = np.zeros(len(log_p))
    forward, backward = np.empty(x.longest + 1), np.empty(x.longest + 1)
    for word in range(len(x.counts)):
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
            expected[piece[k]] += x.counts[word] * math.exp(log)
    return expected


@numba.njit(cache=True, nogil=True)
def _estimate_losses(x: Lattices, log_p: FloatArray, expected: FloatArray) -> FloatArray:
    """Return the approximate loss in log-likelihood without each piece `[P]`: its uses times log p(piece) minus log p
    of its best other cut; 0 for a symbol.

    Each piece is examined once, at its first occurrence: its other cuts are arcs of the same word, a contiguous range.
    """
    first, start, end, piece = x.first, x.start, x.end, x.piece
    loss = np.zeros(len(log_p))
    best = np.empty(x.longest + 1)
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
            for arc in range(a, k):  # arcs that end before its end, or end there and begin before it
                if start[arc] >= low:
                    best[end[arc]] = max(best[end[arc]], best[start[arc]] + log_p[piece[arc]])
            for arc in range(k + 1, b):
                if end[arc] > high:
                    break
                best[high] = max(best[high], best[start[arc]] + log_p[piece[arc]])
            loss[number] = expected[number] * (log_p[number] - best[high])
    return loss

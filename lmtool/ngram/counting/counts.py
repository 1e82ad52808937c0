"""Step 1: the n-grams of a text and how often each occurs.

One pass of a sort per order (occurrences.py) finds the distinct n-grams and numbers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np

from lmtool.data.choose_vocabulary import select
from lmtool.data.split import Split
from lmtool.data.text_rules import TextRules
from lmtool.data.tokenizer import WordTokenizer
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.ngram.counting.occurrences import Occurrences
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.storage import Storage, whole_numbers_below
from lmtool.ngram.tables.trie import Trie, TrieBuilder
from lmtool.system.arrays import Array, IntArray
from lmtool.system.parallel import cut_evenly, run

if TYPE_CHECKING:
    from lmtool.data.store import StoredText


MAX_ORDER = 16
TOKENS_PER_PIECE = 1 << 22  # tokens read at once
TOKENS_PER_WINDOW = 1 << 20  # tokens counted by source at once
DAMAGED = "the train split is damaged, delete its store and run lmtool preprocess again:"


class Entries(NamedTuple):
    """E counts, above 0, of n-grams of one order, ascending by node within it, each in one source; int64 `[E]`."""

    ngram: IntArray
    source: IntArray
    occurrences: IntArray


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """The counts in each source of the n-grams that are not the suffix of a longer one: those of the highest order, and
    those that begin with `<s>`.

    names: names of the S sources. entries: entries of each order from 1 on.
    """

    names: list[str]
    entries: list[Entries]

    @classmethod
    def of_one(cls, counts: Counts) -> SourceCounts:
        """Return the counts with the whole text as one source."""
        entries = []
        for k in range(1, counts.order + 1):
            first, packed = 0 if k == counts.order else counts.from_start(k), counts.count[k - 1]
            node, count = np.arange(first, len(packed)), packed[first:]
            predicted = (count > 0) & ((node != counts.bos) if k == 1 else True)
            entries.append(Entries(node[predicted], np.zeros(int(predicted.sum()), dtype=np.int64), count[predicted]))
        return cls(["train"], entries)


@dataclass(frozen=True, slots=True)
class Counts:
    """The n-grams of orders 1 to n of a text.

    suffix: for each order k from 2 on, the last k-1 words of each n-gram, as a node within order k-1.
    count: for each order, how often each n-gram occurs: 0 for words that are not in the text, once per sentence for
    `<s>`.
    bos, unk: the ids of `<s>` and `<unk>`.
    newest: the words `[at most n - 1]` of the n-gram that KenLM sorts last (see newest_ngram), which it counts
    differently (see formulas.fit_order).
    sources: the counts of each source of the text if they are needed, else None.
    """

    trie: Trie
    suffix: list[Packed]
    count: list[Packed]
    bos: int
    unk: int
    newest: IntArray
    sources: SourceCounts | None = None

    @property
    def order(self) -> int:
        return self.trie.order

    def by_source(self) -> SourceCounts:
        """Return the counts of each source, or of the whole text as one source."""
        return self.sources or SourceCounts.of_one(self)

    def from_start(self, order: int) -> int:
        """Return the first n-gram of an order that begins with `<s>`, as do all after it: `<s>` is the last word."""
        return self.trie.first_from(order, self.bos)

    @property
    def distinct_windows(self) -> int:
        """The number of distinct n-grams of the highest order, with `<s>` for all that is before a sentence."""
        if self.order == 1:
            return int(np.count_nonzero(self.count[0][:])) - 1  # <s>
        padded = sum(self.trie.sizes[k - 1] - self.from_start(k) for k in range(2, self.order))
        return padded + self.trie.sizes[-1]

    def full_windows(self) -> Counts:
        """Return the counts without the n-grams that begin with `<s>`, so that all stand whole in a sentence."""
        trie, starts = self.trie, [self.bos + 1, *(self.from_start(k) for k in range(2, self.order + 1))]
        builder = TrieBuilder(trie.vocabulary_size)
        for k, size in enumerate(starts[1:], start=2):
            builder.add(builder.keys(trie.contexts(k)[:size], trie.words(k, 0, size)))
        suffix, count = (
            [Packed.of(part[:size]) for part, size in zip(parts, sizes, strict=True)]
            for parts, sizes in ((self.suffix, starts[1:]), (self.count, starts))
        )
        return replace(self, trie=builder.finish(), suffix=suffix, count=count, newest=self.newest[:0])

    def upto(self, order: int) -> Counts:
        """Return the counts of a model of a lower order."""
        return replace(self, trie=self.trie.upto(order), suffix=self.suffix[: order - 1], count=self.count[:order])


def count_ngrams(
    text: Split | StoredText, vocabulary: Vocabulary, order: int, *, storage: Storage | None = None
) -> Counts:
    """Count the n-grams of orders 1 to `order`, with `<s>` before each sentence; 1-grams are all words."""
    if not 1 <= order <= MAX_ORDER:
        raise UserError(f"model.order={order}: must be from 1 to {MAX_ORDER}")
    if len(text.ids) == 0:
        raise UserError("the train split has no tokens: choose a data set with text in train")
    total = len(text.ids) + len(text.offsets) - 1
    size, bos = len(vocabulary), vocabulary.bos
    storage = (storage or Storage()).unless_enough_for(total)
    words = storage.empty(total, whole_numbers_below(max(size, total)))
    _insert_starts(text, bos, words, storage)
    word_counts, first_places = _count_words(words, size, storage)
    trie = TrieBuilder(size, storage)
    suffix: list[Packed] = []
    count = [Packed.of(word_counts)]
    if order > 1:
        occurrences = Occurrences(words, bos, order, size, storage)
        del words
        for _ in range(2, order + 1):
            if suffix:
                occurrences.follow(trie.begins[-1], suffix[-1])
            keys, suffixes, counts = occurrences.count()
            trie.add(keys)
            suffix.append(Packed.of(suffixes, trie.sizes[-2] - 1, storage))
            count.append(Packed.of(counts, storage=storage))
            del keys, suffixes, counts
            storage.release()
        del occurrences
    made = trie.finish()
    newest = newest_ngram(made, kenlm_ranks(first_places, vocabulary), bos, order - 1, storage)
    return Counts(made, suffix, count, bos, vocabulary.unk, newest)


def count_text(
    blocks: Iterable[bytes], order: int, rules: TextRules, given: list[str] | None, leave_out: str | None
) -> tuple[Counts, Vocabulary, IntArray]:
    """Return the counts of text in memory, its vocabulary (`given`, or all but `leave_out`) and words' first places."""
    tokenizer = WordTokenizer(sentences=True, rules=rules)
    ids: Array = np.concatenate([tokenizer(block, "the text") for block in blocks])
    types = tokenizer.types()
    words = [word for word in (types if given is None else given) if word != leave_out]
    vocabulary, remap, _ = select(types, np.bincount(ids, minlength=len(types)), None, word_list=words, sentences=True)
    ids = remap[ids]
    ids, offsets, _ = vocabulary.cut_sentences(ids)
    text = Split(ids, offsets, np.empty(0, dtype=np.int64), 0, vocabulary.bos)
    return count_ngrams(text, vocabulary, order), vocabulary, first_places_of(ids, len(vocabulary))


def _insert_starts(text: Split | StoredText, bos: int, words: Array, storage: Storage) -> None:
    """Fill `words` with the text, `<s>` before each sentence."""
    sentences = 0
    for first, last in storage.pieces(len(text.ids), TOKENS_PER_PIECE):
        # At most as many sentences begin in a piece as it has tokens.
        starts = np.asarray(text.offsets[sentences : sentences + last - first + 1], dtype=np.int64)
        starts = starts[: np.searchsorted(starts, last)]
        if (np.diff(starts, prepend=first - 1) <= 0).any():
            raise UserError(f"{DAMAGED} sentences of no words")
        ids = np.asarray(text.ids[first:last])
        cuts = [(a, b) for a, b in cut_evenly(last - first) if a < b]
        before = np.searchsorted(starts, [first + a for a, _ in cuts]).tolist()
        run(
            (_insert, ids[a:b], starts[n:] - (first + a), bos, words[first + sentences + a + n :])
            for (a, b), n in zip(cuts, before, strict=True)
        )
        sentences += len(starts)
    if sentences != len(text.offsets) - 1:
        raise UserError(f"{DAMAGED} sentences of no words")


@numba.njit(cache=True, nogil=True)
def _insert(ids: Any, starts: Any, bos: int, words: Any) -> None:
    at, s = 0, 0
    for i in range(len(ids)):
        if s < len(starts) and starts[s] == i:
            words[at] = bos
            at += 1
            s += 1
        words[at] = ids[i]
        at += 1


def _count_words(words: Any, size: int, storage: Storage) -> tuple[IntArray, IntArray]:
    """Return how often each word occurs among ids `[N]`, and its first position, or -1; int64 `[size]`."""
    total = np.zeros(size, dtype=np.int64)
    first_places = np.full(size, -1, dtype=np.int64)
    for first, last in storage.pieces(len(words), TOKENS_PER_PIECE):
        piece, cuts = np.asarray(words[first:last]), cut_evenly(last - first)
        if piece.max() >= size:
            raise UserError(f"{DAMAGED} id {piece.max():,} of {size:,} words")
        counts, places = np.zeros((len(cuts), size), dtype=np.int64), np.empty((len(cuts), size), dtype=np.int64)
        run((_count, piece[a:b], first + a, counts[t], places[t]) for t, (a, b) in enumerate(cuts))
        for count, place in zip(counts, places, strict=True):
            np.copyto(first_places, place, where=(total == 0) & (count > 0))
            total += count
    return total, first_places


@numba.njit(cache=True, nogil=True)
def _count(words: Any, first: int, count: Any, first_places: Any) -> None:
    for i in range(len(words)):
        word = np.int64(words[i])
        if count[word] == 0:
            first_places[word] = first + i
        count[word] += 1


def kenlm_ranks(first_places: IntArray, vocabulary: Vocabulary) -> IntArray:
    """Return the order in which KenLM numbers words, `[V]`: by first position, `<s>` and `</s>` before all others."""
    ranks = first_places.copy()
    ranks[vocabulary.bos] = -1
    if vocabulary.eos is not None:
        ranks[vocabulary.eos] = -1
    return ranks


def newest_ngram(trie: Trie, ranks: IntArray, bos: int, length: int, storage: Storage) -> IntArray:
    """Return the words of the n-gram that KenLM sorts last: `length` of them, or fewer if it begins a sentence.

    KenLM compares n-grams by the rank (kenlm_ranks) of their last word, then of the one before it, and so on.
    """
    newest = int(ranks.argmax())
    best = np.empty(0, dtype=np.int64)
    for k in range(1, length + 1):
        start = 0 if k == length else trie.first_from(k, bos)  # shorter ones begin a sentence
        for first, last in storage.pieces(trie.sizes[k - 1] - start):
            nodes = start + first + np.flatnonzero(trie.words(k, start + first, start + last) == newest)
            if len(nodes):
                ngrams = trie.ngrams_at(k, nodes)
                latest = ngrams[np.lexsort(ranks[ngrams].T)[-1]]
                best = max(best, latest, key=lambda words: ranks[words[::-1]].tolist())
    return best


def unigram_counts(vocabulary: Vocabulary) -> Counts:
    """Return the counts of order 1 of a text with sentences: the counts of its vocabulary."""
    assert vocabulary.sentences
    words = vocabulary.counts.copy()
    words[vocabulary.bos] = words[-1 if vocabulary.eos is None else vocabulary.eos]
    trie = TrieBuilder(len(vocabulary)).finish()
    return Counts(trie, [], [Packed.of(words)], vocabulary.bos, vocabulary.unk, np.empty(0, dtype=np.int64))


def first_places_of(ids: Any, size: int) -> IntArray:
    """Return the first position of each word among ids `[N]`, or -1, int64 `[size]`."""
    return _count_words(ids, size, Storage())[1]


def count_sources(counts: Counts, text: Split, sources: Mapping[str, tuple[int, int]]) -> SourceCounts:
    """Return the counts of each source of a text, from the whole text's counts and each source's range of tokens."""
    if not sources:
        return SourceCounts.of_one(counts)
    entries: list[list[Entries]] = [[] for _ in range(counts.order)]
    for number, (first, last) in enumerate(sources.values()):
        for at in range(first, last, TOKENS_PER_WINDOW):
            windows = text.windows(np.arange(at, min(at + TOKENS_PER_WINDOW, last)), counts.order - 1)
            for order, nodes in _longest_ngrams(counts, *windows):
                node, count = np.unique(nodes, return_counts=True)
                entries[order - 1].append(Entries(node, np.full(len(node), number), count))
    return SourceCounts(list(sources), [_merge_entries(parts, len(sources)) for parts in entries])


def _longest_ngrams(counts: Counts, contexts: IntArray, targets: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Yield each order and the nodes of the n-grams that end with N tokens and, with one `<s>`, have that length."""
    ngrams = np.column_stack([contexts, targets])
    padding = (contexts == counts.bos).sum(axis=1)  # one <s> of it is part of the n-gram
    for order in range(1, counts.order + 1):
        here = np.maximum(padding - 1, 0) == counts.order - order
        yield order, counts.trie.find(ngrams[here, -order:]) - counts.trie.first(order)


def _merge_entries(parts: list[Entries], sources: int) -> Entries:
    """Return the entries of all parts, ascending, with the counts of equal n-grams and sources added up."""
    node, source, count = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    keys, place = np.unique(node * sources + source, return_inverse=True)
    return Entries(keys // sources, keys % sources, np.bincount(place, count, len(keys)).astype(np.int64))

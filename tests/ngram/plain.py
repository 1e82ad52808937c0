"""The formulas over dictionaries of tuples, as one would write them on a blackboard: what the fast forms must equal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from lmtool.data.vocabulary import Vocabulary
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.query.find import Lookup
from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
from lmtool.ngram.tables.backoff import BackoffTable

Probability = Callable[[int, tuple[int, ...]], float]


@dataclass
class Text:
    ids: np.ndarray
    offsets: np.ndarray


def text_of(sentences: list[str]) -> tuple[Text, Vocabulary]:
    """Words numbered by first appearance, then </s>, <unk>, <s>."""
    words = list(dict.fromkeys(word for sentence in sentences for word in sentence.split()))
    vocabulary = Vocabulary((*words, "</s>", "<unk>", "<s>"), np.ones(len(words) + 3, int), len(words), len(words) + 1)
    rows = [[*vocabulary.encode(sentence.split()), len(words)] for sentence in sentences]
    return Text(np.concatenate(rows), np.cumsum([0, *map(len, rows)])), vocabulary


def random_sentences(seed: int, count: int = 60) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{min(rng.zipf(1.4), 12)}" for _ in range(rng.integers(1, 9))) for _ in range(count)]


def kneser_ney(n: int, count: int, seed: int) -> tuple[BackoffTable, Text, Vocabulary]:
    """Return a table of order n by modified Kneser-Ney, from random sentences."""
    text, vocabulary = text_of(random_sentences(seed, count))
    return estimate(count_ngrams(text, vocabulary, n), ModifiedKneserNey(n)), text, vocabulary


def rows_of(text: Text) -> list[list[int]]:
    return [text.ids[a:b].tolist() for a, b in zip(text.offsets[:-1], text.offsets[1:], strict=True)]


def contexts_for(text: Text, vocabulary: Vocabulary, n: int, seed: int) -> np.ndarray:
    """Contexts `[N, n - 1]`: all of the text, some that are not in it, and some that begin a sentence."""
    rng = np.random.default_rng(seed)
    found = [[vocabulary.bos] * (n - 1) for _ in range(3)]
    for row in rows_of(text)[:30]:
        padded = [vocabulary.bos] * (n - 1) + row
        found += [padded[i : i + n - 1] for i in range(len(row))]
    found += rng.integers(0, len(vocabulary) - 1, (40, n - 1)).tolist()
    for length in range(n - 1):
        tail = rng.integers(0, len(vocabulary) - 1, length).tolist()
        found.append([vocabulary.bos] * (n - 1 - length) + tail)
    return np.array(found, dtype=np.int64).reshape(len(found), n - 1)


class Plain:
    """Counts of orders 1 to n by tuple, and what the smoothers make of them."""

    def __init__(self, text: Text, vocabulary: Vocabulary, n: int) -> None:
        self.n, self.bos, self.types = n, vocabulary.bos, len(vocabulary) - 1
        self.raw: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(n + 1)]
        for row in rows_of(text):
            padded = [self.bos, *row]
            for k in range(1, n + 1):
                self.raw[k].update(tuple(padded[i : i + k]) for i in range(len(padded) - k + 1))

    def occurrences(self) -> list[Counter[tuple[int, ...]]]:
        found = [Counter(c) for c in self.raw]
        del found[1][(self.bos,)]
        return found

    def continuations(self) -> list[Counter[tuple[int, ...]]]:
        found = self.occurrences()
        for k in range(1, self.n):
            for gram in found[k]:
                if gram[0] != self.bos:
                    found[k][gram] = sum(1 for longer in self.raw[k + 1] if longer[1:] == gram)
        return found

    def last_of_kenlm(self, k: int) -> tuple[int, ...] | None:
        """Return the n-gram of order k that KenLM processes last: sorted by its last word, then the one before, and so
        on, numbered by first appearance. None if it, or the last one of a lower order, begins with `<s>`.
        """
        end = self.types - 2  # </s>, which has a number below all words, as <s> has
        number = {word: -1 if word >= end else word for word in range(self.bos + 1)}
        last = max(self.raw[k], key=lambda gram: [number[word] for word in reversed(gram)])
        shorter = k > 1 and self.last_of_kenlm(k - 1)
        return None if last[0] == self.bos or shorter is None else last

    def seen_by(self, vocabulary: Vocabulary, context: list[int]) -> tuple[int, ...]:
        """Return the part of a context that is read: from its last <s> on."""
        starts = [i for i, word in enumerate(context) if word == vocabulary.bos]
        return tuple(context[starts[-1] if starts else 0 :])


def followers(a: list[Counter[tuple[int, ...]]]) -> dict[tuple[int, ...], dict[int, int]]:
    found: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
    for counter in a[1:]:
        for gram, count in counter.items():
            if count > 0:
                found[gram[:-1]][gram[-1]] = count
    return found


def interpolated(a: list[Counter[tuple[int, ...]]], share: Callable, weight: Callable, types: int) -> Probability:
    """share(a, counts of the context, k) and weight(counts of the context, k); uniform 1/types below."""
    after = followers(a)

    def p(word: int, context: tuple[int, ...]) -> float:
        lower = p(word, context[1:]) if context else 1 / types
        if context not in after:
            return lower
        h, k = list(after[context].values()), len(context) + 1
        own = share(after[context][word], h, k) if word in after[context] else 0.0
        return own + weight(h, k) * lower

    return p


def backed_off(a: list[Counter[tuple[int, ...]]], share: Callable, words: range, unigram: Probability) -> Probability:
    """share as above; what a context leaves goes to the words unseen after it, as the shorter context has them, and to
    those whose share is 0.
    """
    after = followers(a)

    @cache
    def p(word: int, context: tuple[int, ...]) -> float:
        if not context:
            return unigram(word, ())
        if context not in after:
            return p(word, context[1:])
        h, k = list(after[context].values()), len(context) + 1
        shares = {v: own for v, count in after[context].items() if (own := share(count, h, k)) > 0}
        kept = sum(shares.values())
        rest = sum(p(v, context[1:]) for v in words if v not in shares)
        if rest < 1e-9:  # nobody to leave anything to
            return shares.get(word, 0.0) / kept
        return shares[word] if word in shares else (1 - kept) * p(word, context[1:]) / rest

    return p


def fixed_lookup(table: BackoffTable, order: int) -> Lookup:
    """Return a look-up that has a hash table of the n-grams of orders 2 to `order` from the start."""
    lookup = Lookup(table)
    if order > 1:
        lookup._build(order)
    assert lookup.compiled.ngrams.order == order
    lookup.for_states = lookup.for_text = lambda words: lookup.compiled  # type: ignore[method-assign]
    return lookup

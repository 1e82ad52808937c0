"""Importance weights of texts by hashed n-grams: DSIR (Xie et al. 2023).

A text is a bag of n-grams, its words in lower case and its pairs of neighboring words, each hashed to one of 10,000
buckets. The target's text and the pool's each give a distribution over the buckets, and a text x the log weight log
p_target(x) - log p_pool(x), both of them sums over its n-grams. As in the authors' package, a word is a sequence of
letters, marks, digits and underscores, or of other characters except white space, and 1e-8 is added to each
probability; that package uses a different hash function, so that different n-grams share a bucket.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import regex

from lmtool.data.tokenizer import TextBlock, ends_in
from lmtool.evaluation.text_scores import BAG, Rows, TextsScorer
from lmtool.system.arrays import IntArray

BUCKETS, FLOOR = 10_000, 1e-8
BASIS, PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)  # constants of FNV-1a, here over code points
WHITE = ord(" ")


@cache
def _kinds() -> npt.NDArray[np.uint8]:
    """Return the kind of each code point: WHITE, or another number for letters (with marks, digits, _) and the rest."""
    kinds = "".join(map(chr, range(sys.maxunicode + 1)))
    for pattern, kind in ((r"\w", "a"), (r"\s", chr(WHITE)), (r"[^\w\s]", ".")):
        kinds = regex.sub(pattern, kind, kinds)
    return np.frombuffer(kinds.encode(), dtype=np.uint8)


@numba.njit(cache=True, nogil=True)
def _hash(points: Any, kinds: Any, hashes: Any, firsts: Any) -> Any:
    """Write the hashes of words and where they begin among the code points; return the number of words."""
    count, before = 0, WHITE
    for at in range(len(points)):
        kind = kinds[points[at]]
        if kind not in (WHITE, before):
            hashes[count], firsts[count] = BASIS, at
            count += 1
        if kind != WHITE:
            hashes[count - 1] = (hashes[count - 1] ^ np.uint64(points[at])) * PRIME
        before = kind
    return count


def hashed_ngrams(block: TextBlock) -> tuple[IntArray, IntArray]:
    """Return the buckets of the n-grams of texts and the number of the text of each, both `[N]`; words come first."""
    text = block.content.decode("utf-8", "surrogatepass").lower()
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    hashes, firsts = np.empty(len(points), dtype=np.uint64), np.empty(len(points), dtype=np.int64)
    count = _hash(points, _kinds(), hashes, firsts)
    words, ends = hashes[:count], ends_in(block, np.flatnonzero(points == ord("\n")) + 1, len(points))
    texts = np.searchsorted(ends, firsts[:count], side="right")
    is_pair = texts[1:] == texts[:-1]
    ngrams = np.append(words, (words[:-1] * PRIME ^ words[1:])[is_pair])
    buckets = (ngrams ^ ngrams >> 29) % BUCKETS  # the low bits of FNV-1a are poor
    return buckets.astype(np.int64), np.append(texts, texts[1:][is_pair])


class NgramWeights(TextsScorer):
    """A scorer of blocks of texts by the n-grams of a target and of the pool. sizes: number of n-grams of the target
    and of the pool.
    """

    def __init__(self, *corpora: Iterable[TextBlock]) -> None:
        """corpora: the texts of the target and of the pool; each is read once."""
        self.dtype, self.one_text, self.across_sentences, self.unknown = BAG, False, None, []
        zeros = np.zeros(BUCKETS, dtype=np.int64)
        counts = [sum((np.bincount(hashed_ngrams(b)[0], minlength=BUCKETS) for b in each), zeros) for each in corpora]
        self.sizes = [int(each.sum()) for each in counts]
        self._per_bucket = [np.log(each / max(each.sum(), 1) + FLOOR) for each in counts]

    def __call__(self, block: TextBlock, *, progress: bool = False) -> Rows:
        """Return a row for each text, in order; its tokens are n-grams."""
        (buckets, texts), rows = hashed_ngrams(block), np.zeros(len(block.ends), dtype=BAG)
        rows["tokens"] = np.bincount(texts, minlength=len(rows))
        for name, log_probs in zip(("log_prob", "log_prob_out"), self._per_bucket, strict=True):
            rows[name] = np.bincount(texts, log_probs[buckets], len(rows))
        return rows

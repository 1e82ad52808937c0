"""Importance weights of texts by hashed n-grams: DSIR (Xie et al. 2023).

A text is a bag of n-grams, its words in lower case and its pairs of neighboring words, each hashed to one of 10,000
buckets. The target's text and the pool's each give a distribution over the buckets, and a text x the log weight
log p_target(x) - log p_pool(x), both of them sums over its n-grams. As in the authors' package, a word is a sequence of
letters, digits and underscores, or of other characters but white space, and 1e-8 is added to each probability; that
package has another hash function, so that other n-grams share a bucket.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.data.tokenizer import TextBlock, ends_in
from lmtool.evaluation.text_scores import BAG, Rows, sums
from lmtool.system.arrays import IntArray

BUCKETS = 10_000
FLOOR = 1e-8
BASIS, PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)  # FNV-1a's, here of code points
NEWLINE, SPACE = 10, np.uint64(32)
WHITE, LETTER, OTHER = range(3)


@cache
def _kinds() -> npt.NDArray[np.uint8]:
    """Return the kind of each code point: WHITE, LETTER (also digits and the underscore) or OTHER."""
    points = "".join(map(chr, range(sys.maxunicode + 1)))
    kinds = np.full(len(points), OTHER, dtype=np.uint8)
    for kind, pattern in ((WHITE, r"\s+"), (LETTER, r"\w+")):
        for found in re.finditer(pattern, points):
            kinds[found.start() : found.end()] = kind
    return kinds


@numba.njit(cache=True, nogil=True)
def _hash(points: Any, kinds: Any, ends: Any, hashes: Any, offsets: Any) -> None:
    """Write the hashes of the n-grams of texts, and behind the first 0 where those of each text end.

    ends: where each text ends among the code points. Pairs do not cross texts.
    """
    at = written = 0
    for text in range(len(ends)):
        before, is_first = BASIS, True
        while at < ends[text]:
            kind = kinds[points[at]]
            if kind == WHITE:
                at += 1
                continue
            word, pair = BASIS, (before ^ SPACE) * PRIME
            while at < ends[text] and kinds[points[at]] == kind:
                point = np.uint64(points[at])
                word, pair = (word ^ point) * PRIME, (pair ^ point) * PRIME
                at += 1
            hashes[written] = word
            written += 1
            if not is_first:
                hashes[written] = pair
                written += 1
            before, is_first = word, False
        offsets[text + 1] = written


def hashed_ngrams(block: TextBlock) -> tuple[IntArray, IntArray]:
    """Return the buckets of the n-grams of D texts, `[N]`, and `[D + 1]`, where those of each text begin, and N."""
    text = block.content.decode("utf-8", "surrogatepass").lower()
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    ends = ends_in(block, np.flatnonzero(points == NEWLINE) + 1, len(points))
    hashes, offsets = np.empty(2 * len(points), dtype=np.uint64), np.zeros(len(ends) + 1, dtype=np.int64)
    _hash(points, _kinds(), ends, hashes, offsets)
    hashes = hashes[: offsets[-1]]
    return ((hashes ^ hashes >> 29) % BUCKETS).astype(np.int64), offsets  # the low bits of FNV-1a are poor


class NgramWeights:
    """A scorer of blocks of texts, as TextsScorer, by a target's hashed n-grams and those of the pool, read before."""

    dtype, one_text, across_sentences = BAG, False, None

    def __init__(self, target: Iterable[TextBlock], pool: Iterable[TextBlock]) -> None:
        self.unknown: list[str] = []
        self.sizes, self._log_probs = [], []
        for blocks in (target, pool):
            counts = np.zeros(BUCKETS, dtype=np.int64)
            for block in blocks:
                counts += np.bincount(hashed_ngrams(block)[0], minlength=BUCKETS)
            self.sizes.append(int(counts.sum()))
            self._log_probs.append(np.log(counts / max(self.sizes[-1], 1) + FLOOR))

    def __call__(self, block: TextBlock, *, progress: bool = False) -> Rows:
        """Return a row for each text, in order; its tokens are n-grams."""
        buckets, offsets = hashed_ngrams(block)
        rows = np.zeros(len(block.ends), dtype=BAG)
        rows["tokens"] = np.diff(offsets)
        for name, log_probs in zip(("log_prob", "log_prob_out"), self._log_probs, strict=True):
            rows[name] = sums(log_probs[buckets], offsets)
        return rows

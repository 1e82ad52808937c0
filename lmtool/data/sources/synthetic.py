r"""A seeded source whose entropy is known in closed form, of any size and vocabulary.

.. math::

    p(w'|w) &= \left( 1 - \tfrac{1}{L} \right) \left( (1 - r)\,Z(w') + \tfrac{r}{K}\,[w' \in S(w)] \right) \qquad
        p({<}/s{>}\,|\,w) = \tfrac{1}{L} \qquad Z(w) \propto \text{rank}(w)^{-s} \\
    H &= \frac{H(Z) + \sum_w \mu(w)\,H(\text{next}\,|\,w)}{1 + L}

A sentence is a Markov chain over T types. Its first word is drawn from Zipf's law Z. After each word the sentence ends
with probability 1/L, else the next word is, with probability r (`repeat`), one of the word's K successors S(w) (its
image under a seeded permutation and the K-1 types after it), else drawn from Z again. H is the entropy per predicted
token; mu(w) is the expected number of times that w occurs in a sentence.

Source: Zipf (1935), "The psycho-biology of language", for Z; Shannon (1948) for H.
Complexity: O(1) per drawn token, by alias tables; O(T K) per iteration for the entropy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from lmtool.data.tokenizer import EOS_ID, RESERVED
from lmtool.system.alias_table import alias_table
from lmtool.system.arrays import FloatArray, IntArray

CHUNK = 1 << 20  # tokens drawn at a time


def zipf(data: Any) -> FloatArray:
    """Return Z, `[T]`, most frequent type first. data: the settings (also in the functions below)."""
    weight = np.arange(1, data.types + 1, dtype=np.float64) ** -data.zipf_exponent
    return np.asarray(weight / weight.sum())


def successors(data: Any) -> IntArray:
    """Return the K successors of each type, `[T, K]`."""
    image = np.random.default_rng([data.seed, 0]).permutation(data.types)
    after: IntArray = (image[:, None] + np.arange(data.successors)) % data.types
    return after


def entropy(data: Any) -> float:
    """Return the source's entropy in nats per predicted token, `</s>` included.

    mu(w) sums to L: one sentence has H(Z) + sum_w mu(w) H(next|w) nats and 1 + L tokens.
    """
    z, after = zipf(data), successors(data)
    go_on, repeat = 1 - 1 / data.sentence_length, data.repeat
    # mu solves mu = Z + go_on ((1 - repeat) L Z + repeat S mu); the iteration contracts by go_on * repeat.
    restart = z * (1 + go_on * (1 - repeat) * data.sentence_length)
    mu, change = restart.copy(), np.inf
    while change > 1e-13 * data.sentence_length:
        spread = np.bincount(after.ravel(), np.repeat(mu / data.successors, data.successors), data.types)
        updated = restart + go_on * repeat * spread
        change = float(np.abs(updated - mu).sum())
        mu = updated
    base = (1 - repeat) * z
    new = base[after] + repeat / data.successors  # [T, K], probability of each successor
    following = _plogp(base).sum() + (_plogp(new) - _plogp(base)[after]).sum(axis=1)  # [T], H(next word|w)
    ending = _plogp(np.array([go_on, 1 - go_on])).sum()
    total = _plogp(z).sum() + (mu * (ending + go_on * following)).sum()
    return float(total / (1 + data.sentence_length))


def _plogp(p: FloatArray) -> FloatArray:
    """Return -p log p, 0 at 0."""
    return -p * np.log(np.where(p > 0, p, 1.0))


def type_names(data: Any) -> list[str]:
    """Return all types by provisional id: the reserved ones, then w1, w2, ... by Zipf rank."""
    return [*RESERVED, *(f"w{rank}" for rank in range(1, data.types + 1))]


def draw(data: Any, split: str) -> Iterator[npt.NDArray[np.int32]]:
    """Yield the ids of a split in chunks of whole sentences, up to the one that reaches its number of tokens."""
    number = ("train", "valid", "test").index(split)
    wanted = (data.tokens, data.valid_tokens, data.test_tokens)[number]
    rng = np.random.default_rng([data.seed, 1 + number])
    z = zipf(data)
    threshold, alias = alias_table(z * len(z))
    alias32 = alias.astype(np.int32)
    after = successors(data).astype(np.int32)
    drawn = 0
    rest = np.empty(0, dtype=np.int32)
    while drawn < wanted:
        new = np.empty(min(CHUNK, wanted - drawn + 64), dtype=np.int32)
        uniform = rng.random((len(new), 3), dtype=np.float64)
        last = int(rest[-1]) - len(RESERVED) if len(rest) else -1
        _walk(uniform, 1 / data.sentence_length, data.repeat, threshold, alias32, after, last, new)
        ids = np.append(rest, new)
        ends = np.flatnonzero(ids == EOS_ID) + 1
        enough = int(np.searchsorted(ends, wanted - drawn))
        cut = int(ends[min(enough, len(ends) - 1)]) if len(ends) else 0
        rest = ids[cut:]
        drawn += cut
        if cut:
            yield ids[:cut]


@numba.njit(cache=True)
def _walk(uniform: Any, end: float, repeat: float, threshold: Any, alias: Any, after: Any, last: int, ids: Any) -> None:
    """Draw len(uniform) tokens into `ids`, with three uniform numbers each; `last` is the type before, -1 for `<s>`.

    A chain: each token depends on the one before, so this cannot be an array operation. The random numbers are drawn
    outside, by numpy: the same seed gives the same text whatever version of Numba compiles the loop.
    """
    types, successors = after.shape
    for i in range(len(uniform)):
        if last >= 0 and uniform[i, 0] < end:
            ids[i] = 0
            last = -1
            continue
        if last >= 0 and uniform[i, 1] < repeat:
            last = after[last, min(int(uniform[i, 2] * successors), successors - 1)]
        else:
            # Alias method (Walker 1977): one number gives the column and the choice in it.
            x = uniform[i, 2] * types
            column = min(int(x), types - 1)
            last = column if x - column < threshold[column] else alias[column]
        ids[i] = last + 3

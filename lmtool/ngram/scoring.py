"""The kernels that ask a back-off table. Contexts are nodes of its trie, or one of the two marks below.

The node of the last m words of a context is the child, by its last word, of the node of the m-1 words before that one:
so each word that is read moves every node one order down, one search each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.bigrams import find_bigrams
from lmtool.ngram.packed import read
from lmtool.ngram.trie import child, children, first_child

Array = npt.NDArray[Any]

SHORT = np.int64(-1)  # the sentence has no context of this length yet
UNSEEN = np.int64(-2)  # the table does not have this context
PIECE = 1 << 12  # tokens that are scored together: their nodes stay in the cache


class Asked(NamedTuple):
    """A table as the kernels take it: the trie's arrays (see `Nodes`) and what stands at its nodes (`BackoffTable`).

    unigrams: `[V]` float64, `<s>` holding what types that are in no vocabulary have.
    """

    order: int
    total: int
    unigram_starts: Array
    base: Array
    starts: Array
    start_width: int
    words: Array
    word_width: int
    unigrams: Array
    log_prob: Array
    log_backoff: Array
    bos: int
    missing: float
    suffix_closed: bool


@numba.njit(cache=True, nogil=True)
def score_text(
    asked: Any,
    bigrams: Any,
    node_bits: int,
    ids: Any,
    offsets: Any,
    first: int,
    last: int,
    log_prob: Any,
) -> None:
    """Score the tokens from `first` to before `last` of running text, as `[last - first]`.

    bigrams: the table of 2-grams with nodes of node_bits, or an empty one, for which the trie is searched.
    One order after the other over all tokens of a piece: their searches do not wait for each other, so that the
    processor can have several under way.
    """
    (order, total, uni, base, starts, width, words, word_width) = asked[:8]
    (unigrams, kept, backoff, bos, missing, closed) = asked[8:]
    sentence = np.searchsorted(offsets, first, side="right") - 1
    begin = max(offsets[sentence], first - (order - 1))
    room = last - begin + (np.searchsorted(offsets, last, side="left") - sentence) + 1
    word = np.empty(room, np.int64)
    target = np.empty(room, np.int64)  # the place in log_prob, -1 for <s> and for what only stands before
    length = 0
    at = begin
    while at < last:
        while offsets[sentence + 1] <= at:
            sentence += 1
        if at == offsets[sentence]:
            word[length] = bos
            target[length] = -1
            length += 1
        word[length] = ids[at]
        target[length] = at - first if at >= first else -1
        length += 1
        at += 1
    found = np.empty(length, np.float64)
    longest = np.ones(length, np.int64)
    node = word[:length].copy()  # of the n-gram of the order before that ends at each place
    node_next = np.empty(length, np.int64)
    asking = np.empty(length, np.int64)  # the places where a context of this order was seen
    search = np.empty((length, 3), np.int64)
    context = np.empty(length, np.int64)
    for i in range(length):
        found[i] = unigrams[word[i]]
    for k in range(2, order + 1):
        asked_for = 0
        node_next[0] = SHORT
        for i in range(1, length):
            before = node[i - 1]
            if word[i] == bos or before == SHORT:
                node_next[i] = SHORT
                continue
            node_next[i] = UNSEEN
            if before == UNSEEN:
                found[i] += missing
            elif longest[i] == k - 1 or not closed:
                asking[asked_for] = i
                context[asked_for] = before
                search[asked_for, 0] = before
                search[asked_for, 1] = word[i]
                asked_for += 1
            else:
                found[i] += backoff[before]
        if k == 2 and len(bigrams) > 0:
            find_bigrams(bigrams, word_width, node_bits, search[:asked_for])
        else:
            children(uni, base, starts, width, words, word_width, total, search[:asked_for])
        for j in range(asked_for):
            i = asking[j]
            here = search[j, 0]
            if here >= 0:
                node_next[i] = here
                found[i] = kept[here]
                longest[i] = k
            else:
                found[i] += backoff[context[j]]
        node, node_next = node_next, node
    for i in range(length):
        if target[i] >= 0:
            log_prob[target[i]] = found[i]


@numba.njit(cache=True, nogil=True)
def _walk(
    total: int,
    uni: Any,
    base: Any,
    starts: Any,
    width: int,
    words: Any,
    word_width: int,
    bos: int,
    context: Any,
    nodes: Any,
) -> None:
    """The nodes of the last 1, 2, ... words of a context, into `nodes`, from 1 on."""
    nodes[:] = SHORT
    for word in context:
        for m in range(len(nodes) - 1, 1, -1):
            before = nodes[m - 1]
            if word == bos or before == SHORT:
                nodes[m] = SHORT
            elif before == UNSEEN:
                nodes[m] = UNSEEN
            else:
                here = child(uni, base, starts, width, words, word_width, total, before, word)
                nodes[m] = here if here >= 0 else UNSEEN
        if len(nodes) > 1:
            nodes[1] = word


@numba.njit(cache=True, nogil=True)
def find_contexts(
    uni: Any,
    base: Any,
    starts: Any,
    width: int,
    words: Any,
    word_width: int,
    total: int,
    bos: int,
    contexts: Any,
    length: int,
    out: Any,
) -> None:
    """The nodes of the last `length` words of contexts `[N, C]`, or the mark of why there is none, as `[N]`."""
    nodes = np.empty(length + 1, np.int64)
    for row in range(len(contexts)):
        _walk(total, uni, base, starts, width, words, word_width, bos, contexts[row], nodes)
        out[row] = nodes[length]


@numba.njit(cache=True, nogil=True)
def longest_contexts(asked: Any, contexts: Any, out: Any) -> None:
    """How many of the last words of contexts `[N, C]` the table has as an n-gram, `[N]`."""
    (order, total, uni, base, starts, width, words, word_width) = asked[:8]
    bos = asked[11]
    nodes = np.empty(order, np.int64)
    for row in range(len(contexts)):
        _walk(total, uni, base, starts, width, words, word_width, bos, contexts[row], nodes)
        out[row] = 0
        for m in range(1, order):
            if nodes[m] >= 0:
                out[row] = m


@numba.njit(cache=True, nogil=True)
def find_grams(
    uni: Any,
    base: Any,
    starts: Any,
    width: int,
    words: Any,
    word_width: int,
    total: int,
    node: Any,
    targets: Any,
    gram: Any,
) -> None:
    """The nodes of contexts `[N]` followed by targets `[N]`, -1 where there are none, as `[N]`."""
    for i in range(len(node)):
        if node[i] >= 0:
            gram[i] = child(uni, base, starts, width, words, word_width, total, node[i], targets[i])


@numba.njit(cache=True, nogil=True)
def score_candidates(
    asked: Any, contexts: Any, candidates: Any, first: int, last: int, log_prob: Any, matched: Any
) -> None:
    """Score candidates `[N, K]` after contexts `[N, C]`, those of rows `first` to before `last`."""
    (order, total, uni, base, starts, width, words, word_width) = asked[:8]
    (unigrams, kept, backoff, bos, missing, closed) = asked[8:]
    nodes = np.empty(order, np.int64)
    for row in range(first, last):
        _walk(total, uni, base, starts, width, words, word_width, bos, contexts[row], nodes)
        for c in range(candidates.shape[1]):
            word = candidates[row, c]
            found = unigrams[word]
            longest = 1
            for k in range(2, order + 1):
                context = nodes[k - 1]
                if context == SHORT:
                    break
                if context == UNSEEN:
                    found += missing
                    continue
                here = np.int64(-1)
                if word != bos and (longest == k - 1 or not closed):
                    here = child(uni, base, starts, width, words, word_width, total, context, word)
                if here >= 0:
                    found = np.float64(kept[here])
                    longest = k
                else:
                    found += backoff[context]
            log_prob[row, c] = found
            matched[row, c] = longest


@numba.njit(cache=True, nogil=True)
def distributions(asked: Any, contexts: Any, first: int, last: int, dist: Any) -> None:
    """The whole distributions `[N, V]` after contexts `[N, C]`, those of rows `first` to before `last`."""
    (order, total, uni, base, starts, width, words, word_width) = asked[:8]
    (unigrams, kept, backoff, bos, missing, _) = asked[8:]
    size = len(unigrams)
    nodes = np.empty(order, np.int64)
    left = np.zeros(order + 1, np.float64)  # the weights of all contexts of m words and more
    for row in range(first, last):
        _walk(total, uni, base, starts, width, words, word_width, bos, contexts[row], nodes)
        for m in range(order - 1, 0, -1):
            left[m] = left[m + 1]
            if nodes[m] >= 0:
                left[m] += backoff[nodes[m]]
            elif nodes[m] == UNSEEN:
                left[m] += missing
        out = dist[row]
        weight = left[1] if order > 1 else 0.0
        for word in range(size):
            out[word] = unigrams[word] + weight
        # From the shortest context to the longest, what was seen takes the place of what was backed off.
        for m in range(1, order):
            if nodes[m] >= 0:
                weight = left[m + 1]
                begin = first_child(uni, base, starts, width, nodes[m])
                end = min(first_child(uni, base, starts, width, nodes[m] + 1), total)
                for node in range(max(begin, size), end):
                    word = read(words, word_width, node - size)
                    if word < size:
                        out[word] = kept[node] + weight

"""The kernels that score n-grams with a back-off table. A context is a node of its trie, or one of the two marks below.

The node of the last m words of a context is the child, by its last word, of the node of the m-1 words before that one:
so each further word moves every node to the next order, with one search each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from lmtool.ngram.query.bigrams import find_bigrams
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.packed import read
from lmtool.ngram.tables.quantized import Codes, QuantisedValues, code_of, decoded, parts_of, value_of
from lmtool.ngram.tables.trie_search import child, children, first_child

Array = npt.NDArray[Any]

SHORT = np.int64(-1)  # the sentence has no context of this length yet
UNSEEN = np.int64(-2)  # the table does not have this context
PIECE = 1 << 12  # tokens that are scored together: their nodes stay in the cache


class TableArrays(NamedTuple):
    """A back-off table as the kernels take it: the trie's arrays (see `Nodes`), then the table's (see `BackoffTable`).

    total: the number of nodes. unigrams: float64 `[V]`, log p(w), with the unseen types' at `<s>`. log_prob and
    log_backoff: float32 arrays or Codes; kernels read both with quantised.value_of.
    """

    order: int
    total: int
    unigram_starts: Array
    base: Array
    starts: Array
    start_width: int | None
    words: Array
    word_width: int
    unigrams: Array
    log_prob: Array | Codes
    log_backoff: Array | Codes
    bos: int
    missing: float
    suffix_closed: bool


def table_arrays(table: BackoffTable) -> TableArrays:
    """The arrays of a table, for the kernels."""
    unigrams = table.log_probs(0, table.vocabulary_size).astype(np.float64)
    unigrams[table.bos] = table.unseen
    nodes = table.trie.nodes
    return TableArrays(
        order=table.order,
        total=sum(table.sizes),
        unigram_starts=nodes.unigram_starts,
        base=nodes.base,
        starts=nodes.starts,
        start_width=nodes.start_width,
        words=nodes.words,
        word_width=nodes.word_width,
        unigrams=unigrams,
        log_prob=table.log_prob.arrays if isinstance(table.log_prob, QuantisedValues) else table.log_prob,
        log_backoff=table.log_backoff.arrays if isinstance(table.log_backoff, QuantisedValues) else table.log_backoff,
        bos=table.bos,
        missing=table.missing,
        suffix_closed=table.suffix_closed,
    )


@numba.njit(cache=True, nogil=True)
def score_text(
    table: Any,
    bigrams: Any,
    node_bits: int,
    ids: Any,
    offsets: Any,
    first: int,
    last: int,
    out: Any,
) -> None:
    """Score the tokens from `first` to before `last` of running text, into out `[last - first]`.

    bigrams: the hash table of 2-grams with nodes of node_bits, or an empty one, for which the trie is searched.
    One order after the other over all tokens of a piece: their searches do not wait for each other, so that the
    processor can have several under way.
    """
    (order, total, uni, base, starts, width, words, word_width) = table[:8]
    (unigrams, log_prob, log_backoff, bos, missing, closed) = table[8:]
    prob, prob_levels, prob_codes, code_width = parts_of(log_prob)
    backoff, backoff_levels, backoff_codes, code_width = parts_of(log_backoff)
    sentence = np.searchsorted(offsets, first, side="right") - 1
    begin = max(offsets[sentence], first - (order - 1))
    room = last - begin + (np.searchsorted(offsets, last, side="left") - sentence) + 1
    word = np.empty(room, np.int64)
    target = np.empty(room, np.int64)  # the place in out, -1 for <s> and for words that are context only
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
    score = np.empty(length, np.float64)
    longest = np.ones(length, np.int64)
    node = word[:length].copy()  # of the n-gram of the order before that ends at each place
    node_next = np.empty(length, np.int64)
    place = np.empty(length, np.int64)  # of each query: the places where a context of this order was seen
    query = np.empty((length, 3), np.int64)
    context = np.empty(length, np.int64)
    waiting = np.empty(length, np.int64)  # places whose context's back-off weight is to be added
    code = np.empty(length, np.int64)
    for i in range(length):
        score[i] = unigrams[word[i]]
    for k in range(2, order + 1):
        queries = 0
        backing_off = 0
        node_next[0] = SHORT
        for i in range(1, length):
            before = node[i - 1]
            if word[i] == bos or before == SHORT:
                node_next[i] = SHORT
                continue
            node_next[i] = UNSEEN
            if before == UNSEEN:
                score[i] += missing
            elif longest[i] == k - 1 or not closed:
                place[queries] = i
                context[queries] = before
                query[queries, 0] = before
                query[queries, 1] = word[i]
                queries += 1
            else:
                waiting[backing_off] = i
                code[backing_off] = code_of(backoff, backoff_levels, backoff_codes, code_width, k - 1, before)
                backing_off += 1
        for j in range(backing_off):
            score[waiting[j]] += decoded(backoff, backoff_levels, code_width, k - 1, code[j])
        if k == 2 and len(bigrams) > 0:
            find_bigrams(bigrams, word_width, node_bits, query[:queries])
        else:
            children(uni, base, starts, width, words, word_width, total, query[:queries])
        for j in range(queries):
            gram = query[j, 0]
            if gram >= 0:
                code[j] = code_of(prob, prob_levels, prob_codes, code_width, k, gram)
            else:
                code[j] = code_of(backoff, backoff_levels, backoff_codes, code_width, k - 1, context[j])
        for j in range(queries):
            i = place[j]
            gram = query[j, 0]
            if gram >= 0:
                node_next[i] = gram
                score[i] = decoded(prob, prob_levels, code_width, k, code[j])
                longest[i] = k
            else:
                score[i] += decoded(backoff, backoff_levels, code_width, k - 1, code[j])
        node, node_next = node_next, node
    for i in range(length):
        if target[i] >= 0:
            out[target[i]] = score[i]


@numba.njit(cache=True, nogil=True)
def _find_suffixes(
    total: int,
    uni: Any,
    base: Any,
    starts: Any,
    width: Any,
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
                node = child(uni, base, starts, width, words, word_width, total, before, word)
                nodes[m] = node if node >= 0 else UNSEEN
        if len(nodes) > 1:
            nodes[1] = word


@numba.njit(cache=True, nogil=True)
def find_all_contexts(
    uni: Any,
    base: Any,
    starts: Any,
    width: Any,
    words: Any,
    word_width: int,
    total: int,
    bos: int,
    contexts: Any,
    out: Any,
) -> None:
    """The nodes of the last 1, 2, ... L words of contexts `[N, C]`, or SHORT or UNSEEN, into out `[N, L + 1]` from
    column 1 on.
    """
    for row in range(len(contexts)):
        _find_suffixes(total, uni, base, starts, width, words, word_width, bos, contexts[row], out[row])


@numba.njit(cache=True, nogil=True)
def find_contexts(
    uni: Any,
    base: Any,
    starts: Any,
    width: Any,
    words: Any,
    word_width: int,
    total: int,
    bos: int,
    contexts: Any,
    length: int,
    out: Any,
) -> None:
    """The nodes of the last `length` words of contexts `[N, C]`, or SHORT or UNSEEN, into out `[N]`."""
    nodes = np.empty(length + 1, np.int64)
    for row in range(len(contexts)):
        _find_suffixes(total, uni, base, starts, width, words, word_width, bos, contexts[row], nodes)
        out[row] = nodes[length]


@numba.njit(cache=True, nogil=True)
def longest_contexts(table: Any, contexts: Any, out: Any) -> None:
    """How many of the last words of contexts `[N, C]` the table has as an n-gram, into out `[N]`."""
    (order, total, uni, base, starts, width, words, word_width) = table[:8]
    bos = table[11]
    nodes = np.empty(order, np.int64)
    for row in range(len(contexts)):
        _find_suffixes(total, uni, base, starts, width, words, word_width, bos, contexts[row], nodes)
        out[row] = 0
        for m in range(1, order):
            if nodes[m] >= 0:
                out[row] = m


@numba.njit(cache=True, nogil=True)
def find_followers(
    uni: Any,
    base: Any,
    starts: Any,
    width: Any,
    words: Any,
    word_width: int,
    total: int,
    contexts: Any,
    targets: Any,
    out: Any,
) -> None:
    """The nodes of context nodes `[N]` followed by targets `[N]`, into out `[N]`, which stays where there are none."""
    for i in range(len(contexts)):
        if contexts[i] >= 0:
            out[i] = child(uni, base, starts, width, words, word_width, total, contexts[i], targets[i])


@numba.njit(cache=True, nogil=True)
def score_candidates(table: Any, contexts: Any, candidates: Any, first: int, last: int, out: Any, matched: Any) -> None:
    """Score candidates `[N, K]` after contexts `[N, C]`, rows `first` to before `last`, into out `[N, K]`.

    matched: gets the length of the longest n-gram of the table that ends in each candidate, `[N, K]`.
    """
    (order, total, uni, base, starts, width, words, word_width) = table[:8]
    (unigrams, log_prob, log_backoff, bos, missing, closed) = table[8:]
    prob, prob_levels, prob_codes, code_width = parts_of(log_prob)
    backoff, backoff_levels, backoff_codes, code_width = parts_of(log_backoff)
    nodes = np.empty(order, np.int64)
    for row in range(first, last):
        _find_suffixes(total, uni, base, starts, width, words, word_width, bos, contexts[row], nodes)
        for c in range(candidates.shape[1]):
            word = candidates[row, c]
            score = unigrams[word]
            longest = 1
            for k in range(2, order + 1):
                context = nodes[k - 1]
                if context == SHORT:
                    break
                if context == UNSEEN:
                    score += missing
                    continue
                gram = np.int64(-1)
                if word != bos and (longest == k - 1 or not closed):
                    gram = child(uni, base, starts, width, words, word_width, total, context, word)
                if gram >= 0:
                    score = np.float64(value_of(prob, prob_levels, prob_codes, code_width, k, gram))
                    longest = k
                else:
                    score += value_of(backoff, backoff_levels, backoff_codes, code_width, k - 1, context)
            out[row, c] = score
            matched[row, c] = longest


@numba.njit(cache=True, nogil=True)
def distributions(table: Any, contexts: Any, first: int, last: int, dist: Any) -> None:
    """log p of all words after contexts `[N, C]`, rows `first` to before `last`, into dist `[N, V]`."""
    (order, total, uni, base, starts, width, words, word_width) = table[:8]
    (unigrams, log_prob, log_backoff, bos, missing, _) = table[8:]
    prob, prob_levels, prob_codes, code_width = parts_of(log_prob)
    backoff, backoff_levels, backoff_codes, code_width = parts_of(log_backoff)
    size = len(unigrams)
    nodes = np.empty(order, np.int64)
    longer = np.zeros(order + 1, np.float64)  # the sum of the back-off weights of contexts of m words and more
    for row in range(first, last):
        _find_suffixes(total, uni, base, starts, width, words, word_width, bos, contexts[row], nodes)
        for m in range(order - 1, 0, -1):
            longer[m] = longer[m + 1]
            if nodes[m] >= 0:
                longer[m] += value_of(backoff, backoff_levels, backoff_codes, code_width, m, nodes[m])
            elif nodes[m] == UNSEEN:
                longer[m] += missing
        out = dist[row]
        weight = longer[1] if order > 1 else 0.0
        for word in range(size):
            out[word] = unigrams[word] + weight
        # From the shortest context to the longest: the n-grams of the table replace what was backed off.
        for m in range(1, order):
            if nodes[m] >= 0:
                weight = longer[m + 1]
                begin = first_child(uni, base, starts, width, nodes[m])
                end = min(first_child(uni, base, starts, width, nodes[m] + 1), total)
                for node in range(max(begin, size), end):
                    word = read(words, word_width, node - size)
                    if word < size:
                        out[word] = value_of(prob, prob_levels, prob_codes, code_width, m + 1, node) + weight

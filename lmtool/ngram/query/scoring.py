"""Score n-grams, text, candidates, whole distributions and decoder states with a back-off table by the recursion

    log p(w|h) = the table's log p of hw, if it has hw, else log backoff(h) + log p(w|h')

where h' is h without its first word. Both forms, for one word and for many, go from the shortest context to the longest
(KenLM's ScoreExceptBackoff, order by order): an n-gram that is found replaces the score so far; otherwise the context
adds its weight. A context is given by the nodes of its last 1, 2, ... words, or SHORT or UNSEEN.

A decoder state is such a context, as short as the table allows (KenLM's minimized state: Heafield 2011, section 4.1): a
suffix of the words read is kept only if a longer n-gram begins with it or its back-off weight is not one.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lmtool.data.vocabulary import SpecialTokens
from lmtool.ngram.query.find import QUERIES_PER_BLOCK, Lookup, compiled_table, find, find_hashed, prefetch_ngram
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.packed import borrow, read
from lmtool.ngram.tables.quantized import code_of, decode, value_of
from lmtool.ngram.tables.trie_search import SHORT, UNSEEN, children, children_of, find_suffixes, first_child
from lmtool.system.arrays import FloatArray, IntArray, whole_numbers
from lmtool.system.parallel import cut_evenly, run, threads

TOKENS_PER_PIECE = 1 << 12  # scored, or states advanced, together: their nodes stay in the cache
MIN_STATES_PER_THREAD = 256
WORDS_AHEAD = 8  # distance at which words are prefetched during scoring


@numba.njit(cache=True, nogil=True, forceinline=True)
def score_word(table: Any, contexts: Any, word: Any, after: Any) -> Any:
    """Return log p of a word, and the lengths of the longest n-gram that ends in it and of the longest that extends.

    contexts: the nodes of the last 1 to n-1 words before it, `[n-1]`. after: gets the nodes after it; None, or an array
    that may be `contexts`. The last number is 0 unless the hash table has all n-grams.
    """
    score, matched = table.unigrams[word], np.int64(1)
    hashed = table.ngrams.order == table.order
    lasting: Any = np.int64(table.ngrams.extends[word]) if hashed else np.int64(0)
    node: Any = np.int64(word)  # node of the n-gram that ends in the word, one order after the other
    is_bos, adds_missing = word == table.bos, table.missing != 0.0
    for m in range(table.order - 1):
        context = contexts[m]
        if after is not None:
            after[m] = node
        node = UNSEEN + np.int64((context == SHORT) | is_bos)  # UNSEEN + 1 is SHORT
        if context >= 0:
            found, log_prob, extends = np.int64(-1), np.float32(0), False
            if not is_bos and (matched == m + 1 or not table.suffix_closed):
                found, log_prob, extends = find(table, m + 2, context, word)
            if found >= 0:
                node, score, matched = found, np.float64(log_prob), np.int64(m + 2)
                lasting = matched if extends else lasting
            else:
                score += value_of(table.log_backoff, m + 1, context)
        elif adds_missing and context == UNSEEN:
            score += table.missing
    return score, matched, lasting


@numba.njit(cache=True, nogil=True)
def back_off(
    table: Any, order: int, contexts: Any, words: Any, score: Any, matched: Any, lasting: Any, nodes: Any
) -> None:
    """Take score_word's step of one order for N words; orders must be taken from 2 on.

    contexts: the nodes of the words before each, of order - 1 `[N]`. score, matched, lasting `[N]`: what score_word
    returns. nodes: filled with the nodes of the n-grams of this order that end in the words, `[N]`. The plain form is
    score_word, one word after the other, to the bit (tests/ngram/test_query.py). Here the searches of one order are
    independent and overlap: in the trie all take each step together, in the hash table a block in the L1 cache.
    """
    table = borrow(table)
    hashed = order <= table.ngrams.order
    size = max(min(QUERIES_PER_BLOCK, len(words)) if hashed else len(words), 1)  # without words, the range is empty
    place = np.empty(size, np.int64)  # the word of each search
    query = np.empty((size, 3), np.int64)  # its context and word, then its node
    value = np.empty(size, np.float32)
    for first in range(0, len(words), size):
        count = 0  # number of searches, noted from the start of place
        rest = size  # words that only add the weight of their context, from here on to the end
        for i in range(first, min(first + size, len(words))):
            context = contexts[i]
            nodes[i] = SHORT if context == SHORT or words[i] == table.bos else UNSEEN
            if context == UNSEEN:
                score[i] += table.missing
            elif context >= 0 and words[i] != table.bos and (matched[i] == order - 1 or not table.suffix_closed):
                place[count] = i
                query[count, 0] = context
                query[count, 1] = words[i]
                count += 1
                if hashed:
                    prefetch_ngram(table, context, words[i])
            elif context >= 0:
                rest -= 1
                place[rest] = i
                query[rest, 2] = code_of(table.log_backoff, order - 1, context)
        for j in range(rest, size):
            score[place[j]] += decode(table.log_backoff, order - 1, query[j, 2])
        if hashed:
            find_hashed(table, query[:count], value)
            for j in range(count):
                i = place[j]
                if query[j, 0] >= 0:
                    nodes[i], score[i], matched[i] = query[j, 0], value[j], order
                    lasting[i] = order if query[j, 2] else lasting[i]
                else:
                    score[i] += value_of(table.log_backoff, order - 1, contexts[i])
        else:
            children(table.nodes, query[:count])
            for j in range(count):
                if query[j, 0] >= 0:
                    query[j, 2] = code_of(table.log_prob, order, query[j, 0])
                else:
                    query[j, 2] = code_of(table.log_backoff, order - 1, contexts[place[j]])
            for j in range(count):
                i = place[j]
                if query[j, 0] >= 0:
                    nodes[i], matched[i] = query[j, 0], order
                    score[i] = decode(table.log_prob, order, query[j, 2])
                else:
                    score[i] += decode(table.log_backoff, order - 1, query[j, 2])


@numba.njit(cache=True, nogil=True)
def score_text(table: Any, ids: Any, offsets: Any, first: int, last: int, out: Any) -> None:
    """Score the tokens from `first` to before `last` of running text, into out `[last - first]`."""
    table = borrow(table)
    sentence = np.searchsorted(offsets, first, side="right") - 1
    begin = max(offsets[sentence], first - (table.order - 1))
    room = last - begin + (np.searchsorted(offsets, last, side="left") - sentence) + 1
    word = np.empty(room, np.int64)
    target = np.empty(room, np.int64)  # the place in out, -1 for <s> and for words that are context only
    length = 0
    for at in range(begin, last):
        while offsets[sentence + 1] <= at:
            sentence += 1
        if at == offsets[sentence]:
            word[length] = table.bos
            target[length] = -1
            length += 1
        word[length] = ids[at]
        target[length] = at - first if at >= first else -1
        length += 1
    score, matched, lasting = np.empty(length, np.float64), np.ones(length, np.int64), np.empty(length, np.int64)
    for i in range(length):
        score[i] = table.unigrams[word[i]]
    node = word[:length].copy()  # node of the n-gram of the previous order that ends at each place
    node_next = np.empty(length, np.int64)
    for k in range(2, table.order + 1):
        node_next[:1] = SHORT
        back_off(table, k, node[:-1], word[1:length], score[1:], matched[1:], lasting[1:], node_next[1:])
        node, node_next = node_next, node
    for i in range(length):
        if target[i] >= 0:
            out[target[i]] = score[i]


@numba.njit(cache=True, nogil=True)
def score_candidates(table: Any, contexts: Any, candidates: Any, first: int, last: int, out: Any, matched: Any) -> None:
    """Score candidates `[N, K]` after contexts `[N, C]`, rows `first` to `last`, into out; matched: their lengths."""
    table = borrow(table)
    nodes = np.empty(table.order - 1, np.int64)
    for row in range(first, last):
        find_suffixes(table.nodes, table.bos, contexts[row], nodes)
        for c in range(candidates.shape[1]):
            out[row, c], matched[row, c], _ = score_word(table, nodes, candidates[row, c], None)


@numba.njit(cache=True, nogil=True)
def distributions(table: Any, contexts: Any, first: int, last: int, dist: Any) -> None:
    """Write log p of all words after contexts `[N, C]`, rows `first` to before `last`, into dist `[N, V]`.

    The plain form, score_candidates of all words, searches for each word; here the words after each context of the
    table are read once (tests/ngram/test_table.py compares the two).
    """
    table = borrow(table)
    size = len(table.unigrams)
    nodes = np.empty(table.order - 1, np.int64)
    longer = np.zeros(table.order + 1, np.float64)  # the sum of the back-off weights of contexts of m words and more
    for row in range(first, last):
        find_suffixes(table.nodes, table.bos, contexts[row], nodes)
        for m in range(table.order - 1, 0, -1):
            longer[m] = longer[m + 1]
            if nodes[m - 1] >= 0:
                longer[m] += value_of(table.log_backoff, m, nodes[m - 1])
            elif nodes[m - 1] == UNSEEN:
                longer[m] += table.missing
        out = dist[row]
        weight = longer[1] if table.order > 1 else 0.0
        for word in range(size):
            out[word] = table.unigrams[word] + weight
        # From the shortest context to the longest: the n-grams of the table replace what was backed off.
        for m in range(1, table.order):
            if nodes[m - 1] >= 0:
                weight = longer[m + 1]
                begin, end = children_of(table.nodes, nodes[m - 1])
                for node in range(begin, end):
                    word = read(table.nodes.words, table.nodes.word_width, node - size)
                    if word < size:
                        out[word] = value_of(table.log_prob, m + 1, node) + weight


def log_prob_of_ngrams(table: BackoffTable, grams: IntArray) -> FloatArray:
    """Return log p of the last words of n-grams `[N, k]` after the words before them, `[N]`."""
    contexts, words = np.ascontiguousarray(grams[:, :-1]), np.ascontiguousarray(grams[:, -1:])
    log_prob, matched = np.empty(words.shape), np.empty(words.shape, dtype=np.int64)
    compiled = compiled_table(table)
    run((score_candidates, compiled, contexts, words, a, b, log_prob, matched) for a, b in cut_evenly(len(words)))
    return log_prob[:, 0]


def first_state(width: int, bos: int, *, sentence_start: bool) -> IntArray:
    """Return the state `[width]` after `<s>`, or a state without words if the context is unknown."""
    state = np.full(width, SHORT, dtype=np.int64)
    if sentence_start and width:
        state[0] = bos
    return state


def advance(
    lookup: Lookup, special_tokens: SpecialTokens, states: IntArray, words: IntArray
) -> tuple[FloatArray, IntArray, IntArray]:
    """Return log p of words `[N]` after states `[N, n-1]`, the states after them, and the matched lengths `[N]`.

    A matched length is the length of the longest n-gram of the table that ends in the word. After `</s>` a sentence
    begins. Raises ValueError for other shapes and types, words out of range and states of another model.
    """
    count, width = len(states), lookup.table.order - 1

    def checked() -> IntArray:
        return whole_numbers("advance: words", words, (count,), below=special_tokens.bos + 1)

    # advance_states checks numbers faster.
    is_plain = isinstance(words, np.ndarray) and words.dtype == np.int64 and words.flags.carray
    ids = words if is_plain and words.shape == (count,) else checked()
    states = np.ascontiguousarray(states, dtype=np.int64)
    if states.shape != (count, width):
        raise ValueError(f"advance: states must be [{count}, {width}]; got {list(states.shape)}")
    log_prob, after, matched = np.empty(count), np.empty_like(states), np.empty(count, dtype=np.int64)
    pieces = max(-(-count // TOKENS_PER_PIECE), 1)
    if pieces == 1 and count >= 2 * MIN_STATES_PER_THREAD:
        pieces = threads()
    eos = -1 if special_tokens.eos is None else special_tokens.eos
    table, arrays = lookup.for_states(count), (states, ids, log_prob, after, matched)
    if pieces == 1:
        are_known = [advance_states(table, eos, *arrays)]
    else:
        cuts = cut_evenly(count, pieces)
        are_known = run((advance_states, table, eos, *(array[a:b] for array in arrays)) for a, b in cuts)
    if not all(are_known):
        checked()
        raise ValueError("advance: these are not states of this model")
    return log_prob, after, matched


@numba.njit(cache=True, nogil=True, forceinline=True)
def is_state(state: Any, first: Any) -> bool:
    """Return whether number m of a state `[n-1]` is a node of order m + 1, or a mark. first: as in trie.Nodes."""
    found = True
    for m in range(len(state)):  # without a branch per number
        node = state[m]
        found &= ((node >= UNSEEN) & (node < 0)) | ((node >= first[m]) & (node < first[m + 1]))
    return found


@numba.njit(cache=True, nogil=True, forceinline=True)
def _is_known(table: Any, state: Any, word: Any) -> Any:
    return is_state(state, table.nodes.first) & (word >= 0) & (word < len(table.unigrams))


@numba.njit(cache=True, nogil=True, forceinline=True)
def prefetch_ngrams(table: Any, contexts: Any, word: Any) -> None:
    """Prefetch the entries that score_word reads in a hash table of all n-grams, which it reads one after the other."""
    for m in range(table.order - 1):
        if contexts[m] >= 0:
            prefetch_ngram(table, contexts[m], word)


@numba.njit(cache=True, nogil=True)
def advance_states(table: Any, eos: Any, states: Any, words: Any, log_prob: Any, after: Any, matched: Any) -> bool:
    """Score words `[N]` after states `[N, n-1]`, into log_prob `[N]`, and find the states after them, `[N, n-1]`.

    Return whether the table has these words and states; if not, the rest is not scored. matched: filled with the length
    of the longest n-gram that ends in each word. eos: -1 without `</s>`. The plain form is single_state, one at a time
    (tests/ngram/test_query.py compares the two). It is used, with prefetching, if the hash table has all n-grams: 1.4
    to 1.8 times as fast as back_off (EPYC Zen 4, 2026-11-26).
    """
    table = borrow(table)
    order = table.order
    if table.ngrams.order == order:
        for at in range(len(words) + WORDS_AHEAD):
            if at < len(words):
                if not _is_known(table, states[at], words[at]):
                    return False
                prefetch_ngrams(table, states[at], words[at])
            i = at - WORDS_AHEAD
            if i >= 0:
                log_prob[i], matched[i], lasting = score_word(table, states[i], words[i], after[i])
                shorten(table, after[i], lasting, words[i] == eos)
        return True
    unused, beyond = np.zeros(len(words), np.int64), np.empty((len(words), 1), np.int64)
    for i in range(len(words)):
        if not _is_known(table, states[i], words[i]):
            return False
        log_prob[i] = table.unigrams[words[i]]
        matched[i] = 1
        after[i, 0] = words[i]
    for k in range(2, order + 1):
        nodes = after[:, k - 1] if k < order else beyond[:, 0]
        back_off(table, k, states[:, k - 2], words, log_prob, matched, unused, nodes)
    for i in range(len(words)):
        shorten(table, after[i], 0, words[i] == eos)
    return True


@numba.njit(cache=True, nogil=True, forceinline=True)
def shorten(table: Any, state: Any, lasting: Any, ends: Any) -> None:
    """Remove the longest suffixes from a state `[n-1]` with which no longer n-gram begins and whose weight is one.

    lasting: as returned by score_word. ends: whether to return the state after `<s>`. No branch depends on these.
    """
    if table.missing != 0.0:
        lasting = len(state)
    elif table.ngrams.order < table.order:
        lasting = len(state)
        while lasting > 0:
            node = state[lasting - 1]
            if node >= 0 and (
                first_child(table.nodes, node + 1) != first_child(table.nodes, node)
                or value_of(table.log_backoff, lasting, node) != 0
            ):
                break
            lasting -= 1
    end = -np.int64(ends)  # all bits or none, as a mask
    lasting = (lasting & ~end) | (1 & end)
    for m in range(len(state)):
        state[m] |= (lasting - 1 - m) >> 63  # SHORT, whose bits are all set, or nothing
    if len(state) > 0:
        state[0] = (state[0] & ~end) | (table.bos & end)

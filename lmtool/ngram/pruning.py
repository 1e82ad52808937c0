"""Pruning by relative entropy (Stolcke 1998, eq. 3 to 6): the n-grams go that the model hardly needs.

Leaving out hw changes the model by

    D = -p(h) { p(w|h) [log p(w|h') + log backoff'(h) - log p(w|h)] + [log backoff'(h) - log backoff(h)] left(h) }

with backoff'(h) the weight once hw is left out and left(h) what h leaves to words unseen after it. hw is left out where
exp(D) - 1, the relative change of perplexity, is below a threshold; longest n-grams first, and none that begins
one which stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.language_model import FloatArray, IntArray
from lmtool.ngram.estimate import backoff_weights
from lmtool.ngram.model import asked_of
from lmtool.ngram.scoring import score_candidates
from lmtool.ngram.table import BackoffTable, log
from lmtool.system.parallel import cut_evenly, run

PIECE = 1 << 20


def prune_by_entropy(table: BackoffTable, threshold: float, eos: int | None) -> BackoffTable:
    """The table without the n-grams whose loss changes perplexity by less than `threshold`, relatively.

    eos: `</s>`, whose probability is that of `<s>` at the start of a context, as SRILM has it.
    """
    kept = np.ones(sum(table.sizes), dtype=bool)
    history = _log_marginals(table, eos)
    for k in range(table.order, 1, -1):
        here = slice(table.trie.first(k), table.trie.first(k + 1))
        context = context_of(table, k)
        contexts = table.sizes[k - 2]
        p = np.exp(table.log_prob[here].astype(np.float64))
        lower = np.exp(_lower(table, k))
        left = np.maximum(1.0 - np.bincount(context, p, contexts), 0.0)
        rest = np.maximum(1.0 - np.bincount(context, lower, contexts), 1e-300)
        h = history[table.trie.first(k - 1) : table.trie.first(k)]
        with np.errstate(divide="ignore", invalid="ignore"):
            old = log(left / rest)[context]
            new = log((left[context] + p) / (rest[context] + lower))
            moved = np.where(left[context] > 0, (new - old) * left[context], 0.0)
            change = -np.exp(h[context]) * (p * (log(lower) + new - log(p)) + moved)
        kept[here] = np.expm1(change) >= threshold
        if k < table.order:
            begins = table.trie.begins(k, 0, table.sizes[k - 1])
            longer = kept[table.trie.first(k + 1) : table.trie.first(k + 2)]
            kept[here] |= np.diff(np.concatenate([[0], np.cumsum(longer)])[begins]) > 0
    return weighted_again(replace(table.keep(kept), suffix_closed=False))


def weighted_again(table: BackoffTable) -> BackoffTable:
    """The table with its back-off weights set so that every distribution sums to one, shorter contexts first."""
    log_backoff = np.zeros(len(table.log_backoff), dtype=np.float32)
    table = replace(table, log_backoff=log_backoff)
    for k in range(2, table.order + 1):
        context, contexts = context_of(table, k), table.sizes[k - 2]
        p = np.exp(table.log_prob[table.trie.first(k) : table.trie.first(k + 1)].astype(np.float64))
        weight, _ = backoff_weights(p, np.exp(_lower(table, k)), context, contexts)
        log_backoff[table.trie.first(k - 1) : table.trie.first(k)] = log(weight)
    return table


def context_of(table: BackoffTable, k: int) -> IntArray:
    """The node, within order k-1, of the first words of each n-gram of order k."""
    begins = table.trie.begins(k - 1, 0, table.sizes[k - 2])
    return np.repeat(np.arange(len(begins) - 1), np.diff(begins))


def words_of(table: BackoffTable, k: int, first: int, last: int) -> npt.NDArray[Any]:
    """The words of n-grams `first` to before `last` of order k, `[last - first, k]`."""
    found = np.empty((last - first, k), dtype=np.int64)
    node = np.arange(first, last)
    for j in range(k, 0, -1):
        low, high = (int(node[0]), int(node[-1]) + 1) if len(node) else (0, 0)  # ascending
        found[:, j - 1] = table.trie.words(j, low, high)[node - low]
        if j > 1:
            node = table.trie.parents(j, node)
    return found


def _lower(table: BackoffTable, k: int) -> FloatArray:
    """log p(w|h') of each n-gram hw of order k."""
    asked, total = asked_of(table), table.sizes[k - 1]
    found = np.empty(total, dtype=np.float64)
    for at in range(0, total, PIECE):
        words = words_of(table, k, at, min(at + PIECE, total))
        log_prob, matched = np.empty((len(words), 1)), np.empty((len(words), 1), dtype=np.int64)
        contexts, targets = words[:, 1 : k - 1].copy(), words[:, k - 1 :].copy()
        run((score_candidates, asked, contexts, targets, a, b, log_prob, matched) for a, b in cut_evenly(len(words)))
        found[at : at + len(words)] = log_prob[:, 0]
    return found


def _log_marginals(table: BackoffTable, eos: int | None) -> FloatArray:
    """log p(h) of each node as a context: the product of its words' probabilities, each after those before it."""
    found = table.log_prob.astype(np.float64)
    found[table.bos] = found[eos] if eos is not None else -np.inf
    for k in range(2, table.order + 1):
        before = found[table.trie.first(k - 1) : table.trie.first(k)]
        found[table.trie.first(k) : table.trie.first(k + 1)] += before[context_of(table, k)]
    return found

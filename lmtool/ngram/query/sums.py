"""Sums of the scores of all words after each context of a back-off table, and renormalization to sums of 1.

With s(w|h) the score of w after h, the sum Z(h) over all words follows from the sum of the shorter context h':

    Z(h) = sum_w s(w|h) + backoff(h) (Z(h') - sum_w s(w|h'))      over the words w that the table has after h

and p(w|h) = s(w|h) / Z(h) is a back-off table again, with the weights backoff(h) Z(h') / Z(h).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from lmtool.errors import UserError
from lmtool.ngram.estimation.formulas import backoff_weights
from lmtool.ngram.query.find import compiled_table
from lmtool.ngram.query.scoring import log_prob_of_ngrams
from lmtool.ngram.tables.backoff import BackoffTable, log
from lmtool.system.arrays import FloatArray, IntArray

NGRAMS_PER_PIECE = 1 << 20  # n-grams looked up at once
SUM_SLACK = 0.01  # maximum difference of sums of rounded probabilities from 1


def check_sums(table: BackoffTable, eos: int | None) -> tuple[BackoffTable, float, float]:
    """Return the table, marked as normalized if all sums (not after `</s>`) are 1, and the lowest and highest sum."""
    total, sums, _, _ = _sums(table)
    last = [table.trie.words(k, 0, size) for k, size in enumerate(table.sizes[:-1], start=1)]
    used = np.append(sums[np.concatenate([np.empty(0), *last]) != (-1 if eos is None else eos)], total)
    low, high = float(used.min()), float(used.max())
    return replace(table, normalized=table.missing == 0 and low >= 1 - SUM_SLACK and high <= 1 + SUM_SLACK), low, high


def renormalize(table: BackoffTable) -> BackoffTable:
    """Return the table with each distribution divided by its sum."""
    total, sums, shorter, rest = _sums(table)
    if not (total > 0 and np.isfinite(sums).all()):
        raise UserError("these scores cannot be renormalized: the 1-grams sum to 0, or back-off weights are too large")
    none, log_prob = sums == 0, table.log_prob[:].astype(np.float64)
    log_prob[: table.vocabulary_size] -= math.log(total)
    for k in range(2, table.order + 1):
        of_contexts = log(np.where(none, 1.0, sums))[table.trie.span(k - 1)]
        log_prob[table.trie.span(k)] -= of_contexts[table.trie.contexts(k)]
    with np.errstate(divide="ignore", invalid="ignore"):  # after a context without a sum, words not seen are predicted
        weights = np.where(none, shorter / rest, np.exp(table.log_backoff[:], dtype=float) * shorter / sums)
    table = replace(table, log_prob=log_prob.astype(np.float32), log_backoff=log(weights).astype(np.float32))
    return replace(table, unseen=table.unseen - math.log(total), missing=0.0, normalized=True, interpolated=False)


@np.errstate(over="ignore", invalid="ignore")  # sums of absurd weights are inf or nan
def _sums(table: BackoffTable) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """Return Z of the empty context; and of each node h below order n: Z(h), Z(h'), and Z(h') without the words that
    the table has after h.
    """
    trie, total = table.trie, float(np.exp(compiled_table(table).unigrams).sum())
    suffixes = trie.suffixes() if table.suffix_closed else None
    sums, shorter, rest = (np.full(sum(table.sizes[:-1]), total) for _ in range(3))
    for k in range(2, table.order + 1):
        nodes, context = trie.span(k - 1), trie.contexts(k)
        for first in range(0, table.sizes[k - 2] if k > 2 else 0, NGRAMS_PER_PIECE):
            grams = trie.ngrams(k - 1, first, min(first + NGRAMS_PER_PIECE, table.sizes[k - 2]))
            found = trie.find_contexts(grams[:, 1:], table.bos, k - 2)  # the last 1, 2, ... words
            length = ((found >= 0) * np.arange(1, k - 1)).max(axis=1)
            node = found[np.arange(len(found)), length - 1]
            lacking = np.exp(table.missing * (k - 2 - length))
            at = nodes.start + first
            shorter[at : at + len(grams)] = np.where(length > 0, sums[node], total) * lacking
        own = np.exp(table.log_prob[trie.span(k)], dtype=float)
        lower = np.bincount(context, np.exp(log_lower(table, k, suffixes)), table.sizes[k - 2])
        rest[nodes] = np.maximum(shorter[nodes] - lower, 0.0)
        backoff = np.exp(table.log_backoff[nodes], dtype=float)
        sums[nodes] = np.bincount(context, own, table.sizes[k - 2]) + backoff * rest[nodes]
    return total, sums, shorter, rest


def recompute_backoffs(table: BackoffTable, suffixes: list[IntArray] | None = None) -> BackoffTable:
    """Return the table with back-off weights by which distributions sum to one. suffixes: as of its trie, if known."""
    log_backoff = np.zeros(len(table.log_backoff), dtype=np.float32)
    table = replace(table.unpack(), log_backoff=log_backoff, interpolated=False)
    if not table.suffix_closed:
        suffixes = None
    elif suffixes is None:
        suffixes = table.trie.suffixes()
    for k in range(2, table.order + 1):
        log_prob = table.log_prob[table.trie.span(k)]
        p, lower = np.exp(log_prob.astype(np.float64)), np.exp(log_lower(table, k, suffixes))
        weight, _ = backoff_weights(p, lower, table.trie.contexts(k), table.sizes[k - 2])
        log_backoff[table.trie.span(k - 1)] = log(weight)
    return table


def log_lower(table: BackoffTable, k: int, suffixes: list[IntArray] | None) -> FloatArray:
    """Return log p(w|h') of each n-gram hw of order k. suffixes: the suffixes of a table that has all of them."""
    if suffixes is not None:
        below = table.trie.first(k)
        stored = table.log_prob[:below] if k > 2 else compiled_table(table).unigrams
        return np.asarray(stored[suffixes[k - 2]], dtype=np.float64)
    total = table.sizes[k - 1]
    log_lower = np.empty(total, dtype=np.float64)
    for at in range(0, total, NGRAMS_PER_PIECE):
        words = table.trie.ngrams(k, at, min(at + NGRAMS_PER_PIECE, total))
        log_lower[at : at + len(words)] = log_prob_of_ngrams(table, words[:, 1:])
    return log_lower

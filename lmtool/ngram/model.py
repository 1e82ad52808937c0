"""The n-gram language model: a back-off table, asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lmtool.data.vocabulary import Vocabulary
from lmtool.model import FloatArray, IntArray
from lmtool.ngram.table import BackoffTable


class NgramModel:
    """Any count-based model of order n, as a LanguageModel with a context of n-1 words.

    Of a context only what stands after its last `<s>`, and that `<s>`, is read. In `log_dist` the entry of
    `<s>`, which is never predicted, holds what the smoother keeps for types that are in no vocabulary, so that a
    row sums to one.
    """

    def __init__(self, table: BackoffTable, vocabulary: Vocabulary) -> None:
        self.table = table
        self.vocabulary = vocabulary

    @property
    def context_size(self) -> int:
        """n - 1."""
        return self.table.order - 1

    def save(self, path: Path) -> None:
        """Write the table to HDF5."""
        self.table.save(path, self.vocabulary.fingerprint())

    @classmethod
    def load(cls, path: Path, vocabulary: Vocabulary) -> NgramModel:
        """Read a table that was made with this vocabulary."""
        return cls(BackoffTable.load(path, vocabulary.fingerprint()), vocabulary)

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """As LanguageModel.log_prob."""
        return self.log_prob_candidates(contexts, targets[:, None])[:, 0]

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """As LanguageModel.log_prob_candidates."""
        return self._score(contexts, candidates)[0]

    def matched_lengths(self, contexts: IntArray, targets: IntArray) -> IntArray:
        """The length `[N]` of the longest n-gram of the table that ends in each target."""
        return self._score(contexts, targets[:, None])[1][:, 0]

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """As LanguageModel.log_dist."""
        table = self.table
        unigrams = table.orders[0].log_prob.copy()
        unigrams[table.bos] = table.unseen
        dist = np.repeat(unigrams[None], len(contexts), axis=0)  # [N, V]
        # From the shortest context to the longest: back off everything, then put in what was seen.
        for k, row in enumerate(self._context_rows(contexts), start=2):
            asked = np.flatnonzero(row >= 0)
            context = row[asked]
            dist[asked] += table.orders[k - 2].log_backoff[context][:, None]
            keys = table.orders[k - 1].keys
            first = np.searchsorted(keys, context * table.vocabulary_size)
            length = np.searchsorted(keys, (context + 1) * table.vocabulary_size) - first
            seen = np.repeat(first, length) + _ranges(length)
            where = np.repeat(asked, length)
            dist[where, keys[seen] % table.vocabulary_size] = table.orders[k - 1].log_prob[seen]
        return dist

    def _score(self, contexts: IntArray, candidates: IntArray) -> tuple[FloatArray, IntArray]:
        """Log-probabilities and matched lengths of candidates `[N, K]`."""
        table = self.table
        found = table.orders[0].log_prob[candidates]  # [N, K]
        matched = np.ones(candidates.shape, dtype=np.int64)
        for k, row in enumerate(self._context_rows(contexts), start=2):
            asked = np.flatnonzero(row >= 0)
            context = row[asked]
            backed_off = found[asked] + table.orders[k - 2].log_backoff[context][:, None]
            at = _find(table.orders[k - 1].keys, context[:, None] * table.vocabulary_size + candidates[asked])
            # Indexed by what was found only: a text shorter than the order has no n-grams of that order at all.
            backed_off[at >= 0] = table.orders[k - 1].log_prob[at[at >= 0]]
            found[asked] = backed_off
            matched[asked] = np.where(at >= 0, k, matched[asked])
        return found, matched

    def _context_rows(self, contexts: IntArray) -> list[IntArray]:
        """For m = 1 to n-1 the row `[N]` of the last m context words among the m-grams; -1 for unseen ones.

        An m-gram's row is found word by word from its first, each step one search.
        """
        table = self.table
        size = contexts.shape[1]
        rows: list[IntArray] = []
        inside = np.ones(len(contexts), dtype=bool)  # the m words go back no further than one <s>
        for m in range(1, size + 1):
            row = np.where(inside, contexts[:, size - m], -1)
            for k in range(2, m + 1):
                key = row * table.vocabulary_size + contexts[:, size - m + k - 1]
                row = _find(table.orders[k - 1].keys, np.where(row >= 0, key, -1))
            rows.append(row)
            inside &= contexts[:, size - m] != table.bos
        return rows


def _find(keys: IntArray, wanted: IntArray) -> IntArray:
    """The place of each wanted key among the sorted keys, -1 where it is not one of them."""
    if len(keys) == 0:
        return np.full(wanted.shape, -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, at, -1)


def _ranges(length: IntArray) -> IntArray:
    """0, 1, ... length[0]-1, 0, 1, ... length[1]-1, and so on."""
    ends = np.cumsum(length)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - length, length)

"""The n-gram language model: a back-off table, asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lmtool.data.vocabulary import Vocabulary
from lmtool.language_model import FloatArray, IntArray
from lmtool.ngram.bigrams import NONE, bigram_table, node_width
from lmtool.ngram.scoring import PIECE, Asked, distributions, longest_contexts, score_candidates, score_text
from lmtool.ngram.table import BackoffTable
from lmtool.system.parallel import cut_evenly, run


class NgramModel:
    """Any count-based model of order n, as a LanguageModel with a context of n-1 words.

    Of a context only what stands after its last `<s>`, and that `<s>`, is read. In `log_dist` the entry of
    `<s>`, which is never predicted, holds what the smoother keeps for types that are in no vocabulary, so that a
    row sums to one.
    """

    def __init__(self, table: BackoffTable, vocabulary: Vocabulary) -> None:
        self.table = table
        self.vocabulary = vocabulary
        self._asked = asked_of(table)
        self._bigrams = NONE
        self._scored = 0
        # The compiled code is loaded when it is first called: now, not when time is taken.
        self.log_prob_text(np.zeros(1, dtype=np.int64), np.array([0, 1]))

    @property
    def context_size(self) -> int:
        """n - 1."""
        return self.table.order - 1

    @property
    def normalised(self) -> bool:
        """Whether what is called probabilities here are some; stupid backoff gives scores."""
        return self.table.normalised

    def save(self, path: Path) -> None:
        """Write the table to HDF5."""
        self.table.save(path, self.vocabulary.fingerprint())

    @classmethod
    def load(cls, path: Path, vocabulary: Vocabulary) -> NgramModel:
        """Open a table that was made with this vocabulary; it is read where it lies."""
        return cls(BackoffTable.open(path, vocabulary.fingerprint()), vocabulary)

    def log_prob(self, contexts: IntArray, targets: IntArray) -> FloatArray:
        """As LanguageModel.log_prob."""
        return self.log_prob_candidates(contexts, targets[:, None])[:, 0]

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        """As LanguageModel.log_prob_candidates."""
        return self._score(contexts, candidates)[0]

    def matched_lengths(self, contexts: IntArray, targets: IntArray) -> IntArray:
        """The length `[N]` of the longest n-gram of the table that ends in each target."""
        return self._score(contexts, targets[:, None])[1][:, 0]

    def context_lengths(self, contexts: IntArray) -> IntArray:
        """How many words `[N]`, counted from the last, of contexts `[N, n - 1]` the model has seen together."""
        found = np.empty(len(contexts), dtype=np.int64)
        longest_contexts(self._asked, contexts, found)
        return found

    def log_prob_text(self, ids: npt.NDArray[Any], offsets: IntArray) -> FloatArray:
        """As TextScorer.log_prob_text."""
        ids = ids.astype(np.int64, copy=False)  # one kernel for stores of all widths
        self._scored += len(ids)
        if len(self._bigrams) == 0 and self.table.order > 1 and self._scored > self.table.sizes[1] // 4:
            self._bigrams = bigram_table(self.table.trie)  # now it pays
        log_prob = np.empty(len(ids), dtype=np.float64)
        pieces = [(first, min(first + PIECE, len(ids))) for first in range(0, len(ids), PIECE)]
        run(
            (
                score_text,
                self._asked,
                self._bigrams,
                node_width(self.table.trie.nodes.first) if len(self._bigrams) else 0,
                ids,
                offsets,
                first,
                last,
                log_prob[first:last],
            )
            for first, last in pieces
        )
        return log_prob

    def log_dist(self, contexts: IntArray) -> FloatArray:
        """As LanguageModel.log_dist."""
        dist = np.empty((len(contexts), self.table.vocabulary_size), dtype=np.float64)
        run((distributions, self._asked, contexts, first, last, dist) for first, last in cut_evenly(len(contexts)))
        return dist

    def _score(self, contexts: IntArray, candidates: IntArray) -> tuple[FloatArray, IntArray]:
        """Log-probabilities and matched lengths of candidates `[N, K]`."""
        log_prob = np.empty(candidates.shape, dtype=np.float64)
        matched = np.empty(candidates.shape, dtype=np.int64)
        run(
            (score_candidates, self._asked, contexts, candidates, first, last, log_prob, matched)
            for first, last in cut_evenly(len(contexts))
        )
        return log_prob, matched


def asked_of(table: BackoffTable) -> Asked:
    """The table as the kernels take it."""
    unigrams = table.log_prob[: table.vocabulary_size].astype(np.float64)
    unigrams[table.bos] = table.unseen
    nodes = table.trie.nodes
    return Asked(
        order=table.order,
        total=sum(table.sizes),
        unigram_starts=nodes.unigram_starts,
        base=nodes.base,
        starts=nodes.starts,
        start_width=nodes.start_width,
        words=nodes.words,
        word_width=nodes.word_width,
        unigrams=unigrams,
        log_prob=table.log_prob,
        log_backoff=table.log_backoff,
        bos=table.bos,
        missing=table.missing,
        suffix_closed=table.suffix_closed,
    )

"""The n-gram language model: a back-off table and the vocabulary of its words; and the units that are counted."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.data.corpus import Corpus
from lmtool.data.derived_corpus import interleave
from lmtool.data.split import Split
from lmtool.data.vocabulary import SpecialTokens, Vocabulary
from lmtool.language_model import LanguageModel
from lmtool.ngram.files.hdf5 import open_table, save_table
from lmtool.ngram.models.word_classes import WordClasses
from lmtool.ngram.query.find import Lookup
from lmtool.ngram.query.scoring import (
    TOKENS_PER_PIECE,
    advance,
    distributions,
    first_state,
    score_candidates,
    score_text,
)
from lmtool.ngram.query.sums import check_sums
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.quantized import QuantizedValues
from lmtool.ngram.tables.trie_search import UNSEEN
from lmtool.system.arrays import Array, FloatArray, IntArray, release, sentence_offsets
from lmtool.system.parallel import cut_evenly, run
from lmtool.system.process import is_nearly_used

NGRAM_FILE, CLASSES_FILE = "model.h5", "classes.txt"  # file names in a run folder
LIMITED_PIECE = 1 << 10  # tokens scored at once if the memory is limited: they touch some 20 MiB of a large file
SUMMED, SUMMED_PER_CHUNK = 256, 16  # contexts whose distributions quantized_notes sums

ROUNDING = 1e-6  # relative error of a stored p, whose logarithm is a float32


class NgramModel(LanguageModel):
    """A count-based model of order n, as a LanguageModel with contexts of n-1 words.

    Legend: N contexts, C = n-1 words in each, V vocabulary entries, K candidates. Log-probabilities are natural,
    float64. A context is read from its last `<s>` on. In `log_dist`, the entry of `<s>`, which is never predicted, has
    the probability that the smoother keeps for types outside the vocabulary, so that a row sums to one. Every method
    raises ValueError for contexts, words and offsets of another shape, type or range.
    """

    def __init__(self, table: BackoffTable, vocabulary: Vocabulary) -> None:
        """vocabulary: the vocabulary of the table's words."""
        self.table = table
        self.vocabulary = vocabulary
        self.lookup = Lookup(table)
        # Compiled code is loaded by its first call: now, so that no measured time contains it.
        self.log_prob_text(np.zeros(1, dtype=np.int64), np.array([0, 1]))

    def with_floor(self, log_prob: float) -> NgramModel:
        """Return the model with this log p for `<s>` and for words whose 1-gram has probability 0, as in KenLM."""
        model = NgramModel(self.table, self.vocabulary)
        unigrams = model.lookup.compiled.unigrams
        unigrams[self.table.bos] = -math.inf
        unigrams[np.isneginf(unigrams)] = log_prob
        return model

    @property
    def vocabulary_size(self) -> int:
        return self.table.vocabulary_size

    @property
    def context_size(self) -> int:
        return self.table.order - 1

    @property
    def normalized(self) -> bool:
        return self.table.normalized

    def limit(self, words: Collection[str]) -> NgramModel:
        """Return the model without n-grams of words other than `words`, `<s>`, `</s>` and `<unk>`, and without these
        words: its scores are not probabilities unless they sum to one as they are.
        """
        vocabulary, word_mask = self.vocabulary.limit(words)
        trie = self.table.trie
        longer = [word_mask[trie.ngrams(k, 0, trie.sizes[k - 1])].all(axis=1) for k in range(2, trie.order + 1)]
        table = self.table.select(np.concatenate([word_mask, *longer]))
        return NgramModel(check_sums(table, vocabulary.eos)[0], vocabulary)

    def save(self, path: Path) -> None:
        """Write the table to HDF5, whole or not at all."""
        save_table(self.table, path, self.vocabulary.fingerprint())

    @classmethod
    def load(cls, path: Path, vocabulary: Vocabulary) -> NgramModel:
        """Return the model of a file, whose arrays are read when they are used."""
        return cls(open_table(path, vocabulary.fingerprint()), vocabulary)

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        contexts = self._checked_contexts("log_prob_candidates", contexts)
        candidates = self._checked_words("log_prob_candidates: candidates", candidates, (len(contexts), "K"))
        return self._score(contexts, candidates)[0]

    def matched_lengths(self, contexts: IntArray, targets: IntArray) -> IntArray:
        contexts = self._checked_contexts("matched_lengths", contexts)
        targets = self._checked_words("matched_lengths: targets", targets, (len(contexts),))
        return self._score(contexts, targets[:, None])[1][:, 0]

    def explain(self, contexts: IntArray, targets: IntArray) -> dict[str, Array]:
        """Return the `order` of the longest n-gram in the table that ends in each target, and the terms of p.

        If p is interpolated, p_k of order k is `share k` + `weight k` p_k-1, up from `p 1`: the discounted share of the
        n-gram and the weight of its context of k-1 words, nan if the table lacks the n-gram (a share of 0), or what
        follows the context (a weight of 1).
        If not, p is the `stored p` of that n-gram times `back-off k`, the weights of longer contexts, of k words; nan
        for contexts that are not backed off from, or that nothing follows.
        """
        contexts, table = self._checked_contexts("explain", contexts), self.table
        words = self._checked_words("explain: targets", targets, (len(contexts),))
        nodes = table.trie.find_contexts(contexts, table.bos, self.context_size)  # [N, C]
        p = stored = np.exp(self.lookup.compiled.unigrams[words], dtype=np.float64)
        order, shares, weights = np.ones(len(words), dtype=np.int64), {"p 1": p}, dict[int, FloatArray]()
        for k, context in enumerate(np.ascontiguousarray(nodes.T), 2):
            weight = np.where(context == UNSEEN, table.missing, 0.0)
            weight[context >= 0] = _values_at(table.log_backoff, context[context >= 0])
            weight[weight == 0] = np.nan  # nothing follows the context
            weights[k] = np.exp(weight, out=weight)
            ngrams = table.trie.find_followers(context, words)
            found, lower = ngrams >= 0, np.where(np.isnan(weight), 1.0, weight) * p
            order[found], p, stored = k, lower.copy(), stored.copy()
            p[found] = stored[found] = np.exp(_values_at(table.log_prob, ngrams[found]))
            share = np.where(p - lower > ROUNDING * p, p - lower, 0.0)
            shares |= {f"weight {k}": weight, f"share {k}": np.where(found, share, np.nan)}
        if table.interpolated:
            return {"order": order} | dict(reversed(shares.items()))
        used = {f"back-off {k - 1}": np.where(order < k, weights[k], np.nan) for k in reversed(weights)}
        return {"order": order, "stored p": stored} | used

    @property
    def context_classes(self) -> int:
        return self.table.order

    def context_lengths(self, contexts: IntArray) -> IntArray:
        contexts = self._checked_contexts("context_lengths", contexts)
        is_there = self.table.trie.find_contexts(contexts, self.table.bos, self.context_size) >= 0
        lengths: IntArray = (is_there * np.arange(1, self.table.order)).max(axis=1, initial=0)
        return lengths

    def score_text(self, text: Split, *, progress: bool = False, memory_limit: int | None = None) -> FloatArray:
        return self.log_prob_text(text.ids, text.offsets, memory_limit)

    def log_prob_text(self, ids: Array, offsets: IntArray, memory_limit: int | None = None) -> FloatArray:
        """Return log p `[N]` of the tokens of running text, sentences that begin at offsets `[S + 1]`.

        memory_limit: bytes of the process beyond which pages of the model's file leave the memory; None: no limit.
        """
        ids = self._checked_words("log_prob_text: ids", ids, ("N",))
        offsets = sentence_offsets("NgramModel.log_prob_text: offsets", offsets, len(ids))
        # A hash table is memory of the process that cannot be released.
        table = self.lookup.for_text(len(ids)) if memory_limit is None else self.lookup.compiled
        log_prob = np.empty(len(ids), dtype=np.float64)
        size = TOKENS_PER_PIECE if memory_limit is None else LIMITED_PIECE
        pieces = [(first, min(first + size, len(ids))) for first in range(0, len(ids), size)]
        calls = [(score_text, table, ids, offsets, first, last, log_prob[first:last]) for first, last in pieces]
        if memory_limit is None:
            run(calls)
            return log_prob
        for call in calls:
            run([call])
            if is_nearly_used(memory_limit):
                for array in self.table.arrays:
                    release(array)
        return log_prob

    def log_dist(self, contexts: IntArray) -> FloatArray:
        contexts = self._checked_contexts("log_dist", contexts)
        dist = np.empty((len(contexts), self.table.vocabulary_size), dtype=np.float64)
        table = self.lookup.compiled
        run((distributions, table, contexts, first, last, dist) for first, last in cut_evenly(len(contexts)))
        return dist

    @property
    def state_size(self) -> int:
        return self.table.order - 1

    def begin(self, special_tokens: SpecialTokens, *, sentence_start: bool = True) -> IntArray:
        return first_state(self.state_size, special_tokens.bos, sentence_start=sentence_start)

    def advance(self, states: IntArray, words: IntArray, special_tokens: SpecialTokens) -> tuple[FloatArray, IntArray]:
        return advance(self.lookup, special_tokens, states, words)[:2]

    def _score(self, contexts: IntArray, candidates: IntArray) -> tuple[FloatArray, IntArray]:
        """Return log-probabilities and matched lengths of candidates `[N, K]`, each `[N, K]`."""
        log_prob = np.empty(candidates.shape, dtype=np.float64)
        matched = np.empty(candidates.shape, dtype=np.int64)
        run(
            (score_candidates, self.lookup.compiled, contexts, candidates, first, last, log_prob, matched)
            for first, last in cut_evenly(len(contexts))
        )
        return log_prob, matched


def _values_at(values: Array | QuantizedValues, nodes: IntArray) -> FloatArray:
    """Return the values of nodes `[N]`, read one by one."""
    return np.array([values[node : node + 1][0] for node in nodes.tolist()], dtype=np.float64)


def even_positions(size: int) -> IntArray:
    """Return at most SUMMED positions from 0 to before `size`, ascending and evenly spaced."""
    return np.unique(np.arange(SUMMED) * size // SUMMED)


def quantized_notes(model: Any, contexts: IntArray | None = None) -> list[str]:
    """Return a note on the sums of a quantized n-gram model's distributions; an empty list for any other model, and
    where the sums are 1 in the digits of the note.

    contexts: int64 `[N, C]` of a text, N > 0; None: contexts of the model's n-grams, evenly spaced.
    """
    ngrams = model.ngrams if isinstance(model, UnitNgramModel) else model
    if not isinstance(ngrams, NgramModel) or ngrams.table.quantized_bits is None or not ngrams.normalized:
        return []
    table = ngrams.table
    if table.order == 1 or table.sizes[-1] == 0:
        return []  # unigrams are not quantized
    if contexts is None:
        model, contexts = ngrams, table.trie.ngrams_at(table.order, even_positions(table.sizes[-1]))[:, :-1]
    blocks = [contexts[first : first + SUMMED_PER_CHUNK] for first in range(0, len(contexts), SUMMED_PER_CHUNK)]
    log_sums = np.concatenate([np.logaddexp.reduce(model.log_dist(block), axis=1) for block in blocks])
    sums = f"{np.exp(log_sums.min()):.3f} to {np.exp(log_sums.max()):.3f}"
    mean = f"{math.exp(log_sums.mean()):.4f}"
    if (sums, mean) == ("1.000 to 1.000", "1.0000"):
        return []
    return [
        f"quantized to {table.quantized_bits} bits: the probabilities of all words do not sum to one, but to {sums} "
        f"after {len(contexts):,} contexts; to compare a perplexity, multiply it by {mean}, their geometric mean"
    ]


class UnitNgramModel(LanguageModel):
    """An n-gram model of words that reads every s-th word of a context, or the classes of its words.

    A context has s (n-1) words, of which every s-th is read, the newest s words back (Goodman 2001, section 4). With
    classes, p(w|h) = p(w|c(w)) p(c(w) | the classes of the words of h) (Brown et al. 1992, eq. 2), and the entry of
    `<s>` in `log_dist` is what the smoother keeps for classes outside their vocabulary. For all else see NgramModel.
    """

    def __init__(
        self, table: BackoffTable, units: Vocabulary, *, step: int = 1, classes: WordClasses | None = None
    ) -> None:
        """table: the table of n-grams of the units. units: words or classes. step: the step s."""
        self.ngrams = NgramModel(table, units)
        self.step, self.classes = step, classes

    @classmethod
    def load(
        cls, folder: Path, vocabulary: Vocabulary, *, step: int = 1, classes: WordClasses | None = None
    ) -> UnitNgramModel:
        """Return the model of a run folder."""
        units = vocabulary if classes is None else classes.classes
        return cls(open_table(folder / NGRAM_FILE, units.fingerprint()), units, step=step, classes=classes)

    @property
    def vocabulary_size(self) -> int:
        return self.ngrams.vocabulary_size if self.classes is None else len(self.classes.class_of)

    @property
    def context_size(self) -> int:
        return self.step * self.ngrams.context_size

    @property
    def normalized(self) -> bool:
        return self.ngrams.normalized

    def log_prob_candidates(self, contexts: IntArray, candidates: IntArray) -> FloatArray:
        contexts = self._checked_contexts("log_prob_candidates", contexts)[:, :: self.step]
        candidates = self._checked_words("log_prob_candidates: candidates", candidates, (len(contexts), "K"))
        if self.classes is None:
            return self.ngrams.log_prob_candidates(contexts, candidates)
        unit_of, within = self.classes.class_of, self.classes.log_within
        return self.ngrams.log_prob_candidates(unit_of[contexts], unit_of[candidates]) + within[candidates]

    def explain(self, contexts: IntArray, targets: IntArray) -> dict[str, Array]:
        contexts = self._checked_contexts("explain", contexts)[:, :: self.step]
        if self.classes is None:
            return self.ngrams.explain(contexts, targets)
        unit_of, within = self.classes.class_of, np.exp(self.classes.log_within)
        return self.ngrams.explain(unit_of[contexts], unit_of[targets]) | {"p in class": within[targets]}

    def log_dist(self, contexts: IntArray) -> FloatArray:
        contexts = self._checked_contexts("log_dist", contexts)[:, :: self.step]
        if self.classes is None:
            return self.ngrams.log_dist(contexts)
        dist: FloatArray = self.ngrams.log_dist(self.classes.class_of[contexts])[:, self.classes.class_of]
        dist += self.classes.log_within
        return dist

    def score_text(self, text: Split, *, progress: bool = False, memory_limit: int | None = None) -> FloatArray:
        places, begins = (slice(None), text.offsets) if self.step == 1 else interleave(self.step, text.offsets)
        log_prob, ids = np.empty(text.tokens), text.ids[places]
        units = ids if self.classes is None else self.classes.class_of[ids]
        log_prob[places] = self.ngrams.log_prob_text(units, begins, memory_limit)
        if self.classes is not None:
            log_prob += self.classes.log_within[text.ids]
        return log_prob


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a corpus whose n-grams are counted: its words, every `step`-th word, or classes of words.

    corpus: the text in these units, over their vocabulary. about: lines for the user on how they were found.
    """

    corpus: Corpus
    step: int | None = None
    classes: WordClasses | None = None
    about: list[str] = field(default_factory=list)

    def model(self, table: BackoffTable) -> LanguageModel:
        """Return the model over words, given a table over the units."""
        units = self.corpus.vocabulary
        if self.step is None and self.classes is None:
            return NgramModel(table, units)
        return UnitNgramModel(table, units, step=self.step or 1, classes=self.classes)

    def save(self, table: BackoffTable, folder: Path) -> None:
        """Write that model into a run folder."""
        if self.classes is not None:
            self.classes.save(folder / CLASSES_FILE)
        save_table(table, folder / NGRAM_FILE, self.corpus.vocabulary.fingerprint())

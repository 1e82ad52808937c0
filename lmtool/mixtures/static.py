"""Static linear interpolation: n-gram models are mixed into one back-off model, as in SRILM's `ngram -mix-lm`.

    p(w|h) = sum_m weight_m p_m(w|h)    for every n-gram hw that any member has

where p_m(w|h) is the probability of hw under member m, backed off if it does not have hw. The back-off weights follow
from these (Katz 1987, eq. 2), so that each distribution sums to one. For an n-gram that no member has, the model gives
backoff(h) p(w|h'), whereas a mixture at query time gives the weighted mean of the members' backed-off probabilities:
the two differ only there.

A member's probabilities are computed order by order. If it does not have hw, p_m(w|h) = backoff_m(h) p_m(w|h'), where
p_m(w|h') was computed with the order below, at the n-gram's suffix.

Members may have other orders and other words. Words are matched by their spelling: a word that a member does not have
is `<unk>` to it in a context, and has probability 0 after any, or a share of p(<unk>) (vocabularies.shares_of_unk).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lmtool.data.vocabulary import Vocabulary
from lmtool.mixtures.linear import checked_weights, mix
from lmtool.mixtures.vocabularies import shares_of_unk
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.query.scoring import log_prob_of_ngrams
from lmtool.ngram.query.sums import check_sums, recompute_backoffs
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.trie import Trie, TrieBuilder
from lmtool.system.arrays import FloatArray, IntArray


def mix_static(
    models: Sequence[NgramModel], weights: FloatArray, vocabulary: Vocabulary, *, union: bool = False
) -> BackoffTable:
    """Return the linear mixture of M n-gram models with weights `[M]` as one back-off table over a vocabulary.

    vocabulary: must have all words of the models. union: whether a word that a model lacks has a share of its p(<unk>)
    instead of 0. The table has every n-gram of the models whose weight is not 0; if the scores of a model do not sum to
    one, the table's may not either. Memory: about 60 + 24 M bytes for each n-gram of the largest order.
    """
    weights = checked_weights("mix_static: weights", weights, (len(models),))
    if not all(vocabulary.ids.keys() >= set(model.vocabulary.words) for model in models):
        raise ValueError("mix_static: vocabulary must have all words of the models")
    members = [_Member(model, vocabulary, union) for model, weight in zip(models, weights, strict=True) if weight > 0]
    shares = weights[weights > 0]
    builder, suffix = TrieBuilder(len(vocabulary)), list[IntArray]()
    log_probs = [mix(np.stack([member.log_prob + member.log_share for member in members]), shares).astype(np.float32)]
    for k in range(2, max(member.table.order for member in members) + 1):
        own_keys = [member.keys(k, builder) for member in members]
        keys = _distinct(own_keys)
        builder.add(keys)
        trie = builder.finish()
        suffix.append(trie.suffixes_of_order(k, suffix[-1] if suffix else None))
        contexts, words = trie.contexts(k), trie.words(k, 0, trie.sizes[k - 1])
        for member, own in zip(members, own_keys, strict=True):
            member.advance(k, trie, contexts, words, suffix[-1], np.searchsorted(keys, own))
        member_log_probs = np.stack([member.log_prob + member.log_share[words] for member in members])
        log_probs.append(mix(member_log_probs, shares).astype(np.float32))
    trie = builder.finish()
    table = BackoffTable(
        trie=trie,
        log_prob=np.concatenate(log_probs),
        log_backoff=np.zeros(trie.first(trie.order), dtype=np.float32),
        bos=vocabulary.bos,
        unseen=float(mix(np.array([[member.table.unseen] for member in members]), shares)[0]),
        suffix_closed=all(bool((nodes >= 0).all()) for nodes in suffix),
    )
    mixed = recompute_backoffs(table, suffix)
    normalized = all(model.normalized for model in models)
    return mixed if normalized else check_sums(mixed, vocabulary.eos)[0]


def _distinct(keys: list[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    """Return the distinct keys of all arrays, ascending; arrays of keys of the same vocabulary are sorted already."""
    together = np.sort(np.concatenate(keys), kind="stable")
    first = np.ones(len(together), dtype=bool)
    first[1:] = together[1:] != together[:-1]
    return np.asarray(together[first])


class _Member:
    """The probabilities of the mixture's n-grams under one model, one order after the other.

    log_prob: log p_m(w|h) of the mixture's n-grams of the last order, `[N]`, with `<unk>` for words that the member
    does not have. log_share: `[V]`, what is added to log p of the mixture's words; 0 for the member's words. nodes:
    these n-grams in the member's trie; -1 for n-grams that it does not have. foreign: bool `[N]`, whether an n-gram has
    a word that the member does not have. places: the positions of the member's n-grams of that order among the
    mixture's.
    """

    def __init__(self, model: NgramModel, vocabulary: Vocabulary, union: bool) -> None:
        self.table = model.table
        self._log_prob = self.table.log_prob[:]
        self._log_backoff = self.table.log_backoff[:]
        self.ids = vocabulary.encode(model.vocabulary.words)  # ids of the member's words in the mixture
        self.lacks = np.ones(len(vocabulary), dtype=bool)
        self.lacks[self.ids] = False
        self.words, shares = shares_of_unk(model.vocabulary, vocabulary)  # the member's ids of the mixture's words
        self.log_share = shares if union else np.where(self.lacks, -np.inf, 0.0)
        self.nodes, self.foreign, self.places = self.words, self.lacks, self.ids
        self.log_prob = self._log_prob[self.words].astype(np.float64)

    def keys(self, k: int, builder: TrieBuilder) -> npt.NDArray[np.uint64]:
        """Return the mixture's keys of the member's n-grams of order k; k-1 was the last order."""
        if k > self.table.order:
            return np.empty(0, dtype=np.uint64)
        trie = self.table.trie
        return builder.keys(self.places[trie.contexts(k)], self.ids[trie.words(k, 0, trie.sizes[k - 1])])

    def advance(
        self, k: int, trie: Trie, contexts: IntArray, words: IntArray, suffix: IntArray, places: IntArray
    ) -> None:
        """Advance to the mixture's n-grams of order k, in the order of their nodes.

        contexts: the context of each n-gram, within order k-1. words: its last word. suffix: the node of its last k-1
        words, -1 if the trie does not have them. places: the positions of the member's n-grams among them.
        """
        backed_off = self.log_prob[np.where(suffix >= 0, suffix - trie.first(k - 1), -1)]
        without = np.flatnonzero(suffix < 0)
        if len(without):
            grams = self.words[trie.ngrams_at(k, without)]
            backed_off[without] = log_prob_of_ngrams(self.table, grams[:, 1:])
        self.log_prob = backed_off
        if k <= self.table.order:
            before = self.nodes[contexts]
            backed_off += np.where(before >= 0, self._log_backoff[before], 0.0)
            nodes = np.full(len(words), -1, dtype=np.int64)
            nodes[places] = self.table.trie.first(k) + np.arange(len(places))
            foreign = self.foreign[contexts] | self.lacks[words]
            if foreign.any():
                nodes[foreign] = self.table.trie.find_followers(before[foreign], self.words[words[foreign]])
            self.log_prob = np.where(nodes >= 0, self._log_prob[nodes], backed_off)
            self.nodes, self.foreign, self.places = nodes, foreign, places

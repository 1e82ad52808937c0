"""The hash table of all n-grams: what is in it, what is not, and states by it beside states by the trie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.query import ngram_hash
from lmtool.ngram.query.ngram_hash import EMPTY_SLOT, goes_on, hash_ngrams, log_prob_of, look_up, node_of
from lmtool.ngram.smoothers.base import Smoother
from lmtool.ngram.smoothers.interpolation import WittenBell
from lmtool.ngram.smoothers.relative_frequencies import StupidBackoff
from tests.ngram.plain import text_of

TEXT = ["a b a", "a b", "a c b", "b a c", "c"]


def model_of(order: int, smoother: Smoother | None = None) -> NgramModel:
    text, vocabulary = text_of(TEXT)
    table = estimate(count_ngrams(text, vocabulary, order), smoother or WittenBell(order))
    return NgramModel(table, vocabulary)


def test_every_ngram_is_in_it_and_no_other() -> None:
    table = model_of(3).table
    hashed = hash_ngrams(table)
    assert hashed is not None and len(hashed.entries) == sum(table.sizes[1:]) * 3 // 2 + 1
    grams = {
        tuple(row): table.trie.first(k) + i
        for k in range(1, 4)
        for i, row in enumerate(table.trie.ngrams(k, 0, table.sizes[k - 1]).tolist())
    }
    begun = {gram[:-1] for gram in grams}  # n-grams go on from these
    words = range(table.vocabulary_size)
    assert table.sizes[0] == len(words)
    for gram in [(a, b) for a in words for b in words] + [(a, b, c) for a in words for b in words for c in words]:
        if gram[:-1] not in grams:
            continue
        key = np.uint64(grams[gram[:-1]] << int(table.trie.nodes.word_width) | gram[-1])
        value = look_up(hashed.entries, key)
        if gram not in grams:
            assert value == EMPTY_SLOT
            continue
        node = grams[gram]
        assert (node_of(value), log_prob_of(value)) == (node, table.log_prob[node])
        stays = len(gram) < 3 and (gram in begun or table.log_backoff[node] != 0)
        assert goes_on(value) == stays
    assert hashed.extends.tolist() == [int((a,) in begun or table.log_backoff[a] != 0) for a in words]
    assert 0 < hashed.extends.sum() < len(words)


@pytest.mark.parametrize("kind", ["closed", "not closed", "stupid_backoff", "bigrams"])
def test_states_are_those_of_the_trie(kind: str) -> None:
    smoother = StupidBackoff(3, alpha=0.4) if kind == "stupid_backoff" else None
    model = model_of(2 if kind == "bigrams" else 3, smoother)
    table = replace(model.table, suffix_closed=False) if kind == "not closed" else model.table
    plain, hashed = (NgramModel(table, model.vocabulary).incremental(model.vocabulary.special_tokens) for _ in range(2))
    ngrams = hash_ngrams(table)
    assert ngrams is not None
    plain.ngrams, hashed.ngrams = lambda words: None, lambda words: ngrams
    # From the beginning of a sentence, and from nowhere, all pairs of words, each followed by all words; `<s>` too.
    words = np.arange(table.vocabulary_size)
    states = np.stack([plain.initial_state(sentence_start=start) for start in (True, False)])
    for _ in range(3):
        states, asked = np.repeat(states, len(words), axis=0), np.tile(words, len(states))
        wanted, found = plain.advance_matched(states, asked), hashed.advance_matched(states, asked)
        for one, other in zip(wanted, found, strict=True):
            np.testing.assert_array_equal(one, other)
        states = np.unique(wanted[1], axis=0)


def test_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    table = model_of(3).table
    assert hash_ngrams(model_of(1).table) is None and hash_ngrams(table.quantised(8)) is None
    needed = (sum(table.sizes[1:]) * 3 // 2 + 1) * 16  # bytes, of which no more than a quarter of the memory is taken
    for available, built in ((4 * needed, True), (4 * needed - 1, False), (None, True)):
        monkeypatch.setattr(ngram_hash, "memory_available", lambda available=available: available)
        assert (hash_ngrams(table) is not None) == built
    # Nodes and words that do not fit into a key's 63 bits.
    width = len(table.log_backoff).bit_length()
    for word_width, built in ((63 - width, True), (64 - width, False)):
        wide = replace(table, trie=replace(table.trie, nodes=table.trie.nodes._replace(word_width=word_width)))
        monkeypatch.setattr(ngram_hash, "_fill", lambda *_: None)
        assert (hash_ngrams(wide) is not None) == built
    nodes = int(sum(table.sizes)).bit_length()
    for bits, built in ((nodes, True), (nodes - 1, False)):
        monkeypatch.setattr(ngram_hash, "NODE_BITS", bits)
        assert (hash_ngrams(table) is not None) == built

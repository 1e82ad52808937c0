"""Looking n-grams up: in the trie, in the hash table and by the plain form, one word at a time and many at once."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest

from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.query import find as find_module
from lmtool.ngram.query.find import Lookup, find, hash_ngrams
from lmtool.ngram.query.scoring import advance, first_state, score_word, shorten
from lmtool.ngram.smoothers.base import Smoother
from lmtool.ngram.smoothers.interpolation import WittenBell
from lmtool.ngram.smoothers.relative_frequencies import StupidBackoff
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.packed import borrow
from lmtool.ngram.tables.trie_search import child
from tests.ngram.plain import fixed_lookup, kneser_ney, text_of

TEXT = ["a b a", "a b", "a c b", "b a c", "c"]


def model_of(order: int, smoother: Smoother | None = None) -> NgramModel:
    text, vocabulary = text_of(TEXT)
    table = estimate(count_ngrams(text, vocabulary, order), smoother or WittenBell(order))
    return NgramModel(table, vocabulary)


@numba.njit
def found(table, order, context, word):
    return find(borrow(table), order, context, word)


@numba.njit
def child_of(nodes, node, word):
    return child(borrow(nodes), node, word)


@numba.njit
def one_by_one(table, eos, states, words, log_prob, after, matched):
    """The plain form of scoring.advance_states."""
    table = borrow(table)
    for i in range(len(words)):
        log_prob[i], matched[i], lasting = score_word(table, states[i], words[i], after[i])
        if words[i] == eos:
            after[i] = -1
            after[i, 0] = table.bos
        else:
            shorten(table, after[i], lasting, False)


@pytest.mark.parametrize("bits", [None, 5, 8])
def test_children_are_those_of_a_plain_search(bits: int | None) -> None:
    table, _, _ = kneser_ney(3, 300, 0)
    trie = (table if bits is None else table.quantize(bits)).trie
    for k in (2, 3):
        begins = trie.begins(k - 1, 0, trie.sizes[k - 2])
        for context in range(0, trie.sizes[k - 2], 7):
            words = trie.words(k, int(begins[context]), int(begins[context + 1]))
            for word in range(trie.vocabulary_size):
                at = int(np.searchsorted(words, word))
                is_there = at < len(words) and words[at] == word
                wanted = trie.first(k) + begins[context] + at if is_there else -1
                assert child_of(trie.nodes, trie.first(k - 1) + context, word) == wanted


@pytest.mark.parametrize("slots", [1, 2])  # with 1, most searches continue in other buckets
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("bits", [None, 4])
def test_every_ngram_is_in_the_hash_table_and_no_other(
    bits: int | None, order: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_module, "SLOTS_PER_NGRAM", slots)
    table = model_of(3).table
    table = table if bits is None else table.quantize(bits)
    lookup = fixed_lookup(table, order)
    hashed, plain = lookup.compiled, fixed_lookup(table, 1).compiled
    assert hashed.ngrams.entries.ctypes.data % 64 == 0  # each bucket of four is one cache line
    wanted = slots * sum(table.sizes[1:order])
    assert wanted < 4 * len(hashed.ngrams.entries) <= wanted + 5
    grams = {
        tuple(row): table.trie.first(k) + i
        for k in range(1, 4)
        for i, row in enumerate(table.trie.ngrams(k, 0, table.sizes[k - 1]).tolist())
    }
    begun = {gram[:-1] for gram in grams}  # n-grams continue these
    words = range(table.vocabulary_size)
    log_probs, log_backoffs = table.log_prob[:], table.log_backoff[:]
    for gram in [(a, b) for a in words for b in words] + [(a, b, c) for a in words for b in words for c in words]:
        if gram[:-1] not in grams:
            continue
        node, log_prob, extends = found(hashed, len(gram), grams[gram[:-1]], gram[-1])
        assert found(plain, len(gram), grams[gram[:-1]], gram[-1])[:2] == (node, log_prob)
        if gram not in grams:
            assert (node, extends) == (-1, False)
            continue
        assert (node, log_prob) == (grams[gram], log_probs[grams[gram]])
        if len(gram) <= order:
            assert extends == (len(gram) < 3 and (gram in begun or log_backoffs[node] != 0))
    assert hashed.ngrams.extends.tolist() == [int((a,) in begun or log_backoffs[a] != 0) for a in words]
    assert 0 < hashed.ngrams.extends.sum() < len(words)


@pytest.mark.parametrize("kind", ["closed", "not closed", "stupid_backoff", "bigrams", "quantized"])
def test_all_forms_give_the_same(kind: str) -> None:
    """To the bit, by the trie, with a hash table of 2-grams or of all n-grams: one word at a time and many at once."""
    smoother = StupidBackoff(3, alpha=0.4) if kind == "stupid_backoff" else None
    model = model_of(2 if kind == "bigrams" else 3, smoother)
    table: BackoffTable = {
        "not closed": replace(model.table, suffix_closed=False),
        "quantized": model.table.quantize(5),
    }.get(kind, model.table)
    lookups = [fixed_lookup(table, order) for order in range(1, table.order + 1)]
    marks = model.vocabulary.special_tokens
    # From the beginning of a sentence, and from nowhere, all pairs of words, each followed by all words; `<s>` too.
    words = np.arange(table.vocabulary_size)
    states = np.stack([first_state(table.order - 1, marks.bos, sentence_start=start) for start in (True, False)])
    for _ in range(3):
        states, asked = np.repeat(states, len(words), axis=0), np.tile(words, len(states))
        wanted = np.empty(len(asked)), np.empty_like(states), np.empty(len(asked), dtype=np.int64)
        one_by_one(lookups[0].compiled, marks.eos, states, asked, *wanted)
        for lookup in lookups:
            plain = tuple(map(np.empty_like, wanted))
            one_by_one(lookup.compiled, marks.eos, states, asked, *plain)
            for one, other, batch in zip(wanted, plain, advance(lookup, marks, states, asked), strict=True):
                np.testing.assert_array_equal(one, other)
                np.testing.assert_array_equal(one, batch)
        states = np.unique(wanted[1], axis=0)


def test_text_is_scored_by_the_hash_table_once_it_pays() -> None:
    for table in (kneser_ney(3, 300, 0)[0], kneser_ney(3, 300, 0)[0].quantize(6)):
        pays, lookup = table.sizes[1] // 4, Lookup(table)
        assert lookup.for_text(pays).ngrams.order == 1
        assert lookup.for_text(1).ngrams.order == 2
        assert lookup.for_text(sum(table.sizes) - pays - 1).ngrams.order == 2
        assert lookup.for_text(1).ngrams.order == (3 if table.quantized_bits is None else 2)
    assert Lookup(kneser_ney(1, 60, 0)[0]).for_text(10**9).ngrams.order == 1


def test_when_there_is_no_hash_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = model_of(3).table
    needed = (sum(table.sizes[1:]) * 2 + 1) * 16  # bytes, of which no more than a quarter of the memory is taken
    for available, built in ((4 * needed, True), (4 * needed - 1, False), (None, True)):
        monkeypatch.setattr(find_module, "memory_available", lambda available=available: available)
        assert (hash_ngrams(table, 3) is not None) == built
    # Nodes and words that do not fit into a key's 62 bits.
    width = len(table.log_backoff).bit_length()
    for word_width, built in ((62 - width, True), (63 - width, False)):
        wide = replace(table, trie=replace(table.trie, nodes=table.trie.nodes._replace(word_width=word_width)))
        monkeypatch.setattr(find_module, "_fill", lambda *_: None)
        assert (hash_ngrams(wide, 3) is not None) == built
    nodes = int(sum(table.sizes)).bit_length()
    for bits, built in ((nodes, True), (nodes - 1, False)):
        monkeypatch.setattr(find_module, "NODE_BITS", bits)
        assert (hash_ngrams(table, 3) is not None) == built

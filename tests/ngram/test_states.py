"""Models word by word: states lead to the same log-probabilities as contexts, and are no longer than they must be."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

import lmtool
from lmtool.data.corpus import Corpus
from lmtool.data.vocabulary import SpecialTokens
from lmtool.errors import UserError
from lmtool.language_model import LanguageModel
from lmtool.mixtures.cache import CachedMixture, UnigramCache
from lmtool.mixtures.linear import Mixture
from lmtool.ngram.files.arpa_model import arpa_model
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.query import find
from lmtool.ngram.query.find import hash_ngrams
from lmtool.ngram.query.scoring import advance
from lmtool.ngram.query.single_state import SingleStates
from lmtool.states import State, States
from lmtool.system import parallel
from lmtool.system.arrays import IntArray
from tests.ngram.plain import fixed_lookup
from tests.test_contract import MODELS, ngram

KINDS = ("ngram, order 1", "ngram", "witten_bell, backed off", "nplm", "nplm, across", "mixture", "mixture, across")
KINDS += ("decaying", "mixture, decaying", "mixture, classes", "log_linear", "mixture of mixtures", "stupid_backoff")


def tokens_of(corpus: Corpus) -> SpecialTokens:
    return corpus.vocabulary.special_tokens


def pruned(corpus: Corpus) -> LanguageModel:
    """Return a model that is not suffix-closed: entropy pruning removes some suffixes of the n-grams that it keeps."""
    from lmtool.ngram.pruning.entropy import prune_by_entropy

    model = ngram(corpus, 4)
    return NgramModel(prune_by_entropy(model.table, 1e-3, corpus.vocabulary), corpus.vocabulary)


def scores_by_state(model: LanguageModel, tokens: SpecialTokens, ids: IntArray, offsets: IntArray) -> IntArray:
    """Return log p `[N]` of the tokens of a text: all sentences in parallel, one word of each at a time."""
    states = np.stack([model.begin(tokens)] * (len(offsets) - 1))
    log_prob = np.empty(len(ids))
    for at in range(int(np.diff(offsets).max())):
        (live,) = np.nonzero(offsets[:-1] + at < offsets[1:])
        place = offsets[live] + at
        log_prob[place], states[live] = model.advance(states[live], ids[place].astype(np.int64), tokens)
    return log_prob


@pytest.mark.parametrize("kind", [*KINDS, "pruned"])
def test_the_same_as_by_text(kind: str, toy: Corpus) -> None:
    model = {**MODELS, "pruned": pruned}[kind](toy)
    valid = toy.split("valid")
    apart = dataclasses.replace(valid, independent_sentences=True)  # independent sentences, as in decoders
    wanted = model.score_text(apart)
    np.testing.assert_allclose(scores_by_state(model, tokens_of(toy), valid.ids, valid.offsets), wanted, rtol=1e-6)


def test_no_states_advance(toy: Corpus) -> None:
    for kind in ("ngram", "nplm", "mixture, across"):
        model = MODELS[kind](toy)
        none = model.begin(tokens_of(toy))[None][:0]
        log_prob, after = model.advance(none, np.empty(0, dtype=np.int64), tokens_of(toy))
        assert log_prob.shape == (0,) and after.shape == none.shape


def test_the_hash_table_is_built_once_it_pays(toy: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["ngram"](toy)
    assert isinstance(model, NgramModel)
    pays, state = sum(model.table.sizes) // 4, model.begin(tokens_of(toy))[None]
    model.advance(np.repeat(state, pays, axis=0), np.zeros(pays, dtype=np.int64), tokens_of(toy))
    assert model.lookup.compiled.ngrams.order == 2
    single = SingleStates(model.lookup, tokens_of(toy), bytearray, {"word": 0}, owner=3)
    one = bytearray(single.first(sentence_start=False))
    single.log10_prob(one, "word", one)
    assert model.lookup.compiled.ngrams.order == 2
    single.first(sentence_start=True)  # one word more
    assert model.lookup.compiled.ngrams.order == model.table.order
    small = NgramModel(model.table.quantize(8), toy.vocabulary)
    for _ in range(3):
        small.lookup.for_states(pays)
    assert small.lookup.compiled.ngrams.order == 2
    monkeypatch.setattr(find, "memory_available", lambda: 24 * sum(model.table.sizes))
    assert hash_ngrams(model.table, model.table.order) is None


def test_states_go_on_into_the_next_sentence(toy: Corpus) -> None:
    """After `</s>` a new sentence begins, with the ones before it for models that read across sentences."""
    valid = toy.split("valid")
    assert len(valid.offsets) > 3
    for kind in ("ngram", "nplm", "nplm, across", "mixture, across", "decaying"):
        model = MODELS[kind](toy)
        state = model.begin(tokens_of(toy))[None]
        tokens = min(30, valid.tokens)
        log_prob = np.empty(tokens)
        for at in range(tokens):
            word = valid.ids[at : at + 1].astype(np.int64)
            log_prob[at : at + 1], state = model.advance(state, word, tokens_of(toy))
        np.testing.assert_allclose(log_prob, model.score_tokens(valid, 0, tokens), rtol=1e-6)


def test_threads_and_the_table_of_bigrams_change_nothing(toy: Corpus) -> None:
    model = ngram(toy, 4)
    model.lookup._tried.add(model.table.order)  # there was no memory for a hash table of all n-grams
    rng = np.random.default_rng(2)
    states = np.repeat(model.begin(tokens_of(toy))[None], 10_000, axis=0)
    few = states[:100], states[:100]
    before = parallel.threads()
    try:
        parallel.use(2)
        for _ in range(4):
            words = rng.integers(0, toy.vocabulary.bos, len(states))
            log_prob, states = model.advance(states, words, tokens_of(toy))
            pieces = [model.advance(few[0][i : i + 1], words[i : i + 1], tokens_of(toy)) for i in range(100)]
            np.testing.assert_array_equal(log_prob[:100], np.concatenate([piece[0] for piece in pieces]))
            few = np.concatenate([piece[1] for piece in pieces]), few[0]
            np.testing.assert_array_equal(states[:100], few[0])
    finally:
        parallel.use(before)
    assert model.lookup.compiled.ngrams.order == 2


ARPA = """\\data\\
ngram 1=6
ngram 2=4
ngram 3=2

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.2
-0.9\t</s>
-0.6\ta\t-0.3
-0.7\tb\t-0.4
-0.8\tc

\\2-grams:
-0.3\t<s> a\t-0.1
-0.4\ta b\t-0.5
-0.5\tb c
-0.2\tb </s>

\\3-grams:
-0.15\t<s> a b
-0.25\ta b </s>

\\end\\
"""


@pytest.fixture
def arpa(tmp_path: Path) -> Path:
    (tmp_path / "small.arpa").write_text(ARPA)
    return tmp_path / "small.arpa"


def test_states_are_as_short_as_the_table_allows(arpa: Path) -> None:
    """Check states by hand.

    No n-gram continues c, and it has no back-off weight, so the state of `b c` is empty; `a b` is followed by `</s>`,
    whose probability does not depend on a longer context.
    """
    model = arpa_model(str(arpa))
    special_tokens, ids = SpecialTokens(model.vocabulary.bos, None, model.vocabulary.unk), model.vocabulary.ids

    def after(*words: str, sentence_start: bool = False) -> list[int]:
        state = model.begin(special_tokens, sentence_start=sentence_start)[None]
        for word in words:
            state = model.advance(state, np.array([ids[word]]), special_tokens)[1]
        return state[0].tolist()

    assert after("c") == after("b", "c") == after("a", "b", "c") == after("<unk>") == [-1, -1]
    assert after("a")[0] == ids["a"] and after("a")[1] == -1
    assert after("a", "b") == after("c", "a", "b") == after("a", "b", sentence_start=True)
    assert after("b") != after("a", "b") and after("b") == after("b", "b") == after("c", "b")
    assert after("a") != after("a", sentence_start=True)  # <s> a has a back-off weight


def test_text_models_word_by_word(arpa: Path) -> None:
    model = lmtool.load(arpa)
    state = model.begin()
    log_probs = []
    for word, wanted in (("a", -0.3), ("b", -0.15), ("</s>", -0.25)):
        log_p, state = model.advance(state, word)
        assert log_p == pytest.approx(wanted * math.log(10), abs=1e-6)
        log_probs.append(log_p)
    np.testing.assert_allclose(model.score("a b"), log_probs, rtol=1e-6)
    assert state == model.begin() and hash(state) == hash(model.begin()) and len(state) == 16
    assert model.advance(model.begin(), "no such word")[0] == pytest.approx((-0.2 - 1.0) * math.log(10), abs=1e-6)
    assert model.begin(sentence_start=False) != model.begin()

    states = States.of([model.begin()] * 3)
    log_p, states = model.advance(states, ["a", "b", "a"])
    np.testing.assert_allclose(log_p / math.log(10), [-0.3, -0.9, -0.3], atol=1e-6)
    assert states.groups().tolist() == [states.groups()[0], states.groups()[1], states.groups()[0]]
    assert len(set(states)) == 2 and isinstance(states[0], State) and len(states[[0, 2, 2, 1]]) == 4
    log_p, _ = model.advance([states[1], states[0]], model.vocabulary.encode(["</s>", "</s>"]))
    np.testing.assert_allclose(log_p / math.log(10), [-0.2, -0.1 - 0.3 - 0.9], atol=1e-6)


def test_what_is_no_state(arpa: Path, toy: Corpus) -> None:
    model, other = lmtool.load(arpa), lmtool.load(arpa)
    with pytest.raises(ValueError, match="states of another model"):
        other.advance(model.begin(), "a")
    with pytest.raises(ValueError, match=r"got 2 of 2 models"):
        States.of([model.begin(), other.begin()])
    with pytest.raises(ValueError, match=r"advance: words must be integers .*\[1\]; got int64 \[2\]"):
        model.advance([model.begin()], ["a", "b"])
    assert States.of([model.begin()]).rows.flags.writeable  # for other arrays, the compiled function is compiled again
    ngrams, tokens = ngram(toy, 4), tokens_of(toy)
    table, some = ngrams.table, np.array([1])
    second, third = table.trie.first(2), table.trie.first(3)
    for lookup in (fixed_lookup(table, 1), fixed_lookup(table, 4)):
        advance(lookup, tokens, np.array([[0, second, third]]), some)
        # A node of another order would lead to nodes that have no back-off weight.
        for bad in ([-3, 0, 0], [10**9, 0, 0], [third, -1, -1], [0, third, -1], [0, second, second], [0, 0, -1]):
            for rows in ([bad], [[0, second, third]] * 20 + [bad]):
                with pytest.raises(ValueError, match="not states of this model"):
                    advance(lookup, tokens, np.array(rows), np.repeat(some, len(rows)))
        for word, reason in ((-1, "a minimum of -1"), (tokens.bos + 1, f"a maximum of {tokens.bos + 1}")):
            with pytest.raises(ValueError, match=rf"advance: words must be integers from 0 to .*; got {reason}"):
                advance(lookup, tokens, np.array([[0, second, third]]), np.array([word]))
        with pytest.raises(ValueError, match=r"states must be \[1, 3\]"):
            advance(lookup, tokens, np.array([[0, 0]]), some)
        for words in ([1], np.array([1], dtype=np.int32), np.array([1, 1])[::2]):  # which are copied
            wanted = advance(lookup, tokens, np.array([[0, second, third]]), some)
            for one, other in zip(wanted, advance(lookup, tokens, np.array([[0, second, third]]), words), strict=True):
                np.testing.assert_array_equal(one, other)
    cached = CachedMixture([ngram(toy, 2)], np.array([0.5, 0.5]), UnigramCache(3))
    with pytest.raises(UserError, match="a model with a cache has no states"):
        cached.begin(tokens_of(toy))


def test_hypotheses_of_one_state_share_its_hidden_units(toy: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["nplm"](toy)
    rows = []
    whole = model.log_prob_candidates

    def counted(contexts: IntArray, candidates: IntArray) -> object:
        rows.append(len(contexts))
        return whole(contexts, candidates)

    words = np.arange(40) % toy.vocabulary.bos
    states = np.repeat(model.begin(tokens_of(toy))[None], 40, axis=0)
    states[30:, -1] = 0
    wanted = model.log_prob(states, words)
    monkeypatch.setattr(model, "log_prob_candidates", counted)
    log_prob, after = model.advance(states, words, tokens_of(toy))
    assert rows == [2]
    np.testing.assert_allclose(log_prob, wanted, rtol=1e-6)
    in_sentence = words != toy.vocabulary.eos
    np.testing.assert_array_equal(after[in_sentence, -1], words[in_sentence])


def test_a_mixture_without_a_member(toy: Corpus) -> None:
    """Ignore a member of weight 0."""
    members = [ngram(toy, 3), ngram(toy, 1)]
    mixture, tokens = Mixture(members, np.array([1.0, 0.0])), tokens_of(toy)
    assert mixture.state_size == 2
    log_prob, _ = mixture.advance(mixture.begin(tokens)[None], np.array([3]), tokens)
    assert log_prob == members[0].advance(members[0].begin(tokens)[None], np.array([3]), tokens)[0]

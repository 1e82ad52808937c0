"""Mixtures beyond one weight a model: classes of contexts, log-linear ones, caches; and EM against a grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from lmtool.data.corpus import Corpus
from lmtool.data.split import Split
from lmtool.data.vocabulary import SpecialTokens
from lmtool.errors import UserError
from lmtool.evaluation.metrics import split_accuracy
from lmtool.mixtures.cache import BLOCK, CachedMixture, NeuralCache, UnigramCache, neural_cache
from lmtool.mixtures.linear import (
    ClassMixture,
    Mixture,
    classes_of_text,
    contexts_of,
    fit_class_weights,
    fit_weights,
    mix,
)
from lmtool.mixtures.log_linear import LogLinear, combine, fit_log_linear, likelihood
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
from tests.commands.test_ensemble import Fixed
from tests.conftest import neural


def ngram(corpus: Corpus, order: int) -> NgramModel:
    counts = count_ngrams(corpus.split("train"), corpus.vocabulary, order)
    return NgramModel(estimate(counts, ModifiedKneserNey(order)), corpus.vocabulary)


def network(corpus: Corpus) -> object:
    torch.manual_seed(7)
    return neural(corpus)


def text(ids: list[int] | np.ndarray, bos: int = 9) -> Split:
    ids = np.asarray(ids, dtype=np.uint8)
    return Split(ids, np.array([0, len(ids)]), np.empty(0, dtype=np.int64), 0, bos)


def test_em_ends_where_no_point_of_a_grid_is_better() -> None:
    log_prob = np.log(np.random.default_rng(1).dirichlet([0.5, 0.5, 0.5], 200).T)
    fit = fit_weights(log_prob)
    best = np.mean(mix(log_prob, fit.weights))
    grid = [
        (np.mean(np.log(np.array([a, b, 100 - a - b]) / 100 @ np.exp(log_prob))), a, b)
        for a in range(1, 99)
        for b in range(1, 100 - a)
    ]
    value, a, b = max(grid)
    assert value <= best + fit.gap and best - value < 1e-3
    np.testing.assert_allclose(fit.weights[:2], [a / 100, b / 100], atol=0.01)


def test_weights_of_tokens_that_no_float_holds() -> None:
    # Three of four tokens at 0.9 and 0.1: 13/16, as in test_fit; here all of them e^1000 times as unlikely.
    log_prob = np.log([[0.9, 0.9, 0.9, 0.1], [0.1, 0.1, 0.1, 0.9]]) - 1000
    np.testing.assert_allclose(fit_weights(log_prob).weights, [13 / 16, 3 / 16], atol=1e-4)


def test_a_member_that_reads_a_sentence_has_its_beginning_in_place_of_what_is_before() -> None:
    eos, bos = 7, 9
    contexts = np.array([[5, 7, 1, 2], [7, 3, 7, 1], [1, 2, 3, 4], [1, 2, 3, 7]])
    one, across = Fixed([[1.0]], 4), Fixed([[1.0]], 3)
    across.across_sentences = True
    special_tokens = SpecialTokens(bos, eos, 0)
    assert contexts_of(one, contexts, special_tokens).tolist() == [
        [9, 9, 1, 2],
        [9] * 3 + [1],
        [1, 2, 3, 4],
        [9] * 4,
    ]
    assert contexts_of(across, contexts, special_tokens).tolist() == contexts[:, 1:].tolist()
    assert contexts_of(one, contexts).tolist() == contexts.tolist()
    assert Mixture([one, across], np.array([0.5, 0.5])).across_sentences
    assert not Mixture([one, one], np.array([0.5, 0.5])).across_sentences


def test_a_mixture_word_by_word() -> None:
    first, second = Fixed([[0.9, 0.1], [0.5, 0.5]], 1), Fixed([[0.2, 0.8], [0.6, 0.4]], 1)
    mixture, special_tokens = Mixture([first, second], np.array([0.25, 0.75])), SpecialTokens(bos=1, eos=None, unk=0)
    states = mixture.begin(special_tokens)[None]
    found = []
    for word in (0, 1, 1):
        log_prob, states = mixture.advance(states, np.array([word]), special_tokens)
        found.append(math.exp(log_prob[0]))
    assert found == pytest.approx([0.25 * 0.5 + 0.75 * 0.6, 0.25 * 0.1 + 0.75 * 0.8, 0.25 * 0.5 + 0.75 * 0.4])


def test_each_class_has_weights_of_its_own() -> None:
    with np.errstate(divide="ignore"):  # class 0: three tokens of model 1 and one of model 2; class 2: two of model 2
        log_prob = np.log([[0.3, 0.2, 0.1, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.9, 0.5, 0.5]])
    fit = fit_class_weights(log_prob, np.array([0, 0, 0, 0, 2, 2]), 3)
    np.testing.assert_allclose(fit.weights, [[0.75, 0.25], [0.5, 0.5], [0, 1]], atol=1e-8)  # 1: those of the whole
    assert fit.gap <= 1e-9


def test_the_steps_of_the_class_that_takes_most_are_told() -> None:
    # Each class likes one model at 3 to 1: together they are even, where EM begins.
    log_prob = np.log([[0.9, 0.9, 0.9, 0.1, 0.9, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.9, 0.1, 0.9, 0.9, 0.9]])
    assert fit_weights(log_prob).iterations == 1
    fit = fit_class_weights(log_prob, np.repeat([0, 1], 4), 2)
    np.testing.assert_allclose(fit.weights, [[13 / 16, 3 / 16], [3 / 16, 13 / 16]], atol=1e-4)  # as in test_fit
    half = fit_weights(log_prob[:, :4])
    assert fit.iterations == half.iterations > 1
    assert half.gap > 0 and fit.gap == pytest.approx(half.gap, rel=1e-3, abs=0)


class Last(Fixed):
    """A model whose class of a context is its last word."""

    context_classes = 2

    def context_lengths(self, contexts: np.ndarray) -> np.ndarray:
        assert contexts.shape[1] == self.context_size
        return contexts[:, -1]


def test_a_class_mixture_by_hand() -> None:
    first, second = Last([[0.9, 0.1], [0.5, 0.5]], 1), Fixed([[0.2, 0.8], [0.6, 0.4]], 3)
    mixture = ClassMixture([first, second], np.array([[0.5, 0.5], [0.0, 1.0]]), first)
    contexts = np.array([[1, 1, 0], [0, 0, 1]])
    want = np.log([[0.55, 0.45], [0.6, 0.4]])
    np.testing.assert_allclose(mixture.log_dist(contexts), want)
    np.testing.assert_allclose(mixture.log_prob(contexts, np.array([1, 0])), [want[0, 1], want[1, 0]])
    np.testing.assert_allclose(mixture.log_prob_candidates(contexts, np.array([[1, 0], [0, 0]]))[0], want[0, ::-1])


@pytest.mark.parametrize("order", [1, 2, 4])
def test_classes_are_the_longest_contexts_in_train(order: int, toy: Corpus) -> None:
    model, train, valid = ngram(toy, order), toy.split("train"), toy.split("valid")
    bos = toy.vocabulary.bos
    seen = set()
    for a, b in itertools.pairwise(train.offsets.tolist()):
        sentence = [bos, *train.ids[a:b].tolist()]
        seen |= {tuple(sentence[i:j]) for i in range(len(sentence)) for j in range(i + 1, len(sentence) + 1)}
    want = []
    for a, b in itertools.pairwise(valid.offsets.tolist()):
        sentence = [bos, *valid.ids[a:b].tolist()]
        for t in range(1, len(sentence)):
            lengths = range(min(t, order - 1) + 1)
            want.append(max(m for m in lengths if m == 0 or tuple(sentence[t - m : t]) in seen))
    np.testing.assert_array_equal(classes_of_text(model, valid), want)
    assert order < 4 or len(set(want)) == 3  # 1, 2 and 3 words of context


def test_log_linear_by_hand() -> None:
    # sqrt(0.9 * 0.5) to sqrt(0.1 * 0.5) is 3 to 1.
    mixture = LogLinear([Fixed([[0.9, 0.1]], 1), Fixed([[0.5, 0.5]], 1)], np.array([0.5, 0.5]))
    np.testing.assert_allclose(np.exp(mixture.log_dist(np.array([[0]]))), [[0.75, 0.25]])
    np.testing.assert_allclose(np.exp(mixture.log_prob(np.array([[0]]), np.array([1]))), [0.25])
    np.testing.assert_allclose(np.exp(mixture.log_prob_candidates(np.array([[0]]), np.array([[1, 0]]))), [[0.25, 0.75]])
    assert mixture.log_dist(np.empty((0, 1), dtype=np.int64)).shape == (0, 2)


def test_a_member_without_weight_has_no_say_in_zeros() -> None:
    with np.errstate(divide="ignore"):
        log_dist = np.log([[[0.5, 0.3, 0.2]], [[0.5, 0.5, 0.0]]])
    np.testing.assert_allclose(np.exp(combine(log_dist, np.array([1.0, 0.0]))), [[0.5, 0.3, 0.2]])
    found = np.exp(combine(log_dist, np.array([1.0, 1e-9])))
    np.testing.assert_allclose(found, [[0.625, 0.375, 0]], atol=1e-8)


def chunks_of(log_dist: np.ndarray, targets: np.ndarray) -> object:
    def chunks() -> object:
        for at in range(0, len(targets), 7):
            yield log_dist[:, at : at + 7], targets[at : at + 7]

    return chunks


def random_members(members: int, tokens: int, words: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.full(words, 0.7), (members, tokens))
    mixed = p.prod(axis=0) ** 0.6
    targets = np.array([rng.choice(words, p=row / row.sum()) for row in mixed])
    return np.log(p), targets


def test_gradient_and_curvature_against_finite_differences() -> None:
    log_dist, targets = random_members(3, 40, 6)
    chunks, weights, step = chunks_of(log_dist, targets), np.array([0.3, 0.9, 0.4]), 1e-5
    value, gradient, hessian = likelihood(weights, chunks)
    assert value == pytest.approx(np.mean(combine(log_dist, weights)[np.arange(40), targets]))
    for k in range(3):
        up, down = (likelihood(weights + sign * step * np.eye(3)[k], chunks) for sign in (1, -1))
        assert gradient[k] == pytest.approx((up[0] - down[0]) / (2 * step), abs=1e-9)
        np.testing.assert_allclose(hessian[k], (up[1] - down[1]) / (2 * step), atol=1e-8)


def test_log_linear_weights_are_where_no_other_is_better() -> None:
    log_dist, targets = random_members(2, 300, 5)
    chunks = chunks_of(log_dist, targets)
    fit = fit_log_linear(chunks, 2)
    assert fit.gap <= 1e-9 and fit.weights == pytest.approx([0.6, 0.6], abs=0.2)
    best, gradient, _ = likelihood(fit.weights, chunks)
    np.testing.assert_allclose(gradient, 0, atol=1e-5)
    grid = np.arange(0, 1.5, 0.1)
    assert all(likelihood(np.array([a, b]), chunks)[0] <= best for a in grid for b in grid if a + b > 0)


def test_log_linear_weights_are_never_negative() -> None:
    log_dist, _ = random_members(2, 60, 5)
    targets = log_dist[1].argmin(axis=1)  # always what the second thinks least of
    fit = fit_log_linear(chunks_of(log_dist, targets), 2)
    assert fit.weights[1] == 0 <= fit.weights[0]
    zero = log_dist.copy()
    zero[0, 3, targets[3]] = -np.inf
    with pytest.raises(UserError, match="token 3 of those to fit on"):
        fit_log_linear(chunks_of(zero, targets), 2)


class Words(Fixed):
    """Word by word, p(word | the word before) of a table; a state is the word before, `state_size` times."""

    state_size = 0

    def __init__(self, table: list[list[float]], state_size: int) -> None:
        super().__init__(table, 1)
        self.state_size = state_size

    def advance(self, states: np.ndarray, words: np.ndarray, _: SpecialTokens) -> tuple[np.ndarray, np.ndarray]:
        assert states.shape == (len(words), self.state_size) and (states == states[:, :1]).all()
        return self.table[states[:, 0], words], np.repeat(words[:, None], self.state_size, axis=1)


def test_states_of_a_mixture_are_those_of_its_members_side_by_side() -> None:
    first, second = Words([[0.9, 0.1], [0.5, 0.5]], 2), Words([[0.2, 0.8], [0.6, 0.4]], 1)
    mixture, special_tokens = Mixture([first, second, first], np.array([0.5, 0.25, 0.25])), SpecialTokens(1, None, 0)
    assert mixture.state_size == 5
    begins = [mixture.begin(special_tokens, sentence_start=start).tolist() for start in (True, False)]
    assert begins == [[1] * 5, [0] * 5]
    states = np.array([[1] * 5, [0] * 5, [0, 0, 1, 0, 0]])
    log_probs, states = mixture.advance(states, np.array([0, 1, 1]), special_tokens)
    np.testing.assert_allclose(np.exp(log_probs), [0.75 * 0.5 + 0.25 * 0.6, 0.75 * 0.1 + 0.2, 0.75 * 0.1 + 0.1])
    assert states.tolist() == [[0] * 5, [1] * 5, [1] * 5]


@pytest.mark.parametrize("kind", ["linear", "classes"])
def test_probabilities_of_a_mixture_by_hand(kind: str) -> None:
    first, second = Last([[0.9, 0.1], [0.5, 0.5]], 1), Fixed([[0.2, 0.8], [0.6, 0.4]], 3)
    weights = [[0.25, 0.75], [0.25, 0.75] if kind == "linear" else [1, 0]]  # after word 0, and after word 1
    members, table = [first, second], np.array(weights)
    mixture = Mixture(members, table[0]) if kind == "linear" else ClassMixture(members, table, first)
    contexts = np.array([[0, 0, 1], [1, 1, 0]])
    found = mixture.probabilities(contexts)
    np.testing.assert_allclose(found, np.exp(mixture.log_dist(contexts)))
    np.testing.assert_allclose(found[0], [0.575, 0.425] if kind == "linear" else [0.5, 0.5])
    np.testing.assert_allclose(found[1], [0.375, 0.625])


def test_text_by_a_mixture_of_classes_by_hand() -> None:
    # After <s>, which is 1, and 0, 1: by the second model alone, and half by each.
    first, second = Last([[0.9, 0.1], [0.5, 0.5]], 1), Fixed([[0.2, 0.8], [0.6, 0.4]], 1)
    mixture = ClassMixture([first, second], np.array([[0.5, 0.5], [0, 1]]), first)
    np.testing.assert_allclose(np.exp(mixture.score_text(text([0, 1, 1], bos=1))), [0.6, 0.45, 0.4])


def test_the_unigram_cache_by_hand() -> None:
    found = np.exp(UnigramCache(2).log_prob(text([0, 1, 0, 0, 0])))
    np.testing.assert_allclose(found, [0, 0, 1 / 2, 1 / 2, 1])  # nothing; a; a b; b a; a a
    rows = UnigramCache(2).dist(text([0, 1, 0, 0, 0]), 0, 5, 3)
    np.testing.assert_allclose(rows, [[0, 0, 0], [1, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0], [1, 0, 0]])


def test_the_neural_cache_against_its_definition() -> None:
    rng = np.random.default_rng(3)
    tokens, size, theta = BLOCK + 60, 40, 0.7
    hidden, ids = rng.normal(0, 1, (tokens, 5)).astype(np.float32), rng.integers(0, 4, tokens)
    want = np.zeros(tokens)
    for t in range(1, tokens):
        held = range(max(0, t - size), t)
        weights = [np.exp(theta * float(hidden[t].astype(float) @ hidden[i].astype(float))) for i in held]
        want[t] = sum(w for w, i in zip(weights, held, strict=True) if ids[i] == ids[t]) / sum(weights)
    one, flat = neural_cache(hidden, ids, size, [theta, 0.0])
    np.testing.assert_allclose(np.exp(one), want, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(np.exp(flat), np.exp(UnigramCache(size).log_prob(text(ids))), rtol=1e-6)


def test_a_neural_cache_of_large_hidden_units() -> None:
    # Products of 400, 200 and -400, whose exponentials are too large or too small for float32: the largest has it all.
    ids = np.array([0, 1, 0])
    with np.errstate(all="raise", under="ignore"):
        for last, want in ((20, [0, 0, 1]), (5, [0, 0, 1]), (-20, [0, 0, 0])):
            hidden = np.array([[20], [10], [last]], dtype=np.float32)
            np.testing.assert_allclose(np.exp(neural_cache(hidden, ids, 5, [1.0])[0]), want, atol=1e-30)
        # exp(1000), beside exp(0) of a word that is not in the cache.
        hidden = np.array([[1], [0], [1]], dtype=np.float32)
        np.testing.assert_allclose(np.exp(neural_cache(hidden, ids, 5, [1000.0])[0]), [0, 0, 1])
        # Before the last token, word 1 is all that is held.
        hidden = np.array([[20], [-20], [20]], dtype=np.float32)
        assert neural_cache(hidden, np.array([0, 1, 1]), 1, [1.0])[0].tolist() == [-math.inf, -math.inf, 0]


@pytest.mark.parametrize("kind", [UnigramCache, lambda size: NeuralCache(size, 1.0, Alike([[0.5, 0.5]], 1))])
def test_a_cache_has_room_for_a_token(kind: Callable[[int], object]) -> None:
    assert kind(1)
    with pytest.raises(ValueError, match="size"):
        kind(0)


class Alike(Fixed):
    """Hidden units of one dimension: 1 after word 1, and 0 after others."""

    hidden_dim = 1

    def hidden(self, contexts: np.ndarray) -> np.ndarray:
        return (contexts[:, -1:] == 1).astype(np.float32)


def test_rows_of_a_neural_cache_by_hand() -> None:
    # The words before the tokens are <s>, 0, 1, 1, 0, 1. Rows that begin past the cache's size: before token 5,
    # after 1, it holds tokens 3 and 4 (words 0 and 1), which came after 1 and 0: exp(theta) to 1. Before token 4: 2 and
    # 3 (words 1 and 0), after 1 and 1; after 0 every product is 0, and they are even.
    tokens = text([0, 1, 1, 0, 1, 0])
    cache = NeuralCache(2, math.log(3), Alike([[0.5, 0.5]], 1))
    want = [[0, 0], [1, 0], [0.5, 0.5], [0, 1], [0.5, 0.5], [0.75, 0.25]]
    for first, last in ((0, 6), (4, 6), (5, 6), (3, 4), (1, 3)):
        np.testing.assert_allclose(cache.dist(tokens, first, last, 2), want[first:last], rtol=1e-6)
    for first, last in ((4, 6), (3, 5)):
        held = UnigramCache(2).dist(tokens, first, last, 2)
        np.testing.assert_allclose(held, [[0, 1], [0.5, 0.5], [0.5, 0.5]][first - 3 : last - 3])


def test_rows_of_a_neural_cache_of_a_large_theta() -> None:
    # As above before token 5, but exp(1000) to 1, which no float64 holds.
    cache = NeuralCache(2, 1000.0, Alike([[0.5, 0.5]], 1))
    assert cache.dist(text([0, 1, 1, 0, 1, 0]), 5, 6, 2).tolist() == [[1, 0]]


def cached(kind: str, corpus: Corpus) -> CachedMixture:
    members = [ngram(corpus, 3), network(corpus)]
    cache = UnigramCache(10) if kind == "unigram" else NeuralCache(10, 3.0, members[1])
    return CachedMixture(members, np.array([0.5, 0.2, 0.3]), cache)


@pytest.mark.parametrize("kind", ["unigram", "neural"])
def test_a_cached_mixture_sums_to_one_and_scores_what_its_rows_say(kind: str, toy: Corpus) -> None:
    model, valid = cached(kind, toy), toy.split("valid")
    rows = model.log_dist_text(valid, 0, valid.tokens)
    np.testing.assert_allclose(np.exp(rows).sum(axis=1), 1, atol=1e-6)
    scores = model.score_text(valid)
    np.testing.assert_allclose(scores, rows[np.arange(valid.tokens), valid.ids], rtol=1e-5)
    np.testing.assert_allclose(model.log_dist_text(valid, 7, 20), rows[7:20], rtol=1e-5)  # pieces are of one text
    np.testing.assert_array_equal(model.score_tokens(valid, 7, 20), scores[7:20])
    assert split_accuracy(model, valid) == np.mean(rows[:, :-1].argmax(axis=1) == valid.ids)
    # The first token is the models' alone; after contexts without a text the cache is empty.
    first = valid.contexts(0, 1, model.context_size)
    weights = np.array([5, 2]) / 7
    own = [m.log_dist(first[:, first.shape[1] - m.context_size :])[0] for m in model.members]
    np.testing.assert_allclose(rows[0], mix(np.stack(own), weights), rtol=1e-6)
    np.testing.assert_allclose(model.log_dist(first)[0], rows[0], rtol=1e-6)
    assert model.dynamic and not np.allclose(
        scores[1:], model.log_prob(valid.contexts(1, valid.tokens, model.context_size), valid.ids[1:].astype(np.int64))
    )


def test_a_cache_alone_shares_its_weight_at_the_start() -> None:
    members = [Fixed([[0.9, 0.1], [0.5, 0.5]], 1), Fixed([[0.7, 0.3], [0.3, 0.7]], 1)]
    model = CachedMixture(members, np.array([0.0, 0.0, 1.0]), UnigramCache(5))
    assert model.across_sentences is False and model.dynamic and model.normalized is True
    found = model.score_text(text([0, 0, 0], bos=1))
    np.testing.assert_allclose(np.exp(found), [0.4, 1, 1])
    # Without a text the cache is empty.
    found = model.log_prob_candidates(np.array([[0], [1]]), np.array([[1, 0], [0, 0]]))
    np.testing.assert_allclose(np.exp(found), [[0.2, 0.8], [0.4, 0.4]])


def test_weights_sum_to_one() -> None:
    members, first = [Fixed([[0.9, 0.1]], 1), Fixed([[0.2, 0.8]], 1)], Last([[0.9, 0.1]], 1)
    for weights in (np.array([0.5, 0.6]), np.array([0.5, 0.4999])):
        for made in (
            lambda w: Mixture(members, w),
            lambda w: ClassMixture([first, members[1]], np.array([[0.5, 0.5], w]), first),
            lambda w: CachedMixture(members[:1], w, UnigramCache(5)),
        ):
            assert made(weights / weights.sum())
            with pytest.raises(ValueError, match="weights must sum to one"):
                made(weights)
        assert LogLinear(members, weights)
    with pytest.raises(ValueError, match=r"ClassMixture: weights must be \[2, 2\] numbers"):
        ClassMixture([first, members[1]], weights, first)
    with pytest.raises(ValueError, match=r"CachedMixture: weights must be \[3\] numbers"):
        CachedMixture(members, weights, UnigramCache(5))
    with pytest.raises(ValueError, match="Mixture: members must be one language model or more"):
        Mixture([], np.ones(0))
    for wrong, said in (
        ([1.5, -0.5], "finite and 0 or more"),
        ([np.nan, 1.0], "finite and 0 or more"),
        ([np.inf, 1.0], "finite and 0 or more"),
        ([1.0], r"\[2\] numbers; got float64 \[1\]"),
        (["0", "1"], r"\[2\] numbers; got <U1 \[2\]"),
    ):
        with pytest.raises(ValueError, match=f"^LogLinear: weights must be {said}"):
            LogLinear(members, np.array(wrong))


def test_a_mixture_of_a_cached_one_reads_the_text_too(toy: Corpus) -> None:
    inner, other, valid = cached("unigram", toy), ngram(toy, 2), toy.split("valid")
    outer = Mixture([inner, other], np.array([0.25, 0.75]))
    want = mix(np.stack([inner.score_text(valid), other.score_text(valid)]), outer.weights)
    np.testing.assert_allclose(outer.score_text(valid), want, rtol=1e-9)
    dists = [inner.log_dist_text(valid, 0, valid.tokens), other.log_dist_text(valid, 0, valid.tokens)]
    most_likely = mix(np.stack(dists), outer.weights)[:, :-1].argmax(axis=1)
    assert split_accuracy(outer, valid) == np.mean(most_likely == valid.ids)


def test_scores_that_are_none_stay_so_in_mixtures(toy: Corpus) -> None:
    scores = Fixed([[0.5, 0.7]], 1)
    scores.normalized = False
    members, weights = [ngram(toy, 2), scores], np.array([0.5, 0.5])
    assert not Mixture(members, weights).normalized
    assert not ClassMixture(members, np.array([[0.5, 0.5]] * 2), members[0]).normalized
    assert not CachedMixture(members, np.array([0.4, 0.4, 0.2]), UnigramCache(5)).normalized
    assert LogLinear(members, weights).normalized  # over the whole vocabulary
    assert Mixture([ngram(toy, 2), network(toy)], weights).normalized

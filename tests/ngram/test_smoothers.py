"""Every smoother: by hand, and against its formula over dictionaries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from lmtool.data.corpus import Corpus
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.evaluation.metrics import perplexity
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.estimation.formulas import discount_full_contexts
from lmtool.ngram.estimation.tuning import fit_and_tune
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.smoothers.absolute_discounting import (
    FALLBACK_DISCOUNT,
    FALLBACK_DISCOUNTS,
    Absolute,
    KneserNey,
    ModifiedKneserNey,
    estimate_discount,
    estimate_discounts,
)
from lmtool.ngram.smoothers.base import Smoother
from lmtool.ngram.smoothers.interpolation import JelinekMercer, WittenBell
from lmtool.ngram.smoothers.pitman_yor import PitmanYor, Tables
from lmtool.ngram.smoothers.relative_frequencies import (
    GoodTuring,
    Laplace,
    MaximumLikelihood,
    StupidBackoff,
    discount_ratios,
)
from lmtool.ngram.tables.storage import Storage
from tests.conftest import result
from tests.ngram.plain import (
    Plain,
    Probability,
    Text,
    backed_off,
    contexts_for,
    followers,
    interpolated,
    random_sentences,
    text_of,
)
from tests.options import SMOOTHERS
from tests.options import smoother as made

FLOAT32 = 3e-7  # log-probabilities are kept in float32


def model_of(sentences: list[str], n: int, smoother: Smoother) -> NgramModel:
    text, vocabulary = text_of(sentences)
    return NgramModel(estimate(count_ngrams(text, vocabulary, n), smoother), vocabulary)


def after(model: NgramModel, *context: str) -> dict[str, float]:
    ids = model.vocabulary.encode(context)[None]
    return dict(zip(model.vocabulary.words, np.exp(model.log_dist(ids)[0]).tolist(), strict=True))


# Three sentences: a b, a b, a c. Bigrams: <s> a 3, a b 2, a c 1, b </s> 2, c </s> 1; words: a 3, b 2, c 1, </s> 3.
# The words that can be predicted are a, b, c, </s> and <unk>: five.
SENTENCES = ["a b", "a b", "a c"]


def test_modified_kneser_ney_by_hand() -> None:
    # Words before: a 1, b 1, c 1, </s> 2; 5 in all. All discounts 1/2. 4 types lose 1/2 each, 2/5 of the mass, shared
    # by 5, the unknown type <unk> among them: 0.08 each. p(a) = 0.5/5 + 0.08 = 0.18, p(</s>) = 1.5/5 + 0.08 = 0.38.
    model = model_of(SENTENCES, 2, ModifiedKneserNey(2, discounts=[[0.5] * 3] * 2))
    unigrams = after(model, "<unk>")  # nothing follows <unk>: the unigrams themselves
    want = {"a": 0.18, "b": 0.18, "c": 0.18, "</s>": 0.38, "<unk>": 0.08, "<s>": 0}
    assert unigrams == pytest.approx(want, rel=FLOAT32)
    # After a (3 times, 2 types): b 1.5/3 + 0.18/3 = 0.56, c 0.5/3 + 0.06 = 0.68/3, </s> 0.38/3.
    found = after(model, "a")
    assert [found[w] for w in ("b", "c", "</s>")] == pytest.approx([0.56, 0.68 / 3, 0.38 / 3], rel=FLOAT32)
    assert after(model, "<s>")["a"] == pytest.approx(2.59 / 3, rel=FLOAT32)  # 2.5/3 + (0.5/3) 0.18
    a, b, eos = 0, 1, 3
    assert list(model.matched_lengths(np.array([[a], [a]]), np.array([b, eos]))) == [2, 1]


@pytest.mark.parametrize("smoother", [ModifiedKneserNey(1, discounts=[[0.5] * 3]), KneserNey(1, discounts=[0.5])])
def test_unk_as_a_word_of_the_text(smoother: Smoother) -> None:
    # a and </s> once, <unk> twice, 4 in all; 3 types lose 1/2 each, 3/8 of the mass, shared by these and the types
    # outside the vocabulary: 3/32 each. p(a) = 0.5/4 + 3/32 = 7/32, p(<unk>) = 1.5/4 + 3/32 = 15/32.
    vocabulary = Vocabulary(("a", "</s>", "<unk>", "<s>"), np.array([1, 1, 2, 0]), 1, 2)
    model = NgramModel(
        estimate(count_ngrams(Text(np.array([2, 0, 2, 1]), np.array([0, 4])), vocabulary, 1), smoother), vocabulary
    )
    want = {"a": 7 / 32, "</s>": 7 / 32, "<unk>": 15 / 32, "<s>": 3 / 32}
    assert after(model) == pytest.approx(want, rel=FLOAT32)


def test_discounts_of_each_order_by_hand() -> None:
    # Continuation counts of a, b, c, </s> are 1, 1, 1, 2, and 0 of <unk>: p(w) = (count - 0.2) / 5 + (4 * 0.2 / 5) / 5.
    # After a, b twice and c once: p(b|a) = 1.5 / 3 + 1 / 3 p(b).
    text, vocabulary = text_of(["a b", "a b", "a c"])
    smoother = ModifiedKneserNey(2, discounts=[[0.2] * 3, [0.5] * 3])
    model = NgramModel(estimate(count_ngrams(text, vocabulary, 2), smoother), vocabulary)
    a, unk = 0, 4
    found = np.exp(model.log_dist(np.array([[unk], [a]])))
    np.testing.assert_allclose(found[0, :5], [0.192, 0.192, 0.192, 0.392, 0.032], rtol=1e-6)
    np.testing.assert_allclose(found[1, [1, 2, unk]], [0.564, 0.5 / 3 + 0.064, 0.032 / 3], rtol=1e-6)


def test_one_triple_of_discounts_is_for_all_orders(lmtool: Callable[..., str]) -> None:
    for name, discounts in {"one": "[.7,1,1.5]", "each": "[[.7,1,1.5],[.7,1,1.5]]", "no": "null"}.items():
        words = ("model=ngram", "model.order=2", f"smoother.discounts={discounts}", f"hydra.run.dir={name}")
        lmtool("train", "data=toy", *words)
    one, each, no = (result(n)["valid_perplexity"] for n in ("one", "each", "no"))
    assert one == each != no


def test_kneser_ney_by_hand() -> None:
    # One discount of 1/2: as above, so far as counts of 1, 2 and 3 lose the same.
    model = model_of(SENTENCES, 2, KneserNey(2, discounts=[0.5, 0.5]))
    assert after(model, "a")["b"] == pytest.approx(0.56, rel=FLOAT32)


def test_absolute_by_hand() -> None:
    # 9 tokens, 4 types: unigrams lose 2 of 9, shared by 5 words: 2/45 each. p(b) = 1.5/9 + 2/45 = 19/90.
    # After a: b 1.5/3 + (1/3)(19/90) = 77/135.
    model = model_of(SENTENCES, 2, Absolute(2, discounts=[0.5, 0.5]))
    assert after(model, "<unk>")["b"] == pytest.approx(19 / 90, rel=FLOAT32)
    assert after(model, "a")["b"] == pytest.approx(77 / 135, rel=FLOAT32)


def test_witten_bell_by_hand() -> None:
    # Unigrams: (c + 4/5) / (9 + 4): b 2.8/13, a 3.8/13. After a (3 times, 2 types): b (2 + 2 (2.8/13)) / 5.
    model = model_of(SENTENCES, 2, WittenBell(2))
    assert after(model, "<unk>")["a"] == pytest.approx(3.8 / 13, rel=FLOAT32)
    assert after(model, "a")["b"] == pytest.approx((2 + 5.6 / 13) / 5, rel=FLOAT32)
    # Backed off: b 2/5, c 1/5; the other 2/5 go to a, </s>, <unk> as the unigrams have them. These leave 4/13 to <unk>
    # alone, which was never seen: a 3/13, </s> 3/13, <unk> 4/13; a gets 2/5 (3/13) / (10/13) = 3/25.
    model = model_of(SENTENCES, 2, WittenBell(2, interpolate=False))
    assert after(model, "a") == pytest.approx(
        {"a": 3 / 25, "b": 2 / 5, "c": 1 / 5, "</s>": 3 / 25, "<unk>": 4 / 25, "<s>": 0}, rel=FLOAT32
    )
    # alpha = 2: unigrams (c + 2) / (9 + 10): b 4/19, <unk> 2/19. Backed off, a gets 2/5 (5/19) / (12/19) = 1/6.
    model = model_of(SENTENCES, 2, WittenBell(2, alpha=2.0, types=5))
    assert after(model, "a")["b"] == pytest.approx((2 + 8 / 19) / 5, rel=FLOAT32)
    model = model_of(SENTENCES, 2, WittenBell(2, interpolate=False, alpha=2.0, types=5))
    want = {"a": 1 / 6, "b": 2 / 5, "c": 1 / 5, "</s>": 1 / 6, "<unk>": 1 / 15, "<s>": 0}
    assert after(model, "<unk>")["<unk>"] == pytest.approx(2 / 19, rel=FLOAT32)
    assert after(model, "a") == pytest.approx(want, rel=FLOAT32)


def test_laplace_by_hand() -> None:
    # (c + 1/2) / (c(h.) + 5/2); after a: b 2.5/5.5, c 1.5/5.5, others 0.5/5.5. After <unk>, never seen: 1/5.
    model = model_of(SENTENCES, 2, Laplace(2, alpha=0.5, types=5))
    assert after(model, "a") == pytest.approx(
        {"a": 1 / 11, "b": 5 / 11, "c": 3 / 11, "</s>": 1 / 11, "<unk>": 1 / 11, "<s>": 0}, rel=FLOAT32
    )
    assert after(model, "<unk>")["b"] == pytest.approx(1 / 5, rel=FLOAT32)
    model = model_of(SENTENCES, 1, Laplace(1, alpha=1, types=5))
    assert after(model)["b"] == pytest.approx(3 / 14, rel=FLOAT32)
    # Order 3, at the start of a sentence: the context is <s> alone, seen 3 times, and a followed each time.
    model = model_of(SENTENCES, 3, Laplace(3, alpha=1, types=5))
    assert after(model, "<s>", "<s>")["a"] == pytest.approx(4 / 8, rel=FLOAT32)
    assert after(model, "b", "a")["b"] == pytest.approx(1 / 5, rel=FLOAT32)  # b a was never seen


def test_maximum_likelihood_by_hand() -> None:
    model = model_of(SENTENCES, 2, MaximumLikelihood(2))
    assert after(model, "a") == pytest.approx({"a": 0, "b": 2 / 3, "c": 1 / 3, "</s>": 0, "<unk>": 0, "<s>": 0})
    assert after(model, "<unk>")["a"] == pytest.approx(1 / 3, rel=FLOAT32)  # no estimate: the unigrams'


def test_jelinek_mercer_by_hand() -> None:
    # Unigrams 0.9 c/9 + 0.1/5: b 0.22. After a: b 0.6 (2/3) + 0.4 (0.22) = 0.488.
    model = model_of(SENTENCES, 2, JelinekMercer(2, count_buckets=3, lambdas=[0.9, 0.6]))
    assert after(model, "a")["b"] == pytest.approx(0.488, rel=FLOAT32)
    # Classes by how often the context was seen: c once, b twice, a three times.
    smoother = JelinekMercer(2, count_buckets=2)
    smoother.values = np.array([[0.0, 1.0], [0.25, 0.75]])
    model = model_of(SENTENCES, 2, smoother)  # unigrams are of the last class: c/9
    assert after(model, "c")["</s>"] == pytest.approx(0.25 + 0.75 / 3, rel=FLOAT32)
    assert after(model, "b")["</s>"] == pytest.approx(0.75 + 0.25 / 3, rel=FLOAT32)


def test_good_turing_by_hand() -> None:
    # n = 4, 2, 1: with `largest` 1, d_1 = (2 n2 / n1 - A) / (1 - A), A = 2 n2 / n1 = 1: none. With n = 8, 2, 1:
    # A = 3 n3 / n1 = 3/8 for largest 2; d_1 = (4/8 - 3/8) / (5/8) = 0.2, d_2 = ((3/2)(1/2) - 3/8) / (5/8) = 0.6.
    notes: list[str] = []
    assert list(discount_ratios(np.array([0, 8, 2, 1, 0]), 2, 2, notes)[1:]) == pytest.approx([0.2, 0.6])
    assert notes == []
    assert list(discount_ratios(np.array([0, 4, 2, 1, 0]), 1, 2, notes)[1:]) == [1.0]
    assert notes == ["order 2: the counts of counts do not determine the discount of counts 1; fallback: no discount"]
    # A context without any discount: 3 of 3 become 3 of 4, as SRILM has it, so that 1/4 is left.
    factor = discount_full_contexts(np.array([2 / 3, 1 / 3]), np.array([3.0]), np.array([True]), np.array([0, 0]))
    assert factor == pytest.approx([0.75])
    factor = discount_full_contexts(np.array([1.0]), np.array([3.0]), np.array([False]), np.array([0]))
    assert factor == pytest.approx([1.0])


def test_stupid_backoff_by_hand() -> None:
    model = model_of(SENTENCES, 3, StupidBackoff(3, alpha=0.4))
    scores = after(model, "<s>", "a")
    assert scores["b"] == pytest.approx(2 / 3, rel=FLOAT32)  # <s> a b 2 of 3
    assert scores["</s>"] == pytest.approx(0.4 * 0.4 * 3 / 9, rel=FLOAT32)
    assert after(model, "c", "a")["b"] == pytest.approx(0.4 * 2 / 3, rel=FLOAT32)  # c a was never seen: alpha as well
    assert not model.normalized and "do not sum to one" in model.table.notes[0]


def discounts_of(a: list[Counter], k: int, estimator: object, plain: Plain | None = None) -> np.ndarray:
    """plain: given where KenLM's counts of counts are wanted, with one n-gram by its occurrences."""
    of = Counter(a[k].values())
    if plain is not None and k < plain.n and (last := plain.last_of_kenlm(k)) is not None:
        of[a[k][last]] -= 1
        of[plain.raw[k][last]] += 1
    return np.atleast_1d(estimator(np.array([0, *(of[r] for r in range(1, 11))]), k, []))


GIVEN = {"jelinek_mercer": {"lambdas": [0.7]}, "laplace": {"alpha": 0.1}, "stupid_backoff": {"alpha": 0.4}}


def plain_form(name: str, plain: Plain) -> Probability:
    """Return the formula of a smoother, interpolated or backed off, with its parameters of GIVEN."""
    kind, _, backs_off = name.partition(", ")
    n, types, words = plain.n, plain.types, range(plain.types)
    a = plain.continuations() if "kneser_ney" in kind else plain.occurrences()
    followed, total = followers(a), sum(a[1].values())
    weight = lambda h, k: 0.0  # noqa: E731
    match kind:
        case "modified_kneser_ney":
            d = [[0.0] * 4] + [[0.0, *discounts_of(a, k, estimate_discounts, plain)] for k in range(1, n + 1)]
            share = lambda c, h, k: max(c - d[k][min(c, 3)], 0) / sum(h)  # noqa: E731
            weight = lambda h, k: sum(min(d[k][min(c, 3)], c) for c in h) / sum(h)  # noqa: E731
        case "kneser_ney" | "absolute":
            e = [0.0] + [float(discounts_of(a, k, estimate_discount)[0]) for k in range(1, n + 1)]
            share = lambda c, h, k: max(c - e[k], 0) / sum(h)  # noqa: E731
            weight = lambda h, k: e[k] * len(h) / sum(h)  # noqa: E731
        case "witten_bell":
            share = lambda c, h, k: c / (sum(h) + len(h))  # noqa: E731
            weight = lambda h, k: len(h) / (sum(h) + len(h))  # noqa: E731
        case "jelinek_mercer":
            share, weight = lambda c, h, k: 0.7 * c / sum(h), lambda h, k: 0.3
        case "mle":
            share = lambda c, h, k: c / sum(h)  # noqa: E731
        case "laplace":

            def add(word: int, context: tuple[int, ...]) -> float:
                h = followed.get(context, {})
                return (h.get(word, 0) + 0.1) / (sum(h.values()) + 0.1 * types)

            return add
        case "stupid_backoff":

            def score(word: int, context: tuple[int, ...]) -> float:
                if not context:
                    return a[1][(word,)] / total
                if word in followed.get(context, {}):
                    return followed[context][word] / sum(followed[context].values())
                return 0.4 * score(word, context[1:])

            return score
    if not backs_off:
        return interpolated(a, share, weight, types)
    # Unseen words share the mass that the unigrams leave.
    h = list(a[1].values())
    seen = {gram[0]: share(c, h, 1) for gram, c in a[1].items() if c > 0}
    takers = [word for word in words if word not in seen] or list(words)
    left = (1 - sum(seen.values())) / len(takers)
    return backed_off(a, share, words, lambda word, _: seen.get(word, 0.0) + (left if word in takers else 0.0))


OWN_TESTS = "count_merging", "good_turing", "pitman_yor"  # below, and in test_count_merging.py


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("name", [name for name in SMOOTHERS if name not in OWN_TESTS])
def test_equals_the_plain_form_on_random_text(name: str, n: int) -> None:
    text, vocabulary = text_of(random_sentences(n))
    plain = Plain(text, vocabulary, n)
    p, given = plain_form(name, plain), GIVEN.get(name, {})
    fast = made(name, n, vocabulary, **{key: value * n if key == "lambdas" else value for key, value in given.items()})
    model = NgramModel(estimate(count_ngrams(text, vocabulary, n), fast), vocabulary)
    contexts = contexts_for(text, vocabulary, n, seed=n)
    dist = model.log_dist(contexts)
    if model.normalized:
        np.testing.assert_allclose(np.exp(dist).sum(axis=1), 1, atol=3e-6)
    want = [[p(w, plain.seen_by(vocabulary, context)) for w in range(plain.types)] for context in contexts.tolist()]
    np.testing.assert_allclose(np.exp(dist[:, :-1]), want, rtol=3e-6, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_good_turing_on_random_text(n: int) -> None:
    text, vocabulary = text_of(random_sentences(n, 200))
    plain = Plain(text, vocabulary, n)
    a = plain.occurrences()
    ratios = [np.ones(11)]
    for k in range(1, n + 1):
        of = Counter(a[k].values())
        largest = 7 if k > 1 else 1
        found = discount_ratios(np.array([0, *(of[r] for r in range(1, 11))]), largest, k, [])
        ratios.append(np.concatenate([found, np.ones(10 - largest)]))

    def share(c: int, h: list[int], k: int) -> float:
        own = [ratios[k][min(x, 10)] * x for x in h]
        norm = sum(h)
        while sum(own) / norm > 1 - 3e-6 and len(h) < plain.types:
            norm += 1
        return ratios[k][min(c, 10)] * c / norm

    h = list(a[1].values())
    seen = {g[0]: share(c, h, 1) for g, c in a[1].items()}
    takers = [w for w in range(plain.types) if w not in seen]
    left = 1 - sum(seen.values())
    p = backed_off(a, share, range(plain.types), lambda w, _: seen.get(w, left / len(takers)))
    smoother = GoodTuring(n, gt_max=7, gt_max_unigram=1)
    model = NgramModel(estimate(count_ngrams(text, vocabulary, n), smoother), vocabulary)
    contexts = contexts_for(text, vocabulary, n, seed=n)[:60]
    dist = model.log_dist(contexts)
    np.testing.assert_allclose(np.exp(dist).sum(axis=1), 1, atol=3e-6)
    for context, row in zip(contexts.tolist(), dist, strict=True):
        want = [p(word, plain.seen_by(vocabulary, context)) for word in range(plain.types)]
        np.testing.assert_allclose(np.exp(row[:-1]), want, rtol=5e-6, atol=1e-9)


def test_discounts_by_hand() -> None:
    # n = 4, 2, 2, 1: Y = 4 / 8 = 1/2; D1 = 1 - 2 Y 2/4 = 1/2, D2 = 2 - 3 Y 2/2 = 1/2, D3+ = 3 - 4 Y 1/2 = 2: 1/2, 3/2
    # and 1 are left.
    notes: list[str] = []
    np.testing.assert_allclose(estimate_discounts(np.array([9, 4, 2, 2, 1]), 1, notes), [0.5, 0.5, 2])
    assert notes == []  # of unigrams
    estimate_discounts(np.array([9, 4, 2, 2, 1]), 2, notes)
    assert estimate_discount(np.array([9, 4, 3]), 1, notes) == 0.4
    assert notes == [
        "order 2: 1-D1, 2-D2, 3-D3+ do not ascend: an n-gram seen more often can be less probable, as on short text; "
        "compare smoother=witten_bell"
    ]
    notes.clear()
    # n = 40, 16, 8, 5: Y = 5/9; D1 = 5/9, D2 = 7/6, D3+ = 29/18: 4/9, 5/6 and 25/18 are left.
    np.testing.assert_allclose(estimate_discounts(np.array([9, 40, 16, 8, 5]), 1, notes), [5 / 9, 7 / 6, 29 / 18])
    assert notes == []
    # n4 = 0: Y = 5 / 9; D3+ = 3 - 4 Y 0/1. KenLM has no objection.
    np.testing.assert_allclose(estimate_discounts(np.array([9, 5, 2, 1, 0]), 2, notes), [5 / 9, 7 / 6, 3])
    assert "do not ascend" in notes.pop()  # 4/9, 5/6 and 0
    # A count that is 0; D2 = 2 - 3 (5/7) 9/1 < 0; D3+ = 3 - 4 (1/19) 900/1 < 0.
    for order, odd in enumerate(([0, 0, 2, 2, 1], [0, 4, 0, 2, 1], [0, 5, 1, 9, 9], [0, 1, 9, 1, 900]), start=2):
        assert list(estimate_discounts(np.array(odd), order, notes)) == list(FALLBACK_DISCOUNTS)
    assert estimate_discount(np.array([0, 5, 0]), 3, notes) == FALLBACK_DISCOUNT
    assert notes == [
        "orders 2, 3, 4, 5: the counts of counts n1..n4 do not determine the discounts, as on short text; "
        "fallback D1, D2, D3+ = 0.5, 1, 1.5",
        "order 3: the counts of counts do not determine the discount, as n1 or n2 is 0; fallback D = 0.75",
    ]


ODD = [["a"], ["a a a a a a"], ["a b c d e f"], ["a"] * 50, ["a b"] * 3 + ["b a"]]


@pytest.mark.parametrize("name", SMOOTHERS)
@pytest.mark.parametrize("sentences", ODD, ids=lambda s: s[0])
def test_odd_text_never_fails(sentences: list[str], name: str) -> None:
    text, vocabulary = text_of(sentences)
    smoother = made(name, 4, vocabulary)
    model = NgramModel(estimate(count_ngrams(text, vocabulary, 4), smoother), vocabulary)
    last = len(vocabulary) - 2
    dist = model.log_dist(np.array([[vocabulary.bos] * 3, [0, 0, 0], [0, last, 0], [last, 0, 0]]))
    assert not np.isnan(dist).any()
    if model.normalized:
        np.testing.assert_allclose(np.exp(dist).sum(axis=1), 1, atol=1e-6)
    if "kneser_ney" in name:
        assert model.table.notes


def test_a_stream_shorter_than_the_order() -> None:
    # "a b" as one stream: no 4-grams and no 5-grams, though the 3-gram <s> a b is a context. Nothing follows b, so
    # its successors have unigram probabilities: a and b stand after one word each, lose 1/2 of it, and the mass of
    # 1/2 is shared by a, b, </s> and <unk>: p(a) = 0.5/2 + 0.5/4 = 0.375, p(</s>) = 0.125.
    _, vocabulary = text_of(["a b"])
    counts = count_ngrams(Text(np.array([0, 1]), np.array([0, 2])), vocabulary, 5)
    model = NgramModel(estimate(counts, ModifiedKneserNey(5)), vocabulary)
    assert model.table.sizes == [5, 2, 1, 0, 0]
    contexts = np.array([[vocabulary.bos, vocabulary.bos, 0, 1]] * 2)
    log_prob = model.log_prob(contexts, np.array([0, vocabulary.eos]))
    np.testing.assert_allclose(np.exp(log_prob), [0.375, 0.125], rtol=FLOAT32)
    np.testing.assert_allclose(np.exp(model.log_dist(contexts)[0]), [0.375, 0.375, 0.125, 0.125, 0], rtol=FLOAT32)
    assert list(model.matched_lengths(contexts, np.array([0, vocabulary.eos]))) == [1, 1]


def test_parameters_that_are_not_as_many_as_the_orders() -> None:
    with pytest.raises(UserError, match=r"smoother\.discounts=.*: must have one entry per order, 3 of"):
        ModifiedKneserNey(3, discounts=[[0.5] * 3] * 2)
    with pytest.raises(UserError, match=r"smoother\.discounts=\[0.5\]: must have one entry per order, 3 of"):
        KneserNey(3, discounts=[0.5])
    with pytest.raises(UserError, match=r"smoother\.lambdas=\[0.5\]: must have one entry per order, 3 of"):
        JelinekMercer(3, count_buckets=1, lambdas=[0.5])


def test_pitman_yor_by_hand() -> None:
    # Words before: a 1, b 1, c 1, </s> 2; 5 customers, 4 types. With strength 1 and discount 1/2, (1 + 4/2) / (1 + 5) =
    # 1/2 is shared by five words, .1 each: p(a) = .5/6 + .1 = 11/60, p(</s>) = 1.5/6 + .1 = .35.
    model = model_of(SENTENCES, 2, PitmanYor(2, strengths=[1.0, 1.0], discounts=[0.5, 0.5]))
    unigrams, after_a = np.exp(model.log_dist(np.array([[4], [0]])))[:, :5]
    np.testing.assert_allclose(unigrams, [11 / 60, 11 / 60, 11 / 60, 0.35, 0.1], rtol=FLOAT32)
    # After a, b twice and c once: (1 + 2/2) / (1 + 3) = 1/2 is left, b has 1.5/4 + 11/120, c .5/4 + 11/120.
    np.testing.assert_allclose(after_a, [11 / 120, 7 / 15, 13 / 60, 0.175, 0.05], rtol=FLOAT32)


def test_expected_tables_by_hand() -> None:
    # 2 of 5 bigrams occur once and 2 twice: D = 2 / (2 + 4) = 1/3. t(1) = 1, t(2) = 1 + D = 4/3, t(3) = (1 + D) (2 + D)
    # / 2 = 14/9. Customers of a (3 tables after <s>), b, c, </s>: 14/9, 4/3, 1, 4/3 + 1; together 56/9.
    counts = count_ngrams(*text_of(SENTENCES), 2)
    unigrams, bigrams = PitmanYor(2, tables=Tables.expected).tables(counts)
    np.testing.assert_allclose(unigrams[:, 0], [14 / 9, 4 / 3, 1, 7 / 3, 0, 0])
    by_words = {tuple(gram): row for gram, row in zip(counts.trie.ngrams(2, 0, 5).tolist(), bigrams, strict=True)}
    assert by_words[(5, 0)] == pytest.approx([3, 14 / 9]) and by_words[(0, 2)] == pytest.approx([1, 1])
    # p(b|a) with strengths 0 and discounts 1/2: (2 - 2/3) / 3 + (1/2) (4/3 + 1) / 3 p(b); p(b) with 3 words seen by
    # fewer than 2 customers and 1 by 2: D = 3/5, t(4/3) = gamma(29/15) / (gamma(4/3) gamma(8/5)).
    model = model_of(SENTENCES, 2, PitmanYor(2, discounts=[0.5, 0.5], tables=Tables.expected))
    t = [math.gamma(c + 0.6) / math.gamma(c) / math.gamma(1.6) for c in (14 / 9, 4 / 3, 1, 7 / 3)]
    p_b = (4 / 3 - t[1] / 2 + sum(t) / 2 / 5) / (56 / 9)
    p = np.exp(model.log_dist(np.array([[0]])))[0, 1]
    assert p == pytest.approx(4 / 9 + 7 / 18 * p_b, rel=FLOAT32)


def plain_tables(plain: Plain, seating: list[float], tables: Tables) -> tuple[list[Counter], list[Counter]]:
    """Customers and tables of each n-gram, by tuples, for the discounts of the seating of each order."""
    customers, found = plain.occurrences(), [Counter() for _ in range(plain.n + 1)]
    for k in range(plain.n, 0, -1):
        if k < plain.n:
            for gram in [gram for gram in customers[k] if gram[0] != plain.bos]:
                customers[k][gram] = sum(t for longer, t in found[k + 1].items() if longer[1:] == gram)
        for gram, c in customers[k].items():
            d = seating[k - 1]
            expected = math.exp(math.lgamma(c + d) - math.lgamma(c) - math.lgamma(1 + d))
            found[k][gram] = 1 if tables is Tables.one else expected
    return customers, found


@pytest.mark.parametrize("tables", Tables)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_pitman_yor_equals_the_plain_form_and_sums_to_one(tables: Tables, n: int) -> None:
    text, vocabulary = text_of(random_sentences(n))
    strengths, discounts = [2.5, 0.0, 1.25, 0.5][:n], [0.4, 0.7, 0.8, 0.9][:n]
    smoother, plain = PitmanYor(n, strengths=strengths, discounts=discounts, tables=tables), Plain(text, vocabulary, n)
    model = NgramModel(estimate(count_ngrams(text, vocabulary, n), smoother), vocabulary)
    assert (len(smoother.seating) == n) == (tables is Tables.expected)
    customers, seated = plain_tables(plain, [smoother.seating.get(k, 0) for k in range(1, n + 1)], tables)
    pairs = [
        Counter({gram: complex(c, seated[k][gram]) for gram, c in customers[k].items()}) for k in range(1, n + 1)
    ]  # c + t i

    class Pair(complex):
        def __gt__(self, other: float) -> bool:  # as `interpolated` asks
            return self.real > other

    a = [Counter(), *(Counter({gram: Pair(pair) for gram, pair in order.items()}) for order in pairs)]
    p = interpolated(
        a,
        lambda pair, h, k: (pair.real - discounts[k - 1] * pair.imag) / (strengths[k - 1] + sum(h).real),
        lambda h, k: (strengths[k - 1] + discounts[k - 1] * sum(h).imag) / (strengths[k - 1] + sum(h).real),
        plain.types,
    )
    contexts = contexts_for(text, vocabulary, n, seed=n)
    dist = np.exp(model.log_dist(contexts))
    np.testing.assert_allclose(dist.sum(axis=1), 1, atol=3e-6)
    want = [[p(w, plain.seen_by(vocabulary, context)) for w in range(plain.types)] for context in contexts.tolist()]
    np.testing.assert_allclose(dist[:, :-1], want, rtol=3e-6)


def test_pitman_yor_is_kneser_ney_at_strength_0() -> None:
    counts = count_ngrams(*text_of(random_sentences(3)), 3)
    first, second = estimate(counts, KneserNey(3)), estimate(counts, PitmanYor(3))
    assert np.array_equal(first.log_prob, second.log_prob) and np.array_equal(first.log_backoff, second.log_backoff)
    assert first.unseen == second.unseen and first.notes == second.notes


@pytest.mark.parametrize("tables", Tables)
def test_tuning_of_pitman_yor(tables: Tables, toy: Corpus) -> None:
    counts, valid = count_ngrams(toy.split("train"), toy.vocabulary, 3), toy.split("valid")
    smoother = PitmanYor(3, tables=tables)
    tuned = fit_and_tune(counts, smoother, valid, Storage())
    assert tuned.after < tuned.before and (smoother.values >= 0).all()

    def of_model(smoother: PitmanYor) -> float:
        return perplexity(NgramModel(estimate(counts, smoother, fit=False), toy.vocabulary).score_text(valid))

    best = smoother.values.copy()
    assert of_model(smoother) == pytest.approx(tuned.after, rel=1e-6)
    for step in (-0.02, 0.02):
        for index in np.ndindex(best.shape):
            smoother.values = best.copy()
            smoother.values[index] = max(best[index] * (1 + step), 0.0)
            assert of_model(smoother) > tuned.after * (1 - 1e-5)
    if tables is Tables.one:
        assert tuned.after < fit_and_tune(counts, KneserNey(3), valid, Storage()).after

"""Static interpolation: one back-off model of several, held to the mixture at query time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.data.vocabulary import Vocabulary
from lmtool.mixtures.linear import Mixture
from lmtool.mixtures.static import mix_static
from lmtool.mixtures.vocabularies import union_vocabulary
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.pruning.entropy import prune_by_entropy
from lmtool.ngram.query.scoring import log_prob_of_ngrams
from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
from lmtool.ngram.smoothers.base import Smoother
from lmtool.ngram.smoothers.interpolation import WittenBell
from lmtool.ngram.smoothers.relative_frequencies import MaximumLikelihood, StupidBackoff
from tests.conftest import Run, result
from tests.ngram.plain import contexts_for, random_sentences, text_of


def model_of(sentences: list[str], smoother: Smoother, order: int, vocabulary: Vocabulary | None = None) -> NgramModel:
    text, own = text_of(sentences)
    if vocabulary is not None:
        text.ids = vocabulary.encode([own.words[i] for i in text.ids])
    vocabulary = vocabulary or own
    return NgramModel(estimate(count_ngrams(text, vocabulary, order), smoother), vocabulary)


def at_query_time(model: NgramModel, grams: list[list[str]]) -> np.ndarray:
    """Return log p `[N]` of the last of k words, given only the k-1 words before it."""
    vocabulary = model.vocabulary
    found = []
    for gram in grams:
        contexts = vocabulary.encode([word for word in gram[:-1] if word != "<s>"])
        contexts = np.append([vocabulary.bos] if gram[0] == "<s>" and len(gram) > 1 else [], contexts).astype(np.int64)
        target = vocabulary.ids.get(gram[-1])
        if target is None:
            found.append(-np.inf)
            continue
        found.append(float(log_prob_of_ngrams(model.table, np.append(contexts, target)[None])[0]))
    return np.array(found)


def test_by_hand() -> None:
    # Bigrams by maximum likelihood. In A, "a b", "a b": p(b|a) = 1. In B, "a c", "a b": p(b|a) = p(c|a) = 1/2.
    # A third of A: p(b|a) = 1/3 + 2/3 1/2 = 2/3; p(c|a) = 2/3 1/2 = 1/3. Unigrams: A gives a, b, </s> a third each,
    # B a and </s> a third, b and c a sixth: p(b) = 1/9 + 2/18 = 4/18, p(c) = 2/18, p(a) = 1/3.
    vocabulary = text_of(["a b c"])[1]
    a = model_of(["a b", "a b"], MaximumLikelihood(2), 2, vocabulary)
    b = model_of(["a c", "a b"], MaximumLikelihood(2), 2, vocabulary)
    mixed = NgramModel(mix_static([a, b], np.array([1 / 3, 2 / 3]), vocabulary), vocabulary)
    assert mixed.table.sizes == [6, 5]  # <s> a, a b, a c, b </s>, c </s>
    assert mixed.table.suffix_closed
    grams = [["a"], ["b"], ["c"], ["a", "b"], ["a", "c"], ["<s>", "a"], ["c", "</s>"]]
    # After c, which A has not seen, A backs off to p(</s>) = 1/3 (its weight is 1): 1/9 + 2/3.
    expected = [1 / 3, 4 / 18, 2 / 18, 2 / 3, 1 / 3, 1, 1 / 9 + 2 / 3]
    np.testing.assert_allclose(np.exp(at_query_time(mixed, grams)), expected, rtol=1e-6)
    # The mass 2/9 that c leaves goes to the other words by their unigrams: p(a|c) = 2/9 (1/3) / (2/3) = 1/9.
    np.testing.assert_allclose(np.exp(at_query_time(mixed, [["c", "a"]])), 1 / 9, rtol=1e-6)


OTHER_WORDS = ["w1 w2 x", "x w3 w1 w2", "x y w5 w1", "w2 rare w1"] * 3  # rare becomes <unk>


def members(kind: str) -> list[NgramModel]:
    """Three models: of other orders; one of them pruned, so that suffixes are missing; over other words."""
    large = random_sentences(0, 300)
    vocabulary = text_of(large)[1]
    models = [
        model_of(large, ModifiedKneserNey(4), 4),
        model_of(random_sentences(1, 150), WittenBell(2), 2, vocabulary),
        model_of(random_sentences(2, 150), WittenBell(5), 5, vocabulary),
    ]
    if kind == "pruned":
        for place, threshold in ((0, 1e-3), (1, 1e-3), (2, 1e-3)):
            models[place] = NgramModel(prune_by_entropy(models[place].table, threshold, vocabulary), vocabulary)
        assert not models[0].table.suffix_closed and not models[2].table.suffix_closed
    if kind == "words":
        models[1] = model_of(random_sentences(1, 150), WittenBell(2), 2)
        models[2] = model_of(OTHER_WORDS, WittenBell(3), 3, text_of(["w1 w2 w3 w5 x y"])[1])
    return models


@pytest.mark.parametrize("kind", ["orders", "pruned", "words"])
def test_every_stored_ngram_has_the_probability_of_the_mixture(kind: str) -> None:
    models, weights = members(kind), np.array([0.5, 0.2, 0.3])
    vocabulary = union_vocabulary([model.vocabulary for model in models])
    mixed = NgramModel(mix_static(models, weights, vocabulary), vocabulary)
    table, stored = mixed.table, set[tuple[str, ...]]()
    assert table.suffix_closed == (kind != "pruned")
    for k in range(1, table.order + 1):
        rows = table.trie.ngrams(k, 0, table.sizes[k - 1]).tolist()
        grams = [[vocabulary.words[word] for word in row] for row in rows if row != [vocabulary.bos]]
        stored |= set(map(tuple, grams))
        with np.errstate(divide="ignore"):
            wanted = np.log(weights @ np.exp([at_query_time(model, grams) for model in models]))
        np.testing.assert_allclose(at_query_time(mixed, grams), wanted, atol=1e-6)
    theirs = set()
    for model in models:
        for k in range(1, model.table.order + 1):
            rows = model.table.trie.ngrams(k, 0, model.table.sizes[k - 1]).tolist()
            theirs |= {tuple(model.vocabulary.words[word] for word in row) for row in rows}
    assert stored == theirs - {("<s>",)}
    contexts = contexts_for(text_of(random_sentences(0, 300))[0], vocabulary, table.order, 1)
    np.testing.assert_allclose(np.exp(mixed.log_dist(contexts)).sum(axis=1), 1, atol=3e-6)


def test_a_model_mixed_with_itself_or_with_nothing_stays_itself() -> None:
    model, other = members("orders")[:2]
    for models, weights in (
        ([model, model], [0.25, 0.75]),
        ([model, other], [1.0, 0.0]),
        ([model, other, model], [0.25, 0.0, 0.75]),
    ):
        table = mix_static(models, np.array(weights), model.vocabulary)
        assert table.sizes == model.table.sizes and table.unseen == pytest.approx(model.table.unseen)
        np.testing.assert_allclose(table.log_prob, model.table.log_prob, atol=1e-6)
        np.testing.assert_allclose(np.exp(table.log_backoff), np.exp(model.table.log_backoff), rtol=1e-4)


def test_models_that_cannot_be_one() -> None:
    large, _, other = members("words")
    weights, union = np.array([0.5, 0.5]), union_vocabulary([large.vocabulary, other.vocabulary])
    scores = model_of(OTHER_WORDS, StupidBackoff(2, alpha=0.4), 2)
    for both in ([large, other], [other, large]):
        with pytest.raises(ValueError, match="must have all words of the models"):
            mix_static(both, weights, large.vocabulary)
        assert mix_static(both, weights, union).normalized
    both_words = union_vocabulary([large.vocabulary, scores.vocabulary])
    assert not mix_static([large, scores], weights, both_words).normalized
    with pytest.raises(ValueError, match="weights must sum to one"):
        mix_static([large, other], np.array([0.5, 0.6]), union)


def test_the_union_of_words_keeps_their_ends() -> None:
    found = union_vocabulary([text_of(["a b"])[1], text_of(["b c"])[1]])
    assert found.words == ("a", "b", "<unk>", "c", "</s>", "<s>")
    assert found.counts.tolist() == [1, 2, 2, 1, 2, 2]
    assert (found.unk, found.eos, found.bos) == (2, 4, 5)


def test_runs_become_one_run_or_file(lmtool: Run) -> None:
    common = ["train", "model=ngram", "data=toy"]
    lmtool(*common, "model.order=3", "hydra.run.dir=kn3")
    lmtool(*common, "model.order=2", "smoother=witten_bell", "hydra.run.dir=wb2")
    lmtool("ensemble", "runs=[kn3,wb2]", "hydra.run.dir=mix")
    said = lmtool("convert", "runs=[mix]", "hydra.run.dir=one")
    weights = result("mix")["weights"]
    assert all(f"{weight:.4f}" in said for weight in weights)
    lmtool("convert", "runs=[kn3,wb2]", f"weights={weights}".replace(" ", ""), "to=one.arpa.gz")
    models = [package.load(name).model for name in ("kn3", "wb2", "mix", "one")]
    mixture, one = models[2:]
    assert isinstance(mixture, Mixture) and isinstance(one, NgramModel)
    # A context that both have, and a word that follows it in one: the same by either.
    bigrams = one.table.trie.ngrams(2, 0, one.table.sizes[1])
    inner = bigrams[bigrams[:, 0] != one.vocabulary.bos]
    unk = np.full(len(inner), one.vocabulary.unk)
    contexts = np.stack([unk, inner[:, 0]], axis=1)
    np.testing.assert_allclose(one.log_prob(contexts, inner[:, 1]), mixture.log_prob(contexts, inner[:, 1]), atol=1e-6)
    lmtool("eval", "run=one", "hydra.run.dir=one-valid")
    found, wanted = (result(name)["perplexity"] for name in ("one-valid", "mix"))
    assert found == pytest.approx(wanted, rel=0.05) and found != wanted  # only backed-off words differ
    from_file = package.load("one.arpa.gz")
    assert from_file.perplexity(["the cat sat"]) == pytest.approx(package.load("one").perplexity(["the cat sat"]))


def test_runs_over_other_words(lmtool: Run, tmp_path: Path) -> None:
    for name, text in (("news", "a b c\nb c a\n"), ("books", "b d b\nd d a\n"), ("valid", "a d c\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    for name in ("news", "books"):
        data = ["data=text", f"data.name={name}", f"data.train={name}.txt", "data.valid=valid.txt"]
        lmtool("train", "model=ngram", "model.order=2", "smoother=witten_bell", *data, f"hydra.run.dir={name}")
    out = package.convert(runs=["news", "books"], weights=[0.5, 0.5], out="both").path
    both, news, books = (package.load(name) for name in (out, "news", "books"))
    assert set(both.vocabulary.words) == {"a", "b", "c", "d", "<unk>", "</s>", "<s>"}
    assert lmtool("eval", "run=both").count("perplexity") and both.model.normalized
    p = {name: dict(model.predict("b", top=9)) for name, model in (("both", both), ("news", news), ("books", books))}
    for word in ("a", "b", "c", "d", "</s>"):
        mean = (p["news"].get(word, 0) + p["books"].get(word, 0)) / 2
        if word in ("c", "d", "</s>"):  # b is followed by c in one, by d and </s> in the other
            assert p["both"][word] == pytest.approx(mean, rel=1e-5)
    package.convert(runs=["news", "books"], weights=[0.5, 0.5], to="both.arpa")
    package.convert(runs=["both.arpa", "news"], weights=[1, 0], to="again.arpa")
    assert package.load("again.arpa").perplexity(["b d"]) == pytest.approx(both.perplexity(["b d"]), rel=1e-5)


MISTAKES = [
    ("runs=[kn3,nplm] weights=[.5,.5]", "not an n-gram model: lmtool distill"),
    ("runs=[kn3,mle]", "weights=null: set one for each run"),
    ("runs=[kn3,mle] weights=[.5,-.5]", "must be numbers of 0 or more, and not all 0"),
    ("runs=[kn3,mle] weights=[1]", "one for each member"),
    ("runs=[kn3] run=mle", "run=mle: cannot be used with runs="),
    ("runs=[]", "runs=[]"),
    ("weights=[1] run=kn3", "needs runs="),
    ("runs=[mix]", "is not an n-gram model"),
    ("runs=[nowhere]", "no run folder nowhere"),
]


@pytest.mark.parametrize(("line", "said"), MISTAKES)
def test_mistakes(line: str, said: str, runs: Path, lmtool: Run) -> None:
    words = line.replace("[kn3", f"[{runs}/kn3").replace("[mix", f"[{runs}/mix")
    words = words.replace(",nplm", f",{runs}/nplm").replace(",mle", f",{runs}/mle")
    assert said in lmtool("convert", *words.split(), "hydra.run.dir=out", code=2)
    assert not Path("out/run.json").exists()


def test_scores_and_other_mixtures_are_refused(lmtool: Run, runs: Path) -> None:
    lmtool("train", "model=ngram", "model.order=2", "data=toy", "smoother=stupid_backoff", "hydra.run.dir=stupid")
    assert "do not sum to one" in lmtool("convert", f"runs=[stupid,{runs}/kn3]", "weights=[.5,.5]", code=2)
    lmtool("ensemble", f"runs=[{runs}/kn3]", "cache=unigram", "hydra.run.dir=cached")
    assert "with a cache: only a linear mixture" in lmtool("convert", "runs=[cached]", code=2)

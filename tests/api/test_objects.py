"""What a notebook can hold: tables of how a probability comes about, trees, counts, examples."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lmtool
from lmtool.data.vocabulary import Vocabulary
from lmtool.plots.word_trees import WordTree
from lmtool.trees import from_codes

CATS = ["the cat sat", "the dog sat"] * 5
NETWORK = {"kind": "hsoftmax", "hidden_dim": 6, "embedding_dim": 4, "context_size": 2}


@pytest.fixture(autouse=True)
def within_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def cats(folder: Path) -> lmtool.Corpus:
    return lmtool.Corpus.from_texts(CATS, ["the dog sat", "the cat"], store_dir=folder / "stores")


@pytest.fixture(scope="module")
def bigrams(cats: lmtool.Corpus, folder: Path) -> lmtool.TextModel:
    return lmtool.train({"kind": "ngram", "order": 2}, cats, smoother="witten_bell", out=folder / "bigrams").model


@pytest.fixture(scope="module")
def network(cats: lmtool.Corpus, folder: Path) -> lmtool.TextModel:
    return lmtool.train(NETWORK, cats, tree="union", training={"epochs": 2}, out=folder / "network").model


# explain


def test_explain_by_hand(bigrams: lmtool.TextModel) -> None:
    # Of 40 tokens 10 are </s>, among 5 types; 1/6 for each of 5 words and <unk>. After "cat" one type follows 5 times.
    unigram, weight = (10 + 5 / 6) / 45, 1 / 6
    row = bigrams.explain("the cat").rows[2]
    assert (row["word"], row["order"]) == ("</s>", 1)
    assert [row[name] for name in ("p 1", "weight 2", "p", "bits")] == pytest.approx(
        [unigram, weight, unigram * weight, -math.log2(unigram * weight)], rel=1e-6
    )
    assert row["share 2"] is None
    # After "the" 2 types follow 10 times, "cat" 5 of them; "cat" is 5 of the 40 tokens.
    p_cat = (5 + 5 / 6) / 45
    row = bigrams.explain("the cat").rows[1]
    terms = [row[name] for name in ("share 2", "weight 2", "p 1", "p")]
    assert terms == pytest.approx([5 / 12, 2 / 12, p_cat, 5 / 12 + 2 / 12 * p_cat], rel=1e-6)
    table = bigrams.explain(["the", "bird"])
    assert [(row["word"], row["order"], row["weight 2"] is None) for row in table.rows] == [
        *(("the", 2, False), ("bird", 1, False), ("</s>", 1, True))
    ]
    assert "with p of <unk>: bird" in repr(table) and "<td" in table._repr_html_() and table.to_pandas().shape == (3, 8)


def test_the_shares_of_kneser_ney_by_hand(cats: lmtool.Corpus, tmp_path: Path) -> None:
    """And of a model that backs off: a context that is not in the model has an empty weight, not 1."""
    model = {"kind": "ngram", "order": 3}
    run = lmtool.train(model, cats, smoother={"kind": "kneser_ney", "discounts": 0.5}, out=tmp_path / "kn")
    row = run.model.explain("the cat").rows[1]
    # "<s> the" 10 times, with "cat" 5. Before "the cat" stands <s> alone, as before "the dog"; of the 6 types of
    # bigrams one ends in "cat", and there are 5 types of words and <unk>.
    p_1 = 0.5 / 6 + 5 * 0.5 / 6 / 6
    assert [row[name] for name in ("share 3", "weight 3", "share 2", "weight 2", "p 1")] == pytest.approx(
        [4.5 / 10, 1 / 10, 0.5 / 2, 1 / 2, p_1], rel=1e-6
    )
    assert row["p"] == pytest.approx(0.45 + 0.1 * (0.25 + 0.5 * p_1))
    smoother = {"kind": "absolute", "interpolate": False, "discounts": 0.5}
    backing = lmtool.train(model, cats, smoother=smoother, out=tmp_path / "absolute").model
    assert [backing.explain("dog bird cat").rows[2][f"back-off {k}"] for k in (2, 1)] == [None, None]


def test_explain_says_that_scores_do_not_sum_to_one(bigrams: lmtool.TextModel, cats: lmtool.Corpus) -> None:
    scores = lmtool.train({"kind": "ngram", "order": 2}, cats, smoother="stupid_backoff").model
    assert "note: these scores do not sum to one" in repr(scores.explain("the cat"))
    assert "sum to one" not in repr(bigrams.explain("the cat"))


def test_the_factors_of_explain_multiply_to_p_in_a_small_model(corpus: lmtool.Corpus) -> None:
    """Pruned and quantized; tests/test_contract.py has the others."""
    model = lmtool.train({"kind": "ngram", "order": 4}, corpus, prune_entropy=1e-3, quantize=8).model
    for sentence in ("a b c d", "e d a b c d e z b", "c c c c", ""):
        for row, score in zip(model.explain(sentence).rows, model.score(sentence).tolist(), strict=True):
            factors = [row["stored p"], *(row[f"back-off {k}"] for k in (3, 2, 1))]
            assert math.prod(factor for factor in factors if factor is not None) == pytest.approx(
                math.exp(score), rel=1e-6
            )
            assert row["log p"] == score and row["bits"] == pytest.approx(-score / math.log(2))


def test_explain_of_a_mixture_and_of_a_network(
    bigrams: lmtool.TextModel, network: lmtool.TextModel, cats: lmtool.Corpus, folder: Path
) -> None:
    mixed = lmtool.ensemble([bigrams, network], out=folder / "mixed").model
    for row, score in zip(mixed.explain("the bird").rows, mixed.score("the bird").tolist(), strict=True):
        assert row["weight 1"] + row["weight 2"] == pytest.approx(1)
        assert row["weight 1"] * row["p 1"] + row["weight 2"] * row["p 2"] == pytest.approx(math.exp(score), rel=1e-9)
    for row in network.explain("cat the dog").rows:
        assert math.exp(row["log p"]) == row["p"] and (row["rank"] == 1) == (row["most likely"] == row["word"])
    ranked = [word for word, _ in network.predict("cat", top=6)]
    assert network.explain("cat the").rows[1]["rank"] == 1 + ranked.index("the")


def test_a_word_is_found_as_gensim_finds_it(network: lmtool.TextModel) -> None:
    assert np.array_equal(network["<s>"], network.network.word_vectors("embeddings")[-1])
    assert np.array_equal(network["cat"], network.embeddings[network.vocabulary["cat"]]) and network["cat"].shape == (
        4,
    )


def test_the_result_of_a_training_is_loaded(cats: lmtool.Corpus) -> None:
    run = lmtool.train({"kind": "ngram", "order": 1}, cats)
    assert lmtool.load(run).name == str(run.folder)


# paths and trees


def test_paths_multiply_to_p_and_sum_to_one(network: lmtool.TextModel) -> None:
    context = network.context(network.ids("the"))[None]
    total = 0.0
    for word, code in network.tree.codes.items():
        table = network.paths("the", word)
        assert table.about.startswith(f"{word}: codes {' and '.join(code.split())}, p = ") and len(code.split()) == 2
        p = 0.0
        for path in (1, 2):  # one in either tree
            rows = [row for row in table.rows if row["path"] == path]
            assert rows[0]["p of the path"] == pytest.approx(math.prod(row["p"] for row in rows))
            p += rows[0]["p of the path"]
        assert table.about.endswith(f" = {p:.6g}")
        log_p = network.log_prob(context, np.array([network.id_of(word)]))[0]
        assert p == pytest.approx(math.exp(log_p), rel=1e-6)
        total += p
    assert total == pytest.approx(1, abs=1e-6)


def test_a_tree_with_words_by_hand() -> None:
    tree = WordTree("", from_codes([(0, "0"), (1, "10"), (2, "11")]), ["the", "cat", "sat"], np.array([2, 1, 1]))
    assert tree.codes == {"the": "0", "cat": "10", "sat": "11"} and tree.expected_length == 1.5
    assert tree.path("sat").rows == [
        {"code": "1", "node": 0, "below 0": "the", "below 1": "cat, sat"},
        {"code": "11", "node": 1, "below 0": "cat", "below 1": "sat"},
    ]
    assert repr(tree).startswith("tree: 3 words, 3 leaves") and "\n  1  50.0%\n    0  25.0% cat" in repr(tree)
    assert tree.path("sat").about == "sat: code 11"
    assert "data:image/png;base64,iVBOR" in tree._repr_html_()


# counts, continuations, discounts


def test_counts_are_those_of_the_text(corpus: lmtool.Corpus, bigrams: lmtool.TextModel) -> None:
    model = lmtool.train({"kind": "ngram", "order": 1}, corpus, smoother="laplace").model
    sentences = [f"<s> {' '.join(words)} </s>" for words in ("abcd", "bcde", "ace")] * 20
    for ngram in ("a", "b c", "c d e", "<s> a", "<s> b c d e </s>", "e </s>", "d a", "<s>", "e b", "</s>"):
        brute = sum(f" {sentence} ".count(f" {ngram} ") for sentence in sentences)
        assert model.counts(ngram) == brute, ngram
    assert model.counts(["b", "c"]) == 40 and model.counts() == 20 * (4 + 4 + 3 + 3)
    assert [list(row.values())[:3] for row in model.continuations("c", top=2).rows] == [
        ["d", 40, 2 / 3],
        ["e", 20, 1 / 3],
    ]
    assert [row["count"] for row in model.continuations("<s>").rows] == [40, 20]
    assert not model.continuations("d </s>").rows
    assert not model.continuations("<s>").notes and "sentence_start=False" in model.continuations("c").notes[0]
    after_the = bigrams.continuations("the").rows  # no matter what is before it
    assert [row["p"] for row in after_the] == pytest.approx([math.exp(bigrams.score("the cat")[1])] * 2)


def test_a_note_says_what_p_is_estimated_from(cats: lmtool.Corpus, bigrams: lmtool.TextModel) -> None:
    model = lmtool.train({"kind": "ngram", "order": 2}, cats, smoother="modified_kneser_ney").model
    (note,) = model.continuations("<s>").notes
    assert note.startswith("smoother=modified_kneser_ney: ") and not bigrams.continuations("<s>").notes
    once = lmtool.train({"kind": "ngram", "order": 1}, lmtool.Corpus.from_texts(["a b"]), smoother="laplace").model
    assert once.continuations("a").about == "a: once in train"
    letters = lmtool.train("ngram", lmtool.Corpus.from_texts(["a b"], sentences=False), smoother="laplace").model
    assert [letters.explain(text).about.split(": ")[-1][:12] for text in ("a", "")] == ["1 token, 1.0", "0 tokens, 0."]
    assert once.explain("<s>").notes[0] == "with p of <unk>: <s>"


def test_discounts_by_order(corpus: lmtool.Corpus, bigrams: lmtool.TextModel) -> None:
    kinds: list[tuple[Any, list[float]]] = [
        ({"kind": "modified_kneser_ney", "discounts": [0.7, 1.0, 1.5]}, [0.7, 1.0, 1.5]),
        ({"kind": "jelinek_mercer", "lambdas": [0.5, 0.25], "count_buckets": 1}, [0.25]),
        ({"kind": "laplace", "alpha": 0.5}, [0.5]),
    ]
    for smoother, values in kinds:
        found = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother=smoother).model.discounts
        assert list(found.rows[-1].values()) == [2, *values] and found.about == f"smoother={smoother['kind']}"
    data = lmtool.Corpus.from_texts(["a a b b c d e"])  # 4 words occur once (one is </s>), 2 twice: D = 4 / (4 + 2 * 2)
    estimated = lmtool.train({"kind": "ngram", "order": 1}, data, smoother="absolute")
    assert estimated.model.discounts.rows == [{"order": 1, "discount": 0.5}] == estimated.discounts
    assert not estimated.model.discounts.notes
    threes = lmtool.Corpus.from_texts(["a a a b b b"])
    fallback = lmtool.train({"kind": "ngram", "order": 1}, threes, smoother="absolute")
    assert "fallback D = 0.75" in fallback.model.discounts.notes[0]


# examples and vocabularies


def test_examples_of_a_corpus(cats: lmtool.Corpus) -> None:
    header = ["w(t-2)", "w(t-1)", "w(t)"]
    expected = [["<s>", "<s>", "the"], ["<s>", "the", "cat"], ["the", "cat", "sat"], ["cat", "sat", "</s>"]]
    assert cats.examples(4, context_size=2).as_table() == (header, expected)
    across = cats.examples(6, context_size=2, across_sentences=True).rows
    assert list(across[4].values()) == ["sat", "</s>", "the"]
    drawn, again = (cats.examples(3, context_size=2, split="valid", seed=1).as_table() for _ in range(2))
    every = cats.examples(99, context_size=2, split="valid").as_table()[1]
    assert drawn == again and len(every) == 7 and [row for row in every if row in drawn[1]] == drawn[1]


def test_a_vocabulary_is_used_like_a_dict(bigrams: lmtool.TextModel) -> None:
    vocabulary = bigrams.vocabulary
    assert "cat" in vocabulary and "bird" not in vocabulary and [*vocabulary] == [*vocabulary.words]
    assert vocabulary["cat"] == vocabulary.words.index("cat") and len(vocabulary) == 7
    assert "cat" in bigrams and "bird" not in bigrams
    assert repr(Vocabulary(("a", "<unk>", "<s>"), np.zeros(3), None, 1)) == "Vocabulary(3 words: a, <unk>, <s>)"


# what a model does not have is one line


def test_wrong_types_that_look_right(network: lmtool.TextModel) -> None:
    with pytest.raises(lmtool.UserError, match=r"^Corpus\('ptb'\): call lmtool\.preprocess\('ptb'\), or Corpus\.open"):
        lmtool.Corpus("ptb")  # type: ignore[arg-type]
    with pytest.raises(lmtool.UserError, match=r"^context='the': must be an array of ids"):
        network.decisions("the", "cat")  # type: ignore[arg-type]


def test_each_refusal_names_what_does_it(bigrams: lmtool.TextModel, network: lmtool.TextModel, folder: Path) -> None:
    lmtool.export(run=bigrams, to=folder / "bigrams.arpa")
    arpa = lmtool.load(folder / "bigrams.arpa")
    softmax = lmtool.train({"kind": "nplm", "hidden_dim": 4}, bigrams.open_corpus(), training={"epochs": 1}).model  # type: ignore[misc]
    refusals: dict[str, Callable[[], object]] = {
        "bigrams has no tree; choose a run with a hierarchical softmax": lambda: bigrams.tree,
        "choose a run with a hierarchical softmax": lambda: bigrams.paths("the", "cat"),
        "bigrams.arpa has no corpus: take a run folder": lambda: arpa.counts("the"),
        "bigrams (smoother=witten_bell) has no discounts": lambda: bigrams.discounts,
        "has no discounts: an n-gram run has them if its smoother has parameters": lambda: network.discounts,
        "bird is not in the vocabulary": lambda: network.paths("the", "bird"),
        "word=<s>: must be a word that is predicted": lambda: network.paths("the", "<s>"),
        "word=<s>: must be a word that is predicted, which <s>": lambda: softmax.neighbors("<s>", of="output"),
        "word=3: must be text": lambda: network.neighbors(3),  # type: ignore[arg-type]
        "word=[]: must be one word or more": lambda: network.neighbors([], minus=[]),
        "'' is not in the vocabulary": lambda: network.paths("the", ""),
        "'cta' is not a word of the tree; did you mean cat?": lambda: network.tree.path("cta"),
        "catt is not in the vocabulary (similar: cat": lambda: bigrams.continuations("the catt"),
        "split=test": lambda: bigrams.open_corpus().examples(split="test"),  # type: ignore[misc]
    }
    for message, call in refusals.items():
        with pytest.raises(lmtool.UserError) as caught:
            call()
        assert message in str(caught.value)
    with pytest.raises(KeyError, match="'cta' is not in the vocabulary"):
        bigrams.vocabulary["cta"]

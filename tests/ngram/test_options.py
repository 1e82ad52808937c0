"""The options of the groups smoother, counts and model=ngram: their settings, and what these build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lmtool.config.rules import field_rules
from lmtool.config.settings import saved_settings, settings_as_json
from lmtool.data.corpus import Corpus
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.files.hdf5 import counts_path
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.smoothers.base import Combination
from tests.ngram.plain import Text, random_sentences, text_of
from tests.options import SMOOTHERS, settings, settings_of, written


@pytest.mark.parametrize("name", SMOOTHERS)
def test_each_smoother_is_built_from_its_settings(name: str) -> None:
    text, vocabulary = text_of(random_sentences(1))
    given = settings_of("smoother", name)
    assert saved_settings(settings_as_json(given), "smoother") == given
    assert not given.scores_candidates_alone()
    smoother = given.build(3, vocabulary)
    assert len(smoother.values) == 3
    table = estimate(count_ngrams(text, vocabulary, 3), smoother)
    is_probability = smoother.combination is not Combination.scores
    assert table.normalized == smoother.normalized == is_probability == (name != "stupid_backoff")
    assert NgramModel(table, vocabulary).normalized == table.normalized
    values, rules = written("smoother", given.kind), field_rules(type(given))
    assert given.tuning_split() == ("valid" if "tuned" in values.values() or name == "count_merging" else None)
    for key in values.keys() & rules.keys():
        if "tuned" in rules[key].words or rules[key].said.startswith(("tuned", "null, tuned")):
            assert settings("smoother", given.kind, **{key: "tuned", "tune_on": "test"}).tuning_split() == "test"


def test_parameters_reach_the_smoother() -> None:
    _, vocabulary = text_of(["a b"])
    for name in ("absolute", "kneser_ney"):
        assert settings("smoother", name, discounts=0.5).build(2, vocabulary).values.tolist() == [[0.5], [0.5]]
        assert settings("smoother", name, discounts=[0, 1]).build(2, vocabulary).values.tolist() == [[0], [1]]
        assert settings("smoother", name, interpolate=False).build(2, vocabulary).combination is Combination.backed_off
        with pytest.raises(UserError, match=r"smoother\.discounts=\[0.5\]: must have one entry per order, 2 of"):
            settings("smoother", name, discounts=[0.5]).build(2, vocabulary)
    modified = settings("smoother", "modified_kneser_ney", discounts=[[0.5, 1, 1.5]] * 2, kenlm_compatible=False)
    assert modified.build(2, vocabulary).values[:, 1:].tolist() == [[0.5, 1, 1.5]] * 2
    laplace = settings("smoother", "laplace", alpha=0.5).build(1, vocabulary)
    assert laplace.values.tolist() == [[0.5]] and laplace.types == 4  # a, b, </s>, <unk>
    assert settings("smoother", "laplace", alpha="tuned").build(1, vocabulary).values.tolist() == [[1.0]]
    mercer = settings("smoother", "jelinek_mercer", lambdas=[0.3, 0.7], count_buckets=2).build(2, vocabulary)
    assert mercer.values.tolist() == [[0.3, 0.3], [0.7, 0.7]]
    given = settings("smoother", "pitman_yor", strengths=[1, 2], discounts=0.5)
    assert given.build(2, vocabulary).values.tolist() == [[1, 0.5], [2, 0.5]] and given.tuning_split() is None
    assert settings("smoother", "good_turing", gt_max=3).build(3, vocabulary).gt_max == [1, 3, 3]
    assert settings("smoother", "stupid_backoff", alpha=0.3).build(3, vocabulary).alpha == 0.3


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("laplace", {"alpha": True}, r"smoother\.alpha=true"),
        (
            "jelinek_mercer",
            {"lambdas": [1.5]},
            r"smoother\.lambdas=\[1\.5\]: must be tuned, or a list of one number per",
        ),
        ("absolute", {"discounts": 2}, r"smoother\.discounts=2: must be null, tuned, a number from 0 to 1"),
        ("kneser_ney", {"discounts": []}, r"smoother\.discounts=\[\]"),
        ("modified_kneser_ney", {"discounts": [[0.5, 1]]}, r"smoother\.discounts=\[0\.5, 1\]"),
        ("modified_kneser_ney", {"discounts": [[0.5, 1, 4]]}, r"smoother\.discounts=\[0\.5, 1, 4\]"),
        ("pitman_yor", {"strengths": -1}, r"smoother\.strengths=-1: must be tuned, a number from 0 to 1000, or a list"),
        ("pitman_yor", {"discounts": 2}, r"smoother\.discounts=2: must be null, a number from 0 to 1, or a list"),
    ],
)
def test_values_out_of_range_are_named(name: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings("smoother", name, **changes)


def test_cloze_questions_with_the_counts_of_their_candidates() -> None:
    text, vocabulary = text_of(["a b", "a b", "a c"])
    counts = count_ngrams(text, vocabulary, 2)
    contexts, candidates = np.array([[0], [0]]), np.array([[1, 2], [1, 3]])
    given = settings("smoother", "witten_bell", local_cloze=True)
    assert given.scores_candidates_alone()
    # b and c: unigrams (2 + 2/2) / (3 + 2) = 3/5; after a: (2 + 2 (3/5)) / (3 + 2) = 16/25. b and </s>, seen 2 and 3
    # times: (2 + 1) / (5 + 2) = 3/7; after a only b was seen, twice: (2 + 3/7) / 3 = 17/21.
    p = np.exp(given.cloze_log_prob(counts, contexts, candidates))
    np.testing.assert_allclose(p, [[16 / 25, 9 / 25], [17 / 21, 4 / 21]])
    # Words out of vocabulary are one candidate, seen twice: a (2 + 2/3) / (4 + 2) = 4/9, 5/9 are shared by two.
    two = Vocabulary(("a", "<unk>", "</s>", "<s>"), np.array([2, 2, 1, 0]), 2, 1)
    counts = count_ngrams(Text(np.array([0, 1, 0, 1, 2]), np.array([0, 5])), two, 1)
    p = np.exp(given.cloze_log_prob(counts, np.empty((1, 0), dtype=np.int64), np.array([[1, 0, 1]])))
    np.testing.assert_allclose(p, [[5 / 18, 4 / 9, 5 / 18]])
    with pytest.raises(UserError, match="smoother=mle does not score candidates"):
        settings("smoother", "mle").cloze_log_prob(counts, contexts, candidates)


def test_counts_are_kept_beside_the_store(toy: Corpus, tmp_path: Path) -> None:
    given = settings("counts", "sorted", memory="64MiB", keep=False)
    path = counts_path(toy.path)
    path.unlink(missing_ok=True)
    storage = given.storage(toy)
    assert storage.memory is None  # so few tokens fit
    counts = given.count(toy, 3, storage)
    assert counts.order == 3 and not path.exists()
    kept = replace(given, keep=True)
    assert kept.count(toy, 3, storage).trie.sizes == counts.trie.sizes and path.exists()
    assert kept.count(toy, 2, storage).trie.sizes == counts.trie.sizes[:2]
    path.unlink()
    assert settings("counts", "sorted", memory=None).storage(toy).memory is None
    with pytest.raises(UserError, match=r"counts\.memory=10: must be 64KiB or more"):
        settings("counts", "sorted", memory="10")

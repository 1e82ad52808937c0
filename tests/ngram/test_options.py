"""The options of the groups smoother, counts and model=ngram: their settings, and what these build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lmtool.config.rules import field_rules
from lmtool.config.settings import saved_settings, settings_as_json
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.files.hdf5 import counts_path
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.smoothers.base import Form
from tests.ngram.plain import random_sentences, text_of
from tests.options import SMOOTHERS, settings, settings_of, written


@pytest.mark.parametrize("name", SMOOTHERS)
def test_each_smoother_is_built_from_its_settings(name: str) -> None:
    text, vocabulary = text_of(random_sentences(1))
    given = settings_of("smoother", name)
    assert saved_settings(settings_as_json(given), "smoother") == given
    smoother = given.build(3, vocabulary)
    assert len(smoother.values) == 3
    table = estimate(count_ngrams(text, vocabulary, 3), smoother)
    assert table.normalized == smoother.normalized == (smoother.form is not Form.scores) == (name != "stupid_backoff")
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
        assert settings("smoother", name, interpolate=False).build(2, vocabulary).form is Form.backed_off
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

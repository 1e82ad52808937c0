"""Quantiles, tables and journals of the scores of texts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmtool.config.data import Unit
from lmtool.data.table_writer import require_table, write_table
from lmtool.data.text_form import TextForm
from lmtool.data.text_records import blocks_of
from lmtool.data.text_rules import TextRules
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.evaluation import text_scores
from lmtool.evaluation.score_table import DECIMALS, Buckets, quantiles, score_columns
from lmtool.evaluation.text_scores import (
    TEXT,
    TWO,
    ScoreJournal,
    ScoringModel,
    TextsScorer,
    criterion,
    differences,
    perplexities,
    scores_of,
    sums,
)
from tests.commands.test_ensemble import Fixed

ROWS = np.array([(3, 1, -3 * math.log(4)), (0, 0, 0.0), (2, 0, -2 * math.log(10)), (1, 1, -math.inf)], dtype=TEXT)


def test_figures_by_hand() -> None:
    assert perplexities(ROWS)[[0, 2, 3]] == pytest.approx([4, 10, math.inf]) and np.isnan(perplexities(ROWS)[1])
    two = np.array([(2, 0, -4.0, 1, -5.0), (0, 0, 0, 0, 0), (1, 0, -math.inf, 0, -math.inf)], dtype=TWO)
    assert differences(two)[0] == -0.5, "the cross-entropies are 2 and 2.5 nats"
    assert np.isnan(differences(two)[1:]).all()
    assert sums(np.array([1.0, 2.0, 4.0]), np.array([0, 0, 2, 2, 3, 3])).tolist() == [0, 3, 0, 4, 0]


def model_of(words: str, table: list[list[float]], **form: Any) -> ScoringModel:
    """Return a model that reads only the last word, over these words, `<unk>`, `</s>` and `<s>`."""
    known = (*words.split(), "<unk>", "</s>", "<s>")
    vocabulary = Vocabulary(known, np.ones(len(known), dtype=np.int64), len(known) - 2, len(known) - 3)
    return ScoringModel(Fixed(table, 1), TextForm(vocabulary, **form), f"runs/{len(words)}")


# p of a, <unk> and </s>, other than at the beginning, and there.
IN = model_of("a", [[0.25, 0.25, 0.5]] * 3 + [[0.5, 0.125, 0.375]])
OUT = model_of("a b", [[0.25, 0.25, 0.125, 0.375]] * 5)  # and of b
BLOCK = ["a b\n", "", "A\na\n"]


def test_scores_by_one_model_and_by_two() -> None:
    one, two = list(scores_of(BLOCK, TextsScorer(IN))), list(scores_of(BLOCK, TextsScorer(IN, OUT)))
    # a, then b as <unk>, then </s>; A as <unk> and </s>, a and </s>.
    first, last = math.log(0.5 * 0.25 * 0.5), math.log(0.125 * 0.5 * 0.5 * 0.5)
    first_out, last_out = math.log(0.25 * 0.25 * 0.375), math.log(0.125 * 0.375 * 0.25 * 0.375)
    assert [(x.tokens, x.oov) for x in one] == [(x.tokens, x.oov) for x in two] == [(3, 1), (0, 0), (4, 1)]
    assert [x.log_prob for x in one] == [x.log_prob for x in two] == pytest.approx([first, 0, last])
    assert [one[0].perplexity, one[2].perplexity] == pytest.approx([math.exp(-first / 3), math.exp(-last / 4)])
    assert one[1].perplexity is two[1].difference is one[0].difference is None
    assert [two[0].difference, two[2].difference] == pytest.approx([(first_out - first) / 3, (last_out - last) / 4])
    rows = TextsScorer(IN, OUT)(next(iter(blocks_of(BLOCK))))
    assert rows["oov"].tolist() == [1, 0, 1] and rows["oov_out"].tolist() == [0, 0, 1]  # b is a word of the second


def test_the_same_words_in_another_order_are_the_same_words() -> None:
    # p of a, b, <unk>, </s> after each; the ids of a vocabulary follow the counts of its train text.
    first, table = model_of("a b", [[0.5, 0.1, 0.2, 0.2]] * 5), [[0.1, 0.6, 0.2, 0.1], [0.3, 0.3, 0.2, 0.2]]
    ordered = model_of("a b", [*table, *[[0.4, 0.3, 0.2, 0.1]] * 3])
    swapped = model_of("b a", [[row[1], row[0], *row[2:]] for row in [table[1], table[0], *[[0.4, 0.3, 0.2, 0.1]] * 3]])
    scorers = TextsScorer(first, ordered), TextsScorer(first, swapped)
    assert scorers[0].same_words and scorers[1].same_words
    rows = [scorer(next(iter(blocks_of(["a b b\n", "b zzz a\n"])))) for scorer in scorers]
    assert rows[1].tolist() == rows[0].tolist()
    # a b b </s>: 0.4 0.6 0.3 0.2 by the second, 0.5 0.1 0.1 0.2 by the first.
    assert differences(rows[1])[0] == pytest.approx(math.log(0.4 * 0.6 * 0.3 / (0.5 * 0.1 * 0.1)) / 4)


@pytest.mark.parametrize("lowercase", [False, True])
def test_a_second_model_of_the_same_words_reads_its_own_case(lowercase: bool) -> None:
    second = model_of("a", [[0.25, 0.25, 0.5]] * 4, rules=TextRules(lowercase))
    scorer = TextsScorer(IN, second)
    assert scorer.same_words and not TextsScorer(IN, OUT).same_words and TextsScorer(IN).same_words
    rows = scorer(next(iter(blocks_of(["A"]))))
    assert (rows["oov"].tolist(), rows["oov_out"].tolist()) == ([1], [int(not lowercase)])
    assert criterion(rows) == pytest.approx(differences(rows)) != perplexities(rows)


@pytest.mark.parametrize("form", [{"unit": Unit.char}, {"tags": True}])
def test_models_that_cut_text_otherwise_are_not_compared(form: dict[str, bool]) -> None:
    with pytest.raises(UserError, match="runs/1 and runs/1 do not cut text into the same tokens"):
        TextsScorer(IN, model_of("a", [[1.0]], **form))


def test_a_model_that_learns_from_text_scores_none() -> None:
    dynamic = model_of("a b", [[1.0]])
    dynamic.model.dynamic = True
    for models in ([dynamic], [IN, dynamic]):
        with pytest.raises(UserError, match="runs/3 has a cache"):
            TextsScorer(*models)


def test_quantiles_by_hand(tmp_path: Path) -> None:
    """Of 1, 2, 3, 4: half of them are no larger than 2, three tenths no larger than 2, one quarter than 1."""
    values = np.array([3.0, np.nan, 1.0, 4.0, 2.0])
    assert quantiles([values[:2], values[2:]], [0.25, 0.3, 0.5, 0.99], tmp_path) == [1, 2, 2, 4]
    assert quantiles([values[1:2]], [0.5], tmp_path) == []


def test_quantiles_of_many_numbers_are_exact(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=1000) * 10.0 ** np.arange(-20, 20).repeat(25)
    values[::10] = np.inf
    values[5::10] = values[3]
    ordered = np.sort(values)
    for share in (0.001, 0.333, 0.5, 0.8, 0.999):
        (found,) = quantiles(np.array_split(values, 7), [share], tmp_path)
        assert found == ordered[math.ceil(share * 1000 - 1e-9) - 1]


def test_a_table_by_hand(tmp_path: Path) -> None:
    # e^60 is 1.1420e26.
    large = np.array([(1, 0, -60.0), (1, 0, -math.log(99999.99996)), (1, 0, -math.log(8e20))], dtype=TEXT)
    buckets = Buckets(["low", "high"], [4.5])
    parts = [(None, {**score_columns(rows), "bucket": buckets.put(rows)}) for rows in (ROWS[:0], ROWS, large)]
    write_table(parts[0][1], f"{tmp_path}/t.tsv", parts[1:])
    assert (tmp_path / "t.tsv").read_text() == (
        "tokens\toov\tlog_prob_nats\tperplexity\tbucket\n"
        "3\t1\t-4.1589\t4.0000\tlow\n"
        "0\t0\t0.0000\t\t\n"
        "2\t0\t-4.6052\t10.0000\thigh\n"
        "1\t1\t-inf\tinf\thigh\n"
        "1\t0\t-60.0000\t1.1420e+26\thigh\n"
        "1\t0\t-11.5129\t100000.0000\thigh\n"
        "1\t0\t-48.1311\t8.0000e+20\thigh\n"
    )
    assert buckets.totals[:, 0].tolist() == [1, 5]


def test_tables_without_buckets_by_hand(tmp_path: Path) -> None:
    # 1e12 with four decimals would have 17 digits, of which float64 has 15.
    large = np.array([(1, 0, -math.log(10**12 - 0.5)), (1, 0, -math.log(8e11)), (0, 0, 0.0)], dtype=TEXT)
    write_table(score_columns(large[:2]), f"{tmp_path}/t.tsv", [(None, score_columns(large[2:]))])
    first, *rest = (tmp_path / "t.tsv").read_text().splitlines()[1:]
    assert first == "1\t0\t-27.6310\t1.0000e+12" and rest[1] == "0\t0\t0.0000\t"
    assert rest[0].startswith("1\t0\t-27.4079\t8") and float(rest[0].split("\t")[3]) == pytest.approx(8e11)
    two = np.array([(2, 1, -2 * math.log(4), 0, -2 * math.log(8)), (0, 0, 0, 0, 0)], dtype=TWO)
    write_table(score_columns(two), f"{tmp_path}/two.tsv", decimals=DECIMALS)
    assert (tmp_path / "two.tsv").read_text() == (
        "tokens\toov\tlog_prob_nats\tperplexity\toov_out\tperplexity_out\tdifference\n"
        "2\t1\t-2.7726\t4.0000\t0\t8.0000\t-0.693147\n"  # ln 4 - ln 8
        "0\t0\t0.0000\t\t0\t\t\n"
    )


@pytest.mark.parametrize(
    "name",
    ["a.tsv", "b/a.tsv.gz", "a.x.tsv.xz", "a.tsv.zst", "a.csv.gz", "a.parquet", "a.jsonl", "a.jsonl.zst"],
)
def test_names_of_tables(name: str) -> None:
    require_table(name)


@pytest.mark.parametrize("name", ["a", "a.gz", "tsv", "a.tsv.txt", "a.parquet.gz"])
def test_names_that_are_not_of_tables(name: str) -> None:
    with pytest.raises(UserError, match=f"to={name}: the suffix decides"):
        require_table(name)


def test_a_limit_is_the_end_of_its_bucket() -> None:
    values = np.array([(1, 0, 0.0), (1, 0, -math.log(2)), (1, 0, -math.log(2.1))], dtype=TEXT)
    assert Buckets(["a", "b", "c"], [1.0, 2.0]).put(values) == ["a", "b", "c"]


def test_a_table_in_parquet(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    columns = {**score_columns(ROWS), "bucket": Buckets(["low", "high"], [4.5]).put(ROWS)}
    write_table(columns, f"{tmp_path}/t.parquet")
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert rows[0] == {
        "tokens": 3,
        "oov": 1,
        "log_prob_nats": -3 * math.log(4),
        "perplexity": pytest.approx(4),
        "bucket": "low",
    }
    assert rows[1]["perplexity"] is None and rows[1]["bucket"] is None and rows[3]["perplexity"] == math.inf


def test_a_journal_is_resumed_at_what_was_saved(tmp_path: Path) -> None:
    folder = tmp_path / "partial"

    def cut_off(identity: object) -> tuple[int, int]:
        with pytest.raises(KeyboardInterrupt), ScoreJournal.open(folder, identity, TEXT) as journal:
            before = journal.blocks, journal.rows
            journal.add(ROWS, {})
            raise KeyboardInterrupt
        return before

    assert cut_off({"run": 1}) == (0, 0)
    with (folder / text_scores.ROWS).open("ab") as file:
        file.write(b"rows that came after the progress was saved")
    assert cut_off({"run": 1}) == (1, 4)
    assert cut_off({"run": 2}) == (0, 0), "other work"
    with ScoreJournal.open(folder, {"run": 2}, TEXT) as journal:
        journal.add(ROWS[:1], {})
        journal.finish()
        ((rows, _),) = journal.parts()
        assert rows.tolist() == [*ROWS.tolist(), *ROWS[:1].tolist()]
        with pytest.raises(UserError, match="in use by"), ScoreJournal.open(folder, {"run": 2}, TEXT):
            pass
    assert not folder.exists()

"""What runs on Spark's workers, and the counts that the driver makes of it, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from lmtool.config.settings import data_settings
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import count_ngrams, first_places_of, kenlm_ranks
from lmtool.ngram.tables.storage import Storage

pa = pytest.importorskip("pyarrow", reason="needs pyarrow (pip install lmtool[spark])")

from pyarrow.dataset import dataset  # noqa: E402

from lmtool.ngram.spark import _tasks  # noqa: E402
from lmtool.ngram.spark.run import assemble_counts  # noqa: E402


def text() -> list[str]:
    """Sentences of 1 to 12 words, some very frequent; the last is of one word that stands nowhere else."""
    random = np.random.default_rng(3)
    words = [f"w{k}" for k in range(40)]
    p = 1.0 / np.arange(1, 41)
    lines = [" ".join(random.choice(words, random.integers(1, 13), p=p / p.sum())) for _ in range(300)]
    return [*lines, "w1 <unk> w0", "w1 w0 last"]


LINES = text()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    folder = tmp_path_factory.mktemp("spark-tasks")
    with Corpus.from_texts(LINES, ["w1 w2"], store_dir=folder) as corpus:
        yield corpus


def batch_of(lines: list[str]) -> pa.RecordBatch:
    """Lines of one file, as Spark gives them to a task."""
    size = len(lines)
    columns = [pa.array(lines), pa.array([0] * size), pa.array(["file"] * size), pa.array([0] * size)]
    return pa.RecordBatch.from_arrays(columns, names=_tasks.RECORDS)


def counted(corpus: Corpus, order: int) -> pa.Table:
    """Return the sorted n-grams of a text that three tasks count, so that an n-gram may occur in each of them."""
    task = _tasks.count_in_pieces(data_settings(corpus.provenance), corpus.vocabulary, order)
    pieces = [batch for a, b in pairwise((0, 100, 101, len(LINES))) for batch in task(iter([batch_of(LINES[a:b])]))]
    return pa.Table.from_batches(pieces).sort_by([(name, "ascending") for name in _tasks.ngram_columns(order)])


class Counted:
    """A corpus whose train split was counted by Spark: what assembling its counts asks of it."""

    def __init__(self, corpus: Corpus, tokens: int | None = None) -> None:
        self.vocabulary, self._tokens = corpus.vocabulary, tokens or corpus.tokens("train")
        self.first_places = kenlm_ranks(
            first_places_of(corpus.split("train").ids, len(corpus.vocabulary)), corpus.vocabulary
        )

    def tokens(self, name: str) -> int:
        return self._tokens


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize("partitions", [1, 4])
def test_the_counts_are_those_that_are_made_here(corpus: Corpus, order: int, partitions: int) -> None:
    here = count_ngrams(corpus.split("train"), corpus.vocabulary, order)
    rows = counted(corpus, order)
    part = rows["w1"].to_numpy() * partitions // len(corpus.vocabulary)
    done = [
        batch
        for number in range(partitions)  # batches so small that an n-gram's rows fall into two of them
        for batch in _tasks.add_up(order)(iter(rows.filter(pa.array(part == number)).to_batches(max_chunksize=100)))
    ]
    got = assemble_counts(dataset(done), Counted(corpus), order, Storage())
    for ours, theirs in zip(here.trie.nodes, got.trie.nodes, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(here.suffix + here.count, got.suffix + got.count, strict=True):
        assert ours.width == theirs.width
        np.testing.assert_array_equal(ours.bits, theirs.bits)
    np.testing.assert_array_equal(here.newest, got.newest)
    assert [corpus.vocabulary.words[word] for word in got.newest[-2:]] == ["w0", "last"][-min(2, order - 1) :]


def test_rows_of_another_text_are_refused(corpus: Corpus) -> None:
    rows = counted(corpus, 3)
    some = list(_tasks.add_up(3)(iter(rows.to_batches())))
    with pytest.raises(UserError, match=r"Spark counted [\d,]+ of 7 tokens with n-grams of order 2: the text"):
        assemble_counts(dataset(some), Counted(corpus, 7), 3, Storage())
    longer = pa.Table.from_batches(some)
    missing = longer.filter(pa.array((longer["k"].to_numpy() == 3) | (longer["w2"].to_numpy() != 0)))
    tokens = int(missing["count"].to_numpy()[missing["k"].to_numpy() == 2].sum())
    with pytest.raises(UserError, match="an n-gram of order 3 without its parts"):
        assemble_counts(dataset(missing), Counted(corpus, tokens), 3, Storage())
    lost = longer.slice(0, len(longer) - 1)  # the rows are in order: one of order 3
    with pytest.raises(UserError, match=r"Spark counted [\d,]+ of [\d,]+ tokens with n-grams of order 3"):
        assemble_counts(dataset(lost), Counted(corpus), 3, Storage())


def test_types_with_their_first_places(corpus: Corpus) -> None:
    task = _tasks.count_types(data_settings(corpus.provenance))
    batches = [batch_of(["\ufeffb a", "", "b <unk> c"]), batch_of(["a a"])]
    rows = [row for batch in task(iter(batches)) for row in batch.to_pylist()]
    found = {row["word"]: (row["count"], row["place"]) for row in rows if row["what"] == _tasks.WORD}
    assert found == {"b": (2, 0), "a": (3, 1), "</s>": (3, 2), "<unk>": (1, 4), "c": (1, 5)}
    assert [row["count"] for row in rows if row["what"] == _tasks.EMPTY_LINES] == [1]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["a", "b <s> c"], "file, line 2: <s> is in the text"),
        (["a\nb", "b\n<s>", "c"], "file, record 2: <s> is in the text"),
        (["a\0b"], "file, line 1: a NUL byte"),
        (["a\0 \0b\0", "\0c\0"], "file, line 1: a NUL byte"),
        (["a", "\0"], "file, line 2: a document without data.column, or none at all"),
    ],
)
def test_text_that_cannot_be_counted_gives_a_row(corpus: Corpus, lines: list[str], said: str) -> None:
    (row,) = [
        row
        for batch in _tasks.count_types(data_settings(corpus.provenance))(iter([batch_of(lines)]))
        for row in batch.to_pylist()
    ]
    assert row["what"] == _tasks.PROBLEM and row["word"].startswith(said)


def test_records_that_cannot_be_counted_are_left_out(corpus: Corpus) -> None:
    data = replace(data_settings(corpus.provenance), on_error="skip")
    good, bad = ["w1 w2\nw2", "w3"], ["w9\n<s> w1", "\0", "w\0", "</s>"]
    both = [*bad[:1], good[0], *bad[1:], good[1]]

    def rows(task: _tasks.Task, records: list[str]) -> list[dict[str, Any]]:
        return [
            row for batch in task(iter([batch_of(records[:2]), batch_of(records[2:])])) for row in batch.to_pylist()
        ]

    found = rows(_tasks.count_types(data), both)
    problems = [row for row in found if row["what"] == _tasks.PROBLEM]
    assert [row for row in found if row not in problems] == rows(_tasks.count_types(data), good)
    assert sum(row["count"] for row in problems) == 4 and len(problems) == 3
    places = [row["word"].partition(":")[0] for row in problems]
    assert places == ["file, record 1", "file, line 3", "file, line 4"]
    counting = _tasks.count_in_pieces(data, corpus.vocabulary, 2)
    assert rows(counting, both) == rows(counting, good)

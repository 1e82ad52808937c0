"""What runs on Spark's workers, and what the driver makes of it, without Spark: as counting and estimating do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest

from lmtool.config.settings import data_settings
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import Counts, count_ngrams, unigram_counts
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.pruning.entropy import prune_by_entropy
from lmtool.ngram.smoothers.absolute_discounting import Absolute, KneserNey, ModifiedKneserNey
from lmtool.ngram.smoothers.base import Smoother
from lmtool.ngram.smoothers.good_turing import GoodTuring
from lmtool.ngram.smoothers.interpolation import JelinekMercer, WittenBell
from lmtool.ngram.smoothers.relative_frequencies import Laplace, MaximumLikelihood, StupidBackoff
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.storage import Storage

pa = pytest.importorskip("pyarrow", reason="needs pyarrow (pip install lmtool[spark])")

from lmtool.ngram.spark import _pruning, _shares, _tasks  # noqa: E402
from lmtool.ngram.spark._assemble import assemble_counts  # noqa: E402
from lmtool.ngram.spark._estimate import added_up, assembled, fit  # noqa: E402
from lmtool.ngram.spark._levels import levels  # noqa: E402

SMOOTHERS: dict[str, Callable[[int, int], Smoother]] = {
    "modified_kneser_ney": lambda n, v: ModifiedKneserNey(n),
    "modified, not like KenLM": lambda n, v: ModifiedKneserNey(n, kenlm_compatible=False),
    "modified, backed off": lambda n, v: ModifiedKneserNey(n, interpolate=False),
    "kneser_ney": lambda n, v: KneserNey(n),
    "absolute": lambda n, v: Absolute(n),
    "witten_bell": lambda n, v: WittenBell(n),
    "witten_bell, backed off": lambda n, v: WittenBell(n, interpolate=False),
    "good_turing": lambda n, v: GoodTuring(n, gt_max=5, gt_max_unigram=1),
    "jelinek_mercer": lambda n, v: JelinekMercer(n, classes=3, lambdas=[0.4] * n),
    "laplace": lambda n, v: Laplace(n, alpha=0.1, types=v - 1),
    "mle": lambda n, v: MaximumLikelihood(n),
    "stupid_backoff": lambda n, v: StupidBackoff(n, alpha=0.4),
}


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


class Sparkless:
    """The steps of lmtool.ngram.spark.run, each in this process."""

    def __init__(self, corpus: Corpus, order: int, partitions: int, frequent: list[int]) -> None:
        self.order, self.vocabulary, self.bos = order, corpus.vocabulary, corpus.vocabulary.bos
        self.unigrams = unigram_counts(corpus.vocabulary)
        self.frequent = np.array(frequent, dtype=np.int64)
        split = corpus.split("train")
        firsts = [int(np.flatnonzero(split.ids == w)[0]) if (split.ids == w).any() else -1 for w in range(self.bos)]
        ranks = np.argsort(np.argsort(np.where(np.array(firsts) < 0, -1, firsts), kind="stable"), kind="stable")
        self.numbers = np.append(np.where(np.array(firsts) < 0, -1, ranks), -1)
        self.numbers[self.vocabulary.eos] = -1
        task = _tasks.count_in_pieces(data_settings(corpus.provenance), corpus.vocabulary, order, self.frequent)
        # Three tasks count the text: one n-gram may be counted in each of them.
        made = [batch for a, b in pairwise((0, 100, 101, len(LINES))) for batch in task(iter([self.lines(LINES[a:b])]))]
        self.partitions = []
        for part in range(partitions):
            mine = [batch.filter(pa.array(batch.column("key").to_numpy() % partitions == part)) for batch in made]
            self.partitions.append([batch.drop_columns(["key"]) for batch in mine])

    @staticmethod
    def lines(lines: list[str]) -> pa.RecordBatch:
        size = len(lines)
        columns = [pa.array(lines), pa.array([0] * size), pa.array(["file"] * size), pa.array([0] * size)]
        return pa.RecordBatch.from_arrays(columns, names=_tasks.LINES)

    def each(self, task: _tasks.Task) -> list[pa.RecordBatch]:
        return [row for part in self.partitions for row in task(iter(part))]

    def in_order(self, batches: list[pa.RecordBatch], size: int = 100) -> list[pa.RecordBatch]:
        """Sorted, in batches so small that an n-gram's rows fall into two of them."""
        if not batches:  # all were pruned
            return []
        keys = [(name, "ascending") for name in ("k", *_tasks.ngram_columns(self.order))]
        return list(pa.Table.from_batches(batches).sort_by(keys).to_batches(max_chunksize=size))

    def counts(self) -> Counts:
        rows = self.in_order(self.each(_tasks.count_orders(self.order, self.bos)))
        sizes = {k: sum(int((row.column("k").to_numpy() == k).sum()) for row in rows) for k in range(2, self.order + 1)}
        return assemble_counts(iter(rows), sizes, self.unigrams, self.numbers, self.order, Storage())

    def fitted(
        self, smoother: Smoother, unigrams: Counts, cutoffs: list[int] | None, prunes: bool = False
    ) -> tuple[_shares.Estimation, list[pa.RecordBatch]]:
        """The fitted model and all rows of its estimates."""
        spread = np.zeros(self.bos + 1, dtype=bool)
        spread[self.frequent] = self.order > 2
        rows = self.each(_shares.sums(self.order, self.bos, self.numbers, spread, smoother.counting))
        table = pa.Table.from_batches(rows).group_by(["what", "a", "b"]).aggregate([("x", "sum"), ("y", "sum")])
        added = table.rename_columns(["what", "a", "b", "x", "y"]).to_batches(max_chunksize=50)
        found = added_up(iter(added), self.order, self.bos, self.numbers, smoother.counting)
        assert found.tokens == self.vocabulary.counts.sum()
        model, spread_rows = fit(found, smoother, unigrams, self.order, cutoffs, spread, prunes=prunes)
        return model, self.each(model.task()) + spread_rows

    def table(self, smoother: Smoother, unigrams: Counts, cutoffs: list[int] | None) -> BackoffTable:
        model, rows = self.fitted(smoother, unigrams, cutoffs)
        return self.delivered(rows, model)

    def delivered(self, batches: list[pa.RecordBatch], model: _shares.Estimation) -> BackoffTable:
        rows = self.in_order(batches)
        kept = [(row.column("k").to_numpy(), row.column("p").is_valid().to_numpy(zero_copy_only=False)) for row in rows]
        sizes = {k: sum(int(((ks == k) & valid).sum()) for ks, valid in kept) for k in range(2, self.order + 1)}
        return assembled(iter(rows), sizes, model, Storage())

    def together(self, batches: list[pa.RecordBatch], *names: str) -> list[list[pa.RecordBatch]]:
        """Batches in three partitions, those with equal columns in one."""
        parts = [sum(batch.column(name).to_numpy() * 7 for name in names) % 3 for batch in batches]
        return [
            [batch.filter(pa.array(part == n)) for batch, part in zip(batches, parts, strict=True)] for n in range(3)
        ]

    def pruned(
        self, smoother: Smoother, unigrams: Counts, cutoffs: list[int] | None, thresholds: list[float]
    ) -> list[BackoffTable]:
        """The models that entropy pruning with each threshold leaves."""
        model, rows = self.fitted(smoother, unigrams, cutoffs, prunes=True)
        spread = model.is_spread
        made = []
        for threshold in thresholds:
            keep = _pruning.keep(self.order, threshold, model.unigrams, self.vocabulary.eos, spread)
            kept = [row for part in self.together(rows, "w1", "w2") for row in keep(iter(part))]
            two = [row.filter(pa.array(row.column("k").to_numpy() == 2)) for row in kept]
            pairs = _pruning.KeptPairs.of(_pruning.pairs_after(spread)(iter(two)))
            weigh = _pruning.weigh(self.order, model.unigrams, pairs)
            done = [row for part in self.together(kept, "key") for row in weigh(iter(part))]
            made.append(self.delivered(done, model))
        return made


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize(("partitions", "frequent"), [(1, []), (3, []), (4, [0, 1, 2])])
def test_the_model_is_the_one_that_is_made_here(
    corpus: Corpus, order: int, partitions: int, frequent: list[int]
) -> None:
    here = count_ngrams(corpus.split("train"), corpus.vocabulary, order)
    spark = Sparkless(corpus, order, partitions, frequent)
    got = spark.counts()
    for ours, theirs in zip(here.trie.nodes, got.trie.nodes, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(here.suffix + here.count, got.suffix + got.count, strict=True):
        assert ours.width == theirs.width
        np.testing.assert_array_equal(ours.bits, theirs.bits)
    np.testing.assert_array_equal(here.newest, got.newest)
    assert [corpus.vocabulary.words[word] for word in got.newest[-2:]] == ["w0", "last"][-min(2, order - 1) :]
    for name, make in SMOOTHERS.items():
        for cutoffs in (None, [0] * (order - 1) + [1]):
            want = estimate(here, make(order, len(corpus.vocabulary)), cutoffs=cutoffs)
            table = spark.table(make(order, len(corpus.vocabulary)), here.upto(1), cutoffs)
            assert (table.sizes, table.unseen, table.missing, table.notes) == (
                want.sizes, want.unseen, want.missing, want.notes,
            ), name  # fmt: skip
            np.testing.assert_array_equal(table.log_prob, want.log_prob, err_msg=f"{name} {cutoffs}")
            np.testing.assert_array_equal(table.log_backoff, want.log_backoff, err_msg=f"{name} {cutoffs}")


@pytest.mark.parametrize(
    ("order", "partitions", "frequent"), [(2, 3, []), (3, 4, [0, 1, 2]), (5, 1, []), (5, 4, [0, 1, 2])]
)
def test_what_entropy_pruning_leaves_is_what_it_leaves_here(
    corpus: Corpus, order: int, partitions: int, frequent: list[int]
) -> None:
    here = count_ngrams(corpus.split("train"), corpus.vocabulary, order)
    spark = Sparkless(corpus, order, partitions, frequent)
    thresholds = [1e-6, 3e-4, 0.5]
    for name in ("modified_kneser_ney", "witten_bell, backed off"):
        for cutoffs in (None, [0] * (order - 1) + [1]):
            whole = estimate(here, SMOOTHERS[name](order, len(corpus.vocabulary)), cutoffs=cutoffs)
            smoother = SMOOTHERS[name](order, len(corpus.vocabulary))
            found = spark.pruned(smoother, here.upto(1), cutoffs, thresholds)
            for threshold, table in zip(thresholds, found, strict=True):
                want = prune_by_entropy(whole, threshold, corpus.vocabulary.eos)
                assert table.sizes == want.sizes, (name, cutoffs, threshold)
                for ours, theirs in zip(table.trie.nodes, want.trie.nodes, strict=True):
                    np.testing.assert_array_equal(ours, theirs)
                np.testing.assert_array_equal(table.log_prob, want.log_prob)
                np.testing.assert_array_equal(table.log_backoff, want.log_backoff)


def rows(k: int, words: list[list[int]], **values: list[float]) -> pa.RecordBatch:
    """3-grams and 2-grams of one order with their values."""
    columns = [np.array(column) for column in zip(*words, strict=True)]
    return _tasks.rows_of(k, columns, 3, {name: pa.array(column) for name, column in values.items()})


def test_what_is_worth_keeping_by_hand() -> None:
    """a = 0, b = 1, </s> = 2, <s> = 3; what stays changes perplexity by .04 or more, as exp(.05) - 1 = .051 is."""
    unigrams = np.array([0.5, 0.25, 0.25, 0])  # p(<s>) of contexts is that of </s>
    # p(a) = .5 times .1 stays and p(<s>) = .25 times .2; p(b) times .1 goes, but for b a, the context of b a a.
    two = rows(2, [[3, 0], [1, 1], [0, 1], [1, 0]], p=[0.5, 0.5, 0.4, 0.4], divergence=[-0.2, -0.1, -0.1, -0.1])
    # p(a b) = .2 times .1 goes, p(<s> a) = .125 times .3 goes, p(b a) = .1 times .5 stays.
    three = rows(3, [[0, 1, 0], [3, 0, 0], [1, 0, 0]], p=[0.5, 0.5, 0.5], divergence=[-0.1, -0.3, -0.5])
    keep = _pruning.keep(3, 0.04, unigrams, 2, np.array([True, False, False, False]))
    kept = {
        tuple(row[name] for name in ("w1", "w2", "w3")): (row["p"], row["key"])
        for batch in keep(iter([three, two]))
        for row in batch.to_pylist()
    }
    # The key: the word before the last times V + 1; after a, which is frequent, plus the word before it, plus 1.
    assert kept == {(3, 0, -1): (0.5, 15), (0, 1, -1): (0.4, 0), (1, 0, -1): (0.4, 5), (1, 0, 0): (0.5, 2)}
    with pytest.raises(UserError, match="came without its context"):
        list(keep(iter([three])))


@pytest.mark.parametrize("is_spread", [False, True])
def test_weights_of_what_is_kept_by_hand(is_spread: bool) -> None:
    """a = 0, b = 1, c = 2, <s> = 3; a b, b a and a b c are kept, b c is gone."""
    unigrams = np.array([0.5, 0.25, 0.125, 1])
    two, three = rows(2, [[0, 1], [1, 0]], p=[0.5, 0.7]), rows(3, [[0, 1, 2]], p=[0.6])
    spread = np.array([False, is_spread, False, False])
    pairs = _pruning.KeptPairs.of(_pruning.pairs_after(spread)(iter([two])))
    found = list(_pruning.weigh(3, unigrams, pairs)(iter([three, two])))
    weight = {(row["w1"], row["w2"]): row["weight"] for batch in found for row in batch.to_pylist() if row["p"] is None}
    # a: (1 - .5) / (1 - .25). b: (1 - .7) / (1 - .5) = .6, so that p(c|b) = .6 .125. a b: (1 - .6) / (1 - .075).
    assert weight == pytest.approx({(0, -1): 2 / 3, (1, -1): 0.6, (0, 1): 0.4 / 0.925}, rel=1e-6)
    p = [(row["w1"], row["w2"], row["w3"], row["p"]) for batch in found for row in batch.to_pylist() if row["p"]]
    assert sorted(p) == [(0, 1, -1, 0.5), (0, 1, 2, 0.6), (1, 0, -1, 0.7)]


def test_types_with_their_first_places(corpus: Corpus) -> None:
    task = _tasks.count_types(data_settings(corpus.provenance))
    batches = [Sparkless.lines(["\ufeffb a", "", "b <unk> c"]), Sparkless.lines(["a a"])]
    rows = [row for batch in task(iter(batches)) for row in batch.to_pylist()]
    found = {row["word"]: (row["count"], row["place"]) for row in rows if row["what"] == _tasks.WORD}
    assert found == {"b": (2, 0), "a": (3, 1), "</s>": (3, 2), "<unk>": (1, 4), "c": (1, 5)}
    assert [row["count"] for row in rows if row["what"] == _tasks.EMPTY_LINES] == [1]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["a", "b <s> c"], "<s> is in the text (line 2 of this part)"),
        (["a\0b"], "line 1: a NUL byte"),
        (["a", "\0"], "a document without data.column, or none at all"),
    ],
)
def test_text_that_cannot_be_counted_gives_a_row(corpus: Corpus, lines: list[str], said: str) -> None:
    (row,) = [
        row
        for batch in _tasks.count_types(data_settings(corpus.provenance))(iter([Sparkless.lines(lines)]))
        for row in batch.to_pylist()
    ]
    assert (
        row["what"] == _tasks.PROBLEM
        and said in row["word"]
        and "file, in the piece that begins at byte 0" in row["word"]
    )


def test_levels_by_hand() -> None:
    """`<s> a b </s>` and `<s> b b </s>` as 3-grams: a = 0, b = 1, </s> = 2, <s> = 3."""
    grams = np.array([[3, 3, 0], [3, 0, 1], [0, 1, 2], [3, 3, 1], [3, 1, 1], [1, 1, 2]])
    top, pairs = levels(list(grams.T), np.ones(6, dtype=np.int64), 3)
    # By the context from its last word: (<s> a), (a b), (b b), (<s> b), (<s> <s>).
    assert np.stack(top.words).T.tolist() == [[3, 0, 1], [0, 1, 2], [1, 1, 2], [3, 1, 1], [3, 3, 0], [3, 3, 1]]
    assert top.real.tolist() == [True] * 4 + [False] * 2
    assert top.context.tolist() == [0, 1, 2, 3, 4, 4] and top.begins.tolist() == [0, 1, 2, 3, 4, 6]
    assert np.stack(pairs.words).T.tolist() == [[0, 1], [1, 1], [1, 2], [3, 0], [3, 1]]
    assert pairs.count.tolist() == [1, 1, 2, 1, 1] and pairs.preceding.tolist() == [1, 1, 2, 1, 1]
    assert top.shorter is not None and top.shorter.tolist() == [0, 2, 2, 1, 3, 4] and pairs.shorter is None


def test_the_newest_is_the_last_by_the_words_before_too() -> None:
    """Of the n-grams that end in word 2, which comes last in the text, the one whose word before came later."""
    grams = np.array([[9, 0, 1], [9, 1, 2], [9, 0, 2]])
    assert _tasks.newest_of(list(grams.T), np.array([0, 1, 2] + [-1] * 7)) == [9, 1, 2]
    assert _tasks.newest_of(list(grams[:1].T), np.array([0, 1, 2] + [-1] * 7)) is None

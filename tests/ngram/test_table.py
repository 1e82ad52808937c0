"""The table in its file, and the model that asks it: in batches, as running text, and as whole distributions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from lmtool.data.split import Split
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.files.hdf5 import map_array, open_table, save_table, write_array
from lmtool.ngram.models import ngram_model
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.query.scoring import TOKENS_PER_PIECE
from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
from lmtool.ngram.smoothers.relative_frequencies import StupidBackoff
from lmtool.ngram.tables.storage import Storage
from lmtool.system import parallel
from tests.ngram.plain import kneser_ney, random_sentences, text_of


def test_a_table_comes_back_from_its_file(tmp_path: Path) -> None:
    table, _, _ = kneser_ney(4, 60, 0)
    table = replace(table, notes=("this was done",), unseen=-3.5)
    path = tmp_path / "model.h5"
    save_table(table, path, "right")
    again = open_table(path, "right")
    for name in ("log_prob", "log_backoff"):
        assert np.array_equal(getattr(again, name), getattr(table, name))
    assert all(np.array_equal(a, b) for a, b in zip(again.trie.nodes, table.trie.nodes, strict=True))
    for name in ("bos", "unseen", "missing", "normalized", "suffix_closed", "notes", "sizes"):
        assert getattr(again, name) == getattr(table, name)


def test_damaged_tables_are_named(tmp_path: Path) -> None:
    table, _, _ = kneser_ney(4, 60, 0)
    path = tmp_path / "model.h5"
    with pytest.raises(UserError, match="is missing"):
        open_table(path, "right")
    save_table(table, path, "right")
    with pytest.raises(UserError, match="another vocabulary"):
        open_table(path, "wrong")
    whole = path.read_bytes()

    def spoil(name: str, values: np.ndarray | None, **attributes: object) -> None:
        path.write_bytes(whole)
        with h5py.File(path, "a") as file:
            if values is not None:
                del file[name]
                file[name] = values
            for key, value in attributes.items():
                file[name].attrs[key] = value

    sizes = np.cumsum([0, *table.sizes])
    for name, values, attributes in (
        ("log_prob", table.log_prob[:-1], {}),
        ("log_prob", table.log_prob.astype(np.float64), {}),
        ("log_backoff", table.log_backoff[:-1], {}),
        ("first", sizes[::-1].copy(), {}),
        ("first", sizes[:-1], {}),
        ("words", None, {"length": 3}),
        ("words", None, {"width": 63}),
        ("starts", np.zeros(0, dtype=np.uint64), {}),
        ("blocks", np.zeros(0, dtype=np.int64), {}),
        ("/", None, {"bos": 10**6}),
        ("/", None, {"unseen": "much"}),
    ):
        spoil(name, values, **attributes)
        with pytest.raises(UserError, match=r"model\.h5 is damaged or cut off"):
            open_table(path, "right")
    for length in (10, 3000, len(whole) - 100):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="cut off"):
            open_table(path, "right")


@pytest.mark.parametrize("bits", [None, 8])
def test_pointers_that_lead_nowhere_are_refused(bits: int | None, tmp_path: Path) -> None:
    table, _, _ = kneser_ney(4, 60, 0)
    table = table if bits is None else table.quantize(bits)
    rng, path = np.random.default_rng(0), tmp_path / "model.h5"
    save_table(table, path, "right")
    assert open_table(path, "right").sizes == table.sizes
    nodes = table.trie.nodes
    for name in ("unigram_starts", "starts", "words"):  # blocks, whose rows say where numbers are: test_quantized
        array = getattr(nodes, name)
        noise = rng.integers(-(2**62), 2**62, len(array)).astype(array.dtype)
        swapped = array.copy()  # a single start out of its order, a single word
        swapped[0] ^= swapped.dtype.type(3)
        for values in (noise, swapped):
            save_table(replace(table, trie=replace(table.trie, nodes=nodes._replace(**{name: values}))), path, "right")
            try:
                found = open_table(path, "right")
            except UserError as error:
                assert "is damaged or cut off" in str(error)
            else:  # a word of which another one was made
                assert name == "words" and values is swapped and found.trie.is_sound()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_running_text_equals_one_by_one(n: int, threads: int) -> None:
    parallel.use(threads)
    table, _, vocabulary = kneser_ney(n, 60, 0)
    # Longer than two pieces, with sentences of one token and one that a piece ends in.
    text, _ = text_of([*random_sentences(1, 40), "w1 " * (TOKENS_PER_PIECE + 100), *random_sentences(2, 900)])
    rng = np.random.default_rng(0)
    ids = rng.integers(0, len(vocabulary) - 1, len(text.ids))
    ids[: 2 * TOKENS_PER_PIECE] = text.ids[: 2 * TOKENS_PER_PIECE] % (len(vocabulary) - 1)
    for asked in (table, replace(table, suffix_closed=False), replace(table, missing=-0.75)):
        model = NgramModel(asked, vocabulary)
        split = Split(ids, text.offsets, np.empty(0, int), 0, vocabulary.bos)
        contexts = split.contexts(0, len(ids), n - 1)
        want = model.log_prob(contexts, ids)
        np.testing.assert_allclose(model.log_prob_text(ids, text.offsets), want, rtol=1e-13)
        dist = model.log_dist(contexts[:500])
        np.testing.assert_allclose(dist[np.arange(500), ids[:500]], want[:500], rtol=1e-12)
    parallel.use(None)


def test_the_longest_context_in_the_table_by_hand() -> None:
    text, vocabulary = text_of(["a b a", "c b"])
    for order, wanted in ((1, [0] * 5), (2, [1] * 5), (3, [2, 2, 1, 1, 2])):
        model = NgramModel(estimate(count_ngrams(text, vocabulary, order), StupidBackoff(order, alpha=0.5)), vocabulary)
        a, b, c, bos = 0, 1, 2, vocabulary.bos
        # a b and b a; not a c or a a; c after <s>.
        contexts = np.array([[a, b], [b, a], [a, c], [a, a], [bos, c]])[:, 3 - order :]
        assert model.context_lengths(contexts).tolist() == wanted
        if order > 1:  # <unk> was never seen, but the table has all words of the vocabulary
            assert model.context_lengths(contexts * 0 + vocabulary.unk).tolist() == [1] * 5


@pytest.mark.parametrize("used", [True, False])
def test_text_within_a_limit_of_memory(used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table, text, vocabulary = kneser_ney(3, 60, 0)
    model, asked, released = NgramModel(table, vocabulary), [], []
    monkeypatch.setattr(ngram_model, "LIMITED_PIECE", 40)
    monkeypatch.setattr(ngram_model, "is_nearly_used", lambda memory: bool(asked.append(memory)) or used)
    monkeypatch.setattr(ngram_model, "release", released.append)
    want = model.log_prob_text(text.ids, text.offsets)
    np.testing.assert_array_equal(model.log_prob_text(text.ids, text.offsets, 1 << 20), want)
    assert len(asked) > 3 and set(asked) == {1 << 20}
    assert len(released) == (len(asked) * len(table.arrays) if used else 0)


def test_missing_contexts_cost_what_they_cost() -> None:
    text, vocabulary = text_of(["a b", "a b", "a c"])
    model = NgramModel(estimate(count_ngrams(text, vocabulary, 3), StupidBackoff(3, alpha=0.5)), vocabulary)
    a, b, c = 0, 1, 2
    # c b was never seen, nor what follows b but </s>: 1/2 x 1/2 x 3/9 for a.
    np.testing.assert_allclose(np.exp(model.log_prob(np.array([[c, b]]), np.array([a]))), [1 / 12], rtol=1e-6)


def test_the_limit_of_memory_changes_nothing(tmp_path: Path) -> None:
    text, vocabulary = text_of(random_sentences(4, 3000))
    counts = count_ngrams(text, vocabulary, 4)
    free = estimate(counts, ModifiedKneserNey(4))
    tight = estimate(counts, ModifiedKneserNey(4), storage=Storage(1 << 16, tmp_path))
    assert np.array_equal(free.log_prob, tight.log_prob) and np.array_equal(free.log_backoff, tight.log_backoff)


def test_arrays_are_of_the_file_that_is_open(tmp_path: Path) -> None:
    """Another thread or process, such as a sweep over orders, may replace a file between opening and mapping it."""
    for name, values in (("a.h5", [1, 2, 3]), ("b.h5", [0, 0, 0])):
        with h5py.File(tmp_path / name, "w") as file:
            write_array(file, "x", np.array(values, dtype=np.int64))
    with h5py.File(tmp_path / "a.h5") as file:
        assert map_array(file["x"], np.int64).tolist() == [1, 2, 3]
        (tmp_path / "b.h5").replace(tmp_path / "a.h5")
        with pytest.raises(OSError, match="another file has replaced it while it was read"):
            map_array(file["x"], np.int64)

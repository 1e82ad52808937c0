"""The table in its file, quantized too, and the model that asks it: in batches, as text, and as distributions."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from lmtool.data.split import Split
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.files.arpa_model import write_arpa
from lmtool.ngram.files.hdf5 import map_array, open_table, save_table, write_array
from lmtool.ngram.models import ngram_model
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.pruning.entropy import prune_by_entropy
from lmtool.ngram.query.scoring import TOKENS_PER_PIECE
from lmtool.ngram.smoothers.relative_frequencies import StupidBackoff
from lmtool.ngram.tables.backoff import BackoffTable
from lmtool.ngram.tables.quantized import QuantizedValues, choose_levels, nearest_levels, quantize
from lmtool.ngram.tables.storage import Storage
from lmtool.ngram.tables.trie_search import NODES, pack_starts, require_within
from lmtool.system import parallel
from lmtool.system.checksums import seal
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
    for name in ("bos", "unseen", "missing", "normalized", "suffix_closed", "interpolated", "notes", "sizes"):
        assert getattr(again, name) == getattr(table, name)
    assert table.interpolated and not table.quantize(8).interpolated
    with h5py.File(path, "r+") as file:
        del file.attrs["interpolated"]  # as in files of versions before it
    content = path.read_bytes()
    path.write_bytes(re.sub(rb'"checksum": ?"[^"]{8}"', b'"checksum": "00000000"', content, count=1))
    seal(path)
    assert not open_table(path, "right").interpolated


def changes_of(table: BackoffTable) -> list[tuple[str, np.ndarray | None, dict[str, object]]]:
    """Return changes of a table's file: other values of a data set, or other attributes."""
    log_prob, nodes = table.log_prob, table.trie.nodes
    if isinstance(log_prob, QuantizedValues):
        return [
            ("log_prob/unigrams", np.zeros(1, dtype=np.float32), {}),
            ("log_prob/levels", log_prob.levels.reshape(-1)[:-1], {}),
            ("log_backoff/codes", None, {"length": 3}),
            ("log_backoff/codes", None, {"width": 4}),
            ("log_prob", np.zeros(9, dtype=np.float32), {}),
            ("blocks", nodes.blocks[:-2].copy(), {}),
            ("blocks", nodes.blocks + (1 << 40), {}),
            ("starts", nodes.starts[:-40].copy(), {}),
        ]
    sizes = np.cumsum([0, *table.sizes])
    return [
        ("log_prob", log_prob[:-1], {}),
        ("log_prob", log_prob.astype(np.float64), {}),
        ("log_backoff", table.log_backoff[:-1], {}),
        ("first", sizes[::-1].copy(), {}),
        ("first", sizes[:-1], {}),
        ("words", None, {"length": 3}),
        ("words", None, {"width": 63}),
        ("starts", np.zeros(0, dtype=np.uint64), {}),
        ("blocks", np.zeros(0, dtype=np.int64), {}),
        ("/", None, {"bos": 10**6}),
        ("/", None, {"unseen": "much"}),
    ]


@pytest.mark.parametrize("bits", [None, 5])
def test_damaged_tables_are_named(bits: int | None, tmp_path: Path) -> None:
    table, path = kneser_ney(4, 60 if bits is None else 400, 3)[0], tmp_path / "model.h5"
    table = table if bits is None else table.quantize(bits)
    with pytest.raises(UserError, match="is missing"):
        open_table(path, "right")
    save_table(table, path, "right")
    with pytest.raises(UserError, match="another vocabulary"):
        open_table(path, "wrong")
    whole = path.read_bytes()
    for name, values, attributes in changes_of(open_table(path, "right")):
        path.write_bytes(whole)
        with h5py.File(path, "a") as file:
            if values is not None:
                del file[name]
                file[name] = values
            for key, value in attributes.items():
                file[name].attrs[key] = value
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
    for name in ("unigram_starts", "starts", "words"):  # blocks: test_damaged_tables_are_named
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


def test_levels_by_hand() -> None:
    def levels(values: list[float], count: int) -> list[float]:
        return choose_levels(np.array(values, dtype=np.float32), count, Storage()).tolist()

    # Two bins of two: -7 and -1.5, between which no value changes sides.
    assert levels([-1, -2, -6, -8], 2) == [-7.0, -1.5]
    # Bins of three, [-9 -2 -1.5] and [-1 -1 -1]: the middle of their means is -2.58, so that -2 and -1.5 change sides.
    assert levels([-1, -1, -9, -2, -1.5, -1], 2) == [-9.0, -1.2999999523162842]
    assert levels([0, -4, 0, -2, -np.inf], 3) == [-np.inf, -3.0, 0.0]  # 0 and -inf have their own
    assert levels([-3, -1, -3, 0.5], 4) == [-3.0, -1.0, 0.5]  # no more than levels: as they are
    assert levels([], 4) == []
    with pytest.raises(ValueError, match="must be numbers"):
        levels([-1, np.nan], 2)
    chosen = np.array([-np.inf, -3, -1, 0], dtype=np.float32)
    values = np.array([-np.inf, -9, -2.1, -1.9, -0.01, 0, 0.5], dtype=np.float32)
    assert nearest_levels(values, chosen).tolist() == [0, 1, 1, 2, 2, 3, 2]  # only 0 itself becomes 0


def test_each_order_has_levels_of_its_own() -> None:
    values = np.array([-1.25, -2.5, -3, -4, -5, -6, -0.125], dtype=np.float32)
    found = quantize(values, [2, 4, 1], 4, Storage())
    assert found[:7].tolist() == values.tolist() and found[1:3].tolist() == [-2.5, -3.0]
    assert len(found) == 7 and found.levels[0, :4].tolist() == [-6, -5, -4, -3] and found.levels[1, 0] == -0.125
    assert found.codes[:5].tolist() == [3, 2, 1, 0, 0]


@pytest.mark.parametrize("bits", [4, 7, 8])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_scores_are_those_of_a_float32_table_with_these_values(n: int, bits: int) -> None:
    table, text, vocabulary = kneser_ney(n, 400, 3)
    small = table.quantize(bits)
    plain = replace(small.unpack(), trie=table.trie)
    one, two = NgramModel(small, vocabulary), NgramModel(plain, vocabulary)
    rng = np.random.default_rng(0)
    contexts = rng.integers(0, len(vocabulary), (300, n - 1))
    targets = rng.integers(0, len(vocabulary) - 1, 300)
    for _ in range(3):  # the third time by the hash table of 2-grams
        assert (one.log_prob_text(text.ids, text.offsets) == two.log_prob_text(text.ids, text.offsets)).all()
    assert (one.log_prob(contexts, targets) == two.log_prob(contexts, targets)).all()
    np.testing.assert_array_equal(one.log_dist(contexts), two.log_dist(contexts))
    assert (one.context_lengths(contexts) == two.context_lengths(contexts)).all()
    if n > 1:
        assert plain.log_prob[: len(vocabulary)].tolist() == table.log_prob[: len(vocabulary)].tolist()
        leaves = np.flatnonzero(table.log_backoff[: table.trie.first(n)] == 0)
        assert (small.log_backoff[: table.trie.first(n)][leaves] == 0).all() and len(leaves)


def test_distributions_sum_to_one_but_for_rounding() -> None:
    table, text, vocabulary = kneser_ney(4, 2000, 3)
    contexts = np.stack([text.ids[0:200], text.ids[1:201], text.ids[2:202]], axis=1)
    worst = {}
    for bits in (4, 6, 8):
        model = NgramModel(table.quantize(bits), vocabulary)
        worst[bits] = float(np.abs(np.log(np.exp(model.log_dist(contexts)).sum(axis=1))).mean())
    assert 0 < worst[8] < 0.005 and worst[8] < worst[6] / 2 and worst[6] < worst[4] / 2


def test_the_trie_finds_its_ngrams() -> None:
    # A first word with more children than a block has nodes, nodes without any, and a last block that is not full.
    text, vocabulary = text_of([f"a a w{i} b" for i in range(3 * NODES)] + ["a c", *random_sentences(1, 200)])
    trie = count_ngrams(text, vocabulary, 4).trie
    for k in range(1, 4):
        grams = trie.ngrams(k + 1, 0, trie.sizes[k])
        numbers = {tuple(gram): number for number, gram in enumerate(grams.tolist(), trie.first(k + 1))}
        assert trie.find(grams).tolist() == list(numbers.values())
        assert trie.find(grams[:, ::-1].copy()).tolist() == [numbers.get(tuple(g[::-1]), -1) for g in grams.tolist()]
        assert (trie.parents(k + 1, np.arange(trie.sizes[k])) == trie.contexts(k + 1)).all()


def test_starts_by_hand() -> None:
    starts = np.array([10, 11, 12, 13], dtype=np.int64)  # one child each: no bits at all
    blocks, bits = pack_starts(starts, Storage())
    assert blocks.tolist() == [10, 0] and not bits.any()
    starts = np.array([10, 10, 15], dtype=np.int64)  # less their place 10, 9, 13: base 9, and 1, 0, 4 in 3 bits
    blocks, bits = pack_starts(starts, Storage())
    assert blocks.tolist() == [9, 3] and int(bits[0]) == 1 | 0 << 3 | 4 << 6
    with pytest.raises(UserError, match="over 2 billion"):
        pack_starts(np.array([0, 1 << 40]), Storage())
    with pytest.raises(ValueError, match="too short"):
        require_within(np.array([0, 1 << 20 | 31]), bits, 3)


def test_quantized_files_come_back(tmp_path: Path) -> None:
    small = kneser_ney(4, 400, 3)[0].quantize(5)
    save_table(small, tmp_path / "model.h5", "right")
    again = open_table(tmp_path / "model.h5", "right")
    assert again.quantized_bits == 5 and again.notes == small.notes
    for name in ("log_prob", "log_backoff"):
        one, two = getattr(again, name), getattr(small, name)
        assert (one[:] == two[:]).all() and one.sizes == two.sizes
    assert all(np.array_equal(a, b) for a, b in zip(again.arrays, small.arrays, strict=True))


def test_what_reads_tables_reads_quantized_ones(tmp_path: Path) -> None:
    table, _, vocabulary = kneser_ney(3, 400, 3)
    small = table.quantize(6)
    plain = replace(small.unpack(), trie=table.trie)
    for name, each in (("small", small), ("plain", plain)):
        write_arpa(each, vocabulary, tmp_path / f"{name}.arpa")
        write_arpa(replace(each, missing=-0.5), vocabulary, tmp_path / f"{name}-missing.arpa")
    for kind in ("", "-missing"):
        assert (tmp_path / f"small{kind}.arpa").read_bytes() == (tmp_path / f"plain{kind}.arpa").read_bytes()
    one, two = (prune_by_entropy(each, 1e-4, vocabulary) for each in (small, plain))
    assert one.sizes == two.sizes and np.array_equal(one.log_prob[:], two.log_prob[:])
    with pytest.raises(UserError, match="quantized already, to 6 bits"):
        small.quantize(8)


def test_the_limit_of_memory_changes_nothing(tmp_path: Path) -> None:
    table, _, _ = kneser_ney(4, 3000, 3)
    free, tight = table.quantize(8), table.quantize(8, Storage(1 << 16, tmp_path))
    assert all(np.array_equal(a, b) for a, b in zip(free.arrays, tight.arrays, strict=True))

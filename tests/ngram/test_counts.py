"""Packed numbers, the trie and the counts: against plain forms, in memory and in files."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmtool.config.rules import size_in_bytes
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.ngram.counting import counts as counts_module
from lmtool.ngram.counting import occurrences as occurrences_module
from lmtool.ngram.counting.counts import Counts, count_ngrams
from lmtool.ngram.counting.sorting import sort_keys
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.files.hdf5 import open_counts, save_counts
from lmtool.ngram.models import ngram_model as model_module
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
from lmtool.ngram.tables import storage as storage_module
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.storage import Storage
from lmtool.ngram.tables.trie import TrieBuilder
from lmtool.system import parallel
from lmtool.system import process as memory_module
from lmtool.system.arrays import release
from lmtool.system.process import memory_resident
from tests.ngram.plain import Plain, Text, random_sentences, text_of


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**62), max_size=200), st.integers(1, 62), st.integers(0, 200))
def test_packed_numbers_come_back(values: list[int], width: int, cut: int) -> None:
    array = np.array([value % 2**width for value in values], dtype=np.int64)
    packed = Packed.zeros(len(array), 2**width - 1)
    packed.put(0, array[:cut])
    packed.put(len(array[:cut]), array[cut:])
    assert packed.width == width
    assert (packed[:] == array).all()
    assert (packed[len(array) // 3 :] == array[len(array) // 3 :]).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 2**40 - 1), max_size=300), st.integers(1, 3))
def test_radix_sort_is_stable_and_sorts(values: list[int], threads: int) -> None:
    parallel.use(threads)
    keys = np.array(values, dtype=np.uint64)
    found, where = sort_keys(keys.copy(), np.arange(len(keys), dtype=np.uint32), 40)
    order = np.argsort(keys, kind="stable")
    assert (where == order).all() and (found == keys[order]).all()
    parallel.use(None)


def grams_of(counts: Counts) -> list[dict[tuple[int, ...], int]]:
    """Every n-gram of every order with its count, read off the trie from its first word on."""
    trie = counts.trie
    found: list[dict[tuple[int, ...], int]] = []
    names: list[tuple[int, ...]] = [(word,) for word in range(trie.vocabulary_size)]
    found.append(dict(zip(names, counts.count[0][:].tolist(), strict=True)))
    for k in range(2, counts.order + 1):
        begins = trie.begins(k - 1, 0, trie.sizes[k - 2])
        words = trie.words(k, 0, trie.sizes[k - 1])
        longer = [
            (*names[c], int(word))
            for c in range(len(names))
            for word in words[begins[c] : begins[c + 1]]
        ]  # fmt: skip
        found.append(dict(zip(longer, counts.count[k - 1][:].tolist(), strict=True)))
        rows = {name: row for row, name in enumerate(names)}
        assert [rows[name[1:]] for name in longer] == counts.suffix[k - 2][:].tolist()
        assert [rows[name[:-1]] for name in longer] == trie.parents(k, np.arange(len(longer))).tolist()
        starts = [name[0] == counts.bos for name in longer]
        assert starts == [row >= counts.from_start(k) for row in range(len(longer))]
        names = longer
    return found


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_counts_equal_the_plain_ones(n: int, threads: int) -> None:
    parallel.use(threads)
    text, vocabulary = text_of(random_sentences(3))
    counts = count_ngrams(text, vocabulary, n)
    plain = Plain(text, vocabulary, n)
    found = grams_of(counts)
    assert {gram: count for gram, count in found[0].items() if count} == dict(plain.raw[1])
    for k in range(2, n + 1):
        assert found[k - 1] == dict(plain.raw[k])
    parallel.use(None)


@pytest.mark.parametrize(
    ("sentences", "n", "newest"),
    [
        (["a b", "c b"], 1, ""),  # no lower orders
        (["a b", "c b"], 3, "<s> c"),  # c is the last to be seen for the first time
        (["a b", "b b a b c c", "a a b c"], 2, "c"),
        (["a b", "b b a b c c", "a a b c"], 3, "c c"),  # of b c and c c
        (["a b", "b b a b c", "a a b c"], 5, "b a b c"),  # of b a b c and a a b c
        (["a"], 4, "<s> a"),  # </s> comes first by KenLM's numbers
    ],
)
def test_the_ngram_that_kenlm_comes_to_last(sentences: list[str], n: int, newest: str) -> None:
    text, vocabulary = text_of(sentences)
    assert " ".join(vocabulary.words[k] for k in count_ngrams(text, vocabulary, n).newest) == newest


def same(one: Counts, other: Counts) -> bool:
    arrays = [*one.trie.nodes, *(x for p in one.suffix + one.count for x in (p.bits, p.width, p.length))]
    others = [*other.trie.nodes, *(x for p in other.suffix + other.count for x in (p.bits, p.width, p.length))]
    return len(arrays) == len(others) and all(np.array_equal(a, b) for a, b in zip(arrays, others, strict=True))


@pytest.mark.parametrize("offsets", [[0, 3, 3], [0, 0, 3], [0, 1, 1, 3]])
def test_sentences_of_no_words_are_refused(toy: Corpus, offsets: list[int]) -> None:
    text = replace(toy.split("train"), ids=np.array([1, 2, 3], dtype=np.uint8), offsets=np.array(offsets))
    with pytest.raises(UserError, match=r"the train split is damaged.* sentences of no words"):
        count_ngrams(text, toy.vocabulary, 3)


def test_files_give_the_same_counts(tmp_path: Path) -> None:
    text, vocabulary = text_of(random_sentences(4, 3000))
    assert len(text.ids) > 5 * (1 << 16) / 96  # far more occurrences than 64 KiB hold
    storage = Storage(1 << 16, tmp_path)
    assert same(count_ngrams(text, vocabulary, 5), count_ngrams(text, vocabulary, 5, storage=storage))
    assert list(tmp_path.iterdir()) == []  # files without names


@pytest.mark.parametrize("bits", [1, 20])
@pytest.mark.parametrize("threads", [1, 3])
def test_steps_and_passes_of_half_a_word_give_the_same_counts(
    threads: int, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, vocabulary = text_of(random_sentences(7, 300))
    expected = [count_ngrams(text, vocabulary, order) for order in (2, 5, 16)]  # 16: occurrences of several cells
    monkeypatch.setattr(occurrences_module, "PER_STEP", 7)
    monkeypatch.setattr(occurrences_module, "MAX_WORD_BITS", bits)
    parallel.use(threads)
    assert all(same(counts, count_ngrams(text, vocabulary, counts.order)) for counts in expected)
    parallel.use(None)


@pytest.mark.parametrize("memory", [None, 1 << 16])
def test_numbers_that_32_bits_do_not_hold(memory: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, vocabulary = text_of(random_sentences(4, 3000))
    narrow = count_ngrams(text, vocabulary, 5)
    table = estimate(narrow, ModifiedKneserNey(5), cutoffs=[0, 0, 1, 1, 2])
    monkeypatch.setattr(storage_module, "UINT32_LIMIT", 0)
    assert storage_module.whole_numbers_below(1) == np.uint64
    storage = Storage(memory, tmp_path)
    wide = count_ngrams(text, vocabulary, 5, storage=storage)
    assert same(narrow, wide)
    other = estimate(wide, ModifiedKneserNey(5), cutoffs=[0, 0, 1, 1, 2], storage=storage)
    for one, two in zip([*table.trie.nodes], [*other.trie.nodes], strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(table.log_prob, other.log_prob)
    np.testing.assert_array_equal(table.log_backoff, other.log_backoff)
    assert list(tmp_path.iterdir()) == []


def test_keys_that_64_bits_do_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    text, vocabulary = text_of(random_sentences(4))
    monkeypatch.setattr(occurrences_module, "CELL", 10)
    with pytest.raises(UserError, match=r"model\.order=5: the n-grams of order 3 need more than 10 bits"):
        count_ngrams(text, vocabulary, 5)


def test_a_text_is_read_piece_by_piece(toy: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = count_ngrams(toy.split("train"), toy.vocabulary, 4)
    for piece in (1 << 22, 1000, 7, 1):
        monkeypatch.setattr(counts_module, "TOKENS_PER_PIECE", piece)
        stored = count_ngrams(toy.text("train"), toy.vocabulary, 4)
        assert same(whole, stored) and whole.newest.tolist() == stored.newest.tolist()
        places = counts_module.first_places_of(toy.text("train").ids, len(toy.vocabulary))
        ids = toy.split("train").ids.tolist()
        assert places.tolist() == [ids.index(word) if word in ids else -1 for word in range(len(toy.vocabulary))]


def test_pages_of_files_leave_the_memory_where_it_is_used_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(1 << 20, tmp_path)
    array = storage.zeros(1 << 22, np.uint64)
    array[:] = 7
    before = memory_resident()
    assert before is not None and before > 32 << 20
    storage.keep_within()
    after = memory_resident()
    assert after is not None and before - after > 20 << 20
    assert (array == 7).all()
    release(array[5:])
    again = memory_resident()
    assert again is not None and before - again > 20 << 20
    release(np.zeros(3))  # one in memory stays
    monkeypatch.setattr(memory_module, "memory_resident", lambda: 1 << 19)
    assert (array == 7).all()
    storage.keep_within()
    kept = memory_resident()
    assert kept is not None and before - kept < 10 << 20


def test_scores_some_sentences_at_a_time_are_the_same(toy: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    table = estimate(count_ngrams(toy.text("train"), toy.vocabulary, 3), ModifiedKneserNey(3))
    model, split = NgramModel(table, toy.vocabulary), toy.split("train")
    whole = model.log_prob_text(split.ids, split.offsets)
    stream = model.log_prob_text(split.ids, split.offsets[[0, -1]])
    for at_once in (1, 7, 100, 1 << 12):
        monkeypatch.setattr(model_module, "LIMITED_PIECE", at_once)
        assert (model.log_prob_text(split.ids, split.offsets, 1) == whole).all()
        assert (model.log_prob_text(split.ids, split.offsets[[0, -1]], 1) == stream).all()


def test_counts_of_a_higher_order_serve_a_lower_one() -> None:
    text, vocabulary = text_of(random_sentences(5))
    five = count_ngrams(text, vocabulary, 5)
    for n in (1, 2, 4):
        lower = count_ngrams(text, vocabulary, n)
        assert grams_of(five.upto(n)) == grams_of(lower)
        assert five.upto(n).trie.sizes == lower.trie.sizes


def test_counts_are_kept_and_damage_is_counted_again(tmp_path: Path) -> None:
    text, vocabulary = text_of(random_sentences(6))
    counts = count_ngrams(text, vocabulary, 4)
    path = tmp_path / "counts.h5"
    assert open_counts(path, "f", 4) is None
    save_counts(path, counts, "f")
    kept = open_counts(path, "f", 4)
    assert kept is not None and same(kept, counts)
    lower = open_counts(path, "f", 2)
    assert lower is not None and grams_of(lower) == grams_of(count_ngrams(text, vocabulary, 2))
    assert open_counts(path, "f", 5) is None  # not that many orders
    assert open_counts(path, "other", 4) is None  # of another text
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert open_counts(path, "f", 4) is None
    for at in range(3000, len(whole), 97):  # one byte is another
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        found = open_counts(path, "f", 4)
        assert found is None or same(found, counts)
    path.write_bytes(b"nonsense")
    assert open_counts(path, "f", 4) is None


def test_counts_that_lead_nowhere_are_counted_again(tmp_path: Path) -> None:
    text, vocabulary = text_of(random_sentences(6))
    counts = count_ngrams(text, vocabulary, 3)
    size, path = counts.trie.sizes[1], tmp_path / "counts.h5"
    for largest, fits in ((size - 1, True), (size, False)):
        suffixes = counts.suffix[1][:]
        suffixes[4] = largest
        save_counts(path, replace(counts, suffix=[counts.suffix[0], Packed.of(suffixes, 4 * size)]), "f")
        assert (open_counts(path, "f", 3) is not None) == fits
    save_counts(path, replace(counts, newest=np.array([len(vocabulary)])), "f")
    assert open_counts(path, "f", 3) is None


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, vocabulary = text_of(random_sentences(4, 3000))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError, match=r"cannot write .*No space left"):
        count_ngrams(text, vocabulary, 3, storage=Storage(1 << 16, tmp_path / "runs"))
    with pytest.raises(UserError, match=r"cannot write .*No space left"):
        save_counts(tmp_path / "counts.h5", count_ngrams(text, vocabulary, 2), "f")
    assert not (tmp_path / "counts.h5").exists()


def test_bad_orders_and_texts(toy: Corpus) -> None:
    for order in (0, 17):
        with pytest.raises(UserError, match=rf"model\.order={order}: must be from 1 to 16"):
            count_ngrams(toy.split("train"), toy.vocabulary, order)
    with pytest.raises(UserError, match="no tokens"):
        count_ngrams(Text(np.array([], dtype=int), np.array([0])), toy.vocabulary, 2)
    assert count_ngrams(toy.split("train"), toy.vocabulary, 16).order == 16


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MiB", 512 << 20), ("4GiB", 4 << 30), ("1.5GB", 1_500_000_000), ("65536", 65536), ("64 KiB", 65536)],
)
def test_sizes_of_memory(text: str, size: int) -> None:
    assert size_in_bytes(text, "counts.memory") == size


@pytest.mark.parametrize("text", ["", "much", "5XB", "-4GiB", "10"])
def test_no_sizes_of_memory(text: str) -> None:
    with pytest.raises(UserError, match=r"counts\.memory="):
        size_in_bytes(text, "counts.memory")


def test_a_trie_of_many_children() -> None:
    # More children than a block of nodes has: words 0, 2, 4, ... follow word 0, and word 5 follows each 2-gram.
    size = 1000
    builder = TrieBuilder(size)
    builder.add(np.arange(0, size, 2, dtype=np.uint64))
    builder.add((np.arange(size // 2, dtype=np.uint64) << np.uint64(builder.word_width)) | np.uint64(5))
    trie = builder.finish()
    assert trie.sizes == [size, 500, 500]
    assert list(trie.begins(1, 0, 3)) == [0, 500, 500, 500]
    assert list(trie.begins(2, 490, 500)) == list(range(490, 501))
    assert list(trie.words(2, 10, 13)) == [20, 22, 24] and set(trie.words(3, 0, 500)) == {5}


class Large:
    """What Storage.within asks of a corpus."""

    folder = Path()

    def tokens(self, name: str) -> int:
        return 10**9


def test_the_memory_of_the_process_is_what_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    mib = 1 << 20
    monkeypatch.setattr(storage_module, "memory_resident", lambda: 124 * mib)  # and 96 of compiled loops
    large: Corpus = Large()  # type: ignore[assignment]
    for text, room, noted in (("1GiB", 804, False), ("300MiB", 80, False), ("299MiB", 80, True), ("100MiB", 80, True)):
        storage = Storage.within(text, large)
        assert (storage.memory, storage.limit) == (room * mib, size_in_bytes(text, ""))  # of arrays, of the process
        said = f"counts.memory={text} is not kept: lmtool itself takes 220 MiB, and 80 MiB to count; give 300MiB"
        assert storage.note == (said if noted else None)
        small = storage.unless_enough_for(10)
        assert small.memory is None and small.note == storage.note  # what fits takes as much beside lmtool
    assert Storage.within("64KiB", large).memory == 1 << 16
    monkeypatch.setattr(storage_module, "memory_available", lambda: 400 * mib)
    assert Storage.within(None, large).limit == 300 * mib  # three quarters of the free memory, plus the memory in use
    monkeypatch.setattr(memory_module, "memory_resident", lambda: 230 * mib)
    for text, released in (("1GiB", False), ("300MiB", True)):  # above three quarters
        assert memory_module.is_nearly_used(Storage.within(text, large).limit) == released

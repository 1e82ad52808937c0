"""The order of the examples, in memory, on a device, and streamed from the store."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from lmtool.data import split as split_module
from lmtool.data.corpus import Corpus
from lmtool.data.split import Split, positions
from lmtool.errors import UserError
from lmtool.neural.encoders.options import SkipgramModel
from lmtool.training.batches import Batches, NearWords, keep_probability, near_words, random_order


def take(batches: Batches, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(itertools.islice(batches, count))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_module, "BLOCK_TOKENS", 10)
    monkeypatch.setattr(split_module, "GROUP_BLOCKS", 5)


def test_every_example_once_an_epoch(toy: Corpus) -> None:
    split = toy.split("train")
    batches = Batches(split, 16, 2, seed=1)
    drawn = take(batches, 2 * batches.per_epoch)
    for epoch in (drawn[: batches.per_epoch], drawn[batches.per_epoch :]):
        targets = torch.cat([targets for _, targets in epoch]).bincount(minlength=24)
        assert targets.sum() == 128 and (targets.numpy() <= np.bincount(split.ids, minlength=24)).all()
    assert not torch.equal(drawn[0][1], drawn[batches.per_epoch][1])


def test_stored_tokens_have_the_same_contexts(toy: Corpus, small_blocks: None) -> None:
    split, stored = toy.split("train"), toy.stored("train")
    assert (stored.tokens, stored.blocks) == (137, 14)
    order = np.random.default_rng(0).permutation(14)
    for size in (1, 4, 9):
        places = np.concatenate([np.arange(137 * block // 14, 137 * (block + 1) // 14) for block in order])
        wanted = split.windows(places, size)
        groups = [read(index, size) for read, index in stored.groups(order, size)]
        assert len(groups) == 3
        for found, want in zip(zip(*groups, strict=True), wanted, strict=True):
            np.testing.assert_array_equal(np.concatenate(found), want)
        np.testing.assert_array_equal(stored.windows(places[:20], size)[0], wanted[0][:20])
    # Across sentences nothing but the beginning of the text is a beginning.
    stored, joined = toy.stored("train", across_sentences=True), split.as_stream(across_sentences=True)
    np.testing.assert_array_equal(stored.windows(places[:20], 5)[0], joined.windows(places[:20], 5)[0])
    contexts, _ = stored.windows(np.array([0, 2, 60]), 3)
    assert contexts.tolist() == [[split.bos] * 3, [split.bos, *split.ids[:2]], split.ids[57:60].tolist()]


def test_sentences_that_are_apart_are_never_joined(toy: Corpus) -> None:
    split = toy.split("train")
    assert split.as_stream(across_sentences=False) is split
    assert split.as_stream(across_sentences=True).offsets.tolist() == [0, split.tokens]
    apart = replace(split, independent_sentences=True)
    assert apart.as_stream(across_sentences=True) is apart


def test_streamed_every_example_at_most_once_an_epoch(toy: Corpus, small_blocks: None) -> None:
    split = toy.split("train")
    batches = Batches(toy.stored("train"), 8, 3, seed=1)
    assert batches.streamed and batches.per_epoch == 45 // 8 + 45 // 8 + 36 // 8  # of 14 blocks of at least 9
    drawn = take(batches, 2 * batches.per_epoch)
    whole = {}
    for contexts, targets in [split.windows(np.arange(137), 3)]:
        for row in np.column_stack([contexts, targets]).tolist():
            whole[tuple(row)] = whole.get(tuple(row), 0) + 1
    for epoch in (drawn[: batches.per_epoch], drawn[batches.per_epoch :]):
        seen: dict[tuple[int, ...], int] = {}
        for contexts, targets in epoch:
            for row in torch.column_stack([contexts, targets]).tolist():
                seen[tuple(row)] = seen.get(tuple(row), 0) + 1
        assert sum(seen.values()) == 8 * batches.per_epoch
        assert all(count <= whole[row] for row, count in seen.items())
    assert not torch.equal(drawn[0][1], drawn[batches.per_epoch][1])


def test_consecutive_examples_stay_together(toy: Corpus) -> None:
    rng = np.random.default_rng(0)
    first, second = random_order(rng, 21, 4), random_order(rng, 21, 4)
    for order in (first, second):
        assert sorted(order.tolist()) == list(range(21))
        together = np.diff(order) % 21 == 1
        assert together.reshape(5, 4)[:, :3].all() and together.sum() < 20  # five pieces of four and one of one
    assert set(first[:4].tolist()) != set(second[:4].tolist())
    np.testing.assert_array_equal(random_order(np.random.default_rng(5), 9), np.random.default_rng(5).permutation(9))
    split = toy.split("train").as_stream(across_sentences=True)
    batches = Batches(split, 16, 6, seed=1, consecutive=4)
    drawn = take(batches, batches.per_epoch)
    follows = torch.cat([(x[1:, :-1] == x[:-1, 1:]).all(1) for x, _ in drawn])
    assert follows.sum() >= 8 * 4 * 3 - 1  # the text may restart within a piece
    counts = torch.cat([targets for _, targets in drawn]).bincount(minlength=24)
    assert counts.sum() == 128 and (counts.numpy() <= np.bincount(split.ids, minlength=24)).all()


@pytest.mark.parametrize("streamed", [False, True])
def test_the_order_goes_on_from_any_position(streamed: bool, toy: Corpus, small_blocks: None) -> None:
    split = toy.stored("train") if streamed else toy.split("train")
    whole = take(Batches(split, 8, 2, seed=3, consecutive=2), 60)
    for taken in (0, 1, 13, 14, 15, 16, 17, 33):
        first = Batches(split, 8, 2, seed=3, consecutive=2)
        take(first, taken)
        second = Batches(split, 8, 2, seed=99, consecutive=2)
        second.go_to(first.position())
        for found, wanted in zip(take(second, 25), whole[taken:], strict=False):
            assert torch.equal(found[0], wanted[0]) and torch.equal(found[1], wanted[1])


@pytest.mark.parametrize("streamed", [False, True])
def test_the_shares_of_processes_make_the_whole(streamed: bool, toy: Corpus, small_blocks: None) -> None:
    split = toy.stored("train") if streamed else toy.split("train")
    whole = take(Batches(split, 8, 2, seed=3), 20)
    parts = [take(Batches(split, 8, 2, seed=3, part=(rank, 4)), 20) for rank in range(4)]
    for number, (_, targets) in enumerate(whole):
        assert torch.equal(torch.cat([part[number][1] for part in parts]), targets)


def test_contexts_of_many_words() -> None:
    ids = np.arange(700, dtype=np.uint16)
    split = Split(ids, np.array([0, 5, 690, 700]), np.empty(0, dtype=np.int64), 0, bos=700)
    contexts, targets = split.windows(np.arange(700), 600)
    assert contexts[689].tolist() == list(range(89, 689)) and targets[689] == 689


def test_batches_are_on_the_device_asked_for(toy: Corpus) -> None:
    contexts, targets = next(iter(Batches(toy.split("train"), 8, 5, seed=1, device=torch.device("meta"))))
    assert contexts.is_meta and targets.is_meta and contexts.shape == (8, 5) and targets.shape == (8,)


@pytest.mark.parametrize("piece", [1, 2, 3, 1 << 22])
def test_positions_by_hand(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_module, "CHUNK_TOKENS", piece)
    assert positions(np.array([0, 3, 4]), 7).tolist() == [0, 1, 2, 0, 0, 1, 2]
    assert positions(np.array([0]), 300).tolist() == [*range(256), *[255] * 44]


def test_a_context_too_long_for_streaming(toy: Corpus) -> None:
    with pytest.raises(UserError, match=r"model\.context_size=256: at most 255"):
        Batches(toy.stored("train"), 8, 256, seed=1)


def test_pairs_of_a_text_by_hand() -> None:
    # a b c a | d e, with <s> = 9 before each sentence; c is left out.
    ids, starts = np.array([0, 1, 2, 0, 3, 4], np.uint8), np.array([0, 4])
    padded, position = np.append(ids, np.uint8(9)), positions(starts, 6)

    def found(reach: list[int], places: list[int]) -> list[tuple[int, int]]:
        contexts, targets = near_words(padded, position, np.array(reach, np.uint8), np.array(places))
        return list(zip(contexts[:, 0].tolist(), targets.tolist(), strict=True))

    assert found([1, 1, 0, 1, 1, 1], [0]) == [(9, 0), (1, 0)]
    assert found([1, 1, 0, 1, 1, 1], [1, 2, 3]) == [(0, 1), (0, 1), (1, 0)]  # the second a is beside b
    assert found([5, 5, 0, 5, 5, 5], [3]) == [(1, 0), (0, 0), (9, 0)]
    assert found([2, 2, 2, 2, 2, 2], [2]) == [(1, 2), (0, 2), (0, 2)]
    assert found([2, 2, 2, 2, 2, 2], [5, 4]) == [(3, 4), (9, 4), (9, 3), (4, 3)]
    assert found([0] * 6, [0, 1]) == []


def test_frequent_words_are_left_out_by_the_formula_of_word2vec() -> None:
    ids = np.repeat(np.arange(3, dtype=np.uint8), [900, 99, 1])
    kept = keep_probability(ids, 0.01)
    np.testing.assert_allclose(kept[0], (1 / 90) ** 0.5 + 1 / 90, rtol=1e-6)  # f = 0.9
    np.testing.assert_allclose(kept[900], (10 / 99) ** 0.5 + 10 / 99, rtol=1e-6)
    assert kept[-1] == 1 and keep_probability(ids, 0).tolist() == [1] * 1000


def test_batches_of_near_words(toy: Corpus) -> None:
    split = toy.split("train")
    model = SkipgramModel("skipgram", 1, 8, False, 0.0, window=3, shrink_windows=False, subsample=0.0)
    batches = NearWords(split, 16, model, 1)
    epoch = take(batches, batches.per_epoch)
    places = np.concatenate([np.arange(first, last) for first, last in itertools.pairwise(split.offsets)])
    sizes = np.repeat(np.diff(split.offsets), np.diff(split.offsets))
    before = places - np.repeat(split.offsets[:-1], np.diff(split.offsets))
    pairs = np.minimum(before + 1, 3) + np.minimum(sizes - before - 1, 3)
    assert batches.per_epoch == 137 // 16
    assert pairs.sum() - 9 * 6 <= sum(len(targets) for _, targets in epoch) <= pairs.sum()  # without 9 of the words
    rare = NearWords(split, 16, replace(model, shrink_windows=True, subsample=1e-4), 1)
    drawn = take(rare, 2 * rare.per_epoch)
    assert sum(len(targets) for _, targets in drawn) < 0.2 * 2 * pairs.sum() and all(len(each[1]) for each in drawn)
    rare.go_to(NearWords(split, 16, rare._model, 1).position() | {"at": 3 * 16})
    for (contexts, targets), (want, goal) in zip(take(rare, 5), drawn[3:8], strict=True):
        assert torch.equal(contexts, want) and torch.equal(targets, goal)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("before", "taken", "after"), [(8, 7, 4), (4, 12, 9)])
def test_after_a_change_of_size_no_example_comes_twice(
    streamed: bool, before: int, taken: int, after: int, toy: Corpus, small_blocks: None
) -> None:
    """By hand: 137 examples in memory; streamed, three groups of 45, 45 and 36, of which each batch is cut."""
    joined = toy.split("train").as_stream(across_sentences=True)
    split = toy.stored("train", across_sentences=True) if streamed else joined
    in_memory, in_groups = {8: (20, 7 + 9), 4: (9, 4 + 4)}[before]
    rest = in_groups if streamed else in_memory
    first = Batches(split, before, 137, seed=3)  # the whole text before it tells an example from the others
    seen = take(first, taken)
    second, third = (Batches(split, after, 137, seed=99) for _ in range(2))
    second.go_to(first.position())
    continued = iter(second)
    seen += itertools.islice(continued, rest)
    rows = [tuple(row) for contexts, _ in seen for row in contexts.tolist()]
    assert len(set(rows)) == len(rows) == before * taken + after * rest
    third.go_to(second.position())
    for found, wanted in zip(take(third, 3), continued, strict=False):
        assert torch.equal(found[0], wanted[0])

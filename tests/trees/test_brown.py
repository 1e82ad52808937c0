"""Brown clusters and exchange: each merging and move against mutual information worked out afresh each time."""

from __future__ import annotations

import itertools
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lmtool.errors import UserError
from lmtool.trees._brown_kernels import cheapest, f_table, merge_words
from lmtool.trees.brown import Bigrams, bigrams, brown_tree, cluster_words, neighbors
from lmtool.trees.exchange import exchange
from lmtool.trees.options import BrownTree
from lmtool.trees.tree import TreeWords
from tests.trees.checks import check, codes, same, zipf


def information(matrix: np.ndarray) -> float:
    """Return the average mutual information of n(x, y) `[C, C]` in nats, times the sum of n."""
    n = matrix.astype(np.float64)
    total = n.sum()
    apart = n.sum(axis=1, keepdims=True) * n.sum(axis=0, keepdims=True)
    there = n > 0
    return float((n[there] * np.log(n[there] * total / apart[there])).sum())


def merged(matrix: np.ndarray, a: int, b: int) -> np.ndarray:
    """n(x, y) when b has joined a."""
    n = matrix.copy()
    n[a] += n[b]
    n[:, a] += n[:, b]
    return np.delete(np.delete(n, b, axis=0), b, axis=1)


def text(seed: int, words: int, tokens: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Word ids in which neighbors depend on each other, sentences, and counts."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, words, tokens)
    ids = np.where(rng.random(tokens) < 0.5, np.roll(noise, 1) // 2, noise).astype(np.uint16)
    offsets = np.unique(np.concatenate([[0, tokens], rng.integers(0, tokens, 20)]))
    return ids, offsets, np.bincount(ids, minlength=words)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 14), st.integers(1, 16))
def test_every_merging_is_the_cheapest(seed: int, words: int, clusters: int) -> None:
    ids, offsets, counts = text(seed, words)
    cluster_of, merges, losses = cluster_words(bigrams(ids, offsets, words), counts, clusters)
    full = np.zeros((words, words), dtype=np.int64)
    for start, end in itertools.pairwise(offsets):
        np.add.at(full, (ids[start : end - 1], ids[start + 1 : end]), 1)
    names: list[int] = []  # of the clusters, each by its first word
    members: dict[int, list[int]] = {}
    step = 0
    for word in [*np.argsort(-counts, kind="stable").tolist(), None]:
        if word is not None:
            names.append(word)
            members[word] = [word]
        else:
            assert {frozenset(own) for own in members.values()} == {
                frozenset(np.flatnonzero(cluster_of == name).tolist()) for name in set(cluster_of.tolist())
            }
        while len(names) > (clusters if word is not None else 1):
            matrix = np.array([[full[np.ix_(members[x], members[y])].sum() for y in names] for x in names])
            whole = information(matrix)
            loss = {
                frozenset((names[a], names[b])): whole - information(merged(matrix, a, b))
                for b in range(len(names))
                for a in range(b)
            }
            kept, gone = merges[step].tolist()
            assert losses[step] == pytest.approx(loss[frozenset((kept, gone))], abs=1e-7)
            assert losses[step] == pytest.approx(min(loss.values()), abs=1e-7)
            members[kept] += members.pop(gone)
            names.remove(gone)
            step += 1
    assert step == len(losses) == words - 1


def test_f_by_hand() -> None:
    np.testing.assert_allclose(f_table()[:4], [0, 0, 2 * np.log(2), 3 * np.log(3)], rtol=1e-15)


# Text, and sentences whose first words, or else last words, are never anywhere else.
SENTENCES = np.repeat([[0, 2], [1, 2], [3, 2], [0, 4], [1, 5]], [9, 5, 3, 2, 1], axis=0)
ENDS = np.arange(0, 41, 2)
TEXTS = {
    "text": text(5, 9)[:2],
    "first": (SENTENCES.ravel(), ENDS),
    "last": (SENTENCES[:, ::-1].ravel(), ENDS),
}


@pytest.mark.parametrize("name", TEXTS)
def test_counts_beyond_the_table(name: str) -> None:
    """F of these is computed, and the mergings are the same."""
    words = int(TEXTS[name][0].max()) + 1
    first, second, often = bigrams(*TEXTS[name], words)
    both = neighbors(first, second, often, words), neighbors(second, first, often, words)
    wanted = merge_words(*both, 5, f_table())
    for length in range(2, 24):
        found = merge_words(*both, 5, f_table()[:length])
        np.testing.assert_array_equal(found[0], wanted[0])
        np.testing.assert_array_equal(found[1], wanted[1])
        np.testing.assert_allclose(found[2], wanted[2], atol=1e-9)


def test_of_the_cheapest_mergings_the_last() -> None:
    pairs = [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]
    margins, joint = np.full((5, 5), 9.0), np.full((5, 5), 2.0)
    for place, (a, b) in enumerate(pairs):
        margins[b, a] = 4.0
        assert cheapest(4, joint, margins) == (a, b, 2.0)
        if place:  # of equal ones
            margins[pairs[place - 1][::-1]] = 4.0
            assert cheapest(4, joint, margins) == (a, b, 2.0)
        margins[:] = 9.0
    assert cheapest(2, joint, margins) == (0, 1, 7.0)


def test_bigrams_do_not_cross_sentences() -> None:
    ids = np.array([0, 1, 0, 1, 2, 0, 1], dtype=np.uint16)
    first, second, often = bigrams(ids, np.array([0, 2, 4, 5, 5, 7]), 3)
    assert list(zip(first.tolist(), second.tolist(), often.tolist(), strict=True)) == [(0, 1, 3)]
    first, second, often = bigrams(ids, np.array([0, 7]), 3)
    assert list(zip(first.tolist(), second.tolist(), often.tolist(), strict=True)) == [
        (0, 1, 3), (1, 0, 1), (1, 2, 1), (2, 0, 1),
    ]  # fmt: skip
    assert [len(found) for found in bigrams(ids[:1], np.array([0, 1]), 3)] == [0, 0, 0]


def test_words_with_the_same_neighbors_share_a_cluster() -> None:
    # the|a cat|dog runs|sits the|a cat|dog ...: merging words of a kind loses next to nothing.
    ids = np.random.default_rng(0).integers(0, 2, 3000) + np.tile([0, 2, 4], 1000)
    offsets = np.array([0, len(ids)])
    _, merges, losses = cluster_words(bigrams(ids, offsets, 6), np.bincount(ids), 6)
    assert {frozenset(pair) for pair in merges[:3].tolist()} == {frozenset(pair) for pair in [(0, 1), (2, 3), (4, 5)]}
    assert (losses[:3] < 5).all() and (losses[3:] > 500).all()
    found = codes(brown_tree(ids, offsets, np.bincount(ids), 6))
    assert sorted(len(code) for code in found) == [2, 2, 3, 3, 3, 3]
    assert all(found[word][:-1] == found[word + 1][:-1] for word in (0, 2, 4))


@pytest.mark.parametrize("clusters", [1, 2, 7, 40, 1000, 2**70])
def test_whole_trees(clusters: int) -> None:
    ids, offsets, counts = text(3, 40, 2000)
    counts = np.concatenate([counts, [0, 0, 0]])  # words that train has not
    tree = brown_tree(ids, offsets, counts, clusters)
    check(tree, 43)
    # Of each two children the one with more of the text is child 0.
    below: dict[str, int] = defaultdict(int)
    for code, count in zip(codes(tree), counts.tolist(), strict=True):
        for length in range(1, len(code) + 1):
            below[code[:length]] += count
    assert all(below[code[:-1] + "0"] >= below[code[:-1] + "1"] for code in below)
    assert same(tree, brown_tree(ids.astype(np.uint32), offsets, counts, clusters))


def test_the_most_frequent_words_of_the_beginning() -> None:
    ids, offsets, counts = text(3, 40, 2000)
    words = [f"w{word}" for word in range(40)]
    split = SimpleNamespace(ids=ids, offsets=offsets, tokens=len(ids))
    known = TreeWords(words, counts, lambda: split, None)
    whole = BrownTree("brown", 6).build(known)
    assert same(whole, brown_tree(ids, offsets, counts, 6)) and same(
        whole, BrownTree("brown", 6, 40, 2000).build(known)
    )
    part = BrownTree("brown", 6, 30, 500).build(known)
    check(part, 40)
    frequent = np.sort(np.argsort(-counts, kind="stable")[:30])
    both = codes(part)
    sides = {both[word][0] for word in frequent}
    assert len(sides) == 1 and all(both[word][0] not in sides for word in range(40) if word not in frequent)
    # Below its half stands what the same text without the others gives.
    kept = np.isin(ids[:500], frequent)
    before = np.append(0, np.cumsum(kept))
    pieces = np.unique(np.concatenate([before[:-1][~kept], before[offsets[offsets < 500]], [0, kept.sum()]]))
    upper = codes(brown_tree(np.searchsorted(frequent, ids[:500][kept]), pieces, counts[frequent], 6))
    assert [both[word][1:] for word in frequent] == upper


def test_small_vocabularies() -> None:
    empty = np.array([], dtype=np.uint16)
    check(brown_tree(np.array([0, 0, 0]), np.array([0, 3]), np.array([3]), 5), 1)
    check(brown_tree(np.array([0, 1, 0]), np.array([0, 3]), np.array([2, 1]), 5), 2)
    check(brown_tree(empty, np.array([0]), np.zeros(4, dtype=np.int64), 2), 4)
    for clusters in (0, 1.5, None):
        with pytest.raises(UserError, match=rf"tree\.clusters={clusters}: must be a whole number, 1 or more"):
            brown_tree(empty, np.array([0]), np.zeros(4, dtype=np.int64), clusters)  # type: ignore[arg-type]


def test_losses_stay_exact_over_many_mergings() -> None:
    rng = np.random.default_rng(0)
    counts = zipf(800)
    ids = rng.choice(800, size=30_000, p=counts / counts.sum())
    offsets, counts = np.array([0, len(ids)]), np.bincount(ids, minlength=800)
    cluster_of, _, losses = cluster_words(bigrams(ids, offsets, 800), counts, 30)
    groups = np.unique(cluster_of, return_inverse=True)[1][ids]
    matrix = np.zeros((30, 30), dtype=np.int64)
    np.add.at(matrix, (groups[:-1], groups[1:]), 1)
    # The last 29 mergings lose all that there is.
    assert losses[-29:].sum() == pytest.approx(information(matrix), rel=1e-10)


def of_classes(pairs: Bigrams, class_of: np.ndarray, classes: int) -> float:
    """Return the average mutual information of classes, in nats times the number of bigrams."""
    n = np.zeros((classes, classes))
    np.add.at(n, (class_of[pairs.first], class_of[pairs.second]), pairs.counts)
    return information(n)


def plain_exchange(
    pairs: Bigrams, class_of: np.ndarray, classes: int, movable: np.ndarray, closed: np.ndarray, passes: int
) -> tuple[np.ndarray, int]:
    class_of = class_of.copy()
    for done in range(1, passes + 1):
        moved = False
        for word in movable:
            old = class_of[word]
            if closed[old] or (class_of == old).sum() == 1:
                continue
            found = []
            for c in range(classes):
                class_of[word] = c
                found.append(-np.inf if closed[c] else of_classes(pairs, class_of, classes))
            best = old
            for c in range(classes):  # the first of those that are equal up to rounding
                best = c if found[c] > found[best] + 1e-6 else best
            class_of[word] = best
            moved |= best != old
        if not moved:
            return class_of, done
    return class_of, passes


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 10), st.integers(1, 5), st.integers(0, 4))
@example(378, 4, 5, 1)  # two classes are the same to a word
def test_words_move_where_the_likelihood_is_highest(seed: int, words: int, classes: int, passes: int) -> None:
    ids, offsets, counts = text(seed, words)
    pairs = bigrams(ids, offsets, words)
    start = np.random.default_rng(seed).integers(0, classes, words)
    movable = np.argsort(-counts, kind="stable")[: words - seed % 2]
    closed = np.arange(classes) == classes - seed % 3
    found = exchange(pairs, start, classes, movable, closed, passes)
    wanted, needed = plain_exchange(pairs, start, classes, movable, closed, passes)
    np.testing.assert_array_equal(found.class_of, wanted)
    assert found.passes == needed if passes else found.passes == 0
    total = pairs.counts.sum()
    assert found.information == pytest.approx(of_classes(pairs, wanted, classes) / total, abs=1e-9)


def test_the_classes_of_a_text_of_two_kinds_of_words() -> None:
    ids = np.array([0, 2, 1, 3, 0, 3, 1, 2] * 3)  # 0 and 1 come before 2 and 3
    pairs = bigrams(ids, np.array([0, len(ids)]), 4)
    found = exchange(pairs, np.array([0, 1, 0, 1]), 2, np.arange(4), np.zeros(2, bool), 9)
    assert found.class_of[0] == found.class_of[1] != found.class_of[2] == found.class_of[3]
    # 12 bigrams from one class to the other and 11 back: H of the first words, which the second words determine.
    p = np.array([12, 11]) / 23
    assert found.information == pytest.approx(-(p * np.log(p)).sum(), abs=1e-12)


@pytest.mark.parametrize("name", TEXTS)
def test_a_short_table_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = int(TEXTS[name][0].max()) + 1
    pairs = bigrams(*TEXTS[name], words)
    given = pairs, np.arange(words) // 2 % 4, 4, np.arange(words), np.zeros(4, bool), 20
    whole, table = exchange(*given), f_table()
    for length in range(2, 24):
        monkeypatch.setattr("lmtool.trees.exchange.f_table", lambda end=length: table[:end])
        found = exchange(*given)
        assert found.class_of.tolist() == whole.class_of.tolist() and found.passes == whole.passes
        assert found.information == pytest.approx(whole.information, rel=1e-9)


def test_a_text_without_bigrams() -> None:
    none = bigrams(np.array([1]), np.array([0, 1]), 3)
    found = exchange(none, np.array([0, 1, 1]), 2, np.arange(3), np.zeros(2, bool), 5)
    assert found.class_of.tolist() == [0, 1, 1] and (found.information, found.passes) == (0.0, 0)

"""Trees from counts alone, against bounds and Huffman's; vectors of neighbors against a dense decomposition."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lmtool.errors import UserError
from lmtool.system.arrays import IntArray
from lmtool.trees import _neighbor_vectors as module
from lmtool.trees._neighbor_vectors import neighbor_vectors
from lmtool.trees.builders import (
    balanced_tree,
    class_of_words,
    classes_tree,
    frequency_tree,
    graft,
    huffman_tree,
    random_tree,
)
from lmtool.trees.codes import code_strings
from lmtool.trees.tree import Tree
from tests.trees.checks import check, codes, same, zipf

BUILDERS: dict[str, Callable[[IntArray], Tree]] = {
    "balanced": lambda counts: balanced_tree(np.argsort(-counts)),
    "random": lambda counts: random_tree(len(counts), 3),
    "frequency": frequency_tree,
    "huffman": huffman_tree,
    "classes": lambda counts: classes_tree(counts, None),
    "one class": lambda counts: classes_tree(counts, 1),
    "a class a word": lambda counts: classes_tree(counts, len(counts)),
}
TEXTS = {
    "one": [7],
    "none": [0],
    "two": [5, 0],
    "zeros": [0] * 37,
    "doubling": [2**k for k in range(58)],
    "ties": [3] * 100 + [1] * 33,
    "zipf": zipf(3000).tolist(),
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", BUILDERS)
def test_every_builder_gives_a_whole_tree_twice(name: str, text: str) -> None:
    counts = np.array(TEXTS[text], dtype=np.int64)
    tree = BUILDERS[name](counts)
    check(tree, len(counts))
    assert same(tree, BUILDERS[name](counts))


@pytest.mark.parametrize("words", [1, 2, 3, 5, 8, 13, 1000, 1024, 1025])
def test_balanced_depths(words: int) -> None:
    depths = set(random_tree(words, 0).depths.tolist())
    assert depths <= {math.floor(math.log2(words)), math.ceil(math.log2(words))}


def test_balanced_by_hand() -> None:
    # 3 0 4 | 1 2, then 3 0 | 4 and 1 | 2
    assert codes(balanced_tree(np.array([3, 0, 4, 1, 2]))) == ["001", "10", "11", "000", "01"]


def test_random_depends_on_its_seed_alone() -> None:
    assert same(random_tree(100, 1), random_tree(100, 1)) and not same(random_tree(100, 1), random_tree(100, 2))


def test_frequency_by_hand() -> None:
    # Fano's list: 15 7 | 6 6 5; then 15 | 7 and 6 | 6 5 (5 apart), not 6 6 | 5 (7 apart).
    assert codes(frequency_tree(np.array([15, 7, 6, 6, 5]))) == ["00", "01", "10", "110", "111"]
    assert codes(frequency_tree(np.array([6, 15, 5]))) == ["10", "0", "11"]
    assert codes(frequency_tree(np.array([0, 0, 0, 0]))) == ["00", "01", "10", "11"]
    # One word of nearly all: its code is one bit.
    assert frequency_tree(np.array([2**60, 1, 1, 1])).depths.tolist() == [1, 2, 3, 3]


def plain_frequency(counts: np.ndarray) -> list[str]:
    """Return the codes of the frequency tree, by trying every cut."""
    weights, codes = np.maximum(counts, 0.5), [""] * len(counts)
    waiting = [np.argsort(-counts, kind="stable")]
    while waiting:
        piece = waiting.pop()
        if len(piece) > 1:
            apart = [abs(weights[piece[:m]].sum() - weights[piece[m:]].sum()) for m in range(1, len(piece))]
            parts = np.split(piece, [1 + int(np.argmin(apart))])
            for bit, part in enumerate(parts):
                for word in part:
                    codes[word] += str(bit)
            waiting += parts
    return codes


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=30))
@example([1, 1, 1])
@example([1, 1, 0, 0, 0])
def test_frequency_cuts_where_the_parts_are_closest(weights: list[int]) -> None:
    assert codes(frequency_tree(np.array(weights))) == plain_frequency(np.array(weights))


def test_huffman_by_hand() -> None:
    # 1+1=2, 2+2=4 (the leaf of 2 goes first), 4+4=8: the heavier child is 0, of equals the one joined last.
    assert codes(huffman_tree(np.array([4, 2, 1, 1]))) == ["1", "01", "000", "001"]
    assert huffman_tree(np.array([1, 1, 4, 2])).depths.tolist() == [3, 3, 1, 2]
    assert codes(huffman_tree(np.array([1, 9]))) == ["1", "0"]


@functools.cache
def best(weights: tuple[int, ...]) -> int:
    """Return the minimum sum of weight times depth, by trying all pairs to join."""
    if len(weights) == 1:
        return 0
    found = []
    for i in range(len(weights)):
        for j in range(i):
            joined = weights[i] + weights[j]
            rest = [*weights[:j], *weights[j + 1 : i], *weights[i + 1 :], joined]
            found.append(joined + best(tuple(sorted(rest))))
    return min(found)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=6))
def test_huffman_is_the_best_code(weights: list[int]) -> None:
    counts = np.array(weights, dtype=np.int64)
    assert int((huffman_tree(counts).depths * counts).sum()) == best(tuple(sorted(weights)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=80).filter(any))
def test_depths_stand_in_order(weights: list[int]) -> None:
    counts = np.array(weights, dtype=np.int64)
    share = counts[counts > 0] / counts.sum()
    entropy = -(share * np.log2(share)).sum()
    bits = {name: (BUILDERS[name](counts).depths * counts).sum() / counts.sum() for name in BUILDERS}
    assert entropy - 1e-9 <= bits["huffman"] <= entropy + 1
    assert all(bits["huffman"] <= other + 1e-9 for other in bits.values())


def test_classes_by_hand() -> None:
    # 9 of 20 stand alone; the 11 that are left make 4 2 | 2 1 1 1.
    counts = np.array([9, 4, 2, 2, 1, 1, 1])
    assert class_of_words(counts, 3).tolist() == [0, 1, 1, 2, 2, 2, 2]
    assert codes(classes_tree(counts, 3)) == ["1", "000", "001", "0100", "0101", "0110", "0111"]
    assert class_of_words(np.array([100, 0, 0]), 3).tolist() == [0, 1, 2]
    assert class_of_words(np.array([1, 1, 100]), 2).tolist() == [0, 0, 1]
    assert class_of_words(np.zeros(6, dtype=np.int64), 2).tolist() == [0, 0, 0, 1, 1, 1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 40))
def test_classes_are_never_empty(weights: list[int], number: int) -> None:
    number = min(number, len(weights))
    found = class_of_words(np.array(sorted(weights, reverse=True)), number)
    assert set(np.diff(found)) <= {0, 1} and found[0] == 0 and found[-1] == number - 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 40))
@example([1, 1, 1], 2)  # as near to one word as to two
@example([3, 0, 0, 0, 0, 0, 0], 2)  # as much as six words that do not occur
def test_a_class_ends_nearest_to_its_share(weights: list[int], number: int) -> None:
    counts, number = np.array(sorted(weights, reverse=True)), min(number, len(weights))
    before = np.append(0, np.cumsum(np.maximum(counts, 0.5)))
    wanted, start = list[int](), 0
    for k in range(number):
        share = (before[-1] - before[start]) / (number - k)
        nearest = int(np.argmin(abs(before - before[start] - share)))  # the first of two
        end = max(start + 1, min(nearest, len(counts) - (number - k - 1)))
        wanted += [k] * (end - start)
        start = end
    assert class_of_words(counts, number).tolist() == wanted


def test_classes_have_about_equal_shares() -> None:
    counts = zipf(10_000)
    found = class_of_words(counts, None)
    shares = np.bincount(found, weights=counts) / counts.sum()
    assert len(shares) == 100
    several = np.bincount(found) > 1  # the commonest words stand alone, with more
    assert np.ptp(shares[several][3:]) < 0.004 and abs(shares[several].mean() - 0.008) < 0.001


@pytest.mark.parametrize(
    ("number", "rule"), [(0, "must be 1 or more"), (-1, "must be 1 or more"), (6, "at most 5 with this vocabulary")]
)
def test_impossible_numbers_of_classes(number: int, rule: str) -> None:
    with pytest.raises(UserError, match=rf"^tree\.classes={number}: {rule}$"):
        classes_tree(np.ones(5, dtype=np.int64), number)
    with pytest.raises(UserError, match=rf"^output\.classes={number}: {rule}$"):
        class_of_words(np.ones(5, dtype=np.int64), number, key="output.classes")


def test_numbers_of_words_and_lists_that_are_none() -> None:
    for words in (0, -1, 2.0):
        with pytest.raises(ValueError, match=rf"^random_tree: words must be a whole number of 1 or more; got {words}$"):
            random_tree(words, 1)
    for order in ([], [0, 2], [1, 1], [1, 2]):
        with pytest.raises(ValueError, match=r"^balanced_tree: order must have the ids 0 to W-1, one or more, each"):
            balanced_tree(np.array(order, dtype=np.int64))


def test_graft_by_hand() -> None:
    top = huffman_tree(np.array([1, 3]))  # group 1 is child 0
    parts = [balanced_tree(np.arange(2)), balanced_tree(np.arange(3))]
    tree = graft(top, parts, [np.array([4, 0]), np.array([1, 3, 2])])
    assert codes(tree) == ["11", "000", "01", "001", "10"]
    alone = balanced_tree(np.arange(1))
    assert same(graft(alone, [parts[1]], [np.array([0, 1, 2])]), parts[1])
    assert codes(graft(top, [alone, alone], [np.array([0]), np.array([1])])) == ["1", "0"]


def whole(ids: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.array([0, len(ids)])


def plain(ids: np.ndarray, counts: np.ndarray, dimensions: int, frequent: int) -> np.ndarray:
    """Compute the neighbor vectors from the whole matrix."""
    words = len(counts)
    weight = np.sqrt(counts + 0.5)
    weight /= weight.sum()
    columns = np.argsort(-counts, kind="stable")[:frequent].tolist()
    parts = []
    for place in (-2, -1, 1):
        seen = np.zeros((words, len(columns) + 1))
        for at, word in enumerate(ids):
            if 0 <= at + place < len(ids):
                other = ids[at + place]
                seen[word, columns.index(other) if other in columns else -1] += 1
        unigram = np.zeros(len(columns) + 1)
        for word in ids:
            unigram[columns.index(word) if word in columns else -1] += 1
        occurrences = np.bincount(ids, minlength=words)[:, None]
        parts.append(np.sqrt((seen + 20 * unigram / len(ids)) / (occurrences + 20)))
    whole = np.concatenate(parts, axis=1)
    whole -= weight @ whole
    _, _, directions = np.linalg.svd(np.sqrt(weight)[:, None] * whole, full_matrices=False)
    return whole @ directions[:dimensions].T


@pytest.mark.parametrize("frequent", [4, 2000])
def test_against_the_whole_matrix(frequent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FREQUENT", frequent)
    rng = np.random.default_rng(1)
    ids = (rng.integers(0, 9, 3000) ** 2 // 9).astype(np.uint16)
    counts = np.bincount(ids, minlength=9)
    found = neighbor_vectors(ids, whole(ids), counts, 6)
    expected = plain(ids.astype(np.int64), counts, 6, frequent)
    assert found.dtype == np.float32 and found.shape == (9, 6)
    # Components have no sign.
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-5)
    assert np.abs(expected).max() > 0.05
    assert np.array_equal(found, neighbor_vectors(ids, whole(ids), counts, 6))


def test_words_in_the_same_places_are_near() -> None:
    rng = np.random.default_rng(2)
    # Sentences: an article, one of six nouns, one of six verbs, </s>.
    sentences = [[0, rng.integers(1, 7), rng.integers(7, 13), 13] for _ in range(2000)]
    ids = np.array(sentences).reshape(-1)
    vectors = neighbor_vectors(ids, whole(ids), np.bincount(ids), 2)
    kinds = vectors[1:13].reshape(2, 6, 2)
    within = np.linalg.norm(kinds - kinds.mean(axis=1, keepdims=True), axis=2).max()
    between = np.linalg.norm(kinds[0].mean(axis=0) - kinds[1].mean(axis=0))
    assert between > 20 * within


@pytest.mark.parametrize(("ids", "words"), [([], 3), ([0], 1), ([0, 1], 2), ([0, 0, 0], 1)])
def test_next_to_no_text(ids: list[int], words: int) -> None:
    found = neighbor_vectors(np.array(ids, dtype=np.int64), whole(ids), np.bincount(ids, minlength=words), 50)
    assert found.shape[0] == words and 1 <= found.shape[1] <= 50 and np.isfinite(found).all()


def test_floor_gives_the_codes_of_the_plain_recursion() -> None:
    """As in the notebook: 42 words, the left half the smaller one."""

    def recursive(words: list[int], code: str = "") -> dict[int, str]:
        if len(words) == 1:
            return {words[0]: code}
        middle = len(words) // 2
        return recursive(words[:middle], code + "0") | recursive(words[middle:], code + "1")

    order = np.random.default_rng(1).permutation(42)
    floor = balanced_tree(order, "floor")
    assert dict(zip(range(42), code_strings(floor), strict=True)) == recursive(order.tolist())
    assert code_strings(balanced_tree([0, 1, 2])) == ["00", "01", "1"] and code_strings(
        balanced_tree([0, 1, 2], "floor")
    ) == ["0", "10", "11"]
    assert floor.depths.sum() == 22 * 5 + 20 * 6
    with pytest.raises(ValueError, match="split must be ceil or floor; got 'half'"):
        balanced_tree(order, "half")


def test_neighbors_are_of_one_part() -> None:
    """The order of the parts then changes nothing."""
    parts = [[0, 1, 2], [1, 0], [2, 2, 1, 0], [0]]
    found = []
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        ids = np.concatenate([parts[k] for k in order])
        offsets = np.cumsum([0, *(len(parts[k]) for k in order)])
        found.append(neighbor_vectors(ids, offsets, np.bincount(ids), 3))
    np.testing.assert_allclose(*found, atol=1e-6)

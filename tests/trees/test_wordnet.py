"""Groups in groups as binary trees, and those of WordNet where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmtool.errors import UserError
from lmtool.trees.builders import huffman_tree
from lmtool.trees.wordnet import USUAL_FOLDER, binary_hierarchy, find_wordnet, wordnet_groups, wordnet_tree
from tests.trees.checks import check, codes

needs_wordnet = pytest.mark.tool("nltk", f"{USUAL_FOLDER}/data.noun")  # Debian: wordnet-base


def test_a_small_hierarchy_by_hand() -> None:
    # top: others (the), things: animals (dog cat; fish: cod), tools: (saw)
    parents = [-1, -1, 1, 2, 1]
    groups = np.array([0, 2, 2, 3, 4])
    tree = binary_hierarchy(parents, groups, np.array([100, 9, 8, 2, 30]))
    # cod 2 + cat 8 = 10, and of equals the later is the lighter: dog 9 first; 9 + 10 = 19; saw 30; the 100.
    assert codes(tree) == ["0", "111", "1100", "1101", "10"]


def test_equal_counts_are_joined_in_their_order() -> None:
    # 1 beside 0, 3 beside 2, and of the two the later is child 0.
    assert codes(binary_hierarchy([-1], np.zeros(4, dtype=np.int64), np.ones(4, dtype=np.int64))) == [
        "11", "10", "01", "00",
    ]  # fmt: skip


def test_a_line_of_groups_leaves_no_trace() -> None:
    parents = [3, 0, 1, -1]  # 3 > 0 > 1 > 2, in any order
    tree = binary_hierarchy(parents, np.array([2, 2, 2]), np.array([5, 3, 1]))
    assert codes(tree) == ["0", "10", "11"]
    check(binary_hierarchy(parents, np.array([2]), np.array([0])), 1)
    check(binary_hierarchy(parents, np.array([2, 3]), np.array([0, 0])), 2)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 60))
def test_every_group_is_a_subtree(seed: int, groups: int, words: int) -> None:
    rng = np.random.default_rng(seed)
    parents = [int(rng.integers(-1, group)) for group in range(groups)]
    group_of, counts = rng.integers(0, groups, words), rng.integers(0, 50, words)
    tree = binary_hierarchy(parents, group_of, counts)
    check(tree, words)
    found = codes(tree)
    for group in range(groups):
        below = [word for word in range(words) if group in path_up(parents, int(group_of[word]))]
        if below:
            # The words of a group form a whole subtree: their Kraft sum is that of their common prefix.
            common = len(prefix([found[word] for word in below]))
            assert sum(2.0 ** -len(found[word]) for word in below) == 2.0**-common


def path_up(parents: list[int], group: int) -> list[int]:
    path = [group]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path


def prefix(strings: list[str]) -> str:
    low, high = min(strings), max(strings)
    return next((low[:i] for i in range(len(low)) if low[i] != high[i]), low)


def test_one_group_is_huffman() -> None:
    counts = np.random.default_rng(0).integers(0, 1000, 300)
    tree = binary_hierarchy([-1], np.zeros(300, dtype=np.int64), counts)
    assert (tree.depths * counts).sum() == (huffman_tree(counts).depths * counts).sum()


def test_no_wordnet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=rf"no WordNet in {tmp_path}: install wordnet-base .* tree\.folder=PATH"):
        find_wordnet(tmp_path)
    monkeypatch.setenv("WNHOME", str(tmp_path))
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path / "search"))
    monkeypatch.setattr("lmtool.trees.wordnet.USUAL_FOLDER", tmp_path / "usual")
    with pytest.raises(UserError, match=rf"no WordNet in {tmp_path}/search, {tmp_path}/dict, {tmp_path}/usual: "):
        find_wordnet(None)


@needs_wordnet
def test_no_nltk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk.data", None)
    with pytest.raises(UserError, match=r"needs NLTK: .*pip install 'lmtool\[wordnet\]'"):
        wordnet_tree(["dog"], np.array([1]), None)


@needs_wordnet
def test_words_of_wordnet() -> None:
    words = [
        "the",
        "dogs",
        "Cat",
        "<unk>",
        "ran",
        "walked",
        "spoon",
        "in",
        "N",
        "london",
        "zzz",
        "restrain",
        "inhibit",
    ]
    allowed = list(importlib.import_module("nltk.data").path)
    parents, group_of = wordnet_groups(words, USUAL_FOLDER)
    assert importlib.import_module("nltk.data").path == allowed  # nothing is left open to NLTK

    def top(word: str) -> int:
        return path_up(parents, int(group_of[words.index(word)]))[-1]

    assert [top(word) for word in ("the", "<unk>", "in", "N", "zzz")] == [0] * 5
    assert [top(word) for word in ("dogs", "Cat", "spoon", "london")] == [1] * 4
    assert [top(word) for word in ("ran", "walked", "restrain", "inhibit")] == [2] * 4
    tree = wordnet_tree(words, np.arange(13, 0, -1), None)
    check(tree, 13)
    found = codes(tree)

    def shared(one: str, other: str) -> int:
        return len(prefix([found[words.index(one)], found[words.index(other)]]))

    assert shared("dogs", "Cat") > shared("dogs", "spoon") > shared("dogs", "walked")

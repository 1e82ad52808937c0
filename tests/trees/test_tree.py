"""Arrays that are not a tree are refused; paths, levels and places by hand."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lmtool.neural.outputs.hierarchical import node_log_odds
from lmtool.trees.analysis import analyze, path_rows, top_of
from lmtool.trees.builders import huffman_tree, random_tree
from lmtool.trees.codes import code_strings, write_tree
from lmtool.trees.tree import Tree

CHILDREN = np.array([[1, -1], [-2, -3]], dtype=np.int32)
WORDS = np.arange(3, dtype=np.int32)


@pytest.mark.parametrize(
    ("children", "words", "reason"),
    [
        (CHILDREN[:1], WORDS, "one leaf more than inner nodes"),
        (CHILDREN.ravel(), WORDS, "one leaf more than inner nodes"),
        (CHILDREN, WORDS[None], "one leaf more than inner nodes"),
        (np.empty((0, 2), np.int32), WORDS[:0], "one leaf more than inner nodes"),
        (np.array([[1, -1], [-2, -2]], np.int32), WORDS, "one parent"),
        (np.array([[1, -1], [1, -3]], np.int32), WORDS, "one parent"),
        (np.array([[-1, -2], [-3, 1]], np.int32), WORDS, "parents must come before"),
        (CHILDREN, WORDS[::-1], "every word must have a leaf"),
        (CHILDREN, np.array([0, 0, 2], np.int32), "every word must have a leaf"),
        (CHILDREN, WORDS - 1, "every word must have a leaf"),
        (CHILDREN, WORDS + 1, "every word must have a leaf"),
        (CHILDREN.astype(np.float32), WORDS, "integers"),
        (CHILDREN, WORDS.astype(np.uint32), "integers"),
    ],
)
def test_arrays_that_are_not_a_tree(children: np.ndarray, words: np.ndarray, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^not a tree: .*{reason}"):
        Tree(children, words)


def test_a_tree_by_hand() -> None:
    tree = Tree(CHILDREN, np.array([0, 0, 1], np.int32))
    assert (tree.words, tree.leaves, tree.nodes) == (2, 3, 2)
    assert tree.depths.tolist() == [1, 2, 2] and tree.word_leaves.tolist() == [0, 2, 3]
    assert tree.paths.nodes.tolist() == [0, 0, 1, 0, 1] and tree.paths.bits.tolist() == [1, 0, 0, 0, 1]
    single = Tree(np.empty((0, 2), np.int32), np.zeros(1, np.int32))
    assert (single.words, single.depths.tolist()) == (1, [0])


def test_arrays_of_other_integers_become_contiguous_int32() -> None:
    children = np.array([[1, -3], [-1, -2]], dtype=np.int64)
    for given in (children, children.tolist(), np.asfortranarray(children), np.repeat(children, 2, axis=1)[:, ::2]):
        tree = Tree(given, [0, 1, 2])
        for array in (tree.children, tree.leaf_words):
            assert array.dtype == np.int32 and array.flags.c_contiguous
        assert tree.children.tolist() == children.tolist()


def test_what_is_no_tree_and_words_that_do_not_fit(tmp_path: Path) -> None:
    counts, names = np.ones(3, dtype=np.int64), ["a", "b", "c"]
    of_words: dict[str, Callable[..., object]] = {
        "path_rows": lambda tree, words: path_rows(tree, words, counts, [0]),
        "top_of": lambda tree, words: top_of(tree, words, counts, 1),
        "write_tree": lambda tree, words: write_tree(tmp_path / "tree.txt", tree, words),
    }
    of_trees: dict[str, Callable[..., object]] = {
        "analyze": lambda tree, _: analyze(tree, counts),
        "code_strings": lambda tree, _: code_strings(tree),
    }
    for name, call in (of_trees | of_words).items():
        call(Tree(CHILDREN, WORDS), names)
        with pytest.raises(ValueError, match=f"^{name}: tree must be a Tree; got a list$"):
            call([[1, -1], [-2, -3]], names)
    for name, call in of_words.items():
        with pytest.raises(ValueError, match=f"^{name}: words must be the 3 of the tree; got 2$"):
            call(Tree(CHILDREN, WORDS), names[:2])
        for wrong in (["a", 1, "c"], dict.fromkeys(names)):
            with pytest.raises(ValueError, match=f"^{name}: words must be a list of strings; got a "):
                call(Tree(CHILDREN, WORDS), wrong)


def test_paths_take_no_more_memory_than_a_few_copies_of_themselves() -> None:
    counts = np.maximum(10**6 // np.arange(1, 50_001), 1)
    for tree in (huffman_tree(counts), random_tree(50_000, 1)):
        tracemalloc.start()
        size = sum(array.nbytes for array in (tree.paths.offsets, tree.paths.nodes, tree.paths.bits))
        _, for_paths = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        kept, _ = tracemalloc.get_traced_memory()
        node_log_odds(tree, torch.from_numpy(counts))
        _, for_odds = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert for_paths < 2.2 * size, for_paths / size
        assert for_odds - kept < size, (for_odds - kept) / size


def test_levels_and_places() -> None:
    tree = Tree(CHILDREN, WORDS)
    assert tree.places.tolist() == [[1, 2], [3, 4]]
    assert [level.tolist() for level in tree.levels()] == [[0], [1]]
    assert not list(Tree(CHILDREN[:0], WORDS[:1]).levels())

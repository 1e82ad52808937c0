"""Trees as arrays, files, figures and pictures, by hand; what is not a tree is refused."""

from __future__ import annotations

import importlib.util
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lmtool.errors import UserError
from lmtool.neural.outputs.hierarchical import node_log_odds
from lmtool.trees.analysis import PathRow, TreeAnalysis, analyze, path_rows, top_of, tree_text
from lmtool.trees.builders import balanced_tree, huffman_tree, random_tree
from lmtool.trees.codes import code_strings, from_codes, read_tree, write_tree
from lmtool.trees.tree import Tree
from tests.trees.checks import check, codes, same, zipf

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


NAMES = ["the", "<unk>", "cat\u00a0s", "Ω", "</s>"]
SEVERAL_CODES = from_codes([(0, "00"), (1, "01"), (1, "110"), (2, "10"), (3, "1110"), (0, "11110"), (4, "11111")])


@pytest.mark.parametrize("tree", [huffman_tree(np.array([9, 4, 3, 2, 1])), SEVERAL_CODES], ids=["one code", "several"])
def test_trees_come_back(tree: Tree, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "tree.txt"
    write_tree(path, tree, NAMES)
    found = read_tree(path, NAMES)
    assert found.leaf_words.tolist() == tree.leaf_words.tolist() and codes(found) == codes(tree)
    assert code_strings(tree) == codes(tree)


def test_small_and_large_trees_come_back(tmp_path: Path) -> None:
    path = tmp_path / "tree.txt"
    for words in (1, 2, 20_000):
        names = [f"w{word}" for word in range(words)]
        tree = huffman_tree(zipf(words))
        write_tree(path, tree, names)
        assert codes(read_tree(path, names)) == codes(tree)
    write_tree(path, balanced_tree(np.arange(2)), ["a", "b"])
    assert path.read_text() == "a\t0\nb\t1\n"


def test_white_space_can_be_a_word(tmp_path: Path) -> None:
    path = tmp_path / "tree.txt"
    words = [" ", "\n", "\\", "a"]
    write_tree(path, balanced_tree(np.arange(4)), words)
    assert path.read_text() == "\\x20\t00\n\\x0a\t01\n\\\t10\na\t11\n"
    assert codes(read_tree(path, words)) == ["00", "01", "10", "11"]


def test_any_white_space_and_order(tmp_path: Path) -> None:
    path = tmp_path / "tree.txt"
    path.write_text("b   10\n\na\t 0\r\n  c 11", newline="")
    tree = read_tree(path, ["a", "b", "c"])
    check(tree, 3)
    assert codes(tree) == ["0", "10", "11"] and same(tree, from_codes([(0, "0"), (1, "10"), (2, "11")]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 0\nb\n", r"tree\.txt, line 2: 1 fields; write a word"),
        ("a 0\nb 1 0\n", r"line 2: 3 fields"),
        ("a 0\n\nd 1\n", r"line 3: 'd' is not in the vocabulary: the tree was built for another vocabulary"),
        ("a 0\nb 1\n", r"misses 1 of the 3 words, such as 'c'"),
        ("", r"^the tree: .*tree\.txt is empty"),
        ("a 0\nb 10\nc 1x\n", r"tree\.txt: the code '1x' of 'c' must be made of 0 and 1"),
        ("a 0\nb 10\nc 10\n", r"'b' and 'c' have the same code 10"),
        ("a 0\nb 01\nc 1\n", r"the code 0 of 'a' begins that of 'b', 01: not a prefix code"),
        ("a 01\nb 0\nc 1\n", r"the code 0 of 'b' begins that of 'a', 01: not a prefix code"),
        ("a 00\na 01\nb 1\nc 10\n", r"the code 1 of 'b' begins that of 'c', 10: not a prefix code"),
        ("a 00\nb 10\nc 11\n", r"no code begins with 01, but 00 needs it"),
        (b"a 0\nb\xff 1\n", r"line 2: byte 0xff is not UTF-8"),
    ],
)
def test_what_is_wrong(text: str | bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tree.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message) as caught:
        read_tree(path, ["a", "b", "c"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([], "the tree has no words"),
        ([(2, "1"), (0, "0")], "the tree misses 1 of the 3 words, such as 1: give each one a code"),
        ([(0, ""), (1, "1")], "the code '' of 0 must be made of 0 and 1, one or more"),
        ([(0, "0"), (1, "0")], "0 and 1 have the same code 0"),
    ],
)
def test_codes_that_make_no_tree(codes: list[tuple[int, str]], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        from_codes(codes)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^the tree: no file .*none\.txt: check the path"):
        read_tree(tmp_path / "none.txt", ["a"])
    with pytest.raises(UserError, match=r"^the tree: cannot read .*: Is a directory"):
        read_tree(tmp_path, ["a"])


def test_words_without_a_name_are_their_ids() -> None:
    codes = [(0, "0"), (1, "2")]
    for names, said in ((["a", "b"], "'b'"), (["a"], "1"), ([], "1"), (None, "1")):
        with pytest.raises(UserError, match=f"the code '2' of {said} must be made of 0 and 1"):
            from_codes(codes, names)


def test_lines_end_in_line_feeds_alone(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes("a\x85\u2028 0\r\nb\u00a0\x1d 1\r\n".encode())
    assert code_strings(read_tree(tmp_path / "t.txt", ["a\x85\u2028", "b\u00a0\x1d"])) == ["0", "1"]


needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")
FOUR = ["the", "cat", "sat", "$ no \\frac"]
CODES = from_codes([(0, "0"), (1, "10"), (2, "110"), (3, "111")])
COUNTS_OF_FOUR = np.array([4, 2, 1, 1])
# Word 0 at depths 1 and 3.
SEVERAL = from_codes([(0, "0"), (0, "111"), (1, "10"), (2, "110")])


def test_figures_by_hand() -> None:
    assert analyze(CODES, COUNTS_OF_FOUR) == TreeAnalysis(
        words=4,
        leaves=4,
        nodes=3,
        mean_depth=2.25,
        weighted_mean_depth=1.75,
        minimal_depth=1,
        maximal_depth=3,
        entropy=1.75,
        depths=(0, 1, 1, 2),
    )


def test_several_codes_count_with_their_mean() -> None:
    found = analyze(SEVERAL, np.array([2, 1, 1]))
    assert (found.words, found.leaves, found.nodes) == (3, 4, 3)
    assert found.mean_depth == pytest.approx((2 + 2 + 3) / 3)
    assert found.weighted_mean_depth == (2 * 2 + 2 + 3) / 4
    assert found.entropy == 1.5 and found.depths == (0, 1, 1, 2)


def test_nothing_occurs_and_one_word() -> None:
    assert analyze(CODES, np.array([0, 1, 0, 0])).entropy == 0
    found = analyze(CODES, np.zeros(4, dtype=np.int64))
    assert found.weighted_mean_depth == found.mean_depth == 2.25 and found.entropy == 0
    one = analyze(balanced_tree(np.arange(1)), np.array([3]))
    assert one == TreeAnalysis(1, 1, 0, 0.0, 0.0, 0, 0, 0.0, (1,))


def test_huffman_is_near_the_entropy() -> None:
    found = analyze(huffman_tree(zipf(5000)), zipf(5000))
    assert found.entropy <= found.weighted_mean_depth <= found.entropy + 0.05


def test_rows() -> None:
    assert path_rows(CODES, FOUR, COUNTS_OF_FOUR, [2, 0]) == [
        PathRow("sat", 1, 0.125, 3, "110"),
        PathRow("the", 4, 0.5, 1, "0"),
    ]
    assert path_rows(CODES, FOUR, np.array([0, 1, 0, 0]), [1]) == [PathRow("cat", 1, 1.0, 2, "10")]
    assert [row.code for row in path_rows(SEVERAL, FOUR, np.array([2, 1, 1]), [0])] == ["0", "111"]
    assert path_rows(balanced_tree(np.arange(1)), FOUR, np.array([0]), [0]) == [PathRow("the", 0, 0.0, 0, "")]


def test_text() -> None:
    assert tree_text(top_of(CODES, FOUR, COUNTS_OF_FOUR, 2)).splitlines() == [
        "· 100.0%",
        "  0  50.0% the",
        "  1  50.0%",
        "    0  25.0% cat",
        "    1  25.0% sat, $ no \\frac",
    ]
    assert tree_text(top_of(SEVERAL, FOUR, np.array([2, 1, 1]), 1)).splitlines() == [
        "· 100.0%",
        "  0  25.0% the",
        "  1  75.0% the, cat, sat",
    ]
    many = [" ", "\n", "w" * 17, "w" * 16, "e"]
    assert tree_text(top_of(balanced_tree(np.arange(5)), many, np.zeros(5, dtype=np.int64), 0)) == (
        f"· 100.0% ' ', \\n, {'w' * 15}…, {'w' * 16}, … (5 words)"
    )
    # The most frequent first, up to four, each once.
    assert tree_text(top_of(CODES, FOUR, np.array([1, 1, 4, 2]), 0)) == "· 100.0% sat, $ no \\frac, the, cat"
    assert tree_text(top_of(SEVERAL, FOUR, np.array([2, 1, 1]), 0)) == "· 100.0% the, cat, sat"
    assert tree_text(top_of(balanced_tree(np.arange(1)), ["a"], np.array([1]), 4)) == "· 100.0% a"


@needs_matplotlib
def test_pictures(tmp_path: Path) -> None:
    from lmtool.plots.style import save_png
    from lmtool.plots.word_pictures import tree_figure

    names = [f"語{word}" for word in range(3000)]  # signs that the font may lack
    tops = {
        "one": top_of(CODES, FOUR, COUNTS_OF_FOUR, 4),
        "several": top_of(SEVERAL, FOUR, np.array([2, 1, 1]), 4),
        "large": top_of(huffman_tree(zipf(3000)), names, zipf(3000), 5),
        "leaf": top_of(balanced_tree(np.arange(1)), ["a"], np.array([1]), 4),
    }
    for name, top in tops.items():
        save_png(tree_figure(top), tmp_path / f"{name}.png")
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())
    assert len(list(tmp_path.iterdir())) == 4
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UserError, match="is a folder: name a file"):
        save_png(tree_figure(tops["one"]), tmp_path / "folder.png")

"""Tree files: there and back, and what is wrong with those of others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lmtool.errors import UserError
from lmtool.trees.builders import balanced_tree, huffman_tree
from lmtool.trees.codes import code_strings, from_codes, read_tree, write_tree
from lmtool.trees.tree import Tree
from tests.trees.checks import check, codes, same, zipf

WORDS = ["the", "<unk>", "cat\u00a0s", "Ω", "</s>"]
SEVERAL = from_codes([(0, "00"), (1, "01"), (1, "110"), (2, "10"), (3, "1110"), (0, "11110"), (4, "11111")])


@pytest.mark.parametrize("tree", [huffman_tree(np.array([9, 4, 3, 2, 1])), SEVERAL], ids=["one code", "several"])
def test_trees_come_back(tree: Tree, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "tree.txt"
    write_tree(path, tree, WORDS)
    found = read_tree(path, WORDS)
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

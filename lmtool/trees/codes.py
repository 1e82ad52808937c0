"""Codes of trees as strings of 0 and 1, and as text files with a line `word<TAB>code` for each leaf."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from lmtool.config.rules import require_path
from lmtool.data.readers import read_blocks
from lmtool.errors import UserError, prefix_user_errors
from lmtool.system.files import atomic_write, packed_file
from lmtool.trees.tree import Tree, require_tree, require_words


def code_strings(tree: Tree) -> list[str]:
    """Return the code of each leaf, `[L]` strings of 0 and 1. Raises ValueError if `tree` is not a Tree.

    >>> from lmtool.trees import balanced_tree, code_strings
    >>> code_strings(balanced_tree([0, 1, 2]))
    ['00', '01', '1']
    """
    require_tree("code_strings: tree", tree)
    text = (tree.paths.bits + np.uint8(ord("0"))).tobytes().decode("ascii")
    return [text[start:end] for start, end in itertools.pairwise(tree.paths.offsets.tolist())]


def from_codes(codes: Sequence[tuple[int, str]], names: Sequence[str] | None = None) -> Tree:
    """Build the tree of codes given as (word id, string of 0 and 1), one or more for each word from 0 to the highest.

    names: the names of the words in errors; a word without one is named by its id. Raises UserError if the codes are
    not a prefix code, leave a place of the tree empty, miss a word, or contain other characters.

    >>> from lmtool.trees import from_codes
    >>> from_codes([(0, "0"), (1, "10"), (2, "11")]).depths.tolist()
    [1, 2, 2]
    """

    def name(word: int) -> str:
        return repr(names[word]) if names is not None and 0 <= word < len(names) else str(word)

    if not codes:
        raise UserError("the tree has no words: give each word a code of 0 and 1")
    total = len(names) if names is not None else max(word for word, _ in codes) + 1
    missing = set(range(total)) - {word for word, _ in codes}
    if missing:
        which = f"{len(missing)} of the {total} words, such as {', '.join(map(name, sorted(missing)[:3]))}"
        raise UserError(f"the tree misses {which}: give each one a code, or build a tree for this vocabulary")
    for word, code in codes:
        if set(code) - {"0", "1"} or (not code and len(codes) > 1):
            raise UserError(f"the code {code!r} of {name(word)} must be made of 0 and 1, one or more")
    # In string order, a code is immediately followed by a code that it is a prefix of, or by its equal, if any.
    for (code, word), (following, other) in itertools.pairwise(sorted((code, word) for word, code in codes)):
        if code == following:
            raise UserError(f"{name(word)} and {name(other)} have the same code {code}: not a prefix code")
        if following.startswith(code):
            raise UserError(
                f"the code {code} of {name(word)} begins that of {name(other)}, {following}: not a prefix code"
            )
    by_word = sorted(codes, key=lambda item: item[0])
    leaves = {code: leaf for leaf, (_, code) in enumerate(by_word)}
    inner = sorted({code[:end] for code in leaves for end in range(len(code))}, key=lambda code: (len(code), code))
    child = {code: -1 - leaf for code, leaf in leaves.items()} | {code: node for node, code in enumerate(inner)}
    for empty in (code + bit for code in inner for bit in "01"):
        if empty not in child:
            longer = min(code for code in leaves if code.startswith(empty[:-1]))
            raise UserError(f"no code begins with {empty}, but {longer} needs it: the Kraft sum is below 1")
    children = [[child[code + "0"], child[code + "1"]] for code in inner]
    words = np.array([word for word, _ in by_word], dtype=np.int32)
    return Tree(np.array(children, dtype=np.int32).reshape(-1, 2), words)


def _escape(word: str) -> str:
    """Return a word as written to the file: white space (a word in text of characters) becomes \\x20 and the like."""
    return re.sub(r"[ \t\n\r\v\f]", lambda match: f"\\x{ord(match[0]):02x}", word)


def write_tree(path: str | PathLike[str], tree: Tree, words: Sequence[str]) -> None:
    """Write a line for each leaf, in the order of the words `[W]`, completely or not at all.

    read_tree reads the file. Raises UserError if the disk is full or the folder cannot be written to, and ValueError if
    `tree` is not a Tree or has more words than `words`.

    >>> from pathlib import Path
    >>> from lmtool.trees import balanced_tree, write_tree
    >>> write_tree("tree.tsv", balanced_tree([0, 1]), ["the", "cat"])
    >>> [line.split() for line in Path("tree.tsv").read_text().splitlines()]
    [['the', '0'], ['cat', '1']]
    """
    require_path("path", path, null=False)
    require_tree("write_tree: tree", tree)
    require_words("write_tree: words", words, tree)
    leaves = zip(tree.leaf_words.tolist(), code_strings(tree), strict=True)
    lines = [f"{_escape(words[word])}\t{code}\n" for word, code in leaves]
    with atomic_write(Path(path)) as temporary, packed_file(temporary, Path(path)) as file:
        file.write("".join(lines).encode())


def read_tree(path: str | PathLike[str], words: Sequence[str]) -> Tree:
    """Read a tree over words `[W]`: lines of a word, white space and its code; a word may have several lines.

    Empty lines are skipped. Raises UserError, naming the file, if it is missing, a line does not have two fields, a
    word is not among `words` or has no line, or the codes do not form a binary tree (from_codes).

    >>> from lmtool.trees import balanced_tree, read_tree, write_tree
    >>> write_tree("tree.tsv.gz", balanced_tree([0, 1, 2]), ["the", "cat", "sat"])
    >>> read_tree("tree.tsv.gz", ["the", "cat", "sat"]).depths.tolist()
    [2, 2, 1]
    """
    require_path("path", path, null=False)
    with prefix_user_errors("the tree"):
        lines = b"".join(read_blocks(str(path), tables=True)).split(b"\n")
    ids = {_escape(word): index for index, word in enumerate(words)}
    codes: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        fields = [field.decode("utf-8") for field in line.split()]  # as bytes: a word may contain other white space
        if not fields:
            continue
        if len(words) == 1 and len(fields) == 1:  # the word's code is empty
            fields.append("")
        if len(fields) != 2:
            raise UserError(f"{where}: {len(fields)} fields; write a word, a tab, and its code of 0 and 1")
        word, code = fields
        if word not in ids:
            raise UserError(
                f"{where}: {word!r} is not in the vocabulary: the tree was built for another vocabulary; "
                "build one for this one"
            )
        codes.append((ids[word], code))
    with prefix_user_errors(str(path)):
        return from_codes(codes, words)

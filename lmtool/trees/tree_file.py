"""Trees as text: a line `word<TAB>code` for each leaf, the code made of 0 and 1."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from lmtool.errors import UserError
from lmtool.system.files import atomic_write
from lmtool.trees.codes import code_strings, from_codes
from lmtool.trees.tree import Tree, require_tree, require_words


def _written(word: str) -> str:
    """A word as the file has it: white space in it, a word of its own in text of characters, as \\x20 and the like."""
    return re.sub(r"[ \t\n\r\v\f]", lambda match: f"\\x{ord(match[0]):02x}", word)


def write_tree(path: str | PathLike[str], tree: Tree, words: Sequence[str]) -> None:
    """Write a line for each leaf, in the order of the words `[W]`; whole or not at all.

    read_tree reads it back. Raises UserError where the disk is full or the folder cannot be written to, and ValueError
    for what is no Tree and for fewer words than it has.
    """
    require_tree("write_tree: tree", tree)
    require_words("write_tree: words", words, tree)
    leaves = zip(tree.leaf_words.tolist(), code_strings(tree), strict=True)
    lines = [f"{_written(words[word])}\t{code}\n" for word, code in leaves]
    with atomic_write(Path(path)) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8", newline="\n")


def read_tree(path: str | PathLike[str], words: Sequence[str]) -> Tree:
    """The tree over words `[W]` of a file: lines of a word, white space and its code; several lines are several codes.

    Empty lines are skipped. Raises UserError, naming the file, where it is missing, a line does not have two fields, a
    word is not among `words` or has no line, or the codes are not those of the leaves of a binary tree (from_codes).
    """
    path = Path(path)
    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    except OSError as error:
        raise UserError(f"cannot read the tree {path}: {error.strerror}; give the path of a tree file") from error
    ids = {_written(word): index for index, word in enumerate(words)}
    codes: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=1):
        try:
            fields = [field.decode("utf-8") for field in line.split()]  # of bytes: a word may hold other white space
        except UnicodeDecodeError as error:
            raise UserError(f"{path}, line {number}: not UTF-8; save the file in that encoding") from error
        if not fields:
            continue
        if len(words) == 1 and len(fields) == 1:  # its code is empty
            fields.append("")
        if len(fields) != 2:
            raise UserError(
                f"{path}, line {number}: {len(fields)} fields; write a word, a tab, and its code of 0 and 1"
            )
        word, code = fields
        if word not in ids:
            raise UserError(
                f"{path}, line {number}: {word!r} is not in the vocabulary: the tree was built for another vocabulary; "
                "build one for this one"
            )
        codes.append((ids[word], code))
    missing = sorted(set(ids.values()) - {word for word, _ in codes})
    if missing:
        raise UserError(
            f"{path} misses {len(missing)} of the {len(words)} words, such as {words[missing[0]]!r}: "
            "give each one a code, or build a tree for this vocabulary"
        )
    try:
        return from_codes(codes, words)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error

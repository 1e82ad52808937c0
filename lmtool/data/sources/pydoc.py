"""The docstrings of the running Python's standard library: real text on every machine, without a network."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from lmtool.config import PydocData
from lmtool.data.sources import Source
from lmtool.errors import UserError

# Not documentation, or copies of other people's.
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip"}
SKIPPED |= {"__pycache__", "_vendor", "pydoc_data", "lib-dynload"}

TOKEN = re.compile(r"[A-Za-z_]+(?:'[a-z]+)?|\d+|\.\.\.|>>>|[^\w\s]")
# A sentence ends with the paragraph, or at a full stop before white space and a capital letter.
SENTENCE_END = re.compile(r"\n\s*\n|(?<=[.!?])\s+(?=[A-Z`'\"(])|(?<=:)\s*\n")


def pydoc_source(data: PydocData) -> Source:
    """The docstrings, cut into sentences, lower-cased, digits as N; whole modules go to one split each."""
    library = Path(sysconfig.get_paths()["stdlib"])
    texts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    seen: set[str] = set()

    def extract() -> dict[str, list[str]]:
        if not texts["train"]:
            for module, docstring in docstrings(library):
                if docstring not in seen:
                    seen.add(docstring)
                    texts[_split_of(module, data)] += sentences(docstring, data.min_words)
            if not all(texts.values()):
                raise UserError(
                    f"found too few docstrings below {library} with data.min_words={data.min_words}: lower it, or use "
                    "data=text with a file of your own"
                )
        return texts

    def blocks(name: str) -> Iterator[bytes]:
        yield ("\n".join(extract()[name]) + "\n").encode()

    stamp = {"python": sys.version, "rules": [TOKEN.pattern, SENTENCE_END.pattern, *sorted(SKIPPED)]}
    return Source(
        splits={name: partial(blocks, name) for name in texts},
        stamp=stamp,
        identity=lambda: stamp,
    )


def docstrings(library: Path) -> Iterator[tuple[str, str]]:
    """Every docstring with the top-level module or package it stands in, in the order of the paths."""
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library).parts
        if SKIPPED.intersection(parts):
            continue
        with warnings.catch_warnings():
            # Old modules have escapes that newer compilers warn of.
            warnings.simplefilter("ignore")
            try:
                tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError):
                continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node, clean=False)
                if docstring:
                    yield parts[0].removesuffix(".py"), inspect.cleandoc(docstring)


def sentences(docstring: str, min_words: int) -> list[str]:
    """The sentences of a docstring, their tokens separated by spaces; those under `min_words` are left out."""
    found = []
    for piece in SENTENCE_END.split(docstring):
        tokens = ["N" if token.isdigit() else token.lower() for token in TOKEN.findall(piece)]
        # A row of dashes is a rule under a heading, not words.
        if sum(token[0].isalpha() for token in tokens) >= min_words:
            found.append(" ".join(tokens))
    return found


def _split_of(module: str, data: PydocData) -> str:
    """By the module's name alone, so that a text stays in its split from one Python to the next."""
    digest = hashlib.sha256(f"{data.seed}:{module}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    if share < data.valid_fraction:
        return "valid"
    return "test" if share < data.valid_fraction + data.test_fraction else "train"

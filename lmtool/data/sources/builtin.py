"""Data sets without files: short sentences, docstrings of Python, drawn words, text given from Python."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from lmtool.config.data import DataConfig
from lmtool.config.rules import MISSING, require, setting
from lmtool.data.sources.base import DrawnIds, NoSource, Source, TextNotRetained
from lmtool.errors import UserError

TRAIN = """\
the cat sat on the mat
the dog sat on the rug
the cat saw the dog
the dog saw the cat
a bird sang in the tree
the bird saw the cat
the cat ran to the tree
the dog ran to the cat
a cat sat in the sun
a dog slept on the mat
the bird flew to the tree
the sun set on the tree
the dog slept in the sun
a bird sat on the dog
the cat slept on the rug
the mat was in the sun
the rug was on the mat
a cat and a dog ran
the bird and the cat sat
the cat and the dog slept
"""
VALID = """\
the cat sat on the rug
a bird sat in the tree
the dog ran to the tree
the bird slept in the sun
"""
TEST = """\
the dog sat on the mat
a cat saw the bird
the bird flew to the sun
a horse slept in the sun
"""


@dataclass(slots=True)
class ToyData(DataConfig):
    """Some twenty short sentences that are part of lmtool; `horse` in test is out of vocabulary."""

    kind: str = "toy"

    def source(self, *, progress: bool, download: bool) -> Source:
        texts = {"train": TRAIN, "valid": VALID, "test": TEST}
        splits = {name: partial(iter, [text.encode()]) for name, text in texts.items()}
        return Source(splits, texts, identity=lambda: texts)


# Not documentation, or copies from other projects.
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip"}
SKIPPED |= {"__pycache__", "_vendor", "pydoc_data", "lib-dynload"}

TOKEN = re.compile(r"[A-Za-z_]+(?:'[a-z]+)?|\d+|\.\.\.|>>>|[^\w\s]")
# A sentence ends with the paragraph, or at a full stop before white space and a capital letter.
SENTENCE_END = re.compile(r"\n\s*\n|(?<=[.!?])\s+(?=[A-Z`'\"(])|(?<=:)\s*\n")


@dataclass(slots=True)
class PydocData(DataConfig):
    """The docstrings of Python's standard library, cut into sentences in lower case, with N for digits."""

    kind: str = "pydoc"
    min_words: int = setting(min=0)
    seed: int = setting(min=0)
    valid_fraction: float = setting(above=0, below=0.5)
    test_fraction: float = setting(above=0, below=0.5)

    def source(self, *, progress: bool, download: bool) -> Source:
        extracted = cache(self._extract)

        def blocks(name: str) -> Iterator[bytes]:
            yield ("\n".join(extracted()[name]) + "\n").encode()

        stamp = {"python": sys.version, "rules": [TOKEN.pattern, SENTENCE_END.pattern, *sorted(SKIPPED)]}
        splits = {name: partial(blocks, name) for name in ("train", "valid", "test")}
        return Source(splits, stamp, identity=lambda: stamp)

    def _extract(self) -> dict[str, list[str]]:
        library = Path(sysconfig.get_paths()["stdlib"])
        texts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
        seen: set[str] = set()
        for module, docstring in docstrings(library):
            if docstring not in seen:
                seen.add(docstring)
                texts[self._split_of(module)] += sentences(docstring, self.min_words)
        if not all(texts.values()):
            few = f"found too few docstrings below {library} with data.min_words={self.min_words}"
            raise UserError(f"{few}: lower it, or use your own text")
        return texts

    def _split_of(self, module: str) -> str:
        """Return the split of a module, by its name alone: a text stays in its split in other versions of Python."""
        import hashlib  # slow to import, which would delay help pages

        digest = hashlib.sha256(f"{self.seed}:{module}".encode()).digest()
        share = int.from_bytes(digest[:8], "big") / 2**64
        if share < self.valid_fraction:
            return "valid"
        return "test" if share < self.valid_fraction + self.test_fraction else "train"


def docstrings(library: Path) -> Iterator[tuple[str, str]]:
    """Yield each docstring with its top-level module or package, in the order of the paths."""
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library).parts
        if SKIPPED.intersection(parts):
            continue
        with warnings.catch_warnings():
            # Newer compilers warn about escapes in old modules.
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
    """Return the sentences of a docstring with `min_words` or more, their tokens separated by spaces."""
    kept = []
    for piece in SENTENCE_END.split(docstring):
        tokens = ["N" if token.isdigit() else token.lower() for token in TOKEN.findall(piece)]
        # A row of dashes underlines a heading.
        if sum(token[0].isalpha() for token in tokens) >= min_words:
            kept.append(" ".join(tokens))
    return kept


@dataclass(slots=True)
class SyntheticData(DataConfig):
    """A seeded source whose entropy is known in closed form."""

    kind: str = "synthetic"
    tokens: int = setting(min=1)
    valid_tokens: int = setting(min=1)
    test_tokens: int = setting(min=1)
    types: int = setting(min=2, max=100_000_000)
    zipf_exponent: float = setting(min=0, max=100)  # a steeper law leaves only its first word
    repeat: float = setting(min=0, below=1)
    successors: int = setting(min=1)
    sentence_length: float = setting(above=1, max=1e6)  # sentences are drawn whole, in memory
    seed: int = setting(min=0)

    def __post_init__(self) -> None:
        DataConfig.__post_init__(self)
        require(self.successors <= self.types, "data.successors", self.successors, "from 1 to data.types")
        if self.vocabulary.unit.is_subword:
            unit = self.vocabulary.unit.value
            raise UserError(f"data.vocabulary.unit={unit}: data.kind=synthetic draws words, and has no text to cut")
        if self.vocabulary.size is not None:
            size = self.vocabulary.size
            raise UserError(f"data.vocabulary.size={size}: data.kind=synthetic knows all its words; set data.types")

    def source(self, *, progress: bool, download: bool) -> Source:
        from lmtool.data.sources.synthetic import draw, entropy, type_names

        tokens = {"train": self.tokens, "valid": self.valid_tokens, "test": self.test_tokens}
        drawn = DrawnIds(partial(type_names, self), tokens, partial(draw, self), partial(entropy, self))
        return Source({}, {"seed": self.seed}, drawn=drawn)


MADE_BY = "lmtool.Corpus.from_texts(train=[...], valid=[...])"


@dataclass(slots=True)
class TextsData(DataConfig):
    """Text given from Python. digest: SHA-256 of the text and of a given vocabulary; None if nothing was given."""

    kind: str = "texts"
    digest: str | None = MISSING

    def source(self, *, progress: bool, download: bool) -> Source:
        if self.digest is None:
            raise NoSource(f"data={self.kind} is text given from Python: make its store by {MADE_BY}")
        raise TextNotRetained(
            f"the text of data.name={self.name} was given from Python and its store is gone: give the same text again, "
            f"by {MADE_BY}; without it a run scores only other text, with text=FILE"
        )

"""Write word vectors in the formats of word2vec (Mikolov et al. 2013), which gensim and others read.

A line `W D`; then in the text form a line per word, the word and its D numbers separated by spaces; in the binary form
the word, a space, its numbers as little-endian float32, a line end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lmtool.system.files import atomic_write

Rows = npt.NDArray[np.float32]


def write_vectors(words: Sequence[str], vectors: Rows, path: Path, *, binary: bool) -> None:
    """Write words and their vectors float32 `[W, D]`, completely or not at all; nine digits identify every float32.

    Words are written as `writable` says. Raises UserError if the file cannot be written.
    """
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
        file.writelines(_binary(words, vectors) if binary else _text(words, vectors))


def _text(words: Sequence[str], vectors: Rows) -> Iterator[bytes]:
    form = " %.9g" * vectors.shape[1]
    for word, row in zip(words, vectors, strict=True):
        yield f"{writable(word)}{form % tuple(row.tolist())}\n".encode()


def _binary(words: Sequence[str], vectors: Rows) -> Iterator[bytes]:
    for word, row in zip(words, vectors, strict=True):
        yield writable(word).encode() + b" " + row.astype("<f4").tobytes() + b"\n"


def writable(word: str) -> str:
    """Return a word as the formats can hold it: each white space as its code point, e.g. <0x20>."""
    return re.sub(r"\s", lambda match: f"<0x{ord(match[0]):02X}>", word)

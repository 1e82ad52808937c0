"""Tibetan syllables: a word ends behind each tsek, the mark between syllables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lmtool.config.groups import SegmenterConfig

TSEK = "\u0f0b"


@dataclass(slots=True)
class TsekSegmenter(SegmenterConfig):
    """A space behind each tsek."""

    def build(self) -> Callable[[str], str]:
        """Return the function."""
        return lambda line: line.replace(TSEK, f"{TSEK} ")

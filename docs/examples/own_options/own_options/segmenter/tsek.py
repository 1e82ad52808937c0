"""Tibetan syllables: a word ends behind each tsek, the mark between syllables."""

from __future__ import annotations

from dataclasses import dataclass

from lmtool.config.groups import SegmenterConfig

TSEK = "\u0f0b"


@dataclass(slots=True)
class TsekSegmenter(SegmenterConfig):
    """A space behind each tsek."""

    def cut(self, line: str) -> str:
        """Return a line with its syllables separated."""
        return line.replace(TSEK, f"{TSEK} ")

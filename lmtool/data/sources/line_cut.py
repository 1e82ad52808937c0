"""One text becomes train, valid and test by its lines, in their order or shuffled."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import chain, islice

from lmtool.data.sources.base import Blocks, cut_points

LINES = 1 << 14  # lines that are given on at once


def cut_by_lines(
    read: Callable[[], Blocks], train: float | None, valid: float | None, shuffle_seed: int | None = None
) -> dict[str, Callable[[], Blocks]]:
    """The splits of a text that is cut by its lines with words.

    read: starts reading the text; called to count the lines, and for each split. train, valid: as of cut_points; test
    is the rest. shuffle_seed: of a shuffle beforehand by Python's `random`, for
    which all lines are held in memory; None for the order of the text.
    """

    @cache
    def ends() -> tuple[int, int]:
        return cut_points(sum(1 for _ in _lines(read())), train, valid)

    def split(name: str) -> Iterator[bytes]:
        lines: Iterator[bytes] = _lines(read())
        if shuffle_seed is not None:
            shuffled = list(lines)
            random.Random(shuffle_seed).shuffle(shuffled)
            lines = iter(shuffled)
        first, last = {"train": (0, ends()[0]), "valid": ends(), "test": (ends()[1], None)}[name]
        chosen = islice(lines, first, last)
        while piece := list(islice(chosen, LINES)):
            yield b"\n".join([*piece, b""])

    return {name: partial(split, name) for name in ("train", "valid", "test")}


def _lines(blocks: Blocks) -> Iterator[bytes]:
    """The lines with words, without their ends."""
    return chain.from_iterable([line for line in block.split(b"\n") if line.strip()] for block in blocks)

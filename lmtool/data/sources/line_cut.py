"""One text becomes train, valid and test by its lines, in their order or shuffled."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from itertools import chain, islice

from lmtool.config.rules import MISSING, require, require_seed
from lmtool.data.sources.base import Blocks, cut_points

LINES = 1 << 14  # lines that are given on at once


class SplitUnit(Enum):
    """What the sizes of a split count."""

    tokens = "tokens"
    lines = "lines"


@dataclass(slots=True)
class SplitConfig:
    """How data.train is cut into train, valid and test, which is the rest; null in all of them is no cut.

    unit: lines unless it is given; with tokens a sentence stays whole, in the split that its first token falls in.
    train, valid: counts of the unit, or fractions below 1. Where one of the two is given, test is as large as valid;
    where none is, they are 0.8 and 0.1. shuffle_seed: of a shuffle of the lines beforehand; None for their order.
    """

    unit: SplitUnit | None = MISSING
    train: float | None = MISSING
    valid: float | None = MISSING
    shuffle_seed: int | None = MISSING

    def __post_init__(self) -> None:
        for name, value in (("train", self.train), ("valid", self.valid)):
            rule = "more than 0: a count, or a fraction below 1"
            require(value is None or 0 < value < math.inf, f"data.split.{name}", value, rule)
        require_seed("data.split.shuffle_seed", self.shuffle_seed, null=True)
        if self.is_given():
            self._fill_in()

    def is_given(self) -> bool:
        """Whether any value is, so that there is a cut."""
        return any(value is not None for value in (self.unit, self.train, self.valid, self.shuffle_seed))

    def _fill_in(self) -> None:
        """Give what is left out its value, so that settings that mean the same are the same."""
        self.unit = self.unit or SplitUnit.lines
        if self.unit is SplitUnit.tokens:
            rule = "null with data.split.unit=tokens: only lines are shuffled"
            require(self.shuffle_seed is None, "data.split.shuffle_seed", self.shuffle_seed, rule)
        if self.train is None and self.valid is None:
            self.train, self.valid = 0.8, 0.1
        elif self.valid is None and self.train is not None and self.train < 1:
            self.valid = round((1 - self.train) / 2, 9)
        elif self.train is None and self.valid is not None and self.valid < 1:
            rule = "below 0.5 where data.split.train is not given: test is as large"
            require(self.valid < 0.5, "data.split.valid", self.valid, rule)
            self.train = round(1 - 2 * self.valid, 9)
        elif self.train is not None and self.valid is not None and self.train < 1 and self.valid < 1:
            rule = f"at most 1 together with data.split.train={self.train:g}"
            require(round(self.train + self.valid, 9) <= 1, "data.split.valid", f"{self.valid:g}", rule)


def cut_by_lines(
    read: Callable[[], Blocks],
    train: float | None,
    valid: float | None,
    shuffle_seed: int | None = None,
    *,
    blank: bool = False,
) -> dict[str, Callable[[], Blocks]]:
    """The splits of a text that is cut by its lines with words, and by the others if `blank` is true.

    read: starts reading the text; called to count the lines, and for each split. train, valid: as of cut_points; test
    is the rest. shuffle_seed: of a shuffle beforehand by Python's `random`, for
    which all lines are held in memory; None for the order of the text.
    """

    @cache
    def ends() -> tuple[int, int]:
        return cut_points(sum(1 for _ in _lines(read(), blank)), train, valid)

    def split(name: str) -> Iterator[bytes]:
        lines: Iterator[bytes] = _lines(read(), blank)
        if shuffle_seed is not None:
            shuffled = list(lines)
            random.Random(shuffle_seed).shuffle(shuffled)
            lines = iter(shuffled)
        first, last = {"train": (0, ends()[0]), "valid": ends(), "test": (ends()[1], None)}[name]
        chosen = islice(lines, first, last)
        while piece := list(islice(chosen, LINES)):
            yield b"\n".join([*piece, b""])

    return {name: partial(split, name) for name in ("train", "valid", "test")}


def _lines(blocks: Blocks, blank: bool) -> Iterator[bytes]:
    """The lines with words, or all if `blank` is true, without their ends."""
    return chain.from_iterable([x for x in block.split(b"\n")[:-1] if blank or x.strip()] for block in blocks)

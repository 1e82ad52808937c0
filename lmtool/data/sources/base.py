"""The interface of a source: the text of each split in blocks of whole lines, or drawn ids; and cuts of one text."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar

from lmtool.config.rules import INTEGER_BITS, MISSING, Settings, is_number, require, setting
from lmtool.data.faults import Faults
from lmtool.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from lmtool.data.vocabulary import Vocabulary

Blocks = Iterator[bytes]


class NoSource(UserError):
    """The text of a data set is not on this machine."""


class TextNotRetained(NoSource):
    """The text of a data set was deliberately not kept: only its store exists."""


@dataclass(frozen=True, slots=True)
class DrawnIds:
    """The splits of a source that draws ids of words instead of text.

    types: all words by id, lmtool.data.tokenizer.RESERVED first. tokens: approximate number of ids of each split. draw:
    returns the ids of a split, given its name, in int32 chunks of whole sentences with EOS_ID after each. entropy:
    entropy of the source in nats per token; None if it is not known.
    """

    types: Callable[[], list[str]]
    tokens: dict[str, int]
    draw: Callable[[str], Iterator[npt.NDArray[np.int32]]]
    entropy: Callable[[], float] | None = None


@dataclass(frozen=True, slots=True)
class ExternalText:
    """A train split that another program reads.

    train: addresses such as file:/folder/a.txt or hdfs://host/part-*.gz, in lists in the order of the text; within a
    list, files are in the order of their names. Glob characters in a name that is not a glob are preceded by a
    backslash. column: name of the text column in files of documents; None for lines of text.
    """

    train: list[list[str]]
    column: str | None


@dataclass(frozen=True, slots=True)
class ExternalCounts:
    """A train split that was counted where it is stored: the store has its vocabulary, but not its ids.

    vocabulary: the vocabulary of the split. first_places: int64 `[V]`, the words numbered by their first occurrence, -1
    for words that do not occur. sentences, oov, empty_lines: number of sentences, OOVs and empty lines.
    """

    vocabulary: Vocabulary
    first_places: npt.NDArray[np.int64]
    sentences: int
    oov: int
    empty_lines: int


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a data set, not read yet.

    splits: for each split, a function that starts reading its blocks: UTF-8, whole lines; an empty test split is left
    out.
    stamp: plain values, fast to compute, that differ whenever the text may have changed.
    identity: computes plain values that differ only if the text has changed.
    parts: if train is cut by tokens, the sizes of train and valid, as in cut_points; a sentence at a cut stays whole in
    the earlier split.
    sources: if train is the concatenation of several sources, the blocks of each by its name.
    word_list: the path of a list of the vocabulary's words, or the words themselves; None if train determines them.
    cloze: the paths of a split's questions and of their answers, if any.
    drawn: ids of words that are drawn instead of reading splits.
    counted: a function that counts train where it is stored; splits lacks train then.
    uncut: a function that starts reading the text that splits were cut from by lines, in blocks with their file names.
    label: a suffix that distinguishes the store's name from that of the whole text.
    cut: whether splits are parts of one text.
    notes: notes for the user.
    faults: the faults of records that are left out of splits, complete once the splits are read.
    """

    splits: Mapping[str, Callable[[], Blocks]]
    stamp: dict[str, Any]
    identity: Callable[[], dict[str, Any]] = dict
    parts: tuple[float | None, float | None] | None = None
    sources: Mapping[str, Callable[[], Blocks]] = field(default_factory=dict)
    word_list: str | list[str] | None = None
    cloze: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    drawn: DrawnIds | None = None
    counted: Callable[[], ExternalCounts] | None = None
    uncut: Callable[[], Blocks] | None = None
    label: str = ""
    cut: bool = False
    notes: list[str] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)


def cut_points(total: int, train: float | None, valid: float | None) -> tuple[int, int]:
    """Return the ends of train and valid among `total` items; test is the rest.

    Sizes below 1 are fractions, rounded down. One of the sizes may be None: then test is as large as valid.
    """

    def count(size: float) -> int:
        return int(round(size * total, 6)) if size < 1 else int(size)  # 0.29 of 100 is 28.999999999999996

    if train is None:
        assert valid is not None, "one of the sizes is given"
        ends = total - 2 * count(valid), total - count(valid)
    elif valid is None:
        ends = count(train), count(train) + (total - count(train)) // 2
    elif train < 1 and valid < 1:
        ends = count(train), int(round((train + valid) * total, 6))
    else:
        ends = count(train), count(train) + count(valid)
    if not 0 < ends[0] < ends[1] <= total:
        sizes = " and ".join(f"{k}={v:g}" for k, v in (("train", train), ("valid", valid)) if v is not None)
        raise UserError(f"data.split: {sizes} do not fit {total:,} items")
    return ends


LINES_PER_BLOCK = 1 << 14
SIZE = "a share between 0 and 1, e.g. 0.8, or, together with data.split.unit=lines or tokens, a whole number of these"


class SplitUnit(Enum):
    """The unit of the sizes of splits."""

    tokens = "tokens"
    lines = "lines"


@dataclass(slots=True)
class SplitConfig(Settings):
    """The cut of data.train into train, valid and test, which is the rest; if all are null, data.train is not cut.

    With unit=tokens a sentence stays whole, in the split that its first token falls in. If one of the shares is given,
    test is as large as valid; if none is, they are 0.8 and 0.1.
    """

    key_prefix: ClassVar[str] = "data.split."

    unit: SplitUnit | None = MISSING
    train: Any = setting(said=SIZE)
    valid: Any = setting(said=SIZE)
    shuffle_seed: int | None = setting(min=0)

    def __post_init__(self) -> None:
        """Fill in omitted values, so that settings with the same meaning are equal."""
        Settings.__post_init__(self)
        if not self.is_given():
            return
        for name, size in (("train", self.train), ("valid", self.valid)):
            counted = self.unit is not None and isinstance(size, int) and is_number(size, 1, (1 << INTEGER_BITS) - 1)
            share = is_number(size, 0, 1) and size not in (0, 1)
            require(size is None or counted or share, f"data.split.{name}", size, SIZE)
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

    def is_given(self) -> bool:
        """Return whether any value is given, i.e. data.train is cut."""
        return any(value is not None for value in (self.unit, self.train, self.valid, self.shuffle_seed))


def cut_by_lines(
    read: Callable[[], Blocks],
    train: float | None,
    valid: float | None,
    shuffle_seed: int | None = None,
    *,
    blank: bool = False,
    again: Callable[[], Blocks] | None = None,
) -> dict[str, Callable[[], Blocks]]:
    """Return the splits of a text, cut by its lines with words, each with adjacent empty lines, or by all if `blank`.

    read: starts reading the text, to count the lines. again: the same for each split; by default `read`. train, valid:
    as in cut_points. shuffle_seed: seed to shuffle all lines in memory first, with Python's `random`; None: no shuffle.
    """

    @cache
    def ends() -> tuple[int, int]:
        return cut_points(sum(1 for _ in _lines(read(), blank)), train, valid)

    def split(name: str) -> Iterator[bytes]:
        lines: Iterator[bytes] = _lines((again or read)(), blank)
        if shuffle_seed is not None:
            shuffled = list(lines)
            random.Random(shuffle_seed).shuffle(shuffled)
            lines = iter(shuffled)
        first, last = {"train": (0, ends()[0]), "valid": ends(), "test": (ends()[1], None)}[name]
        chosen = islice(lines, first, last)
        while piece := list(islice(chosen, LINES_PER_BLOCK)):
            yield b"\n".join([*piece, b""])

    return {name: partial(split, name) for name in ("train", "valid", "test")}


def _lines(blocks: Blocks, blank: bool) -> Iterator[bytes]:
    """Yield the lines with words, each with adjacent empty lines, or all lines if `blank` is true, without newlines."""
    waiting: list[bytes] = []
    for line in chain.from_iterable(block.split(b"\n")[:-1] for block in blocks):
        if blank or (line.strip() and any(map(bytes.strip, waiting))):
            yield from [b"\n".join(waiting)] if waiting else []
            waiting = []
        waiting.append(line)
    yield from [b"\n".join(waiting)] if waiting else []

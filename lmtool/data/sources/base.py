"""What a source of text gives: the text of each split in blocks of whole lines, or the ids of words it draws itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lmtool.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from lmtool.data.vocabulary import Vocabulary

Blocks = Iterator[bytes]


class NoSource(UserError):
    """The text of a data set is not on this machine."""


class TextNotRetained(NoSource):
    """The text of a data set is nowhere, as was meant: its store is all there is."""


@dataclass(frozen=True, slots=True)
class ClozeFiles:
    """The paths of a split's cloze questions and, where there are any, of their answers."""

    questions: str
    answers: str | None = None


@dataclass(frozen=True, slots=True)
class DrawnIds:
    """The splits of a source that draws ids of words, and no text.

    types: all words by id, lmtool.data.tokeniser.RESERVED first; each becomes a word of the vocabulary. tokens: the
    number of ids of each split, about; their disk space is checked beforehand. draw: the ids of a split, given its
    name, in int32 chunks of whole sentences with EOS_ID after each. entropy: computes the source's entropy in nats per
    token; None where it is not known.
    """

    types: Callable[[], list[str]]
    tokens: dict[str, int]
    draw: Callable[[str], Iterator[npt.NDArray[np.int32]]]
    entropy: Callable[[], float] | None = None


@dataclass(frozen=True, slots=True)
class ExternalText:
    """A train split that another program reads.

    train: addresses such as file:/folder/a.txt or hdfs://host/part-*.gz, in lists in the order of the text; those of
    one list are in the order of their names; what is no glob has a backslash before such characters. column: of the
    text in files of documents; None for lines of text.
    """

    train: list[list[str]]
    column: str | None


@dataclass(frozen=True, slots=True)
class ExternalCounts:
    """A train split that lies elsewhere and was counted there: the store has its vocabulary, and not its ids.

    vocabulary: of its words. first_places: int64 `[V]`, the words numbered by where each first occurs, -1 for those
    that do not. sentences, oov, empty_lines: how many it has.
    """

    vocabulary: Vocabulary
    first_places: npt.NDArray[np.int64]
    sentences: int
    oov: int
    empty_lines: int


def _nothing() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a data set, not read yet.

    splits: for each, a function that starts reading its blocks: UTF-8, whole lines. stamp: plain values, cheap to
    find, that differ whenever the text may have changed. identity: computes plain values that differ only where it
    has changed, at the cost of reading it. parts: where only train has text, how it is cut into train, valid and
    test by tokens: the first two sizes, as of cut_points; a sentence is not cut, but stays whole in the first of
    its two. sources: where train is the text of several sources, one after the other, the blocks of each by its
    name; else empty. word_list: the path of a list of the vocabulary's words, or the words themselves; None where
    train decides. cloze: the questions of splits. drawn: ids of words instead of text; splits is empty then.
    counted: counts train where it lies; splits has only the others then. label: tells its store from that of the
    whole text, in the store's name. notes: what the user should know.

    A test split without a token is left out: a cut need not leave anything for it.
    """

    splits: dict[str, Callable[[], Blocks]]
    stamp: dict[str, Any]
    identity: Callable[[], dict[str, Any]] = _nothing
    parts: tuple[float | None, float | None] | None = None
    sources: dict[str, Callable[[], Blocks]] = field(default_factory=dict)
    word_list: str | list[str] | None = None
    cloze: dict[str, ClozeFiles] = field(default_factory=dict)
    drawn: DrawnIds | None = None
    counted: Callable[[], ExternalCounts] | None = None
    label: str = ""
    notes: list[str] = field(default_factory=list)


def cut_points(total: int, train: float | None, valid: float | None) -> tuple[int, int]:
    """Where train ends and where valid ends, of `total` items; test is the rest.

    Sizes below 1 are fractions of the total; their ends are rounded down, as .8 n and .9 n. One of the sizes
    may be None: then test is as large as valid. Raises UserError where nothing is left for train or for valid.
    """

    def count(size: float) -> int:
        return int(round(size * total, 6)) if size < 1 else int(size)  # .29 of 100 is 28.999999999999996

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

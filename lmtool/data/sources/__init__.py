"""Where text comes from: each source gives blocks of whole lines for its splits, and says what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lmtool.errors import UserError

Blocks = Iterator[bytes]


class NoSource(UserError):
    """Text of a data set is not on this machine."""


def _nothing() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Source:
    """Text for the splits of a corpus.

    splits: for each, a function that begins its blocks anew. stamp: plain values, found at once, that differ
    whenever the text may have changed. identity: finds plain values that differ only where it has changed, at the
    cost of reading it. parts: how a single split is to be cut by tokens, [train, valid], counts or fractions of
    it. notes: what the user should know.
    """

    splits: dict[str, Callable[[], Blocks]]
    stamp: dict[str, Any]
    identity: Callable[[], dict[str, Any]] = _nothing
    parts: tuple[float, float] | None = None
    notes: list[str] = field(default_factory=list)

"""conf/smoother and conf/counts: what each option has."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from omegaconf import MISSING

from lmtool.config.rules import require, require_whole, size_in_bytes

TUNED = "tuned"


def _are_numbers(values: object, low: float, high: float) -> bool:
    return isinstance(values, list) and bool(values) and all(_is_number(value, low, high) for value in values)


def _is_number(value: object, low: float, high: float) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and low <= float(value) <= high


@dataclass(slots=True)
class CountsConfig:
    """How n-grams are counted."""

    memory: str | None = MISSING
    keep: bool = MISSING

    def __post_init__(self) -> None:
        if self.memory is not None:
            size_in_bytes(self.memory, "counts.memory")


@dataclass(slots=True)
class SmootherConfig:
    """What every smoother has."""

    kind: str = MISSING


@dataclass(slots=True)
class MleConfig(SmootherConfig):
    """Maximum likelihood."""


@dataclass(slots=True)
class LaplaceConfig(SmootherConfig):
    """Add-alpha (Lidstone 1920; Laplace with alpha = 1)."""

    alpha: Any = MISSING
    tune_on: str = MISSING

    def __post_init__(self) -> None:
        valid = self.alpha == TUNED or (_is_number(self.alpha, 0, 1e9) and self.alpha > 0)
        require(valid, "smoother.alpha", self.alpha, "a number above 0 and at most 1e9, or tuned")


@dataclass(slots=True)
class JelinekMercerConfig(SmootherConfig):
    """Jelinek-Mercer (Jelinek & Mercer 1980)."""

    lambdas: Any = MISSING
    classes: int = MISSING
    tune_on: str = MISSING

    def __post_init__(self) -> None:
        given = _are_numbers(self.lambdas, 0, 1)
        rule = "tuned, or one number an order, each from 0 to 1"
        require(self.lambdas == TUNED or given, "smoother.lambdas", self.lambdas, rule)
        require_whole("smoother.classes", self.classes, 1, 32)


@dataclass(slots=True)
class WittenBellConfig(SmootherConfig):
    """Witten-Bell (Witten & Bell 1991)."""

    interpolate: bool = MISSING
    local_cloze: bool = MISSING


@dataclass(slots=True)
class GoodTuringConfig(SmootherConfig):
    """Good-Turing with Katz's back-off (Katz 1987)."""

    largest: int = MISSING
    largest_unigram: int = MISSING

    def __post_init__(self) -> None:
        for name in ("largest", "largest_unigram"):
            require_whole(f"smoother.{name}", getattr(self, name), 0, 9)


@dataclass(slots=True)
class OneDiscountConfig(SmootherConfig):
    """What smoothers with one discount an order have."""

    discounts: Any = MISSING
    interpolate: bool = MISSING
    tune_on: str = MISSING

    def __post_init__(self) -> None:
        given = _are_numbers(self.discounts, 0, 1) or _is_number(self.discounts, 0, 1)
        valid = self.discounts in (None, TUNED) or given
        rule = "null, tuned, a number from 0 to 1, or a list with one an order"
        require(valid, "smoother.discounts", self.discounts, rule)


@dataclass(slots=True)
class AbsoluteConfig(OneDiscountConfig):
    """Absolute discounting (Ney, Essen & Kneser 1994)."""


@dataclass(slots=True)
class KneserNeyConfig(OneDiscountConfig):
    """Kneser-Ney with one discount an order (Kneser & Ney 1995)."""


@dataclass(slots=True)
class ModifiedKneserNeyConfig(SmootherConfig):
    """Modified Kneser-Ney (Chen & Goodman 1998)."""

    discounts: Any = MISSING
    interpolate: bool = MISSING
    like_kenlm: bool = MISSING
    tune_on: str = MISSING

    def __post_init__(self) -> None:
        rule = "null, tuned, or [D1,D2,D3+] for each order, with 0 <= D_k <= k"
        triples = self.discounts if isinstance(self.discounts, list) and self.discounts else [None]
        for triple in triples if self.discounts not in (None, TUNED) else []:
            three = triple if isinstance(triple, list) and len(triple) == 3 else [None]
            valid = all(_is_number(d, 0, k) for k, d in enumerate(three, start=1))
            require(valid, "smoother.discounts", self.discounts if triple is None else triple, rule)


@dataclass(slots=True)
class StupidBackoffConfig(SmootherConfig):
    """Stupid backoff (Brants et al. 2007)."""

    alpha: float = MISSING

    def __post_init__(self) -> None:
        require(0 < self.alpha <= 1, "smoother.alpha", self.alpha, "above 0 and at most 1")

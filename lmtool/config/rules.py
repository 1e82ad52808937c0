"""Ranges of settings, declared beside their fields and checked in one place, and the checks that rules share.

    @dataclass(slots=True)
    class NoiseConfig(OutputConfig):
        k: int = setting(min=1)
        power: float = setting(min=0, max=2)

`OutputConfig.__post_init__` checks them; a subclass with a `__post_init__` calls its base's first. Errors name the key,
the value and the rule, which the help pages and the documentation also show.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from abc import ABC
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar

from lmtool.errors import UNPRINTABLE, UserError

MISSING: Any = "???"  # OmegaConf's marker of a mandatory value, which a YAML file provides
INTEGER_BITS = 63  # bits of a whole number without its sign: arrays and files hold 64-bit integers


@dataclass(frozen=True, slots=True)
class Rule:
    """The allowed values of a setting, in addition to null if its type allows it.

    low, high: bounds of a number, or of each item of a list; open_low, open_high: whether the bound itself is excluded.
    words: texts that are also allowed, e.g. `auto`. check: called with a value that is not null, and the key; raises
    UserError. said: the rule that check or __post_init__ enforces, in words; beside bounds, the remedy for a value
    outside them. needs: conditions on other settings, of which one must hold if this one is given: KEY=VALUE, or
    KEY=<WHAT> for any value but null and false; excludes: conditions that must not hold. why: the reason of both, in
    the message. prose: whether a text is one to read; all others are names and paths (require_text). bare: whether a
    word of the command line without a key is its value, one of several if it is a list.
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    words: tuple[str, ...] = ()
    check: Callable[[Any, str], object] | None = None
    said: str = ""
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    why: str = ""
    prose: bool = False
    bare: bool = False

    @property
    def bounds(self) -> str:
        """The bounds in words; empty if the value is unlimited."""
        low, high = (f"{bound:.15g}" for bound in (self.low, self.high))
        if self.high == math.inf:
            return "" if self.low == -math.inf else f"above {low}" if self.open_low else f"{low} or more"
        if self.open_low:
            return f"above {low} and {'below' if self.open_high else 'at most'} {high}"
        return f"from {low} to {'below ' if self.open_high else ''}{high}"

    def text(self, type_: str) -> str:
        """Return the rule in words, given the annotation of its field; empty if every value of the type is allowed."""
        kind = "numbers, each " if type_.startswith("list") else "a number " if type_ == "Any" else ""
        words = [*self.words, *(["null"] if "None" in type_ else [])]
        if not self.bounds:
            return " or ".join(words) if self.words else self.said
        if len(words) == 1:
            return f"{kind}{self.bounds}, or {words[0]}"
        return " or ".join([", ".join([f"{kind}{self.bounds}", *words[:-1]]), *words[-1:]])

    def require(self, value: Any, key: str, type_: str) -> None:
        """Raise UserError, naming the key, unless the value is allowed. type_: the annotation of the field."""
        if value is None and type_ != "Any":
            return require("None" in type_, key, value, self.text(type_))
        if self.check is not None and value is not None:
            self.check(value, key)
        if (self.bounds or self.words) and (format_value(value) not in self.words or value == "null"):
            items = value if type_.startswith("list") else [value]
            whole = "int" in type_ and "float" not in type_
            rule = self.text(type_) + (f"; {self.said}" if self.bounds and self.said else "")
            if whole and not all(
                isinstance(item, Integral) and not isinstance(item, bool) for item in items
            ):  # from Python
                value, rule = f"{value!r:.40}", f"a whole number, {rule}"
            require(bool(items) and all(self._is_in_bounds(item, whole) for item in items), key, value, rule)
            huge = whole and self.high == math.inf and any(item >= 1 << INTEGER_BITS for item in items)
            require(not huge, key, value, f"below 2^{INTEGER_BITS}")

    def require_others(self, value: Any, key: str, settings: Settings) -> None:
        """Raise UserError, naming the key, if the value is given and other settings contradict it."""
        if value is None or value is False:
            return
        why = f": {self.why}" if self.why else ""
        if self.needs and not any(_holds(condition, settings) for condition in self.needs):
            needed = " or ".join(settings.key_prefix + re.sub("[<>]", "", condition) for condition in self.needs)
            raise UserError(f"{key}={format_value(value)}: needs {needed}{why}")
        for condition in self.excludes:
            if _holds(condition, settings):
                name = condition.partition("=")[0]
                other = f"{settings.key_prefix}{name}={format_value(getattr(settings, name))}"
                raise UserError(f"{key}={format_value(value)}: cannot be used with {other}{why}; remove one of the two")

    def _is_in_bounds(self, value: Any, whole: bool) -> bool:
        if not is_number(value, self.low, self.high) or (whole and not isinstance(value, Integral)):
            return False
        below = value != self.high if self.open_high or self.high == math.inf else True
        return bool(below and not (self.open_low and value == self.low))


def _holds(condition: str, settings: Settings) -> bool:
    """Return whether a setting is as a condition, KEY=VALUE or KEY=<WHAT>, says."""
    key, _, wanted = condition.partition("=")
    value = getattr(settings, key)
    return value is not None and value is not False if wanted.startswith("<") else format_value(value) == wanted


def setting(
    default: Any = MISSING,
    *,
    min: float | None = None,
    above: float | None = None,
    max: float | None = None,
    below: float | None = None,
    kw_only: bool = False,
    **others: Any,
) -> Any:
    """Declare a setting as the field of a dataclass, with its default and its allowed values.

    min, max: inclusive bounds of a number, or of each item of a list; above, below: exclusive bounds. others: words,
    check, said, needs, excludes, why, prose and bare, as in Rule; words include "null" for a setting of type Any
    that may be null.
    """
    low = above if above is not None else -math.inf if min is None else min
    high = below if below is not None else math.inf if max is None else max
    rule = Rule(low, high, open_low=above is not None, open_high=below is not None, **others)
    given: dict[str, Any] = {"metadata": {"rule": rule}, "kw_only": kw_only}
    return dataclasses.field(**given, **({"default_factory": default} if callable(default) else {"default": default}))


def field_rules(settings: type) -> dict[str, Rule]:
    """Return the rules of a dataclass of settings, by field."""
    fields = dataclasses.fields(settings)
    return {field.name: field.metadata["rule"] for field in fields if "rule" in field.metadata}


@dataclass(slots=True)
class Settings:
    """A dataclass of settings, which checks their rules. key_prefix: the part of a key before the field's name."""

    key_prefix: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Raise UserError, naming the key, for a value that its rule does not allow."""
        for field in dataclasses.fields(self):
            rule, key, value = field.metadata.get("rule"), self.key_prefix + field.name, getattr(self, field.name)
            for text in () if rule is not None and rule.prose else _iterate_texts(value):
                require_text(key, text)
            if rule is not None:
                rule.require(value, key, str(field.type))
                rule.require_others(value, key, self)


@dataclass(slots=True)
class GroupConfig(Settings, ABC):
    """The settings of an option of a group. kind: its name."""

    kind: str = MISSING


def _iterate_texts(value: Any) -> Iterator[str]:
    """Yield the texts of a setting, of its items and of their keys."""
    if isinstance(value, str):
        yield value
    for item in (*value, *value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _iterate_texts(item)


def format_value(value: object) -> str:
    """Return a value as it is written on the command line and in YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value.value if isinstance(value, Enum) else value)


def require(condition: bool, key: str, value: object, rule: str) -> None:
    """Raise UserError, naming the key, its value and the rule, unless the condition holds."""
    if not condition:
        raise UserError(f"{key}={format_value(value)}: must be {rule}")


def require_whole(key: str, value: int | None, low: int = 1, high: int | None = None, *, null: bool = False) -> None:
    """Raise UserError unless low <= value <= high; without high, value < 2^63. null: whether it may be null."""
    Rule(low, math.inf if high is None else high).require(value, key, "int | None" if null else "int")


def require_block(value: Any, key: str = "block") -> None:
    """Raise UserError unless `value` is a block size: auto, sentence, or a whole number of 1 or more."""
    whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 1 << INTEGER_BITS
    require(whole or value in ("auto", "sentence"), key, value, "auto, sentence, or a whole number of 1 or more")


def require_flags(**flags: object) -> None:
    """Raise UserError, naming the argument, unless each is True or False."""
    for key, value in flags.items():
        require(isinstance(value, bool), key, f"{value!r:.40}", "True or False")


def require_path(key: str, value: object, *, null: bool = True) -> None:
    """Raise UserError, naming the argument, unless it may be the path of a file. null: whether it may be null."""
    given = isinstance(value, str | PathLike) or hasattr(value, "joinpath")  # an address is a path without PathLike
    require(given or (null and value is None), key, f"{value!r:.40}", "a path")
    require_text(key, value)


def require_text(key: str, value: object) -> None:
    """Raise UserError, naming the setting, unless a text can be a name or a path: no line break or other control
    character, which would forge lines of logs and scripts, and nothing that the system cannot be given.
    """
    try:
        os.fsencode(str(value))
        usable = UNPRINTABLE.search(str(value)) is None
    except UnicodeEncodeError:
        usable = False
    require(usable, key, f"{value!r:.40}", "text without line breaks, control characters or unpaired surrogates")


def require_folder(key: str, folder: object) -> None:
    """Raise UserError, naming the setting, unless Hydra can use the path of a folder, made absolute, as it is."""
    path = os.path.abspath(str(folder))
    require_text(key, path)
    require("${" not in path, key, path, "a folder without ${ in its path, which Hydra replaces; rename it")


def size_in_bytes(text: str, key: str) -> int:
    """Return a size such as 512MiB, 4GB, 1.5GiB or 65536 in bytes. Raises UserError, naming the key, for other text."""
    found = re.fullmatch(r"(\d[\d_]*\.?\d*|\.\d+) *([kmgt]?)(i?)b?", text.strip(), re.IGNORECASE)
    if found is None:
        raise UserError(f"{key}={text}: must be a size such as 512MiB or 4GiB, or null")
    size = int(float(found[1]) * (1024 if found[3] else 1000) ** " kmgt".index(found[2].lower() or " "))
    require(size >= 1 << 16, key, text, "64KiB or more")
    return size


def number_or_share(value: object, key: str) -> int | float:
    """Read a number such as 1000000, 500k, 1.5M or 2G, or a share below 1 from text such as 10%.

    Raises UserError, naming the key, for anything else.
    """
    text = str(value).strip()
    units = {"k": 10**3, "M": 10**6, "G": 10**9, "%": 0.01}
    digits, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    try:
        number = float(digits) * unit
    except ValueError:
        number = math.nan
    rule = "a number such as 500k or 1M, or a share below 100%, such as 10%"
    if text.endswith("%"):
        require(0 < number < 1, key, value, rule)
        return number
    require(not isinstance(value, bool) and 1 <= number < 1 << INTEGER_BITS and number == int(number), key, value, rule)
    return int(number)


def ngrams_to_keep(value: object, key: str, sizes: list[int]) -> int:
    """Return how many n-grams to keep, given the number per order and a target number or share.

    Raises UserError, naming the key, if that is fewer than the 1-grams, which are always kept.
    """
    wanted = number_or_share(value, key)
    size = int(wanted * sum(sizes)) if isinstance(wanted, float) else wanted
    require(size >= sizes[0], key, value, f"{sizes[0]:,} or more: the 1-grams stay, one per word")
    return size


def is_number(value: object, low: float, high: float) -> bool:
    """Return whether a value is a number from low to high; true and false are not numbers."""
    return isinstance(value, Real) and not isinstance(value, bool) and bool(value <= high and not value < low)


def are_numbers(values: object, low: float, high: float) -> bool:
    """Return whether a value is a list of one or more numbers from low to high."""
    return isinstance(values, list) and bool(values) and all(is_number(value, low, high) for value in values)

"""Checks of values, which raise a UserError that names the key, the value and the rule."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from lmtool.errors import UserError

MISSING: Any = "???"  # OmegaConf's mark of a mandatory value, which a YAML file gives
BITS = 63  # of a whole number without its sign: arrays and files hold 64-bit integers


def require(condition: bool, key: str, value: object, rule: str) -> None:
    """Raise UserError, naming the key, its value and the rule, unless the condition holds."""
    if not condition:
        raise UserError(f"{key}={value}: must be {rule}")


def require_whole(key: str, value: int | None, low: int = 1, high: int | None = None, *, null: bool = False) -> None:
    """Raise UserError unless low <= value <= high; without high, value < 2^63. null: whether it may be null."""
    if value is None:
        return  # the field's type allows null or not
    one_sided = f"{low} or more" if value < low else f"below 2^{BITS}"
    rule = one_sided if high is None else f"from {low} to {high}"
    fits = low <= value < 1 << BITS if high is None else low <= value <= high
    require(fits, key, value, f"{rule}, or null" if null else rule)


def require_seed(key: str, value: int | None, *, null: bool = False) -> None:
    """Raise UserError for a number that is not a seed: numpy takes none below 0, compiled loops none above 64 bits."""
    fits = value is None or 0 <= value < 1 << BITS
    require(fits, key, value, f"from 0 to below 2^{BITS}{', or null' if null else ''}")


def require_block(value: Any) -> None:
    """Raise UserError unless `value` is a setting `block`: auto, sentence, or a whole number of 1 or more."""
    whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 1 << BITS
    require(whole or value in ("auto", "sentence"), "block", value, "auto, sentence, or a whole number of 1 or more")


def size_in_bytes(text: str, key: str) -> int:
    """Bytes from a size such as 512MiB, 4GB, 1.5GiB or 65536. Raises UserError, naming the key, for other text."""
    units = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "kib": 2**10, "m": 10**6, "mb": 10**6, "mib": 2**20}
    units |= {"g": 10**9, "gb": 10**9, "gib": 2**30, "tb": 10**12, "tib": 2**40}
    digits = text.strip().rstrip("bBiIkKmMgGtT ")
    unit = text.strip()[len(digits) :].strip().lower()
    try:
        size = int(float(digits) * units[unit])
    except (ValueError, KeyError, OverflowError):
        raise UserError(f"{key}={text}: must be a size such as 512MiB or 4GiB, or null") from None
    require(size >= 1 << 16, key, text, "64KiB or more")
    return size


def number_or_share(value: object, key: str) -> int | float:
    """A number such as 1000000, 500k, 1.5M or 2G; or a share below 1, from text such as 10%. Raises UserError, naming
    the key, for anything else.
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
    require(not isinstance(value, bool) and 1 <= number < 1 << BITS and number == int(number), key, value, rule)
    return int(number)


def ngrams_to_keep(value: object, key: str, sizes: list[int]) -> int:
    """How many n-grams of a model with so many of each order a number or a share leaves. Raises UserError, naming the
    key, where that is less than the 1-grams, which always stay.
    """
    wanted = number_or_share(value, key)
    size = int(wanted * sum(sizes)) if isinstance(wanted, float) else wanted
    require(size >= sizes[0], key, value, f"{sizes[0]:,} or more: the 1-grams stay, one per word")
    return size


def is_number(value: object, low: float, high: float) -> bool:
    """Whether a value is a number from low to high; true and false are not numbers."""
    return isinstance(value, Real) and not isinstance(value, bool) and bool(value <= high and not value < low)


def are_numbers(values: object, low: float, high: float) -> bool:
    """Whether a value is a list of one or more numbers from low to high."""
    return isinstance(values, list) and bool(values) and all(is_number(value, low, high) for value in values)

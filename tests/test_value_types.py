"""What lmtool says of a value of the wrong type."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import ValidationError

from lmtool.config.settings import error_line
from lmtool.config.value_types import in_words


class Colour(Enum):
    red = 1
    blue = 2


@dataclass
class Inner:
    depth: int = 1


@dataclass
class Settings:
    order: int = 3
    rate: float | None = 0.1
    colour: Colour = Colour.red
    gated: bool = True
    tied: bool | None = None
    factors: list[float] = field(default_factory=list)
    prune: list[int] | None = None
    weights: dict[str, int] = field(default_factory=dict)
    text: str = ""
    inner: Inner = field(default_factory=Inner)
    given: int = MISSING


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"order": "three"}, "order=three: must be a whole number"),
        ({"order": 2.5}, "order=2.5: must be a whole number"),
        ({"order": [1]}, "order=[1]: must be a whole number"),
        ({"order": None}, "order=null: must be a whole number"),
        ({"rate": "much"}, "rate=much: must be a number or null"),
        ({"rate": {"a": 1}}, "rate={'a': 1}: must be a number or null"),
        ({"colour": "green"}, "colour=green: must be one of red, blue"),
        ({"gated": "perhaps"}, "gated=perhaps: must be true or false"),
        ({"tied": "perhaps"}, "tied=perhaps: must be true, false or null"),
        ({"factors": 3}, "factors=3: must be a list of numbers"),
        ({"factors": [1, "x"]}, "factors[1]=x: must be a number"),
        ({"prune": ["x"]}, "prune[0]=x: must be a whole number"),
        ({"weights": {"a": "x"}}, "weights.a=x: must be a whole number"),
        ({"weights": 3}, "weights=3: must be keys with values, as {key: value}"),
        ({"text": [True]}, "text=[True]: must be text"),
        ({"inner": {"depth": "x"}}, "inner.depth=x: must be a whole number"),
        ({"given": "x"}, "given=x: must be a whole number"),
    ],
)
def test_the_rule_is_said(value: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as raised:
        OmegaConf.merge(OmegaConf.structured(Settings), value)
    assert error_line(raised.value, "model") == f"model.{said}"


def test_a_type_without_words() -> None:
    assert in_words(Any) is None and in_words(bytes | None) is None
    assert in_words(list[bytes]) == "a list"

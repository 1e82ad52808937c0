"""Every number among the settings has a rule: the schemas are walked, and values out of range must be refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from lmtool.commands import verbs
from lmtool.config.options import GROUP_MODULES
from lmtool.config.rules import Rule
from lmtool.config.settings import build_settings, saved_settings
from lmtool.errors import UserError
from tests.conftest import composed_line
from tests.schemas import SETTINGS as CLASSES

HUGE = 10**30  # no whole number of 64 bits
# What a verb or an option needs beside itself to be composed, and the preset where it is not the option of its name.
NEEDS = {
    "hub": ["data.path=a"],
    "table": ["counts.paths=a", "model=ngram"],
    "text": ["data=names"],  # it has a data.split
    "train": ["model=ngram"],  # prune is null for the others
    "rescore": ["nbest=a"],
    "compare": ["runs=[a,b]"],
    "ensemble": ["runs=[a,b]", "cache=neural"],
    "clusters": ["tree.run=a"],
    "neighbors": ["words=[a]"],
    "export": ["to=a"],
    "push": ["to=hub:a/b"],
    "convert": ["runs=[a,b]"],
    "score": ["text=a", "to=a.tsv", "filter=b", "min_perplexity=2", "buckets=[a,b]"],
    "check": ["text=a"],
    "surprisal": ["text=a"],
    "unlikely": ["text=a"],
    "distill": ["run=a", "ngrams_from=b"],
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting that takes numbers. group, schema: where it stands; kind: int, float, list or Any; rule: its own."""

    group: str
    schema: str
    key: str
    kind: Any
    rule: Rule
    item: Any = None

    @property
    def zero(self) -> bool:
        """Whether its bounds include 0."""
        return self.rule.low < 0 <= self.rule.high or (self.rule.low == 0 and not self.rule.open_low)

    def __str__(self) -> str:
        return f"{self.schema}-{self.key}"


def numbers_of(group: str, name: str, schema: type, prefix: str) -> Iterator[Setting]:
    """Yield the settings of a schema that take numbers, including those of its parts, but not of other groups."""
    hints = get_type_hints(schema)
    for field in fields(schema):
        hint = hints[field.name]
        key = f"{prefix}{field.name}"
        if get_origin(hint) in (Union, UnionType):
            (hint,) = (part for part in get_args(hint) if part is not NoneType)
        items, rule = get_args(hint), field.metadata.get("rule", Rule())
        if key in ("training.trackers", "data.segmenter"):
            continue  # names or settings of other options, which have their ranges there; or true, or null
        if hint in (int, float, Any):
            yield Setting(group, name, key, hint, rule)
        elif get_origin(hint) is list and items[0] in (int, float):
            yield Setting(group, name, key, list, rule, items[0])
        elif is_dataclass(hint):
            if not any(issubclass(known, hint) for other, made in CLASSES.items() if other for known in made.values()):
                yield from numbers_of(group, name, hint, f"{key}.")
        elif hint == dict[str, Any]:
            pass  # another program's settings, for it to refuse
        elif hint == list[Any]:
            pass  # settings of other options, which have their ranges there
        elif get_origin(hint) is dict:
            assert not list(numbers_of(group, name, items[1], f"{key}.")), f"{key}: this test must learn to set these"
        else:
            plain = hint in (str, bool, list[str]) or issubclass(hint, Enum)
            assert plain, f"{key}: this test does not know what values {hint} takes"


SETTINGS = [
    setting
    for group, schemas in CLASSES.items()
    for name, schema in schemas.items()
    for setting in numbers_of(group, name, schema, f"{group}." if group else "")
]


def composed(group: str, schema: str) -> tuple[DictConfig, str]:
    """Return the settings of the first option that has a schema, and their verb."""
    if not group:
        verb = schema
        words = NEEDS.get(schema, [])
    else:
        verb = {"data": "preprocess", "tree": "tree"}.get(group, "train")
        option = schema
        needed = {"output": "nplm", "smoother": "ngram", "counts": "ngram"}.get(group)
        words = [f"model={needed}"] if needed else []
        own = NEEDS.get(schema, [])
        words += own if any(word.startswith(f"{group}=") for word in own) else [f"{group}={option}", *own]
    return composed_line(verb, *words), verb


def beyond(setting: Setting) -> list[Any]:
    """Return the nearest values outside the bounds of a setting."""
    rule, whole = setting.rule, int in (setting.kind, setting.item)
    step = 1 if whole else 1e-3
    low = rule.low if rule.open_low else rule.low - step
    high = rule.high if rule.open_high else rule.high + step
    found = [(int if whole else float)(bound) for bound in (low, high) if math.isfinite(bound)]
    return [[bound] for bound in found] if setting.kind is list else found


def bad_values(setting: Setting) -> list[Any]:
    """Return values that are invalid for every setting of this kind."""
    numbers: dict[Any, list[Any]] = {int: [-1, HUGE], float: [-1.0, math.nan, math.inf, -math.inf]}
    if setting.kind in numbers:
        return numbers[setting.kind]
    bad = numbers[setting.item or float]
    lists = [[], *([value] for value in bad), *([first, value] for first in (0, 1) for value in bad)]
    if setting.kind is Any:
        return [*bad, *lists, *([[value] * 3] for value in bad)]
    return lists


@cache
def option(group: str, schema: str) -> tuple[DictConfig, type]:
    """What `composed` makes of a schema, which is right as it stands, and the verb's own schema: made once."""
    config, verb = composed(group, schema)
    build_settings(config, CLASSES[""][verb])
    return config, CLASSES[""][verb]


def refusal(config: DictConfig, expected: type, key: str, value: Any, group: str = "") -> str | None:
    """Return the error for a setting's value, or None if it is accepted.

    group: the group of an option that is read without the other groups, as from a run.
    """
    before = OmegaConf.select(config, key)
    before = OmegaConf.to_container(before) if OmegaConf.is_config(before) else before
    OmegaConf.update(config, key, value, merge=False)
    try:
        if group in GROUP_MODULES:
            saved_settings(OmegaConf.to_container(config[group]), group)
        else:
            build_settings(config, expected)
    except UserError as error:
        return str(error)
    finally:
        OmegaConf.update(config, key, before, merge=False)
    return None


def test_all_verbs_are_walked() -> None:
    assert set(verbs()) == set(CLASSES[""])
    keys = {setting.key for setting in SETTINGS}
    assert {"threads", "data.vocabulary.size", "data.split.train", "smoother.alpha", "lr_range_limits"} <= keys


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_value_out_of_range_is_refused_by_name(setting: Setting) -> None:
    config, expected = option(setting.group, setting.schema)
    favored = setting.key == "word_penalty"  # negative: longer hypotheses are
    negative = favored or (bool(setting.rule.bounds) and setting.rule.low < 0)
    for number, value in enumerate(bad_values(setting)[int(negative) :]):  # -1 comes first
        said = refusal(config, expected, setting.key, value, setting.group if number else "")
        assert said is not None, f"{setting.key}={value} is taken: give it a rule in lmtool/config"
        assert setting.key in said and "\n" not in said, f"{setting.key}={value}: {said}"
        assert "must be" in said, said
    for value in beyond(setting):
        said = refusal(config, expected, setting.key, value, setting.group)
        assert said is not None and setting.rule.bounds in said, f"{setting.key}={value}: {said}"
    if not setting.rule.bounds:
        return  # a list, or one of several kinds, whose rule is in words
    if setting.kind is not list:
        zero = refusal(config, expected, setting.key, 0, setting.group)
        assert (zero is None) == setting.zero, f"{setting.key}=0: {zero or 'is taken'}"
    if setting.kind is float:
        large = refusal(config, expected, setting.key, 1e300, setting.group)
        assert (large is None) == (setting.rule.high == math.inf), f"{setting.key}=1e300: {large or 'is taken'}"


def test_numbers_of_numpy_are_numbers() -> None:
    rule = Rule(low=0, open_low=True)
    for value in (5, np.int64(5)):
        rule.require(value, "k", "int | None")
    for value in (0.5, np.float32(0.5), np.int64(5), 10**400):
        rule.require(value, "t", "float")
    for value, type_ in (
        (5.0, "int"),
        (True, "int"),
        (True, "float"),
        ("5", "float"),
        (math.inf, "float"),
        (0, "float"),
    ):
        with pytest.raises(UserError, match=r"must be (a whole number, )?above 0"):
            rule.require(value, "k", type_)
    with pytest.raises(UserError, match="must be a number above 0, or null"):
        Rule(low=0, open_low=True, words=("null",)).require("null", "training.epochs", "Any")


def test_block_is_not_null() -> None:
    config = composed_line("compare", "runs=[a,b]", "block=null")
    with pytest.raises(UserError, match="block=null: must be"):
        build_settings(config, CLASSES[""]["compare"])

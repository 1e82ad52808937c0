"""Values of settings, drawn from the types and ranges in their dataclasses: right ones, and nonsense."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from hypothesis import strategies as st

from fuzzing.damage import NUMBERS
from lmtool.commands import top_level_keys, verb_setting_types
from lmtool.config.options import GROUP_MODULES, yaml_files
from lmtool.config.types import TRAINING, SettingType, option_types

FLOATS = [0.0, 1e-4, 0.1, 0.5, 0.9, 1.0, 2.0, 10.0]
PATHS = [
    "kn",
    "net",
    "mix",
    "valid",
    "test",
    "train.txt",
    "kn.arpa",
    "tree.txt",
    "stores",
    "kn/model.h5",
    "nowhere",
    "auto",
]
# Settings whose valid, larger values only make a case take long; these get a value of SHORT or a small one.
LONG = """epochs steps minutes count length resamples fit_contexts lr_range_steps tokens types threads iterations rounds
    passes valid_tokens test_tokens sample nce_noise candidates levels lr_range consecutive evaluate_every save_every"""
SHORT = {"training.epochs": "0.5", "training.steps": "2", "training.minutes": "0.001"}
# fmt: off
# What a YAML or a command line may hold beside values of settings: each says something of its own to Hydra, OmegaConf,
# YAML or a terminal. Text of SYNTAX's characters is drawn beside them.
WORDS = [
    "null", "true", "yes", "None", "auto", "tuned", "-", ".", "the", "ünï", "ﬀ", "\u202e", "🙂", "a=b", "a,b", "a: b",
    "~", "~/x", "%s", "???", "${seed}", "${nowhere}", "${oc.env:HOME}", "${oc.env:NOWHERE}", "${hydra:job.name}",
    "${now:%Y}", "$x", "${", "${oc.decode:'1'}", "${oc.create:[1]}", "${.x}", "${..}", "${${seed}}", "\\${x}",
    "x${seed}y", "${a.b[0]}", "${nope:1}", "[1,[2,[3]]]", "{a:{b:[1,{c:2}]}}", "[kn,net]", "[kn,kn]", "[1,a,null]",
    "[0.5,0.5]", "[nan,1]", "(1,2)", "'it\\'s'", "1,2", "range(1,3)", "range(0,1e9)", "glob(*)", "interval(0,1)",
    "choice(1,2)", "shuffle(1,2)", "int(3)", "float(a)", "json_str(1)", "extend_list(1)", "tag(a,1)", "nope(1)",
    "!!int 3", "\t", "a\nb", "\x1b[31m", "\udcff", "\u2028", "\ufeff", "é", "é", "a" * 300, "A" * 5000,
]
# fmt: on
SYNTAX = st.text("[]{}(),:=.'\"`\\~+-*&!|@#%$<>? \t\nab01é", max_size=8)


def safe(text: str) -> str:
    """Return a text that leads to no folder but the one a command is in."""
    return text.replace("/", "\u2215").replace("..", "\u2025").replace("\x00", "")


NONSENSE = st.one_of(st.sampled_from(NUMBERS).map(safe), st.sampled_from(WORDS), SYNTAX, st.text(max_size=12).map(safe))


def right(type: SettingType) -> list[Any]:
    """Return some values that a setting of a type may have; numbers are in its range."""
    values: list[Any] = [*type.values, *(type.rule.words if type.rule is not None else ())]
    values += [True, False] if "bool" in type.names else []
    values += [number for number in range(7) if in_range(number, type)] if "int" in type.names else []
    has_numbers = "float" in type.names or ("Any" in type.names and type.rule is not None and type.rule.low >= 0)
    values += [number for number in FLOATS if in_range(number, type)] if has_numbers else []
    return values + ([None] if "None" in type.names else [])


def in_range(number: float, type: SettingType) -> bool:
    rule = type.rule
    return rule is None or (
        (rule.low < number or (rule.low == number and not rule.open_low))
        and (number < rule.high or (rule.high == number and not rule.open_high))
    )


def words_of(type: SettingType) -> list[str]:
    """Return values of a type as words of a command line, with the bounds of its range, and names of files."""
    values = right(type) + ([] if type.item is None else ["[1]", "[0,1]", "[a,b]", "[kn,net]", "[0.5,0.5]"])
    bounds = [] if type.rule is None else [bound for bound in (type.rule.low, type.rule.high) if abs(bound) < math.inf]
    simple = [{"None": "null", "True": "true", "False": "false"}.get(str(value), str(value)) for value in values]
    return [*simple, *(f"{bound:g}" for bound in bounds), *(PATHS if type.may_be_text or not values else [])]


@cache
def typed_keys(verb: str) -> dict[str, SettingType]:
    sources = [("", verb_setting_types(verb))]
    for group in (*GROUP_MODULES, TRAINING):
        if group in top_level_keys(verb) or verb == "train":
            sources += [(f"{group}.", option_types(group, name)) for name in yaml_files(group)]
    keys = {}
    for prefix, types in sources:
        for name, type in types.items():
            inner = {f"{prefix}{name}.{key}": type.below(key.split(".")) or type for key in type.leaves()}
            keys |= inner or {prefix + name: type}
    return keys


@st.composite
def typed_setting(draw: st.DrawFn, verb: str) -> tuple[str, str]:
    """Draw a key of a verb and a value of its type, or any."""
    keys = typed_keys(verb)
    key = draw(st.sampled_from(sorted(keys)) | st.sampled_from(sorted(key for key in keys if "." not in key)))
    if key.rpartition(".")[2] in LONG.split():
        return key, draw(st.just(SHORT.get(key, "3")) | st.sampled_from(["", "-1", "nan", "inf", "00", "x"]) | SYNTAX)
    return key, draw(st.sampled_from(words_of(keys[key])) | NONSENSE)

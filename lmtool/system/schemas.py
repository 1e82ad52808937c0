"""The schemas of lmtool's own files, one table per file, which all readers validate.

A kind is a type (`int` of 64 bits, `float`: any finite number, `str`: text that UTF-8 and a path can hold, `object`:
anything), a Range, a tuple of alternative kinds, [KIND] for a list, or an object: {str: KIND} has any keys; {"a": KIND,
"b?": KIND} has a, optionally b, and any other keys. A string stands for exactly this text.
"""

from __future__ import annotations

import json
import math
import reprlib
import sys
from types import NoneType
from typing import Any, NamedTuple

MAX_DEPTH = 64  # maximum nesting of lists and objects


class Range(NamedTuple):
    """A range of numbers, whose bounds may be infinite; of whole numbers if the bounds are."""

    low: float
    high: float


def each(names: str, kind: Any) -> dict[Any, Any]:
    """Return a table in which all names have one kind."""
    return dict.fromkeys(names.split(), kind)


OBJECT: dict[str, Any] = {}  # an object with any entries
COUNT, SHARE, RATE = Range(0, (1 << 63) - 1), Range(0.0, 1.0), Range(0.0, sys.float_info.max)
POSITIVE = Range(sys.float_info.min, sys.float_info.max)
NUMBER, TEXT, FLAG = (float, NoneType), (str, NoneType), (bool, NoneType)  # null for a number stands for inf or nan
OPTIONS = each("model? smoother? counts? output? tree? optim? schedule?", ({"kind": str}, NoneType))
OPTIONS |= {"training?": (OBJECT, NoneType)}
SETTINGS = {"kind": str, "vocabulary": {"unit": str}}  # settings of a data set
CHANGE = {"step": COUNT, "setting": str} | each("before after", object)  # of a setting, on resuming a training
RUN = each("store store_fingerprint vocabulary_fingerprint started_in", str) | {
    "format": int,
    "kind": ("train", "ensemble"),
    "config": OPTIONS | {"fit_split?": str, "data?": (SETTINGS | {"name": str}, NoneType)},
    "members": [str],
    "weights": [float],
    "mixture": {"cache?": ({"kind": str}, NoneType)},
    "fitted_on": {str: [str]},
    "changes?": [CHANGE],
} | each("choices origins checksums", {str: str})  # fmt: skip
RESULT = each("valid_perplexity? train_perplexity? perplexity? perplexity_per_word?", (POSITIVE, NoneType))
RESULT |= each("bits_per_character? seconds?", NUMBER)
RESULT |= each("split? run? metric?", str) | each("normalized? dynamic? tied?", FLAG)
RESULT |= {
    "parameters?": (COUNT, NoneType),
    "cloze?": ({str: NUMBER}, NoneType),
    "members?": [{"run": str}],
    "options?": {str: str},
    "weights?": [float],
    "class_weights?": ([[float]], NoneType),
    "source_weights?": ({str: float}, NoneType),
}
RESULT |= each("tuned_parameters? discounts?", ([{"order": COUNT, str: float}], NoneType))
TRAINED = RESULT | each("parameters examples", COUNT) | {"options": {str: str}, "ngrams?": ([COUNT], NoneType)}
TRAINED |= each("examples_per_second epochs seconds", float)
COMPARED = each("perplexity difference from to p_bootstrap p_randomization", NUMBER) | {"fitted": [str]}
COMPARED |= each("run split", str) | each("dynamic fitted_on_this_text", bool) | {"block": (COUNT, NoneType)}
COMPARED |= each("normalized across_sentences", FLAG)
COMPARISON = {"split": str, "members": [COMPARED]}
NODE: dict[str, Any] = {"child": int, "code": str, "share": float, "label": str}  # node of a drawn tree
NODE["children"] = [NODE]
BOUNDED = Range(-1e100, 1e100)  # numbers that are drawn
RATES = {
    "rates": [Range(1e-100, 1e100)],
    "losses": [BOUNDED],
    "smoothed": [BOUNDED],
    "proposed": POSITIVE,
    "doubt?": str,
}
METRICS_LINE = {"train_loss?": float, "loss?": float, "step?": COUNT} | each("epoch lr?", Range(0.0, 1e100))
METRICS_LINE |= each("valid_perplexity? cloze_perplexity?", POSITIVE)
METRICS_LINE |= each("train_accuracy? valid_accuracy?", (SHARE, NoneType))
ASKED = each("config_dir?", str) | {"choices?": {str: str}, "values?": {str: object}}
ASKED |= {"verb": str, "sweep?": bool} | each("order?", [str])
REQUEST = ASKED | {"started_in": str}
JOB = {"status": ("running", "done", "failed"), "request": ASKED, "made?": [str], "code?": COUNT}
JOB |= {"error?": TEXT} | each("value? seconds?", NUMBER)
JOURNAL = each("blocks rows faults errors", COUNT) | {"complete": bool, "of_first": [str], "identity": object}
PROGRESS = each("step since waited drops earlier_steps earlier_examples", COUNT) | {"losses": [float]}
PROGRESS |= each("loss_sum rate", float) | each("clock evaluated earlier_epochs", RATE)
STATE = {
    "format": int,
    "about": {"settings": RUN["config"], "store": str, "changes?": [CHANGE]},
    "batch": {"size": COUNT, "epoch": RATE, "examples": COUNT},
    "position": {"at": COUNT, "epoch_began": {str: object}},
    "progress": PROGRESS | {"best": Range(-math.inf, math.inf)},
    "computed_by": {"precision": str, "forms": [str]},
    "loss_sums": [float],
} | each("processes averaged", COUNT) | {"streamed": bool, "gradients": str}  # fmt: skip
TABLE = {"unseen": Range(-math.inf, 1e-3), "missing": Range(-math.inf, 1e6), "bos": COUNT}
TABLE |= each("vocabulary_fingerprint notes", str) | each("normalized suffix_closed interpolated?", bool)  # of model.h5
PACKED, SPLIT = {"width": Range(1, 63), "length": COUNT}, each("characters words", COUNT)
VOCABULARY, SCORES = {"eos": Range(-1, 1 << 31), "unk": COUNT}, each("split about tokens_fingerprint", str)
ABOUT = {"characters": COUNT, "words": (COUNT, NoneType), "fitted": [str], "dynamic": bool}
ABOUT |= each("normalized across", FLAG)
STORE = each("name fingerprint splits provenance", str) | {"sentences": bool}
ROW = {"split": str, "tokens": COUNT, "vocabulary": COUNT, "OOV %": float}
PROVENANCE = {"settings": SETTINGS, "rows": [ROW], "valid_in_train": SHARE}
PROVENANCE |= each("notes notes_on_words unspaced", [str]) | each("stamp identity cut", object)
_NAMES: dict[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    NoneType: "null",
}


def parse_json(text: str | bytes, kind: Any = object, place: str = "it") -> Any:
    """Return the value of a JSON text. Raises ValueError, with the place in it, unless it is of a kind."""
    try:
        level, depth = [value := json.loads(text)], 0
    except RecursionError as error:  # raised by Python's parser
        raise ValueError(str(error)) from None
    while level := [inside for inside in level if isinstance(inside, list | dict)]:
        level = [value for inside in level for value in (inside.values() if isinstance(inside, dict) else inside)]
        if (depth := depth + 1) > MAX_DEPTH:
            raise ValueError(f"lists and objects are nested more than {MAX_DEPTH} times")
    require_kind(value, kind, place)
    return value


def require_kind(value: Any, kind: Any, place: str = "it") -> None:
    """Raise ValueError, with the place in it, unless a value is of a kind."""
    if type(kind) is tuple and isinstance(kind[0], list | dict):  # or null
        if value is not None:
            require_kind(value, kind[0], place)
    elif isinstance(kind, list) and isinstance(value, list):
        for number, item in enumerate(value):
            require_kind(item, kind[0], f"{place}[{number}]")
    elif isinstance(kind, dict) and isinstance(value, dict):
        for name, entry_kind in kind.items():
            for key in list(value) if name is str else [name.removesuffix("?")]:
                if key in value:
                    require_kind(value[key], entry_kind, key if place == "it" else f"{place}.{key}")
                elif not name.endswith("?"):
                    raise ValueError(f"{key!r} is missing" if place == "it" else f"{place} has no {key}")
    elif not any(_is(value, one) for one in (kind if type(kind) is tuple else (kind,))):
        named = " or ".join(map(_name, kind)) if type(kind) is tuple else _name(kind)
        raise ValueError(f"{place} must be {named}; got {reprlib.repr(value)}")


def _name(kind: Any) -> str:
    names = {list: "a list", dict: "an object", Range: "a number from {0[0]:.3g} to {0[1]:.3g}"}
    return _NAMES[kind] if isinstance(kind, type) else names.get(type(kind), "{0!r}").format(kind)


def _is(value: Any, kind: Any) -> bool:
    """Return whether a value is of a type or in a range, or is a text."""
    if kind in (int, float) or isinstance(kind, Range):
        high = sys.float_info.max if kind is float else (1 << 63) - 1
        low, high = kind if isinstance(kind, Range) else (-high, high)
        types = int if kind is int or isinstance(low, int) else (int, float)
        return isinstance(value, types) and not isinstance(value, bool) and low <= value <= high
    if kind is str and isinstance(value, str):
        return (value.isascii() and "\0" not in value) or not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value)
    return isinstance(value, kind) if isinstance(kind, type) else isinstance(kind, str) and value == kind

"""The Python functions of the verbs that take the verb's settings and nothing else: each is made from the verb's
`Settings`, and from the values and meanings in conf/VERB.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from inspect import Parameter, Signature, getdoc
from textwrap import fill
from typing import Any

import yaml

from lmtool.api.running import is_model_setting, keeps_output, overwrite_mode, run_verb
from lmtool.commands import bare_setting, settings_of, verb_setting_types, verbs
from lmtool.config.options import conf_dir
from lmtool.config.types import SettingType
from lmtool.config.yaml_files import read_yaml

VERB_OF_FUNCTION = {"report_page": "report"}  # of functions with another name: lmtool.report is a package
LEADING = ("run", "data", "text")  # settings that can be given by position, beside the bare one and those without value
OF_GROUP = 'an option by name, or its settings with the name under "kind", or a Corpus'
PYTHON = {"null": "None", "true": "True", "false": "False"}


def __getattr__(name: str) -> Callable[..., Any]:
    verb = VERB_OF_FUNCTION.get(name, name)
    if verb not in verbs():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return verb_function(verb, name)


@cache
def verb_function(verb: str, name: str) -> Callable[..., Any]:
    """Return the function of a verb, which has its settings as parameters, and returns its result."""
    parameters = [*_parameters(verb)]
    lines = [fill(f"{parameter.name}: {meaning}.", 116, subsequent_indent="    ") for parameter, meaning in parameters]
    file, module = read_yaml(conf_dir() / f"{verb}.yaml"), import_module(f"lmtool.commands.{verb}")
    result = module.run.__annotations__["return"]
    signature = Signature([parameter for parameter, _ in parameters], return_annotation=result)

    def function(*arguments: Any, **named: Any) -> Any:
        known = {key: named.pop(key) for key in [*named] if key in signature.parameters}
        values = signature.bind_partial(*arguments, **known).arguments
        out, progress, overwrite = values.pop("out", None), values.pop("progress", None), values.pop("overwrite", False)
        values |= named  # whole keys, as data.name, and mistakes
        return run_verb(object, verb, values, out, progress, if_run_exists=overwrite_mode(overwrite, out, values))

    function.__name__ = function.__qualname__ = name
    function.__module__ = "lmtool"
    description = fill(file.description, 116, break_on_hyphens=False)
    example = [">>> " + each for each in (getdoc(module.run) or "").split(">>> ", 1)[1:]]
    function.__doc__ = "\n".join([f"lmtool {verb}: {file.title}", "", description, "", *lines, "", *example]).rstrip()
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _parameters(verb: str) -> Iterator[tuple[Parameter, str]]:
    """Yield the parameters of a verb's function with their meanings, first those that can be given by position."""
    verb_types, bare = verb_setting_types(verb), bare_setting(verb)
    file, common = (read_yaml(conf_dir() / f"{name}.yaml") for name in (verb, "common"))
    outer = [item for item in (*file.settings, *common.settings) if not item.path[1:]]
    settings = {item.path[0]: (item.value, item.meaning) for item in outer}
    settings |= {group: (option, OF_GROUP) for group, option in file.groups.items()}
    positional = [bare[0]] if bare else []
    leading = LEADING if "run" in verb_types else (*LEADING, "runs")
    positional += [key for key in settings if key in leading or settings[key][0] == "???"]
    for key in dict.fromkeys([*positional, *settings]):
        value, meaning = settings[key]
        meaning = re.sub(r"\b(null|true|false)\b", lambda word: PYTHON[word[0]], meaning)
        bounds = verb_types[key].bounds if key in verb_types else ""
        default = None if value == "???" else yaml.safe_load(value)
        kind = Parameter.POSITIONAL_OR_KEYWORD if key in positional else Parameter.KEYWORD_ONLY
        parameter = Parameter(key, kind, default=default, annotation=_annotation(key, verb_types))
        yield parameter, f"{meaning} [{bounds}]" if bounds else meaning

    def keyword_parameter(key: str, annotation: str, default: Any = None) -> Parameter:
        return Parameter(key, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    no_folder = "a new one" if keeps_output(verb, {}) else "nothing is kept"
    yield keyword_parameter("out", "str | PathLike[str] | None"), f"the output folder. None: {no_folder}"
    if settings_of(verb).makes == "run":
        yield keyword_parameter("overwrite", "bool", False), "whether a run in `out` is replaced instead of an error"
    yield keyword_parameter("progress", "bool | None"), "whether to show bars. None: on a terminal and in notebooks"


def _annotation(key: str, verb_types: dict[str, SettingType]) -> str:
    """Return the type of a function's argument for a setting, as text."""
    if key not in verb_types:
        return "Option | Corpus"
    type_, values = verb_types[key].annotation, verb_types[key].values
    if is_model_setting(key, verb_types):
        type_ = type_.replace("list[str]", "Sequence[RunLike]").replace("str", "RunLike")
        return f"{type_} | Sequence[RunLike]" if key == "run" and "runs" in verb_types else type_
    return type_.replace(type_.partition(" ")[0], f"Literal{[*values]}") if values else type_

"""The Python functions of the verbs that take the verb's settings and nothing else: each is made from the verb's
`Settings`, and from the values and meanings in conf/VERB.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from inspect import Parameter, Signature
from textwrap import fill
from typing import Any

import yaml

from lmtool.api.running import NEW_RUNS, call, is_kept, names_models, replacing
from lmtool.commands import bare_setting, own_types, verbs
from lmtool.config.options import conf_dir
from lmtool.config.types import SettingType
from lmtool.config.yaml_files import read

VERBS = {"distill": "distil", "report_page": "report"}  # of functions with another name: lmtool.report is a package
LEADING = ("run", "data", "text")  # settings that can be given by position, beside the bare one and those without value
PYTHON = {"null": "None", "true": "True", "false": "False"}


def __getattr__(name: str) -> Callable[..., Any]:
    verb = VERBS.get(name, name)
    if verb not in verbs():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return function_of(verb, name)


@cache
def function_of(verb: str, name: str) -> Callable[..., Any]:
    """Return the function of a verb, which has its settings as parameters, and returns its result."""
    parameters, meanings = _settings(verb)
    no_folder = "a new one" if is_kept(verb, {}) else "nothing is kept"
    for key, type_, default, meaning in (
        ("out", "str | PathLike[str] | None", None, f"the output folder. None: {no_folder}"),
        ("overwrite", "bool", False, "whether a run in `out` is replaced instead of an error"),
        ("progress", "bool | None", None, "whether to show bars. None: on a terminal and in notebooks"),
    ):
        if key != "overwrite" or verb in NEW_RUNS:
            parameters.append(Parameter(key, Parameter.KEYWORD_ONLY, default=default, annotation=type_))
            meanings[key] = meaning
    file, module = read(conf_dir() / f"{verb}.yaml"), import_module(f"lmtool.commands.{verb}")
    signature = Signature(parameters, return_annotation=module.run.__annotations__["return"])

    def function(*arguments: Any, **named: Any) -> Any:
        known = {key: named.pop(key) for key in [*named] if key in signature.parameters}
        given = signature.bind_partial(*arguments, **known).arguments | named  # others are mistakes, or whole keys
        out, progress, overwrite = given.pop("out", None), given.pop("progress", None), given.pop("overwrite", False)
        return call(object, verb, given, out, progress, again=replacing(overwrite, out, given))

    function.__name__ = function.__qualname__ = name
    function.__module__ = "lmtool"
    function.__doc__ = "\n".join(
        [f"lmtool {verb}: {file.title}", "", fill(file.description, 116, break_on_hyphens=False), ""]
        + [fill(f"{key}: {meaning}.", 116, subsequent_indent="    ") for key, meaning in meanings.items()]
    )
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _settings(verb: str) -> tuple[list[Parameter], dict[str, str]]:
    """Return the parameters for the settings of a verb, and their meanings with bounds."""
    own, bare = own_types(verb), bare_setting(verb)
    file, common = (read(conf_dir() / f"{name}.yaml") for name in (verb, "common"))
    settings = {item.path[0]: item for item in (*file.settings, *common.settings) if not item.path[1:]}
    values = {key: item.value for key, item in settings.items()}
    of_group = 'an option by name, or its settings with the name under "kind", or a Corpus'
    meanings = dict.fromkeys(file.groups, of_group)
    for key, item in settings.items():
        meaning = re.sub(r"\b(null|true|false)\b", lambda word: PYTHON[word[0]], item.meaning)
        meanings[key] = f"{meaning} [{own[key].bounds}]" if own[key].bounds else meaning

    def place(key: str) -> int:
        """Return where a setting stands: 0 the bare one, 1 others by position, 2 those that are only named."""
        leads = key in LEADING or values.get(key) == "???" or (key == "runs" and "run" not in own)
        return 0 if bare and key == bare[0] else 1 if leads else 2

    parameters = []
    for key in sorted([*file.groups, *settings], key=lambda key: (place(key), key in file.groups)):
        text = file.groups.get(key) or values[key]
        default = None if text == "???" else yaml.safe_load(text)
        kind = Parameter.KEYWORD_ONLY if place(key) == 2 else Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(Parameter(key, kind, default=default, annotation=_annotation(key, own)))
    return parameters, {parameter.name: meanings[parameter.name] for parameter in parameters}


def _annotation(key: str, own: dict[str, SettingType]) -> str:
    """Return the type of what a function takes for a setting."""
    if key not in own:
        return "Option | Corpus"
    type_ = own[key].annotation
    if names_models(key, own):
        type_ = type_.replace("list[str]", "Sequence[RunLike]").replace("str", "RunLike")
        return f"{type_} | Sequence[RunLike]" if key == "run" and "runs" in own else type_
    return type_.replace(type_.partition(" ")[0], f"Literal{[*own[key].values]}") if own[key].values else type_

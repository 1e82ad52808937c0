"""The types that are read from source are those of the dataclasses."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import get_type_hints

import pytest

from lmtool.cli.help_pages import VERBS
from lmtool.config import setting_types
from lmtool.config.options import HOMES, folder_in_use
from lmtool.config.setting_types import SettingType, option_types, verb_types
from tests.conftest import ROOT
from tests.schemas import SETTINGS, VERB_SETTINGS

OPTIONS = [(group, name) for group in [*HOMES, "training"] for name in SETTINGS[group]]


def enumerations(settings: type) -> dict[str, tuple[str, ...]]:
    """The members of a dataclass's enumerations, as Python has them."""
    found = {}
    for name, hint in get_type_hints(settings, include_extras=True).items():
        kinds = [kind for kind in (hint, *getattr(hint, "__args__", ())) if isinstance(kind, type)]
        members = [tuple(kind.__members__) for kind in kinds if issubclass(kind, Enum)]
        if members:
            found[name] = members[0]
    return found


@pytest.mark.parametrize(("group", "name"), OPTIONS)
def test_an_options_types_are_its_dataclasss(group: str, name: str) -> None:
    types, settings = option_types(group, name), SETTINGS[group][name]
    assert set(types) == {field.name for field in fields(settings)}
    assert {key: type.values for key, type in types.items() if type.values} == enumerations(settings)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verbs_types_are_its_dataclasss(verb: str) -> None:
    types, settings = verb_types(verb), VERB_SETTINGS[verb]
    assert set(types) == {field.name for field in fields(settings)} - {*HOMES, "training"}
    assert {key: type.values for key, type in types.items() if type.values} == enumerations(settings)


def test_what_the_types_say() -> None:
    train = verb_types("train")
    assert train["resume"].is_text and train["store_dir"].is_text and not train["seed"].is_text
    assert train["seed"] == SettingType(frozenset({"int"}))
    assert train["prune"] == SettingType(frozenset({"list", "None"}), item=SettingType(frozenset({"int"})))
    assert verb_types("eval")["nbest_weight"].names == {"float", "None"}
    nplm = option_types("model", "nplm")
    assert nplm["activation"].values == ("tanh", "gelu", "relu", "sigmoid")
    assert nplm["context_size"].names == {"int"}, "of a base class in another file"
    text = SettingType(frozenset({"data"}), fields=option_types("data", "text"))
    size = text.below(["vocabulary", "size"])
    assert size is not None and size.names == {"int", "None"}
    assert text.below(["vocabulary", "siz"]) is None and text.below(["nothing"]) is None
    free = text.below(["downloads", "train", "url"])
    assert free is not None and free.is_free, "the keys of a dictionary are the user's own"


def test_options_from_outside_are_read_and_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    (folder / "smoother").mkdir(parents=True)
    (folder / "smoother" / "mine.yaml").write_text("kind: mine\n")
    (folder / "smoother" / "common.py").write_text("class Base(SmootherConfig):\n    shape: Shape\n")
    source = """
from lmtool.config.groups import SmootherConfig
class Shape(Enum):
    flat = 1
    round = 2
class MineConfig(SmootherConfig):
    file: "str"
    shape: Shape | None
    limits: list[float]
raise SystemExit("it was run")
"""
    (folder / "smoother" / "mine.py").write_text(source)
    with folder_in_use(folder):
        types = option_types("smoother", "mine")
    assert types["shape"].values == ("flat", "round") and types["kind"].is_text and types["file"].is_text
    assert types["limits"].item == SettingType(frozenset({"float"}))
    (folder / "smoother" / "bad.py").write_text("class (")
    with folder_in_use(folder):
        assert option_types("smoother", "bad") == option_types("smoother", "none") == {}
    assert setting_types.verb_types("nothing") == {}


def test_every_key_of_the_yaml_files_has_a_type() -> None:
    from lmtool.cli.yaml_text import read

    for verb in VERBS:
        keys = {entry.path[0] for entry in read(ROOT / "conf" / f"{verb}.yaml").entries}
        assert keys <= verb_types(verb).keys(), verb

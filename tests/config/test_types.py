"""Types of the dataclasses, and what YAML files say."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import ValidationError

from lmtool.commands import verb_setting_types, verbs
from lmtool.config.grammar import override_key, parse_value, quote_text, to_hydra_text
from lmtool.config.options import GROUP_MODULES, folder_in_use
from lmtool.config.settings import describe_config_error
from lmtool.config.types import SettingType, hint_type, option_types
from lmtool.config.yaml_files import complete_choices, read_yaml
from lmtool.errors import UserError
from lmtool.requests.values import read_text
from tests.conftest import ROOT
from tests.schemas import SETTINGS, VERB_SETTINGS

OPTIONS = [(group, name) for group in [*GROUP_MODULES, "training"] for name in SETTINGS[group]]


def enumerations(settings: type) -> dict[str, tuple[str, ...]]:
    """Return the members of a dataclass's enumerations, and the words that its texts may be, as Python has them."""
    rules = {field.name: field.metadata["rule"] for field in fields(settings) if "rule" in field.metadata}
    texts = {field.name for field in fields(settings) if field.type in ("str", "str | None")}
    found = {name: rule.words for name, rule in rules.items() if rule.words and name in texts}
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


@pytest.mark.parametrize("verb", verbs())
def test_a_verbs_types_are_its_dataclasss(verb: str) -> None:
    types, settings = verb_setting_types(verb), VERB_SETTINGS[verb]
    assert set(types) == {field.name for field in fields(settings)} - {*GROUP_MODULES, "training"}
    assert {key: type.values for key, type in types.items() if type.values} == enumerations(settings)


def test_what_the_types_say() -> None:
    train = verb_setting_types("train")
    assert train["resume"].is_text and train["store_dir"].is_text and not train["seed"].is_text
    assert train["seed"].names == {"int"} and train["seed"].allowed == "0 or more"
    assert train["prune_counts"].names == {"list", "None"} and train["prune_counts"].item == SettingType(
        frozenset({"int"}), words="a whole number"
    )
    assert verb_setting_types("rescore")["weight"].names == {"float", "None"}
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
    text = "kind: mine\nfile: a.txt\nsize: 3  # words\n  # at most\nlimits: [1, 2]\non: true\nleft: null\ngiven: ???\n"
    (folder / "smoother" / "mine.yaml").write_text(text + "inner:\n  deep: x\n")
    (folder / "smoother" / "mine.py").write_text('raise SystemExit("it was run")\n')
    with folder_in_use(folder):
        types = option_types("smoother", "mine")
        assert option_types("smoother", "none") == {}
    assert list(types) == ["file", "size", "limits", "on", "left", "given", "inner"]
    assert all(type_.is_free for type_ in types.values())
    settings = {".".join(setting.path): setting for setting in read_yaml(folder / "smoother" / "mine.yaml").settings}
    assert settings["size"].meaning == "words at most" and settings["size"].value == "3"
    assert settings["inner.deep"].value == "x"
    assert settings["size"].line == 3 and settings["inner.deep"].line == 10


def test_every_key_of_the_yaml_files_has_a_type() -> None:
    for verb in verbs():
        keys = {entry.path[0] for entry in read_yaml(ROOT / "conf" / f"{verb}.yaml").settings}
        assert keys <= verb_setting_types(verb).keys(), verb


class Color(Enum):
    red = 1
    blue = 2


@dataclass
class Inner:
    depth: int = 1


@dataclass
class Settings:
    order: int = 3
    rate: float | None = 0.1
    color: Color = Color.red
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
        ({"color": "green"}, "color=green: must be one of red, blue"),
        ({"gated": "perhaps"}, "gated=perhaps: must be true or false"),
        ({"tied": "perhaps"}, "tied=perhaps: must be true, false or null"),
        ({"factors": 3}, "factors=3: must be a list of numbers"),
        ({"factors": [1, "x"]}, "factors[1]=x: must be a number"),
        ({"prune": ["x"]}, "prune[0]=x: must be a whole number"),
        ({"weights": {"a": "x"}}, "weights.a=x: must be a whole number"),
        ({"weights": 3}, "weights=3: must be keys with values, e.g. {key: value}"),
        ({"text": [True]}, "text=[True]: must be text"),
        ({"inner": {"depth": "x"}}, "inner.depth=x: must be a whole number"),
        ({"given": "x"}, "given=x: must be a whole number"),
    ],
)
def test_the_rule_is_said(value: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as raised:
        OmegaConf.merge(OmegaConf.structured(Settings), value)
    assert describe_config_error(raised.value, "model") == f"model.{said}"


def test_a_type_without_words() -> None:
    assert hint_type(Any).words is None and hint_type(bytes | None).words is None
    assert hint_type(list[bytes]).words == "a list"


def test_the_options_that_a_verb_uses(tmp_path: Path) -> None:
    def of(**choices: str) -> dict[str, str]:
        return complete_choices("train", choices, [tmp_path])

    assert (of()["model"], of()["output"], of(model="nce")["output"]) == ("nplm", "softmax", "nce")
    assert "output" not in of(model="ngram") and of(model="ngram")["smoother"] == "modified_kneser_ney"
    experiment = {"+experiment": "mikolov2010"}
    assert of(**experiment)["output"] == "classes" and of(**experiment, output="softmax")["output"] == "softmax"
    with pytest.raises(UserError, match=r"^no smoother=kn; did you mean kneser_ney"):
        of(model="ngram", smoother="kn")
    (tmp_path / "model").mkdir()
    for name, other in (("a", "b"), ("b", "a")):  # in a circle, of which Hydra tells
        (tmp_path / "model" / f"{name}.yaml").write_text(f"defaults: [{other}, tree: huffman]\nkind: nplm\n")
    assert of(model="a")["tree"] == "huffman"


def read_again(text: str) -> str:
    return str(OmegaConf.create({"value": read_text(quote_text(text))})["value"])


@pytest.mark.parametrize(
    "text",
    ["runs/a", "it's", 'a "b"', "back\\slash", "end\\", "a\\'b", "${x}", "\\${x}", "a, b]", "ünï", "x=y", " a ", ""],
)
def test_quoted_and_read_again(text: str) -> None:
    assert read_again(text) == text


@given(st.text(alphabet="ab\\'\"${}=, []:", max_size=12))
def test_any_text_is_read_again(text: str) -> None:
    assert read_again(text) == text


@pytest.mark.parametrize("value", [None, True, 3, 1e-8, "1", "it's", [1, "a,b", [None]], {"a": "x", "b c": [1]}])
def test_a_value_is_read_again(value: object) -> None:
    assert parse_value(to_hydra_text(value)).value() == value


def test_keys() -> None:
    assert [override_key(word) for word in ("a.b=c=d", "+a=1", "++a=1", "~a", "a=null")] == ["a.b", "a", "a", "a", "a"]

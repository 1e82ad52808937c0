"""Types of the dataclasses, and what YAML files say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import ValidationError

from lmtool.cli.arguments import split_line
from lmtool.cli.line_settings import with_current_names
from lmtool.commands import own_types, verbs
from lmtool.commands.train import Settings as TrainSettings
from lmtool.config import settings
from lmtool.config.options import HOMES, conf_dir, folder_in_use
from lmtool.config.settings import error_line, saved_settings
from lmtool.config.types import SettingType, option_types, type_of
from lmtool.config.yaml_files import read
from tests.conftest import ROOT
from tests.schemas import SETTINGS, VERB_SETTINGS

Run = Callable[..., str]
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


@pytest.mark.parametrize("verb", verbs())
def test_a_verbs_types_are_its_dataclasss(verb: str) -> None:
    types, settings = own_types(verb), VERB_SETTINGS[verb]
    assert set(types) == {field.name for field in fields(settings)} - {*HOMES, "training"}
    assert {key: type.values for key, type in types.items() if type.values} == enumerations(settings)


def test_what_the_types_say() -> None:
    train = own_types("train")
    assert train["resume"].is_text and train["store_dir"].is_text and not train["seed"].is_text
    assert train["seed"].names == {"int"} and train["seed"].allowed == "0 or more"
    assert train["prune_counts"].names == {"list", "None"} and train["prune_counts"].item == SettingType(
        frozenset({"int"}), words="a whole number"
    )
    assert own_types("eval")["nbest_weight"].names == {"float", "None"}
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
    assert {key for key, type_ in types.items() if type_.is_text} == {"file"}
    assert types["on"].names == {"bool"} and types["size"].names == {"float"} and types["limits"].item is not None
    assert types["left"].is_free and types["given"].is_free
    deep = types["inner"].below(["deep"])
    assert deep is not None and deep.is_text and types["inner"].below(["none"]) is None
    settings = {".".join(setting.path): setting for setting in read(folder / "smoother" / "mine.yaml").settings}
    assert settings["size"].meaning == "words at most" and settings["size"].line == 3 and settings["size"].value == "3"
    assert settings["inner.deep"].value == "x" and settings["inner.deep"].line == 10


def test_every_key_of_the_yaml_files_has_a_type() -> None:
    for verb in verbs():
        keys = {entry.path[0] for entry in read(ROOT / "conf" / f"{verb}.yaml").settings}
        assert keys <= own_types(verb).keys(), verb


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
    assert type_of(Any).words is None and type_of(bytes | None).words is None
    assert type_of(list[bytes]).words == "a list"


def test_an_earlier_name_is_read_and_says_the_current_one(
    lmtool: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = lmtool("train", "data=toy", "training.clip_norm=2", "model.anew=0.25", "--cfg", "job")
    assert "max_grad_norm: 2" in said and "context_reset_prob: 0.25" in said
    (tmp_path / "own" / "model").mkdir(parents=True)
    (tmp_path / "own" / "model" / "mine.yaml").write_text("defaults: [nplm, _self_]\n\nhistory: -1\n")
    said = lmtool("train", "data=toy", "model=mine", "--config-dir", "own", code=2)
    assert "model.fofe_window=-1: must be 0 or more, or null" in said
    said = lmtool("train", "data=toy", "model=mine", "model.fofe_window=-2", "--config-dir", "own", code=2)
    assert "model.fofe_window=-2: must be 0 or more, or null" in said
    (tmp_path / "own" / "training").mkdir()
    (tmp_path / "own" / "training" / "mine.yaml").write_text("defaults: [standard, _self_]\n\nclip_norm: -1\n")
    for word, value in (("training=mine", "-1.0"), ("training.max_grad_norm=-2", "-2.0")):
        said = lmtool("train", "data=toy", "model=nplm", "training=mine", word, "--config-dir", "own", code=2)
        assert f"training.max_grad_norm={value}: must be above 0, or null" in said
    line = split_line(["train", "model=nce", "output.noise=3", "seed=1"])
    assert with_current_names(line, noted=True).overrides[1:2] == ["output.num_noise=3"]
    assert capfd.readouterr().err == "note: output.noise has been renamed: write output.num_noise\n"
    line = split_line(["train", "-m", "schedule=steps,plateau", "schedule.factor=0.5"])
    assert with_current_names(line).overrides[-1] == "schedule.factor=0.5"  # plateau's name today
    both = {"training": {"clip_norm": 1.0, "max_grad_norm": 2.0}, "model": {"kind": "unknown"}}
    current = settings.with_current_names(both, TrainSettings)
    assert current == {"training": {"max_grad_norm": 1.0}, "model": {"kind": "unknown"}}
    saved = saved_settings({"kind": "steps", "warmup": 0.0, "at": [5], "factor": 0.5}, "schedule")
    assert (saved.milestones, saved.gamma) == ([5], 0.5)


def older_copy(folder: Path, **changes: str) -> list[str]:
    """A preset that copies the whole YAML file of nplm under the names of an earlier version."""
    text = (conf_dir() / "model" / "nplm.yaml").read_text()
    for was, name in {"anew": "context_reset_prob", "history": "fofe_window", "direct": "direct_connections"}.items():
        text = text.replace(f"\n{name}:", f"\n{was}:")
    for name, value in changes.items():
        text = re.sub(rf"(?m)^{name}:\s*\S+", f"{name}: {value}", text)
    (folder / "own" / "model").mkdir(parents=True)
    (folder / "own" / "model" / "mine.yaml").write_text(text)
    return ["train", "data=toy", "model=mine", "--config-dir", "own", "hydra.run.dir=run"]


SMALL = ["model.hidden_dim=4", "model.embedding_dim=4", "training.epochs=1"]


def test_a_copy_from_an_earlier_version_takes_both_names_on_the_line(lmtool: Run, tmp_path: Path) -> None:
    line = older_copy(tmp_path, history="3", dropout="${.anew}")
    lmtool(*line, *SMALL, "model.anew=0.25", "training.max_grad_norm=${model.anew}", "model.direct_connections=true")
    model = json.loads(Path("run/run.json").read_text())["config"]
    assert (model["model"]["context_reset_prob"], model["model"]["fofe_window"]) == (0.25, 3)
    assert (model["model"]["dropout"], model["training"]["max_grad_norm"]) == (0.25, 0.25)
    assert model["model"]["direct_connections"] is True


def test_a_wrong_value_under_an_earlier_name_is_placed_where_it_stands(lmtool: Run, tmp_path: Path) -> None:
    line = older_copy(tmp_path, anew="often")
    said = lmtool(*line, code=2)
    place = next(
        i for i, text in enumerate(Path("own/model/mine.yaml").read_text().splitlines(), 1) if "anew: often" in text
    )
    assert f"own/model/mine.yaml:{place}: model.context_reset_prob=often: must be a number" in said


def test_earlier_names_in_a_sweeps_parameters(lmtool: Run, tmp_path: Path) -> None:
    older_copy(tmp_path)
    (tmp_path / "own" / "experiment").mkdir()
    (tmp_path / "own" / "experiment" / "several.yaml").write_text(
        "# @package _global_\ntraining: {clip_norm: 3}\n"
        "hydra: {mode: MULTIRUN, sweep: {dir: sweep}, sweeper: {params: {model.anew: '0.25,0.5'}}}\n"
    )
    lmtool("train", "data=toy", "+experiment=several", "--config-dir", "own", *SMALL)
    found = [json.loads(Path("sweep", job, "run.json").read_text())["config"] for job in "01"]
    assert [config["model"]["context_reset_prob"] for config in found] == [0.25, 0.5]
    assert found[0]["training"]["max_grad_norm"] == 3

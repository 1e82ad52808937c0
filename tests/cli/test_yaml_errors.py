"""Mistakes in custom YAML files: one line each, which names the file, the key or the option."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Run

MISTAKES = {
    "option": (
        "defaults:\n  - /output@_global_.output: nope\n  - _self_\n",
        "own/model/mine.yaml:2: no output=nope; there are adaptive",
    ),
    "override": (
        "defaults:\n  - nplm\n  - _self_\n  - override /output@_global_.output: nce_\n",
        "own/model/mine.yaml:4: no output=nce_; did you mean nce?",
    ),
    "group": (
        "defaults:\n  - nplm\n  - _self_\n  - override /outptu@_global_.output: nce\n",
        "In 'model/mine': Could not override 'outptu@output'",
    ),
    "base": ("defaults: [nplmm, _self_]\n", "own/model/mine.yaml:1: no model=nplmm; did you mean nplm?"),
    "syntax": (
        "defaults: [nplm, _self_]\nhidden_dim: [5\nlayers: 3: 4\n",
        "own/model/mine.yaml:3: while parsing a flow sequence, expected ',' or ']', but got ':': correct",
    ),
    "twice": (
        "kind: nplm\nkind: ngram\n",
        "own/model/mine.yaml:2: while constructing a mapping, found duplicate key kind: correct this YAML file",
    ),
    "interpolation": (
        "defaults: [nplm, _self_]\n\nhidden_dim: ${nowhere.x}\n",
        "own/model/mine.yaml:3: model.hidden_dim: Interpolation key",
    ),
    "resolver": (
        "defaults: [nplm, _self_]\n\nhidden_dim: ${nowhere:x}\n",
        "own/model/mine.yaml:3: model.hidden_dim: Unsupported interpol",
    ),
    "grammar": ('defaults: [nplm, _self_]\n\nhidden_dim: "${model"\n', "hidden_dim: no viable alternative"),
    "type": (
        "defaults: [nplm, _self_]\n\nhidden_dim: many\n",
        "own/model/mine.yaml:3: model.hidden_dim=many: must be a whole number",
    ),
    "list": (
        "defaults: [nplm, _self_]\n\nhidden_dim: [1, 2]\n",
        "own/model/mine.yaml:3: model.hidden_dim=[1, 2]: must be a whole number",
    ),
    "choice": (
        "defaults: [nplm, _self_]\n\nactivation: tan\n",
        "own/model/mine.yaml:3: model.activation=tan: must be one of tanh, gelu, relu, sigmoid",
    ),
    "key": (
        "defaults: [nplm, _self_]\n\nhiden_dim: 4\n",
        "own/model/mine.yaml:3: no key 'model.hiden_dim'; did you mean hidden_dim?",
    ),
    "no list": ("defaults: nplm\n", "model/mine', defaults must be a list"),
    "two keys": ("defaults: [{a: b, c: d}]\n", "In model/mine: Too many keys in default item"),
    "circle": ("defaults: [mine]\n", "lead in a circle"),
    "kind": ("kind: mine\n", "model.kind=mine: this is not an option"),
    "empty": ("", "model.kind=None: this is not an option"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_yaml_file_is_one_line(mistake: str, lmtool: Run, tmp_path: Path) -> None:
    text, said = MISTAKES[mistake]
    (tmp_path / "own" / "model").mkdir(parents=True)
    (tmp_path / "own" / "model" / "mine.yaml").write_text(text)
    line = lmtool("train", "--config-dir", "own", "model=mine", "data=toy", code=2)
    assert said in line and line.startswith("lmtool: ") and line.count("\n") == 1, line
    assert not line.rstrip().endswith(":")


def test_a_file_that_is_not_text(lmtool: Run, tmp_path: Path) -> None:
    (tmp_path / "own" / "model").mkdir(parents=True)
    (tmp_path / "own" / "model" / "mine.yaml").write_bytes(b"\xff\xfe")
    for flag in ((), ("--help",)):
        line = lmtool("train", "--config-dir", "own", "model=mine", *flag, code=2)
        assert "own/model/mine.yaml is not UTF-8 text" in line and line.count("\n") == 1


HYDRA = "with +experiment=e: "  # before Hydra's own messages
ONCE = "appears more than once in the final defaults list"
EXPERIMENTS = {
    "seeed: 3\n": "own/experiment/e.yaml:2: no key 'seeed'; did you mean seed?",
    "seed: many\n": "own/experiment/e.yaml:2: seed=many: must be a whole number",
    "model:\n  ordr: 3\n": "own/experiment/e.yaml:3: no key 'model.ordr'; did you mean order?",
    "model:\n\torder: 3\n": "own/experiment/e.yaml:3: while scanning for the next token, found character",
    "defaults:\n  - override /modl: nplm\n": f"{HYDRA}In 'experiment/e': Could not override 'modl'.",
    "defaults:\n  - overide /model: nplm\n": f"{HYDRA}smoother {ONCE}",
    "defaults:\n  - override model: nplm\n": f"{HYDRA}In 'experiment/e': Could not override 'experiment/model@model'",
    "defaults:\n  - /model: nplm\n": f"{HYDRA}smoother {ONCE}",
    "defaults:\n  - overide /model: [nplm]\n": f"{HYDRA}smoother {ONCE}",
    "defaults:\n  - model@_global_: x\n": "own/experiment/e.yaml:3: no group 'experiment/model', of exper",
    "defaults:\n  - /hydra/launcher: basic\n": f"{HYDRA}hydra/launcher {ONCE}",
    "defaults:\n  - override hydra/launcher: joblib\n": f"{HYDRA}In 'experiment/e': Could not override 'exp",
    "defaults:\n  - ? [a]\n    : b\n": "own/experiment/e.yaml:3: while constructing a mapping, found unhashable key",
    "defaults:\n  - override /model: {a: b}\n": f"{HYDRA}Unsupported item value in defaults",
    "defaults: {a: b}\n": f"{HYDRA}Invalid defaults list in 'experiment/e', defaults must be a list",
    "defaults:\n  - [a]\n  - {}\n  - override /modl: x\n": f"{HYDRA}Unsupported type in defaults",
    "data:\n  vocabulary: {siz: 3}\n": "own/experiment/e.yaml:3: no key 'data.vocabulary.siz'; did you mean size?",
}


@pytest.mark.parametrize("text", EXPERIMENTS)
def test_a_mistake_in_an_experiment(text: str, lmtool: Run) -> None:
    Path("own/experiment").mkdir(parents=True)
    Path("own/experiment/e.yaml").write_text("# @package _global_\n" + text)
    line = lmtool("train", "--config-dir", "own", "+experiment=e", "model=ngram", "data=toy", code=2)
    assert line.startswith(f"lmtool: {EXPERIMENTS[text]}") and line.count("\n") == 1, line


@pytest.mark.parametrize(
    "item",
    [
        *(
            "optional /tree: huffman",
            "optional x: y",
            "optional override /data: toy",
            "override /hydra/launcher: basic",
        ),
        *("base: seeds", "base@_global_: seeds"),
    ],
)
def test_an_experiments_defaults_list_may_have_any_valid_item(item: str, lmtool: Run) -> None:
    Path("own/experiment/base").mkdir(parents=True)
    Path("own/experiment/base/seeds.yaml").write_text("# @package _global_\nseed: 7\n")
    Path("own/experiment/e.yaml").write_text(f"# @package _global_\ndefaults:\n  - {item}\n")
    shown = lmtool("train", "--config-dir", "own", "+experiment=e", "model=ngram", "--cfg", "job")
    assert ("seed: 7\n" in shown) == ("base" in item) and "model:\n  kind: ngram\n" in shown


def test_the_command_line_is_blamed_for_what_it_gives(lmtool: Run) -> None:
    words = ("train", "data=toy", "training={epochs: many}")
    assert lmtool(*words, code=2).startswith("lmtool: training.epochs=many: must be a number above 0, auto or null")


@pytest.mark.parametrize("word", ["model=null", "data=null", "output=null"])
def test_a_group_needs_an_option(word: str, lmtool: Run) -> None:
    assert f"no {word}; there are" in lmtool("train", "data=toy", word, code=2)


def test_a_sweeps_folder_that_cannot_be_resolved(lmtool: Run) -> None:
    line = lmtool("train", "-m", "data=toy", "seed=1,2", "model=ngram", "hydra.sweep.subdir=${x}", code=2)
    assert "Interpolation key 'x' not found" in line


def test_an_experiment_may_be_a_sweep(lmtool: Run, tmp_path: Path) -> None:
    (tmp_path / "own" / "experiment").mkdir(parents=True)
    (tmp_path / "own" / "experiment" / "orders.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /model: ngram\n  - override /data: toy\n  - _self_\n\n"
        "hydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      model.order: 1,2\n"
    )
    line = ("train", "--config-dir", "own", "+experiment=orders")
    assert "also in sweep/sweep.csv" in lmtool(*line, "hydra.sweep.dir=sweep")
    assert sorted(path.parent.name for path in Path("sweep").glob("*/run.json")) == ["0", "1"]
    assert "were finished before" in lmtool("train", "-m", "resume=sweep")
    lmtool(*line, "hydra.mode=RUN", "hydra.run.dir=one")
    assert Path("one/run.json").exists()


def test_aliases_that_expand_without_bound(lmtool: Run, tmp_path: Path) -> None:
    (tmp_path / "own" / "model").mkdir(parents=True)
    lines = ["defaults: [ngram, _self_]", f"a: &a [{', '.join('x' * 9)}]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    (tmp_path / "own" / "model" / "mine.yaml").write_text("\n".join(lines))
    said = lmtool("train", "model=mine", "data=toy", "--config-dir", "own", code=2)
    assert "mine.yaml: its aliases expand to more than 1,000,000 values" in said
    said = lmtool("train", "model=ngram", "data=toy", "options=own", code=2)
    assert "mine.yaml: its aliases expand to more than 1,000,000 values" in said


@pytest.mark.parametrize("word", ["launcher._target_=1e308", "launcher._target_=hydra_plugins.A"])
def test_a_launcher_that_is_not_a_plugin(word: str, lmtool: Run) -> None:
    said = lmtool("compare", "runs=[kn,net]", f"hydra.{word}", "-m", code=2)
    assert f"hydra.{word}: must be the class of an installed Hydra plugin".replace("1e308", "1e+308") in said


def test_a_text_that_ends_with_the_file(lmtool: Run, tmp_path: Path) -> None:
    (tmp_path / "own" / "training").mkdir(parents=True)
    (tmp_path / "own" / "training" / "mine.yaml").write_text("epochs: 1\nsteps: null\na: |\na: |\n")
    said = lmtool("train", "training=mine", "model=nplm", "data=toy", "--config-dir", "own", code=2)
    assert "mine.yaml" in said and "duplicate key a" in said

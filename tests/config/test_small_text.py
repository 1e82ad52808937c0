"""Every option trains with its defaults on 20 lines: what nobody typed adapts to the vocabulary and to the text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmtool.config.data import Unit
from lmtool.config.options import GROUP_MODULES, conf_dir, kinds, yaml_files
from tests.conftest import Run, result

VERBS = ("sat there", "ran away", "saw us", "slept late", "sang well")
TWENTY = [f"the {who} {verb} ." for who in ("cat", "dog", "man", "bird") for verb in VERBS]
FEW_WORDS = ["a b", "b a", "a a b", "b"] * 5
TEXTS = {"sentences": TWENTY, "three words": FEW_WORDS}

# The model that has each group, and the groups whose options do not depend on a text: data is the text itself.
USERS = {
    "output": ["nplm", "lstm", "lbl"],
    "tree": ["hsoftmax"],
    "smoother": ["ngram", "class_ngram", "skip_ngram"],
    "counts": ["ngram"],
    "optim": ["nplm", "lstm"],
    "schedule": ["nplm", "lstm"],
}
WITHOUT_TEXT = {"data", "tracker", "segmenter"}
OF_A_VOCABULARY = {"output", "tree", "smoother", "model"}  # whose options adapt to it
ELSEWHERE = {("counts", "spark")}  # starts Java: tests/ngram/test_spark.py


def has_defaults(group: str, name: str) -> bool:
    """Return whether each setting of an option has a value, so that its name alone can be typed."""
    return "???" not in (conf_dir() / group / f"{name}.yaml").read_text(encoding="utf-8")


def lines() -> Iterator[str]:
    """Yield the options of every group, each with its defaults."""
    for group in GROUP_MODULES.keys() - WITHOUT_TEXT:
        for name in yaml_files(group):
            if not has_defaults(group, name) or (group, name) in ELSEWHERE:
                continue
            for model in [name] if group == "model" else USERS[group]:
                yield f"model={model}" if group == "model" else f"model={model} {group}={name}"


def tree_of(line: str) -> list[str]:
    return ["tree=huffman"] if "output=hierarchical" in line else []


def test_every_group_is_looked_at() -> None:
    assert USERS.keys() | {"model"} | WITHOUT_TEXT == GROUP_MODULES.keys()
    found = {word for line in lines() for word in line.split()}
    left = {f"{group}={name}" for group in USERS for name in kinds(group)} - found
    assert left == {"tree=file", "counts=table", "counts=spark"}  # two need a file, as their names say


TRIED = [(line, "sentences") for line in sorted(lines())]
FIRST = {f"model={models[0]}" for models in USERS.values()}  # each option with one model
TRIED += [
    (line, "three words")
    for line, _ in TRIED
    if line.split()[-1].partition("=")[0] in OF_A_VOCABULARY and (" " not in line or line.split()[0] in FIRST)
]


@pytest.mark.parametrize(("line", "text"), TRIED)
def test_an_option(line: str, text: str, lmtool: Run) -> None:
    if "wordnet" in line:
        pytest.importorskip("nltk")
    Path("train.txt").write_text("\n".join(TEXTS[text]) + "\n", encoding="utf-8")
    Path("valid.txt").write_text("\n".join(TEXTS[text][::7]) + "\n", encoding="utf-8")
    network = not any(model in line for model in USERS["smoother"])
    words = ["data=text", "data.train=train.txt", "data.valid=valid.txt", *line.split(), *tree_of(line)]
    lmtool("train", *words, *["training.steps=2"] * network, "hydra.run.dir=run")
    assert "valid_perplexity" in result("run")


@pytest.mark.parametrize("unit", [unit.value for unit in Unit])
@pytest.mark.parametrize("model", ["ngram", "nplm"])
def test_a_unit(unit: str, model: str, lmtool: Run) -> None:
    if unit in ("bpe", "unigram"):
        pytest.importorskip("tokenizers")
    Path("train.txt").write_text("\n".join(TWENTY) + "\n", encoding="utf-8")
    Path("valid.txt").write_text("\n".join(TWENTY[::7]) + "\n", encoding="utf-8")
    words = ["data=text", "data.train=train.txt", "data.valid=valid.txt", f"data.vocabulary.unit={unit}"]
    lmtool("train", f"model={model}", *words, *["training.steps=2"] * (model == "nplm"), "hydra.run.dir=run")


@pytest.mark.parametrize(
    ("output", "name", "usual"), [("nce", "num_noise", "500"), ("sampled", "num_samples", "1,000")]
)
def test_a_smaller_number_is_said_once(output: str, name: str, usual: str, lmtool: Run) -> None:
    small = ["data=toy", "model=lstm", f"output={output}", "training.steps=2"]
    said = lmtool("train", *small, "hydra.run.dir=run")
    note = f"output.{name}=23, not {usual}, as the vocabulary has only 23 words"
    assert said.count(note) == 1
    saved = json.loads(Path("run/run.json").read_text(encoding="utf-8"))
    assert saved["config"]["output"][name] == 23
    assert note not in lmtool("train", *small, f"output.{name}=23", "hydra.run.dir=typed")
    # What was typed stays an error.
    refused = lmtool("train", *small, f"output.{name}=24", "hydra.run.dir=refused", code=2)
    assert f"output.{name}=24: must be from 1 to 23" in refused

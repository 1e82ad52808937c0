"""One option, one Python file and one YAML file: nothing else names it."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path

import pytest

from lmtool.config.groups import BASES
from lmtool.config.options import GROUP_MODULES, conf_dir, kinds, settings_class
from lmtool.errors import UserError
from tests.conftest import ROOT

OPTIONS = [(group, name) for group in GROUP_MODULES for name in kinds(group)]

# The few files that name options beside the options' own: public faces of the library, documentation, and what older
# versions and other formats mean.
MAY_NAME = {
    "lmtool/neural/__init__.py": "the public face of the output layers and optimizers",
    "lmtool/trees/__init__.py": "the public face of the trees",
    "lmtool/cli/help_pages.py": "the examples of the help pages",
    "lmtool/data/corpus.py": "the public face of text that is given from Python",
    "lmtool/commands/_ngram_runs.py": "ARPA files and mixtures are models of n-grams",
    "lmtool/srilm.py": "ngram is the name of a command of SRILM",
    "lmtool/commands/check.py": "it prints a command with settings that fit a text",
    "lmtool/commands/_play.py": "play.js repeats the formulas of exactly these options",
    "lmtool/word_model.py": "a note on the counts of Kneser-Ney smoothing",
    "lmtool/commands/_prepare_neural.py": "a note names the schedule that keeps the rate",
    "lmtool/ngram/smoothers/absolute_discounting.py": "a note names the smoother without discounts",
    "lmtool/commands/tree.py": "it writes what tree=file reads",
    "conf/tree/union.yaml": "the trees that it is made of, as in a defaults list",
    "lmtool/neural/encoders/linear.py": "the encoders of model=cbow and model=lbl",
    "lmtool/training/step.py": "steps of plain gradient descent have a form",
}
# A form imports the layers that it is a form of; they do not know it.
FORMS = "hidden_units", "network_step", "softmax_chunks", "softmax_tiles", "tree_loops"
MAY_NAME |= {f"lmtool/neural/forms/{name}.py": "its layers" for name in FORMS}
# Names of options that are also ordinary words: elsewhere, a string of this text means something else.
OTHER_MEANINGS = {
    ("data", "text"): "eval's text=, and keys of saved files",
    ("data", "texts"): "what generate samples",
    ("model", "lstm"): "a recurrent cell",
    ("optim", "sgd"): "a rule of dynamic evaluation",
    ("output", "adaptive"): "how tree=clusters divides",
    ("output", "classes"): "a method of mixing",
    ("schedule", "cosine"): "the similarity of vectors",
    ("schedule", "linear"): "a method of mixing",
    ("schedule", "steps"): "the budget training.steps",
    ("tree", "balanced"): "how tree=clusters divides",
    ("tree", "classes"): "a method of mixing",
    ("tree", "random"): "random states of checkpoints",
    ("tree", "file"): "arguments of functions",
    ("tree", "union"): "the words of all models of a mixture",
}


def home_files(group: str, name: str) -> set[Path]:
    paths = {home / f"{name}.py" for home in homes(group)}
    paths = {path for path in paths if path.is_file()} | {python_file(group, name)}
    return paths | {conf_dir() / group / f"{name}.yaml"}


def homes(group: str) -> set[Path]:
    return {(ROOT / home.replace(".", "/")).parent for home in GROUP_MODULES[group]}


def python_file(group: str, name: str) -> Path:
    return Path(inspect.getfile(settings_class(group, name)))


@cache
def strings(path: Path) -> tuple[str, ...]:
    """The strings of a Python file that are not docstrings."""
    tree = ast.parse(text_of(path))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings]
    return tuple(dict.fromkeys(node.value for node in constants if isinstance(node.value, str)))


@cache
def text_of(path: Path) -> str:
    return path.read_text()


def names_option(path: Path, group: str, name: str) -> list[str]:
    """Return the ways in which a Python file names an option: imports, its settings class, strings."""
    text = text_of(path)
    found = []
    own = python_file(group, name).stem == name  # else the option's class is in a file of its family
    for home in {home.rpartition(".")[0] for home in GROUP_MODULES[group]} if own else ():
        if re.search(rf"\b{re.escape(home)}\.{name}\b|from {re.escape(home)} import .*\b{name}\b", text):
            found.append(f"imports {home}.{name}")
    at_home = path.parent in homes(group)
    if not at_home and re.search(rf"\b{settings_class(group, name).__name__}\b", text):
        found.append(settings_class(group, name).__name__)
    for string in strings(path):
        plain = string == name and (group, name) not in OTHER_MEANINGS
        if plain or re.search(rf"\b{group}(\.kind)?={name}\b", string):
            found.append(repr(string))
    return found


@pytest.mark.parametrize(("group", "name"), OPTIONS, ids=lambda value: value)
def test_nothing_else_names_an_option(group: str, name: str) -> None:
    own = home_files(group, name)
    assert 2 <= len(own) <= 3
    for path in sorted((ROOT / "lmtool").rglob("*.py")):
        if path not in own and str(path.relative_to(ROOT)) not in MAY_NAME:
            assert not names_option(path, group, name), f"{path.relative_to(ROOT)} names {group}={name}"
    for path in sorted(conf_dir().rglob("*.yaml")):
        if path in own or f"conf/{path.relative_to(conf_dir())}" in MAY_NAME:
            continue
        for line in text_of(path).splitlines():
            line = line.partition("#")[0]
            default = re.match(r"\s*- ", line)  # a defaults list: of a verb, a preset, an experiment
            assert default or not re.search(rf"\bkind: {name}\b", line) or path.parent.name != group, (path, line)


@pytest.mark.parametrize(("group", "name"), OPTIONS, ids=lambda value: value)
def test_an_option_keeps_its_contract(group: str, name: str) -> None:
    settings = settings_class(group, name)
    assert issubclass(settings, BASES[group]) and is_dataclass(settings)
    assert not settings.__abstractmethods__, "it implements what its group asks for"  # type: ignore[attr-defined]
    assert settings.__doc__


def test_what_no_option_answers_to_is_refused() -> None:
    with pytest.raises(UserError, match=r"smoother.kind=witten_bel: this is not an option.*did you mean witten_bell"):
        settings_class("smoother", "witten_bel")
    with pytest.raises(UserError, match=r"model.kind=\.\./nplm"):
        settings_class("model", "../nplm")
    with pytest.raises(UserError, match=r"smoother=mine came from the package more, .*install it"):
        settings_class("smoother", "mine", came_from="the package more")
    with pytest.raises(UserError, match=r"came from the folder /x, .*options=FOLDER"):
        settings_class("smoother", "mine", came_from="the folder /x")

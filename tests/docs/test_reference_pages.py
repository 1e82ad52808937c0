"""The pages of the reference list all verbs, keys, environment variables, results and files."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import pytest
import yaml
from safetensors import safe_open

import lmtool as package
from lmtool.commands import verbs
from lmtool.config.options import GROUP_MODULES, conf_dir, yaml_files
from lmtool.config.yaml_files import read_yaml
from lmtool.system.process import NUMBERS
from tests.conftest import ROOT

DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")


def codes(text: str) -> set[str]:
    """Return the code spans of a page."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([^`\n]+)`", text))


@pytest.fixture
def extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/_extensions can be imported, as Sphinx does."""
    monkeypatch.setattr(sys, "path", [str(DOCS / "_extensions"), *sys.path])


# Environment variables


def strings_of(path: Path) -> dict[str, str]:
    """Return the string constants of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)]
    return {
        target.id: node.value.value  # type: ignore[attr-defined]
        for node in assigned
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)  # type: ignore[attr-defined]
    }


def variables() -> set[str]:
    """Return the environment variables that lmtool reads or sets."""
    paths = [path for path in sorted((ROOT / "lmtool").rglob("*.py")) if "env" in path.read_text(encoding="utf-8")]
    constants = {path: strings_of(path) for path in paths}
    everywhere = {name: value for own in constants.values() for name, value in own.items()}
    found = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
                key: ast.expr = node.slice
            elif isinstance(node, ast.Call) and re.search(
                r"environ\.(get|setdefault)$|getenv$", ast.unparse(node.func)
            ):
                key = node.args[0]
            else:
                continue
            match key:
                case ast.Constant(value=str(value)):
                    found.add(value)
                case ast.Name(id=name) if name in constants[path]:
                    found.add(constants[path][name])
                case ast.Attribute(attr=name):
                    found.add(everywhere[name])
                case ast.Name():  # of a loop that checks numbers, or that restores what was changed
                    assert path.name in ("process.py", "session.py", "wordnet.py")
    return found | NUMBERS.keys()


def test_each_variable_is_on_the_page_and_read() -> None:
    named = codes(page("environment"))
    assert {"LMTOOL_DATA", "LMTOOL_UNPACK_RATIO", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES"} <= variables() <= named
    assert {name for name in named if name.startswith("LMTOOL_")} <= variables()


# The command line


def test_each_verb_key_and_option_has_its_place(extensions: None) -> None:
    import command_pages

    commands, groups = command_pages.commands(), command_pages.groups()
    assert "{{ commands }}" in page("command_line") and "{{ groups }}" in page("command_line")
    for verb in verbs():
        (section,) = re.findall(rf"^### {verb}$(.*?)(?=^### |\Z)", commands, re.MULTILINE | re.DOTALL)
        file = read_yaml(conf_dir() / f"{verb}.yaml")
        assert len(file.examples) == 3 and all(example in section for example in file.examples)
        for entry in file.settings:
            assert f"| `{'.'.join(entry.path)}` | " in section
    for group in GROUP_MODULES:
        (section,) = re.findall(rf"^### {group}=$(.*?)(?=^\(group|\Z)", groups, re.MULTILINE | re.DOTALL)
        assert {name for name in yaml_files(group) if f"| `{name}` |" in section} == yaml_files(group).keys()


# result.json


def section(text: str, verb: str) -> str:
    (found,) = re.findall(rf"^## [^\n]*\b{verb}\b[^\n]*$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found


def keys(value: Any) -> Iterator[str]:
    """Yield the keys of a JSON value and of its inner ones, except names of options and of user data."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner) if key not in ("options", "source_weights", "tuned_parameters", "discounts") else ()
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


LINES = [
    "preprocess data=toy",
    "train model=ngram data=toy model.order=2 smoother=stupid_backoff",
    "train data=text data.name=s data.train={{a:{runs}/names.txt,b:{runs}/names.txt}} data.valid={runs}/names.txt "
    "model=ngram model.order=2 smoother=count_merging",
    "eval run={runs}/kn3 accuracy=true",
    "rescore run={runs}/kn3 nbest=lists.txt reference=reference.txt",
    "score run={runs}/kn3 run_out={runs}/mle text=text.txt filter=kept.txt share=0.5",
    "score run={runs}/kn3 text=text.txt to=scores.tsv buckets=[head,tail]",
    "surprisal run={runs}/kn3 text=text.txt to=surprisal.tsv",
    "pairs run={runs}/kn3 text=pairs.jsonl",
    "ensemble runs=[{runs}/kn3,{runs}/nplm] cache=neural",
    "ensemble runs=[{runs}/kn3,{runs}/nplm] method=classes",
    "ensemble runs=[{runs}/kn3,{runs}/nplm] method=log_linear",
    "compare runs=[{runs}/kn3,{runs}/nplm] resamples=100",
    "distill run={runs}/nplm ngrams_from={runs}/mle",
    "tree data=toy",
    "predict the run={runs}/kn3",
    "generate run={runs}/kn3",
    "neighbors the run={runs}/nplm",
    "unlikely run={runs}/kn3 text=text.txt",
    "check text.txt",
    "report {runs}/kn3 map=none",
    "verify {runs}/kn3",
    "export run={runs}/nplm to=vectors.txt",
    "export run={runs}/nplm to=weights.safetensors",
    "export run={runs}/kn3 to=kn3.arpa",
    "convert arpa={runs}/kn3.arpa data=toy",
    "convert runs=[{runs}/kn3,{runs}/mle] weights=[0.5,0.5]",
    "convert run={runs}/kn3 quantize=8",
]


def test_each_key_of_a_result_is_on_the_page(runs: Path, lmtool: Callable[..., str]) -> None:
    text = page("result_json")
    Path("text.txt").write_text("the cat sat\na dog ran\n")
    Path("pairs.jsonl").write_text('{"sentence_good": "the cat sat", "sentence_bad": "cat the sat"}\n')
    Path("lists.txt").write_text("0 ||| the cat sat ||| 0 ||| -1\n0 ||| the dog sat ||| 0 ||| -2\n")
    Path("reference.txt").write_text("the cat sat\n")
    lmtool("export", f"run={runs}/kn3", "to=kn3.arpa", "hydra.run.dir=arpa")
    missing = []
    for number, line in enumerate(LINES):
        verb, *words = line.format(runs=runs).replace(f"{runs}/kn3.arpa", "kn3.arpa").split()
        lmtool(verb, *words, f"hydra.run.dir=out{number}", f"store_dir={runs}/stores")
        result = json.loads(Path(f"out{number}/result.json").read_text())
        known = codes(section(text, verb)) | {"checksum"}
        known |= codes(section(text, "eval")) if verb == "ensemble" else set()
        missing += [f"{line}: {key}" for key in keys(result) if key not in known]
    for name in ("nplm", "hs"):
        result = json.loads((runs / name / "result.json").read_text())
        missing += [f"{name}: {key}" for key in keys(result) if key not in codes(section(text, "train")) | {"checksum"}]
    assert not missing
    assert {line.split()[0] for line in LINES} == set(verbs()) - {"push"}  # which needs the Hub


# Files


def parts(path: Path) -> set[str]:
    """Return the datasets and attributes of an HDF5 file; names that differ between files are as on the page."""
    names: set[str] = set()
    with h5py.File(path, "r") as file:
        names |= set(file.attrs)

        def visit(name: str, item: h5py.Dataset | h5py.Group) -> None:
            name = re.sub(r"^(splits|cloze)/\w+", r"\1/SPLIT", name)
            names.update({name} if isinstance(item, h5py.Dataset) else set(), item.attrs)

        file.visititems(visit)
    return {re.sub(r"^(count|suffix)\d$", r"\g<1>N", name) for name in names}


def test_each_file_and_array_is_on_the_page(runs: Path, lmtool: Callable[..., str]) -> None:
    named = codes(page("file_formats"))
    lmtool("convert", f"run={runs}/kn3", "quantize=8", "hydra.run.dir=small")
    lmtool("train", "model=class_ngram", "data=toy", "model.order=2", "hydra.run.dir=classes")
    lmtool("eval", f"run={runs}/kn3", "hydra.run.dir=scores")
    lmtool("train", "-m", "model=ngram", "data=toy", "model.order=1", "seed=1,2", "hydra.sweep.dir=sweep")
    folders = [runs / name for name in ("kn3", "nplm", "hs", "mix")]
    folders += [Path(name) for name in ("small", "classes", "scores", "sweep", "sweep/0")]
    files = {path.name for folder in folders for path in folder.iterdir()}
    files = {re.sub(r"^\w+\.log$", "VERB.log", name) for name in files if not re.fullmatch(r"\d+|\.\w*\.?\w*", name)}
    assert not files - named and {"checkpoint.safetensors", "classes.txt", "scores.h5", "sweep-seeds.csv"} <= files
    arrays = {"small": "small/model.h5", "scores": "scores/scores.h5", "classes": "classes/model.h5"}
    paths = [Path(path) for path in arrays.values()] + [runs / "kn3" / "model.h5", *(runs / "stores").glob("*.h5")]
    short = {"log_backoff/unigrams", "log_backoff/levels", "log_backoff/codes", "log_prob/levels", "log_prob/codes"}
    missing = {f"{path.name}: {part}" for path in paths for part in parts(path) - named - short}
    assert not missing
    notes: set[str] = set()
    for path in (runs / "nplm" / "checkpoint.safetensors", runs / "hs" / "tree.safetensors"):
        with safe_open(path, framework="np") as file:
            notes |= set(file.metadata())
    assert {"step", "tied", "checksum"} <= notes <= named
    assert set(json.loads((runs / "mix" / "run.json").read_text())) <= named


# Citation, and the checks of the site


def test_the_citation_is_that_of_the_last_release() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, day = re.findall(r"^## ([\d.]+) \((\d{4}-\d\d-\d\d)\)$", changes, flags=re.M)[0]
    coming = re.findall(r"^## Unreleased \((.*)\)$", changes, flags=re.M)
    assert package.__version__ == (f"{coming[0]}.dev0" if coming else version)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0" and {"message", "title", "authors"} <= cited.keys()
    assert (cited["version"], cited["date-released"]) == (version, day) and cited["authors"] == [
        {"name": "The lmtool developers"}
    ]
    assert cited["license"] == "MIT" and cited["type"] == "software"


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    import check_site

    (tmp_path / "b.html").write_text("<h1 id='top'>b</h1>")
    (tmp_path / "a.html").write_text("<a href='b.html#top'>right</a><a href='https://else.where/'>away</a>")
    assert check_site.faults(tmp_path) == []
    (tmp_path / "a.html").write_text(
        "<a href='b.html#end'>x</a><a href='c.html'>x</a><script src='//cdn/x.js'></script>"
    )
    assert [line.split(": ")[1] for line in check_site.faults(tmp_path)] == [
        "b.html#end names a place that is not on that page",
        "c.html leads nowhere",
        "loads //cdn/x.js, which is not on this site",
    ]
    (tmp_path / "big.css").write_text("x" * check_site.LIMIT)
    (tmp_path / "a.html").write_text("<link rel='stylesheet' href='big.css'>")
    assert "without pictures" in check_site.faults(tmp_path)[0]


def test_docstrings_become_lists_of_parameters(extensions: None) -> None:
    import docstrings

    text = ["Train. See (1): no name.", "", "model: D. a, b: two", "numbers. Raises ValueError for c."]
    assert docstrings.with_parameters(text, ["b", "a", "model", "rest"]) == [
        *("Train. See (1): no name.", "", "Raises ValueError for c.", ""),
        *(":param b: see a", ":param a: two numbers.", r":param model: \D.", ":param rest:", ""),
    ]
    assert docstrings.with_parameters([".. math::", "", "   model: x"], ["model"]) == [
        ".. math::",
        "",
        "   model: x",
        "",
    ]


def test_links_to_files_of_the_repository_lead_to_their_pages(extensions: None, tmp_path: Path) -> None:
    import repository_links

    docs = tmp_path / "docs"
    (docs / "numbers").mkdir(parents=True)
    (docs / "numbers" / "hw3.md").write_text("```{include} ../../results/hw3.md\n```\n")
    pages = repository_links.including_pages(docs)
    text = "[a](../../results/hw3.md) [b](../../README.md#x) [c](../numbers/hw3.md) [d](../../other.md)"
    assert repository_links.redirected(text, docs / "guides" / "a.md", docs, pages) == (
        "[a](../numbers/hw3.md) [b](../index.md#x) [c](../numbers/hw3.md) [d](../../other.md)"
    )


def test_a_formula_that_is_none_is_a_warning(extensions: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx")
    import mathml

    said: list[str] = []
    monkeypatch.setattr(mathml.logger, "warning", lambda text, *values, **_: said.append(text % values))
    assert "<mfrac>" in mathml.mathml(r"\begin{split} p &= \tfrac{1}{2} \\ q &= \dots \end{split}", block=True)
    assert not said
    assert mathml.mathml(r"\nonsense{x}", block=False) == r"<code>\nonsense{x}</code>"
    assert len(said) == 1 and "nonsense" in said[0]

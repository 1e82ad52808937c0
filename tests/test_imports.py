"""Imports run one way, and what is not needed is not imported."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from lmtool.commands import verbs
from tests.conftest import ROOT

# For each part of the package, what of lmtool it may import, within functions too; cli, harness, kenlm and srilm may
# import everything.
# results.base is a leaf: the table that a corpus and a model return, too.
LEAVES = {"errors", "__version__", "system", "config", "results.base"}
BELOW_MODELS = LEAVES | {"data", "trees", "language_model"}
MAY_IMPORT = {
    "errors": set(),
    "system": {"errors"},
    "config": {"errors", "system"},
    "data": LEAVES,
    "language_model": LEAVES | {"data"},
    "sampling": LEAVES | {"data", "language_model"},
    "states": LEAVES | {"language_model"},
    "trees": LEAVES | {"data"},
    "ngram": BELOW_MODELS,
    "neural": BELOW_MODELS,
    "evaluation": LEAVES | {"data", "language_model"},
    "plots": LEAVES | {"data", "trees"},
    "mixtures": BELOW_MODELS | {"evaluation", "ngram", "neural"},
    "word_model": BELOW_MODELS | {"evaluation", "neural", "plots"},
    "text_model": BELOW_MODELS | {"evaluation", "sampling", "states", "neural", "word_model"},
    "runs": BELOW_MODELS | {"ngram", "neural", "mixtures", "text_model"},
    "training": LEAVES | {"data", "neural", "evaluation", "runs"},
    "report": LEAVES | {"results", "data", "trees", "neural", "evaluation", "plots", "runs", "sweeps"},
    "session": LEAVES | {"runs"},
    "results": LEAVES | {"language_model", "evaluation", "plots", "runs", "text_model", "trees"},
    "sweeps": LEAVES | {"results", "runs", "session"},
    "commands": BELOW_MODELS
    | {"evaluation", "mixtures", "neural", "ngram", "plots", "report", "results", "runs", "session", "sweeps"}
    | {"text_model", "training"},
    "requests": LEAVES | {"commands", "results", "runs", "session", "sweeps"},
    "api": BELOW_MODELS
    | {"commands", "evaluation", "ngram", "plots", "requests", "results", "runs", "session", "sweeps", "text_model"},
}
HYDRA_USERS = {"cli", "commands", "config", "requests", "session", "sweeps"}
FILES = sorted((ROOT / "lmtool").rglob("*.py"))


def imports(path: Path, *, typing: bool = True) -> set[str]:
    """Return the imports of a file. typing: including those only for annotations."""
    tree = ast.parse(path.read_text())
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if not typing and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped |= set(ast.walk(node))
    names = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def part_of(path: Path) -> str:
    return path.relative_to(ROOT / "lmtool").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    part = part_of(path)
    for name in imports(path, typing=part != "config"):  # the contracts of groups name what options build
        top, *rest = name.split(".")
        if top in ("hydra", "omegaconf"):
            assert part in HYDRA_USERS, f"{path} imports {name}"
        if top == "lmtool" and part in MAY_IMPORT:
            assert {rest[0], ".".join(rest[:2])} & (MAY_IMPORT[part] | {part}), f"{path} imports {name}"


def test_no_circles_of_imports() -> None:
    """Imports within functions and under TYPE_CHECKING count.

    The package lmtool itself is left out: it names functions of all others.
    """
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}
    needs: dict[str, set[str]] = {}
    for module, path in modules.items():
        named = {name if name in modules else name.rpartition(".")[0] for name in imports(path)}
        needs[module] = (named & modules.keys()) - {module, "lmtool"}
    assert not {module for module in needs if _reaches(module, module, needs)}


def _reaches(start: str, goal: str, needs: dict[str, set[str]]) -> bool:
    seen: set[str] = set()
    waiting = list(needs[start])
    while waiting:
        module = waiting.pop()
        if module == goal:
            return True
        if module not in seen:
            seen.add(module)
            waiting += needs[module]
    return False


HEAVY = ("torch", "numpy", "h5py", "numba", "hydra", "omegaconf")


def imported(lines: list[list[str]], folder: Path) -> list[set[str]]:
    """Return the modules that one process has imported after each of some command lines."""
    script = f"""
import sys
from lmtool.cli.command_line import main
for words in {lines!r}:
    assert main(words) == 0
    print("MODULES", *sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=folder, check=True)
    return [set(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("MODULES ")]


def test_verbs_import_nothing_heavy(tmp_path: Path) -> None:
    """Help pages read the settings of each verb."""
    script = f"import sys, {', '.join(f'lmtool.commands.{verb}' for verb in verbs())}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert not set(done.stdout.split()) & {*HEAVY, "pandas"}


LINES = ["", "--help", "--version", "train --help", "eval --help", "train model=nce --help", "completion bash"]
LINES += ["train model=ngram smoother=laplace counts=spark --help"]


def test_lmtool_imports_nothing_heavy(tmp_path: Path) -> None:
    line = [sys.executable, "-c", "import lmtool, sys; print(*sys.modules)"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert not set(done.stdout.split()) & {*HEAVY, "tqdm", "yaml", "subprocess"}


def test_help_and_completion_import_nothing_heavy(tmp_path: Path) -> None:
    lines = [*LINES, "completion query lmtool train data=ptb model."]
    after = imported([line.split() for line in lines], tmp_path)
    assert [line for line, modules in zip(lines, after, strict=True) if modules & set(HEAVY)] == []


def test_training_imports_what_its_model_needs(tmp_path: Path) -> None:
    """Check that a single command imports no more than its model needs."""
    counted, scored, exported, reported = imported(
        [
            ["train", "model=ngram", "data=toy", "model.order=2", "hydra.run.dir=kn"],
            ["score", "run=kn", f"text={__file__}", "to=scores.tsv"],
            ["export", "run=kn", "to=kn.arpa"],
            ["report", "paths=[kn]", "hydra.run.dir=report"],
        ],
        tmp_path,
    )
    assert not any(name.startswith(("lmtool.neural", "lmtool.trees.brown")) for name in counted)
    assert not scored & {"matplotlib", "pandas", "pyarrow"} and "jinja2" not in exported and "torch" not in reported
    words = ["train", "model=nplm", "data=toy", "training.epochs=1", "training.batch_size=16", "hydra.run.dir=nplm"]
    composed, trained = imported([["train", "model=nplm", "--cfg", "job"], words], tmp_path)
    assert not composed & {"torch", "numpy", "numba"}
    settings = {"lmtool.ngram.models", "lmtool.ngram.models.options"}
    assert "torch" in trained and not any(name.startswith("lmtool.ngram.") for name in trained - settings)
    assert not trained & {"torch._dynamo", "sympy", "pandas", "sklearn"}  # torch's compiler takes a second

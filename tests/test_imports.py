"""Imports run one way, and help pages start without the heavy libraries."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT

# For each part of the package, what of lmtool it may import; commands may import everything.
MAY_IMPORT = {
    "errors": set(),
    "config": {"errors"},
    "files": {"errors"},
    "locks": {"errors", "files"},
    "tables": set(),
    "model": set(),
    "parallel": set(),
    "memory": set(),
    "data": {"errors", "config", "files", "model", "__version__"},
    "ngram": {"errors", "files", "model", "parallel", "data"},
    "trees": {"errors", "files", "parallel"},
    "neural": {"errors", "config", "model", "data", "memory", "parallel", "trees"},
    "ensemble": {"errors", "model", "data", "evaluation"},
    "generation": {"config", "data", "model"},
    "textmodel": {"config", "data", "evaluation", "generation", "model"},
    "loading": {"build", "config", "data", "ensemble", "errors", "model", "neural", "runs", "textmodel"},
    "evaluation": {"errors", "files", "model", "data"},
    "scores": {"errors", "files", "model", "data"},
    "runs": {"errors", "files", "__version__"},
    "checkpoint": {"errors", "files", "runs", "trees", "__version__"},
    "training": {"errors", "config", "files", "model", "data", "evaluation", "checkpoint", "neural", "runs"},
    "build": {"errors", "config", "data", "memory", "model", "ensemble", "runs"}
    | {"ngram", "neural", "trees", "checkpoint"},
    "plots": {"errors", "files", "model", "trees"},
    "report": {
        "errors",
        "config",
        "files",
        "model",
        "data",
        "plots",
        "runs",
        "scores",
        "tables",
        "trees",
        "__version__",
    }
    | {"checkpoint", "loading", "neural"},
    "helppages": {"errors"},
    "arguments": {"errors", "helppages"},
    "faults": {"errors", "helppages"},
    "completion": {"errors", "helppages", "config"},
    "cli": {"errors", "arguments", "helppages", "faults", "completion", "commands", "config", "__version__"},
}
HYDRA_USERS = {"cli", "config", "commands", "faults", "completion"}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "lmtool").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    part = path.relative_to(ROOT / "lmtool").parts[0].removesuffix(".py")
    for name in imports(path):
        top, *rest = name.split(".")
        if top in ("hydra", "omegaconf"):
            assert part in HYDRA_USERS, f"{path} imports {name}"
        if top == "lmtool" and part in MAY_IMPORT:
            assert rest[0] in MAY_IMPORT[part] | {part}, f"{path} imports {name}"


@pytest.mark.parametrize("line", ["", "--help", "--version", "train --help", "eval --help", "completion bash"])
def test_help_imports_nothing_heavy(line: str, tmp_path: Path) -> None:
    script = (
        f"import sys; from lmtool.cli.command_line import main; assert main({line.split()!r}) == 0; "
        "print([m for m in ('torch', 'numpy', 'h5py', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_answers_within_half_a_second(tmp_path: Path) -> None:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "lmtool", "--help"], capture_output=True, cwd=tmp_path, check=True)
        times.append(time.perf_counter() - start)
    assert sorted(times)[2] < 0.5

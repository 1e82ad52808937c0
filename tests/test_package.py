"""What a user installs: sdist and wheel carry conf/, and the README's commands run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lmtool.plots import can_plot
from tests.conftest import ROOT

YAML = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "conf").rglob("*.yaml"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    # The wheel is built from the sdist, as an index does it.
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "-o", out, ROOT], check=True, capture_output=True)
    return out


def test_sdist_and_wheel_carry_the_configuration(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*YAML, "docs/own_options.md"} <= names
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"lmtool/{name}" for name in YAML} <= names
    assert not any(name.startswith(("tests/", "conf/", "scripts/")) for name in names)


def test_the_wheel_works_from_another_folder(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(pip, check=True, capture_output=True)
    script = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import lmtool.cli.command_line; "
        f"assert lmtool.cli.command_line.__file__.startswith({str(site)!r}), lmtool.cli.command_line.__file__; "
        "sys.exit(lmtool.cli.command_line.main(['train', 'model=ngram', 'data=toy', 'hydra.run.dir=run']))"
    )
    work = tmp_path / "work"
    work.mkdir()
    # Nothing is compiled: for a folder of its own all of it would be compiled anew.
    surroundings = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    line = [sys.executable, "-P", "-c", script]
    done = subprocess.run(line, cwd=work, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (work / "run" / "run.json").is_file()


def python_of_the_readme(word: str) -> dict[str, object]:
    """The names that the block of Python with a word in it leaves."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    (block,) = [block for block in blocks if word in block]
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    return names


def test_the_tour_of_the_readme_runs(lmtool: Callable[..., str], with_curves: None) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert len(lines) >= 7 and all(line.startswith("lmtool ") for line in lines)
    for line in lines:
        words = shlex.split(line)[1:]
        if {"model=nplm", "model=hsoftmax"} & set(words) and "--cfg" not in words:  # a minute's work, cut to a second's
            words += ["model.embedding_dim=16", "model.hidden_dim=16", "training.steps=12", "training.batch_size=4096"]
        if "resume=runs/nplm" in words:
            words += ["training.steps=20"]
        assert lmtool(*words)
    assert Path("runs/nplm/curves.png").is_file() == can_plot()
    assert python_of_the_readme("lmtool.load")["model"].context_size == 4
    assert python_of_the_readme("from_texts")["mixture"].perplexity < 5


def test_the_python_of_the_readme_runs() -> None:
    names = python_of_the_readme("HierarchicalSoftmax")
    dist = names["output"].log_dist(names["encoder"](names["contexts"]))
    assert dist.shape == (256, 5000) and float((dist.exp().sum(1) - 1).abs().max()) < 1e-5

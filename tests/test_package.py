"""What a user installs: sdist and wheel carry conf/, and the wheel works by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

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
    assert {*YAML, "docs/guides/adding_an_option.md"} <= names
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

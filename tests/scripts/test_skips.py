"""Which skips fail: tests/skips.py in a run of pytest over a few tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import ROOT

TESTS = """
import pytest

def test_runs(): pass

@pytest.mark.tool("python3", "json.decoder", "/")
def test_tool(): pass

@pytest.mark.tool("json", "no_such_tool.at_all")
def test_missing_tool(): raise AssertionError

@pytest.mark.skip(reason="needs a GPU; ./scripts/gpu runs it on one")
def test_gpu(): raise AssertionError

@pytest.mark.skipif(True, reason="needs another day")
def test_other(): raise AssertionError

def test_package(): pytest.importorskip("no_such_package")

@pytest.fixture
def corpus(): pytest.skip("needs LMTOOL_DATA with ptb/")

def test_corpus(corpus): raise AssertionError

@pytest.mark.xfail
def test_xfail(): raise AssertionError
"""


def run(folder: Path, strict: str | None, *words: str, data: str = "") -> tuple[set[str], set[str], str]:
    """Return which tests failed and which were skipped, and what was printed."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "LMTOOL_DATA": data, "LMTOOL_SKIPS": strict or ""}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other packages' plugins take most of the time
    line = [sys.executable, "-m", "pytest", "-q", "-p", "tests.skips", "-p", "xdist", "-p", "no:cacheprovider"]
    line += ["-W", "ignore", "-c", "/dev/null", "--rootdir", str(folder), "--junitxml", "result.xml", *words]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)
    cases = list(ElementTree.parse(folder / "result.xml").iter("testcase"))
    failed = {
        str(case.get("name")) for case in cases if case.find("failure") is not None or case.find("error") is not None
    }
    skipped = {str(case.get("name")) for case in cases if case.find("skipped") is not None}
    assert (done.returncode != 0) == bool(failed), done.stdout + done.stderr
    return failed, skipped, done.stdout


OTHERS = {"test_other", "test_package"}


@pytest.mark.parametrize(
    ("strict", "data", "failed", "workers"),
    [
        (None, "", set(), "0"),
        ("suite", "", OTHERS, "0"),
        ("suite", "/corpora", OTHERS | {"test_corpus"}, "2"),
        ("tools", "", OTHERS | {"test_missing_tool"}, "0"),
    ],
)
def test_a_skip_that_is_not_listed_fails(
    strict: str | None, data: str, failed: set[str], workers: str, tmp_path: Path
) -> None:
    (tmp_path / "test_a.py").write_text(TESTS)
    every = {"test_missing_tool", "test_gpu", "test_corpus", "test_xfail", *OTHERS}
    found = run(tmp_path, strict, "-n", workers, data=data)
    assert found[:2] == (failed, every - failed)
    assert ("a test that should run was skipped: needs another day" in found[2]) == bool(failed)


def test_a_skipped_file_fails(tmp_path: Path) -> None:
    (tmp_path / "test_b.py").write_text("import pytest\npytest.importorskip('no_such_package')\ndef test_b(): pass\n")
    for strict in ("suite", "tools"):
        failed, _, said = run(tmp_path, strict)
        assert failed == {"test_b"} and "a test that should run was skipped: could not import 'no_such_package'" in said


def test_only_tests_of_tools_run(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(TESTS)
    assert run(tmp_path, "tools", "-m", "tool")[:2] == ({"test_missing_tool"}, set())

"""Tests that need tools of other projects, and the skips that are allowed; tests/conftest.py takes the hooks from here.

`@pytest.mark.tool("kenlm", "build_binary")` skips a test unless each name is a program in PATH, a module or a path.
LMTOOL_SKIPS makes skips failures. "suite": all but those whose reason is in ALLOWED and those for a missing tool.
"tools", which `./scripts/test tools` sets: the latter fail, too. To allow another reason, add it with why.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import pytest

MISSING = "needs {} (./scripts/test tools installs it)"
ALLOWED = {
    r"needs a GPU; \./scripts/gpu runs it on one": "machines of continuous integration have none",
    r"this processor has no (tiles for bf16 \(AMX\)|AVX-512 for bf16)": "depends on the processor",
    r"\w+ needs another processor: it is not compared": "depends on the processor",
    r"needs LMTOOL_DATA with .*": "corpora that cannot be shipped; not allowed if LMTOOL_DATA is set",
}
if os.environ.get("LMTOOL_DATA"):
    del ALLOWED[r"needs LMTOOL_DATA with .*"]

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose tools are missing."""
    for mark in item.iter_markers("tool"):
        for name in mark.args:
            if not (Path(name).exists() if "/" in name else shutil.which(name) or _is_module(name)):
                pytest.skip(MISSING.format(name))


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Check a skipped test."""
    return _checked((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Check a skipped file."""
    return _checked((yield))


def _checked(report: Report) -> Report:
    """Return a report as a failure if it is of a skip that is not allowed."""
    strict = os.environ.get("LMTOOL_SKIPS")
    if not strict or not report.skipped or hasattr(report, "wasxfail"):
        return report
    assert isinstance(report.longrepr, tuple)
    reason = report.longrepr[2].removeprefix("Skipped: ")
    allowed = list(ALLOWED) + ([re.escape(MISSING).replace(r"\{\}", r"\S+")] if strict == "suite" else [])
    if not any(re.fullmatch(pattern, reason, re.DOTALL) for pattern in allowed):
        report.outcome = "failed"
        report.longrepr = f"a test that should run was skipped: {reason}"
    return report

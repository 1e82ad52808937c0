"""The fused losses of lmtool.neural.triton, where Triton is installed: pip install triton, on Linux."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from lmtool.neural import triton
from tests.conftest import ROOT
from tests.test_imports import imported

INSTALLED = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
if find_spec("triton") is not None and [int(part) for part in version("triton").split(".")[:2]] < [3, 9]:
    INSTALLED = pytest.mark.skip(reason="triton before 3.9, with which the kernels were written")


@INSTALLED
def test_in_the_interpreter() -> None:
    """tests/neural/interpreted_triton.py, where the cases are; `python -m pytest` on it shows them one by one."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/neural/interpreted_triton.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-5000:] + done.stderr[-1000:]


@INSTALLED
def test_kernels_are_in_triton_s_language() -> None:
    """The interpreter runs ordinary Python; for a device all of it must be what Triton's compiler knows."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(ROOT / "scripts" / "triton_resources.py"), "--lower"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert {line.split()[0] for line in done.stdout.splitlines()} == {
        "list_kernels.losses",
        "list_kernels.gradients",
        "list_kernels.segment_sums",
        "class_kernels.losses",
        "class_kernels.gradients",
        "column_kernels.sums",
        "column_kernels.hidden_gradients",
        "column_kernels.weight_gradients",
    }


def test_without_triton_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(triton, "_installed", lambda: False)
    assert not triton.serves(torch.zeros(1, 4))


def test_a_layer_does_not_import_it(tmp_path: Path) -> None:
    script = "from lmtool.neural.outputs import adaptive, classes, hierarchical, nce, sampled, softmax"
    modules = imported(script, tmp_path)
    assert "lmtool.neural.triton" in modules and "lmtool.neural.triton.columns" not in modules
    assert "triton" not in modules or "triton" in imported("import torch", tmp_path)

"""The notebook of the docs, run from its first cell to its last by a real kernel."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import ROOT


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(ROOT / "docs" / "examples" / "notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    shown = [output.data for output in outputs if output.output_type == "execute_result"]
    assert (
        sum("<table>" in data.get("text/html", "") for data in shown) == 7
    )  # corpus, runs, evaluation, mixture, sweep, tree
    assert sum("image/png" in data for data in shown) == 1  # network.plot()
    assert sum("dataframe" in data.get("text/html", "") for data in shown) == 2
    said = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    (perplexities,) = [json.loads(line) for line in said.splitlines() if line.startswith("[")]
    assert len(perplexities) == 2 and all(30 < value < 250 for value in perplexities)
    assert "did you mean training.epochs?" in said
    errors = [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    assert not any("Warning" in text for text in errors), errors
    assert (tmp_path / "runs" / "mix" / "run.json").is_file()

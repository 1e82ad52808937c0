"""The report of CS287 HW3 has Witten-Bell's cloze perplexity, 3.52, by its own rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT


def test_the_report_s_figures(
    real_data: Path, tmp_path: Path, lmtool: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (real_data / "hw3" / "valid_blanks.txt").is_file():
        pytest.skip("needs LMTOOL_DATA with hw3/")
    monkeypatch.syspath_prepend(ROOT / "scripts")
    from hw3_conventions import by_their_rule

    for name, smoother in (("wb3", "witten_bell"), ("kn3", "modified_kneser_ney")):
        lmtool("train", "model=ngram", "model.order=3", f"smoother={smoother}", "data=hw3", f"out={name}")
    found = by_their_rule(tmp_path)
    assert found["witten_bell"] == pytest.approx(3.5198, abs=5e-5)
    assert found["kneser_ney"] == pytest.approx(3.44, abs=0.005)

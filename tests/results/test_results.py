"""What results print."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lmtool.results import TrainedRun
from lmtool.results.base import of_json


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"valid_perplexity": 3.25, "parameters": 604_661}, "best valid perplexity 3.2500, 604,661 parameters"),
        (
            {"valid_perplexity": math.inf, "parameters": 717_733, "ngrams": [9_999, 707_734]},
            "valid perplexity inf, 717,733 n-grams",
        ),
    ],
)
def test_the_last_line_of_a_training(result: dict[str, object], said: str) -> None:
    unused = {"examples": 1, "examples_per_second": 1.0, "epochs": 1, "options": {}}
    trained = of_json(TrainedRun, result | unused | {"seconds": 1.25}, folder=Path("out/run"))
    assert trained.line() == f"{said}, 1.2 s; run=out/run"

"""What commands print of their results."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lmtool.evaluation.printing import training_line


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"valid_perplexity": 3.25, "parameters": 604_661}, "3.2500, 604,661 parameters"),
        ({"valid_perplexity": math.inf, "parameters": 717_733, "ngrams": [9_999, 707_734]}, "inf, 717,733 n-grams"),
    ],
)
def test_the_last_line_of_a_training(result: dict[str, object], said: str) -> None:
    line = training_line(result | {"seconds": 1.25}, Path("out/run"))
    assert line == f"valid perplexity {said}, 1.2 s; run=out/run"

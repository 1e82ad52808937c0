"""What results print."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lmtool.results import TrainedRun
from lmtool.results.base import TableResult, result_from_json


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
    trained = result_from_json(TrainedRun, result | unused | {"seconds": 1.25}, folder=Path("out/run"))
    assert trained.line() == f"{said}, 1.2 s; run=out/run"


def test_a_table_in_latex_and_markdown() -> None:
    rows = [["kn5", 148.0074, None], [r"a_b & 5% {#1} \x", 7, 0.25]]
    table = TableResult(header=["run", "perplexity", "95 % CI"], table=rows)
    assert table.to_latex().splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"run & perplexity & 95 \% CI \\",
        r"\midrule",
        r"kn5 & 148.0074 & - \\",
        r"a\_b \& 5\% \{\#1\} \textbackslash{}x & 7 & 0.2500 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert table.to_markdown().splitlines()[2] == "| kn5 | 148.0074 | - |"

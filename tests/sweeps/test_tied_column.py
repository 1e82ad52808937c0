"""A sweep in which model.tied=null ties some networks and not others says so in its table, with numbers of weights."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

from lmtool.report.sections import sweep_table
from lmtool.sweeps.result_table import jobs_table, read_rows
from tests.sweeps.test_result_table import job


def test_the_columns_by_hand(tmp_path: Path) -> None:
    job(tmp_path, 0, "model=nplm", valid_perplexity=90.0, parameters=801388, tied=True)
    job(tmp_path, 1, "model=lstm", valid_perplexity=80.0, parameters=1963000, tied=False)
    job(tmp_path, 2, "model=ngram", valid_perplexity=100.0, parameters=5)
    rows = read_rows(tmp_path)
    assert jobs_table(rows) == (
        ["job", "model", "tied", "parameters", "valid_perplexity", "seconds", "status"],
        [
            ["1", "lstm", "no", 1963000, 80.0, 1.5, "done"],
            ["0", "nplm", "yes", 801388, 90.0, 1.5, "done"],
            ["2", "ngram", None, 5, 100.0, 1.5, "done"],
        ],
    )
    assert sweep_table(rows).rows[0] == ["1", "lstm", "no", 1963000, 80.0, 1.5, "done"]


def test_no_columns_if_all_are_tied_or_it_was_chosen(tmp_path: Path) -> None:
    for number, tied in enumerate((True, True)):
        job(tmp_path, number, f"seed={number}", valid_perplexity=90.0 + number, parameters=7, tied=tied)
    assert jobs_table(read_rows(tmp_path))[0] == ["job", "seed", "valid_perplexity", "seconds", "status"]
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    for number, tied in enumerate((True, False)):
        job(chosen, number, f"model.tied={str(tied).lower()}", valid_perplexity=90.0, parameters=7, tied=tied)
    assert jobs_table(read_rows(chosen))[0] == ["job", "model.tied", "valid_perplexity", "seconds", "status"]


def test_a_sweep_of_networks(lmtool: Callable[..., str]) -> None:
    small = ["model.embedding_dim=4", "model.hidden_dim=8", "training.steps=2", "training.batch_size=4"]
    printed = lmtool("train", "-m", "data=toy", "model=nplm,lstm", *small, "hydra.sweep.dir=runs/both")
    with Path("runs/both/sweep.csv").open(newline="") as handle:
        found = {row["model"]: (row["tied"], int(row["parameters"])) for row in csv.DictReader(handle)}
    results = {name: json.loads(Path(f"runs/both/{place}/result.json").read_text()) for name, place in PLACES.items()}
    assert {name: result["tied"] for name, result in results.items()} == {"nplm": True, "lstm": False}
    assert found == {name: (("no", "yes")[result["tied"]], result["parameters"]) for name, result in results.items()}
    # By hand, of an LSTM over V words: embeddings V 4, four matrices 8 (4 + 8 + 2), output (V - 1) (8 + 1).
    words = len(Path("runs/both/1/vocabulary.txt").read_text(encoding="utf-8").splitlines())
    assert results["lstm"]["parameters"] == words * 4 + 4 * 8 * 14 + (words - 1) * 9
    assert "tied" in printed and "parameters" in printed


PLACES = {"nplm": 0, "lstm": 1}

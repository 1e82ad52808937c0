"""The tables of a sweep from the files of its jobs: ranks, cloze results, infinite values, splits."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmtool.report.sections import sweep_table
from lmtool.sweeps.result_table import format_table, jobs_table, perplexities_of, read_rows, seeds_table, write_tables


def job(sweep: Path, number: int, settings: str, **result: Any) -> None:
    """Write the folder of a finished job."""
    folder = sweep / str(number)
    folder.mkdir()
    request = {"verb": "train", "values": dict(word.split("=") for word in settings.split())}
    record = {"request": request, "status": "done", "made": ["result.json"], "seconds": 1.0}
    (folder / "job.json").write_text(json.dumps(record))
    (folder / "result.json").write_text(json.dumps({"seconds": 1.5} | result))


def test_scores_that_do_not_sum_to_one_are_last(tmp_path: Path) -> None:
    job(tmp_path, 0, "smoother=stupid_backoff", valid_perplexity=90.0, normalized=False)
    job(tmp_path, 1, "smoother=mle", valid_perplexity=None)
    job(tmp_path, 2, "smoother=laplace", valid_perplexity=200.25)
    job(tmp_path, 3, "smoother=kneser_ney", valid_perplexity=100.5, normalized=True)
    table = jobs_table(read_rows(tmp_path))
    assert table == (
        ["job", "smoother", "valid_perplexity", "normalized", "seconds", "status"],
        [
            ["3", "kneser_ney", 100.5, "yes", 1.5, "done"],
            ["2", "laplace", 200.25, "yes", 1.5, "done"],
            ["1", "mle", math.inf, "yes", 1.5, "done"],
            ["0", "stupid_backoff", 90.0, "no", 1.5, "done"],
        ],
    )
    lines = format_table(table).splitlines()
    assert lines[4].split() == ["1", "mle", "inf", "yes", "1.5000", "done"]
    assert lines[5] == "scores that do not sum to one, or whose sum is unknown: not comparable:" and lines[
        6
    ].startswith("0    stupid_backoff")
    assert len(lines) == 7
    write_tables(tmp_path, "lmtool train -m", {"sweep": table, "sweep-seeds": None})
    text = (tmp_path / "sweep.md").read_text()
    assert "| done |\n\nScores that do not sum to one, or whose sum is unknown: not comparable:\n\n| job |" in text
    with (tmp_path / "sweep.csv").open(newline="") as handle:
        assert [row["valid_perplexity"] for row in csv.DictReader(handle)] == ["100.5", "200.25", "inf", "90.0"]


def test_a_table_of_nothing_but_such_scores_begins_with_the_note(tmp_path: Path) -> None:
    job(tmp_path, 0, "smoother.factor=0.4", valid_perplexity=90.0, normalized=False)
    job(tmp_path, 1, "smoother.factor=0.2", valid_perplexity=80.0, normalized=False)
    table = jobs_table(read_rows(tmp_path))
    assert format_table(table).splitlines()[2].startswith("scores that do not sum to one")
    assert [row[0] for row in table[1]] == ["1", "0"]
    write_tables(tmp_path, "lmtool train -m", {"sweep": table})
    assert (tmp_path / "sweep.md").read_text().startswith("    lmtool train -m\n\nScores that do not sum")


def test_cloze_results_are_columns(tmp_path: Path) -> None:
    questions = {"questions": 50, "perplexity": 3.5, "accuracy": 0.5}
    job(tmp_path, 0, "run=a", split="valid", perplexity=120.0, cloze=questions)
    job(tmp_path, 1, "run=b", split="valid", perplexity=110.0, cloze=questions | {"perplexity": None})
    job(tmp_path, 2, "run=c", split="valid", perplexity=130.0, cloze=questions | {"local_accuracy": 0.75})
    assert jobs_table(read_rows(tmp_path)) == (
        [
            *("job", "run", "split", "perplexity"),
            *("cloze_perplexity", "cloze_accuracy", "cloze_local_accuracy", "seconds", "status"),
        ],
        [
            ["1", "b", "valid", 110.0, math.inf, 0.5, None, 1.5, "done"],
            ["0", "a", "valid", 120.0, 3.5, 0.5, None, 1.5, "done"],
            ["2", "c", "valid", 130.0, 3.5, 0.5, 0.75, 1.5, "done"],
        ],
    )


def test_questions_alone_are_ranked_by_their_perplexity(tmp_path: Path) -> None:
    job(tmp_path, 0, "run=a", split="cloze", cloze={"questions": 50, "perplexity": 3.5, "accuracy": 0.5})
    job(tmp_path, 1, "run=b", split="cloze", cloze={"questions": 50, "perplexity": 2.5, "accuracy": 0.75})
    table = jobs_table(read_rows(tmp_path))
    assert table == (
        ["job", "run", "split", "cloze_perplexity", "cloze_accuracy", "seconds", "status"],
        [["1", "b", "cloze", 2.5, 0.75, 1.5, "done"], ["0", "a", "cloze", 3.5, 0.5, 1.5, "done"]],
    )


def test_the_cloze_questions_rank_trainings_that_asked_for_it(tmp_path: Path) -> None:
    for number, (valid, cloze) in enumerate([(100.0, 3.5), (120.0, 2.5)]):
        found = {"questions": 50, "perplexity": cloze, "accuracy": 0.5}
        known = {"valid_perplexity": valid, "train_perplexity": 8.0, "metric": "cloze_perplexity"}
        job(tmp_path, number, f"seed={number}", **known, cloze=found)
    rows = read_rows(tmp_path)
    assert jobs_table(rows) == (
        ["job", "seed", "cloze_perplexity", "valid_perplexity", "cloze_accuracy", "seconds", "status"],
        [["1", "1", 2.5, 120.0, 0.5, 1.5, "done"], ["0", "0", 3.5, 100.0, 0.5, 1.5, "done"]],
    )
    assert perplexities_of(rows[0]) == {"train": 8.0, "valid": 120.0, "cloze": 2.5}
    assert seeds_table(rows) == (["seeds", "mean cloze_perplexity", "standard deviation"], [[2, 3.0, 0.5**0.5]])


def test_splits_are_ranked_one_by_one(tmp_path: Path) -> None:
    for number, (name, split, value) in enumerate(
        [("a", "valid", 110.0), ("a", "test", 90.0), ("b", "valid", 100.0), ("b", "test", 120.0)]
    ):
        job(tmp_path, number, f"run={name} split={split}", split=split, perplexity=value)
    rows = jobs_table(read_rows(tmp_path))[1]
    assert [tuple(row[1:4]) for row in rows] == [
        *(("b", "valid", 100.0), ("a", "valid", 110.0), ("a", "test", 90.0), ("b", "test", 120.0))
    ]


def test_an_infinite_perplexity_makes_an_infinite_mean(tmp_path: Path) -> None:
    for number, (lr, seed, value) in enumerate([(1, 1, 10.0), (1, 2, None), (2, 1, 8.0), (2, 2, 4.0)]):
        job(tmp_path, number, f"lr={lr} seed={seed}", valid_perplexity=value, normalized=lr == 1)
    assert seeds_table(read_rows(tmp_path)) == (
        ["lr", "seeds", "mean valid_perplexity", "standard deviation", "normalized"],
        [["1", 2, math.inf, None, "yes"], ["2", 2, 6.0, pytest.approx(math.sqrt(8)), "no"]],
    )


def test_a_word_that_is_no_text_is_written_as_an_escape(tmp_path: Path) -> None:
    write_tables(tmp_path, "lmtool train -m threads=\udcff", {})
    assert (tmp_path / "sweep.md").read_text(encoding="utf-8") == "    lmtool train -m threads=\\udcff\n"


@pytest.mark.parametrize(
    "damage",
    [
        [1],
        {"status": "other"},
        {"request": 3},
        {"request": {"verb": "train", "values": ["seed=1"]}},
        {"made": None},
        {"value": "x"},
        {"seconds": "1"},
    ],
)
def test_a_damaged_record_is_a_row_of_one_line(damage: Any, tmp_path: Path) -> None:
    job(tmp_path, 0, "seed=1", valid_perplexity=90.0)
    job(tmp_path, 1, "seed=2", valid_perplexity=80.0)
    path = tmp_path / "1" / "job.json"
    path.write_text(json.dumps(damage if isinstance(damage, list) else json.loads(path.read_text()) | damage))
    header, (whole, damaged) = jobs_table(read_rows(tmp_path))
    assert whole[0] == "0" and str(damaged[-1]).startswith(f"{path} is damaged (")
    assert str(damaged[-1]).endswith(f"): remove {path.parent} and start the sweep again")
    assert header == ["job", "valid_perplexity", "seconds", "status"]  # its lost settings are no columns


def test_jobs_that_have_not_begun(tmp_path: Path) -> None:
    job(tmp_path, 1, "smoother=mle", valid_perplexity=3.0)
    (tmp_path / "2").mkdir()  # one that equals another job
    assert [row[:1] + row[-1:] for row in jobs_table(read_rows(tmp_path, 4))[1]] == [
        ["1", "done"],
        ["0", "not begun"],
        ["3", "not begun"],
    ]


# A sweep in which model.tied=null ties some networks and not others says so in its table, with numbers of weights


def test_settings_are_shown_as_typed(tmp_path: Path) -> None:
    request = {"verb": "train", "values": {"smoother.alpha": 0.1, "size": 10000}}
    for number in range(2):
        job(tmp_path, number, "a=1", valid_perplexity=90.0 + number)
        request = {"verb": "train", "values": {"smoother.alpha": 0.1**number, "size": 10000 * (1 + number)}}
        path = tmp_path / str(number) / "job.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"request": request}))
    assert [row[1:4] for row in sweep_table(read_rows(tmp_path)).rows] == [
        ["1.0", "10000", 90.0],
        ["0.1", "20000", 91.0],
    ]


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

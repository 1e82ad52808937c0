"""What tuning finds has names: as printed, in result.json, in Python and on the model card."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import pytest

import lmtool as lm
from lmtool.results import TrainedRun
from tests.conftest import Run, result

# Every n-gram occurs three times or more, so that no discount can be estimated from the counts of counts.
TRAIN, VALID = ["a b c", "a b c", "a b c", "b a c", "b a c", "b a c"], ["a b c", "b c", "c a b"]
FALLBACK = "the counts of counts"
BUCKETS = ["lambda[1]", "lambda[2-3]", "lambda[4+]"]
TUNED = {  # settings, names of the parameters, orders
    "pitman_yor": (["strengths=tuned"], ["strength", "discount"], [1, 2]),
    "modified_kneser_ney": (["discounts=tuned"], ["D1", "D2", "D3+"], [1, 2]),
    "kneser_ney": (["discounts=tuned"], ["discount"], [1, 2]),
    "absolute": (["discounts=tuned"], ["discount"], [1, 2]),
    "jelinek_mercer": (["count_buckets=3"], BUCKETS, [1, 2]),
    "laplace": (["alpha=tuned"], ["alpha"], [2]),
    "count_merging": ([], ["D1", "D2", "D3", "D4"], [1, 2]),
}


@pytest.fixture(autouse=True)
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in (("train", TRAIN), ("valid", VALID)):
        Path(f"{name}.txt").write_text("\n".join(lines) + "\n")


def words(smoother: str, *settings: str) -> list[str]:
    """The words that train a bigram model in the folder `run`."""
    data = ["data=text", "data.train=train.txt", "data.valid=valid.txt"]
    own = [f"smoother={smoother}", *(f"smoother.{setting}" for setting in settings)]
    return ["train", "model=ngram", "model.order=2", *data, *own, "hydra.run.dir=run"]


def saved_notes() -> list[str]:
    """The notes in the model's file."""
    with h5py.File("run/model.h5") as file:
        notes: list[str] = json.loads(file.attrs["notes"])
        return notes


@pytest.mark.parametrize("smoother", TUNED)
def test_what_was_found_is_printed_and_saved_by_order_and_name(smoother: str, lmtool: Run) -> None:
    settings, names, orders = TUNED[smoother]
    printed = lmtool(*words(smoother, *settings))
    found = result("run")["tuned_parameters"]
    assert [list(row) for row in found] == [["order", *names]] * len(orders)
    assert [row["order"] for row in found] == orders
    lmtool("export", "run=run", "to=card")
    card = Path("run/README.md").read_text().replace("\\", "")
    for row in found:
        line = f"order {row['order']}: " + ", ".join(f"{name} = {row[name]:.6g}" for name in names)
        assert f"  {line}\n" in printed and f"- {line}\n" in card
    assert ("source_weights" in result("run")) == (smoother == "count_merging")
    assert result("run")["discounts"] == found
    assert FALLBACK not in printed and not saved_notes()


@pytest.mark.parametrize("smoother", ["pitman_yor", "modified_kneser_ney", "laplace", "count_merging"])
def test_python_has_what_was_found(smoother: str) -> None:
    settings, names, orders = TUNED[smoother]
    own = dict(setting.split("=") for setting in settings)
    data = lm.Corpus.from_texts(TRAIN, valid=VALID)
    run, again = (
        lm.train({"kind": "ngram", "order": 2}, data, smoother={"kind": smoother} | own, out="run", resume=True)
        for _ in range(2)
    )
    assert isinstance(run, TrainedRun) and run.tuned_parameters == result("run")["tuned_parameters"]
    assert run.tuned_parameters is not None and set(run.tuned_parameters[0]) == {"order", *names}
    assert len(run.tuned_parameters) == len(orders) and not any(FALLBACK in note for note in run.notes)
    assert isinstance(again, TrainedRun) and again.tuned_parameters == run.tuned_parameters


@pytest.mark.parametrize(
    ("smoother", "settings"), [("pitman_yor", ["strengths=1"]), ("absolute", []), ("modified_kneser_ney", [])]
)
def test_notes_on_estimates_that_are_used_stay(smoother: str, settings: list[str], lmtool: Run) -> None:
    printed = lmtool(*words(smoother, *settings))
    assert FALLBACK in printed and FALLBACK in saved_notes()[0]
    assert "tuned_parameters" not in result("run")


def test_tuning_does_not_change_the_discount_of_the_tables(lmtool: Run) -> None:
    printed = lmtool(*words("pitman_yor", "tables=expected"))
    note = "fallback D of the tables = 0.75"
    assert note in printed and note in saved_notes()[0]


@pytest.mark.parametrize(
    "damage", ['"many"', '[{"order": "first"}]', '[{"order": 1, "D1": "half"}]', '[{"D1": 1}]', "[[1]]"]
)
def test_damaged_parameters_are_refused(damage: str, lmtool: Run) -> None:
    lmtool(*words("pitman_yor"))
    content = result("run") | {"tuned_parameters": json.loads(damage)}
    content.pop("checksum", None)
    Path("run/result.json").write_text(json.dumps(content))
    said = lmtool("export", "run=run", "to=card", code=2)
    assert "tuned_parameters" in said and said.count("\n") == 1

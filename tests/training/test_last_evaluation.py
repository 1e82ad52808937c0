"""The evaluations of a training: what remains of the budget joins the interval before it if it is short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lmtool.data.corpus import Corpus
from lmtool.runs.run import METRICS
from lmtool.training.reporting import Reporter
from tests.training.test_training import run, training


def steps(toy: Corpus, out: Path, **settings: object) -> list[int]:
    """Train with an epoch of 8 steps; return the steps of the evaluations."""
    run(toy, out, training(**settings))
    return [json.loads(line)["step"] for line in (out / METRICS).read_text().splitlines()]


@pytest.mark.parametrize(
    ("budget", "evaluated"),
    [(3, [3]), (4, [4]), (5, [5]), (8, [4, 8]), (9, [4, 9]), (10, [4, 8, 10]), (11, [4, 8, 11]), (12, [4, 8, 12])],
)
def test_a_remainder_under_half_an_interval_joins_the_one_before(
    budget: int, evaluated: list[int], toy: Corpus, tmp_path: Path
) -> None:
    assert steps(toy, tmp_path, epochs=None, steps=budget, evaluate_every=0.5) == evaluated


def test_epochs_that_end_a_step_after_an_evaluation(toy: Corpus, tmp_path: Path) -> None:
    # 1.1 epochs are 8.8 steps, thus 9: with intervals of 4 the last one would be of a single step.
    assert steps(toy, tmp_path, epochs=1.1, evaluate_every=0.5) == [4, 9]


def test_a_longer_interval_is_not_weighed_against_the_loss_before(
    toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []
    monkeypatch.setattr(Reporter, "due", lambda *_: True)
    monkeypatch.setattr(Reporter, "step", lambda *given: shares.append(given[-1]))
    steps(toy, tmp_path, epochs=None, steps=9, evaluate_every=0.5)
    assert shares == [0.25, 0.5, 0.75, 1, 0.25, 0.5, 0.75, 1, 1]

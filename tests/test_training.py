"""The training loop: it learns, it repeats itself, it stops at the budget and at a loss that is no number."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from lmtool.checkpoint import CHECKPOINT, load_weights
from lmtool.config import Activation, AdamOptim, NplmModel, Schedule, SgdOptim, TrainingConfig
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.evaluation import perplexity, score
from lmtool.neural.model import NeuralModel, build_nplm
from lmtool.training import METRICS, Batches, Trained, budget_done, learning_rate, train

MODEL = NplmModel("nplm", 3, 8, 16, False, True, Activation.gelu, True, 0.1)
GOLDEN = 9.253789300164948  # valid perplexity of the second epoch below
ADAM = AdamOptim("adam", 0.02, 0.9, 0.99, 1e-8, 0.0)


def training(**changes: object) -> TrainingConfig:
    values = dict(epochs=5, minutes=None, batch_size=16, evaluate_every=1.0, clip_norm=1.0)
    values |= dict(schedule=Schedule.cosine, warmup=0.1)
    return TrainingConfig(**(values | changes))  # type: ignore[arg-type]


def run(toy: Corpus, out: Path, settings: TrainingConfig, optim=ADAM) -> tuple[NeuralModel, Trained]:
    out.mkdir(exist_ok=True)
    torch.manual_seed(5)
    model = build_nplm(MODEL, toy.vocabulary)
    return model, train(model, toy.split("train"), toy.split("valid"), settings, optim, out, seed=5, progress=False)


def test_learns_keeps_the_best_and_repeats_itself(toy: Corpus, tmp_path: Path) -> None:
    model, trained = run(toy, tmp_path, training())
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4, 5]
    assert lines[-1]["train_loss"] < lines[0]["train_loss"]
    assert trained.valid_perplexity == min(line["valid_perplexity"] for line in lines) < 12
    assert trained.examples == 5 * 8 * 16  # 137 tokens make 8 batches of 16
    # The model in memory is the best one, as it was at its evaluation and as the checkpoint has it.
    assert perplexity(score(model, toy.split("valid")).log_prob) == pytest.approx(trained.valid_perplexity, rel=1e-9)
    fresh = build_nplm(MODEL, toy.vocabulary)
    load_weights(fresh, tmp_path / CHECKPOINT)
    again, second = run(toy, tmp_path / "again", training())
    assert second.valid_perplexity == trained.valid_perplexity
    for other in (fresh, again):
        for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(ours, theirs)


def test_golden_loss(toy: Corpus, tmp_path: Path) -> None:
    # From torch's seeded generator on a CPU; a refactor must not move it.
    _, trained = run(toy, tmp_path, training(epochs=2))
    assert trained.valid_perplexity == pytest.approx(GOLDEN, rel=1e-4)


@pytest.mark.parametrize("rate", [1e6, 1e30])
def test_a_loss_that_is_no_number_stops_with_the_step(rate: float, toy: Corpus, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the loss is (nan|inf|[\d.e+]+) by step \d+: lower optim.lr"):
        run(toy, tmp_path, training(clip_norm=None, warmup=0.0), SgdOptim("sgd", rate, 0.9))


def test_a_checkpoint_that_does_not_fit(toy: Corpus, tmp_path: Path) -> None:
    run(toy, tmp_path, training(epochs=1))
    path = tmp_path / CHECKPOINT
    small = NplmModel("nplm", 3, 4, 16, False, True, Activation.gelu, True, 0.1)
    with pytest.raises(UserError, match="does not fit"):
        load_weights(build_nplm(small, toy.vocabulary), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="damaged"):
        load_weights(build_nplm(MODEL, toy.vocabulary), path)
    with pytest.raises(UserError, match="missing"):
        load_weights(build_nplm(MODEL, toy.vocabulary), tmp_path / "none")


def test_every_example_once_an_epoch(toy: Corpus) -> None:
    split = toy.split("train")
    batches = Batches(split, 16, 2, seed=1)
    drawn = [batch for batch, _ in zip(batches, range(2 * batches.per_epoch), strict=False)]
    for epoch in (drawn[: batches.per_epoch], drawn[batches.per_epoch :]):
        targets = torch.cat([targets for _, targets in epoch]).bincount(minlength=24)
        assert targets.sum() == 128 and (targets.numpy() <= np.bincount(split.ids, minlength=24)).all()
    assert not torch.equal(drawn[0][1], drawn[batches.per_epoch][1])


def test_budget_and_rates() -> None:
    both = training(epochs=4, minutes=2.0)
    assert budget_done(both, 1, 30) == 0.25
    assert budget_done(both, 1, 60) == 0.5
    settings = training(schedule=Schedule.cosine, warmup=0.2)
    rates = [learning_rate(settings, 1.0, done) for done in (0.1, 0.2, 0.6, 1.0)]
    np.testing.assert_allclose(rates, [0.5, 1.0, 0.5, 0.0], atol=1e-12)
    linear = training(schedule=Schedule.linear, warmup=0.0)
    assert learning_rate(linear, 2.0, 0.75) == 0.5
    assert learning_rate(training(schedule=Schedule.constant), 2.0, 0.75) == 2.0


def test_minutes_end_the_training(toy: Corpus, tmp_path: Path) -> None:
    _, trained = run(toy, tmp_path, training(epochs=None, minutes=0.01))
    assert 0.6 <= trained.training_seconds < 5 and math.isfinite(trained.valid_perplexity)

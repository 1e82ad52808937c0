"""Averaged SGD: its steps and means by hand, when averaging begins, and what is evaluated and kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lmtool.data.corpus import Corpus
from lmtool.evaluation.metrics import perplexity
from lmtool.neural.model import NeuralModel
from lmtool.neural.optimizers.base import ParameterGroups
from lmtool.runs.run import METRICS
from lmtool.training import loop
from lmtool.training.optim import AsgdOptim
from lmtool.training.optimizers import Average
from lmtool.training.step import Step
from tests.training.test_training import CONSTANT, GOLDEN, run, training


def test_three_steps_by_hand() -> None:
    """Take three steps with lr 0.5 and decay 0.1.

    From 2 to 2 - 0.5 (1 + 0.2) = 1.4, then 1.4 - 0.5 (-2 + 0.14) = 2.33, then 2.33 - 0.5 (4 + 0.233) = 0.2135.
    """
    model = nn.Module()
    model.dense = nn.Parameter(torch.tensor([[2.0]], dtype=torch.float64))
    model.rows = nn.Parameter(torch.tensor([[2.0], [7.0]], dtype=torch.float64))
    optim, average = AsgdOptim("asgd", 0.5, 0.1, 5), Average(model)
    made = [
        optim.dense(ParameterGroups.of([model.dense], model)),
        optim.sparse(ParameterGroups.of([model.rows], model)),
    ]
    average.add()  # nothing has begun
    average.begin()
    for gradient in (1.0, -2.0, 4.0):
        model.dense.grad = torch.tensor([[gradient]], dtype=torch.float64)
        model.rows.grad = torch.sparse_coo_tensor(
            [[0]], [[gradient]], (2, 1), dtype=torch.float64, check_invariants=True
        )
        for optimizer in made:
            optimizer.step()
        average.add()
    assert model.dense.item() == pytest.approx(0.2135, rel=1e-14)
    mean = (2 + 1.4 + 2.33 + 0.2135) / 4
    average.exchange(True)
    assert model.dense.item() == pytest.approx(mean, rel=1e-14)
    assert model.rows.flatten().tolist() == pytest.approx([mean, 7.0], rel=1e-14)
    average.exchange(True)  # the mean is in use
    assert model.dense.item() == pytest.approx(mean, rel=1e-14)
    average.exchange(False)
    assert model.dense.item() == pytest.approx(0.2135, rel=1e-14)


def test_when_averaging_begins() -> None:
    """Above the lowest loss of more than two evaluations before, as in algorithm 1 with n = 2."""
    begins = AsgdOptim("asgd", 1.0, 0.0, 2).averages_after
    losses = {(5, 6, 7): False, (5, 6, 7, 5): False, (5, 6, 7, 6): True, (5, 4, 1, 4.5): False, (5, 4, 1, 4, 4.5): True}
    assert {seen: begins(list(seen)) for seen in losses} == losses


@pytest.mark.parametrize("name", ["nplm", "hsoftmax", "nce, own noise"])
def test_the_mean_of_all_later_weights_is_evaluated_and_kept(
    name: str, toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[list[torch.Tensor]] = []
    evaluated: list[list[torch.Tensor]] = []

    def copied(model: NeuralModel) -> list[torch.Tensor]:
        return [parameter.detach().clone() for parameter in model.parameters()]

    mean_loss, update = loop.mean_loss, Step._update
    torch.manual_seed(5)
    model = GOLDEN[name][0](toy)

    def noted_loss(*arguments: Any) -> float:
        evaluated.append(copied(model))
        return mean_loss(*arguments)

    def noted_update(step: Step) -> None:
        update(step)
        weights.append(copied(model))

    monkeypatch.setattr(loop, "mean_loss", noted_loss)
    monkeypatch.setattr(Step, "_update", noted_update)
    optim = AsgdOptim("asgd", 4.0, 1e-4, 1)
    _, trained = run(toy, tmp_path, training(epochs=8), optim, model, CONSTANT)
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    losses = [line["valid_loss"] for line in lines]
    begun = next(number for number in range(1, 8) if optim.averages_after(losses[:number]))
    for number, line in enumerate(lines, start=1):
        first = min(line["step"], lines[begun - 1]["step"] if number > begun else line["step"])
        for k, parameter in enumerate(evaluated[number - 1]):
            mean = torch.stack([each[k].double() for each in weights[first - 1 : line["step"]]]).mean(0)
            torch.testing.assert_close(parameter.double(), mean, rtol=1e-5, atol=1e-6)
    assert losses.index(min(losses)) >= begun, "an average is best"
    assert trained.valid_perplexity == pytest.approx(perplexity(model.score_text(toy.split("valid"))), rel=1e-6)
    assert all(map(torch.equal, model.parameters(), evaluated[losses.index(min(losses))]))


def test_typed_with_a_recurrent_network(lmtool: Callable[..., str]) -> None:
    words = ["data=toy", "model.embedding_dim=8", "model.hidden_dim=8", "training.epochs=8", "training.bptt=4"]
    words += ["optim=asgd", "optim.lr=30", "optim.patience=1", "schedule=constant", "training.max_grad_norm=0.25"]
    lmtool("train", "model=lstm", *words, "model.activation_regularization=2", "hydra.run.dir=run")
    lmtool("eval", "run=run", "hydra.run.dir=eval")
    assert json.loads(Path("eval", "result.json").read_text())["perplexity"] < 20

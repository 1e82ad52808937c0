"""The training loop: it learns, it repeats itself, it stops at the budget and when the loss diverges."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lmtool.config.groups import OptimConfig, ScheduleConfig
from lmtool.config.training import Forms, Precision, TrainingConfig
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.evaluation.metrics import perplexity
from lmtool.neural.build import build_neural
from lmtool.neural.encoders.options import CbowModel, LblModel
from lmtool.neural.encoders.settings import Activation
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.options import (
    AdaptiveOutput,
    ClassesOutput,
    HierarchicalOutput,
    NceOutput,
    NodeForm,
    SampledOutput,
)
from lmtool.runs.run import METRICS_FILE
from lmtool.runs.weights import CHECKPOINT, load_weights, save_weights
from lmtool.training.loop import train
from lmtool.training.optim import AdamwOptim, SgdOptim
from lmtool.training.plan import Plan, Trained, budget_done, learning_rate
from lmtool.training.schedules import (
    ConstantSchedule,
    CosineSchedule,
    InverseSchedule,
    LinearSchedule,
    PlateauSchedule,
    StepsSchedule,
)
from lmtool.trees import huffman_tree, random_tree
from tests.conftest import SOFTMAX, neural, nplm, of_torch_2_13

MODEL = nplm(embedding_dim=8, hidden_dim=16, tied=True, activation=Activation.gelu, layer_norm=True, dropout=0.1)
ADAM = AdamwOptim("adamw", 0.02, 0.0, 0.9, 0.99, 1e-8)


COSINE = CosineSchedule("cosine", 0.1)


def training(**changes: object) -> TrainingConfig:
    values = dict(
        epochs=5, steps=None, minutes=None, patience=None, batch_size=16, evaluate_every=1.0, max_grad_norm=1.0
    )
    values |= dict(accuracy_tokens=2048, embedding_max_norm=None, precision=Precision.fp32, compile=False, memory=None)
    return TrainingConfig(**(values | dict(save_every=1.0) | changes))  # type: ignore[arg-type]


def run(
    toy: Corpus,
    out: Path,
    settings: TrainingConfig,
    optim: OptimConfig = ADAM,
    model: NeuralModel | None = None,
    schedule: ScheduleConfig = COSINE,
    **options: object,
) -> tuple[NeuralModel, Trained]:
    out.mkdir(exist_ok=True)
    torch.manual_seed(5)
    model = model or build_neural(MODEL, SOFTMAX, toy.vocabulary)
    plan = Plan(settings, optim, schedule, 5, {"of": "a test", "settings": {}, "store": ""})
    return model, train(model, toy.split("train"), toy.split("valid"), plan, out, **options)  # type: ignore[arg-type]


def test_learns_keeps_the_best_and_repeats_itself(toy: Corpus, tmp_path: Path) -> None:
    model, trained = run(toy, tmp_path, training())
    lines = [json.loads(line) for line in (tmp_path / METRICS_FILE).read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4, 5]
    assert lines[-1]["train_loss"] < lines[0]["train_loss"]
    assert trained.valid_perplexity == min(line["valid_perplexity"] for line in lines) < 12
    assert trained.examples == 5 * 8 * 16  # 137 tokens make 8 batches of 16
    # The model in memory is the best one, as it was at its evaluation and as the checkpoint has it.
    assert perplexity(model.score_text(toy.split("valid"))) == pytest.approx(trained.valid_perplexity, rel=1e-9)
    fresh = build_neural(MODEL, SOFTMAX, toy.vocabulary)
    load_weights(fresh, tmp_path / CHECKPOINT)
    again, second = run(toy, tmp_path / "again", training())
    assert second.valid_perplexity == trained.valid_perplexity
    for other in (fresh, again):
        for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(ours, theirs)


DOT, MORIN_BENGIO = (HierarchicalOutput("hierarchical", form, 6, 5) for form in (NodeForm.dot, NodeForm.morin_bengio))
CONSTANT = ConstantSchedule("constant", 0.0)
GOLDEN = {  # valid perplexity after the second epoch
    "nplm": (lambda toy: build_neural(MODEL, SOFTMAX, toy.vocabulary), 10.30440908),
    "skip_layer": (lambda toy: neural(toy, direct_connections=True, tied=False), 8.58396687),
    "two layers": (lambda toy: neural(toy, layers=2, input_dropout=0.1), 11.33767099),
    "lbl": (lambda toy: build_neural(LblModel("lbl", 3, 8, True, 0.1, False), SOFTMAX, toy.vocabulary), 12.17872375),
    "cbow": (lambda toy: build_neural(CbowModel("cbow", 3, 8, True, 0.1), SOFTMAX, toy.vocabulary), 14.32977246),
    "hsoftmax": (lambda toy: neural(toy, DOT, huffman_tree(toy.vocabulary.counts[:-1])), 12.04980520),
    "morin_bengio": (
        lambda toy: neural(toy, MORIN_BENGIO, huffman_tree(toy.vocabulary.counts[:-1]), layers=0),
        13.38158683,
    ),
    "nce": (lambda toy: neural(toy, NceOutput("nce", 9, True, 1.0, False)), 10.20376638),
    "nce, own noise": (lambda toy: neural(toy, NceOutput("nce", 9, False, 0.5, True), tied=True), 12.27524416),
    "sampled": (lambda toy: neural(toy, SampledOutput("sampled", 9, 1.0)), 10.15995890),
    "adaptive": (lambda toy: neural(toy, AdaptiveOutput("adaptive", [4, 12], 2.0)), 11.75712112),
    "classes": (lambda toy: neural(toy, ClassesOutput("classes", None)), 10.43814785),
}


@of_torch_2_13
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_loss(name: str, toy: Corpus, tmp_path: Path) -> None:
    # From torch's seeded generator on a CPU, as the plain formulas draw from it; a refactor must not move it.
    make, golden = GOLDEN[name]
    torch.manual_seed(5)
    _, trained = run(toy, tmp_path, training(epochs=2, forms=Forms.plain), model=make(toy))
    assert trained.valid_perplexity == pytest.approx(golden, rel=1e-4)


def test_momentum_where_a_batch_leaves_out_parameters(toy: Corpus, tmp_path: Path) -> None:
    # Of the adaptive softmax a tail may have its first gradient after others.
    torch.manual_seed(5)
    _, trained = run(
        toy, tmp_path, training(batch_size=2, epochs=1), SgdOptim("sgd", 0.1, 0.0, 0.5), GOLDEN["adaptive"][0](toy)
    )
    assert math.isfinite(trained.valid_perplexity)


def test_a_checkpoint_that_does_not_fit(toy: Corpus, tmp_path: Path) -> None:
    run(toy, tmp_path, training(epochs=1))
    path = tmp_path / CHECKPOINT
    small = nplm(embedding_dim=4, hidden_dim=16, tied=True)
    with pytest.raises(UserError, match="does not fit"):
        load_weights(build_neural(small, SOFTMAX, toy.vocabulary), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="damaged"):
        load_weights(build_neural(MODEL, SOFTMAX, toy.vocabulary), path)
    with pytest.raises(UserError, match="missing"):
        load_weights(build_neural(MODEL, SOFTMAX, toy.vocabulary), tmp_path / "none")


def test_weights_over_another_tree_do_not_fit(toy: Corpus, tmp_path: Path) -> None:
    path, words = tmp_path / CHECKPOINT, len(toy.vocabulary) - 1
    trees = huffman_tree(toy.vocabulary.counts[:-1]), random_tree(words, seed=1)
    models: list[Any] = [neural(toy, DOT, tree) for tree in (trees[0], *trees)]
    h = torch.randn(3, models[0].encoder.output_dim)

    def loaded() -> bool:
        load_weights(models[1], path)
        return torch.equal(models[1].output.log_dist(h), models[0].output.log_dist(h))

    save_weights(models[0], path, {})
    assert loaded()
    with pytest.raises(UserError, match="does not fit the model"):
        load_weights(models[2], path)
    save_weights(models[0], path, {}, 8)
    with pytest.raises(UserError, match="does not fit the model"):
        load_weights(models[2], path)


def test_budget_and_rates() -> None:
    both = training(epochs=4, minutes=2.0, steps=100)
    assert budget_done(both, epochs=1, steps=10, seconds=30) == 0.25
    assert budget_done(both, epochs=1, steps=10, seconds=60) == 0.5
    assert budget_done(both, epochs=1, steps=75, seconds=60) == 0.75

    def rates(schedule: ScheduleConfig, *dones: float, steps: int = 0, drops: int = 0) -> list[float]:
        return [learning_rate(schedule, 2.0, done=done, steps=steps, drops=drops) for done in dones]

    cosine = rates(CosineSchedule("cosine", 0.2), 0.1, 0.2, 0.6, 1.0)
    np.testing.assert_allclose(cosine, [1.0, 2.0, 1.0, 0.0], atol=1e-12)
    assert rates(LinearSchedule("linear", 0.0), 0.75) == [0.5]
    assert rates(CONSTANT, 0.75) == [2.0]
    steps = StepsSchedule("steps", 0.0, [10, 20], 0.1)  # the names article's: 0.1, then 0.01 after 10,000
    found = [learning_rate(steps, 1.0, done=0.5, steps=step) for step in (9, 10, 19, 20)]
    np.testing.assert_allclose(found, [1, 0.1, 0.1, 0.01])
    shares = StepsSchedule("steps", 0.25, [0.5, 0.75], 0.1)  # of the whole budget, not of the part after the warm-up
    np.testing.assert_allclose(rates(shares, 0.25, 0.49, 0.5, 0.74, 0.75, 1.0), [2, 2, 0.2, 0.2, 0.02, 0.02])
    inverse = InverseSchedule("inverse", 0.0, 0.01)  # Bengio et al. 2003: 1 / (1 + r t)
    assert rates(inverse, 0.5, steps=100) == [1.0] and rates(inverse, 0.5, steps=300) == [0.5]
    assert rates(PlateauSchedule("plateau", 0.0, 0.5, 1), 0.5, drops=3) == [0.25]


def test_what_schedules_say_of_themselves() -> None:
    schedules = (CONSTANT, COSINE, LinearSchedule("linear", 0.1), PlateauSchedule("plateau", 0.0, 0.5, 2))
    plateau = schedules[-1]
    assert [plateau.lowers_after(waited) for waited in range(1, 6)] == [False, True, False, True, False]
    assert not any(schedule.lowers_after(waited) for schedule in schedules[:-1] for waited in range(1, 6))
    steps = StepsSchedule("steps", 0.0, [10, 20], 0.1)
    shares = StepsSchedule("steps", 0.0, [0.5], 0.1)
    steps.require_steps(21, "")
    shares.require_steps(1, "")
    for schedule in schedules:
        schedule.require_steps(1, "")
    said = r"^schedule\.milestones=\[10, 20\]: the budget ends earlier, training\.steps=20: remove the .*=\[10\]$"
    with pytest.raises(UserError, match=said):
        steps.require_steps(20, "training.steps=20")
    with pytest.raises(UserError, match=r"milestones=\[0.5,0.75\]$"):
        steps.require_steps(8, "")

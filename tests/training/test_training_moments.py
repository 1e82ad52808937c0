"""When a training does what: the best weights, the limit of the rows, clipping, dropout, the modes, the clock."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lmtool.config.groups import OptimConfig
from lmtool.config.training import Gradients
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.evaluation.metrics import perplexity
from lmtool.neural.build import build_neural
from lmtool.neural.model import NeuralModel
from lmtool.neural.optimizers.base import ParameterGroups
from lmtool.neural.outputs.options import NceOutput
from lmtool.runs.run import METRICS_FILE
from lmtool.runs.weights import CHECKPOINT, load_weights
from lmtool.system import arrays
from lmtool.training import loop
from lmtool.training.optim import AdagradOptim, AdamOptim, AdamwOptim, AsgdOptim, SgdOptim
from lmtool.training.optimizers import Average, make_optimizers, renormalize_rows
from lmtool.training.plan import Plan
from lmtool.training.processes import Processes
from lmtool.training.step import Step
from tests.conftest import neural, nplm
from tests.training.test_training import ADAM, CONSTANT, GOLDEN, run, training

NCE = NceOutput("nce", 9, True, 1.0, False)


def weights_of(model: NeuralModel) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_an_evaluation_in_the_middle_is_the_best(toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses, at_evaluation = iter([2.0, 1.0, 3.0, 2.5]), []

    def valid_loss(model: NeuralModel, *given: object) -> float:
        at_evaluation.append(weights_of(model))
        return next(losses)

    monkeypatch.setattr(loop, "mean_loss", valid_loss)
    model, trained = run(toy, tmp_path, training(epochs=4), model=neural(toy))  # type: ignore[arg-type]
    assert trained.valid_perplexity == pytest.approx(np.e) and trained.steps == 32
    saved: Any = neural(toy)
    load_weights(saved, tmp_path / CHECKPOINT)
    for found in (weights_of(model), weights_of(saved)):
        assert all(torch.equal(ours, best) for ours, best in zip(found, at_evaluation[1], strict=True))
    assert not torch.equal(at_evaluation[1][0], at_evaluation[3][0])


@pytest.mark.parametrize("gradients", [Gradients.sparse, Gradients.dense])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("epochs", "every"), [(0.4, 1.0), (2.5, 0.5), (3.0, 2.0)])  # 8 batches are an epoch
def test_rows_are_limited_in_all_that_is_kept(
    epochs: float, every: float, tied: bool, gradients: Gradients, toy: Corpus, tmp_path: Path
) -> None:
    kept: list[float] = []

    def norm_of(model: NeuralModel) -> float:
        return float(model.encoder.embedding.weight.detach().double().norm(dim=1).max())

    def largest(line: object) -> None:
        load_weights(saved, tmp_path / CHECKPOINT)
        kept.extend(norm_of(of) for of in (model, saved))

    model, saved = (build_neural(nplm(tied=tied), NCE, toy.vocabulary) for _ in range(2))
    assert norm_of(model) > 1  # it would stay above the limit
    settings = training(epochs=epochs, embedding_max_norm=0.25, evaluate_every=every, embedding_gradients=gradients)
    run(toy, tmp_path, settings, model=model, on_evaluation=largest)
    assert len(kept) == 2 * math.ceil(epochs / every) and 0.249 < max(kept) <= 0.25
    assert (model.output.vectors is model.encoder.embedding.weight) == tied


def test_limited_rows_are_never_above_the_limit() -> None:
    weight = torch.randn(2000, 300, generator=torch.Generator().manual_seed(1))
    renormalize_rows(weight, 0.7)
    once = weight.clone()
    assert 0.69999 < weight.double().norm(dim=1).max() <= 0.7
    renormalize_rows(weight, 0.7)
    assert torch.equal(weight, once)


def begun(toy: Corpus, out: Path, processes: Processes, settings: Any, model: Any, optim: OptimConfig = ADAM) -> Any:
    torch.manual_seed(5)
    plan = Plan(settings, optim, CONSTANT, 5, {"settings": {}, "store": ""})
    return loop._Training(model, toy.split("train"), toy.split("valid"), plan, out, processes, bar=False)


def test_gradients_are_clipped_after_they_are_shared(toy: Corpus, tmp_path: Path) -> None:
    begins: Any = begun(toy, tmp_path, Processes(), training(max_grad_norm=0.5), neural(toy, NCE))
    model = begins.model

    class Shared:
        """As if the other process had rows with much larger gradients."""

        def __call__(self, contexts: Tensor, targets: Tensor) -> Tensor:
            loss: Tensor = model(contexts, targets)
            return loss

        def share_rows(self) -> None:
            for parameter in model.sparse_parameters():
                parameter.grad = 1000 * parameter.grad

    begins.step._shared = Shared()
    assert begins.advance(SimpleNamespace(signal=0))
    grads = [parameter.grad.to_dense() for parameter in begins.step._parameters if parameter.grad is not None]
    assert torch.linalg.vector_norm(torch.cat([grad.ravel() for grad in grads])).item() == pytest.approx(0.5, rel=1e-4)
    rows = sum(p.grad.to_dense().square().sum().item() for p in model.sparse_parameters())
    assert rows == pytest.approx(0.25, rel=1e-2)  # almost all of it theirs


@pytest.mark.parametrize("optim", [ADAM, SgdOptim("sgd", 0.1, 0.1, 0.0)], ids=["adamw", "sgd, in whole steps"])
def test_a_loss_that_is_no_number_changes_no_weight(optim: OptimConfig, toy: Corpus, tmp_path: Path) -> None:
    model: Any = neural(toy)
    begins = begun(toy, tmp_path, Processes(), training(), model, optim)
    assert (begins.step.name == "network_step") == (optim.kind == "sgd")
    with torch.no_grad():
        model.output.bias[3] = torch.inf
    before = weights_of(model)
    with pytest.raises(UserError, match=r"the loss is (nan|inf) at step 1: lower optim\.lr"):
        begins.advance(SimpleNamespace(signal=0))
    assert all(torch.equal(ours, others) for ours, others in zip(weights_of(model), before, strict=True))
    assert begins.progress.step == 0


def test_each_process_draws_its_own_dropout_and_noise(
    toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SharedModel", lambda model, processes: model)
    drawn = []
    for rank in (0, 1, 2):
        model: Any = neural(toy, NCE, dropout=0.5)
        begins = begun(toy, tmp_path, Processes(rank, 4), training(), model)
        if rank == 0:
            torch.manual_seed(5)
        drawn.append((model.output.table.draw(64).tolist(), torch.rand(64).tolist()))
    for ours, theirs in ((0, 1), (0, 2), (1, 2)):
        assert drawn[ours][0] != drawn[theirs][0] and drawn[ours][1] != drawn[theirs][1]
    assert begins.batches.size == 16


@pytest.mark.parametrize("output", [None, NCE])
def test_an_evaluation_is_without_dropout_and_leaves_the_mode(output: Any, toy: Corpus) -> None:
    torch.manual_seed(5)
    model: Any = neural(toy, *([] if output is None else [output]), dropout=0.9, input_dropout=0.5)
    split = toy.split("valid")
    contexts, targets = split.windows(np.arange(split.tokens), model.context_size)
    asked: dict[str, Callable[[], np.ndarray]] = {
        "log_prob": lambda: model.log_prob(contexts, targets),
        "log_dist": lambda: model.log_dist(contexts),
        "hidden": lambda: model.hidden(contexts),
        "argmax": lambda: model.argmax(contexts),
    }
    for name, ask in asked.items():
        model.eval()
        wanted = ask()
        assert not model.training and not model.encoder.training
        model.train()
        np.testing.assert_array_equal(ask(), wanted, name)
        assert model.training and all(module.training for module in model.modules())
    ids = torch.as_tensor(contexts)
    assert not torch.equal(model.encoder(ids), model.encoder(ids))  # in training there is some


@pytest.mark.parametrize("output", [None, NCE])
def test_whole_distributions_exist_for_few_contexts_at_once(
    output: Any, toy: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(5)
    model: Any = neural(toy, *([] if output is None else [output]))
    split, words = toy.split("valid"), len(toy.vocabulary)
    contexts, _ = split.windows(np.arange(split.tokens), model.context_size)
    asked = {name: getattr(model, name) for name in ("log_dist", "probabilities", "argmax")}
    asked["top"] = lambda contexts: model.top(contexts, 3)[1]
    wanted = {name: ask(contexts) for name, ask in asked.items()}
    monkeypatch.setattr(arrays, "NUMBERS_AT_ONCE", 3 * words)
    sizes: list[int] = []
    encode = model.encoder.forward
    monkeypatch.setattr(model.encoder, "forward", lambda ids: sizes.append(len(ids)) or encode(ids))
    for name, ask in asked.items():
        np.testing.assert_allclose(ask(contexts), wanted[name], rtol=1e-5, err_msg=name)
        assert set(sizes) == {3, len(contexts) % 3 or 3}, name
        sizes.clear()
    assert model.log_dist(contexts[:0]).shape == (0, words)


def test_training_goes_on_with_dropout_after_an_evaluation(
    toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[bool] = []
    before = NeuralModel.forward

    def forward(self: NeuralModel, *given: Any) -> Tensor:
        modes.append(all(module.training for module in self.modules()))
        return before(self, *given)

    monkeypatch.setattr(NeuralModel, "forward", forward)
    model: Any = neural(toy, dropout=0.1)
    model.eval()
    run(toy, tmp_path, training(epochs=1, evaluate_every=0.25), model=model)
    assert modes == [True] * 8


def test_minutes_end_the_training(toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def clock() -> float:  # each look at it takes a second
        now[0] += 1
        return now[0]

    monkeypatch.setattr(loop.time, "perf_counter", clock)
    _, trained = run(
        toy, tmp_path, training(epochs=None, minutes=0.5, save_every=1000.0, evaluate_every=0.5), model=neural(toy)
    )  # type: ignore[arg-type]
    assert trained.training_seconds >= 30
    lines = [json.loads(line) for line in (tmp_path / METRICS_FILE).read_text().splitlines()]
    assert lines[-1]["seconds"] == trained.training_seconds and lines[-2]["seconds"] < 30
    # Evaluations are not counted.
    assert now[0] > 30 + len(lines) and trained.training_seconds / trained.steps == lines[0]["seconds"] / 4


class Still(nn.Module):
    """What stands for a model: a matrix and a bias, with dense or with sparse gradients of 0."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.matrix, self.bias = nn.Parameter(torch.full((3, 2), 2.0)), nn.Parameter(torch.full((3,), 2.0))
        self.sparse = sparse
        for parameter in self.parameters():
            grad = torch.zeros_like(parameter)
            parameter.grad = grad.to_sparse(1) if sparse else grad
            if sparse:  # the second row is not in the batch
                rows, values = torch.tensor([[0, 2]]), torch.zeros(2, *parameter.shape[1:])
                parameter.grad = torch.sparse_coo_tensor(rows, values, parameter.shape, check_invariants=False)

    def sparse_parameters(self) -> list[nn.Parameter]:
        return list(self.parameters()) if self.sparse else []


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("optim", "factor"),
    [
        (SgdOptim("sgd", 0.1, 0.5, 0.0), 0.95),  # w - 0.1 (0.5 w)
        (AdamwOptim("adamw", 0.1, 0.5, 0.9, 0.99, 1e-8), 0.95),
        (AdamOptim("adam", 0.1, 0.5, 0.9, 0.99, 1e-8), 0.95),  # the gradient is the decay alone: a step of the rate
        (AdagradOptim("adagrad", 0.1, 0.5, 1e-10), 0.95),  # the same: w - 0.1 sign(w), w being 2
    ],
    ids=["sgd", "adamw", "adam", "adagrad"],
)
def test_weight_decay_spares_biases(optim: OptimConfig, factor: float, sparse: bool) -> None:
    model: Any = Still(sparse)
    for optimizer in make_optimizers(model, optim):
        optimizer.step()
    used = torch.tensor([1.0, 0.0 if sparse else 1.0, 1.0])
    wanted = 2 * (1 - used * (1 - factor))
    torch.testing.assert_close(model.matrix.detach(), wanted[:, None].expand(3, 2))
    assert model.bias.tolist() == [2.0] * 3


# Averaged SGD: its steps and means by hand, when averaging begins, and what is evaluated and kept


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
    lines = [json.loads(line) for line in (tmp_path / METRICS_FILE).read_text().splitlines()]
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


# The evaluations of a training: what remains of the budget joins the interval before it if it is short


def steps(toy: Corpus, out: Path, **settings: object) -> list[int]:
    """Train with an epoch of 8 steps; return the steps of the evaluations."""
    run(toy, out, training(**settings))
    return [json.loads(line)["step"] for line in (out / METRICS_FILE).read_text().splitlines()]


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

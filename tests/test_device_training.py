"""Training in the form for a GPU, here on a CPU, against training with dense gradients in the form for a CPU; and steps
that are captured and replayed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lmtool.neural.devices import device_path
from lmtool.training.captured_step import WARM_UP, CapturedStep
from lmtool.training.optimisers import set_rate

Run = Callable[..., str]
SMALL = ["model.embedding_dim=8", "model.hidden_dim=12", "model.context_size=3", "data=toy", "training.batch_size=16"]
SMALL += ["training.minutes=null", "training.precision=fp32", "training.steps=20", "training.epochs=null", "seed=3"]
SMALL += ["optim.lr=0.01", "training.evaluate_every=0.3", "training.accuracy_on=32", "model.dropout=0"]
NPLM = ["model=nplm", "model.input_dropout=0", "model.tied=false"]
HIERARCHICAL = [*NPLM, "output=hierarchical", "tree=huffman"]
MODELS = {  # each layer and encoder by itself is held to more in tests/neural/test_device_path.py
    "tied softmax": ["model=nplm", "model.input_dropout=0", "model.tied=true"],
    "adaptive": [*NPLM, "output=adaptive", "output.cutoffs=[3]"],
    "history": [*NPLM, "output=classes", "model.history=8"],
}
OPTIMISERS = ["adamw", "adam", "sgd", "adagrad"]


def history(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def compare(first: Path, second: Path, tolerance: float) -> None:
    one, other = history(first), history(second)
    assert len(one) == len(other) > 1
    for mine, yours in zip(one, other, strict=True):
        for key in ("train_loss", "valid_loss"):
            assert math.isclose(mine[key], yours[key], rel_tol=tolerance), (key, mine[key], yours[key])


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, lmtool: Run) -> None:
    for folder, form in (("cpu", nullcontext()), ("device", device_path())):
        with form:
            lmtool("train", *MODELS[name], *SMALL, "training.gradients=dense", f"hydra.run.dir={folder}")
    compare(Path("cpu"), Path("device"), 1e-4)


@pytest.mark.parametrize("optim", OPTIMISERS)
def test_optimisers(optim: str, lmtool: Run) -> None:
    words = [*HIERARCHICAL, *SMALL, f"optim={optim}", "optim.lr=0.01", "training.clip_norm=0.5"]
    words += ["optim.momentum=0.9"] if optim == "sgd" else []
    for folder, form in (("cpu", nullcontext()), ("device", device_path())):
        with form:
            lmtool("train", *words, "training.gradients=dense", f"hydra.run.dir={folder}")
    compare(Path("cpu"), Path("device"), 1e-4)


def test_where_all_rows_change_alike_sparse_gradients_train_the_same(lmtool: Run) -> None:
    words = [*HIERARCHICAL, *SMALL, "optim=adagrad", "optim.lr=0.01", "optim.weight_decay=0"]
    lmtool("train", *words, "hydra.run.dir=sparse")
    with device_path():
        lmtool("train", *words, "hydra.run.dir=device")  # gradients=auto
        with_rows = lmtool("train", *words, "training.gradients=sparse", "hydra.run.dir=rows")
    assert "perplexity" in with_rows
    compare(Path("sparse"), Path("device"), 1e-4)
    compare(Path("sparse"), Path("rows"), 1e-4)


@pytest.mark.parametrize("output", ["nce", "sampled"])
def test_noise_and_resuming(output: str, lmtool: Run) -> None:
    words = [*NPLM, f"output={output}", *SMALL, "model.dropout=0.2"]
    words += ["output.noise=5"] if output == "nce" else ["output.samples=5"]
    with device_path():
        lmtool("train", *words, "hydra.run.dir=whole")
        lmtool("train", *words, "training.steps=20", "hydra.run.dir=parts", "training.save_every=0")
        whole, parts = history(Path("whole")), history(Path("parts"))
        assert [line["train_loss"] for line in whole] == [line["train_loss"] for line in parts]
        Path("parts/state.safetensors").unlink()  # the one of the end: the one before it is a step older
        lmtool("train", "resume=parts")
    assert [line["train_loss"] for line in history(Path("parts"))] == [line["train_loss"] for line in whole]


def test_a_checkpoint_keeps_its_kind_of_gradients(lmtool: Run) -> None:
    words = [*HIERARCHICAL, *SMALL]
    lmtool("train", *words, "hydra.run.dir=run")
    with device_path():
        message = lmtool("train", "resume=run", code=2)
        assert "training.gradients" in message and "sparse" in message
        lmtool("train", "resume=run", "training.gradients=sparse", "training.steps=22")
    assert history(Path("run"))[-1]["step"] == 22


def test_evaluation_and_prediction(lmtool: Run) -> None:
    lmtool("train", *HIERARCHICAL, *SMALL, "hydra.run.dir=run")
    found = []
    for form in (nullcontext(), device_path()):
        with form:
            lmtool("eval", "run=run", "hydra.run.dir=eval")
        found.append(json.loads(Path("eval/result.json").read_text())["log_prob"])
    assert math.isclose(*found, rel_tol=1e-6)


class FakeGraph:
    """What a CUDA graph does, on a CPU: recording makes no step, each replay makes one in the same memory."""

    def __init__(self) -> None:
        self.replays = 0

    def __call__(self, step: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        loss = torch.zeros(())

        def replay() -> None:
            self.replays += 1
            loss.copy_(step())

        return replay, loss


def trained(make: Callable[..., Any], sizes: list[int]) -> tuple[list[float], Tensor, Any]:
    """Losses, weights and the stepper of a regression with batches of these sizes and a rate that falls."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 1)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimiser.zero_grad()
        loss = (layer(x.float())[:, 0] - y).pow(2).mean()
        loss.backward()
        optimiser.step()
        return loss.detach()

    stepper = make(step, [optimiser])
    losses = []
    for number, size in enumerate(sizes):
        set_rate([optimiser], 0.1 / (number + 1))
        losses.append(stepper(torch.randint(9, (size, 3)), torch.randint(9, (size,))))
    return [loss.item() for loss in losses], layer.weight.detach(), stepper


def test_replayed_steps_are_the_steps() -> None:
    sizes, graph = [4] * 8 + [3] + [4] * 2, FakeGraph()
    plain = trained(lambda step, optimisers: step, sizes)
    captured = trained(lambda step, optimisers: CapturedStep(step, optimisers, capture=graph), sizes)
    assert captured[0] == plain[0]
    assert torch.equal(captured[1], plain[1])
    assert graph.replays == len(sizes) - WARM_UP - 1  # the smaller batch is not in the graph


def test_a_step_that_cannot_be_captured_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def fails(step: Callable[[], Tensor]) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    plain = trained(lambda step, optimisers: step, [4] * 6)
    captured = trained(lambda step, optimisers: CapturedStep(step, optimisers, capture=fails), [4] * 6)
    assert captured[0] == plain[0]
    assert [record.message.count("not permitted") for record in caplog.records] == [1]

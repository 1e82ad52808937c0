"""Training in the form for a GPU, here on a CPU, against training with dense gradients in the form for a CPU; and steps
that are captured and replayed.
"""

from __future__ import annotations

import json
import math
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lmtool.commands import lr_range
from lmtool.config.training import Gradients
from lmtool.neural.devices import device_path
from lmtool.training import captured_step, steps
from lmtool.training.captured_step import WARM_UP, CapturedStep
from lmtool.training.optimisers import give_memory, set_rate, use_gradients
from tests.recorded_graph import RecordedGraph

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
    sizes, graph = [4] * 8 + [3] + [4] * 2, RecordedGraph()
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


def test_a_step_that_waits_is_not_tried(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[torch.device] = []

    @contextmanager
    def waits(device: torch.device) -> Iterator[None]:
        watched.append(device)
        raise RuntimeError("called a synchronizing CUDA operation")
        yield

    monkeypatch.setattr(captured_step, "nothing_waits", waits)
    graph = RecordedGraph()
    plain = trained(lambda step, optimisers: step, [4] * 6)
    captured = trained(lambda step, optimisers: CapturedStep(step, optimisers, capture=graph), [4] * 6)
    assert captured[0] == plain[0]
    assert len(watched) == 1 and not graph.captures
    assert [record.message.count("synchronizing") for record in caplog.records] == [1]


CAPTURED = {
    "as it comes": ["model=nplm", "model.tied=true", "model.input_dropout=0.1", "model.history=8"],
    "hierarchical": [*HIERARCHICAL, "optim=adam", "training.max_norm=1"],
    "morin_bengio": [*NPLM, "output=hierarchical", "tree=balanced", "output.nodes=morin_bengio"],
    "nce": [*NPLM, "output=nce", "output.noise=5", "optim=sgd"],
    "sampled": ["model=lbl", "output=sampled", "output.samples=5", "training.precision=bf16"],
    "classes": ["model=cbow", "output=classes"],
    "adaptive": [*NPLM, "output=adaptive", "output.cutoffs=[3]"],
}


@pytest.mark.parametrize("name", CAPTURED)
def test_a_captured_training_is_the_training(name: str, lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluation, the best weights and checkpoints between replays leave their memory where it is; the rate, noise and
    dropout are new in each; and no step reads a number.
    """
    given = [word for word in SMALL if word not in ("model.dropout=0", "training.precision=fp32")]
    given = [word for word in given if "model=nplm" in CAPTURED[name] or "hidden_dim" not in word]
    words = [*given, "model.dropout=0.2", "training.clip_norm=0.5", "training.save_every=0", *CAPTURED[name]]
    captured: list[weakref.ref[CapturedStep]] = []
    graph = RecordedGraph()

    class Recorded(CapturedStep):
        def __init__(self, step: Any, optimisers: Any) -> None:
            super().__init__(step, optimisers, capture=graph)
            captured.append(weakref.ref(self))

    with device_path():
        lmtool("train", *words, "hydra.run.dir=plain")
        monkeypatch.setattr(steps, "CapturedStep", Recorded)
        monkeypatch.setattr(steps, "can_capture", lambda model, optimisers: not model.row_parameters())
        lmtool("train", *words, "hydra.run.dir=replayed")
        assert (graph.captures, graph.replays) == (1, 20 - WARM_UP)
        compare(Path("plain"), Path("replayed"), 1e-6)  # its rate is rounded to float32
        lmtool("train", "resume=replayed", "training.steps=26")
    assert (graph.captures, graph.replays) == (2, 20 - WARM_UP + 6 - WARM_UP)
    assert history(Path("replayed"))[-1]["step"] == 26
    assert all(step() is None for step in captured), "memory is given back at the end of a training"


def test_a_capture_that_fails_leaves_the_generator_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    states = ["in a capture"]
    generator = SimpleNamespace(clone_state=lambda: "as before", graphsafe_set_state=states.append)
    stream = SimpleNamespace(device=SimpleNamespace(index=1))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=len))
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "default_generators", (None, generator))
    loss = torch.ones(())
    assert captured_step.capture_on_gpu(lambda: loss) == (len, loss)
    assert states == ["in a capture"]

    def fails() -> Tensor:
        raise RuntimeError("operation failed due to a previous error during capture")

    with pytest.raises(RuntimeError, match="previous error"):
        captured_step.capture_on_gpu(fails)
    assert states[-1] == "as before"


def test_a_wait_raises_only_in_the_step_that_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[Any] = []

    def set_mode(mode: Any) -> None:
        warnings.warn("a prototype feature", stacklevel=1)
        modes.append(mode)

    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    with pytest.raises(ZeroDivisionError), captured_step.nothing_waits(torch.device("cuda")):
        raise ZeroDivisionError
    assert modes == ["error", 1]


def test_the_form_of_gradients(monkeypatch: pytest.MonkeyPatch, lmtool: Run) -> None:
    """The range test has that of the training; processes have that of the first."""
    forms: list[int] = []
    make = lr_range.make_optimisers

    def counting(model: Any, optim: Any) -> Any:
        forms.append(len(model.row_parameters()))
        return make(model, optim)

    monkeypatch.setattr(lr_range, "make_optimisers", counting)
    words = [*HIERARCHICAL, *SMALL, "lr_range=true", "lr_range_steps=12"]
    for form in (nullcontext(), device_path()):
        with form:
            lmtool("train", *words)
    assert forms == [3, 0]
    model: Any = nn.Module()
    model.device = torch.device("cpu")
    model.row_parameters = lambda: [nn.Parameter(torch.ones(1))]
    model.use_dense_gradients = lambda: forms.append(7)
    second = SimpleNamespace(from_first=lambda value: not value)
    with device_path():
        assert not use_gradients(model, Gradients.auto, second)  # type: ignore[arg-type]
    assert forms[-1] == 0


def test_a_checkpoint_counts_steps_where_the_optimiser_does() -> None:
    # On a GPU torch's Adagrad counts them on the CPU, as it reads them.
    weight = nn.Parameter(torch.ones(2, device="meta"))
    optimiser = torch.optim.Adagrad([weight], foreach=True)
    give_memory([optimiser], {"0.0.step": torch.tensor(3.0), "0.0.sum": torch.ones(2)})
    state = optimiser.state[weight]
    assert state["step"] == 3 and state["sum"].is_meta
    adam = torch.optim.AdamW([weight])
    give_memory([adam], {"0.0.exp_avg": torch.ones(2)})
    assert adam.state[weight]["exp_avg"].is_meta

"""On a GPU, against a CPU: layers, trainings, evaluation, resuming. Skipped without one; ./scripts/gpu runs them.

LMTOOL_GPU_DRY_RUN=1 runs them without one, on the CPU in the form for a GPU: so that an hour on one is not lost to a
mistake in the tests.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lmtool.neural import SampledSoftmax
from lmtool.neural.devices import WORKSPACE, device_path
from lmtool.neural.outputs.noise import Noise
from tests.neural.test_device_path import LAYERS, B, D, O, words
from tests.test_device_training import NPLM, SMALL, Run, compare, history

DRY = bool(os.environ.get("LMTOOL_GPU_DRY_RUN"))
DEVICE = "cpu" if DRY else "cuda"
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not (DRY or torch.cuda.is_available()), reason="needs a GPU; ./scripts/gpu runs it on one"),
    pytest.mark.filterwarnings("default"),  # shown, not raised: what torch says on a GPU has not been seen yet
]
if not DRY:
    os.environ.setdefault(WORKSPACE, ":4096:8")  # as choose_device does, before the first product of these tests
OFTEN = "training.evaluate_every=0.3"
OF_NPLM = ("model.hidden_dim=12", "model.input_dropout=0")
FIFTY = [*SMALL, "training.steps=50", "training.gradients=dense"]
HIERARCHICAL = [*NPLM, "output=hierarchical"]
TREES = ["huffman", "balanced", "random", "brown", "frequency", "classes", "union"]
MODELS = {
    "softmax": [*NPLM, "output=softmax"],
    "tied": ["model=nplm", "model.input_dropout=0", "model.tied=true"],
    "Morin & Bengio's nodes": [*HIERARCHICAL, "tree=balanced", "output.nodes=morin_bengio"],
    "classes": [*NPLM, "output=classes"],
    "adaptive": [*NPLM, "output=adaptive", "output.cutoffs=[3]"],
    "lbl": ["model=lbl", "output=softmax", "model.tied=false"],
    "cbow": ["model=cbow", "output=hierarchical", "tree=huffman"],
    "history": [*NPLM, "output=softmax", "model.history=8"],
    "as in the paper": [*NPLM, "output=softmax", "model.layer_norm=false", "model.gated=false", "model.direct=true"],
}
MODELS |= {f"tree={tree}": [*HIERARCHICAL, f"tree={tree}"] for tree in TREES}
OPTIMISERS = {
    "adam": ["optim=adam", "optim.weight_decay=0.01"],
    "sgd": ["optim=sgd", "optim.lr=0.1"],
    "momentum": ["optim=sgd", "optim.momentum=0.9"],
    "adagrad": ["optim=adagrad"],
    "no graph": ["training.cuda_graph=false"],
    "max_norm": ["training.max_norm=1"],
    "deterministic": ["training.deterministic=true"],
}


def on_gpu() -> AbstractContextManager[None]:
    return device_path() if DRY else nullcontext()


@pytest.fixture
def float64() -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = LAYERS[name]()
    draws = {shape: torch.randint(O, shape) for shape in ((7,), (B, 7))}
    monkeypatch.setattr(Noise, "draw", lambda self, *shape: draws[shape].to(self.below.device))
    h, y = torch.randn(B, D), torch.randint(words(layer), (B,))

    def results(device: str) -> list[Tensor]:
        layer.to(device).zero_grad()
        inputs = h.clone().to(device).requires_grad_()
        loss = layer(inputs, y.to(device))
        loss.backward()
        gradients = [inputs.grad, *(parameter.grad for parameter in layer.parameters())]
        dist, log_prob = layer.log_dist(inputs.detach()), layer.log_prob(inputs.detach(), y.to(device))
        assert layer.sample(inputs.detach()).shape == (B,)
        return [tensor.detach().cpu() for tensor in (loss, dist, log_prob, *gradients) if tensor is not None]

    want = results("cpu")
    with on_gpu():
        for one, other in zip(results(DEVICE), want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def both(lmtool: Run, line: list[str]) -> None:
    lmtool("train", *line, "device=cpu", "hydra.run.dir=cpu")
    with on_gpu():
        lmtool("train", *line, f"device={DEVICE}", "hydra.run.dir=gpu")
    compare(Path("cpu"), Path("gpu"), 1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_training(name: str, lmtool: Run) -> None:
    line = [*MODELS[name], *FIFTY]
    both(lmtool, [word for word in line if "model=nplm" in line or word not in OF_NPLM])


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser(name: str, lmtool: Run) -> None:
    both(lmtool, [*HIERARCHICAL, "tree=huffman", *FIFTY, *OPTIMISERS[name]])


def test_sparse_gradients(lmtool: Run) -> None:
    both(lmtool, [*HIERARCHICAL, "tree=huffman", *FIFTY, "training.gradients=sparse"])


def test_a_split_that_is_streamed(lmtool: Run) -> None:
    line = [word for word in [*HIERARCHICAL, "tree=huffman", *FIFTY] if word not in ("data=toy", OFTEN)]
    line += ["training.evaluate_every=0.005"]
    both(lmtool, [*line, "data=synthetic", "data.tokens=50000", "data.types=100", "training.memory=64KiB"])


@pytest.mark.parametrize("output", ["nce", "sampled"])
def test_noise(output: str, lmtool: Run) -> None:
    # Other numbers are drawn on a GPU than on a CPU: what is learned is alike, not the same.
    few = "output.noise=5" if output == "nce" else "output.samples=5"
    line = [*NPLM, f"output={output}", few, *FIFTY]
    lmtool("train", *line, "device=cpu", "hydra.run.dir=cpu")
    with on_gpu():
        lmtool("train", *line, f"device={DEVICE}", "hydra.run.dir=gpu")
    one, other = (history(Path(run))[-1]["valid_loss"] for run in ("cpu", "gpu"))
    assert abs(one - other) < 0.3


def test_resuming_repeats_to_the_bit(lmtool: Run) -> None:
    line = [*NPLM, "output=nce", "output.noise=5", *FIFTY, "model.dropout=0.2", f"device={DEVICE}"]
    line += ["training.deterministic=true", "training.save_every=0"]
    with on_gpu():
        lmtool("train", *line, "hydra.run.dir=whole")
        lmtool("train", *line, "hydra.run.dir=parts")
        Path("parts/state.safetensors").unlink()  # the one of the end: the one before it is a step older
        lmtool("train", "resume=parts")
    found, want = history(Path("parts")), history(Path("whole"))
    assert [line["train_loss"] for line in found] == [line["train_loss"] for line in want]


def test_what_is_done_with_a_model(lmtool: Run) -> None:
    for name, line in (("a", MODELS["tied"]), ("b", MODELS["tree=huffman"])):
        lmtool("train", *line, *FIFTY, "device=cpu", f"hydra.run.dir={name}")

    def results(device: str) -> list[Any]:
        found: list[Any] = []
        for run in "ab":
            lmtool("eval", f"run={run}", f"device={device}", "hydra.run.dir=eval")
            found.append(json.loads(Path("eval/result.json").read_text())["log_prob"])
        lmtool("ensemble", "runs=[a,b]", f"device={device}", "hydra.run.dir=mix")
        found.append(json.loads(Path("mix/result.json").read_text())["perplexity"])
        said = lmtool("predict", "a", "run=b", f"device={device}", "top=2", "oov=unk")
        return [*found, said.split("s,")[-1]]

    *numbers, said = results("cpu")
    with on_gpu():
        *on_device, said_there = results(DEVICE)
    assert said == said_there
    assert all(math.isclose(*pair, rel_tol=1e-6) for pair in zip(numbers, on_device, strict=True))


def test_bf16_is_near(lmtool: Run) -> None:
    line = [*MODELS["softmax"], *FIFTY, f"device={DEVICE}"]
    with on_gpu():
        for precision in ("fp32", "bf16"):
            lmtool("train", *line, f"training.precision={precision}", f"hydra.run.dir={precision}")
    compare(Path("fp32"), Path("bf16"), 0.05)


def test_draws_on_the_device() -> None:
    noise = SampledSoftmax(D, torch.arange(O, 0, -1), samples=5).table.to(DEVICE)
    with on_gpu():
        drawn = noise.draw(100_000)
    assert drawn.device.type == DEVICE
    share = drawn.bincount(minlength=O).cpu() / len(drawn)
    torch.testing.assert_close(share, noise.log_q.exp().to(share.dtype), atol=0.01, rtol=0)


@pytest.mark.skipif(DRY, reason="a CUDA graph needs CUDA")
def test_a_step_is_captured(lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmtool.training import captured_step

    captured: list[int] = []
    make: Callable[..., Any] = captured_step.capture_on_gpu
    monkeypatch.setattr(captured_step, "capture_on_gpu", lambda step: captured.append(1) or make(step))
    said = lmtool("train", *MODELS["tree=huffman"], *FIFTY, "device=cuda", "training.clip_norm=1")
    assert captured == [1]
    assert "cannot be captured" not in said


@pytest.mark.skipif(DRY, reason="a CUDA graph needs CUDA")
@pytest.mark.parametrize("reads", [False, True])
def test_after_steps_that_cannot_be_captured_numbers_are_drawn(reads: bool) -> None:
    """reads: a step that the watch sees before it is captured; else a capture that fails."""
    from lmtool.training.captured_step import CapturedStep, capture_on_gpu

    weight = torch.nn.Parameter(torch.ones(3, device="cuda"))
    optimiser = torch.optim.AdamW([weight], fused=True)

    def step(contexts: Tensor, targets: Tensor) -> Tensor:
        optimiser.zero_grad()
        loss = (weight * torch.rand_like(weight)).sum()
        loss.backward()
        if reads or torch.cuda.is_current_stream_capturing():
            loss.item()
        optimiser.step()
        return loss.detach()

    stepper = CapturedStep(step, [optimiser], capture=capture_on_gpu)
    stream, ids = torch.cuda.current_stream(), torch.zeros(2, dtype=torch.int64, device="cuda")
    losses = [stepper(ids, ids).item() for _ in range(6)]
    assert not stepper.captured and len(set(losses)) == 6 and torch.cuda.current_stream() == stream
    assert optimiser.state[weight]["step"].item() == 6

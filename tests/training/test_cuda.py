"""On a GPU, against a CPU: layers, trainings, evaluation, resuming. Skipped without one; ./scripts/gpu runs them.

LMTOOL_GPU_DRY_RUN=1 runs them without one, on the CPU by the plain formulas, as on a GPU: so that an hour on one is not
lost to a mistake in the tests.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lmtool.config.options import kinds, settings_class
from lmtool.data.corpus import Corpus
from lmtool.neural.devices import WORKSPACE
from lmtool.neural.encoders.settings import Cell
from lmtool.neural.forms import only_plain
from lmtool.neural.outputs.nce import Noise
from tests.neural.test_recurrent import network
from tests.options import LAYERS, output_layer
from tests.shape_walks import COUNTS, B, D, O
from tests.training.test_training_forms import NPLM, SMALL, Run, compare, history

DRY = bool(os.environ.get("LMTOOL_GPU_DRY_RUN"))
DEVICE = "cpu" if DRY else "cuda"
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not (DRY or torch.cuda.is_available()), reason="needs a GPU; ./scripts/gpu runs it on one"),
    pytest.mark.filterwarnings("default"),  # shown, not raised: what torch says on a GPU has not been seen yet
]
if not DRY:
    os.environ.setdefault(WORKSPACE, ":4096:8")  # as choose_device does, before the first product of these tests
    torch.backends.cudnn.allow_tf32 = False  # likewise
OFTEN = "training.evaluate_every=0.3"
OF_NPLM = ("model.hidden_dim=12", "model.input_dropout=0")
FIFTY = [*SMALL, "training.steps=50", "training.embedding_gradients=dense"]
HIERARCHICAL = [*NPLM, "output=hierarchical"]
LIKELIHOODS = [kind for kind in kinds("output") if settings_class("output", kind).loss_is_log_prob]
LINES = {  # of a model each; those of drawn words have their own test
    **{kind: [*NPLM, f"output={kind}"] for kind in LIKELIHOODS if not settings_class("output", kind).needs_tree},
    "tied": ["model=nplm", "model.input_dropout=0", "model.tied=true"],
    "Morin & Bengio's nodes": [*HIERARCHICAL, "tree=balanced", "output.nodes=morin_bengio"],
    "lbl": ["model=lbl", "output=softmax", "model.tied=false"],
    "cbow": ["model=cbow", "output=hierarchical", "tree=huffman"],
    "history": [*NPLM, "output=softmax", "model.fofe_window=8"],
    "as in the paper": [
        *NPLM,
        "output=softmax",
        "model.layer_norm=false",
        "model.gated=false",
        "model.direct_connections=true",
    ],
}
LINES |= {f"tree={kind}": [*HIERARCHICAL, f"tree={kind}"] for kind in kinds("tree") if kind not in ("file", "wordnet")}
ROWS = ["model.input_dropout=0", "training.batch_size=4", "training.bptt=5"]
ROWS += ["output=softmax", "model.embedding_dropout=0", "model.weight_dropout=0"]  # nothing is drawn
LINES |= {cell.value: [f"model={cell.value}", *ROWS] for cell in Cell}
LINES["recurrent, within sentences"] = ["model=lstm", *ROWS, "model.across_sentences=false", "model.layers=2"]
LINES["recurrent, regularized"] = [
    *("model=lstm", *ROWS),
    *("model.activation_regularization=2", "model.temporal_regularization=1"),
]
OPTIMIZERS = {
    "adam": ["optim=adam", "optim.weight_decay=0.01"],
    "sgd": ["optim=sgd", "optim.lr=0.1"],
    "momentum": ["optim=sgd", "optim.momentum=0.9"],
    "adagrad": ["optim=adagrad"],
    "asgd": ["optim=asgd", "optim.lr=1", "optim.patience=1", "schedule=constant"],
    "max_norm": ["training.embedding_max_norm=1"],
    "deterministic": ["training.deterministic=true"],
}


def on_gpu() -> AbstractContextManager[None]:
    return only_plain(DRY)


@pytest.fixture
def float64() -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", [*LAYERS, "softmax, tied", "nce, tied", "nce, log Z", "sampled, tied"])
def test_a_layer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = output_layer(name, D, COUNTS)
    draws = {shape: torch.randint(O, shape) for shape in ((7,), (B, 7))}
    monkeypatch.setattr(Noise, "draw", lambda self, *shape, device=None: draws[shape].to(device))
    h, y = torch.randn(B, D), torch.randint(layer.word_count or 1, (B,))

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


def fifty(name: str) -> list[str]:
    """Return a command line of fifty steps of a model, without the settings of SMALL that it lacks."""
    line = LINES[name]
    if "training.bptt=5" in line:
        return [*line, *(word for word in FIFTY if word not in ("model.context_size=3", "training.batch_size=16"))]
    return [word for word in [*line, *FIFTY] if "model=nplm" in line or word not in OF_NPLM]


def both(lmtool: Run, line: list[str]) -> None:
    lmtool("train", *line, "device=cpu", "hydra.run.dir=cpu")
    with on_gpu():
        lmtool("train", *line, f"device={DEVICE}", "hydra.run.dir=gpu")
    compare(Path("cpu"), Path("gpu"), 1e-4)


def forms_of(run: str) -> list[str]:
    """Return the forms with which a run was trained."""
    found: list[str] = json.loads(Path(run, "result.json").read_text())["forms"]
    return found


@pytest.mark.parametrize("name", LINES)
def test_a_training(name: str, lmtool: Run) -> None:
    both(lmtool, fifty(name))
    assert DRY or ("captured_step" in forms_of("gpu")) is ("training.bptt=5" not in LINES[name])


@pytest.mark.parametrize("cell", Cell)
def test_a_recurrent_step(cell: Cell, toy: Corpus) -> None:
    """A batch in float32 and the one that continues it: losses, gradients and the state that is carried; then scores
    of a text, and states word by word. `<s>` is also within rows, which are then cut and packed.
    """
    model, bos = network(toy, cell=cell), toy.vocabulary.bos
    words = torch.randint(bos, (2, 4, 6))
    targets, words[:, :, 0], words[1, 2, 3] = torch.randint(bos, (2, 4, 6)), bos, bos
    valid, special_tokens = toy.split("valid"), toy.vocabulary.special_tokens

    def results(device: str) -> list[Tensor]:
        model.to(device).train().carry({})
        model.zero_grad()
        losses = [model(*batch) for batch in zip(words.to(device), targets.to(device), strict=True)]
        torch.stack(losses).sum().backward()
        found = [*losses, *model.carried_state().values(), *(parameter.grad for parameter in model.parameters())]
        model.eval().zero_grad()
        h, _ = model.recurrent.read(words[0].to(device), model.recurrent.zero_state(4))
        h.sum().backward()  # in evaluation mode, as eval dynamic=true
        found += [parameter.grad for parameter in model.parameters()]
        log_prob, states = model.advance(np.stack([model.begin(special_tokens)] * 2), np.arange(2), special_tokens)
        log_prob = np.concatenate([model.score_text(valid), log_prob, model.advance(states, [2, 0], special_tokens)[0]])
        return [*(tensor.detach().cpu() for tensor in found if tensor is not None), torch.from_numpy(log_prob)]

    want = results("cpu")
    with on_gpu():
        for one, other in zip(results(DEVICE), want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer(name: str, lmtool: Run) -> None:
    both(lmtool, [*HIERARCHICAL, "tree=huffman", *FIFTY, *OPTIMIZERS[name]])


def test_sparse_gradients(lmtool: Run) -> None:
    both(lmtool, [*HIERARCHICAL, "tree=huffman", *FIFTY, "training.embedding_gradients=sparse"])


def test_a_split_that_is_streamed(lmtool: Run) -> None:
    line = [word for word in [*HIERARCHICAL, "tree=huffman", *FIFTY] if word not in ("data=toy", OFTEN)]
    line += ["training.evaluate_every=0.005"]
    both(lmtool, [*line, "data=synthetic", "data.tokens=50000", "data.types=100", "training.memory=64KiB"])


@pytest.mark.parametrize("output", ["nce", "sampled"])
def test_noise(output: str, lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Noise.draw
    few = "output.num_noise=5" if output == "nce" else "output.num_samples=5"
    line = [*NPLM, f"output={output}", few, *FIFTY]
    with monkeypatch.context() as patch:  # the same on both: drawn on the CPU
        patch.setattr(Noise, "draw", lambda self, *shape, device=None: draw(self, *shape).to(device))
        patch.setattr("lmtool.training.step.can_capture", lambda model, optimizers: False)
        both(lmtool, line)
    with on_gpu():
        lmtool("train", *line, f"device={DEVICE}", "hydra.run.dir=own")
    compare(Path("cpu"), Path("own"), 0.2)
    assert DRY or "captured_step" in forms_of("own")


@pytest.mark.skipif(DRY, reason="needs a GPU; ./scripts/gpu runs it on one")
def test_each_replay_of_a_graph_draws_other_words() -> None:
    noise, stream = Noise(torch.ones(1000).log()), torch.cuda.Stream()
    noise.draw(50, device=torch.device(DEVICE))
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        drawn = noise.draw(50, device=torch.device(DEVICE))
    found = []
    for _ in range(2):
        graph.replay()
        found.append(drawn.tolist())
    assert found[0] != found[1]


def test_draws_have_their_probabilities() -> None:
    noise = Noise(torch.tensor([0.5, 0.3, 0.2, 1e-9]).log())
    share = noise.draw(1000, 1000, device=torch.device(DEVICE)).flatten().bincount(minlength=4).cpu() / 1e6
    torch.testing.assert_close(share.double(), noise.log_q.exp(), atol=2.5e-3, rtol=0)


@pytest.mark.parametrize("name", ["softmax", "lstm"])
def test_resuming_repeats_to_the_bit(name: str, lmtool: Run) -> None:
    line = [*fifty(name), "output=nce", "output.num_noise=5", "model.dropout=0.2", f"device={DEVICE}"]
    line = [word for word in line if word not in ("output=softmax", "model.dropout=0")]
    line += ["training.deterministic=true", "training.save_every=0"]
    with on_gpu():
        lmtool("train", *line, "hydra.run.dir=whole")
        lmtool("train", *line, "hydra.run.dir=parts")
        Path("parts/state.safetensors").unlink()  # the one of the end: the one before it is a step older
        lmtool("train", "resume=parts")
    found, want = history(Path("parts")), history(Path("whole"))
    assert [line["train_loss"] for line in found] == [line["train_loss"] for line in want]


def test_what_is_done_with_a_model(lmtool: Run) -> None:
    for run, name in zip("abc", ("tied", "tree=huffman", "lstm"), strict=True):
        lmtool("train", *fifty(name), "device=cpu", f"hydra.run.dir={run}")

    def results(device: str) -> list[Any]:
        found: list[Any] = []
        for run in "abc":
            lmtool("eval", f"run={run}", f"device={device}", "hydra.run.dir=eval")
            found.append(json.loads(Path("eval/result.json").read_text())["log_prob"])
        lmtool("ensemble", "runs=[a,b,c]", f"device={device}", "hydra.run.dir=mix")
        found.append(json.loads(Path("mix/result.json").read_text())["perplexity"])
        said = [lmtool("predict", "a", f"run={run}", f"device={device}", "top=2", "oov=unk") for run in "bc"]
        return [*found, [each.split("s,")[-1] for each in said]]

    *numbers, said = results("cpu")
    with on_gpu():
        *on_device, said_there = results(DEVICE)
    assert said == said_there
    assert all(math.isclose(*pair, rel_tol=1e-6) for pair in zip(numbers, on_device, strict=True))


def test_bf16_is_near(lmtool: Run) -> None:
    line = [*LINES["softmax"], *FIFTY, f"device={DEVICE}"]
    with on_gpu():
        for precision in ("fp32", "bf16"):
            lmtool("train", *line, f"training.precision={precision}", f"hydra.run.dir={precision}")
    compare(Path("fp32"), Path("bf16"), 0.05)

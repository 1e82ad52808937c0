"""Training as it is on a GPU, by the plain formulas with dense gradients, here on a CPU: against training by fast
forms, and with sparse gradients.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from lmtool.commands import _train_neural
from lmtool.config.options import kinds
from lmtool.config.training import Gradients
from lmtool.neural.forms import only_plain
from lmtool.training.optimizers import load_optimizer_state_dict, use_gradients
from tests.conftest import Run

SMALL = ["model.embedding_dim=8", "model.hidden_dim=12", "model.context_size=3", "data=toy", "training.batch_size=16"]
SMALL += ["training.minutes=null", "training.precision=fp32", "training.steps=20", "training.epochs=null", "seed=3"]
SMALL += ["optim.lr=0.01", "training.evaluate_every=0.3", "training.accuracy_tokens=32", "model.dropout=0"]
NPLM = ["model=nplm", "model.input_dropout=0", "model.tied=false"]
HIERARCHICAL = [*NPLM, "output=hierarchical", "tree=huffman"]
DENSE, PLAIN = "training.embedding_gradients=dense", "training.forms=plain"
LINES = {  # each layer and encoder by itself is held to more in tests/neural/test_forms.py
    "tied softmax": ["model=nplm", "model.input_dropout=0", "model.tied=true"],
    "adaptive": [*NPLM, "output=adaptive", "output.cutoffs=[3]"],
    "history": [*NPLM, "output=classes", "model.fofe_window=8"],
}


def history(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def compare(first: Path, second: Path, tolerance: float) -> None:
    one, other = history(first), history(second)
    assert len(one) == len(other) > 1
    for mine, yours in zip(one, other, strict=True):
        for key in ("train_loss", "valid_loss"):
            assert math.isclose(mine[key], yours[key], rel_tol=tolerance), (key, mine[key], yours[key])


def by_both(lmtool: Run, words: list[str]) -> None:
    """Train with dense gradients, by fast forms and by the plain formulas, and compare the losses."""
    lmtool("train", *words, DENSE, "hydra.run.dir=fast")
    lmtool("train", *words, DENSE, PLAIN, "hydra.run.dir=plain")
    compare(Path("fast"), Path("plain"), 1e-4)
    fast, plain = (json.loads(Path(run, "result.json").read_text())["forms"] for run in ("fast", "plain"))
    assert fast and not plain


@pytest.mark.parametrize("name", LINES)
def test_models(name: str, lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmtool.neural.forms.history.MIN_NUMBERS", 0)
    by_both(lmtool, [*LINES[name], *SMALL])


@pytest.mark.parametrize("optim", kinds("optim"))
def test_optimizers(optim: str, lmtool: Run) -> None:
    words = [*HIERARCHICAL, *SMALL, f"optim={optim}", "optim.lr=0.01", "training.max_grad_norm=0.5"]
    by_both(lmtool, words + (["optim.momentum=0.9"] if optim == "sgd" else []))


def test_where_all_rows_change_alike_sparse_gradients_train_the_same(lmtool: Run) -> None:
    words = [*HIERARCHICAL, *SMALL, "optim=adagrad", "optim.lr=0.01", "optim.weight_decay=0"]
    lmtool("train", *words, "hydra.run.dir=sparse")  # gradients=auto
    lmtool("train", *words, PLAIN, DENSE, "hydra.run.dir=dense")
    with_rows = lmtool("train", *words, PLAIN, "training.embedding_gradients=sparse", "hydra.run.dir=rows")
    assert "perplexity" in with_rows
    compare(Path("sparse"), Path("dense"), 1e-4)
    compare(Path("sparse"), Path("rows"), 1e-4)


@pytest.mark.parametrize("output", ["nce", "sampled"])
def test_noise_and_resuming(output: str, lmtool: Run) -> None:
    words = [*NPLM, f"output={output}", *SMALL, "model.dropout=0.2"]
    words += ["output.num_noise=5"] if output == "nce" else ["output.num_samples=5"]
    words += [PLAIN, DENSE]
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
    message = lmtool("train", "resume=run", DENSE, code=2)
    assert "training.embedding_gradients" in message and "sparse" in message
    lmtool("train", "resume=run", PLAIN, "training.embedding_gradients=sparse", "training.steps=22")
    assert history(Path("run"))[-1]["step"] == 22


def test_evaluation_and_prediction(lmtool: Run) -> None:
    lmtool("train", *HIERARCHICAL, *SMALL, "hydra.run.dir=run")
    found = []
    for plain in (False, True):
        with only_plain(plain):
            lmtool("eval", "run=run", "hydra.run.dir=eval")
            said = lmtool("predict", "a", "run=run", "top=2", "oov=unk")
        found.append((json.loads(Path("eval/result.json").read_text())["log_prob"], said))
    assert math.isclose(found[0][0], found[1][0], rel_tol=1e-6)
    assert found[0][1].split("s,")[-1] == found[1][1].split("s,")[-1]


def test_the_kind_of_gradients(monkeypatch: pytest.MonkeyPatch, lmtool: Run) -> None:
    """Use the same kind of gradients in the range test as in training."""
    parameters: list[int] = []
    make = _train_neural.make_optimizers

    def counting(model: Any, optim: Any) -> Any:
        parameters.append(len(model.sparse_parameters()))
        return make(model, optim)

    monkeypatch.setattr(_train_neural, "make_optimizers", counting)
    words = [*HIERARCHICAL, *SMALL, "lr_range=true", "lr_range_steps=12"]
    for gradients in ([], [DENSE]):
        lmtool("train", *words, *gradients)
    assert parameters == [3, 0]


def test_auto_is_dense_where_memory_is_not_the_cpus() -> None:
    """Processes have what the first of them has."""
    given: list[str] = []

    def model_on(device: str) -> Any:
        rows = [nn.Parameter(torch.ones(2, device=device))]
        return SimpleNamespace(
            device=torch.device(device),
            sparse_parameters=lambda: rows,
            use_dense_gradients=lambda: given.append(device),
        )

    other: Any = SimpleNamespace(from_first=lambda value: not value)
    assert not use_gradients(model_on("cpu"), Gradients.auto)
    assert not use_gradients(model_on("cpu"), Gradients.auto, other)
    assert not use_gradients(model_on("meta"), Gradients.sparse)
    assert not use_gradients(model_on("meta"), Gradients.auto, other)
    assert given == []
    assert use_gradients(model_on("meta"), Gradients.auto)
    assert use_gradients(model_on("cpu"), Gradients.dense)
    assert given == ["meta", "cpu"]


def test_a_checkpoint_counts_steps_where_the_optimizer_does() -> None:
    # On a GPU torch's Adagrad counts them on the CPU, as it reads them.
    weight = nn.Parameter(torch.ones(2, device="meta"))
    optimizer = torch.optim.Adagrad([weight], foreach=True)
    load_optimizer_state_dict([optimizer], {"0.0.step": torch.tensor(3.0), "0.0.sum": torch.ones(2)})
    state = optimizer.state[weight]
    assert state["step"] == 3 and state["sum"].is_meta
    adam = torch.optim.AdamW([weight])
    load_optimizer_state_dict([adam], {"0.0.step": torch.tensor(5.0), "0.0.exp_avg": torch.ones(2)})
    assert adam.state[weight]["step"] == 5 and adam.state[weight]["exp_avg"].is_meta

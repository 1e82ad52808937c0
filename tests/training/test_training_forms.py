"""training.forms: layers are computed by fast forms where these serve, or by the plain formulas alone; the numbers stay
the same.
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
from lmtool.config.training import Forms, Gradients, Precision
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.neural import forms
from lmtool.neural.encoders.settings import Activation
from lmtool.neural.optimizers import rows
from lmtool.neural.outputs.options import SoftmaxOutput
from lmtool.runs.run import METRICS_FILE
from lmtool.training.optim import SgdOptim
from lmtool.training.optimizers import load_optimizer_state_dict, use_gradients
from tests.conftest import NEURAL, Run, neural
from tests.options import ENCODERS, LAYERS, encoder
from tests.test_contract import network
from tests.training.test_training import ADAM, run, training

SGD = SgdOptim("sgd", 0.1, 1e-4, 0.0)
LARGE = ["model.layer_norm=true", "model.dropout=0.1", "output=hierarchical", "tree=huffman"]
# The forms that compute some of a model without dropout.
FORMS = {
    "hierarchical": {"pair_scores", "leaves_in_one_pass"},
    "hierarchical, morin_bengio": {"morin_bengio_pairs", "morin_bengio_nodes"},
    "nce": {"pair_scores"},
    "nce, own noise, log Z": {"pair_scores"},
    "classes": {"pair_scores"},
    "nplm, history": {"history"},
    "whole steps, softmax": {"network_step"},
    "whole steps, nce": {"network_step"},
    "whole steps, hierarchical": {"network_step"},
    "units": {"hidden_units"},
}
CASES = [*LAYERS, *ENCODERS, *(name for name in FORMS if name not in LAYERS + ENCODERS)]


def model_of(name: str, toy: Corpus) -> Any:
    if name == "units":
        return neural(toy, layer_norm=True, gated=True, activation=Activation.gelu, layers=2)
    output = name.removeprefix("whole steps, ")
    return network(toy, encoder(name)) if name in ENCODERS else network(toy, encoder("nplm", activation="tanh"), output)


def first_losses(folder: Path) -> list[float]:
    line = json.loads((folder / METRICS_FILE).read_text().splitlines()[0])
    return [line["train_loss"], line["valid_loss"]]


@pytest.mark.parametrize("name", CASES)
def test_an_epoch_has_the_same_loss(name: str, toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ("history.MIN_NUMBERS", "tree_loops.MIN_UNITS"):
        monkeypatch.setattr(f"lmtool.neural.forms.{each}", 0)
    optim, wanted = SGD if "whole steps" in name else ADAM, FORMS.get(name, set())
    found = {}
    for setting in Forms:
        torch.manual_seed(5)
        out = tmp_path / setting.value
        _, trained = run(toy, out, training(epochs=1, forms=setting), optim, model_of(name, toy))
        found[setting] = first_losses(out)
        if setting is Forms.auto:
            assert wanted <= set(trained.forms) and trained.forms == sorted(trained.forms)
        else:
            assert trained.forms == []
    assert found[Forms.auto] == pytest.approx(found[Forms.plain], abs=1e-5)


def test_plain_calls_no_form(toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> Any:
        raise AssertionError("not a plain method")

    monkeypatch.setattr(forms, "registered", fails)
    monkeypatch.setattr(rows, "change_rows", fails)
    for name in ("units", "hierarchical"):
        _, trained = run(toy, tmp_path / name, training(epochs=1, forms=Forms.plain), model=model_of(name, toy))
        assert trained.forms == []
    with pytest.raises(AssertionError, match="not a plain method"):
        run(toy, tmp_path / "auto", training(epochs=1), model=model_of("units", toy))
    assert forms.allowed(), "the setting holds for a training, not for the process"


def test_a_form_in_bf16_is_the_precision_of_the_run(toy: Corpus, tmp_path: Path) -> None:
    for setting, precision in ((Forms.auto, "bf16"), (Forms.plain, "fp32")):
        model: Any = neural(toy, SoftmaxOutput("softmax", Precision.bf16))
        _, trained = run(toy, tmp_path / setting.value, training(epochs=1, forms=setting), model=model)
        assert trained.precision == precision


def test_a_run_says_which_forms_it_has(lmtool: Run) -> None:
    for setting in Forms:
        folder, words = setting.value, [*NEURAL, *LARGE, f"training.forms={setting.value}"]
        said = lmtool("train", "model=nplm", *words, f"hydra.run.dir={folder}")
        found = json.loads(Path(folder, "result.json").read_text())["forms"]
        if setting is Forms.plain:
            assert found == [] and "computed by the plain formulas alone" in said
        else:
            assert {"hidden_units", "pair_scores"} <= set(found) and f"fast forms: {', '.join(found)}" in said
    other = lmtool("train", "model=nplm", *NEURAL, "training.forms=fast", code=2)
    assert "training.forms=fast" in other and "auto, plain" in other


def test_plain_is_in_fp32() -> None:
    with pytest.raises(
        UserError, match=r"^training\.forms=plain computes in fp32: set training\.precision to fp32 or auto$"
    ):
        training(forms=Forms.plain, precision=Precision.bf16)


def test_a_resumed_training_names_the_forms_of_all_its_steps(lmtool: Run) -> None:
    lmtool("train", "model=nplm", *NEURAL, *LARGE, "training.forms=plain", "hydra.run.dir=run")
    lmtool("train", "resume=run", "training.forms=auto", "training.epochs=2")
    found = json.loads(Path("run/result.json").read_text())
    assert found["epochs"] == 2 and "hidden_units" in found["forms"]
    lmtool("train", "resume=run", "training.forms=plain", "training.epochs=3")
    again = json.loads(Path("run/result.json").read_text())
    assert again["epochs"] == 3 and again["forms"] == found["forms"]


# Training as it is on a GPU, by the plain formulas with dense gradients, here on a CPU: against training by fast


SMALL = ["model.embedding_dim=8", "model.hidden_dim=12", "model.context_size=3", "data=toy", "training.batch_size=16"]
SMALL += ["training.minutes=null", "training.precision=fp32", "training.steps=20", "training.epochs=null", "seed=3"]
SMALL += ["optim.lr=0.01", "training.evaluate_every=0.3", "training.accuracy_tokens=32", "model.dropout=0"]
NPLM = ["model=nplm", "model.input_dropout=0", "model.tied=false"]
HIERARCHICAL = [*NPLM, "output=hierarchical", "tree=huffman"]
DENSE, PLAIN = "training.embedding_gradients=dense", "training.forms=plain"


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


def test_a_checkpoint_keeps_its_kind_of_gradients(lmtool: Run) -> None:
    words = [*HIERARCHICAL, *SMALL]
    lmtool("train", *words, "hydra.run.dir=run")
    message = lmtool("train", "resume=run", DENSE, code=2)
    assert "training.embedding_gradients" in message and "sparse" in message
    lmtool("train", "resume=run", PLAIN, "training.embedding_gradients=sparse", "training.steps=22")
    assert history(Path("run"))[-1]["step"] == 22


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

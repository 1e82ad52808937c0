"""training.forms: layers are computed by fast forms where these serve, or by the plain formulas alone; the numbers stay
the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lmtool.config.training import Forms, Precision
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.neural import forms
from lmtool.neural.encoders.settings import Activation
from lmtool.neural.optimizers import rows
from lmtool.neural.outputs.options import SoftmaxOutput
from lmtool.runs.run import METRICS
from lmtool.training.optim import SgdOptim
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
    line = json.loads((folder / METRICS).read_text().splitlines()[0])
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

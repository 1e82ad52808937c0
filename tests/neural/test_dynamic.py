"""Dynamic evaluation: every token is scored before the weights learn from it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lmtool.data.corpus import Corpus
from lmtool.data.split import Split
from lmtool.neural import dynamic
from lmtool.neural.build import build_neural
from lmtool.neural.dynamic import gradient_scales, score_dynamically
from lmtool.neural.encoders.options import LblModel, LstmModel
from lmtool.neural.encoders.settings import Cell
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.options import SoftmaxOutput
from lmtool.report.reading import Kind, ReportFolder, read_entry
from tests.conftest import Run, result
from tests.neural.test_recurrent import SMALL


@pytest.fixture
def double() -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def network(corpus: Corpus, cell: Cell | None, *, across: bool = True) -> NeuralModel:
    torch.manual_seed(0)
    if cell is None:
        config: Any = LblModel(context_size=2, embedding_dim=3, dropout=0.0, diagonal=False, tied=False)
        config.across_sentences = across
    else:
        sizes = {"embedding_dim": 3, "hidden_dim": 4, "layers": 1, "dropout": 0.5, "tied": False}
        config = LstmModel(cell=cell, **sizes, across_sentences=across)
    return build_neural(config, SoftmaxOutput("softmax"), corpus.vocabulary)


def by_hand(model: NeuralModel, text: Split, bounds: list[int], across: bool, step: Callable[..., None]) -> list[float]:
    """Log p of each token: by the weights before its segment; a recurrent
    state stays as it was read. After each segment `step` changes the weights.
    """
    scores: list[float] = []
    state: Any = None
    starts = {0} if across else {*text.offsets.tolist()}
    for first, last in pairwise(bounds):
        losses = []
        for t in range(first, last):
            if model.context_size is None:
                begins = t in starts
                word = torch.tensor([[text.bos if begins else int(text.ids[t - 1])]])
                h, state = model.encoder.read(word, model.encoder.zero_state(1) if begins else state)
                h = h[:, 0]
            else:
                begin = max(start for start in starts if start <= t)
                context = [text.bos, text.bos, *text.ids[begin:t].tolist()][-2:]
                h = model.encoder(torch.tensor([context]))
            losses.append(F.cross_entropy(model.output.log_probs(h), torch.tensor([int(text.ids[t])])))
        scores += [-float(loss.detach()) for loss in losses]
        state = None if state is None else state.detach()
        weights = list(model.parameters())
        gradients = torch.autograd.grad(torch.stack(losses).mean(), weights, materialize_grads=True)
        step(weights, [each.to_dense() if each.is_sparse else each for each in gradients])
    return scores


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("cell", [Cell.rnn, Cell.lstm, None])
def test_gradient_descent_by_hand(cell: Cell | None, across: bool, toy: Corpus, double: None) -> None:
    model, text = network(toy, cell, across=across).eval(), toy.split("valid")
    bounds = [*range(0, text.tokens, 4), text.tokens]
    trained = [weight.detach().clone() for weight in model.parameters()]
    found = score_dynamically(model, text, None, segment=4, lr=0.5, decay=0.1, progress=False)
    for weight, before in zip(model.parameters(), trained, strict=True):
        assert torch.equal(weight, before)

    def step(weights: list[Tensor], gradients: list[Tensor]) -> None:
        with torch.no_grad():
            for weight, gradient, before in zip(weights, gradients, trained, strict=True):
                weight += 0.1 * (before - weight) - 0.5 * gradient

    np.testing.assert_allclose(found, by_hand(model, text, bounds, across, step), rtol=1e-9)
    assert not np.allclose(found[4:], network(toy, cell, across=across).score_text(text)[4:], rtol=1e-3)


def test_rms_by_hand(toy: Corpus, double: None, monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = network(toy, Cell.rnn).eval(), toy.split("valid")
    monkeypatch.setattr(dynamic, "TRAIN_ROWS", 1)
    monkeypatch.setattr(dynamic, "TRAIN_STEPS", 2)
    scales = gradient_scales(model, text, 3)
    kept: list[list[Tensor]] = []
    by_hand(model, text, [0, 3, 6], True, lambda weights, gradients: kept.append(list(gradients)))
    r = [(first**2 + second**2).sqrt() for first, second in zip(*kept, strict=True)]
    for scale, want in zip(scales, r, strict=True):
        torch.testing.assert_close(scale, want / torch.cat([each.flatten() for each in r]).mean())
    trained = [weight.detach().clone() for weight in model.parameters()]
    found = score_dynamically(model, text, text, segment=3, lr=0.01, decay=0.3, progress=False)

    def step(weights: list[Tensor], gradients: list[Tensor]) -> None:
        with torch.no_grad():
            for weight, gradient, before, scale in zip(weights, gradients, trained, scales, strict=True):
                weight += torch.minimum(0.3 * scale, torch.tensor(1.0)) * (before - weight)
                weight -= 0.01 * gradient / (scale + dynamic.EPSILON)

    bounds = [*range(0, text.tokens, 3), text.tokens]
    np.testing.assert_allclose(found, by_hand(model, text, bounds, True, step), rtol=1e-9)


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("cell", [Cell.gru, None])
def test_without_a_step_the_scores_are_those_of_the_model(cell: Cell | None, across: bool, toy: Corpus) -> None:
    model, text = network(toy, cell, across=across), toy.split("valid")
    model.train()
    found = score_dynamically(model, text, None, segment=7, lr=0.0, decay=0.5, progress=False)
    assert model.training
    np.testing.assert_allclose(found, model.score_text(text), rtol=1e-5)


def test_a_broken_step_leaves_the_trained_weights(toy: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = network(toy, Cell.lstm), toy.split("valid")
    trained = [weight.detach().clone() for weight in model.parameters()]
    calls = iter(range(3))
    read = model.read_tokens
    monkeypatch.setattr(model, "read_tokens", lambda *given: (next(calls), read(*given))[1])
    with pytest.raises(RuntimeError):
        score_dynamically(model, text, None, segment=2, lr=0.5, decay=0.0, progress=False)
    assert all(torch.equal(weight, before) for weight, before in zip(model.parameters(), trained, strict=True))


def test_commands(lmtool: Run) -> None:
    lmtool("train", "model=lstm", *SMALL, "hydra.run.dir=run")
    before = {path.name: path.read_bytes() for path in Path("run").iterdir() if path.is_file()}
    lmtool("eval", "run=run", "hydra.run.dir=static")
    said = lmtool("eval", "run=run", "dynamic=true", "hydra.run.dir=rms")
    assert "note: a dynamic model: it learns" in said
    assert "perplexity, dynamic" in said and result("rms")["dynamic"] is True and "dynamic" not in result("static")
    assert result("rms")["perplexity"] != pytest.approx(result("static")["perplexity"], rel=1e-6)
    words = ["dynamic_rule=sgd", "dynamic_lr=0", "dynamic_segment=3"]
    lmtool("eval", "run=run", "dynamic=true", *words, "hydra.run.dir=still")
    assert result("still")["perplexity"] == pytest.approx(result("static")["perplexity"], rel=1e-5)
    Path("text").write_text("a b\nb a a\n")
    lmtool("eval", "run=run", "dynamic=true", "text=text", "across_sentences=true", "hydra.run.dir=text-eval")
    assert result("text-eval")["dynamic"] is True
    assert {name: Path("run", name).read_bytes() for name in before} == before
    said = lmtool("compare", "runs=[static,rms]", "hydra.run.dir=compared")
    assert "rms, dynamic" in said and "note: rms: a dynamic model" in said
    assert [member["dynamic"] for member in result("compared")["members"]] == [False, True]
    said = lmtool("ensemble", "runs=[static,rms]", "fit_split=valid", "hydra.run.dir=mixed")
    assert result("mixed")["dynamic"] is True and "perplexity, dynamic" in said
    for folder, model in ("rms", "lstm + sampled, dynamic"), ("mixed", "mixture of 2 scores, dynamic"):
        entry = read_entry(ReportFolder(Path(folder), Kind.scores), folder, resamples=100, seed=1, block="auto")
        assert entry.model == model


def test_what_is_refused(lmtool: Run) -> None:
    lmtool("train", "model=ngram", "data=toy", "hydra.run.dir=kn")
    said = lmtool("eval", "run=kn", "dynamic=true", code=2)
    assert "dynamic=true: kn is not a single network with weights to train" in said
    assert "dynamic_lr=-1.0: must be 0 or more" in lmtool("eval", "run=kn", "dynamic_lr=-1", code=2)
    assert "dynamic=true: cannot be used with accuracy=true" in lmtool("eval", "dynamic=true", "accuracy=true", code=2)

"""Encoders by hand, gradients of whole models, and what their configurations make of them."""

from __future__ import annotations

import math

import pytest
import torch

from lmtool.config.data import Unit
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.neural.build import build_neural
from lmtool.neural.encoders.linear import CBOW, LBL
from lmtool.neural.encoders.nplm import NPLM
from lmtool.neural.encoders.options import CbowModel, LblModel
from lmtool.neural.encoders.settings import Activation
from lmtool.neural.outputs.options import HierarchicalOutput, NodeForm
from lmtool.trees import balanced_tree
from tests.conftest import SOFTMAX, neural, nplm


def set_to(parameter: torch.Tensor, values: list) -> None:
    with torch.no_grad():
        parameter.copy_(torch.tensor(values))


def test_nplm_by_hand() -> None:
    # C(0) = 1, C(1) = 2; H = [3, -1], d = 0.5: a = tanh(0.5 + 3 C(w1) - C(w2)), direct connections append x.
    encoder = NPLM(nplm(context_size=2, embedding_dim=1, hidden_dim=1, direct_connections=True), 2, tied=False)
    set_to(encoder.embedding.weight, [[1.0], [2.0]])
    set_to(encoder.layers[0].weight, [[3.0, -1.0]])
    set_to(encoder.layers[0].bias, [0.5])
    found = encoder(torch.tensor([[0, 1], [1, 1]]))
    torch.testing.assert_close(found, torch.tensor([[math.tanh(1.5), 1.0, 2.0], [math.tanh(4.5), 2.0, 2.0]]))


def test_a_history_by_hand() -> None:
    # One word of context and three of history: z_k = scale * sum of a_k^t C(w_-t) over t = 0, 1, 2, of unit length.
    config = nplm(context_size=1, embedding_dim=1, layers=0, fofe_window=3, forgetting_factors=[0.5, 1.0])
    encoder = NPLM(config, 3, tied=False)
    assert (encoder.context_size, encoder.output_dim) == (3, 3)
    set_to(encoder.embedding.weight, [[1.0], [2.0], [4.0]])
    set_to(encoder.history.scale, [[1.0], [10.0]])
    halves = (0.25 * 2 + 0.5 * 4 + 1 * 1) / math.sqrt(1 + 0.25 + 0.0625)
    torch.testing.assert_close(encoder(torch.tensor([[1, 2, 0]])), torch.tensor([[1.0, halves, 70 / math.sqrt(3)]]))


def test_weights_that_all_begin_alike(toy: Corpus) -> None:
    torch.manual_seed(1)
    found = torch.cat([p.flatten() for p in neural(toy, hidden_dim=400, init_std=3.0).parameters()])
    assert len(found) > 15_000 and found.std().item() == pytest.approx(3.0, rel=0.02)


def test_a_history_no_longer_than_the_context() -> None:
    encoder = NPLM(nplm(context_size=3, fofe_window=3), 5, tied=False)
    assert encoder.history is None
    assert encoder.context_size == 3


@pytest.mark.parametrize(
    ("unit", "tokens", "want"),
    [(Unit.word, 20_000, (100, True)), (Unit.word, 19_999, (0, False)), (Unit.char, 1 << 20, (0, False))],
)
def test_what_is_left_open_is_decided_by_the_text(unit: Unit, tokens: int, want: tuple[int, bool]) -> None:
    config = nplm(fofe_window=None, across_sentences=None)
    config.fill_in(unit, tokens)
    assert (config.fofe_window, config.across_sentences) == want
    config = nplm(fofe_window=7, across_sentences=None)
    config.fill_in(unit, tokens)
    assert (config.fofe_window, config.across_sentences) == (7, want[1])
    config = nplm(fofe_window=None, across_sentences=False)
    config.fill_in(unit, tokens)
    assert (config.fofe_window, config.across_sentences) == (want[0], False)


def test_cbow_by_hand() -> None:
    encoder = CBOW(CbowModel("cbow", 2, 2, True, 0.0), 2)
    set_to(encoder.embedding.weight, [[1.0, 2.0], [3.0, 5.0]])
    assert encoder(torch.tensor([[0, 1], [1, 0]])).tolist() == [[2.0, 3.5], [2.0, 3.5]]


ENCODERS = {
    **{activation.name: nplm(activation=activation, layer_norm=True) for activation in Activation},
    "tied": nplm(tied=True, direct_connections=True),
    "direct": nplm(direct_connections=True),
    "three layers": nplm(layers=3, layer_norm=True),
    "gated": nplm(gated=True),
    "two gated layers": nplm(
        layers=2, layer_norm=True, gated=True, activation=Activation.gelu, direct_connections=True
    ),
    "no layer": nplm(layers=0),
    "projected": nplm(projection_dim=4),
    "lbl": LblModel("lbl", 2, 3, True, 0.0, False),
    "lbl-untied": LblModel("lbl", 2, 3, False, 0.0, True),
    "cbow": CbowModel("cbow", 2, 3, False, 0.0),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_gradients_of_whole_models_in_float64(name: str, toy: Corpus) -> None:
    # The model's own passes against autograd's through a matrix of logits and one-hot embeddings.
    torch.manual_seed(1)
    model = build_neural(ENCODERS[name], SOFTMAX, toy.vocabulary).double()
    contexts = torch.tensor([[0, 1, 5], [2, 3, 1], [23, 23, 0]])[:, : model.context_size]
    targets = torch.tensor([4, 0, 1])
    values = dict(model.named_parameters())
    want = torch.autograd.grad(_plain_loss(model, contexts, targets), list(values.values()))
    model(contexts, targets).backward()
    for (parameter, value), expected in zip(values.items(), want, strict=True):
        grad = value.grad.to_dense() if value.grad.is_sparse else value.grad
        torch.testing.assert_close(grad, expected, msg=parameter)


def _plain_loss(model: object, contexts: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    encoder, output = model.encoder, model.output
    table = encoder.embedding.weight
    x = torch.nn.functional.one_hot(contexts, len(table)).double() @ table
    if isinstance(encoder, LBL):
        maps = torch.diag_embed(encoder.positions) if encoder.config.diagonal else encoder.positions
        hidden = torch.einsum("bce,cef->bf", x, maps)
    elif isinstance(encoder, CBOW):
        hidden = x.sum(1) / x.shape[1]
    else:
        x = a = x.flatten(1)
        for number, layer in enumerate(encoder.layers):
            before, a = a, a @ layer.weight.T + layer.bias
            parts = list(a.chunk(2, dim=1)) if encoder.config.gated else [a]
            if encoder.norms is not None:
                for part, norms in enumerate((encoder.norms, encoder.gate_norms)[: len(parts)]):
                    b = parts[part]
                    b = (b - b.mean(1, keepdim=True)) / (b.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
                    parts[part] = b * norms[number].weight + norms[number].bias
            a = parts[0]
            match encoder.config.activation:
                case Activation.tanh:
                    a = 2 * torch.sigmoid(2 * a) - 1
                case Activation.gelu:
                    a = a * 0.5 * (1 + torch.erf(a / math.sqrt(2)))
                case Activation.relu:
                    a = a.clamp(min=0)
                case Activation.sigmoid:
                    a = 1 / (1 + torch.exp(-a))
            a = a * parts[1] if encoder.config.gated else a
            a = a + before if number else a
        hidden = torch.cat([a, x], 1) if encoder.config.direct_connections and len(encoder.layers) else a
        if encoder.project is not None:
            hidden = hidden @ encoder.project.weight.T + encoder.project.bias
    scores = hidden @ output.vectors[: len(output.bias)].T + output.bias
    return (scores.exp().sum(1).log() - scores[torch.arange(len(targets)), targets]).mean()


def test_parameter_counts(toy: Corpus) -> None:
    # V 24, O 23; E 5, C 3, H 7: embeddings 120, hidden 15*7 + 7 = 112, biases 23, and the output's own form:
    # U 23*7 = 161; with direct connections U and W 23*(7+15) = 506; tied, a projection 7*5 + 5 = 40.
    for tied, direct, own in ((False, False, 161), (False, True, 506), (True, False, 40)):
        model = neural(toy, embedding_dim=5, hidden_dim=7, tied=tied, direct_connections=direct)
        assert model.parameter_count == 120 + 112 + 23 + own
        gated = neural(
            toy, embedding_dim=5, hidden_dim=7, tied=tied, direct_connections=direct, gated=True, layer_norm=True
        )
        assert gated.parameter_count == 120 + 2 * (112 + 2 * 7) + 23 + own


def test_what_null_ties(toy: Corpus) -> None:
    words = len(toy.vocabulary) - 1
    hierarchical = HierarchicalOutput("hierarchical", NodeForm.dot, 5, 4)
    assert neural(toy, tied=None).encoder.project is not None
    wide = neural(toy, tied=None, projection_dim=7)
    assert wide.output.vectors is not wide.encoder.embedding.weight and wide.output.vectors.shape == (words, 7)
    assert neural(toy, hierarchical, balanced_tree(torch.arange(words).numpy()), tied=None).encoder.project is None
    with pytest.raises(UserError, match=r"model\.tied=true.*model\.tied=null"):
        neural(toy, hierarchical, balanced_tree(torch.arange(words).numpy()), tied=True)

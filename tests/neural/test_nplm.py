"""The NPLM by hand, its gradients, and what its configuration makes of it."""

from __future__ import annotations

import math

import pytest
import torch

from lmtool.config import Activation, NplmModel
from lmtool.data.corpus import Corpus
from lmtool.neural.model import build_nplm
from lmtool.neural.nplm import NPLM


def test_forward_by_hand() -> None:
    # C(0) = 1, C(1) = 2; H = [3, -1], d = 0.5: a = tanh(.5 + 3 C(w1) - C(w2)), direct connections append x.
    encoder = NPLM(NplmModel("nplm", 2, 1, 1, True, False, Activation.tanh, False, 0.0), 2)
    with torch.no_grad():
        encoder.embedding.weight.copy_(torch.tensor([[1.0], [2.0]]))
        encoder.hidden.weight.copy_(torch.tensor([[3.0, -1.0]]))
        encoder.hidden.bias.fill_(0.5)
    found = encoder(torch.tensor([[0, 1], [1, 1]]))
    want = [[math.tanh(1.5), 1.0, 2.0], [math.tanh(4.5), 2.0, 2.0]]
    torch.testing.assert_close(found, torch.tensor(want))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("activation", list(Activation))
def test_gradients_of_the_whole_model_in_float64(tied: bool, direct: bool, activation: Activation, toy: Corpus) -> None:
    torch.manual_seed(1)
    model = build_nplm(NplmModel("nplm", 2, 3, 4, direct, tied, activation, True, 0.0), toy.vocabulary).double()
    contexts, targets = torch.tensor([[0, 1], [2, 3], [23, 23]]), torch.tensor([4, 0, 1])
    names = [name for name, _ in model.named_parameters()]

    def loss(*values: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, values, strict=True))
        hidden = torch.func.functional_call(model.encoder, _below("encoder.", given), (contexts,))
        vectors = given.get("output.vectors", given["encoder.embedding.weight"])[:23]
        return torch.nn.functional.cross_entropy(hidden @ vectors.T + given["output.bias"], targets)

    values = [parameter.detach().requires_grad_() for parameter in model.parameters()]
    want = torch.autograd.grad(loss(*values), values)
    model.loss(contexts, targets).backward()
    for name, parameter, expected in zip(names, model.parameters(), want, strict=True):
        torch.testing.assert_close(parameter.grad, expected, msg=name)
    assert torch.autograd.gradcheck(
        lambda x: model.encoder.hidden(x), torch.randn(2, 6, dtype=torch.float64).requires_grad_()
    )


def _below(prefix: str, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def test_parameter_counts(toy: Corpus) -> None:
    # V 24, O 23; E 5, C 3, H 7: embeddings 120, hidden 15*7 + 7 = 112, biases 23, and the output's own form:
    # U 23*7 = 161; with direct connections U and W 23*(7+15) = 506; tied, a projection 7*5 + 5 = 40.
    for tied, direct, own in ((False, False, 161), (False, True, 506), (True, False, 40)):
        config = NplmModel("nplm", 3, 5, 7, direct, tied, Activation.tanh, False, 0.0)
        assert build_nplm(config, toy.vocabulary).parameter_count == 120 + 112 + 23 + own

"""Where the expected gradient of each training loss is 0: at the distribution of the data, on every form of the loss.

Expectations are exact: over all draws of k words, with replacement, and over a batch that has the words of five in the
very shares of DATA, which are not those of COUNTS, that noise comes from.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor, nn

from lmtool.neural import SampledSoftmax
from lmtool.neural.devices import device_path
from lmtool.neural.kernels import shared_rows, sparse_rows

O, D = 5, 2  # noqa: E741
DATA = [90, 4, 3, 2, 1]  # of 100 examples
COUNTS = torch.tensor([500, 300, 100, 50, 50])
Y = torch.arange(O).repeat_interleave(torch.tensor(DATA))


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


FORMS: dict[str, tuple[bool, Callable[[], AbstractContextManager[None]]]] = {
    "dense": (False, nullcontext),
    "sparse": (True, nullcontext),
    "plain": (False, nullcontext),
    "device": (False, device_path),
    "device, sparse": (True, device_path),
}


def as_the_data(layer: nn.Module) -> Tensor:
    """Have the softmax of a layer's scores be DATA after the hidden units that are returned, `[1, D]`."""
    h = torch.randn(1, D)
    with torch.no_grad():
        layer.bias.copy_((torch.tensor(DATA) / 100).log() - (layer.vectors @ h.T)[:, 0])  # type: ignore[operator]
    torch.testing.assert_close(layer.log_dist(h)[0].exp(), torch.tensor(DATA, dtype=torch.float64) / 100)
    return h.requires_grad_()


def draws(q: Tensor, k: int) -> Iterator[tuple[float, Tensor]]:
    """All draws of k words from q `[O]`, without regard to their order, and the probability of each."""
    for words in itertools.combinations_with_replacement(range(len(q)), k):
        orders = math.factorial(k) / math.prod(math.factorial(times) for times in Counter(words).values())
        yield orders * q[list(words)].prod().item(), torch.tensor(words)


def expected_gradients(layer: nn.Module, h: Tensor, q: Tensor, k: int) -> list[Tensor]:
    """Gradients of h, and of each parameter, b first, of the loss over Y, expected over draws of k words from q."""
    wanted = [h, *layer.parameters()]
    total = [torch.zeros_like(tensor) for tensor in wanted]
    for chance, noise in draws(q, k):
        found = torch.autograd.grad(layer.loss_with(h.expand(len(Y), D), Y, noise), wanted)  # type: ignore[operator]
        total = [so_far + chance * gradient.to_dense() for so_far, gradient in zip(total, found, strict=True)]
    return total


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
def test_sampled_softmax(form: str, power: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the draws that are the target the gradient of b has norms up to .003 (power 0, two samples) to .12.
    sparse, where = FORMS[form]
    if form == "plain":
        for module in (sparse_rows, shared_rows):
            monkeypatch.setattr(module, "compiled", lambda tensor: False)
    for k in range(1, O + 1):
        layer = SampledSoftmax(D, COUNTS, samples=k, power=power, sparse=sparse)
        h, q = as_the_data(layer), layer.log_q.exp()
        with where():
            assert max(gradient.abs().max() for gradient in expected_gradients(layer, h, q, k)) < 1e-10
            with torch.no_grad():
                layer.bias[0] += 0.1
            assert expected_gradients(layer, h, q, k)[1][0] > 1e-3

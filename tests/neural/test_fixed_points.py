"""Where the expected gradient of each training loss is 0: at the distribution of the data, with forms and without.

Expectations are exact: over all draws of k words, with replacement, and over a batch in which five words have the very
shares of DATA, which are not those of COUNTS, that noise comes from.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from lmtool.neural import NCELoss, NegativeSampling, SampledSoftmax
from lmtool.neural.forms import only_plain
from lmtool.neural.outputs.nce import Noise, noise_distribution
from tests import options
from tests.options import output_layer, settings_of

O, D = 5, 4  # noqa: E741
DATA = [90, 4, 3, 2, 1]  # of 100 examples
COUNTS = torch.tensor([500, 300, 100, 50, 50])
SHARES = torch.tensor(DATA, dtype=torch.float64) / 100
Y = torch.arange(O).repeat_interleave(torch.tensor(DATA))


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(params=["forms", "forms, sparse", "plain", "plain, sparse"])
def sparse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether gradients of rows are sparse; with fast forms, and by the plain methods alone."""
    kind: str = request.param
    monkeypatch.setattr("lmtool.neural.forms.softmax_chunks.MAX_SCORES_PER_CHUNK", 1)  # so that the batch is in two
    with only_plain(kind.startswith("plain")):
        yield kind.endswith("sparse")


def as_the_data(layer: nn.Module) -> Tensor:
    """Have the softmax of a layer's scores be DATA after the hidden units that are returned, `[1, D]`."""
    h = torch.randn(1, D)
    with torch.no_grad():
        layer.bias.copy_(SHARES.log() - (layer.vectors @ h.T)[:, 0])  # type: ignore[operator]
    torch.testing.assert_close(layer.log_dist(h)[0].exp(), SHARES)
    return h.requires_grad_()


def draws(q: Tensor, k: int) -> Iterator[tuple[float, Tensor]]:
    """Yield all draws of k words from q `[O]`, without regard to order, each with its probability."""
    for words in itertools.combinations_with_replacement(range(len(q)), k):
        orders = math.factorial(k) / math.prod(math.factorial(times) for times in Counter(words).values())
        yield orders * q[list(words)].prod().item(), torch.tensor(words)


def expected_gradients(layer: nn.Module, h: Tensor, q: Tensor, k: int, *, own: bool = False) -> list[Tensor]:
    """Gradients of h, and of each parameter, b first, of the loss over Y, expected over draws of k words from q, which
    are given as shared, or as each example's own.
    """
    wanted = [h, *(parameter for parameter in layer.parameters() if parameter.requires_grad)]
    total = [torch.zeros_like(tensor) for tensor in wanted]
    for chance, noise in draws(q, k):
        noise = noise.expand(len(Y), k) if own else noise
        found = torch.autograd.grad(layer.loss_with(h.expand(len(Y), D), Y, noise), wanted)  # type: ignore[operator]
        total = [so_far + chance * gradient.to_dense() for so_far, gradient in zip(total, found, strict=True)]
    return total


@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
def test_sampled_softmax(power: float, sparse: bool) -> None:
    # Without the draws that are the target the gradient of b has norms up to 0.03 (power 0, five samples) and 0.12.
    for k in range(1, O + 1):
        layer = SampledSoftmax(D, COUNTS, samples=k, power=power, sparse=sparse)
        h, q = as_the_data(layer), layer.table.log_q.exp()
        assert max(gradient.abs().max() for gradient in expected_gradients(layer, h, q, k)) < 1e-10
        with torch.no_grad():
            layer.bias[0] += 0.1
        assert expected_gradients(layer, h, q, k)[1][0] > 1e-3


@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
@pytest.mark.parametrize("learned", [False, True], ids=["log Z = 0", "log Z learned"])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_nce(shared: bool, learned: bool, power: float, sparse: bool) -> None:
    for k in (1, 2, 5 if power == 1.0 else 3):  # 126 draws of five words, 35 of three
        layer = NCELoss(D, COUNTS, noise=k, shared=shared, power=power, learn_normalizer=learned, sparse=sparse)
        h, q = as_the_data(layer), layer.table.log_q.exp()
        if layer.normalizer is not None:  # the scores are then those of the data plus log Z
            with torch.no_grad():
                nn.init.normal_(layer.normalizer.weight)
                layer.bias.add_(layer.normalizer(h)[0])
        assert max(gradient.abs().max() for gradient in expected_gradients(layer, h, q, k, own=not shared)) < 1e-10
        with torch.no_grad():
            layer.bias[0] += 0.1
        assert expected_gradients(layer, h, q, k, own=not shared)[1][0] > 1e-3


@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_negative_sampling(shared: bool, power: float, sparse: bool) -> None:
    # The optimum of Levy & Goldberg (2014): the dot products are log p(w|h) - log k q_w, with which log_dist is log p.
    for k in (1, 2, 3):
        layer, h = NegativeSampling(D, COUNTS, noise=k, shared=shared, power=power, sparse=sparse), torch.randn(1, D)
        q = layer.table.log_q.exp()
        with torch.no_grad():
            layer.vectors.copy_((SHARES / (k * q)).log()[:, None] * h / h.square().sum())
        torch.testing.assert_close(layer.log_dist(h)[0].exp(), SHARES)
        h.requires_grad_()
        assert max(gradient.abs().max() for gradient in expected_gradients(layer, h, q, k, own=not shared)) < 1e-10
        with torch.no_grad():
            layer.vectors[0] += 0.1 * h[0]
        assert expected_gradients(layer, h, q, k, own=not shared)[1][0].abs().max() > 1e-3


LIKELIHOODS = [*options.LAYERS, "hierarchical, union", "hierarchical, morin_bengio, union"]
LIKELIHOODS = [name for name in LIKELIHOODS if settings_of("output", name).loss_is_log_prob]


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_likelihoods(name: str, sparse: bool) -> None:
    layer, h = output_layer(name, D, COUNTS, sparse=sparse), torch.randn(1, D)
    limits = {"max_iter": 1000, "tolerance_grad": 1e-11, "tolerance_change": 0}
    fit = torch.optim.LBFGS(layer.parameters(), **limits, line_search_fn="strong_wolfe")  # type: ignore[arg-type]

    def closure() -> Tensor:
        fit.zero_grad()
        loss = layer(h.expand(len(Y), D), Y)
        loss.backward()
        for parameter in layer.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad.to_dense()
        return loss

    fit.step(closure)
    torch.testing.assert_close(layer.log_dist(h)[0].exp(), SHARES, atol=1e-8, rtol=0)


@pytest.mark.parametrize(("words", "power"), [(5, 0.0), (5, 0.75), (1000, 0.75), (1000, 2.0)])
def test_losses_correct_by_the_probabilities_of_draws(
    words: int, power: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A draw takes 63 random bits: 32 for a place, of which each of the words has as many as fit, and 31 for a height.
    counts = torch.arange(words, 0, -1) ** 2
    noise = Noise(noise_distribution(counts, power))

    def drawn(bits: Tensor) -> Tensor:
        monkeypatch.setattr(torch.Tensor, "random_", lambda self: self.copy_(bits))
        return noise.draw(len(bits))

    first = torch.tensor([-(-(place << 32) // words) for place in range(words + 1)])  # of the upper 32 bits
    places = drawn(first[:-1] << 31)  # at height 0
    assert torch.equal(drawn((first[1:] - 1) << 31), places)
    low, high = torch.ones_like(places), torch.full_like(places, 1 << 31)  # the number of heights with this word
    while not torch.equal(low, high):
        middle = (low + high) // 2
        same = drawn((first[:-1] << 31) + middle) == places
        low, high = torch.where(same, middle + 1, low), torch.where(same, high, middle)
    chances = [0] * words  # of 2^63
    aliases = drawn((first[:-1] << 31) + (1 << 31) - 1)
    for place, times, own, alias in zip(
        places.tolist(), first.diff().tolist(), low.tolist(), aliases.tolist(), strict=True
    ):
        chances[place] += times * own
        chances[alias] += times * ((1 << 31) - own)
    assert sum(chances) == 1 << 63
    log_q = torch.tensor([math.log(chance) - 63 * math.log(2) for chance in chances])
    assert (noise.log_q - log_q).abs().max() < 1e-12
    for layer in (NCELoss(D, counts, noise=3, power=power), SampledSoftmax(D, counts, samples=3, power=power)):
        shift = layer.log_kq - math.log(3) if isinstance(layer, NCELoss) else layer.log_q
        assert (shift - log_q).abs().max() < 1e-12

"""Output layers in other people's PyTorch models: sequences, autocast, torch.compile, DistributedDataParallel."""

from __future__ import annotations

import copy
import logging
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmtool.neural import FullSoftmax, HierarchicalSoftmax, NCELoss, OutputLayer, RowSGD, SampledSoftmax
from lmtool.neural.forms import only_plain
from lmtool.trees import from_codes
from tests.options import LAYERS, output_layer, trained

D, WORDS = 8, 20
COUNTS = torch.arange(WORDS, 0, -1)
every_layer = pytest.mark.parametrize("name", LAYERS)


class Model(nn.Module):
    """A user's model: an encoder and an output layer."""

    def __init__(self, output: OutputLayer) -> None:
        super().__init__()
        self.encoder, self.output = nn.Linear(D, D), output

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss."""
        loss: Tensor = self.output(self.encoder(x), y)
        return loss


def built(name: str, *, sparse: bool = False) -> OutputLayer:
    torch.manual_seed(1)
    return output_layer(name, D, COUNTS, sparse=sparse)


def batch() -> tuple[Tensor, Tensor]:
    """Hidden states [3, 4, D] and targets [3, 4] that reach every word."""
    torch.manual_seed(2)
    return torch.randn(3, 4, D), torch.arange(12).view(3, 4) * 7 % WORDS


def seeded(layer: OutputLayer, h: Tensor, y: Tensor, **named: object) -> Tensor:
    torch.manual_seed(3)
    loss: Tensor = layer(h, y, **named)
    return loss


@every_layer
def test_a_sequence_is_its_tokens(name: str) -> None:
    layer, (h, y) = built(name).double(), batch()
    h = h.double()
    flat, words = h.view(12, D), y.view(12)
    assert torch.equal(seeded(layer, h, y), seeded(layer, flat, words))
    assert torch.equal(layer.log_dist(h), layer.log_dist(flat).view(3, 4, WORDS))
    assert torch.equal(layer.log_prob(h, y), layer.log_prob(flat, words).view(3, 4))
    assert layer.log_prob(h, y[..., None].expand(3, 4, 2)).shape == (3, 4, 2)
    assert [found.shape for found in layer.top(h, 2)] == [(3, 4, 2)] * 2 and layer.sample(h).shape == (3, 4)
    with pytest.raises(
        ValueError, match=rf"{type(layer).__name__}.forward: y must be int64 \[3, 4\]; got int64 \[12\]"
    ):
        layer(h, words)


@every_layer
def test_reductions_and_ignored_targets(name: str) -> None:
    layer, (h, y) = built(name).double(), batch()
    h = h.double().requires_grad_()
    losses = seeded(layer, h, y, reduction="none")
    assert losses.shape == (3, 4)
    mean = seeded(layer, h, y)
    assert losses.mean().item() == pytest.approx(mean.item())
    assert seeded(layer, h, y, reduction="sum").item() == pytest.approx(12 * mean.item())
    # The gradient of one token's loss is its own alone: 12 times its part of the gradient of the mean.
    (of_one,) = torch.autograd.grad(losses[1, 2], h, retain_graph=True)
    (of_mean,) = torch.autograd.grad(mean, h)
    assert of_one[0].abs().max() == 0
    torch.testing.assert_close(of_one[1, 2], 12 * of_mean[1, 2])
    # Gradients of weighted losses are those of the losses of single tokens.
    each, weights = [h, *trained(layer).values()], torch.rand(12, dtype=torch.float64)
    torch.manual_seed(3)
    own = name in ("nce, own noise, log Z", "negative_sampling")
    draws = iter(layer.table.draw(12, layer.noise)[:, None]) if own else None  # type: ignore[operator]
    singles = [
        layer.loss_with(h_k, y_k, next(draws)) if draws else seeded(layer, h_k, y_k)  # type: ignore[operator]
        for h_k, y_k in zip(h.view(12, 1, D), y.view(12, 1), strict=True)
    ]
    torch.testing.assert_close(torch.stack(singles), losses.flatten())
    found, wanted = (
        torch.autograd.grad((weights * of_tokens).sum(), each, retain_graph=True, materialize_grads=True)
        for of_tokens in (losses.flatten(), torch.stack(singles))
    )
    assert all(grad.abs().max() > 0 for grad in found)
    torch.testing.assert_close(found, wanted)
    padded = y.clone()
    padded[:, 3] = -100
    rest = seeded(layer, h[:, :3].reshape(9, D), y[:, :3].reshape(9))
    torch.testing.assert_close(seeded(layer, h, padded), rest)
    assert seeded(layer, h, padded, reduction="none")[:, 3].tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"forward: reduction must be mean, sum or none; got 'max'"):
        layer(h, y, reduction="max")


@every_layer
@pytest.mark.parametrize("sparse", [False, True])
def test_all_targets_ignored(name: str, sparse: bool) -> None:
    layer, (h, y) = built(name, sparse=sparse), batch()
    padding = torch.full_like(y, -100)
    for hidden in (h, torch.full_like(h, torch.inf), torch.full_like(h, 3e38)):
        for each, reduction in ((hidden, "mean"), (hidden.clone().requires_grad_(), "sum")):  # also of a frozen encoder
            layer.zero_grad()
            loss = layer(each, padding, reduction=reduction)
            loss.backward()
            assert loss.item() == 0 and (each.grad is None or not each.grad.any())
            assert all(
                parameter.grad is None or not parameter.grad.to_dense().any() for parameter in trained(layer).values()
            )
            reached = {key for key, parameter in layer.named_parameters() if parameter.grad is not None}
            assert reached == trained(layer).keys()
        losses = layer(hidden, padding, reduction="none")
        losses[0, 0] += 1  # each has its own memory
        assert losses.flatten().tolist() == [1] + [0] * 11
    assert all(
        parameter.grad is not None and parameter.grad.is_sparse == sparse
        for parameter in layer.sparse_parameters()
        if parameter.requires_grad
    )
    state = torch.get_rng_state()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.view(-1)[0] = -torch.inf  # log p of word 0, in layers with a bias
    assert layer(h, padding).item() == 0 and torch.equal(torch.get_rng_state(), state), "no noise is drawn"


def test_bytes_as_targets() -> None:
    layer, h = FullSoftmax(D, torch.ones(256)), torch.randn(3, D)
    y = torch.tensor([156, 1, 156], dtype=torch.uint8)
    for kind in (torch.uint8, torch.uint16, torch.int16):
        losses = layer(h, y.to(kind), reduction="none")
        assert losses.tolist() == layer(h, y.long(), reduction="none").tolist() and losses.min() > 0
        assert layer(h, y.to(kind), ignore_index=156, reduction="none")[::2].tolist() == [0, 0]


def test_losses_by_hand() -> None:
    layer = FullSoftmax(2, torch.ones(3))
    nn.init.zeros_(layer.vectors)
    y = torch.tensor([[0, -100], [1, 2]])
    losses = layer(torch.zeros(2, 2, 2), y, reduction="none")
    assert losses.flatten().tolist() == pytest.approx([1.0986123, 0, 1.0986123, 1.0986123])  # log 3
    assert layer(torch.zeros(2, 2, 2), y, reduction="sum").item() == pytest.approx(3 * 1.0986123)
    two_codes = HierarchicalSoftmax(2, from_codes([(0, "0"), (0, "11"), (1, "10")]))  # zero scores: p = 3/4 and 1/4
    nn.init.zeros_(two_codes.nodes.vectors)  # type: ignore[arg-type]
    found = two_codes(torch.zeros(2, 2), torch.tensor([0, 1]), reduction="none")
    assert found.tolist() == pytest.approx([0.2876821, 1.3862944])  # -log 3/4, -log 1/4


def test_a_custom_layer_without_reduction() -> None:
    class Squares(FullSoftmax):
        def loss(self, h: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
            return (h.sum(1) * (y + 1)).square().mean()

    found = Squares(2, torch.ones(3))(torch.ones(2, 2), torch.tensor([0, 2]), reduction="none")
    assert found.tolist() == [4, 36]


@every_layer
def test_autocast_in_bf16(name: str) -> None:
    model, (x, y) = Model(built(name)), batch()
    torch.manual_seed(3)
    exact = model(x, y).item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(3)
        loss = model(x, y)
        h = model.encoder(x)
        inside = model.output.log_dist(h), model.output.log_prob(h, y), model.output.top(h, 2)[1]
    loss.backward()
    assert h.dtype is torch.bfloat16 and loss.dtype is torch.float32 and loss.item() == pytest.approx(exact, rel=0.02)
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in trained(model).values())
    # Only the hidden states are rounded: the layer itself computes in float32.
    outside = model.output.log_dist(h), model.output.log_prob(h, y), model.output.top(h, 2)[1]
    assert all(torch.equal(a, b) for a, b in zip(inside, outside, strict=True))
    with (
        torch.autocast("cpu", dtype=torch.float16),
        pytest.raises(ValueError, match=r"forward: torch.autocast in float16 is not supported: use dtype=torch.bfl"),
    ):
        model(x, y)


@every_layer
def test_torch_compile(name: str, caplog: pytest.LogCaptureFixture) -> None:
    torch.compiler.reset()
    model, (x, y) = Model(built(name, sparse=True)), batch()
    torch.manual_seed(3)
    expected = model(x, y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = torch.compile(model, backend="eager")
        torch.manual_seed(3)
        loss = compiled(x, y)
        loss.backward()
        layer = torch.compile(model.output, backend="eager")
        assert torch.equal(seeded(layer, x, y), seeded(model.output, x, y))
    torch.compiler.reset()
    of_python_3_13_0 = "Guards may run slower on Python 3.13.0"
    assert torch.equal(loss, expected) and not [each for each in caught if of_python_3_13_0 not in str(each.message)]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_dense_gradient_of_rows_by_hand() -> None:
    weight = nn.Parameter(torch.ones(3, 2))
    weight.grad = torch.tensor([[0.0, 0], [1, 2], [0, 0]])
    RowSGD([weight], lr=0.5, weight_decay=0.2).step()
    assert weight[1].tolist() == pytest.approx([0.9 - 0.5, 0.9 - 1]) and weight[[0, 2]].tolist() == [[1, 1], [1, 1]]


@every_layer
def test_reset_parameters(name: str) -> None:
    layer = built(name)
    if name == "negative_sampling":  # output_layer has changed its vectors
        nn.init.zeros_(layer.vectors)  # type: ignore[arg-type]
    first = {key: value.clone() for key, value in layer.state_dict().items()}
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(1)
    torch.manual_seed(1)
    layer.reset_parameters()
    torch.testing.assert_close(layer.state_dict(), first, rtol=0, atol=0)
    losses = seeded(layer, *batch(), reduction="none")
    layer.to("meta").to_empty(device="cpu")
    for value in layer.state_dict().values():
        value.fill_(7)
    for buffer in layer.buffers():
        buffer.zero_()
    torch.manual_seed(1)
    layer.reset_parameters()
    assert torch.equal(seeded(layer, *batch(), reduction="none"), losses)
    assert copy.deepcopy(layer).extra_repr() == layer.extra_repr()


def test_tied_vectors_are_not_reset() -> None:
    tied = nn.Parameter(torch.ones(4, 2))
    layer = NCELoss(2, torch.ones(3), tied, noise=2)
    layer.reset_parameters()
    assert tied.tolist() == [[1, 1]] * 4


def test_vectors_that_to_empty_has_untied() -> None:
    with torch.device("meta"):
        embedding = nn.Embedding(3, 2)
    both = nn.ModuleList([embedding, FullSoftmax(2, torch.ones(3), embedding.weight)]).to_empty(device="cpu")
    with pytest.raises(ValueError, match=r"^FullSoftmax: to_empty has untied the vectors: build the layer over them"):
        both[1].reset_parameters()


def test_what_repr_says() -> None:
    assert repr(FullSoftmax(D, COUNTS)) == "FullSoftmax(dim=8, words=20)"
    assert repr(NCELoss(4, COUNTS, noise=5, sparse=True)) == "NCELoss(dim=4, noise=5, sparse=True, words=20)"


def test_messages_say_the_shapes_that_were_given() -> None:
    layer, h, y = NCELoss(D, COUNTS, noise=5, shared=False), torch.zeros(2, 3, D), torch.zeros(2, 3).long()
    for wrong, of, got in (
        (lambda: layer.scores(h, y[0]), r"scores: y must be int64 \[2, 3\] or \[2, 3, K\]", r"int64 \[3\]"),
        (
            lambda: layer.loss_with(h, y, torch.zeros(2, 4, 5).long()),
            r"loss_with: draws must be int64 \[k\] or \[2, 3, k\]",
            r"int64 \[2, 4, 5\]",
        ),
        (lambda: layer(h.half()[..., 1:], y), r"forward: h must be .* \[B, T, 8\]", r"float16 \[2, 3, 7\]"),
    ):
        with pytest.raises(ValueError, match=rf"^NCELoss\.{of}; got {got}$"):
            wrong()
    with pytest.raises(ValueError, match=r"NCELoss.forward: h has no values on the meta device: use to_empty"):
        layer.to("meta")(h.to("meta"), y.to("meta"))


def test_given_draws_of_a_sequence() -> None:
    layer, (h, y) = NCELoss(D, COUNTS, noise=5, shared=False), batch()
    draws = torch.randint(WORDS, (3, 4, 5))
    wanted = layer.loss_with(h.view(12, D), y.view(12), draws.view(12, 5))
    assert torch.equal(layer.loss_with(h, y, draws=draws), wanted)
    assert layer.loss_with(h, y, draws[0, 0]).isfinite()  # the same for all


class UnitVectors(NCELoss):
    """Output vectors of length 1."""

    def word_vectors(self) -> Tensor:
        """Return them."""
        return F.normalize(self.vectors, dim=1)


class HalfNoise(NCELoss):
    """The noise words count half."""

    def drawn_loss(self, h: Tensor, y: Tensor, draws: Tensor, reduction: str = "mean") -> Tensor:
        """Compute the loss."""
        real, fake = self.target_and_other_scores(h, y, draws)
        losses = -(F.logsigmoid(real - self.log_kq[y]) + F.logsigmoid(self.log_kq[draws] - fake).sum(1) / 2)
        return losses if reduction == "none" else losses.mean()


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_computed_vectors_have_dense_gradients(shared: bool, plain: bool) -> None:
    sparse, dense = (UnitVectors(D, COUNTS, noise=5, shared=shared, sparse=sparse) for sparse in (True, False))
    dense.load_state_dict(sparse.state_dict())
    for layer in (sparse, dense):
        optimizer = RowSGD([layer.vectors, layer.bias], lr=0.1)
        with only_plain(plain):
            seeded(layer, *batch()).backward()
        optimizer.step()
    assert sparse.sparse_parameters() == [sparse.vectors, sparse.bias]
    torch.testing.assert_close(sparse.state_dict(), dense.state_dict())


@pytest.mark.parametrize("base", [NCELoss, SampledSoftmax])
def test_a_custom_loss_of_draws_without_reduction(base: type[NCELoss]) -> None:
    class Squares(base):  # type: ignore[misc, valid-type]
        def drawn_loss(self, h: Tensor, y: Tensor, draws: Tensor) -> Tensor:
            return (h.sum(1) * (y + 1)).square().mean()

    layer, h, y = (
        Squares(2, torch.ones(3), **{"noise" if base is NCELoss else "samples": 2}),
        torch.ones(2, 2),
        torch.tensor([0, 2]),
    )
    assert layer(h, y).item() == 20 and layer(h, y, reduction="none").tolist() == [4, 36]


@pytest.mark.parametrize("shared", [False, True])
def test_an_overridden_formula_is_heard(shared: bool) -> None:
    h, y = batch()[0].view(12, D), torch.arange(12)
    layer = UnitVectors(D, COUNTS, noise=5, shared=shared)
    draws = torch.randint(WORDS, (5,) if shared else (12, 5))
    scores = h @ F.normalize(layer.vectors, dim=1).T + layer.bias
    fake = scores[:, draws] if shared else scores.gather(1, draws)
    real = scores.gather(1, y[:, None])[:, 0] - layer.log_kq[y]
    by_hand = -(F.logsigmoid(real) + F.logsigmoid(layer.log_kq[draws] - fake).sum(1)).mean()
    assert layer.loss_with(h, y, draws).item() == pytest.approx(by_hand.item(), rel=1e-5)
    assert layer.log_prob(h, y).tolist() == pytest.approx(
        scores.log_softmax(1).gather(1, y[:, None])[:, 0].tolist(), rel=1e-5
    )
    torch.manual_seed(4)
    half, whole = (kind(D, COUNTS, noise=5, shared=shared) for kind in (HalfNoise, NCELoss))
    half.load_state_dict(whole.state_dict())
    only_real = whole.scores(h, y) - whole.log_kq[y]
    halves = (whole.loss_with(h, y, draws) - F.logsigmoid(only_real).mean()) / 2  # (R + N + R) / 2, R being the data's
    assert seeded(half, h, y).isfinite() and half.loss_with(h, y, draws).item() == pytest.approx(
        halves.item(), rel=1e-5
    )

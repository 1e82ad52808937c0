"""The form of the arithmetic for a GPU, here on a CPU: held to the compiled loops, and never dependent on the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lmtool.neural import (
    AdaptiveSoftmax,
    ClassSoftmax,
    FullSoftmax,
    HierarchicalSoftmax,
    MorinBengioNodes,
    NCELoss,
    SampledSoftmax,
    clip_gradients,
)
from lmtool.neural.devices import device_path, fits_dense, on_cpu, repeatable
from lmtool.neural.encoders.cbow import CbowModel
from lmtool.neural.encoders.lbl import LblModel
from lmtool.neural.kernels.sparse_rows import lookup
from lmtool.neural.outputs import padded_paths, softmax, tree_nodes
from lmtool.neural.outputs.base import OutputLayer
from lmtool.neural.outputs.noise import Noise
from lmtool.trees import Tree
from tests.conftest import nplm
from tests.neural.test_outputs import COUNTS, SEVERAL, TREE, B, D, O

ONE = Tree(np.empty((0, 2), dtype=np.int32), np.zeros(1, dtype=np.int32))


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def morin_bengio(tree: Tree) -> HierarchicalSoftmax:
    own = MorinBengioNodes(D, torch.randn(tree.nodes), hidden_dim=5, node_dim=4)
    return HierarchicalSoftmax(D, tree, nodes=own)


LAYERS: dict[str, Callable[[], OutputLayer]] = {
    "full": lambda: FullSoftmax(D, COUNTS),
    "tied": lambda: FullSoftmax(D, COUNTS, nn.Parameter(torch.randn(O + 1, D))),
    "hierarchical": lambda: HierarchicalSoftmax(D, TREE, COUNTS),
    "morin_bengio": lambda: morin_bengio(TREE),
    "several codes": lambda: HierarchicalSoftmax(D, SEVERAL, COUNTS[:3]),
    "several codes, morin_bengio": lambda: morin_bengio(SEVERAL),
    "nce": lambda: NCELoss(D, COUNTS, noise=7),
    "nce, tied": lambda: NCELoss(D, COUNTS, nn.Parameter(torch.randn(O + 1, D)), noise=7),
    "nce, own noise": lambda: NCELoss(D, COUNTS, noise=7, shared=False),
    "nce, with log Z": lambda: NCELoss(D, COUNTS, noise=7, learn_normaliser=True),
    "nce, own noise, with log Z": lambda: NCELoss(D, COUNTS, noise=7, shared=False, learn_normaliser=True),
    "sampled": lambda: SampledSoftmax(D, COUNTS, samples=7),
    "adaptive": lambda: AdaptiveSoftmax(D, COUNTS, cutoffs=[5, 12], div_value=2.0),
    "classes": lambda: ClassSoftmax(D, COUNTS, torch.arange(O) % 5),
}


def words(layer: OutputLayer) -> int:
    assert layer.word_count is not None
    return layer.word_count


def same_draws(layer: OutputLayer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have both forms draw the same noise."""
    draws = {shape: torch.randint(O, shape) for shape in ((7,), (B, 7))}
    monkeypatch.setattr(Noise, "draw", lambda self, *shape: draws[shape])


def loss_and_gradients(layer: OutputLayer, h: Tensor, y: Tensor) -> list[Tensor]:
    layer.zero_grad()
    h = h.clone().requires_grad_()
    loss = layer(h, y)
    (3 * loss).backward()
    return [loss.detach(), h.grad, *(p.grad for p in layer.parameters() if p.grad is not None)]  # type: ignore[list-item]


@pytest.mark.parametrize("name", LAYERS)
def test_a_step_as_on_a_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = LAYERS[name]()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    same_draws(layer, monkeypatch)
    h, y = torch.randn(B, D), torch.randint(words(layer), (B,))
    y[:2] = torch.tensor([0, words(layer) - 1])
    want = loss_and_gradients(layer, h, y)
    with device_path():
        found = loss_and_gradients(layer, h, y)
    assert len(found) == len(want)
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_distributions_as_on_a_cpu(name: str) -> None:
    layer = LAYERS[name]()
    h, y = torch.randn(B, D), torch.randint(words(layer), (B, 3))

    def everything() -> list[Tensor]:
        both = layer.log_prob(h, y), layer.log_prob(h, y[:, 0].contiguous())
        return [layer.log_dist(h), *both, layer.probabilities(h, O + 1), *layer.top(h, 2)]

    want = everything()
    with device_path():
        found = everything()
        assert layer.sample(h).shape == (B,)
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_a_step_depends_on_no_data(name: str) -> None:
    # A tensor of the meta device has a shape and no numbers: an operation that needs one raises.
    layer = LAYERS[name]().to("meta")
    h, y = torch.randn(B, D, device="meta", requires_grad=True), torch.zeros(B, dtype=torch.int64, device="meta")
    layer(h, y).backward()
    gradients = [parameter.grad for parameter in layer.parameters()]
    assert all(gradient is not None and gradient.layout is torch.strided for gradient in gradients)
    assert clip_gradients(list(layer.parameters()), 1.0).shape == ()


@pytest.mark.parametrize("where", [nullcontext, device_path])
@pytest.mark.parametrize("name", LAYERS)
def test_nan_of_one_example_stays_its_own(name: str, where: Callable[[], AbstractContextManager[None]]) -> None:
    layer, h = LAYERS[name](), torch.randn(3, D)
    h[1, 2] = torch.nan
    with where():
        loss, grad, *_ = loss_and_gradients(layer, h, torch.tensor([2, 1, 0]))
    assert loss.isnan() and grad[1].isnan().any()
    assert grad[[0, 2]].isfinite().all() and (grad[[0, 2]] != 0).any(1).all()


@pytest.mark.parametrize("where", [nullcontext, device_path])
@pytest.mark.parametrize("name", LAYERS)
def test_a_graph_that_is_kept_gives_the_gradients_twice(
    name: str, where: Callable[[], AbstractContextManager[None]]
) -> None:
    layer, h = LAYERS[name](), torch.randn(3, D, requires_grad=True)
    with where():
        loss = layer(h, torch.tensor([2, 1, 0]))
        first, second = (torch.autograd.grad(loss, h, retain_graph=True)[0] for _ in range(2))
    assert first.equal(second) and first.any()


def test_a_word_without_a_path() -> None:
    layer = HierarchicalSoftmax(D, ONE)
    with device_path():
        h, y = torch.randn(B, D), torch.zeros(B, dtype=torch.int64)
        assert layer(h, y).item() == 0
        assert layer.log_dist(h).abs().max() == 0
        assert layer.sample(h).tolist() == [0] * B


def test_where_paths_are_too_uneven_to_pad(monkeypatch: pytest.MonkeyPatch) -> None:
    h, y = torch.randn(B, D), torch.randint(O, (B,))
    padded, ragged = HierarchicalSoftmax(D, TREE, COUNTS), HierarchicalSoftmax(D, TREE, COUNTS)
    ragged.load_state_dict(padded.state_dict())
    monkeypatch.setattr(padded_paths, "LONGEST", 2)
    ragged._can_pad = padded_paths.PaddedPaths.suits(TREE)
    assert padded._can_pad and not ragged._can_pad
    with device_path():
        for one, other in zip(loss_and_gradients(padded, h, y), loss_and_gradients(ragged, h, y), strict=True):
            torch.testing.assert_close(one, other)


def test_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    h, y = torch.randn(70, D), torch.randint(O, (70,))
    layers = [FullSoftmax(D, COUNTS), ClassSoftmax(D, COUNTS, torch.arange(O) % 5), morin_bengio(TREE)]
    want = [(layer.log_dist(h), loss_and_gradients(layer, h, y)) for layer in layers]
    monkeypatch.setattr(softmax, "OF_DEVICE", 1)
    monkeypatch.setattr("lmtool.neural.outputs.classes.OF_DEVICE", 1)
    monkeypatch.setattr(tree_nodes, "OF_DEVICE", 1)
    with device_path():
        for layer, (dist, step) in zip(layers, want, strict=True):
            torch.testing.assert_close(layer.log_dist(h), dist)
            for one, other in zip(loss_and_gradients(layer, h, y), step, strict=True):
                torch.testing.assert_close(one, other)


def test_bf16_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    from lmtool.config.training import Precision

    torch.set_default_dtype(torch.float32)
    layer = FullSoftmax(D, COUNTS, precision=Precision.bf16)
    h, y = torch.randn(B, D), torch.randint(O, (B,))
    with device_path():
        narrow = layer(h, y)
        layer.precision = Precision.fp32
        assert narrow.dtype == torch.float32
        assert 0 < abs(narrow.item() - layer(h, y).item()) < 0.02


def test_draws_have_the_distribution() -> None:
    log_q = torch.tensor([0.5, 0.0, 0.3, 0.2, 0.0]).log()
    noise = Noise(log_q)
    with device_path():
        drawn = noise.draw(40_000, 2)
    share = drawn.flatten().bincount(minlength=5) / drawn.numel()
    assert share[1] == share[4] == 0 and noise.log_q.isfinite().all()
    torch.testing.assert_close(share, log_q.exp(), atol=0.01, rtol=0)


ENCODERS: dict[str, Any] = {
    "nplm": nplm(),
    "history": nplm(history=12, forgetting=[0.7, 1.0]),
    "gated": nplm(layers=2, gated=True, layer_norm=True, direct=True),
    "lbl": LblModel(kind="lbl", context_size=3, embedding_dim=4, tied=False, dropout=0.0, diagonal=False),
    "cbow": CbowModel(kind="cbow", context_size=3, embedding_dim=4, tied=False, dropout=0.0),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_as_on_a_cpu(name: str) -> None:
    encoder = ENCODERS[name].build(O + 1, tied=False, sparse=False)
    contexts = torch.randint(O, (B, encoder.context_size))
    gradient = torch.randn(B, encoder.output_dim)

    def hidden_and_gradients() -> list[Tensor]:
        encoder.zero_grad()
        hidden = encoder(contexts)
        hidden.backward(gradient)
        return [hidden.detach(), *(p.grad for p in encoder.parameters())]

    want = hidden_and_gradients()
    with device_path():
        for one, other in zip(hidden_and_gradients(), want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_clipping_as_on_a_cpu() -> None:
    ids = torch.randint(O, (B,))

    def clipped(limit: float, sparse: bool) -> list[Tensor]:
        torch.manual_seed(1)
        weights = [nn.Parameter(torch.randn(O, D)), nn.Parameter(torch.randn(O))]
        for weight in weights:
            lookup(weight, ids, sparse=sparse).pow(2).sum().backward()
        norm = clip_gradients(weights, limit)
        return [norm, *(weight.grad.to_dense() for weight in weights)]  # type: ignore[union-attr]

    for limit in (0.5, 1e6):
        for sparse in (False, True):
            want = clipped(limit, sparse)
            with device_path():
                torch.testing.assert_close(clipped(limit, sparse), want)


def test_the_switch_and_what_a_device_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.zeros(1)
    with device_path():
        assert not on_cpu(tensor)
    assert on_cpu(tensor) and not on_cpu(tensor.to("meta"))
    cuda = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 20, 1 << 30))
    assert fits_dense(cuda, 1 << 15) and not fits_dense(cuda, (1 << 15) + 1)
    assert fits_dense(tensor.device, 1 << 40)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    for device, wanted in ((cuda, True), (cuda, False), (tensor.device, True)):
        with repeatable(device, wanted):
            assert torch.are_deterministic_algorithms_enabled() is (wanted and device.type == "cuda")
    assert not torch.are_deterministic_algorithms_enabled()

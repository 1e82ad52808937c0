"""The contracts of encoders and output layers: what a custom one gets by default, and how lmtool finds its own."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lmtool.config.training import Precision
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.neural import Encoder, FullSoftmax, HierarchicalSoftmax, NCELoss, OutputLayer, clip_gradients
from lmtool.neural.encoders.nplm import NPLM
from lmtool.neural.encoders.options import NplmModel
from lmtool.neural.encoders.settings import Activation
from lmtool.neural.forms import only_plain, used
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.options import HierarchicalOutput, NodeForm
from lmtool.trees import huffman_tree
from tests.conftest import neural, nplm


class Fixed(OutputLayer):
    """One distribution for all contexts; only what a layer must have is implemented."""

    def __init__(self, probabilities: list[float]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(probabilities).log())

    def loss(self, h: Tensor, y: Tensor) -> Tensor:
        return -self.logits.log_softmax(0)[y].mean()

    def log_probs(self, h: Tensor) -> Tensor:
        return self.logits.double().log_softmax(0).expand(len(h), -1)


class Last(Encoder):
    """The embedding of the last word; only what is abstract is implemented."""

    def of_embeddings(self, x: Tensor) -> Tensor:
        return x[:, -1]


def test_what_an_output_layer_gets_by_default() -> None:
    layer, h = Fixed([0.5, 0.1, 0.4]), torch.zeros(2, 3)
    y = torch.tensor([[0, 2], [1, 0]])
    assert layer(h, y[:, 0]).item() == pytest.approx(-(math.log(0.5) + math.log(0.1)) / 2)
    assert not layer.log_dist(h).requires_grad
    torch.testing.assert_close(layer.log_prob(h, y).exp(), torch.tensor([[0.5, 0.4], [0.1, 0.5]], dtype=torch.float64))
    assert layer.log_prob(h, y[:, 0]).shape == (2,)
    words, log_p = layer.top(h, 2)
    assert words.tolist() == [[0, 2], [0, 2]] and log_p.dtype == torch.float64
    assert layer.top(h, 9)[0].shape == (2, 3)
    torch.manual_seed(1)
    share = layer.sample(h[:1].expand(20_000, 3)).bincount() / 20_000
    torch.testing.assert_close(share, torch.tensor([0.5, 0.1, 0.4]), atol=0.015, rtol=0)
    assert layer.sparse_parameters() == [] and layer.word_vectors() is None and layer.tree is None
    assert layer.uses_all_parameters and not layer.self_normalized
    for member in (lambda: layer.unnormalized_log_prob(h, y[:, 0]), lambda: layer.log_partition(h)):
        with pytest.raises(NotImplementedError, match="Fixed is not self-normalized"):
            member()
    assert used(layer) == []


def test_what_an_encoder_gets_by_default() -> None:
    encoder = Last(nplm(across_sentences=True), 5, sparse=True)
    assert (encoder.context_size, encoder.output_dim, encoder.across_sentences) == (3, 6, True)
    torch.testing.assert_close(encoder(torch.tensor([[0, 1, 4]])), encoder.embedding.weight[[4]])
    assert encoder.sparse_parameters() == [encoder.embedding.weight]
    assert Last(nplm(), 5).sparse_parameters() == []


class First(Last):
    """An encoder with its own encode."""

    def encode(self, contexts: Tensor) -> Tensor:
        """Return the embedding of the first word."""
        return self.embedding(contexts)[:, 0]


def test_what_custom_layers_are_given_is_checked() -> None:
    layer, h = Fixed([0.5, 0.1, 0.4]), torch.zeros(2, 3)
    nce = NCELoss(3, torch.ones(3), noise=1)
    for call, error in (
        (lambda: layer(h, torch.tensor([0])), r"Fixed.forward: y must be int64 \[2\]; got int64 \[1\]"),
        (
            lambda: layer(h[0], torch.tensor([0])),
            r"Fixed.forward: h must be a floating-point tensor \[B, D\] or \[B, T, D\]; got",
        ),
        (
            lambda: layer(h[:0], torch.tensor([]).long()),
            r"Fixed.forward: h must have one example or more; got \[0, 3\]",
        ),
        (lambda: layer.log_dist(h.long()), r"Fixed.log_dist: h must be .*; got int64 \[2, 3\]"),
        (lambda: layer.probabilities(h.long(), 3), r"Fixed.probabilities: h must be .*; got int64 \[2, 3\]"),
        (lambda: layer.sample(h.long()), r"Fixed.sample: h must be .*; got int64 \[2, 3\]"),
        (lambda: nce.log_partition(h.long()), r"NCELoss.log_partition: h must be .*; got int64 \[2, 3\]"),
        (lambda: layer.log_prob(h, [[0, 1]]), r"Fixed.log_prob: y must be int64 \[2\] or \[2, K\]"),
        (lambda: nce.unnormalized_log_prob(h, [[0, 1]]), r"NCELoss.unnormalized_log_prob: y must be int64 \[2\]; got"),
        (lambda: layer.top(h, 0), "Fixed.top: k must be a whole number of 1 or more; got 0"),
    ):
        with pytest.raises(ValueError, match=error):
            call()
    # It does not say how many words it has, nor D: a model knows.
    NeuralModel(Last(nplm(), 4), layer, 4)
    assert (layer.input_dim, layer.word_count) == (6, 3)
    with pytest.raises(ValueError, match=r"Fixed.forward: y must be ids from 0 to 2; got a minimum of -1"):
        layer(torch.zeros(2, 6), torch.tensor([0, -1]))


def test_where_p_is_nan_nothing_is_drawn() -> None:
    with pytest.raises(ValueError, match=r"Fixed.sample: the distribution after h is NaN"):
        Fixed([0.5, math.nan]).sample(torch.zeros(2, 3))


@pytest.mark.parametrize("kind", [Last, First])
def test_contexts_of_custom_encoders_are_checked(kind: type[Last]) -> None:
    encoder = kind(nplm(), 5)
    with pytest.raises(
        ValueError, match=f"{kind.__name__}.forward: contexts must be ids from 0 to 4; got a maximum of 5"
    ):
        encoder(torch.tensor([[0, 1, 5]]))
    with pytest.raises(ValueError, match=r"contexts must be int64 \[B, 3\]; got int64 \[1, 2\]"):
        encoder(torch.tensor([[0, 1]]))
    found = encoder([[0, 1, 4]])
    assert torch.equal(found, encoder.embedding.weight[[0 if kind is First else 4]])
    encoder.of_embeddings = lambda x: x[:, 7]  # type: ignore[method-assign]  # an error in its code
    if kind is Last:
        with pytest.raises(IndexError, match="index 7"):
            encoder(torch.tensor([[0, 1, 4]]))


def test_what_is_abstract_must_be_implemented() -> None:
    with pytest.raises(TypeError, match=r"abstract method .?of_embeddings"):
        type("Empty", (Encoder,), {})()
    layer, h = type("Empty", (OutputLayer,), {})(), torch.zeros(2, 3)
    with pytest.raises(NotImplementedError, match=r"Empty must implement loss\(h, y\)"):
        layer(h, [0, 1])
    for call in (layer.log_dist, lambda h: layer.log_prob(h, [0, 1]), lambda h: layer.top(h, 1), layer.sample):
        with pytest.raises(NotImplementedError, match=r"Empty must implement log_probs\(h\)"):
            call(h)


def test_a_layer_that_needs_a_tree_says_so(toy: Corpus) -> None:
    with pytest.raises(UserError, match=r"output=hierarchical is built over a tree: choose one with tree=NAME"):
        neural(toy, HierarchicalOutput("hierarchical", NodeForm.dot, 5, 4))


def test_of_several_names_one_is_imported_without_the_others() -> None:
    code = (
        "import sys, lmtool.neural; assert 'torch' not in sys.modules;"
        "import lmtool.neural.encoders.nplm; assert not any('lmtool.neural.outputs' in name for name in sys.modules);"
        "from lmtool.neural import NCELoss; assert 'lmtool.neural.outputs.hierarchical' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0


# What an audit by plain programs from the papers found: each gave a wrong number, or none, without a word


TREE = huffman_tree(np.array([5, 3, 2, 1]))


def encoder(activation: Activation, *, gated: bool) -> NPLM:
    sizes = {"hidden_dim": 64, "layers": 1}
    settings = NplmModel(
        "nplm", 2, 8, False, 0.0, **sizes, direct_connections=False, activation=activation, layer_norm=True, gated=gated
    )
    return settings.build(9, tied=False, sparse=False)


def test_a_second_derivative_through_a_form_is_an_error() -> None:
    layer, h = HierarchicalSoftmax(3, TREE), torch.randn(4, 3, requires_grad=True)
    (grad,) = torch.autograd.grad(layer(h, torch.arange(4)), [h], create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        grad.square().sum().backward()
    with only_plain():
        (grad,) = torch.autograd.grad(layer(h, torch.arange(4)), [h], create_graph=True)
        grad.square().sum().backward()
    assert h.grad is not None


@pytest.mark.parametrize("activation", Activation)
def test_nan_stays(activation: Activation) -> None:
    made = encoder(activation, gated=False)
    with torch.no_grad():
        made.embedding.weight[7] = torch.nan
    assert made(torch.full((3, 2), 7)).isnan().all() and used(made)


def test_each_norm_has_its_own_epsilon_and_may_be_replaced() -> None:
    made, contexts = encoder(Activation.tanh, gated=True), torch.randint(9, (5, 2))
    norms, gate_norms = made.norms, made.gate_norms
    assert norms is not None and gate_norms is not None
    first = gate_norms[0]
    assert isinstance(first, nn.LayerNorm)
    first.eps = 0.5
    assert near_plain(made, contexts) and used(made)
    norms[0] = nn.Identity()
    made.eval()  # chosen again
    assert near_plain(made, contexts)


def near_plain(made: NPLM, contexts: Tensor) -> bool:
    found = made(contexts)
    with only_plain():
        return torch.allclose(found, made(contexts), rtol=1e-5, atol=1e-6)


def test_an_infinite_weight_of_a_node() -> None:
    layer, h = HierarchicalSoftmax(3, TREE), torch.ones(2, 3)
    with torch.no_grad():
        layer.nodes.bias[1] = -torch.inf
    found = layer.log_dist(h)
    with only_plain():
        torch.testing.assert_close(found, layer.log_dist(h), rtol=1e-6, atol=1e-6)
    assert not found.isnan().any()


def test_a_precision_by_its_name() -> None:
    assert FullSoftmax(3, torch.ones(4), precision="bf16").precision is Precision.bf16  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nonsense"):
        FullSoftmax(3, torch.ones(4), precision="nonsense")  # type: ignore[arg-type]


def test_a_parameter_that_is_given_twice_is_clipped_once() -> None:
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    weight.grad = weight.detach().clone()
    assert clip_gradients([weight, weight], 1.0).item() == pytest.approx(5.0)
    assert weight.grad.norm().item() == pytest.approx(1.0, rel=1e-5)

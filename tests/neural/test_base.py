"""The contracts of encoders and output layers: what one's own gets by default, and how lmtool finds its own."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lmtool.neural as public
from lmtool.config.groups import CountModelConfig, EncoderConfig, OutputConfig
from lmtool.config.options import kinds, settings_class
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.neural import Encoder, FullSoftmax, OutputLayer
from lmtool.neural.kernels.sparse_rows import logistic_loss
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs import softmax
from lmtool.neural.outputs.hierarchical import HierarchicalOutput, NodeForm
from tests.conftest import neural, nplm


class Fixed(OutputLayer):
    """One distribution for all contexts; only what is abstract is implemented."""

    def __init__(self, probabilities: list[float]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(probabilities).log())

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        return -self.logits.log_softmax(0)[y].mean()

    def log_dist(self, h: Tensor) -> Tensor:
        return self.logits.detach().double().log_softmax(0).expand(len(h), -1)


class Last(Encoder):
    """The embedding of the last word; only what is abstract is implemented."""

    def of_embeddings(self, x: Tensor) -> Tensor:
        return x[:, -1]


def test_what_an_output_layer_gets_by_default() -> None:
    layer, h = Fixed([0.5, 0.1, 0.4]), torch.zeros(2, 3)
    y = torch.tensor([[0, 2], [1, 0]])
    torch.testing.assert_close(layer.log_prob(h, y).exp(), torch.tensor([[0.5, 0.4], [0.1, 0.5]], dtype=torch.float64))
    assert layer.log_prob(h, y[:, 0]).shape == (2,)
    words, log_p = layer.top(h, 2)
    assert words.tolist() == [[0, 2], [0, 2]] and log_p.dtype == torch.float64
    assert layer.top(h, 9)[0].shape == (2, 3)
    torch.manual_seed(1)
    share = layer.sample(h[:1].expand(20_000, 3)).bincount() / 20_000
    torch.testing.assert_close(share, torch.tensor([0.5, 0.1, 0.4]), atol=0.015, rtol=0)
    assert layer.row_parameters() == [] and layer.word_vectors() is None and layer.tree is None
    assert layer.uses_all_parameters and not layer.self_normalised
    for member in (lambda: layer.unnormalised(h, y[:, 0]), lambda: layer.trained_log_z(h)):
        with pytest.raises(NotImplementedError, match="Fixed is not self-normalised"):
            member()


def test_what_an_encoder_gets_by_default() -> None:
    encoder = Last(nplm(across_sentences=True), 5, sparse=True)
    assert (encoder.context_size, encoder.output_dim, encoder.across_sentences) == (3, 6, True)
    torch.testing.assert_close(encoder(torch.tensor([[0, 1, 4]])), encoder.embedding.weight[[4]])
    assert encoder.row_parameters() == [encoder.embedding.weight]
    assert Last(nplm(), 5).row_parameters() == []


def test_what_is_compiled_of_an_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, object] = {}
    monkeypatch.setattr(torch, "compile", lambda form, **given: options.update(given) or (lambda x: 2 * form(x)))
    encoder, contexts = Last(nplm(), 5), torch.tensor([[0, 1, 4]])
    plain = encoder(contexts)
    encoder.compile(dynamic=True)
    torch.testing.assert_close(encoder(contexts), 2 * plain)
    assert options == {"dynamic": True}


class Reversed(Last):
    """An encoder with a forward of its own."""

    def forward(self, contexts: Tensor) -> Tensor:
        """The embedding of the first word."""
        return self.embedding(contexts)[:, 0]


def test_what_ones_own_are_given_is_checked() -> None:
    layer, h = Fixed([0.5, 0.1, 0.4]), torch.zeros(2, 3)
    for call, error in (
        (lambda: layer(h, torch.tensor([0])), r"Fixed.forward: y must be int64 \[2\]; got int64 \[1\]"),
        (lambda: layer(h[0], torch.tensor([0])), r"Fixed.forward: h must be a floating-point tensor \[B, D\]; got"),
        (lambda: layer.log_dist(h.long()), r"Fixed.log_dist: h must be .*; got int64 \[2, 3\]"),
        (lambda: layer.log_prob(h, [[0, 1]]), r"Fixed.log_prob: y must be int64 \[2\] or \[2, K\]"),
        (lambda: layer.top(h, 0), "Fixed.top: k must be a whole number of 1 or more; got 0"),
    ):
        with pytest.raises(ValueError, match=error):
            call()
    # It does not say how many words it has, nor D: a model knows.
    NeuralModel(Last(nplm(), 4), layer, 4)
    assert (layer.input_dim, layer.word_count) == (6, 3)
    with pytest.raises(ValueError, match=r"Fixed.forward: y must be ids from 0 to 2; got a minimum of -100"):
        layer(torch.zeros(2, 6), torch.tensor([0, -100]))
    assert Fixed.forward.__name__ == "forward" and inspect.signature(Fixed.forward).parameters.keys() == {
        "self",
        "h",
        "y",
    }


@pytest.mark.parametrize("kind", [Last, Reversed])
def test_contexts_of_ones_own_are_checked(kind: type[Last]) -> None:
    encoder = kind(nplm(), 5)
    with pytest.raises(
        ValueError, match=f"{kind.__name__}.forward: contexts must be ids from 0 to 4; got a maximum of 5"
    ):
        encoder(torch.tensor([[0, 1, 5]]))
    with pytest.raises(ValueError, match=r"contexts must be int64 \[B, 3\]; got int64 \[1, 2\]"):
        encoder(torch.tensor([[0, 1]]))
    encoder.of_embeddings = lambda x: x[:, 7]  # an error of its own
    with pytest.raises(IndexError, match="index 7"):
        Last.forward(encoder, torch.tensor([[0, 1, 4]]))


@pytest.mark.parametrize("base", [Encoder, OutputLayer])
def test_what_is_abstract_must_be_implemented(base: type) -> None:
    with pytest.raises(TypeError, match="abstract"):
        type("Empty", (base,), {})()


@pytest.mark.parametrize("group", ["model", "output"])
def test_each_option_has_one_settings_class(group: str) -> None:
    base = {"model": EncoderConfig, "output": OutputConfig}[group]
    types = [settings_class(group, name) for name in kinds(group)]
    types = [type for type in types if not issubclass(type, CountModelConfig)]
    assert len(types) >= 3 and all(issubclass(type, base) for type in types)


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


def test_public_names_are_documented() -> None:
    assert set(public.__all__) <= set(dir(public))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = public.Nothing
    for name in public.__all__:
        item = getattr(public, name)
        members = [item, *(value for key, value in vars(item).items() if inspect.isfunction(value) and key[0] != "_")]
        if inspect.isclass(item) and "__init__" in vars(item):
            members.append(item.__init__)
        for member in members:
            text = inspect.getdoc(member) or ""
            assert len(text) > 20 and not text.startswith("As "), (name, member)


# Gradients that the forward pass computes are given to autograd, which takes over what nobody else holds.


def test_gradients_are_taken_over_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "TINY", 0)
    computed = []

    def recorded(*arguments: Any) -> object:
        loss, gradients = compute(*arguments)
        computed.extend(gradient.data_ptr() for gradient in gradients)
        return loss, gradients

    compute = softmax._Workspace.loss_and_gradients
    monkeypatch.setattr(softmax._Workspace, "loss_and_gradients", recorded)
    layer = FullSoftmax(4, torch.arange(9))
    layer(torch.randn(8, 4), torch.arange(8)).backward()
    assert [layer.vectors.grad.data_ptr(), layer.bias.grad.data_ptr()] == computed[1:]


@pytest.mark.parametrize("form", ["softmax", "logistic"])
def test_a_graph_that_is_kept_has_its_gradients_again(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "TINY", 0)
    torch.manual_seed(0)
    h, layer = torch.randn(8, 4, requires_grad=True), FullSoftmax(4, torch.arange(9))
    signs = torch.tensor([1, -1] * 16, dtype=torch.int32).view(8, 4)
    loss = layer(h, torch.arange(8)) if form == "softmax" else logistic_loss(h, signs)
    first = torch.autograd.grad(3 * loss, h, retain_graph=True)[0].clone()
    for factor in (1, 3):
        again = torch.autograd.grad(factor * loss, h, retain_graph=True)[0]
        torch.testing.assert_close(again, factor / 3 * first)
    loss.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()

"""The contracts of encoders and output layers: what a custom one gets by default, and how lmtool finds its own."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import lmtool.neural as public
from lmtool.config.groups import CountModelConfig, EncoderConfig, OutputConfig
from lmtool.config.options import kinds, settings_class
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from lmtool.neural import Encoder, NCELoss, OutputLayer
from lmtool.neural.forms import used
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.options import HierarchicalOutput, NodeForm
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


def test_what_is_compiled_of_an_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, object] = {}
    monkeypatch.setattr(torch, "compile", lambda form, **given: options.update(given) or (lambda x: 2 * form(x)))
    encoder, contexts = Last(nplm(), 5), torch.tensor([[0, 1, 4]])
    plain = encoder(contexts)
    encoder.compile(dynamic=True)
    torch.testing.assert_close(encoder(contexts), 2 * plain)
    assert options == {"dynamic": True}


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

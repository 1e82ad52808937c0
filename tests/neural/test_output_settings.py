"""The settings of output layers: what they refuse, and which layer they build."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from lmtool.config.training import Precision
from lmtool.errors import UserError
from lmtool.neural import (
    AdaptiveSoftmax,
    ClassSoftmax,
    DotNodes,
    FullSoftmax,
    HierarchicalSoftmax,
    NCELoss,
    SampledSoftmax,
)
from lmtool.neural.forms import network_step
from lmtool.neural.model import NeuralModel
from lmtool.neural.outputs.base import OutputLayer
from lmtool.neural.outputs.hierarchical import MorinBengioNodes
from lmtool.neural.outputs.options import (
    AdaptiveOutput,
    ClassesOutput,
    HierarchicalOutput,
    NceOutput,
    NodeForm,
    SampledOutput,
    SoftmaxOutput,
)
from lmtool.trees import balanced_tree
from tests import options
from tests.conftest import nplm

O, D = 9, 4  # noqa: E741
COUNTS = torch.arange(O, 0, -1)
TREE = balanced_tree(torch.arange(O).numpy())


def nce(noise: int = 3, power: float = 1.0) -> NceOutput:
    return NceOutput("nce", noise, False, power, True)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: AdaptiveOutput("adaptive", [], 4.0), "output.cutoffs=.*1 or more, or null"),
    (lambda: AdaptiveOutput("adaptive", [0, 3], 4.0), "output.cutoffs=.*1 or more, or null"),
    (lambda: AdaptiveOutput("adaptive", [3, 3], 4.0), "output.cutoffs=.*ascending"),
    (lambda: AdaptiveOutput("adaptive", [5, 3], 4.0), "output.cutoffs=.*ascending"),
    (lambda: AdaptiveOutput("adaptive", [1, 1 << 63], 4.0), "output.cutoffs=.*below 2"),
    # Those that do not fit nine words.
    (
        lambda: AdaptiveOutput("adaptive", [3, 9], 1.0).build(D, COUNTS, None, None),
        "output.cutoffs=.*to at most 8",
    ),
    (
        lambda: AdaptiveOutput("adaptive", [3, 6], 2.5).build(D, COUNTS, None, None),
        "div_value=2.5: must be at most 2,",
    ),
    (lambda: ClassesOutput("classes", 10).build(D, COUNTS, None, None), "output.classes=10: at most 9"),
    (
        lambda: SampledOutput("sampled", 10, 1.0).build(D, COUNTS, None, None),
        "output.num_samples=10: must be from 1 to 9",
    ),
    (lambda: nce(noise=10).build(D, COUNTS, None, None), "output.num_noise=10: must be from 1 to 9"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_settings_that_are_refused(settings: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings()


def test_settings_at_their_limits_build_a_layer() -> None:
    vectors = nn.Parameter(torch.randn(O + 2, D))
    full = SoftmaxOutput("softmax", Precision.bf16).build(D, COUNTS, vectors, None)
    assert type(full) is FullSoftmax and full.vectors is vectors and full.precision is Precision.bf16
    adaptive = AdaptiveOutput("adaptive", [1, 8], 2.0).build(D, COUNTS, None, None)
    assert isinstance(adaptive, AdaptiveSoftmax) and adaptive.layer.cutoffs == [1, 8, 9]
    assert [tail[0].out_features for tail in adaptive.layer.tail] == [2, 1] and adaptive.sparse_parameters() == []
    assert AdaptiveOutput("adaptive", None, 1000).cutoffs is None and AdaptiveOutput("adaptive", [1], 1).div_value == 1
    classes = ClassesOutput("classes", 9).build(D, COUNTS, None, None)
    assert isinstance(classes, ClassSoftmax) and len(classes.sparse_parameters()) == 2
    # Three classes, about the square root of nine.
    assert len(ClassesOutput("classes", None).build(D, COUNTS, None, None).class_bias) == 3
    sampled = SampledOutput("sampled", 9, 2).build(D, COUNTS, vectors, None)
    assert isinstance(sampled, SampledSoftmax) and sampled.vectors is vectors and len(sampled.sparse_parameters()) == 2
    assert (
        SampledOutput("sampled", 1, 0).unigram_power == 0
        and nce(power=0).unigram_power == 0
        and nce(power=2).unigram_power == 2
    )
    own = nce(noise=9).build(D, COUNTS, vectors, None)
    assert isinstance(own, NCELoss) and own.vectors is vectors and len(own.sparse_parameters()) >= 2


def test_what_a_layer_takes_where_nothing_is_said() -> None:
    counts = torch.ones(2000)
    nce, sampled = NCELoss(D, counts), SampledSoftmax(D, counts)
    assert (nce.noise, nce.shared, nce.normalizer, nce.sparse_parameters()) == (100, True, None, [])
    assert (sampled.samples, sampled.sparse_parameters()) == (1000, [])
    assert DotNodes(D, torch.zeros(3)).sparse_parameters() == []
    assert len(DotNodes(D, torch.zeros(3), sparse=True).sparse_parameters()) == 2
    assert NCELoss(D, COUNTS, noise=1).noise == SampledSoftmax(D, COUNTS, samples=1).samples == 1
    for size in (0, 10, 1.0):
        with pytest.raises(ValueError, match=f"noise={size}: must be from 1 to 9"):
            NCELoss(D, COUNTS, noise=size)
        with pytest.raises(ValueError, match=f"samples={size}: must be from 1 to 9"):
            SampledSoftmax(D, COUNTS, samples=size)
    torch.manual_seed(0)
    for layer in (FullSoftmax(400, COUNTS), NCELoss(400, COUNTS, noise=1)):  # scores of about 1 where h is of about 1
        assert layer.vectors.std().item() == pytest.approx(400**-0.5, rel=0.1)
    adaptive = AdaptiveSoftmax(16, counts).layer  # 20 and 50 times the square root of 2000, but 20 % and 50 % of it
    assert adaptive.cutoffs == [400, 1000, 2000] and adaptive.div_value == 4


@pytest.mark.parametrize("name", options.LAYERS)
def test_hidden_has_the_type_and_the_dimension_of_the_weights(name: str) -> None:
    layer = options.output_layer(name, D, COUNTS)
    assert layer.log_dist(torch.zeros(2, D)).shape == (2, O) and layer.word_count == O
    with pytest.raises(ValueError, match=rf"{type(layer).__name__}.log_dist: h must be .*float64"):
        layer.log_dist(torch.zeros(2, D, dtype=torch.float64))
    with pytest.raises(ValueError, match=rf"{type(layer).__name__}.forward: h must be .*\[2, 5\]"):
        layer(torch.zeros(2, D + 1), torch.arange(2))


def test_the_nodes_of_a_hierarchical_layer() -> None:
    dot = HierarchicalOutput("hierarchical", NodeForm.dot, 5, 3).build(D, COUNTS, None, TREE)
    form = HierarchicalOutput("hierarchical", NodeForm.morin_bengio, 5, 3).build(D, COUNTS, None, TREE)
    assert isinstance(dot, HierarchicalSoftmax) and not isinstance(dot.nodes, MorinBengioNodes)
    assert isinstance(form.nodes, MorinBengioNodes) and form.nodes.nodes.shape == (O - 1, 3)
    assert form.nodes.hidden.out_features == 5 and len(dot.sparse_parameters()) == len(form.sparse_parameters()) == 2
    # Where the hidden is 0, both start at the unigram distribution, of half an occurrence more on either side.
    half = balanced_tree(torch.arange(2).numpy())
    layer = HierarchicalOutput("hierarchical", NodeForm.dot, 5, 3).build(D, torch.tensor([3, 1]), None, half)
    torch.testing.assert_close(layer.log_dist(torch.zeros(1, D)).exp()[0], torch.tensor([0.7, 0.3]).double())


def test_probabilities_have_columns_of_0_behind_the_words() -> None:
    torch.manual_seed(0)
    h = torch.randn(3, D)
    full = FullSoftmax(D, COUNTS, nn.Parameter(torch.randn(O + 2, D)))
    for layer in (full, AdaptiveSoftmax(D, COUNTS, cutoffs=[3])):
        for width in (O, O + 1, 40):
            p = layer.probabilities(h, width)
            assert p.shape == (3, width) and (p[:, O:] == 0).all()
            torch.testing.assert_close(p[:, :O], layer.log_dist(h).exp().to(p.dtype), atol=1e-6, rtol=1e-5)
    assert full.word_vectors().shape == (O, D) and full.probabilities(h[:0], O).shape == (0, O)


def test_which_layers_a_network_step_is_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_step, "MAX_SCORES", 5 * O)
    encoder = nplm().build(O + 1, tied=False, sparse=True)
    dim = encoder.output_dim

    def is_made(layer: OutputLayer, examples: int) -> bool:
        return network_step.network_step(NeuralModel(encoder, layer, O + 1), 0.0, examples, None) is not None

    assert [is_made(FullSoftmax(dim, COUNTS), examples) for examples in (5, 6)] == [True, False]  # more scores
    for layer in (
        FullSoftmax(dim, COUNTS, precision=Precision.bf16),
        FullSoftmax(dim, COUNTS, nn.Parameter(torch.randn(O + 1, dim))),
        type("Other", (FullSoftmax,), {})(dim, COUNTS),
        NCELoss(dim, COUNTS, noise=2),
    ):
        assert not is_made(layer, 1)


def test_what_a_custom_layer_is_given_is_checked() -> None:
    class Even(OutputLayer):
        """Two words of equal probability."""

        def loss(self, h: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            """Compute ln 2."""
            return h.sum() * 0 + torch.tensor(2.0).log()

        def log_probs(self, h: torch.Tensor) -> torch.Tensor:
            """Compute half and half."""
            return torch.full((len(h), 2), 0.5, dtype=torch.float64).log()

    layer, h = Even(), torch.zeros(2, D)
    assert layer(h, [0, 1]).item() == pytest.approx(0.6931472)
    assert layer.probabilities(h, 3).tolist() == [[0.5, 0.5, 0]] * 2
    with pytest.raises(ValueError, match=r"Even.forward: h must have one example or more; got \[0, 4\]"):
        layer(h[:0], torch.empty(0, dtype=torch.int64))
    assert layer.log_prob(h[:0], torch.empty(0, dtype=torch.int64)).shape == (0,)
    assert layer.top(h, 1)[0].shape == (2, 1) and layer.sample(h).shape == (2,) and layer.sample(h[:0]).shape == (0,)


def test_vectors_that_do_not_fit_are_refused() -> None:
    for shape in ((O - 1, D), (O, D + 1), (O,)):
        for layer in (FullSoftmax, NCELoss, SampledSoftmax):
            with pytest.raises(ValueError, match=f"{layer.__name__}: vectors"):
                layer(D, COUNTS, nn.Parameter(torch.randn(shape)))

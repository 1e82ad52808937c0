"""The settings of output layers: what they refuse, and which layer they build."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from torch import nn

from lmtool.config.groups import EncoderConfig
from lmtool.config.options import conf_dir
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
    build,
)
from lmtool.neural.encoders.options import CbowModel, LblModel
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
from lmtool.training.plan import learning_rate
from lmtool.training.schedules import StepsSchedule
from lmtool.trees import balanced_tree
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
    (lambda: AdaptiveOutput("adaptive", [3, 9], 1.0).build(D, COUNTS, None, None), "output.cutoffs=.*to at most 8"),
    (lambda: AdaptiveOutput("adaptive", [3, 6], 2.5).build(D, COUNTS, None, None), "div_value=2.5: must be at most 2,"),
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


# The weights of encoders are counted before they are allocated


@pytest.mark.parametrize(
    ("model", "count"),
    [
        # 10 words, vectors of 6; 3 x 6 numbers are read by 8 units, those by 8 more, and 5 by a projection.
        (nplm(layers=2, projection_dim=5), 10 * 6 + 18 * 8 + 8 * 8 + 8 * 5),
        (nplm(layers=2, gated=True), 10 * 6 + 18 * 16 + 8 * 16),
        (nplm(layers=0), 60),
        (nplm(layers=0, projection_dim=5), 60 + 18 * 5),
        (nplm(fofe_window=9, forgetting_factors=[0.5, 1.0]), 60 + 5 * 6 * 8),
        (LblModel("lbl", 3, 6, None, 0.0, False), 60 + 3 * 36),
        (LblModel("lbl", 3, 6, None, 0.0, True), 60 + 18),
        (CbowModel("cbow", 3, 6, None, 0.0), 60),
    ],
)
def test_weights_of_each_encoder(model: EncoderConfig, count: int) -> None:
    assert model.weight_count(10) == count
    # All but biases, norms and the 2 factors for each of 9 words and scales of 6 components of a history.
    weights = [p for p in model.build(10, tied=False, sparse=False).parameters() if p.dim() > 1 and p.shape[0] != 2]
    assert sum(p.numel() for p in weights) == count


def test_too_many_weights_are_refused_by_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nplm(layers=2, projection_dim=5)
    monkeypatch.setattr(build, "memory_available", lambda: 4 * 308)
    build.require_memory(model, 10)
    monkeypatch.setattr(build, "memory_available", lambda: 4 * 308 - 1)
    said = (
        "model.embedding_dim=6, model.context_size=3, model.layers=2, model.hidden_dim=8, model.projection_dim=5: 308 "
    )
    with pytest.raises(UserError, match=said + "parameters with a vocabulary of 10 words"):
        build.require_memory(model, 10)


# Presets of conf/model start from nplm and say only what differs; any output layer goes with them


def composed(*overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(conf_dir()), version_base=None):
        values = OmegaConf.to_container(compose("train", overrides=list(overrides)))
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


@pytest.mark.parametrize("name", ["mikolov2010", "zaremba2014_medium", "merity2018"])
def test_recurrent_networks_of_papers(name: str, lmtool: Callable[..., str]) -> None:
    small = ["model.embedding_dim=8", "model.hidden_dim=8", "training.epochs=2", "training.batch_size=4"]
    lmtool("train", f"+experiment={name}", "data=toy", *small, "hydra.run.dir=run")
    lmtool("eval", "run=run", "hydra.run.dir=eval")
    trained, evaluated = (json.loads(Path(run, "result.json").read_text()) for run in ("run", "eval"))
    assert evaluated["perplexity"] == pytest.approx(trained["valid_perplexity"], rel=1e-4)


@pytest.mark.parametrize("name", ["mikolov2010", "zaremba2014_medium", "merity2018"])
def test_networks_of_papers_do_not_follow_the_defaults(name: str) -> None:
    own, plain = (OmegaConf.load(conf_dir() / each) for each in (f"experiment/{name}.yaml", "model/lstm.yaml"))
    follow = {"defaults", "kind", "cell", "context_size", "across_sentences"}
    assert own.model.keys() == plain.keys() - follow
    assert {"epochs", "minutes", "batch_size", "bptt", "evaluate_every", "max_grad_norm"} <= own.training.keys()
    groups = {key for entry in own.defaults for key in entry}
    assert groups == {f"override /{group}" for group in ("data", "model", "output", "optim", "schedule")}


def test_the_rate_of_zaremba_falls_by_a_sixth_after_each_epoch_from_the_sixth_on() -> None:
    settings = composed("+experiment=zaremba2014_medium")["schedule"]
    schedule = StepsSchedule("steps", 0.0, settings["milestones"], settings["gamma"])
    rates = [learning_rate(schedule, 35.0, done=(epoch - 0.5) / 39, steps=0) for epoch in range(1, 40)]
    assert rates == pytest.approx([35 * 1.2 ** -max(0, epoch - 6) for epoch in range(1, 40)], rel=1e-5)


@pytest.mark.parametrize(
    ("overrides", "output", "tree"),
    [
        (["model=hsoftmax", "output=nce"], "nce", None),
        (["model=nce", "output=softmax"], "softmax", None),
        (["model=skip_layer", "output=hierarchical", "tree=brown"], "hierarchical", "brown"),
        (["+experiment=ptb_hsoftmax"], "hierarchical", "clusters"),
        (["+experiment=ptb_hsoftmax", "tree=huffman"], "hierarchical", "huffman"),
    ],
)
def test_the_output_of_a_preset_can_be_another(overrides: list[str], output: str, tree: str | None) -> None:
    found = composed(*overrides)
    assert found["output"]["kind"] == output and (found["tree"]["kind"] if tree else found.get("tree")) == tree

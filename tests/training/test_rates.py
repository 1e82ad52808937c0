"""Optimizers beside the step, and the learning-rate range test."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lmtool.data.corpus import Corpus
from lmtool.neural.optimizers.base import ParameterGroups
from lmtool.neural.outputs.options import HierarchicalOutput, NceOutput, NodeForm
from lmtool.training.optim import AdamOptim, AdamwOptim
from lmtool.training.optimizers import _running_mean, make_optimizers, propose, range_test, renormalize_rows
from lmtool.trees import Tree, huffman_tree
from tests.conftest import NEURAL, Run, neural


def test_weight_decay_spares_vectors() -> None:
    matrix, vector = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))
    model = torch.nn.ParameterList([vector, matrix])
    groups = ParameterGroups.of(model, model)
    assert groups.parameters == [matrix, vector]
    assert groups.torch_groups(0.1) == [
        {"params": [matrix], "weight_decay": 0.1},
        {"params": [vector], "weight_decay": 0.0},
    ]
    assert ParameterGroups.of([vector], model).torch_groups(0.1, key="l2") == [{"params": [vector], "l2": 0.0}]
    for optim in (AdamOptim("adam", 0.1, 0.1, 0.9, 0.99, 1e-8), AdamwOptim("adamw", 0.1, 0.1, 0.9, 0.99, 1e-8)):
        dense, sparse = optim.dense(groups), optim.sparse(groups)
        assert [group["weight_decay"] for group in dense.param_groups] == [0.1, 0.0]
        in_gradient = [(group["l2"], group["weight_decay"]) for group in sparse.param_groups]
        assert in_gradient == ([(0.1, 0.0), (0.0, 0.0)] if optim.kind == "adam" else [(0.0, 0.1), (0.0, 0.0)])


def tree_of(toy: Corpus) -> Tree:
    return huffman_tree(toy.vocabulary.counts[:-1])


def test_the_order_of_parameters_in_checkpoints(toy: Corpus) -> None:
    # Matrices, then the rest, in the order of the model.
    output = HierarchicalOutput("hierarchical", NodeForm.morin_bengio, 6, 5)
    model: Any = neural(toy, output, tree_of(toy), fofe_window=5)
    dense, rows = make_optimizers(model, AdamOptim("adam", 0.1, 0.1, 0.9, 0.99, 1e-8))
    for optimizer in (dense, rows):
        listed = [p for group in optimizer.param_groups for p in group["params"]]
        assert [p.dim() > 1 for p in listed] == sorted((p.dim() > 1 for p in listed), reverse=True)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    first = [names[id(p)] for group in dense.param_groups for p in group["params"]][:3]
    assert first == ["encoder.history.weights", "encoder.history.scale", "encoder.layers.0.weight"]


def test_long_rows_are_scaled_down() -> None:
    weight = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    renormalize_rows(weight, 1.0)
    torch.testing.assert_close(weight, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))


class Bowl(torch.nn.Module):
    """loss = (w - t)^2 / 2, of which a step at a rate r makes w - r (w - t): lost from r = 2 on."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor(0.0))

    def forward(self, contexts: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (self.w - targets) ** 2 / 2


def test_range_test_of_a_bowl() -> None:
    model = Bowl()
    targets = [torch.tensor(1.0), torch.tensor(-1.0)]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    batches = ((torch.empty(0), target) for target in itertools.cycle(targets))
    found = range_test(model, [optimizer], batches, limits=(1e-3, 1e3), steps=61, max_grad_norm=None)  # type: ignore[arg-type]
    assert found.rates[:2] == pytest.approx([1e-3, 1e-3 * 10**0.1])
    w, wanted = 0.0, []
    for number, rate in enumerate(found.rates):
        away = w - (-1) ** number
        wanted.append(away**2 / 2)
        w -= rate * away
    assert found.losses == pytest.approx(wanted, rel=1e-4)
    assert found.smoothed[:2] == pytest.approx([wanted[0], (0.95 * wanted[0] + wanted[1]) / 1.95])
    assert len(found.rates) < 50 and 2 < found.rates[-1] < 20  # it ends where the loss is lost
    lowest = found.smoothed.index(min(found.smoothed[len(found.rates) // 2 :]))  # less than 20
    assert found.proposed == pytest.approx(found.rates[lowest] / 10)
    assert optimizer.param_groups[0]["lr"] == found.rates[-1]


class Bigrams(torch.nn.Module):
    """Scores of the next of 20 words by the last one, from random ones."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = torch.nn.Embedding(20, 20)

    def forward(self, contexts: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.scores(contexts), targets)


def bigrams(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield batches of 16 words; seven of ten words are followed by one particular word, the others by any."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        words, any_word = torch.randint(20, (2, 16), generator=generator)
        yield words, torch.where(torch.rand(16, generator=generator) < 0.7, (3 * words + 1) % 20, any_word)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("limits", "proposed", "doubt"),
    [
        ((1e-5, 1e4), (2, 10), ""),  # it diverges at about 1,000
        ((1e-6, 1e-3), (1e-6, 1e-3), "no more than it differs between batches: try a higher last rate"),  # all too low
        ((1e-3, 3.0), (0.2, 0.3), "the loss is lowest at the highest rates tried"),
        ((50.0, 1e5), (50, 50), "try a lower first rate"),  # all too high
    ],
)
def test_the_proposed_rate_is_within_what_was_tried(
    limits: tuple[float, float], proposed: tuple[float, float], doubt: str, seed: int
) -> None:
    torch.manual_seed(seed)
    model: Any = Bigrams()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    found = range_test(model, [optimizer], bigrams(seed), limits=limits, steps=300, max_grad_norm=None)
    assert proposed[0] <= found.proposed <= proposed[1]
    assert doubt in found.doubt and bool(doubt) == bool(found.doubt)


def test_the_first_means_of_a_range_test_do_not_count() -> None:
    # The mean of two low losses at the start is the lowest of all, that of the fall to 2 is what counts: step 59.
    losses = [1.0, 1.0, *[5.0] * 28, *np.linspace(5, 2, 30), *np.linspace(2, 9, 40)]
    smoothed = [_running_mean(losses[: step + 1]) for step in range(len(losses))]
    rates = np.geomspace(1e-4, 10, len(losses)).tolist()
    found = propose(rates, losses, smoothed, diverged=True)
    lowest = min(range(20, 100), key=smoothed.__getitem__)
    assert smoothed.index(min(smoothed)) == 0 and 59 < lowest < 75
    assert found.proposed == rates[lowest] / 10 and found.doubt == ""


def test_a_proposed_rate_in_doubt_says_so(lmtool: Run) -> None:
    words = ["train", "data=toy", "lr_range=true", "training.batch_size=16", "lr_range_steps=60", "hydra.run.dir=run"]
    said = lmtool(*words, "lr_range_limits=[1e-8,1e-6]", "model.embedding_dim=8", "model.hidden_dim=16")
    assert "note: lr_range_limits=[1e-08, 1e-06]: the loss falls by no more than it differs between batches" in said
    found = json.loads(Path("run/lr_range.json").read_text())
    assert 1e-8 <= found["proposed"] <= 1e-6 and found["doubt"].endswith("try a higher last rate, or more steps")


def test_range_test_from_the_command_line(lmtool: Run, with_curves: None) -> None:
    words = ["train", "data=toy", "lr_range=true", "training.batch_size=16", "lr_range_steps=60", "hydra.run.dir=run"]
    said = lmtool(*words, "model.embedding_dim=8", "model.hidden_dim=16")
    assert "proposed: optim.lr=" in said
    found = json.loads(Path("run/lr_range.json").read_text())
    assert found["rates"][0] == 1e-5 and found["rates"] == sorted(found["rates"])
    assert len(found["losses"]) == len(found["rates"]) and all(map(math.isfinite, found["losses"]))
    assert Path("run/lr_range.png").read_bytes().startswith(b"\x89PNG")
    assert not Path("run/run.json").exists()
    assert "choose a lower first rate" in lmtool(
        *words, "lr_range_limits=[1e8,1e9]", "optim=sgd", "training.max_grad_norm=null", code=2
    )


@pytest.mark.parametrize(("given", "decay"), [("null", 0.4), ("0", 0)])
def test_the_weight_decay_that_suits_the_output_layer(given: str, decay: float, lmtool: Run) -> None:
    words = ["output=hierarchical", "tree=huffman", f"optim.weight_decay={given}", *NEURAL]
    lmtool("train", *words, "hydra.run.dir=run")
    assert json.loads(Path("run", "run.json").read_text())["config"]["optim"]["weight_decay"] == decay


def test_both_forms_of_adamw_have_the_decay_that_suits() -> None:
    optim = AdamwOptim("adamw", 0.1, None, 0.9, 0.99, 1e-8)
    assert optim.decay == 0
    optim.fill_in(NceOutput("nce", 9, True, 1.0, False))
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(2, 2))])
    groups = ParameterGroups.of(model, model)
    for form in (optim.dense(groups), optim.sparse(groups)):
        assert form.param_groups[0]["weight_decay"] == 0.15

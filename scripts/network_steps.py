"""Training steps of networks for measurements: lmtool's own, and those of plain PyTorch."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import Times, ratios
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lmtool.commands.train import Settings as TrainSettings
from lmtool.config.composition import verb_settings
from lmtool.config.options import kinds
from lmtool.config.settings import build_settings
from lmtool.data.corpus import Corpus
from lmtool.neural.build import build_neural
from lmtool.neural.forms import only_plain
from lmtool.requests.arguments import CommandLine
from lmtool.requests.compose import compose_request
from lmtool.requests.words import parse_request
from lmtool.runs.load import tree_words
from lmtool.system.process import StopRequest
from lmtool.training.loop import _Training
from lmtool.training.plan import Plan
from lmtool.training.processes import Processes

Step = Callable[[], object]
# Words for an output layer, beside output=NAME.
NEEDS = {
    "hierarchical": ["tree=huffman"],
    "morin_bengio": ["tree=huffman", "output.nodes=morin_bengio", "model.layers=0"],
    "nce": ["output.num_noise=100"],
    "sampled": ["output.num_samples=1000"],
    "adaptive": ["output.cutoffs=[2000,5000]"],
}
OUTPUTS = [*kinds("output"), "morin_bengio"]
# The network of Bengio et al. (2003) with SGD, without what was added to model=nplm later.
PAPER = ["model=nplm", "model.gated=false", "model.layer_norm=false", "model.activation=tanh", "model.tied=false"]
PAPER += ["model.fofe_window=0", "model.across_sentences=false", "model.dropout=0", "model.input_dropout=0"]
PAPER += ["optim=sgd", "optim.lr=0.1", "training.max_grad_norm=null"]
# Training without an end, evaluations and checkpoints.
ENDLESS = ["schedule=constant", "training.steps=1000000000", "training.epochs=null", "training.evaluate_every=1e9"]
ENDLESS += ["training.save_every=1e9", "training.accuracy_tokens=0", "training.memory=null"]


def network(layer: str, embed: int, hidden: int, batch: int, context: int = 5) -> list[str]:
    """Return the words of `lmtool train` for the paper's network with an output layer and sizes, in fp32."""
    sizes = [f"model.embedding_dim={embed}", f"model.hidden_dim={hidden}", f"model.context_size={context}"]
    if layer == "morin_bengio":
        sizes += [f"output.hidden_dim={hidden}", f"output.node_dim={embed}"]
    kind = "hierarchical" if layer == "morin_bengio" else layer
    batches = [f"training.batch_size={batch}", "training.precision=fp32"]
    return [*PAPER, f"output={kind}", *NEEDS.get(layer, []), *sizes, *batches]


def settings_of(*words: str) -> Any:
    return build_settings(
        verb_settings(compose_request(parse_request(CommandLine("train", {}, list(words))))[1]), TrainSettings
    )


def built(corpus: Corpus, words: list[str]) -> tuple[Any, Any]:
    """Return the settings of `lmtool train` with words, filled in from the corpus, and their network."""
    config = settings_of(*words)
    config.model.fill_in(config.data.vocabulary.unit, corpus.tokens("train"))
    config.optim.fill_in(config.output)
    tree = None if config.tree is None else config.tree.build(tree_words(corpus))
    torch.manual_seed(0)
    return config, build_neural(config.model, config.output, corpus.vocabulary, tree)


def engine(store: Path, words: list[str], device: str = "cpu") -> _Training:
    """Return what trains the network of the words on a store, in a temporary folder."""
    corpus = Corpus.open(store).__enter__()
    config, model = built(corpus, [*words, *ENDLESS])
    plan = Plan(config.training, config.optim, config.schedule, 1, {})
    train, valid = (corpus.split(name).as_stream(model.across_sentences) for name in ("train", "valid"))
    folder = Path(tempfile.mkdtemp(dir=os.getcwd()))
    return _Training(model.to(device), train, valid, plan, folder, Processes(), bar=False)


def lmtool_step(store: Path, words: list[str], device: str = "cpu") -> Step:
    """Return a step of `lmtool train` with words on a store."""
    plain, stop = "training.forms=plain" in words, StopRequest()
    with only_plain(plain):
        training = engine(store, words, device)

    def step() -> None:
        with only_plain(plain):
            training.advance(stop)

    return step


def with_ratios(rates: Times, base: str, *others: str) -> list[str]:
    """Return the median rate of the base, then that of each other one with the median of its ratios to the base."""
    found = [f"{statistics.median(rates[base]):,.0f}"]
    for other in others:
        found += [f"{statistics.median(rates[other]):,.0f}", f"{ratios(rates, base)[other]:.2f}"]
    return found


def precisions(store: Path, words: list[str], batch: int, names: tuple[str, ...], device: str = "cpu") -> Any:
    """Return the steps of a training in each precision, with their batch size."""
    return {name: (lmtool_step(store, [*words, f"training.precision={name}"], device), batch) for name in names}


def pytorch_step(store: Path, embed: int, hidden: int, batch: int, context: int) -> Step:
    """Return a step of the usual loop: TensorDataset, DataLoader, nn.Embedding, nn.Linear, CrossEntropyLoss, SGD."""
    with Corpus.open(store) as corpus:
        split = corpus.split("train")
        contexts, targets = split.windows(np.arange(min(split.tokens, 400_000)), context)
        size = len(corpus.vocabulary)
    torch.manual_seed(0)
    layers = nn.Linear(context * embed, hidden), nn.Tanh(), nn.Linear(hidden, size)
    model = nn.Sequential(nn.Embedding(size, embed), nn.Flatten(), *layers)
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss()
    data = TensorDataset(torch.from_numpy(contexts), torch.from_numpy(targets))

    def batches() -> Iterator[Any]:
        while True:
            yield from DataLoader(data, batch_size=batch, shuffle=True, drop_last=True)

    waiting = batches()

    def step() -> None:
        x, y = next(waiting)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()

    return step

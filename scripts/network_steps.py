"""Training steps of networks for measurements: lmtool's own, those of a bare loop, and those of plain PyTorch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Step = Callable[[], object]


def model_of(corpus: Any, layer: str, embed: int, hidden: int, context: int = 5) -> Any:
    """Return an nplm with an output layer, by name."""
    import numpy as np

    from lmtool.neural.encoders.options import Activation, NplmModel
    from lmtool.neural.model import build_neural
    from lmtool.neural.outputs.options import (
        AdaptiveOutput,
        ClassesOutput,
        HierarchicalOutput,
        NceOutput,
        NodeForm,
        SampledOutput,
        SoftmaxOutput,
    )
    from lmtool.trees import huffman_tree

    outputs = {
        "softmax": SoftmaxOutput("softmax"),
        "hierarchical": HierarchicalOutput("hierarchical", NodeForm.dot, 100, 100),
        "morin_bengio": HierarchicalOutput("hierarchical", NodeForm.morin_bengio, hidden, embed),
        "nce": NceOutput("nce", 100, True, 1.0, False),
        "sampled": SampledOutput("sampled", min(1000, len(corpus.vocabulary) - 1), 1.0),
        "adaptive": AdaptiveOutput("adaptive", [2000, 5000], 4.0),
        "classes": ClassesOutput("classes", None),
    }
    encoder = NplmModel(
        kind="nplm", context_size=context, embedding_dim=embed, tied=False, dropout=0.0, hidden_dim=hidden,
        layers=0 if layer == "morin_bengio" else 1, direct_connections=False,
        activation=Activation.tanh, layer_norm=False,
    )  # fmt: skip
    has_tree = layer in ("hierarchical", "morin_bengio")
    tree = huffman_tree(np.asarray(corpus.vocabulary.counts[:-1])) if has_tree else None
    return build_neural(encoder, outputs[layer], corpus.vocabulary, tree)


def loop(model: Any, batches: Iterator[Any], optimizers: list[Any], clip: float | None = None) -> Step:
    """Return a step of a bare training loop. clip: maximum norm of the gradients."""
    from lmtool.neural.optimizers.base import clip_gradients

    def step() -> None:
        x, y = next(batches)
        loss = model(x, y)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            clip_gradients(model.parameters(), clip)
        for optimizer in optimizers:
            optimizer.step()
        loss.item()

    return step


def loop_of(store: Path, layer: str, embed: int, hidden: int, batch: int, *, plain: bool = False) -> Step:
    """Return a step of a bare loop over lmtool's batches, with SGD. plain: plain formulas with dense gradients."""
    import torch

    from lmtool.data.corpus import Corpus
    from lmtool.neural.forms import only_plain
    from lmtool.training.batches import Batches
    from lmtool.training.optim import SgdOptim
    from lmtool.training.optimizers import make_optimizers

    torch.manual_seed(0)
    with Corpus.open(store) as corpus:
        model = model_of(corpus, layer, embed, hidden)
        batches = iter(Batches(corpus.split("train"), batch, 5, 0))
    if plain:
        model.use_dense_gradients()
    step = loop(model, batches, make_optimizers(model, SgdOptim("sgd", 0.1, 0.0, 0.0)))

    def in_forms() -> None:
        with only_plain(plain):
            step()

    return in_forms


def pytorch_of(store: Path, embed: int, hidden: int, batch: int, context: int) -> Step:
    """Return a step of the usual loop: TensorDataset, DataLoader, nn.Embedding, nn.Linear, CrossEntropyLoss, SGD."""
    import numpy as np
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from lmtool.data.corpus import Corpus

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


def lmtool_of(
    store: Path,
    embed: int | None,
    hidden: int | None,
    batch: int,
    context: int | None,
    layer: str = "softmax",
    precision: str = "fp32",
    device: str = "cpu",
    clip: float | None = None,
) -> Step:
    """Return a step of lmtool's training of such a network with SGD; sizes None: model=nplm and optim=adamw with
    default settings.
    """
    import torch

    from lmtool.config.training import Precision, TrainingConfig
    from lmtool.data.corpus import Corpus
    from lmtool.training.optim import SgdOptim
    from lmtool.training.processes import Processes

    corpus = Corpus.open(store).__enter__()
    torch.manual_seed(0)
    if embed is None or hidden is None or context is None:
        model, optim, across = composed(corpus, "model=nplm")
        clip = 1.0
    else:
        model = model_of(corpus, layer, embed, hidden, context)
        optim, across = SgdOptim("sgd", 0.1, 0.0, 0.0), False
    settings = dict(epochs=None, steps=1 << 40, minutes=None, patience=None, batch_size=batch, evaluate_every=1e9)
    settings |= dict(
        accuracy_tokens=0, max_grad_norm=clip, embedding_max_norm=None, compile=False, precision=Precision(precision)
    )
    settings |= dict(memory=None, save_every=1e9, tensorboard=False, shuffle_block=None)
    engine, stop = training(model.to(device), corpus, across, TrainingConfig(**settings), optim, Processes())
    return lambda: engine.advance(stop)


def composed(corpus: Any, *words: str) -> tuple[Any, Any, bool]:
    """Return network and optimizer settings of `lmtool train` with words, and whether contexts cross sentences."""
    from lmtool.neural.model import build_neural
    from lmtool.runs.load import tree_words

    config = train_config(corpus, *words)
    tree = None if config.tree is None else config.tree.build(tree_words(corpus))
    model = build_neural(config.model, config.output, corpus.vocabulary, tree)
    return model, config.optim, config.model.across_sentences


def train_config(corpus: Any, *words: str) -> Any:
    """Return the settings of `lmtool train data=ptb` with words, filled in from the corpus."""
    from lmtool.api.running import compose
    from lmtool.cli.arguments import CommandLine
    from lmtool.config.settings import typed
    from lmtool.config.verbs import TrainConfig

    config: Any = typed(compose(CommandLine("train", [], ["data=ptb", *words]))[0], TrainConfig)
    config.model.suit(config.data.vocabulary.unit, corpus.tokens("train"))
    config.optim.suit(config.output)
    return config


def training(model: Any, corpus: Any, across: bool, config: Any, optim: Any, processes: Any) -> tuple[Any, Any]:
    """Return the engine that trains a model on a corpus in a temporary folder, and what stops it."""
    from lmtool.system.process import StopRequest
    from lmtool.training.loop import _Training
    from lmtool.training.plan import Plan
    from lmtool.training.schedules import ConstantSchedule

    plan = Plan(config, optim, ConstantSchedule("constant", 0.0), 1, {})
    splits = corpus.split("train").as_stream(across), corpus.split("valid").as_stream(across)
    folder = Path(tempfile.mkdtemp(dir=os.getcwd()))
    return _Training(model, *splits, plan, folder, processes, bar=False), StopRequest()

"""Every fast form for ./scripts/measure, beside the plain method that it replaces and the next form."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from measuring import Times, head, rates_in_turns, ratios, row, turns, use_threads
from network_steps import PAPER, settings_of
from torch import Tensor, nn

from lmtool.neural import (
    ClassSoftmax,
    FullSoftmax,
    HierarchicalSoftmax,
    MorinBengioNodes,
    NCELoss,
    RowAdagrad,
    RowAdam,
    RowSGD,
)
from lmtool.neural import forms as of_layers
from lmtool.neural.devices import has_bf16
from lmtool.neural.encoders.nplm import History
from lmtool.neural.forms import tiles
from lmtool.neural.forms.network_step import network_step
from lmtool.neural.model import NeuralModel
from lmtool.system import parallel
from lmtool.training.optimizers import make_optimizers
from lmtool.trees import huffman_tree
from lmtool.trees.builders import class_of_words

SECONDS = 0.2  # of one form in one turn
Step = Callable[[], object]
# Form, sizes, the module that has it (None: the step chooses, and there is no next form), what calls it (None: a form
# that this processor does not have).
Case = tuple[str, str, Any, Step | None]


def forms() -> None:
    """every fast form beside the plain method and the next form, per class of sizes (five minutes)"""
    use_threads()
    parallel.LOOK_EVERY = float("inf")
    torch.manual_seed(0)
    units = "AMX" if tiles.available() else "units" if has_bf16(torch.device("cpu")) else "nothing"
    print(f"torch {torch.__version__}, {parallel.threads()} threads, {units} for bf16; medians of {turns()} turns")
    columns = ("plain, us", "next form, us", "form, us", "times as fast as plain", "as the next form")
    head("form", "sizes", *columns, numbers=5)
    for cases in (_rows, _trees, _encoders, _softmaxes, _optimizers, _networks):
        for name, sizes, module, step in cases():
            found = None if step is None else _timed(name, module, step)
            if found is None:
                row(name, sizes, "", "", "not on this machine", "", "")
                continue
            us = {way: f"{1e6 / statistics.median(rates):,.0f}" for way, rates in found.items()}
            times = {way: f"{ratios(found, way)['form']:.2f}" for way in found}
            row(name, sizes, us["plain"], us.get("next", ""), us["form"], times["plain"], times.get("next", ""))
    print("\nPeak memory of a step of the full softmax over 200,000 words, 1,024 examples:", flush=True)
    for kind in ("plain", "softmax_chunks"):
        done = subprocess.run([sys.executable, __file__, kind], check=True, capture_output=True, text=True)
        print(f"  {kind}: {done.stdout.strip()} MiB", flush=True)


def _timed(name: str, module: Any, step: Step) -> Times | None:
    """Return calls per second by turns: of the plain method, the next form, if any, and the form.

    None if the form does not serve.
    """

    def only(some: set[str]) -> Step:
        def call() -> None:
            with of_layers.only(some):
                step()

        return call

    def serving(some: set[str]) -> set[str]:
        of_layers._used.clear()
        of_layers._chosen.clear()
        only(some)()
        return {each.name for each in of_layers.used(module)}

    names = {each.name for each in of_layers.registered()}
    ways = {"plain": set(), "next": names - {name}, "form": names | {name}}
    of_a_layer = name in names and module is not None  # not row optimizers, whole steps and forms that are called
    if of_a_layer and name not in serving(ways["form"]):
        return None
    if not of_a_layer or not serving(ways["next"]):
        del ways["next"]
    return rates_in_turns({way: (only(some), 1) for way, some in ways.items()}, SECONDS, turns())


def _both_ways(loss: Callable[[], Tensor], module: Any, *leaves: Tensor) -> Step:
    """Return a call of a loss and its gradients."""
    parameters = [*module.parameters(), *leaves]

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        loss().backward()

    return step


def _counts(words: int) -> Tensor:
    return (1e6 / torch.arange(1, words + 1)).round().clamp(min=1)


def _batch(words: int, dim: int, size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(size, dim, requires_grad=True), torch.multinomial(_counts(words), size, replacement=True)


def _loss(layer: Any, words: int, dim: int, size: int) -> Step:
    h, y = _batch(words, dim, size)
    return _both_ways(lambda: layer(h, y), layer, h)


def _rows() -> Iterator[Case]:
    for words, dim, size in ((10_000, 100, 32), (10_000, 100, 1024), (10_000, 512, 1024), (1_000_000, 100, 1024)):
        counts = _counts(words)
        tree = huffman_tree(counts.numpy().astype("int64"))
        layers: dict[str, Any] = {
            "nce, 25 noise words each": NCELoss(dim, counts, noise=25, shared=False, sparse=True),
            "hierarchical": HierarchicalSoftmax(dim, tree, counts, sparse=True),
        }
        if words < 100_000:
            classes = torch.from_numpy(class_of_words(counts.numpy(), None))
            layers["classes"] = ClassSoftmax(dim, counts, classes, sparse=True)
        for name, layer in layers.items():
            yield "pair_scores", f"{name}, V {words:,}, D {dim}, B {size:,}", layer, _loss(layer, words, dim, size)


def _trees() -> Iterator[Case]:
    words, dim = 10_000, 100
    counts = _counts(words)
    tree = huffman_tree(counts.numpy().astype("int64"))
    nodes = MorinBengioNodes(dim, torch.zeros(tree.nodes), hidden_dim=100, node_dim=100, sparse=True)
    layer, dot = HierarchicalSoftmax(dim, tree, counts, nodes=nodes), HierarchicalSoftmax(dim, tree, counts)
    for size in (32, 1024):
        yield "morin_bengio_pairs", f"V {words:,}, D {dim}, B {size:,}", layer, _loss(layer, words, dim, size)
    for size in (1, 256):
        h = torch.randn(size, dim)
        yield "morin_bengio_nodes", f"N {tree.nodes:,}, H 100, B {size}", layer, lambda h=h: nodes.all_scores(h)  # type: ignore[misc]
        yield "leaves_in_one_pass", f"V {words:,}, B {size}", dot, lambda h=h: dot.log_dist(h)  # type: ignore[misc]
        yield "best_first", f"V {words:,}, 10 words, B {size}", dot, lambda h=h: dot.top(h, 10)  # type: ignore[misc]


def _encoders() -> Iterator[Case]:
    def nplm(activation: str, *, norm: bool, dropout: float) -> Any:
        words = [*PAPER, f"model.activation={activation}", f"model.gated={activation == 'gelu'}"]
        words += [f"model.layer_norm={norm}", f"model.dropout={dropout}", "model.embedding_dim=30"]
        return settings_of(*words).model.build(1000, tied=False, sparse=True)

    cases = [("gelu", True, 0.2, 32), ("gelu", True, 0.2, 512), ("tanh", True, 0.0, 1024), ("tanh", False, 0.5, 1024)]
    for activation, norm, dropout, size in cases:
        encoder = nplm(activation, norm=norm, dropout=dropout)
        z = torch.randn(size, 1024 if activation == "gelu" else 512, requires_grad=True)
        step = _both_ways(lambda encoder=encoder, z=z: encoder.computed("units", z, 0).sum(), encoder, z)  # type: ignore[misc]
        said = f"{'gated ' * (activation == 'gelu')}{activation}{', norm' * norm}, dropout {dropout}, H 512, B {size:,}"
        yield "hidden_units", said, encoder, step
    encoder = nplm("tanh", norm=False, dropout=0.2)
    for size, width in ((32, 150), (512, 2700)):
        x = torch.randn(size, width, requires_grad=True)
        step = _both_ways(lambda x=x: encoder.with_dropout(x, 0.2).sum(), encoder, x)  # type: ignore[misc]
        yield "hashed_dropout", f"{width:,} numbers, B {size}", encoder, step
    text = torch.randint(10_000, (200_000,))
    for (size, far, dim), kind in product(((512, 100, 300), (1024, 50, 100)), ("consecutive", "scattered")):
        module, vectors = History([0.6, 0.85, 0.95, 1.0], far, 5, dim), torch.randn(10_000, dim, requires_grad=True)
        first = torch.randint(190_000, (size,))
        if kind == "consecutive":
            first = torch.randperm(20_000)[: size // 8, None] * 8 + torch.arange(8)
        ids = text[first.view(-1, 1) + torch.arange(far)].contiguous()
        step = _both_ways(lambda m=module, i=ids, v=vectors: m(i, v, sparse=False).sum(), module, vectors)  # type: ignore[misc]
        yield "history", f"{kind}, T {far}, E {dim}, B {size:,}", module, step


def _softmaxes() -> Iterator[Case]:
    """Yield the full softmax in bfloat16; the plain method is in float32.

    Each form is called, also where another one would be chosen.
    """
    here = {"softmax_tiles": tiles.available(), "softmax_bf16": tiles.has_dots()}
    here["softmax_autocast"] = has_bf16(torch.device("cpu"))
    of_names = {each.name: each.run for each in of_layers.registered()}
    sizes = [(10_000, 100, size) for size in (32, 256, 1024)] + [(10_000, 512, 1024), (50_000, 128, 1024)]
    for name, (words, dim, size) in product(here, sizes):
        layer, (h, y), form = FullSoftmax(dim, _counts(words)), _batch(words, dim, size), of_names[name]

        def loss(layer: FullSoftmax = layer, h: Tensor = h, y: Tensor = y, form: Any = form) -> Tensor:
            found: Tensor = form(layer, h, y) if of_layers.allowed() else layer.loss(h, y)
            return found

        step = _both_ways(loss, layer, h) if here[name] else None
        yield name, f"V {words:,}, D {dim}, B {size:,}", None, step


def _optimizers() -> Iterator[Case]:
    kinds = ((RowSGD, {}), (RowAdagrad, {}), (RowAdam, {}), (RowAdam, {"correct_skipped_steps": True}))
    sizes = ((10_000, 100, 400), (10_000, 100, 4000), (10_000, 512, 3000), (1_000_000, 100, 4000))
    for (words, dim, used), (kind, more) in product(sizes, kinds):
        weight = nn.Parameter(torch.randn(words, dim))
        chosen = torch.randperm(words)[:used].sort()[0]
        weight.grad = torch.sparse_coo_tensor(
            chosen[None], torch.randn(used, dim), weight.shape, is_coalesced=True, check_invariants=False
        )
        name = f"{kind.__name__}{' with correct_skipped_steps' if more else ''}"
        yield name, f"{used:,} of {words:,} rows, H {dim}", None, kind([weight], lr=0.001, **more).step


def _networks() -> Iterator[Case]:
    """Yield whole steps of the paper's network, beside the ordinary step."""
    full = ((29, 10, 200, 3), (10_000, 30, 100, 5), (10_000, 128, 512, 5))
    works = [(*sizes, 32, "full softmax") for sizes in full]
    works += [(*full[1], size, name) for name in ("hierarchical", "nce") for size in (32, 1024)]
    for words, embed, hidden, context, size, name in works:
        sizes = [f"model.embedding_dim={embed}", f"model.hidden_dim={hidden}", f"model.context_size={context}"]
        config = settings_of(*PAPER, *sizes)
        encoder = config.model.build(words, tied=False, sparse=True)
        counts = _counts(words - 1)
        layer: Any = FullSoftmax(hidden, counts)
        if name == "nce":
            layer = NCELoss(hidden, counts, sparse=True)
        elif name == "hierarchical":
            layer = HierarchicalSoftmax(hidden, huffman_tree(counts.numpy().astype("int64")), counts, sparse=True)
        model = NeuralModel(encoder, layer, words)
        x, (_, y) = torch.randint(words - 1, (size, context)), _batch(words - 1, hidden, size)
        optimizers, one = make_optimizers(model, config.optim), torch.ones(())
        whole: Any = network_step(model, 0.0, size, None)
        parameters = list(model.parameters())

        def step(m=model, x=x, y=y, optimizers=optimizers, one=one, whole=whole, of=parameters) -> None:  # type: ignore[no-untyped-def]
            if of_layers.allowed():
                whole.step(x, y, 0.01, 1e6)
                return
            loss = m(x, y)
            for parameter in of:
                parameter.grad = None
            loss.backward(one)
            loss.item()
            for optimizer in optimizers:
                optimizer.step()

        yield "network_step", f"{name}, V {words:,}, E {embed}, H {hidden}, C {context}, B {size:,}", model, step


def _peak(kind: str) -> None:
    """Print the peak MiB of a step of the full softmax in this process, without its weights."""

    def kib() -> int:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

    layer, (h, y) = FullSoftmax(64, _counts(200_000)), _batch(200_000, 64, 1024)
    before = kib()
    with of_layers.only_plain(kind == "plain"):
        layer(h, y).backward()
    print(round((kib() - before) / 1024))


if __name__ == "__main__":
    _peak(sys.argv[1])

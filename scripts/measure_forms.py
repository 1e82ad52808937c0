"""Every fast form for ./scripts/measure, beside the plain method that it replaces and the next form."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measuring import Times, head, measure, rates_in_turns, ratios, row, turns, use_threads

if TYPE_CHECKING:
    from torch import Tensor

SECONDS = 0.2  # of one form in one turn
Step = Callable[[], object]
Case = tuple[str, str, Any, Step]  # form, sizes, the module that has it, what calls it


@measure
def forms() -> None:
    """every fast form beside the plain method and the next form, per class of sizes (five minutes)"""
    import torch

    from lmtool.neural.devices import has_bf16
    from lmtool.neural.forms import tiles
    from lmtool.system import parallel

    use_threads()
    parallel.LOOK_EVERY = float("inf")
    torch.manual_seed(0)
    units = "AMX" if tiles.available() else "units" if has_bf16(torch.device("cpu")) else "nothing"
    print(f"torch {torch.__version__}, {parallel.threads()} threads, {units} for bf16; medians of {turns()} turns")
    head(
        "form",
        "sizes",
        "plain, us",
        "next form, us",
        "form, us",
        "times as fast as plain",
        "as the next form",
        numbers=5,
    )
    for name, sizes, module, step in cases():
        found = timed(name, module, step)
        if found is None:
            row(name, sizes, "", "", "not on this machine", "", "")
            continue
        cells = {way: f"{1e6 / statistics.median(rates):,.0f}" for way, rates in found.items()}
        times = {way: f"{ratios(found, way)['form']:.2f}" for way in found}
        row(name, sizes, cells["plain"], cells.get("next", ""), cells["form"], times["plain"], times.get("next", ""))
    print("\nPeak memory of a step of the full softmax over 200,000 words, 1,024 examples:", flush=True)
    for kind in ("plain", "softmax_chunks"):
        done = subprocess.run([sys.executable, __file__, kind], check=True, capture_output=True, text=True)
        print(f"  {kind}: {done.stdout.strip()} MiB", flush=True)


def timed(name: str, module: Any, step: Step) -> Times | None:
    """Return calls per second by turns: of the plain method, the next form, if any, and the form.

    None if the form does not serve.
    """
    from lmtool.neural import forms as of_layers

    names = {each.name for each in of_layers.registered()}
    ways = {"plain": set(), "next": names - {name}, "form": names | {name}}
    if name not in names:  # not of a layer: the row optimizers and the step of a whole network
        del ways["next"]
    else:
        served = {way: serving(of_layers, module, step, some) for way, some in ways.items()}
        if name not in served["form"]:
            return None
        if not served["next"]:
            del ways["next"]

    def only(some: set[str]) -> Step:
        def call() -> None:
            with of_layers.only(some):
                step()

        return call

    return rates_in_turns({way: (only(some), 1) for way, some in ways.items()}, SECONDS, turns())


def serving(of_layers: Any, module: Any, step: Step, names: set[str]) -> set[str]:
    """Return the names of the forms, among these, that a call uses."""
    of_layers._used.clear()
    of_layers._chosen.clear()
    with of_layers.only(names):
        step()
    return {each.name for each in of_layers.used(module)}


def both_ways(loss: Callable[[], Tensor], module: Any, *leaves: Tensor) -> Step:
    """Return a call of a loss and its gradients."""
    parameters = [*module.parameters(), *leaves]

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        loss().backward()

    return step


def counts_of(words: int) -> Tensor:
    """Return counts by Zipf's law."""
    import torch

    return (1e6 / torch.arange(1, words + 1)).round().clamp(min=1)


def batch_of(words: int, dim: int, size: int) -> tuple[Tensor, Tensor]:
    """Return hidden states `[size, dim]` and targets by frequency."""
    import torch

    return torch.randn(size, dim, requires_grad=True), torch.multinomial(counts_of(words), size, replacement=True)


def cases() -> Iterator[Case]:
    """Yield one case for each form and class of sizes."""
    yield from rows()
    yield from trees()
    yield from encoders()
    yield from softmaxes()
    yield from optimizers()
    yield from networks()


def rows() -> Iterator[Case]:
    """Yield pair_scores in each of its layers."""
    import torch

    from lmtool.neural import ClassSoftmax, HierarchicalSoftmax, NCELoss
    from lmtool.trees import huffman_tree
    from lmtool.trees.builders import class_of_words

    for words, dim, size in ((10_000, 100, 32), (10_000, 100, 1024), (10_000, 512, 1024), (1_000_000, 100, 1024)):
        counts, (h, y) = counts_of(words), batch_of(words, dim, size)
        layers: dict[str, Any] = {
            "nce, 25 noise words each": NCELoss(dim, counts, noise=25, shared=False, sparse=True),
            "hierarchical": HierarchicalSoftmax(dim, huffman_tree(counts.numpy().astype("int64")), counts, sparse=True),
        }
        if words < 100_000:
            classes = torch.from_numpy(class_of_words(counts.numpy(), None))
            layers["classes"] = ClassSoftmax(dim, counts, classes, sparse=True)
        for name, layer in layers.items():
            step = both_ways(lambda layer=layer, h=h, y=y: layer(h, y), layer, h)  # type: ignore[misc]
            yield "pair_scores", f"{name}, V {words:,}, D {dim}, B {size:,}", layer, step


def trees() -> Iterator[Case]:
    """Yield the forms of layers over trees."""
    import torch

    from lmtool.neural import HierarchicalSoftmax, MorinBengioNodes
    from lmtool.trees import huffman_tree

    words, dim = 10_000, 100
    counts = counts_of(words)
    tree = huffman_tree(counts.numpy().astype("int64"))
    for size in (32, 1024):
        nodes = MorinBengioNodes(dim, torch.zeros(tree.nodes), hidden_dim=100, node_dim=100, sparse=True)
        layer, (h, y) = HierarchicalSoftmax(dim, tree, counts, nodes=nodes), batch_of(words, dim, size)
        step = both_ways(lambda layer=layer, h=h, y=y: layer(h, y), layer, h)  # type: ignore[misc]
        yield "morin_bengio_pairs", f"V {words:,}, D {dim}, B {size:,}", layer, step
    dot = HierarchicalSoftmax(dim, tree, counts)
    for size in (1, 256):
        h = torch.randn(size, dim)
        yield "morin_bengio_nodes", f"N {tree.nodes:,}, H 100, B {size}", layer, lambda h=h: nodes.all_scores(h)  # type: ignore[misc]
        yield "leaves_in_one_pass", f"V {words:,}, B {size}", dot, lambda h=h: dot.log_dist(h)  # type: ignore[misc]
        yield "best_first", f"V {words:,}, 10 words, B {size}", dot, lambda h=h: dot.top(h, 10)  # type: ignore[misc]


def encoders() -> Iterator[Case]:
    """Yield dropout, hidden units and histories."""
    import torch

    from lmtool.neural.encoders.nplm import History
    from lmtool.neural.encoders.options import Activation, NplmModel

    def nplm(units: int, *, gated: bool, norm: bool, dropout: float) -> Any:
        settings = NplmModel("nplm", 5, 30, False, dropout, hidden_dim=units, layers=1, direct_connections=False,
                             gated=gated,
                             activation=Activation.gelu if gated else Activation.tanh, layer_norm=norm)  # fmt: skip
        return settings.build(1000, tied=False, sparse=True)

    gated_units = [(size, 512, True, True, 0.2) for size in (32, 512)]
    plain_units = [(1024, 512, False, True, 0.0), (1024, 512, False, False, 0.5)]
    for size, units, gated, norm, dropout in gated_units + plain_units:
        encoder = nplm(units, gated=gated, norm=norm, dropout=dropout)
        z = torch.randn(size, units * (2 if gated else 1), requires_grad=True)
        step = both_ways(lambda encoder=encoder, z=z: encoder.computed("units", z, 0).sum(), encoder, z)  # type: ignore[misc]
        said = f"{'gated gelu' if gated else 'tanh'}{', norm' * norm}, dropout {dropout}, H {units}, B {size:,}"
        yield "hidden_units", said, encoder, step
    for size, width in ((32, 150), (512, 2700)):
        encoder, x = nplm(512, gated=False, norm=False, dropout=0.2), torch.randn(size, width, requires_grad=True)
        step = both_ways(lambda encoder=encoder, x=x: encoder.with_dropout(x, 0.2).sum(), encoder, x)  # type: ignore[misc]
        yield "hashed_dropout", f"{width:,} numbers, B {size}", encoder, step
    text = torch.randint(10_000, (200_000,))
    for size, far, dim, run in (
        (512, 100, 300, True),
        (512, 100, 300, False),
        (1024, 50, 100, True),
        (1024, 50, 100, False),
    ):
        module, vectors = History([0.6, 0.85, 0.95, 1.0], far, 5, dim), torch.randn(10_000, dim, requires_grad=True)
        first = (
            torch.randperm(20_000)[: size // 8, None] * 8 + torch.arange(8) if run else torch.randint(190_000, (size,))
        )
        ids = text[first.view(-1, 1) + torch.arange(far)].contiguous()
        step = both_ways(lambda m=module, i=ids, v=vectors: m(i, v, sparse=False).sum(), module, vectors)  # type: ignore[misc]
        yield "history", f"{'consecutive' if run else 'scattered'}, T {far}, E {dim}, B {size:,}", module, step


def softmaxes() -> Iterator[Case]:
    """Yield the full softmax in bfloat16; the plain method is in float32, the next form torch's autocast."""
    from lmtool.config.training import Precision
    from lmtool.neural import FullSoftmax

    for name in ("softmax_tiles", "softmax_bf16"):
        for words, dim, size in (
            (10_000, 100, 32),
            (10_000, 100, 256),
            (10_000, 100, 1024),
            (10_000, 512, 1024),
            (50_000, 128, 1024),
        ):
            layer, (h, y) = FullSoftmax(dim, counts_of(words), precision=Precision.bf16), batch_of(words, dim, size)
            step = both_ways(lambda layer=layer, h=h, y=y: layer(h, y), layer, h)  # type: ignore[misc]
            yield name, f"V {words:,}, D {dim}, B {size:,}", layer, step


def optimizers() -> Iterator[Case]:
    """Yield steps of the row optimizers on the rows of a batch."""
    import torch
    from torch import nn

    from lmtool.neural import RowAdagrad, RowAdam, RowSGD

    for words, dim, used in ((10_000, 100, 400), (10_000, 100, 4000), (10_000, 512, 3000), (1_000_000, 100, 4000)):
        for kind, more in ((RowSGD, {}), (RowAdagrad, {}), (RowAdam, {}), (RowAdam, {"correct_skipped_steps": True})):
            weight = nn.Parameter(torch.randn(words, dim))
            chosen = torch.randperm(words)[:used].sort()[0]
            weight.grad = torch.sparse_coo_tensor(
                chosen[None], torch.randn(used, dim), weight.shape, is_coalesced=True, check_invariants=False
            )
            optimizer: Any = kind([weight], lr=0.001, **more)
            said = f"{used:,} of {words:,} rows, H {dim}"
            yield f"{kind.__name__}{' with correct_skipped_steps' if more else ''}", said, None, optimizer.step


def networks() -> Iterator[Case]:
    """Yield whole steps of the paper's network, beside the ordinary step."""
    import torch

    from lmtool.neural.encoders.options import Activation, NplmModel
    from lmtool.neural.forms.network_step import network_step
    from lmtool.neural.model import NeuralModel
    from lmtool.neural.outputs.softmax import FullSoftmax
    from lmtool.training.optim import SgdOptim
    from lmtool.training.optimizers import make_optimizers

    for words, embed, hidden, context, size in (
        (29, 10, 200, 3, 32),
        (10_000, 30, 100, 5, 32),
        (10_000, 128, 512, 5, 32),
    ):
        settings = NplmModel("nplm", context, embed, False, 0.0, hidden_dim=hidden, layers=1, direct_connections=False,
                             activation=Activation.tanh, layer_norm=False)  # fmt: skip
        encoder = settings.build(words, tied=False, sparse=True)
        model = NeuralModel(encoder, FullSoftmax(hidden, counts_of(words - 1)), words)
        contexts, (_, y) = torch.randint(words - 1, (size, context)), batch_of(words - 1, hidden, size)
        optimizers_of, one = make_optimizers(model, SgdOptim("sgd", 0.01, 0.0, 0.0)), torch.ones(())
        whole: Any = network_step(model, 0.0, size, None)
        parameters = list(model.parameters())

        def step(m=model, x=contexts, y=y, optims=optimizers_of, one=one, whole=whole, of=parameters) -> None:  # type: ignore[no-untyped-def]
            from lmtool.neural.forms import allowed

            if allowed():
                whole.step(x, y, 0.01, 1e6)
                return
            loss = m(x, y)
            for parameter in of:
                parameter.grad = None
            loss.backward(one)
            loss.item()
            for optimizer in optims:
                optimizer.step()

        yield "network_step", f"V {words:,}, E {embed}, H {hidden}, C {context}, B {size}", model, step


def _peak(kind: str) -> None:
    """Print the peak MiB of a step of the full softmax in this process, without its weights."""
    from lmtool.neural import FullSoftmax
    from lmtool.neural.forms import only_plain

    layer, (h, y) = FullSoftmax(64, counts_of(200_000)), batch_of(200_000, 64, 1024)
    before = _peak_kib()
    with only_plain(kind == "plain"):
        layer(h, y).backward()
    print(round((_peak_kib() - before) / 1024))


def _peak_kib() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    _peak(sys.argv[1])

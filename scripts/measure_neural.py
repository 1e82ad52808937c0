"""The measurements of neural models for ./scripts/measure: speed of training steps, quality by tree and layer."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LMTOOL = [str(Path(__file__).resolve().parent.parent / ".venv" / "bin" / "python"), "-m", "lmtool"]
TURNS = int(os.environ.get("TURNS", "5"))


def layers(lmtool: Callable[..., float]) -> None:
    """Examples a second of steps with each output layer, beside those of its plain form, and distributions."""
    import torch

    from lmtool.system import parallel
    from lmtool.system.process import keep_freed_memory

    print(f"torch {torch.__version__}, {parallel.use(None)} threads; median of {TURNS} turns, all in one process")
    torch.set_num_threads(parallel.threads())
    lmtool("preprocess", "data=ptb", "data.name=ptb")
    for types in (10_000, 1_000_000):
        words = [f"data.types={types}", "data.tokens=3000000", "data.valid_tokens=1000", "data.test_tokens=1000"]
        lmtool("preprocess", "data=synthetic", f"data.name=synthetic{types}", *words)
    ptb = prepare_store("ptb")
    keep_freed_memory()
    rows = [("hierarchical", (30, 100, 1024)), ("hierarchical", (30, 100, 4096)), ("hierarchical", (128, 512, 4096))]
    rows += [
        ("morin_bengio", (30, 100, 4096)),
        ("nce", (30, 100, 1024)),
        ("nce", (30, 100, 4096)),
        ("nce", (128, 512, 4096)),
    ]
    rows += [(name, (30, 100, 4096)) for name in ("sampled", "adaptive", "classes")]
    for name, sizes in rows:
        print(f"{name} {_said(sizes)}: {rate(_steps(ptb, name, *sizes), sizes[2]):,.0f} ex/s", end="")
        if name in ("hierarchical", "nce"):
            print(f"; by the plain formulas {rate(_steps(ptb, name, *sizes, plain=True), sizes[2]):,.0f}", end="")
        print(flush=True)
    for name in ("hierarchical", "nce"):
        small, large = (
            rate(_steps(prepare_store(f"synthetic{types}"), name, 30, 100, 4096), 4096) for types in (10_000, 1_000_000)
        )
        print(f"{name} at V = 10,000 {small:,.0f}, at V = 1,000,000 {large:,.0f} ex/s: {large / small:.2f}", flush=True)
    _distributions(ptb)


def checks(lmtool: Callable[..., float]) -> None:
    """The time of the checks of a step's arguments, of the layer and of the encoder, beside whole training steps."""
    import torch

    from lmtool.data.corpus import Corpus
    from lmtool.neural.checks import require_hidden, require_ids
    from lmtool.system import parallel
    from lmtool.system.process import keep_freed_memory

    torch.set_num_threads(parallel.use(1))
    keep_freed_memory()
    lmtool("preprocess", "data=ptb", "data.name=ptb")
    store = prepare_store("ptb")
    for batch in (32, 1024):
        for name in ("hierarchical", "nce", "sampled", "classes", "adaptive", "softmax"):
            with Corpus.open(store) as corpus:
                model = model_of(corpus, name, 30, 100)
            layer, encoder = model.output, model.encoder
            weight, words = layer.reference(), layer.word_count
            h, y = torch.randn(batch, layer.input_dim), torch.randint(words, (batch,))
            contexts = torch.randint(words, (batch, encoder.context_size))

            def check() -> None:
                require_hidden(layer, ".forward: h", h, layer.input_dim, weight)  # noqa: B023
                require_ids(layer, ".forward: y", y, ((batch,),), words, h)  # noqa: B023
                shape = ((batch, encoder.context_size),)  # noqa: B023
                require_ids(encoder, ".forward: contexts", contexts, shape, None, encoder.embedding.weight)  # noqa: B023

            each = 1 / rate(check, 1)
            step = batch / rate(_steps(store, name, 30, 100, batch), batch)
            share = 100 * each / step
            print(f"{name}, batch {batch}: {1e6 * each:.1f} of {1e6 * step:,.0f} us a step, {share:.2f} %", flush=True)


def _said(sizes: tuple[int, int, int]) -> str:
    return f"{sizes[0]}/{sizes[1]}, batch {sizes[2]}"


def prepare_store(name: str) -> Path:
    return next(Path("stores").glob(f"{name}-*.h5"))


def rate(step: Callable[[], None], batch: int) -> float:
    for _ in range(3):
        step()
    each = max(3, 60_000 // batch // 4)
    found = []
    for _ in range(TURNS):
        start = time.perf_counter()
        done = 0
        while done < each and time.perf_counter() - start < 2:
            step()
            done += 1
        found.append(done * batch / (time.perf_counter() - start))
    return statistics.median(found)


def _steps(store: Path, name: str, embed: int, hidden: int, batch: int, *, plain: bool = False) -> Callable[[], None]:
    """A step as lmtool's training makes it, with SGD. plain: the plain formulas, with dense gradients."""
    import torch

    from lmtool.data.corpus import Corpus
    from lmtool.neural.forms import only_plain
    from lmtool.training.batches import Batches
    from lmtool.training.optim import SgdOptim
    from lmtool.training.optimizers import make_optimizers

    torch.manual_seed(0)
    with Corpus.open(store) as corpus:
        model = model_of(corpus, name, embed, hidden)
        batches = iter(Batches(corpus.split("train"), batch, 5, 0))
    if plain:
        model.use_dense_gradients()
    optimizers = make_optimizers(model, SgdOptim("sgd", 0.1, 0.0, 0.0))

    def step() -> None:
        x, y = next(batches)
        with only_plain(plain):
            loss = model(x, y)
        loss.item()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()

    return step


def model_of(corpus: Any, name: str, embed: int, hidden: int, context: int = 5) -> Any:
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
        layers=0 if name == "morin_bengio" else 1, direct=False, activation=Activation.tanh, layer_norm=False,
    )  # fmt: skip
    tree = huffman_tree(np.asarray(corpus.vocabulary.counts[:-1])) if name in ("hierarchical", "morin_bengio") else None
    return build_neural(encoder, outputs[name], corpus.vocabulary, tree)


def _distributions(store: Path) -> None:
    import numpy as np

    from lmtool.data.corpus import Corpus

    with Corpus.open(store) as corpus:
        for name in ("hierarchical", "morin_bengio", "softmax"):
            model = model_of(corpus, name, 30, 100)
            contexts = corpus.split("valid").windows(np.arange(256), 5)[0]
            times = []
            for _ in range(TURNS + 1):
                start = time.perf_counter()
                model.log_dist(contexts)
                times.append((time.perf_counter() - start) / 256 * 1000)
            print(
                f"one distribution over 10,000 words, {name}, in a batch of 256: {statistics.median(times[1:]):.3f} ms"
            )
            if name == "hierarchical":
                _likeliest(model, contexts)


def _likeliest(model: Any, contexts: Any) -> None:
    for batch in (1, 256):
        few = contexts[:batch]
        for name, ask in (("10 likeliest words", lambda few=few: model.top(few, 10)),
                          ("whole distribution", lambda few=few: model.log_dist(few))):  # fmt: skip
            times = []
            for _ in range(4 * TURNS + 1):
                start = time.perf_counter()
                ask()
                times.append((time.perf_counter() - start) / batch * 1000)
            print(f"  the {name} after a context, in a batch of {batch}: {statistics.median(times[1:]):.3f} ms")


def result(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(run) / "result.json").read_text())
    return found


def _print(name: str, found: dict[str, Any]) -> None:
    print(f"{name:<28} valid {found['valid_perplexity']:7.2f}  {found['training_seconds']:.0f} s", end="")
    print(f"  {found['epochs']:.2f} epochs", end="")
    print(f"  {found['examples_per_second']:,.0f} ex/s  {found['parameters']:,} parameters", flush=True)


def trees(lmtool: Callable[..., float]) -> None:
    """PTB: model=hsoftmax on every tree, an epoch each without gates and history; tree.run= is the run with `brown`."""
    budget = ["training.epochs=1", "training.minutes=null", "training.evaluate_every=1"]
    budget += ["model.gated=false", "model.history=0", "model.across_sentences=false"]
    budget += ["model.dropout=0.2", "model.input_dropout=0", "data=ptb"]
    chosen = [["huffman"], ["brown"], ["random"], ["classes"], ["frequency"], ["balanced"], ["wordnet"]]
    chosen += [["clusters"], ["clusters", "tree.epsilon=0.25"], ["union"]]
    run = ["clusters", "tree.run=brown"]
    chosen += [run, [*run, "tree.split=balanced"], [*run, "tree.epsilon=0.25"]]
    chosen += [[*run, "tree.representation=embeddings", "tree.split=balanced"]]
    chosen += [["union", "tree.trees=[brown,{kind:clusters,run:brown,epsilon:0.25}]"]]
    for number, (name, *settings) in enumerate(chosen):
        folder = f"tree{number}" if name != "brown" else name
        if name == "wordnet" and not Path("/usr/share/wordnet").is_dir():
            print("wordnet: Debian's wordnet-base is not installed", flush=True)
            continue
        lmtool("train", "model=hsoftmax", f"tree={name}", *settings, *budget, f"hydra.run.dir={folder}")
        lmtool("tree", f"tree={name}", *settings, "data=ptb", f"hydra.run.dir={folder}-tree")
        depth = result(f"{folder}-tree")
        _print(" ".join([name, *settings]), result(folder))
        print(f"{'':<28} depth {depth['weighted_mean_depth']:.2f} by frequency, built in {depth['seconds']:.1f} s")

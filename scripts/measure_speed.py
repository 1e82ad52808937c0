"""Speed of training steps for ./scripts/measure: beside plain PyTorch, other processes, plain formulas, a bare loop."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from measuring import (
    KN5,
    head,
    in_turns,
    lmtool,
    median_seconds,
    rates_in_turns,
    row,
    store_of,
    train,
    turns,
    use_threads,
)
from network_steps import OUTPUTS, built, lmtool_step, network, precisions, pytorch_step, with_ratios

from lmtool.data.corpus import Corpus
from lmtool.neural.checks import require_hidden, require_ids
from lmtool.neural.forms import tiles
from lmtool.neural.optimizers.base import clip_gradients
from lmtool.system import parallel
from lmtool.training.optimizers import make_optimizers

# (text, embeddings, hidden, context, batch)
FULL = {
    "10,000 words, 30/100, batch 1,024": ("ptb", 30, 100, 5, 1024),
    "10,000 words, 128/512, batch 1,024": ("ptb", 128, 512, 5, 1024),
    "10,000 words, 30/100, batch 32": ("ptb", 30, 100, 5, 32),
    "10,000 words, 128/512, batch 32": ("ptb", 128, 512, 5, 32),
    "28 letters, 10/200, batch 32": ("names", 10, 200, 3, 32),
}
SPARED = [name for name in OUTPUTS if name not in ("softmax", "morin_bengio")]  # layers that score some words alone
# Works of `contention`, commands: a text and the words of a training, or those of another command.
WORKS: dict[str, list[str]] = {
    **{
        name: ["train", f"data={text}", *network("softmax", embed, hidden, batch, context)]
        for name, (text, embed, hidden, context, batch) in FULL.items()
    },
    **{f"{layer}, 30/100, batch 1,024": ["train", "data=ptb", *network(layer, 30, 100, 1024)] for layer in SPARED},
    "sampled, 28 letters, 16/64, batch 512": [
        *("train", "data=names", *network("sampled", 16, 64, 512, 3), "output.num_samples=28")
    ],
    "counting, order 5": ["train", *KN5],
    "scoring by order 5": ["eval", "run=kn5"],
    "scoring by model=nplm": ["eval", "run=nplm"],
}
SECONDS = 0.6  # of one form in one turn


def _prepare(*texts: str) -> None:
    use_threads()
    for text in texts:
        lmtool("preprocess", f"data={text}")
    print(f"torch {torch.__version__}, {parallel.threads()} threads")


def speed() -> None:
    """PTB and names: steps of training a second beside a plain PyTorch loop, in fp32 and bf16"""
    _prepare("ptb", "names")
    found = "tiles for bf16 (AMX)" if tiles.available() else "no tiles for bf16"
    print(f"this processor has {found}; examples a second, medians of {turns()} turns, and the median of the ratios")
    head("work", "plain loop", "fp32", "ratio", "precision=auto", "ratio", numbers=5)
    works = [(name, *work, "softmax", work[4]) for name, work in FULL.items()]
    for layer, batch in (("hierarchical", 4096), ("nce", 1024), ("morin_bengio", 4096)):
        works += [(f"{layer}, 30/100, batch {batch:,}", "ptb", 30, 100, 5, 1024, layer, batch)]
    for name, text, embed, hidden, context, plain_batch, layer, batch in works:
        store = store_of(text)
        steps = {"plain": (pytorch_step(store, embed, hidden, plain_batch, context), plain_batch)}
        words = network(layer, embed, hidden, batch, context)
        steps |= precisions(store, words, batch, ("fp32", "auto"))
        row(name, *with_ratios(rates_in_turns(steps, SECONDS, turns()), "plain", "fp32", "auto"))
    steps = precisions(store_of("ptb"), ["model=nplm"], 512, ("fp32", "auto"))
    fp32, auto, ratio = with_ratios(rates_in_turns(steps, SECONDS, turns()), "fp32", "auto")
    print(f"model=nplm with its defaults: fp32 {fp32}, auto {auto}, ratio {ratio}")


def contention() -> None:
    """training, counting and scoring while other processes keep one core busy, or all of them"""
    for run, words in {"kn5": KN5, "nplm": ["model=nplm", "training.steps=20", "data=ptb"]}.items():
        train(run, *words)
    print("Seconds of a step or a command; multiples of that beside one busy process or one per core.")
    surroundings = ("null, quiet", "null beside one", "null beside all", "one beside all")
    head("work", "one thread, quiet", *surroundings, numbers=5)
    cores = os.cpu_count() or 1
    for number, (name, (verb, *words)) in enumerate(WORKS.items()):
        seconds = []
        for threads, busy in (("1", 0), ("null", 0), ("null", 1), ("null", cores), ("1", cores)):
            others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
            try:
                time.sleep(1.0 if busy else 0)
                is_network = "model=nplm" in words
                brief = ["training.epochs=null", "training.minutes=0.07", "training.accuracy_tokens=0"]
                line = [*words, f"threads={threads}", *(brief if is_network else [])]
                found = train(f"work{number}-{threads}-{busy}", *line, verb=verb)
                per_step = found["examples"] / found["steps"] / found["examples_per_second"] if is_network else 0.0
                seconds.append(per_step or found["seconds"])
            finally:
                for other in others:
                    other.kill()
        row(name, f"{seconds[0]:.4f}", *(f"{taken / seconds[0]:.2f}" for taken in seconds[1:]))


def layers() -> None:
    """PTB and synthetic: steps of training a second of every output layer, and whole distributions"""
    _prepare("ptb")
    print("examples a second; embeddings/hidden units")
    head("layer", "lmtool", "plain formulas", numbers=2)
    works = [("hierarchical", 30, 100, 1024), ("hierarchical", 30, 100, 4096), ("hierarchical", 128, 512, 4096)]
    works += [("morin_bengio", 30, 100, 4096)]
    works += [("nce", 30, 100, 1024), ("nce", 30, 100, 4096), ("nce", 128, 512, 4096)]
    works += [(name, 30, 100, 4096) for name in ("sampled", "adaptive", "classes")]
    for name, embed, hidden, batch in works:
        words, plain = network(name, embed, hidden, batch), ""
        if name in ("hierarchical", "nce"):
            plain = (
                f"{_rate('ptb', [*words, 'training.forms=plain', 'training.embedding_gradients=dense'], batch):,.0f}"
            )
        row(f"{name} {embed}/{hidden}, batch {batch:,}", f"{_rate('ptb', words, batch):,.0f}", plain)
    for types in (10_000, 1_000_000):
        words = [f"data.types={types}", "data.tokens=3000000", "data.valid_tokens=1000", "data.test_tokens=1000"]
        lmtool("preprocess", "data=synthetic", f"data.name=synthetic{types}", *words)
    for name in ("hierarchical", "nce"):
        words = network(name, 30, 100, 4096)
        small, large = (_rate(f"synthetic{types}", words, 4096) for types in (10_000, 1_000_000))
        print(f"{name} at V = 10,000 {small:,.0f}, at V = 1,000,000 {large:,.0f} ex/s: {large / small:.2f}", flush=True)
    with Corpus.open(store_of("ptb")) as corpus:
        contexts = corpus.split("valid").windows(np.arange(256), 5)[0]
        head("one context in a batch, ms", "batch", "a distribution over 10,000 words", "10 likeliest words", numbers=3)
        for name, batch in (("hierarchical", 1), ("hierarchical", 256), ("morin_bengio", 256), ("softmax", 256)):
            model, some = built(corpus, network(name, 30, 100, 32))[1].eval(), contexts[:batch]
            calls = (partial(model.log_dist, some), partial(model.top, some, 10))
            row(name, batch, *(f"{1000 / batch * median_seconds(call, 2 * turns()):.3f}" for call in calls))


def _rate(data: str, words: list[str], batch: int) -> float:
    """Return examples per second of a training."""
    return statistics.median(rates_in_turns({"": (lmtool_step(store_of(data), words), batch)}, 2, turns())[""])


def checks() -> None:
    """PTB: the time of checking a step's arguments beside the step, of every output layer"""
    _prepare("ptb")
    use_threads(1)
    head("output layer", "batch", "checks, us", "step, us", "share, %", numbers=4)
    for batch in (32, 1024):
        for name in (*SPARED, "softmax"):
            with Corpus.open(store_of("ptb")) as corpus:
                model = built(corpus, network(name, 30, 100, batch))[1]
            layer, encoder = model.output, model.encoder
            weight, words = layer.reference(), layer.word_count
            h, y = torch.randn(batch, layer.input_dim), torch.randint(words, (batch,))
            contexts = torch.randint(words, (batch, encoder.context_size))

            def check() -> None:
                require_hidden(layer, ".forward: h", h, layer.input_dim, weight)  # noqa: B023
                require_ids(layer, ".forward: y", y, ((batch,),), words, h)  # noqa: B023
                shape = ((batch, encoder.context_size),)  # noqa: B023
                require_ids(encoder, ".forward: contexts", contexts, shape, None, encoder.embedding.weight)  # noqa: B023

            each = 1 / statistics.median(rates_in_turns({"": (check, 1)}, 0.5, turns())[""])
            whole = batch / _rate("ptb", network(name, 30, 100, batch), batch)
            row(name, batch, f"{1e6 * each:.1f}", f"{1e6 * whole:,.0f}", f"{100 * each / whole:.2f}")


def engine() -> None:
    """PTB: the time that the training engine adds to a bare loop"""
    _prepare("ptb")
    head("output layer", "batch", "bare loop, ms", "engine, ms", "added, %", numbers=4)
    for name in ("softmax", "hierarchical", "nce"):
        for batch in (1024, 32):
            words, steps = [*network(name, 30, 100, batch), "training.max_grad_norm=1"], max(8, 12_000 // batch)
            one_step, one_bare = lmtool_step(store_of("ptb"), words), _bare_step(words, batch)
            calls = {
                "bare": lambda bare=one_bare, steps=steps: [bare() for _ in range(steps)],
                "ours": lambda step=one_step, steps=steps: [step() for _ in range(steps)],
            }
            seconds = in_turns(calls, 2 * turns())
            bare, ours = (1000 * statistics.median(times) / steps for times in seconds.values())
            row(name, batch, f"{bare:.2f}", f"{ours:.2f}", f"{100 * (ours / bare - 1):+.1f}")


def _bare_step(words: list[str], batch: int) -> Callable[[], None]:
    """Return a step of a bare training loop over tensors, with gradients clipped to norm 1."""
    with Corpus.open(store_of("ptb")) as corpus:
        x, y = map(torch.from_numpy, corpus.split("train").windows(np.arange(400_000), 5))
        config, model = built(corpus, words)
    batches = (index for _ in iter(int, 1) for index in torch.randperm(len(x)).split(batch)[:-1])
    optimizers = make_optimizers(model, config.optim)

    def step() -> None:
        index = next(batches)
        loss = model(x[index], y[index])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        clip_gradients(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        loss.item()

    return step

"""Speed of training steps for ./scripts/measure: beside plain PyTorch, other processes and plain formulas."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from functools import partial

import numpy as np
import torch
from measuring import (
    KN5,
    LMTOOL,
    head,
    lmtool,
    median_seconds,
    rates_in_turns,
    result,
    row,
    store_of,
    train,
    turns,
    use_threads,
)
from network_steps import OUTPUTS, built, lmtool_step, network, precisions, pytorch_step, with_ratios

from lmtool.data.corpus import Corpus
from lmtool.neural.forms import tiles
from lmtool.system import parallel

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
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
# Works of `processes`: (model, its words, batch of all processes)
SHARED = [("nplm", [], 1024), ("nplm", [], 128), ("hsoftmax", ["tree=huffman"], 4096), ("nce", [], 4096)]


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
    return statistics.median(rates_in_turns({"": (lmtool_step(store_of(data), words), batch)}, 2, turns())[""])


def processes() -> None:
    """PTB: torchrun with two processes beside one thread and two"""
    lmtool("preprocess", "data=ptb")
    starts = {"1": LMTOOL, "2": LMTOOL, "torchrun": [*TORCHRUN, "-m", "lmtool"]}
    head("examples a second", "one thread", "two threads", "two processes", "/ one thread", "/ two threads", numbers=5)
    for model, more, batch in SHARED:
        found: dict[str, list[float]] = {name: [] for name in starts}
        for turn in range(turns(3)):
            for name, start in starts.items():
                run = f"{model}-{batch}-{name}-{turn}"
                words = ["train", f"model={model}", "data=ptb", f"training.batch_size={batch}", "training.epochs=null"]
                words += [*more, "training.minutes=0.2", "training.accuracy_tokens=0", f"hydra.run.dir={run}"]
                words += ["threads=1"] if name == "1" else []
                subprocess.run([*start, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                found[name].append(result(run)["examples_per_second"])
        single, threads, two = (statistics.median(rates) for rates in found.values())
        rates = (f"{rate:,.0f}" for rate in (single, threads, two))
        row(f"{model}, batch {batch:,}", *rates, f"{two / single:.2f}", f"{two / threads:.2f}")

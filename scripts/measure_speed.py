"""Speed of training steps for ./scripts/measure: beside plain PyTorch, other processes, plain formulas, a bare loop."""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import (
    Times,
    head,
    in_turns,
    lmtool,
    measure,
    median_seconds,
    rates_in_turns,
    ratios,
    row,
    store_of,
    train,
    turns,
    use_threads,
)
from network_steps import lmtool_of, loop, loop_of, model_of, pytorch_of

# (text, embeddings, hidden, context, batch)
FULL = {
    "10,000 words, 30/100, batch 1,024": ("ptb", 30, 100, 5, 1024),
    "10,000 words, 128/512, batch 1,024": ("ptb", 128, 512, 5, 1024),
    "10,000 words, 30/100, batch 32": ("ptb", 30, 100, 5, 32),
    "10,000 words, 128/512, batch 32": ("ptb", 128, 512, 5, 32),
    "28 letters, 10/200, batch 32": ("names", 10, 200, 3, 32),
}
LAYERS = "hierarchical", "nce", "sampled", "classes", "adaptive"
# Works of `contention`, each in its own process: (text, embeddings, hidden, context, batch, layer) or a command line.
WORKS: dict[str, Any] = {
    **{name: (*work, "softmax") for name, work in FULL.items()},
    **{f"{layer}, 30/100, batch 1,024": ("ptb", 30, 100, 5, 1024, layer) for layer in LAYERS},
    "sampled, 28 letters, 16/64, batch 512": ("names", 16, 64, 3, 512, "sampled"),
    "counting, order 5": "train model=ngram",
    "scoring by order 5": "eval run=kn5",
    "scoring by model=nplm": "eval run=nplm",
}
WORK_SECONDS = 4.0  # how long `contention` makes steps of one work
SECONDS = 0.6  # of one form in one turn
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::addmv", "aten::addmv_")
BUSY = "while True: pass"


def _prepare(*texts: str) -> None:
    import torch

    from lmtool.system import parallel

    use_threads()
    for text in texts:
        lmtool("preprocess", f"data={text}")
    print(f"torch {torch.__version__}, {parallel.threads()} threads")


def cells(rates: Times, base: str, others: list[str]) -> list[str]:
    """Return the median rate of the base, then that of each other one with the median of its ratios to the base."""
    found = [f"{statistics.median(rates[base]):,.0f}"]
    for other in others:
        found += [f"{statistics.median(rates[other]):,.0f}", f"{ratios(rates, base)[other]:.2f}"]
    return found


@measure
def speed() -> None:
    """PTB and names: steps of training a second beside a plain PyTorch loop, in fp32 and bf16"""
    from lmtool.neural.forms import tiles

    _prepare("ptb", "names")
    found = "tiles for bf16 (AMX)" if tiles.available() else "no tiles for bf16"
    print(f"this processor has {found}; examples a second, medians of {turns()} turns, and the median of the ratios")
    head("work", "plain loop", "fp32", "ratio", "precision=auto", "ratio", numbers=5)
    works = [(name, *work, "softmax", work[4]) for name, work in FULL.items()]
    for layer, batch in (("hierarchical", 4096), ("nce", 1024), ("morin_bengio", 4096)):
        works += [(f"{layer}, 30/100, batch {batch:,}", "ptb", 30, 100, 5, 1024, layer, batch)]
    for name, text, embed, hidden, context, plain_batch, layer, batch in works:
        store = store_of(text)
        steps = {"plain": (pytorch_of(store, embed, hidden, plain_batch, context), plain_batch)}
        for precision in ("fp32", "auto"):
            steps[precision] = (lmtool_of(store, embed, hidden, batch, context, layer, precision), batch)
        row(name, *cells(rates_in_turns(steps, SECONDS, turns()), "plain", ["fp32", "auto"]))
    ptb = store_of("ptb")
    steps = {name: (lmtool_of(ptb, None, None, 512, None, precision=name), 512) for name in ("fp32", "auto")}
    fp32, auto, ratio = cells(rates_in_turns(steps, SECONDS, turns()), "fp32", ["auto"])
    print(f"model=nplm with its defaults: fp32 {fp32}, auto {auto}, ratio {ratio}")


@measure
def contention() -> None:
    """training, counting and scoring while other processes keep one core busy, or all of them"""
    _prepare("ptb", "names")
    train("kn5", "model=ngram", "data=ptb")
    train("nplm", "model=nplm", "training.steps=20", "data=ptb")
    print("Seconds of a step or a command; multiples of that beside one busy process or one per core.")
    surroundings = ("null, quiet", "null beside one", "null beside all", "one beside all")
    head("work", "one thread, quiet", *surroundings, numbers=5)
    for name in WORKS:
        seconds = []
        for threads, busy in (("1", 0), ("", 0), ("", 1), ("", os.cpu_count() or 1), ("1", os.cpu_count() or 1)):
            others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
            try:
                time.sleep(1.0 if busy else 0)
                command = [sys.executable, str(Path(__file__).resolve()), name, threads]
                seconds.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            finally:
                for other in others:
                    other.kill()
        row(name, f"{seconds[0]:.4f}", *(f"{taken / seconds[0]:.2f}" for taken in seconds[1:]))


def _alone(name: str, threads: str) -> None:
    """Print the seconds that one work of `contention` takes in this process, started as a command starts it."""
    from lmtool.__main__ import SPIN_COUNT
    from lmtool.session import Session

    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    import torch  # noqa: F401, read here, as by a command

    from lmtool.system.process import keep_freed_memory

    Session(Path()).use_threads(int(threads) if threads else None)
    keep_freed_memory()
    work = WORKS[name]
    if isinstance(work, str):
        from lmtool.cli.command_line import main

        words = [*shlex.split(work), "data=ptb", *([f"threads={threads}"] if threads else [])]
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, to the end of the process
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            main([*words, f"hydra.run.dir={folder}"])
            seconds = time.perf_counter() - start
    else:
        text, embed, hidden, context, batch, layer = work
        advance = lmtool_of(store_of(text), embed, hidden, batch, context, layer)
        rates = rates_in_turns({"": (advance, 1)}, WORK_SECONDS / 2, 1)  # the first turn is not counted
        seconds = 1 / rates[""][0]
    print(seconds, file=sys.__stdout__)


@measure
def step() -> None:
    """PTB: where the time of a step of model=nplm goes, in fp32 and bf16"""
    from torch.profiler import ProfilerActivity, profile

    _prepare("ptb")
    for precision in ("fp32", "auto"):
        advance = lmtool_of(store_of("ptb"), None, None, 512, None, precision=precision)

        def thirty_steps(advance=advance) -> None:  # type: ignore[no-untyped-def]
            for _ in range(30):
                advance()

        seconds = median_seconds(thirty_steps, 1) / 30
        with profile(activities=[ProfilerActivity.CPU]) as taken:
            thirty_steps()
        times = {event.key: event.self_cpu_time_total for event in taken.key_averages()}
        whole = sum(times.values())
        products = sum(times.pop(name, 0.0) for name in PRODUCTS) / whole
        print(f"{precision}: {1000 * seconds:.1f} ms a step; matrix products of torch {100 * products:.0f} % of it")
        rest = sorted(((share / whole, name) for name, share in times.items()), reverse=True)
        print("  " + ", ".join(f"{name} {100 * share:.1f} %" for share, name in rest if share > 0.02), flush=True)


@measure
def layers() -> None:
    """PTB and synthetic: steps of training a second of every output layer, and whole distributions"""
    _prepare("ptb")
    for types in (10_000, 1_000_000):
        words = [f"data.types={types}", "data.tokens=3000000", "data.valid_tokens=1000", "data.test_tokens=1000"]
        lmtool("preprocess", "data=synthetic", f"data.name=synthetic{types}", *words)
    works = [("hierarchical", 30, 100, 1024), ("hierarchical", 30, 100, 4096), ("hierarchical", 128, 512, 4096)]
    works += [("morin_bengio", 30, 100, 4096)]
    works += [("nce", 30, 100, 1024), ("nce", 30, 100, 4096), ("nce", 128, 512, 4096)]
    works += [(name, 30, 100, 4096) for name in ("sampled", "adaptive", "classes")]
    for name, embed, hidden, batch in works:
        said = f"{name} {embed}/{hidden}, batch {batch}: {_rate('ptb', name, embed, hidden, batch):,.0f} ex/s"
        if name in ("hierarchical", "nce"):
            said += f"; by the plain formulas {_rate('ptb', name, embed, hidden, batch, plain=True):,.0f}"
        print(said, flush=True)
    for name in ("hierarchical", "nce"):
        small, large = (_rate(f"synthetic{types}", name, 30, 100, 4096) for types in (10_000, 1_000_000))
        print(f"{name} at V = 10,000 {small:,.0f}, at V = 1,000,000 {large:,.0f} ex/s: {large / small:.2f}", flush=True)
    _distributions()


def _rate(data: str, layer: str, embed: int, hidden: int, batch: int, *, plain: bool = False) -> float:
    step = loop_of(store_of(data), layer, embed, hidden, batch, plain=plain)
    return statistics.median(rates_in_turns({"": (step, batch)}, 2, turns())[""])


def _distributions() -> None:
    import numpy as np

    from lmtool.data.corpus import Corpus

    with Corpus.open(store_of("ptb")) as corpus:
        for name in ("hierarchical", "morin_bengio", "softmax"):
            model = model_of(corpus, name, 30, 100)
            contexts = corpus.split("valid").windows(np.arange(256), 5)[0]
            milliseconds = 1000 / 256 * median_seconds(lambda m=model, c=contexts: m.log_dist(c), turns())
            print(f"one distribution over 10,000 words, {name}, in a batch of 256: {milliseconds:.3f} ms")
            for batch in (1, 256) if name == "hierarchical" else ():
                asked = {
                    "10 likeliest words": lambda m=model, c=contexts[:batch]: m.top(c, 10),
                    "whole distribution": lambda m=model, c=contexts[:batch]: m.log_dist(c),
                }
                for what, call in asked.items():
                    milliseconds = 1000 / batch * median_seconds(call, 4 * turns())
                    print(f"  the {what} after a context, in a batch of {batch}: {milliseconds:.3f} ms")


@measure
def checks() -> None:
    """PTB: the time of checking a step's arguments beside the step, of every output layer"""
    import torch

    from lmtool.data.corpus import Corpus
    from lmtool.neural.checks import require_hidden, require_ids

    _prepare("ptb")
    use_threads(1)
    for batch in (32, 1024):
        for name in (*LAYERS, "softmax"):
            with Corpus.open(store_of("ptb")) as corpus:
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

            rates = rates_in_turns({"": (check, 1)}, 0.5, turns())[""]
            each, whole = 1 / statistics.median(rates), batch / _rate("ptb", name, 30, 100, batch)
            share = 100 * each / whole
            print(f"{name}, batch {batch}: {1e6 * each:.1f} of {1e6 * whole:,.0f} us a step, {share:.2f} %", flush=True)


@measure
def engine() -> None:
    """PTB: the time that the training engine adds to a bare loop"""
    import numpy as np
    import torch

    from lmtool.data.corpus import Corpus
    from lmtool.training.optim import SgdOptim
    from lmtool.training.optimizers import make_optimizers

    _prepare("ptb")
    for name in ("softmax", "hierarchical", "nce"):
        for batch in (1024, 32):
            with Corpus.open(store_of("ptb")) as corpus:
                contexts, targets = map(torch.from_numpy, corpus.split("train").windows(np.arange(400_000), 5))
                model = model_of(corpus, name, 30, 100)
            order = torch.randperm(400_000)

            def batches(x=contexts, y=targets, order=order, batch=batch):  # type: ignore[no-untyped-def]
                while True:
                    for index in order.split(batch)[:-1]:
                        yield x[index], y[index]

            bare = loop(model, batches(), make_optimizers(model, SgdOptim("sgd", 0.1, 0.0, 0.0)), clip=1.0)
            whole = lmtool_of(store_of("ptb"), 30, 100, batch, 5, name, clip=1.0)
            steps = max(8, 12_000 // batch)
            calls = {
                "bare": lambda bare=bare, steps=steps: [bare() for _ in range(steps)],
                "ours": lambda whole=whole, steps=steps: [whole() for _ in range(steps)],
            }
            seconds = in_turns(calls, 2 * turns())
            loop_ms, ours_ms = (1000 * statistics.median(times) / steps for times in seconds.values())
            print(f"{name} 30/100, batch {batch}: bare loop {loop_ms:.2f} ms a step, engine {ours_ms:.2f}:", end=" ")
            print(f"{100 * (ours_ms / loop_ms - 1):+.1f} %", flush=True)


if __name__ == "__main__":
    _alone(*sys.argv[1:])

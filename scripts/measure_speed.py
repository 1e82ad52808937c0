"""Steps of lmtool's training beside those of a plain PyTorch loop, in turns, for ./scripts/measure."""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measure_neural

TURNS = measure_neural.TURNS
# (text, embeddings, hidden, context, batch)
FULL = {
    "10,000 words, 30/100, batch 1,024": ("ptb", 30, 100, 5, 1024),
    "10,000 words, 128/512, batch 1,024": ("ptb", 128, 512, 5, 1024),
    "10,000 words, 30/100, batch 32": ("ptb", 30, 100, 5, 32),
    "10,000 words, 128/512, batch 32": ("ptb", 128, 512, 5, 32),
    "28 letters, 10/200, batch 32": ("names", 10, 200, 3, 32),
}
LAYERS = "hierarchical", "nce", "sampled", "classes", "adaptive"
STEPS_FOR = 4.0  # seconds for which `contention` makes steps of one work
# Works of `contention`, alone in a process: (text, embeddings, hidden, context, batch, layer) or a command line.
ALONE: dict[str, Any] = {
    **{name: (*work, "softmax") for name, work in FULL.items()},
    **{f"{layer}, 30/100, batch 1,024": ("ptb", 30, 100, 5, 1024, layer) for layer in LAYERS},
    "sampled, 28 letters, 16/64, batch 512": ("names", 16, 64, 3, 512, "sampled"),
    "counting, order 5": "train model=ngram",
    "scoring by order 5": "eval run=kn5",
    "scoring by model=nplm": "eval run=nplm",
}
OTHERS = [("hierarchical", 4096), ("nce", 1024), ("morin_bengio", 4096)]
SECONDS = 0.6  # of one form in one turn
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::addmv", "aten::addmv_")
BUSY = "while True: pass"


def speed(lmtool: Callable[..., float]) -> None:
    """Examples a second: a plain PyTorch loop, and lmtool's in fp32 and with precision=auto, in turns."""
    from lmtool.neural.forms import tiles

    stores = _begin(lmtool)
    found = "tiles for bf16 (AMX)" if tiles.available() else "no tiles for bf16"
    print(f"this processor has {found}; examples a second, medians of {TURNS} turns, and the median of the ratios")
    print("| work | plain loop | fp32 | ratio | precision=auto | ratio |\n|---|--:|--:|--:|--:|--:|")
    for name, (text, embed, hidden, context, batch) in FULL.items():
        forms = {"plain": (plain_steps(stores[text], embed, hidden, batch, context), batch)}
        for precision in ("fp32", "auto"):
            forms[precision] = (steps_of(stores[text], embed, hidden, batch, context, precision=precision), batch)
        _print(name, rates_in_turns(forms))
    for layer, batch in OTHERS:
        forms = {"plain": (plain_steps(stores["ptb"], 30, 100, 1024, 5), 1024)}
        for precision in ("fp32", "auto"):
            forms[precision] = (steps_of(stores["ptb"], 30, 100, batch, 5, layer, precision), batch)
        _print(f"{layer}, 30/100, batch {batch:,}", rates_in_turns(forms))
    forms = {name: (steps_of(stores["ptb"], None, None, 512, None, precision=name), 512) for name in ("fp32", "auto")}
    fp32, auto, ratio = cells(rates_in_turns(forms), "fp32", ["auto"])
    print(f"model=nplm with its defaults: fp32 {fp32}, auto {auto}, ratio {ratio}")


def contention(lmtool: Callable[..., float]) -> None:
    """Training, counting and scoring while other processes keep one or both cores busy, beside one quiet thread."""
    _begin(lmtool)
    for name, model in {"kn5": ["model=ngram"], "nplm": ["model=nplm", "training.steps=20"]}.items():
        lmtool("train", *model, "data=ptb", f"hydra.run.dir={name}")
    here = str(Path(__file__).resolve())
    print("Seconds of a step or a command; multiples of that beside one busy process or one per core.")
    print("| work | one thread, quiet | null, quiet | null beside one | null beside all | one beside all |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in ALONE:
        seconds = []
        for threads, busy in (("1", 0), ("", 0), ("", 1), ("", os.cpu_count() or 1), ("1", os.cpu_count() or 1)):
            others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
            try:
                time.sleep(1.0 if busy else 0)
                command = [sys.executable, here, name, threads]
                seconds.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            finally:
                for other in others:
                    other.kill()
        cells = [f"{seconds[0]:.4f}", *(f"{taken / seconds[0]:.2f}" for taken in seconds[1:])]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def step(lmtool: Callable[..., float]) -> None:
    """Where the time of a step of model=nplm with its defaults goes: matrix products, and what takes more than 2 %."""
    from torch.profiler import ProfilerActivity, profile

    stores = _begin(lmtool)
    for precision in ("fp32", "auto"):
        advance = steps_of(stores["ptb"], None, None, 512, None, precision=precision)
        for _ in range(30):
            advance()
        start = time.perf_counter()
        for _ in range(30):
            advance()
        seconds = (time.perf_counter() - start) / 30
        with profile(activities=[ProfilerActivity.CPU]) as taken:
            for _ in range(30):
                advance()
        times = {event.key: event.self_cpu_time_total for event in taken.key_averages()}
        whole = sum(times.values())
        products = sum(times.get(name, 0.0) for name in PRODUCTS) / whole
        print(f"{precision}: {1000 * seconds:.1f} ms a step; matrix products of torch {100 * products:.0f} % of it")
        rest = sorted(((share / whole, name) for name, share in times.items() if name not in PRODUCTS), reverse=True)
        print("  " + ", ".join(f"{name} {100 * share:.1f} %" for share, name in rest if share > 0.02), flush=True)


def _begin(lmtool: Callable[..., float]) -> dict[str, Path]:
    import torch

    from lmtool.system import parallel
    from lmtool.system.process import keep_freed_memory

    torch.set_num_threads(parallel.use(None))
    keep_freed_memory()
    for text in ("ptb", "names"):
        lmtool("preprocess", f"data={text}")
    print(f"torch {torch.__version__}, {parallel.threads()} threads")
    return {text: measure_neural.prepare_store(text) for text in ("ptb", "names")}


def _print(name: str, rates: dict[str, list[float]]) -> None:
    print(f"| {name} | {' | '.join(cells(rates, 'plain', ['fp32', 'auto']))} |", flush=True)


def cells(rates: dict[str, list[float]], first: str, others: list[str]) -> list[str]:
    """The median rate of the first form, then that of each other one with the median of its ratios to the first."""
    found = [f"{statistics.median(rates[first]):,.0f}"]
    for other in others:
        ratio = statistics.median(b / a for a, b in zip(rates[first], rates[other], strict=True))
        found += [f"{statistics.median(rates[other]):,.0f}", f"{ratio:.2f}"]
    return found


def rates_in_turns(
    forms: dict[str, tuple[Callable[[], object], int]], seconds: float = SECONDS
) -> dict[str, list[float]]:
    """Examples a second of each form, (step, batch), in TURNS turns after one that does not count.

    seconds: of one form in one turn.
    """
    found: dict[str, list[float]] = {name: [] for name in forms}
    for turn in range(TURNS + 1):
        for name, (step, batch) in forms.items():
            start, done = time.perf_counter(), 0
            while done < 3 or time.perf_counter() - start < seconds:
                step()
                done += 1
            if turn:
                found[name].append(done * batch / (time.perf_counter() - start))
    return found


def plain_steps(store: Path, embed: int, hidden: int, batch: int, context: int) -> Callable[[], None]:
    """The usual loop: TensorDataset, DataLoader, nn.Embedding, nn.Linear, CrossEntropyLoss, SGD."""
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


def steps_of(
    store: Path,
    embed: int | None,
    hidden: int | None,
    batch: int,
    context: int | None,
    layer: str = "softmax",
    precision: str = "fp32",
    device: str = "cpu",
) -> Callable[[], object]:
    """Steps of lmtool's training of such a network by SGD, without clipping; sizes None: model=nplm and optim=adamw
    with their defaults.
    """
    import torch

    from lmtool.config.training import Precision, TrainingConfig
    from lmtool.data.corpus import Corpus
    from lmtool.training.interruption import StopRequest
    from lmtool.training.loop import Plan, _Training
    from lmtool.training.optim import SgdOptim
    from lmtool.training.processes import Processes
    from lmtool.training.schedules import ConstantSchedule

    settings = dict(epochs=None, steps=1 << 40, minutes=None, patience=None, batch_size=batch, evaluate_every=1e9)
    settings |= dict(accuracy_on=0, clip_norm=1.0 if embed is None else None, max_norm=None, compile=False)
    settings |= dict(memory=None, save_every=1e9, tensorboard=False, consecutive=None)
    corpus = Corpus.open(store).__enter__()
    torch.manual_seed(0)
    if embed is None:
        model, optim, across = _nplm(corpus)
    else:
        model = measure_neural.model_of(corpus, layer, embed, hidden, context)
        optim, across = SgdOptim("sgd", 0.1, 0.0, 0.0), False
    config = TrainingConfig(**settings, precision=Precision(precision))
    plan = Plan(config, optim, ConstantSchedule("constant", 0.0), 1, {})
    splits = corpus.split("train").as_stream(across), corpus.split("valid").as_stream(across)
    folder, stop = Path(tempfile.mkdtemp(dir=os.getcwd())), StopRequest()
    training = _Training(model.to(device), *splits, plan, folder, Processes(), bar=False)
    return lambda: training.advance(stop)


def _nplm(corpus: Any) -> tuple[Any, Any, bool]:
    """The network and the optimizer of `lmtool train model=nplm`."""
    from lmtool.api.settings import compose
    from lmtool.cli.arguments import CommandLine
    from lmtool.config.settings import typed
    from lmtool.config.verbs import TrainConfig
    from lmtool.neural.model import build_neural

    config = typed(compose(CommandLine("train", [], ["model=nplm", "data=ptb"]))[0], TrainConfig)
    config.model.suit(config.data.vocabulary.unit, corpus.tokens("train"))
    config.optim.suit(config.output)
    return build_neural(config.model, config.output, corpus.vocabulary), config.optim, config.model.across_sentences


def _alone(name: str, threads: str) -> None:
    """Print the seconds that one work takes in this process, started as a command starts it."""
    from lmtool.__main__ import SPIN_COUNT
    from lmtool.session import Session

    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    import torch  # noqa: F401, read here, as by a command

    from lmtool.system.process import keep_freed_memory

    Session(Path()).use_threads(int(threads) if threads else None)
    keep_freed_memory()
    work = ALONE[name]
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
        advance = steps_of(measure_neural.prepare_store(text), embed, hidden, batch, context, layer)
        for _ in range(3):
            advance()
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < STEPS_FOR:
            advance()
            steps += 1
        seconds = (time.perf_counter() - start) / steps
    print(seconds, file=sys.__stdout__)


if __name__ == "__main__":
    _alone(*sys.argv[1:])

"""Training in several processes, for ./scripts/measure processes: the speed of two, where the time of a step goes, and
what the measured costs make of 8 and 64.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure_neural

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
# model, its words, batch of all processes, steps of a measurement
CASES = [("nplm", [], 1024, 30), ("nplm", [], 128, 100)]
CASES += [("hsoftmax", ["tree=huffman"], 4096, 60), ("nce", [], 4096, 60)]

TURNS = int(os.environ.get("TURNS", "3"))
SIZES = (2, 8, 64)
NETWORKS = {"10 Gbit/s, 50 us": (50e-6, 10e9 / 8), "100 Gbit/s, 10 us": (10e-6, 100e9 / 8)}  # latency, bytes a second


def processes(lmtool: Callable[..., float]) -> None:
    """Examples a second of whole trainings by one process with one thread and with two, and by two processes; then the
    parts of a step, and the model of more processes.
    """
    lmtool("preprocess", "data=ptb")
    one, here = measure_neural.LMTOOL, str(Path(__file__).resolve())
    forms = {"1 thread": [*one, "threads=1"], "2 threads": one, "2 processes": [*TORCHRUN, "-m", "lmtool"]}
    print("| examples a second | one thread | two threads | two processes | / one thread | / two threads |")
    print("|---|--:|--:|--:|--:|--:|")
    for model, more, batch, _ in CASES:
        found: dict[str, list[float]] = {name: [] for name in forms}
        for turn in range(TURNS):
            for name, start in forms.items():
                run = f"{model}-{batch}-{name.replace(' ', '-')}-{turn}"
                words = ["train", f"model={model}", "data=ptb", f"training.batch_size={batch}", "training.epochs=null"]
                words += [*more, "training.minutes=0.2", "training.accuracy_on=0", f"hydra.run.dir={run}"]
                line = [*start[:-1], *words, start[-1]] if start[-1].startswith("threads=") else [*start, *words]
                subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                found[name].append(json.loads(Path(run, "result.json").read_text())["examples_per_second"])
        single, threads, two = (statistics.median(rates) for rates in found.values())
        cells = f"{single:,.0f} | {threads:,.0f} | {two:,.0f} | {two / single:.2f} | {two / threads:.2f}"
        print(f"| {model}, batch {batch:,} | {cells} |", flush=True)
    print(
        "\nmilliseconds of a step of each of two processes with one thread, and efficiency with more of them, the batch"
    )
    print("of each being the same; on this machine's loopback (2), and by the network's latency and width")
    for model, more, batch, steps in CASES:
        subprocess.run(
            [*TORCHRUN, here, model, str(batch), str(steps), *more],
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.DEVNULL,
        )


def _parts() -> None:
    """In a process of torchrun: the parts of a step, which the first process prints."""
    import torch
    import torch.distributed as dist

    from lmtool.system import parallel
    from lmtool.system.process import keep_freed_memory
    from lmtool.training.processes import Processes, joined_processes

    model, batch, steps, *more = sys.argv[1:]
    torch.set_num_threads(parallel.use(1))
    keep_freed_memory()
    with joined_processes(torch.device("cpu")) as both:
        apart = _Engine(model, more, int(batch) // both.size, Processes())
        together = _Engine(model, more, int(batch), both)
        found: dict[str, list[float]] = {}
        for turn in range(TURNS + 1):
            parts = {"computing": apart.step, "whole": together.step, **together.exchanges(apart)}
            for name, call in parts.items():
                dist.barrier()
                start = time.perf_counter()
                for _ in range(int(steps)):
                    call()
                if turn:
                    found.setdefault(name, []).append((time.perf_counter() - start) / int(steps))
        if both.first:
            seconds = {name: statistics.median(times) for name, times in found.items()}
            _print(f"{model}, batch {int(batch) // both.size:,} each", seconds, apart)
        dist.barrier()


class _Engine:
    """The training of a model with this process's share of each batch."""

    def __init__(self, model: str, more: list[str], batch: int, processes: Any) -> None:
        import torch

        from lmtool.api.settings import compose
        from lmtool.cli.arguments import CommandLine
        from lmtool.config.settings import typed
        from lmtool.config.verbs import TrainConfig
        from lmtool.data.corpus import Corpus
        from lmtool.neural.model import build_neural
        from lmtool.runs.load import tree_words
        from lmtool.training.interruption import StopRequest
        from lmtool.training.loop import Plan, _Training

        words = [f"model={model}", "data=ptb", f"training.batch_size={batch}", "training.epochs=null"]
        words += ["training.minutes=60", "training.evaluate_every=1e9", "training.save_every=1e9", *more]
        config: Any = typed(compose(CommandLine("train", [], words))[0], TrainConfig)
        self._corpus = Corpus.open(next(Path("stores").glob("ptb-*.h5")))
        corpus = self._corpus.__enter__()
        config.model.suit(config.data.vocabulary.unit, corpus.tokens("train"))
        config.optim.suit(config.output)
        torch.manual_seed(0)
        across = config.model.across_sentences
        splits = corpus.split("train").as_stream(across), corpus.split("valid").as_stream(across)
        tree = None if config.tree is None else config.tree.build(tree_words(corpus))
        built = build_neural(config.model, config.output, corpus.vocabulary, tree)
        plan = Plan(config.training, config.optim, config.schedule, 1, {})
        folder = Path(tempfile.mkdtemp(dir=os.getcwd()))
        self._processes = processes
        self._training, self._stop = _Training(built, *splits, plan, folder, processes, bar=False), StopRequest()
        built.train()

    def step(self) -> None:
        """One step, with all that goes with it."""
        self._training.advance(self._stop)

    @property
    def dense_bytes(self) -> int:
        """Of the gradients that are added up whole."""
        sparse = {id(parameter) for parameter in self._training.model.row_parameters()}
        return sum(4 * each.numel() for each in self._training.model.parameters() if id(each) not in sparse)

    @property
    def table_bytes(self) -> int:
        """Of the whole parameters that have sparse gradients."""
        return sum(4 * each.numel() for each in self._training.model.row_parameters())

    @property
    def row_bytes(self) -> int:
        """Of the rows of sparse gradients that a batch uses, with their ids; after a step."""
        grads = [p.grad for p in self._training.model.row_parameters() if p.grad is not None]
        return sum(8 * grad._nnz() + 4 * grad._values().numel() for grad in grads)

    def exchanges(self, apart: _Engine) -> dict[str, Callable[[], object]]:
        """What of a step is an exchange: alone, of as many bytes. apart: whose gradients are those of its own batch."""
        import torch
        import torch.distributed as dist

        from lmtool.training import processes

        (most,) = self._processes.largest(apart.row_bytes)  # each process's batch uses other rows
        dense, rows = torch.zeros(self.dense_bytes // 4), torch.zeros(max(1, int(most) // 4))
        parts = [torch.empty_like(rows) for _ in range(self._processes.size)]
        tiny = torch.zeros(8)
        shared, always = self._training.shared, processes.MAX_GATHERED
        table = torch.zeros(max(1, self.table_bytes // 4))
        given = [parameter.grad for parameter in apart._training.model.row_parameters()]

        def rows_again(limit: float) -> None:
            for parameter, grad in zip(self._training.model.row_parameters(), given, strict=True):
                parameter.grad = grad
            processes.MAX_GATHERED = limit
            shared.share_rows()
            processes.MAX_GATHERED = always

        return {
            "latency": lambda: dist.all_reduce(tiny),
            "dense": lambda: dist.all_reduce(dense),
            "rows": lambda: dist.all_gather(parts, rows),
            "rows, added up": lambda: rows_again(math.inf),
            "table": lambda: dist.all_reduce(table),
            "table, applied": lambda: rows_again(0),
        }


def _print(name: str, seconds: dict[str, float], engine: _Engine) -> None:
    dense, rows, table = engine.dense_bytes, engine.row_bytes, engine.table_bytes
    computing, whole = seconds["computing"], seconds["whole"]
    merging = max(0.0, seconds["rows, added up"] - seconds["rows"]) / 2 if rows else 0.0  # of one process's rows
    applying = max(0.0, seconds["table, applied"] - seconds["table"])
    mb = f"{dense / 1e6:.1f} MB dense, {rows / 1e6:.2f} MB of rows, of {table / 1e6:.1f} MB"
    print(f"{name}: computing {1e3 * computing:.2f}, whole {1e3 * whole:.2f} ms; {mb};", end=" ")
    parts = ("latency", "dense", "rows", "rows, added up", "table", "table, applied")
    print(", ".join(f"{part} {1e3 * seconds[part]:.2f}" for part in parts))
    print(f"  2 here: {computing / whole:.2f}", end="")
    for network, (latency, width) in NETWORKS.items():
        shares = []
        for size in SIZES:
            exchanged = 2 * math.log2(size) * latency + _ring(dense, size, latency, width)
            gathered = 3 * (size - 1) * latency + (size - 1) * rows / width + size * merging
            exchanged += min(gathered, _ring(table, size, latency, width) + applying) if rows else 0.0
            shares.append(f"{size}: {computing / (computing + exchanged):.2f}")
        print(f"; {network}: {', '.join(shares)}", end="")
    print(flush=True)


def _ring(moved: int, size: int, latency: float, width: float) -> float:
    """Seconds in which so many bytes are added up over processes in a ring."""
    return 2 * (size - 1) / size * moved / width + 2 * (size - 1) * latency if moved else 0.0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    _parts()
    sys.stdout.flush()
    os._exit(0)  # Python's end may abort beside gloo's threads

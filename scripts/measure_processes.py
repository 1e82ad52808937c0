"""Training in several processes, for ./scripts/measure: the speed of two, where the time of a step goes, and what the
measured costs predict for 8 and 64.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import LMTOOL, head, in_turns, lmtool, measure, result, row, store_of, turns, use_threads
from network_steps import composed, train_config, training

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
# (model, its words, batch of all processes, steps of a measurement)
CASES = [("nplm", [], 1024, 30), ("nplm", [], 128, 100)]
CASES += [("hsoftmax", ["tree=huffman"], 4096, 60), ("nce", [], 4096, 60)]
SIZES = (2, 8, 64)  # numbers of processes
NETWORKS = {"10 Gbit/s, 50 us": (50e-6, 10e9 / 8), "100 Gbit/s, 10 us": (10e-6, 100e9 / 8)}  # latency, bytes/s


@measure
def processes() -> None:
    """PTB: torchrun with two processes beside one thread and two, the parts of a step, and 8 and 64 processes"""
    lmtool("preprocess", "data=ptb")
    starts = {"1": LMTOOL, "2": LMTOOL, "torchrun": [*TORCHRUN, "-m", "lmtool"]}
    head("examples a second", "one thread", "two threads", "two processes", "/ one thread", "/ two threads", numbers=5)
    for model, more, batch, _ in CASES:
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
    print("\nmilliseconds of a step of each of two processes with one thread, and efficiency with more of them, the")
    print("batch of each being the same; on this machine's loopback (2), and by the network's latency and width")
    for model, more, batch, steps in CASES:
        line = [*TORCHRUN, str(Path(__file__).resolve()), model, str(batch), str(steps), *more]
        subprocess.run(line, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)


def _parts() -> None:
    """Measure the parts of a step in a process of torchrun; the first process prints them."""
    import torch
    import torch.distributed as dist

    from lmtool.training.processes import Processes, joined_processes

    model, batch, steps, *more = sys.argv[1:]
    use_threads(1)
    with joined_processes(torch.device("cpu")) as both:
        apart = _Engine(model, more, int(batch) // both.size, Processes())
        together = _Engine(model, more, int(batch), both)

        def repeated(call: Callable[[], object]) -> Callable[[], None]:
            def repeat() -> None:
                dist.barrier()
                for _ in range(int(steps)):
                    call()

            return repeat

        together.step()
        apart.step()
        parts = {"computing": apart.step, "whole": together.step, **together.exchanges(apart)}
        taken = in_turns({name: repeated(call) for name, call in parts.items()}, turns(3))
        if both.first:
            seconds = {name: statistics.median(times) / int(steps) for name, times in taken.items()}
            _print(f"{model}, batch {int(batch) // both.size:,} each", seconds, apart)
        dist.barrier()


class _Engine:
    """The training of a model with this process's share of each batch."""

    def __init__(self, model: str, more: list[str], batch: int, processes: Any) -> None:
        import torch

        from lmtool.data.corpus import Corpus

        corpus = Corpus.open(store_of("ptb")).__enter__()
        words = [f"model={model}", f"training.batch_size={batch}", "training.epochs=null", "training.minutes=60"]
        words += ["training.evaluate_every=1e9", "training.save_every=1e9", *more]
        torch.manual_seed(0)
        network, optim, across = composed(corpus, *words)
        config = train_config(corpus, *words).training
        self._processes = processes
        self._training, self._stop = training(network, corpus, across, config, optim, processes)
        network.train()

    def step(self) -> None:
        """Make one step."""
        self._training.advance(self._stop)

    @property
    def dense_bytes(self) -> int:
        """Bytes of the gradients that are added up whole."""
        sparse = {id(parameter) for parameter in self._training.model.sparse_parameters()}
        return sum(4 * each.numel() for each in self._training.model.parameters() if id(each) not in sparse)

    @property
    def table_bytes(self) -> int:
        """Bytes of the whole parameters that have sparse gradients."""
        return sum(4 * each.numel() for each in self._training.model.sparse_parameters())

    @property
    def row_bytes(self) -> int:
        """Bytes of the rows of sparse gradients that a batch uses, with their ids; after a step."""
        grads = [p.grad for p in self._training.model.sparse_parameters() if p.grad is not None]
        return sum(8 * grad._nnz() + 4 * grad._values().numel() for grad in grads)

    def exchanges(self, apart: _Engine) -> dict[str, Callable[[], object]]:
        """Return calls of the exchanges of a step alone. apart: the engine whose gradients are of its own batch."""
        import torch
        import torch.distributed as dist

        from lmtool.training import processes

        (most,) = self._processes.largest(apart.row_bytes)  # each batch uses other rows
        dense, rows = torch.zeros(self.dense_bytes // 4), torch.zeros(max(1, int(most) // 4))
        parts = [torch.empty_like(rows) for _ in range(self._processes.size)]
        tiny = torch.zeros(8)
        shared, always = self._training.shared, processes.MAX_GATHERED
        table = torch.zeros(max(1, self.table_bytes // 4))
        given = [parameter.grad for parameter in apart._training.model.sparse_parameters()]

        def rows_again(limit: float) -> None:
            for parameter, grad in zip(self._training.model.sparse_parameters(), given, strict=True):
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
    """Return the seconds in which a number of bytes is added up over processes in a ring."""
    return 2 * (size - 1) / size * moved / width + 2 * (size - 1) * latency if moved else 0.0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    _parts()
    sys.stdout.flush()
    os._exit(0)  # Python's end may abort beside gloo's threads

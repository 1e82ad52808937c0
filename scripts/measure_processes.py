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

import torch
import torch.distributed as dist
from measuring import LMTOOL, head, in_turns, lmtool, result, row, store_of, turns, use_threads
from network_steps import engine

from lmtool.system.process import StopRequest
from lmtool.training import processes as exchange
from lmtool.training.processes import joined_processes

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
# (model, its words, batch of all processes, steps of a measurement)
CASES = [("nplm", [], 1024, 30), ("nplm", [], 128, 100)]
CASES += [("hsoftmax", ["tree=huffman"], 4096, 60), ("nce", [], 4096, 60)]
SIZES = (2, 8, 64)  # numbers of processes
NETWORKS = {"10 Gbit/s, 50 us": (50e-6, 10e9 / 8), "100 Gbit/s, 10 us": (10e-6, 100e9 / 8)}  # latency, bytes/s


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
    model, batch, steps, *more = sys.argv[1:]
    use_threads(1)
    with joined_processes(torch.device("cpu")) as both:
        words, store, stop = [f"model={model}", *more], store_of("ptb"), StopRequest()
        alone = engine(store, [*words, f"training.batch_size={int(batch) // both.size}"])
        together = engine(store, [*words, f"training.batch_size={batch}"], processes=both)

        def repeated(call: Callable[[], object]) -> Callable[[], None]:
            def repeat() -> None:
                dist.barrier()
                for _ in range(int(steps)):
                    call()

            return repeat

        together.advance(stop)
        alone.advance(stop)
        parts: dict[str, Callable[[], object]] = {"computing": lambda: alone.advance(stop)}
        parts |= {"whole": lambda: together.advance(stop), **_exchanges(together, alone)}
        taken = in_turns({name: repeated(call) for name, call in parts.items()}, turns(3))
        if both.first:
            seconds = {name: statistics.median(times) / int(steps) for name, times in taken.items()}
            _print(f"{model}, batch {int(batch) // both.size:,} each", seconds, *_bytes(alone))
        dist.barrier()


def _bytes(training: Any) -> tuple[int, int, int]:
    """Return the bytes of gradients that are added up whole, of the rows of sparse gradients that a batch uses, with
    their ids, and of the whole parameters of these; after a step.
    """
    sparse = training.model.sparse_parameters()
    table = sum(4 * each.numel() for each in sparse)
    rows = sum(8 * p.grad._nnz() + 4 * p.grad._values().numel() for p in sparse if p.grad is not None)
    return sum(4 * each.numel() for each in training.model.parameters()) - table, rows, table


def _exchanges(together: Any, alone: Any) -> dict[str, Callable[[], object]]:
    """Return calls of the exchanges of a step by themselves; those of gradients are given the ones of `alone`."""
    dense_bytes, row_bytes, table_bytes = _bytes(alone)
    (most,) = together.processes.largest(row_bytes)  # each batch uses other rows
    dense, rows, table = (torch.zeros(max(1, int(size) // 4)) for size in (dense_bytes, most, table_bytes))
    parts, tiny = [torch.empty_like(rows) for _ in range(together.processes.size)], torch.zeros(8)
    given = [parameter.grad for parameter in alone.model.sparse_parameters()]

    def rows_again(limit: float) -> None:
        for parameter, grad in zip(together.model.sparse_parameters(), given, strict=True):
            parameter.grad = grad
        always, exchange.MAX_GATHERED = exchange.MAX_GATHERED, limit
        together.shared.share_rows()
        exchange.MAX_GATHERED = always

    return {
        "latency": lambda: dist.all_reduce(tiny),
        "dense": lambda: dist.all_reduce(dense),
        "rows": lambda: dist.all_gather(parts, rows),
        "rows, added up": lambda: rows_again(math.inf),
        "table": lambda: dist.all_reduce(table),
        "table, applied": lambda: rows_again(0),
    }


def _print(name: str, seconds: dict[str, float], dense: int, rows: int, table: int) -> None:
    computing, whole = seconds["computing"], seconds["whole"]
    merging = max(0.0, seconds["rows, added up"] - seconds["rows"]) / 2 if rows else 0.0  # of one process's rows
    applying = max(0.0, seconds["table, applied"] - seconds["table"])
    mb = f"{dense / 1e6:.1f} MB dense, {rows / 1e6:.2f} MB of rows, of {table / 1e6:.1f} MB"
    print(f"{name}: {mb}; ms:", end=" ")
    print(", ".join(f"{part} {1e3 * taken:.2f}" for part, taken in seconds.items()))
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

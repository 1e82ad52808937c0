"""What measurements share: lmtool's commands, processes and calls timed in turns, Markdown tables, corpora."""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LMTOOL = [str(ROOT / ".venv" / "bin" / "python"), "-m", "lmtool"]
MEASURES: dict[str, Callable[[], None]] = {}  # by name; the first line of the docstring is shown by --help
Times = dict[str, list[float]]


def measure(function: Callable[[], None]) -> Callable[[], None]:
    """Register a measurement for `./scripts/measure NAME`."""
    MEASURES[function.__name__] = function
    return function


def turns(default: int = 5) -> int:
    """Return how often each thing is measured: TURNS in the environment, or else a default."""
    return int(os.environ.get("TURNS", default))


def lmtool(*words: str) -> float:
    """Run a command line; return its wall seconds."""
    print("$ lmtool", *words, flush=True)
    start = time.perf_counter()
    subprocess.run([*LMTOOL, *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def result(run: str) -> dict[str, Any]:
    """Return the result.json of a run."""
    found: dict[str, Any] = json.loads((Path(run) / "result.json").read_text())
    return found


def train(run: str, *words: str) -> dict[str, Any]:
    """Train into a run folder; return its result and the seconds of the whole command."""
    seconds = lmtool("train", *words, f"hydra.run.dir={run}")
    return result(run) | {"command_seconds": seconds}


def evaluate(run: str, split: str = "valid", *words: str) -> dict[str, Any]:
    """Evaluate a run into the folder RUN-SPLIT; return the result."""
    lmtool("eval", f"run={run}", f"split={split}", *words, f"hydra.run.dir={run}-{split}")
    return result(f"{run}-{split}")


def ensemble(out: str, runs: Iterable[str], *words: str) -> dict[str, Any]:
    """Mix runs into a folder; return the result and the seconds of the whole command."""
    seconds = lmtool("ensemble", f"runs=[{','.join(runs)}]", *words, f"hydra.run.dir={out}")
    return result(out) | {"command_seconds": seconds}


class Used(NamedTuple):
    """What a process used: wall and processor seconds, peak MiB; and what it printed."""

    seconds: float
    processor: float
    mib: float
    out: str


def process(words: list[str], text: Path | None = None, env: dict[str, str] | None = None) -> Used:
    """Run a process to its end. text: on its standard input."""
    start = time.perf_counter()
    with open(text or os.devnull, "rb") as standard_input:
        child = subprocess.Popen(
            words, stdin=standard_input, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
        )
        assert child.stdout is not None
        said = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(words)}")
    return Used(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, said)


def print_used(what: str, rows: list[Used]) -> float:
    """Print the median seconds and the peak memory of processes; return the former."""
    seconds = statistics.median(row.seconds for row in rows)
    peak = max(row.mib for row in rows)
    print(f"{what}: {seconds:.2f} s (median of {len(rows)}), at most {peak:,.0f} MiB", flush=True)
    return seconds


def in_turns(
    calls: Mapping[str, Callable[[], object]], count: int, *, clock: Callable[[], float] | None = None
) -> Times:
    """Return the seconds of each call in turns, so that all have the same neighbors; a first turn is not counted."""
    clock = clock or time.perf_counter
    found: Times = {name: [] for name in calls}
    for turn in range(count + 1):
        for name, call in calls.items():
            start = clock()
            call()
            if turn:
                found[name].append(clock() - start)
    return found


def median_seconds(call: Callable[[], object], count: int) -> float:
    """Return the median seconds of a call, after one that is not counted."""
    return statistics.median(in_turns({"": call}, count)[""])


def rates_in_turns(steps: Mapping[str, tuple[Callable[[], object], int]], seconds: float, count: int) -> Times:
    """Return examples per second of each (step, batch size) in turns of `seconds` each."""
    done: dict[str, list[int]] = {name: [] for name in steps}

    def repeated(name: str) -> Callable[[], None]:
        step, batch = steps[name]

        def call() -> None:
            start, number = time.perf_counter(), 0
            while number < 3 or time.perf_counter() - start < seconds:
                step()
                number += 1
            done[name].append(number * batch)

        return call

    taken = in_turns({name: repeated(name) for name in steps}, count)
    return {name: [d / s for d, s in zip(done[name][1:], taken[name], strict=True)] for name in steps}


def ratios(rates: Times, base: str) -> dict[str, float]:
    """Return the median of each one's ratios to the base in the same turn."""
    return {
        name: statistics.median(b / a for a, b in zip(rates[base], each, strict=True)) for name, each in rates.items()
    }


def head(*names: str, numbers: int = 0) -> None:
    """Print the head of a Markdown table, whose last `numbers` columns are numbers."""
    print(f"| {' | '.join(names)} |")
    print("|" + "---|" * (len(names) - numbers) + "--:|" * numbers, flush=True)


def row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def use_threads(count: int | None = None) -> None:
    """Let torch and compiled loops of this process use threads as a command does, all by default."""
    import torch

    from lmtool.system import parallel
    from lmtool.system.process import keep_freed_memory

    torch.set_num_threads(parallel.use(count))
    keep_freed_memory()


def corpora() -> Path:
    """Return the folder of raw corpora."""
    if "LMTOOL_DATA" not in os.environ:
        sys.exit("set LMTOOL_DATA to the folder of raw corpora")
    return Path(os.environ["LMTOOL_DATA"])


def big20() -> list[str]:
    """Return the overrides of big20, which is unpacked into this folder: 20 million words."""
    for name in ("big20", "big_heldout"):
        if not Path(f"{name}.txt").exists():
            with lzma.open(corpora() / f"{name}.txt.xz") as packed, open(f"{name}.txt", "wb") as text:
                shutil.copyfileobj(packed, text)
    here = Path.cwd()
    return ["data=text", "data.name=big20", f"data.train={here}/big20.txt", f"data.valid={here}/big_heldout.txt"]


def store_of(name: str) -> Path:
    """Return the store of a data set that was preprocessed in this folder."""
    return next(Path("stores").glob(f"{name}-*.h5"))


def ptb_lines(split: str) -> list[str]:
    """Return the sentences of a split of PTB."""
    text = (corpora() / "ptb" / f"ptb.{split}.txt").read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip()]


def brown() -> dict[str, list[str]]:
    """Return the sentences of each file of Brown (ca01 ... cr09), without tags."""
    found = {}
    with zipfile.ZipFile(corpora() / "brown" / "brown.zip") as archive:
        for name in sorted(archive.namelist()):
            if re.fullmatch(r"brown/c[a-r]\d\d", name):
                lines = (line.split() for line in archive.read(name).decode("utf-8").splitlines() if line.strip())
                found[name.partition("/")[2]] = [" ".join(w.rpartition("/")[0] for w in line) for line in lines]
    return found


def write_lines(path: str, lines: Iterable[str]) -> None:
    """Write lines of text."""
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

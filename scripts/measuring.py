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
KN5 = ["model=ngram", "model.order=5", "data=ptb"]
Times = dict[str, list[float]]


def turns(default: int = 5) -> int:
    """Return how often each thing is measured: TURNS in the environment, or else a default."""
    return int(os.environ.get("TURNS", default))


def parts(name: str, default: str, separator: str = ",") -> list[str]:
    """Return the parts of a measurement that an environment variable chooses."""
    return os.environ.get(name, default).split(separator)


def lmtool(*words: str) -> float:
    """Run a command line; return its wall seconds."""
    print("$ lmtool", *words, flush=True)
    start = time.perf_counter()
    subprocess.run([*LMTOOL, *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def result(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(run) / "result.json").read_text())
    return found


def train(run: str, *words: str, verb: str = "train") -> dict[str, Any]:
    """Train into a run folder; return its result and the seconds of the whole command."""
    seconds = lmtool(verb, *words, f"hydra.run.dir={run}")
    return result(run) | {"command_seconds": seconds}


def evaluate(run: str, split: str = "valid", *words: str) -> dict[str, Any]:
    return train(f"{run}-{split}", f"run={run}", f"split={split}", *words, verb="eval")


def ensemble(out: str, runs: Iterable[str], *words: str) -> dict[str, Any]:
    return train(out, f"runs=[{','.join(runs)}]", *words, verb="ensemble")


def rounded(numbers: Iterable[float], digits: int = 3) -> str:
    return " ".join(f"{number:.{digits}f}" for number in numbers)


class Used(NamedTuple):
    """What a process used: wall and processor seconds, peak MiB; and what it printed."""

    seconds: float
    processor: float
    mib: float
    out: str


# Linux counts the memory of the process that starts a program to the program's peak: a small one starts it.
STARTER = """
import json, os, sys, time
start, quiet = time.perf_counter(), [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, usage = os.wait4(child, 0)
seconds, processor = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
json.dump([status, seconds, processor, usage.ru_maxrss / 1024], sys.stderr)
"""


def process(words: list[str], text: Path | None = None) -> Used:
    """Run a process to its end. text: on its standard input."""
    with open(text or os.devnull, "rb") as standard_input:
        starter = [sys.executable, "-I", "-S", "-c", STARTER, *words]
        ended = subprocess.run(starter, stdin=standard_input, capture_output=True, text=True)
    status, *used = json.loads(ended.stderr) if not ended.returncode else [1]
    if status:
        sys.exit(f"failed: {' '.join(words)}")
    return Used(*used, ended.stdout)


def processes_in_turns(calls: Mapping[str, Callable[[int], Used]], count: int) -> dict[str, Used]:
    """Run processes in turns, given the number of the turn; return the medians of times and the largest peak of each.

    What each one printed is that of the last turn.
    """
    found: dict[str, list[Used]] = {name: [] for name in calls}
    for turn in range(count):
        for name, call in calls.items():
            found[name].append(call(turn))
    return {
        name: Used(
            statistics.median(each.seconds for each in rows),
            statistics.median(each.processor for each in rows),
            max(each.mib for each in rows),
            rows[-1].out,
        )
        for name, rows in found.items()
    }


def in_turns(
    calls: Mapping[str, Callable[[], object]], count: int, clock: Callable[[], float] = time.perf_counter
) -> Times:
    """Return the seconds of each call in turns, so that all have the same neighbors; a first turn is not counted."""
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
    """Return examples per second of each (step, batch size) in turns of `seconds` each; a first turn is not counted."""
    found: Times = {name: [] for name in steps}
    for turn in range(count + 1):
        for name, (step, batch) in steps.items():
            start, number = time.perf_counter(), 0
            while number < 3 or time.perf_counter() - start < seconds:
                step()
                number += 1
            if turn:
                found[name].append(number * batch / (time.perf_counter() - start))
    return found


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
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def use_threads(count: int | None = None) -> None:
    """Let torch and compiled loops of this process use threads as a command does, all by default."""
    import torch

    from lmtool.system import parallel
    from lmtool.system.process import keep_freed_memory

    torch.set_num_threads(parallel.use(count))
    keep_freed_memory()


def corpora() -> Path:
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


def store_of(name: str, folder: str = "stores") -> Path:
    """Return the store of a data set that was preprocessed in this folder."""
    return next(Path(folder).glob(f"{name}-*.h5"))


def ptb_lines(split: str) -> list[str]:
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
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

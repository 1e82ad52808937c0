"""The measurement of counting within limits, for ./scripts/measure: memory, threads, and text beyond the memory."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from measure_spark import text_words

TURNS = int(os.environ.get("TURNS", "3"))
CODE = """
import json, sys, time
from pathlib import Path
from lmtool.data.corpus import Corpus
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
from lmtool.system import parallel
parallel.use(int(sys.argv[1]))
with Corpus.open(next(Path("stores").glob("*.h5"))) as corpus:
    estimate(count_ngrams(corpus.split("valid"), corpus.vocabulary, 5), ModifiedKneserNey(5))  # compiled
    start = time.perf_counter()
    counts = count_ngrams(corpus.text("train"), corpus.vocabulary, 5)
    counted = time.perf_counter()
    estimate(counts, ModifiedKneserNey(5))
    print(json.dumps([counted - start, time.perf_counter() - counted]))
"""


def median(values: list[float]) -> float:
    """The middle one."""
    return sorted(values)[len(values) // 2]


def counts(data: Path, timed: Callable[[list[str]], tuple[float, float]]) -> None:
    """big20, order 5: with one thread and two; with counts.memory=512MiB; ten times the text with 2GiB.

    timed: gives the wall seconds and the peak MiB of a command, pages of files among them.
    """

    def run(*words: str) -> tuple[float, float]:
        return timed([sys.executable, "-m", "lmtool", *words])

    text = text_words("big20", data)
    run("preprocess", *text)
    threads()
    words = ["train", "model=ngram", "model.order=5", *text, "counts.keep=false"]
    free, tight = [], []
    for turn in range(TURNS):
        for rows, memory in ((free, "null"), (tight, "512MiB")):
            rows.append(run(*words, f"counts.memory={memory}", f"hydra.run.dir={memory}-{turn}"))
    same = Path("null-0/model.h5").read_bytes() == Path("512MiB-0/model.h5").read_bytes()
    seconds = [median([row[0] for row in rows]) for rows in (free, tight)]
    for name, rows, value in zip(("no limit", "counts.memory=512MiB"), (free, tight), seconds, strict=True):
        print(f"big20, store to model, {name}: {value:.1f} s, at most {max(row[1] for row in rows):,.0f} MiB")
    print(f"  {seconds[1] / seconds[0]:.2f} times as long, the same file: {same}", flush=True)
    shutil.rmtree("stores")
    make_large()
    large = ["data=text", "data.name=large", "data.train=large.txt", f"data.valid={Path.cwd()}/big_heldout.txt"]
    run("preprocess", *large)
    taken, peak = run("train", "model=ngram", "model.order=5", *large, "counts.keep=false", "counts.memory=2GiB",
                      "hydra.run.dir=large")  # fmt: skip
    found = json.loads(Path("large/result.json").read_text())
    each, first = taken / found["examples"] * 1e6, seconds[0] / _examples("null-0") * 1e6
    sizes = ", ".join(f"{size / 1e6:.1f}" for size in found["ngrams"])
    print(f"{found['examples']:,} tokens ({sizes} million n-grams), counts.memory=2GiB: {taken:.1f} s, {peak:,.0f} MiB")
    print(f"  {each:.3f} us a token, {each / first:.2f} times big20's without a limit", flush=True)


def threads() -> None:
    """Counting and estimation in memory, in turns with one thread and two."""
    rows: dict[int, list[list[float]]] = {1: [], 2: []}
    for _ in range(TURNS):
        for count, found in rows.items():
            out = subprocess.run([sys.executable, "-c", CODE, str(count)], check=True, capture_output=True, text=True)
            found.append(json.loads(out.stdout))
    for part, name in enumerate(("counting", "estimation")):
        one, two = (median([row[part] for row in rows[count]]) for count in (1, 2))
        serial = max(2 * two - one, 0.0) / one
        print(f"{name}: {one:.2f} s with one thread, {two:.2f} s with two: {one / two:.2f} times as fast", end="")
        print(f"; {serial:.0%} of the time would be left with any number of threads", flush=True)


def make_large() -> None:
    """big20 ten times over; in all but the first, three words of ten are others, drawn as often as in the text."""
    draw = random.Random(1)
    lines = Path("big20.txt").read_text().splitlines()
    pool = " ".join(lines[:: len(lines) // 100_000 + 1]).split()
    with Path("large.txt").open("w") as file:
        for copy in range(10):
            for line in lines:
                words = line.split()
                for place in range(len(words)) if copy else ():
                    if draw.random() < 0.3:
                        words[place] = pool[int(draw.random() * len(pool))]
                file.write(" ".join(words) + "\n")


def _examples(folder: str) -> int:
    return int(json.loads(Path(f"{folder}/result.json").read_text())["examples"])

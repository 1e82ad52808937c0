"""Counting and pruning for ./scripts/measure: memory, threads, text beyond the memory; size against perplexity."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from measuring import LMTOOL, Used, big20, brown, evaluate, lmtool, measure, process, ptb_lines, result, turns
from measuring import train as train_run

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
SHARES = (0.5, 0.3)  # sizes without cut-offs, of all n-grams
CUTOFFS = ([0, 0, 1], [0, 1, 1], [0, 1, 2], [0, 2, 2], [0, 3, 3], [0, 5, 5], [0, 9, 9], [0, 19, 19])
VARIKN = ("0.005", "0.02", "0.05", "0.1", "0.3")  # thresholds of counts2kn -p


@measure
def counts() -> None:
    """big20, order 5: counting with one thread and two, within 512 MiB, and ten times the text within 2 GiB"""
    text = big20()
    lmtool("preprocess", *text)
    _threads()
    words = [*LMTOOL, "train", "model=ngram", "model.order=5", "counts.keep=false"]
    rows: dict[str, list[Used]] = {"null": [], "512MiB": []}
    for turn in range(turns(3)):
        for memory, used in rows.items():
            used.append(process([*words, *text, f"counts.memory={memory}", f"hydra.run.dir={memory}-{turn}"]))
    same = Path("null-0/model.h5").read_bytes() == Path("512MiB-0/model.h5").read_bytes()
    seconds = {memory: statistics.median(each.seconds for each in used) for memory, used in rows.items()}
    for memory, name in {"null": "no limit", "512MiB": "counts.memory=512MiB"}.items():
        peak = max(each.mib for each in rows[memory])
        print(f"big20, store to model, {name}: {seconds[memory]:.1f} s, at most {peak:,.0f} MiB")
    print(f"  {seconds['512MiB'] / seconds['null']:.2f} times as long, the same file: {same}", flush=True)
    shutil.rmtree("stores")
    _make_large()
    large = ["data=text", "data.name=large", "data.train=large.txt", text[-1]]
    lmtool("preprocess", *large)
    used = process([*words, *large, "counts.memory=2GiB", "hydra.run.dir=large"])
    found = result("large")
    each, first = used.seconds / found["examples"] * 1e6, seconds["null"] / result("null-0")["examples"] * 1e6
    sizes = ", ".join(f"{size / 1e6:.1f}" for size in found["ngrams"])
    print(f"{found['examples']:,} tokens ({sizes} million n-grams), counts.memory=2GiB:", end=" ")
    print(f"{used.seconds:.1f} s, {used.mib:,.0f} MiB")
    print(f"  {each:.3f} us a token, {each / first:.2f} times big20's without a limit", flush=True)


def _threads() -> None:
    """Print the seconds of counting and estimation in memory, in turns with one thread and two."""
    rows: dict[int, list[list[float]]] = {1: [], 2: []}
    for _ in range(turns(3)):
        for count, found in rows.items():
            found.append(json.loads(process([sys.executable, "-c", CODE, str(count)]).out))
    for part, name in enumerate(("counting", "estimation")):
        one, two = (statistics.median(row[part] for row in rows[count]) for count in (1, 2))
        serial = max(2 * two - one, 0.0) / one
        print(f"{name}: {one:.2f} s with one thread, {two:.2f} s with two: {one / two:.2f} times as fast", end="")
        print(f"; {serial:.0%} of the time would be left with any number of threads", flush=True)


def _make_large() -> None:
    """Write big20 ten times; in all but the first copy, replace three words of ten, drawn as often as in the text."""
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


@measure
def limited() -> None:
    """Brown, order 4: limit_vocabulary beside data.vocabulary.file"""
    text = [line for lines in brown().values() for line in lines]
    cut = len(text) * 9 // 10
    Path("train.txt").write_text("\n".join(text[:cut]))
    Path("valid.txt").write_text("\n".join(text[cut:]))
    seen = Counter(Path("train.txt").read_text().split())
    Path("words.txt").write_text("\n".join(word for word, count in seen.items() if count >= 3))
    words = ["data=text", "data.train=train.txt", "data.valid=valid.txt", "model=ngram", "model.order=4"]
    for setting in ("limit_vocabulary", "data.vocabulary.file"):
        train_run(setting, *words, f"{setting}=words.txt")
        found = evaluate(setting)
        print(f"{setting}: {found['tokens']:,} tokens, {found['oov']:,} OOVs,", end=" ")
        print(f"perplexity {found['perplexity']:.2f}, without OOVs {found['perplexity_without_oov']:.2f}")


@measure
def pruning() -> None:
    """PTB and big20: size against perplexity, by cut-offs, entropy and expected gain (ten minutes)

    PARTS=ptb3,ptb5,big5 chooses; VARIKN=counts2kn adds that program's models of PTB, order 3.
    """
    for part in os.environ.get("PARTS", "ptb3,ptb5,big5").split(","):
        lmtool("preprocess", *(["data=ptb"] if part.startswith("ptb") else big20()), f"store_dir=stores-{part}")
        with _Text(next(Path(f"stores-{part}").glob("*.h5")), int(part[-1])) as text:
            _curve(part, text)
            if part == "ptb3" and os.environ.get("VARIKN"):
                _varikn(Path(os.environ["VARIKN"]), text)


class _Text:
    """A store, its counts and the table of them, and the perplexity of tables on its valid split."""

    def __init__(self, store: Path, order: int) -> None:
        from lmtool.data.corpus import Corpus
        from lmtool.ngram.counting.counts import count_ngrams

        self.corpus, self.order = Corpus.open(store), order
        self.counts = count_ngrams(self.corpus.text("train"), self.corpus.vocabulary, order)
        self.table = self.estimate(None)

    def __enter__(self) -> _Text:
        return self

    def __exit__(self, *_: object) -> None:
        self.corpus.close()

    def estimate(self, cutoffs: list[int] | None) -> Any:
        """Return the table of the counts by modified Kneser-Ney."""
        from lmtool.ngram.estimation.estimate import estimate
        from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey

        more = {} if cutoffs is None else {"cutoffs": cutoffs + cutoffs[-1:] * (self.order - len(cutoffs))}
        return estimate(self.counts, ModifiedKneserNey(self.order), **more)

    def perplexity(self, table: Any) -> float:
        """Return the perplexity of valid."""
        from lmtool.evaluation.metrics import perplexity
        from lmtool.ngram.models.ngram_model import NgramModel

        valid = self.corpus.split("valid")
        return perplexity(NgramModel(table, self.corpus.vocabulary).log_prob_text(valid.ids, valid.offsets))

    def pruned(self, size: int) -> list[float]:
        """Return the perplexities of the table pruned to a size by entropy and by expected gain."""
        from lmtool.ngram.pruning.entropy import prune_to_size_by_entropy
        from lmtool.ngram.pruning.gain import prune_to_size_by_gain
        from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey

        by_entropy, _ = prune_to_size_by_entropy(self.table, size, self.corpus.vocabulary.eos)
        by_gain, _ = prune_to_size_by_gain(self.counts, ModifiedKneserNey(self.order), self.table, size)
        return [self.perplexity(by_entropy), self.perplexity(by_gain)]


def _curve(name: str, text: _Text) -> None:
    """Print perplexities at the sizes that cut-offs give: of these, entropy pruning, and pruning by expected gain."""
    total = sum(text.table.sizes)
    print(f"{name}: {total:,} n-grams, perplexity {text.perplexity(text.table):.3f}")
    print(f"{'cut-offs':<12} {'n-grams':>11} {'share':>7} {'cut-offs':>9} {'entropy':>9} {'gain':>9} {'seconds':>8}")
    for share in SHARES:
        size = int(share * total)
        cells = "".join(f"{cell:>10.3f}" for cell in text.pruned(size))
        print(f"{'':<12} {size:>11,} {share:>7.1%}{'':>10}{cells}", flush=True)
    for cutoffs in CUTOFFS:
        cut = text.estimate(cutoffs)
        size = sum(cut.sizes)
        start = time.perf_counter()
        pruned = text.pruned(size)
        seconds = time.perf_counter() - start
        cells = "".join(f"{cell:>10.3f}" for cell in [text.perplexity(cut), *pruned])
        label = ",".join(map(str, cutoffs))
        print(f"{label:<12} {size:>11,} {size / total:>7.1%}{cells} {seconds:>8.1f}", flush=True)


def _varikn(program: Path, text: _Text) -> None:
    """Print perplexities at the sizes of variKN's counts2kn: of its models, entropy pruning, and expected gain."""
    for name in ("train", "valid"):
        Path(f"varikn.{name}").write_text("".join(f"<s> {line} </s>\n" for line in ptb_lines(name)))
    print(f"{'variKN -p':<12} {'n-grams':>11} {'variKN':>17} {'entropy':>9} {'gain':>9}")
    for threshold in VARIKN:
        words = ["-n", "3", "-3", "-s", "-a", "-C", "-p", threshold, "-o", "varikn.valid"]
        subprocess.run([str(program), *words, "varikn.train", "varikn.arpa"], check=True, capture_output=True)
        size, found = _scored_arpa(Path("varikn.arpa"))
        cells = "".join(f"{cell:>10.3f}" for cell in text.pruned(size))
        print(f"{threshold:<12} {size:>11,} {found:>17.3f}{cells}", flush=True)


def _scored_arpa(path: Path) -> tuple[int, float]:
    """Return the number of n-grams of variKN's file and its perplexity of PTB valid by KenLM's module.

    Its fields are separated by blanks, where the format has tabs.
    """
    import kenlm

    lines, order, size = [], 0, 0
    for line in path.read_text().splitlines():
        if found := re.match(r"\\(\d+)-grams:", line):
            order = int(found[1])
        elif found := re.match(r"ngram \d+=(\d+)", line):
            size += int(found[1])
        elif order and line and not line.startswith("\\"):
            fields = line.split()
            line = "\t".join([fields[0], " ".join(fields[1 : 1 + order]), *fields[1 + order :]])
        lines.append(line)
    Path("tabs.arpa").write_text("\n".join(lines) + "\n")
    model = kenlm.Model("tabs.arpa")
    scores = [score for line in ptb_lines("valid") for score, _, _ in model.full_scores(line)]
    return size, 10 ** (-sum(scores) / len(scores))

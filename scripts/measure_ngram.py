"""N-gram models for ./scripts/measure: against KenLM, smoothers, time and memory, files that are opened."""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from measuring import (
    LMTOOL,
    Used,
    big20,
    evaluate,
    head,
    lmtool,
    median_seconds,
    process,
    processes_in_turns,
    ptb_lines,
    result,
    row,
    store_of,
    train,
    turns,
    write_lines,
)

from lmtool.data.corpus import Corpus
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
from lmtool.runs.load import load_model
from lmtool.runs.run import Run
from lmtool.system import parallel

COUNTED = """
import json, sys
import measure_ngram
print(json.dumps(measure_ngram._counted(int(sys.argv[1]))))
"""


def kenlm() -> None:
    """PTB, orders 3 to 5: perplexity and every event against KenLM's (kenlm5_ptb_valid.tsv.gz)"""
    for order, wanted in ((3, 157.76526), (4, 149.89556), (5, 148.00740)):
        seconds = train(f"kn{order}", "model=ngram", f"model.order={order}", "data=ptb")["command_seconds"]
        found = evaluate(f"kn{order}")
        print(f"order {order}: {found['perplexity']:.5f}, KenLM {wanted:.5f}; ", end="")
        print(f"{found['tokens']:,} events; {seconds:.1f} s")
    with gzip.open(Path(os.environ["REFERENCE"]) / "kenlm5_ptb_valid.tsv.gz", "rt") as lines:
        log10 = np.array([float(line.split("\t")[4]) for line in list(lines)[1:]])
    with h5py.File("kn5-valid/scores.h5") as scores:
        difference = np.abs(scores["log_prob"][:] / math.log(10) - log10)
    print(f"largest difference of any event: {difference.max():.2e} in log10")


def smoothers() -> None:
    """PTB, orders 3 to 5: every smoother, what tuning gains, pruning, and the cloze questions of HW3"""
    rows = ["modified_kneser_ney", "kneser_ney", "witten_bell", "good_turing", "absolute"]
    rows += [f"{name} smoother.interpolate=false" for name in rows if name != "good_turing"]
    rows += ["modified_kneser_ney smoother.kenlm_compatible=false", "absolute smoother.discounts=0.5"]
    rows += ["pitman_yor", "pitman_yor smoother.tables=expected"]
    rows += ["jelinek_mercer", "stupid_backoff", *(f"laplace smoother.alpha={alpha}" for alpha in (1, 0.1, 0.01))]
    rows += [f"{name} smoother.discounts=tuned" for name in ("modified_kneser_ney", "kneser_ney", "absolute")]
    rows += ["laplace smoother.alpha=tuned", "modified_kneser_ney prune_counts=[0,0,1]"]
    rows += [f"modified_kneser_ney prune_entropy={limit}" for limit in ("1e-8", "1e-7")]
    train("first", "model=ngram", "model.order=5", "data=hw3")  # the counts, for all the others
    head("PTB valid", "order 3", "order 4", "order 5", "cloze 3", "cloze 5", numbers=5)
    for number, words in enumerate(rows):
        found = []
        for order in (3, 4, 5):
            run = f"s{number}-{order}"
            train(run, "model=ngram", f"model.order={order}", "data=hw3", *f"smoother={words}".split())
            found.append(evaluate(run))
        cells = [each["perplexity"] for each in found] + [found[k]["cloze"]["perplexity"] for k in (0, 2)]
        row(words, *(f"{cell:.4f}" for cell in cells))


def _trained(run: str, *words: str) -> Used:
    command = ["train", "model=ngram", "model.order=5", "counts.keep=false", *words, f"hydra.run.dir={run}"]
    return process([*LMTOOL, *command])


def _from_text(text: str, memory: str = "null") -> Callable[[int], Used]:
    """Return the training of a model of order 5 from a file, within a memory."""

    def call(turn: int) -> Used:
        shutil.rmtree("textstores", ignore_errors=True)
        data = ["data=text", f"data.train={Path(text).resolve()}", "store_dir=textstores"]
        return _trained(f"{text}-{memory}-{turn}", *data, f"counts.memory={memory}")

    return call


def _to_arpa(text: str) -> Callable[[int], Used]:
    """Return the same as two commands, the second of which writes an ARPA file, as lmplz does."""

    def call(turn: int) -> Used:
        model = _from_text(text)(turn + 1000)
        written = process([*LMTOOL, "convert", f"run={text}-null-{turn + 1000}", f"to={text}.{turn}.arpa"])
        times = model.seconds + written.seconds, model.processor + written.processor
        return Used(*times, max(model.mib, written.mib), written.out)

    return call


def ngram() -> None:
    """PTB and big20, order 5: time, memory and size of models, speed of scoring and of distributions (15 minutes)"""
    big20()
    for name in ("train", "valid"):  # KenLM reserves <unk>
        write_lines(f"ptb.{name}.txt", (line.replace("<unk>", "UNKNOWN") for line in ptb_lines(name)))
    lmtool("preprocess", "data=ptb")
    _trained("ptb", "data=ptb")
    for what, text, reserved, count in (
        ("Penn Treebank", "ptb.train.txt", "1G", turns()),
        ("20 million words", "big20.txt", "4G", turns(3)),
    ):
        calls = {"text to model": _from_text(text), "text to ARPA": _to_arpa(text)}
        if text == "big20.txt":
            calls["text to model with counts.memory=512MiB"] = _from_text(text, "512MiB")
        used = processes_in_turns(calls | _lmplz(text, reserved), count)
        print(f"{what}, order 5, whole processes, two threads each:")
        for name, each in used.items():
            beside = f"; {each.seconds / used['lmplz'].seconds:.2f} of lmplz's time" if "lmplz" in used else ""
            print(f"  {name}: {each.seconds:.1f} s, {each.mib:,.0f} MiB{beside if name != 'lmplz' else ''}", flush=True)
    print(f"Penn Treebank, counts, discounts and table alone: {sum(_counted(None, 'ptb', repeats=5)):.2f} s")
    run = "big20.txt-null-0"
    size, found = Path(f"{run}/model.h5").stat().st_size / 1e6, sum(result(run)["ngrams"]) / 1e6
    same = Path(f"{run}/model.h5").read_bytes() == Path("big20.txt-512MiB-0/model.h5").read_bytes()
    print(f"  model on disk: {size:.1f} MB; {found:.1f} million n-grams; the same file with counts.memory: {same}")
    _score_speed("Penn Treebank valid", "ptb.train.txt-null-0", "ptb.train.txt", "ptb.valid.txt")
    _score_speed("1 million words with the model of 20 million", run, "big20.txt", "big_heldout.txt")
    _in_memory()


def _lmplz(text: str, memory: str) -> dict[str, Callable[[int], Used]]:
    """Return KenLM's estimation from a text into TEXT.arpa, if its programs are given.

    lmplz reserves its memory at the start, so a small text is counted faster with less: 1G is its best for PTB.
    """
    if not os.environ.get("KENLM"):
        return {}
    command = [f"{os.environ['KENLM']}/lmplz", "-o", "5", "-S", memory, "--text", text, "--arpa", f"{text}.arpa"]
    return {"lmplz": lambda turn: process(command)}


def _counted(threads: int | None, name: str = "big20", repeats: int = 1) -> list[float]:
    """Return the median seconds of counting and of estimation, order 5, in memory, after a first time."""
    parallel.use(threads)
    with Corpus.open(store_of(name)) as corpus:
        text, vocabulary = corpus.text("train"), corpus.vocabulary
        estimate(count_ngrams(corpus.split("valid"), vocabulary, 5), ModifiedKneserNey(5))  # compiled
        counted, estimated = [], []
        for _ in range(repeats):
            start = time.perf_counter()
            counts = count_ngrams(text, vocabulary, 5)
            middle = time.perf_counter()
            estimate(counts, ModifiedKneserNey(5))
            counted.append(middle - start)
            estimated.append(time.perf_counter() - middle)
    return [statistics.median(counted), statistics.median(estimated)]


def _score_speed(what: str, run: str, text: str, test: str) -> None:
    """Print tokens scored per second, a file of sentences to a score for each, one thread, beside KenLM if given."""
    lines = Path(test).read_text().splitlines()
    lines *= max(9_000_000 // sum(len(line.split()) + 1 for line in lines), 1)
    write_lines("repeated.txt", lines)
    tokens, kenlm = sum(len(line.split()) + 1 for line in lines), os.environ.get("KENLM")
    score = [*LMTOOL, "score", f"run={run}", "text=repeated.txt", "threads=1"]
    calls = {"lmtool score": lambda turn: process([*score, f"to=scores-{turn}.tsv"])}
    if kenlm:
        binary = [f"{kenlm}/build_binary", "probing", f"{text}.arpa", "k.bin"]
        subprocess.run(binary, check=True, capture_output=True)
        query = [f"{kenlm}/query", "-v", "sentence", "k.bin"]
        calls["KenLM's query, probing"] = lambda turn: process(query, Path("repeated.txt"))
    print(f"{what}, {tokens / 1e6:.1f} million tokens, sentences to scores, whole processes, one thread each:")
    for name, used in processes_in_turns(calls, turns()).items():
        rates = (f"{tokens / seconds / 1e6:.2f}" for seconds in (used.seconds, used.processor))
        print(f"  {name}: {' and '.join(rates)} million tokens a second of wall and of processor time", flush=True)


def _in_memory() -> None:
    """Print what takes token ids in memory: scoring PTB's valid split, and distributions."""
    run = Run.open(Path("ptb"))
    with Corpus.open(Path(run.store)) as corpus:
        model, valid = load_model(run, corpus.vocabulary), corpus.split("valid")
        repeats = 4_000_000 // valid.tokens
        seconds = median_seconds(lambda: [model.score_text(valid) for _ in range(repeats)], 5)
        rate = repeats * valid.tokens / seconds / 1e6
        print(f"Penn Treebank valid, token ids in memory: {rate:.1f} million tokens a second")
        contexts = valid.contexts(0, 1024, model.context_size)
        milliseconds = median_seconds(lambda: model.log_dist(contexts), 25) / 1024 * 1000
        print(f"a distribution over {len(corpus.vocabulary):,} words, in batches of 1,024: {milliseconds:.3f} ms")


def counts() -> None:
    """big20, order 5: one thread and two, within 512 MiB, and ten times the text within 2 GiB (half an hour)"""
    text = big20()
    lmtool("preprocess", *text)
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}){COUNTED}"]
    rows: dict[str, list[list[float]]] = {"1": [], "2": []}
    for _ in range(turns(3)):
        for threads, found in rows.items():
            found.append(json.loads(process([*words, threads]).out))
    for part, name in enumerate(("counting", "estimation")):
        one, two = (statistics.median(row[part] for row in found) for found in rows.values())
        print(f"{name}: {one:.2f} s with one thread, {two:.2f} s with two: {one / two:.2f} times as fast", flush=True)
    limits = {"null": "20 million words, store to model", "512MiB": "with counts.memory=512MiB"}
    calls = {
        memory: lambda turn, memory=memory: _trained(f"{memory}-{turn}", *text, f"counts.memory={memory}")
        for memory in limits
    }
    for memory, used in processes_in_turns(calls, turns(3)).items():
        print(f"{limits[memory]}: {used.seconds:.1f} s, {used.mib:,.0f} MiB", flush=True)
    shutil.rmtree("stores")
    _make_large()
    large = ["data=text", "data.name=large", "data.train=large.txt", text[-1]]
    lmtool("preprocess", *large)
    used, found = _trained("large", *large, "counts.memory=2GiB"), result("large")
    print(f"{found['examples'] / 1e6:.0f} million tokens ({sum(found['ngrams']) / 1e6:.0f} million n-grams)", end=", ")
    print(f"counts.memory=2GiB: {used.seconds:.0f} s, {used.mib:,.0f} MiB", flush=True)


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


def preprocess() -> None:
    """big20: words a second after decompression, and peak memory"""
    text = [word for word in big20() if not word.startswith("data.valid")]
    Path("valid.txt").write_text("one sentence\n")

    def call(turn: int) -> Used:
        shutil.rmtree("stores", ignore_errors=True)
        return process([*LMTOOL, "preprocess", *text, f"data.valid={Path.cwd()}/valid.txt"])

    used = processes_in_turns({"": call}, turns())[""]
    rate = 20_001_189 / used.seconds / 1e6
    print(f"20 million words of plain text, the whole process: {rate:.1f} million words a second, {used.mib:,.0f} MiB")


def start() -> None:
    """processor seconds of short commands as processes, and of the first use"""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # Python keeps its compiled files, as it does for users
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    train("kn", "model=ngram", "data=toy")
    lmtool("train", "model=nplm", "data=toy")
    lmtool("export", "run=kn", "to=kn.arpa")
    Path("texts").write_text("the cat sat on the mat\n")
    lines = ["--help", "train --help", "completion query lmtool train model=ngram smoother=w", "train --cfg job"]
    lines += ["preprocess data=toy hydra.run.dir={}", "score arpa=kn.arpa text=texts to={}.tsv"]
    lines += ["train model=ngram data=toy hydra.run.dir={}", "train model=nplm data=toy hydra.run.dir={}"]
    commands = {f"python -c {code!r}": ["-c", code] for code in ("pass", "import lmtool")}
    commands |= {line.removesuffix(" hydra.run.dir={}"): [*LMTOOL[1:], *line.split()] for line in lines}
    head("command", "processor seconds on one core", numbers=1)
    for number, (name, words) in enumerate(commands.items()):
        lines = [[LMTOOL[0], *(word.format(f"{number}-{turn}") for word in words)] for turn in range(turns())]
        row(name, f"{min(process(line).processor for line in lines):.3f}")
    os.environ["NUMBA_CACHE_DIR"] = os.path.abspath("compiled")
    first = process([*LMTOOL, *["train", "model=ngram", "data=toy", "store_dir=new", "hydra.run.dir=first"]]).processor
    row("train model=ngram data=toy, all loops being compiled", f"{first:.1f} (once)")

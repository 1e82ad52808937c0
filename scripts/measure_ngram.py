"""N-gram models for ./scripts/measure: against KenLM, smoothers, time and memory, files that are opened."""

from __future__ import annotations

import gzip
import math
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

from measuring import (
    LMTOOL,
    big20,
    evaluate,
    in_turns,
    lmtool,
    measure,
    median_seconds,
    print_used,
    process,
    ptb_lines,
    store_of,
    train,
    turns,
    write_lines,
)


@measure
def kenlm() -> None:
    """PTB, orders 3 to 5: perplexity and every event against KenLM's (kenlm5_ptb_valid.tsv.gz)"""
    import h5py
    import numpy as np

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


@measure
def smoothers() -> None:
    """PTB, orders 3 to 5: every smoother, what tuning gains, pruning, and the cloze questions of HW3"""
    train("first", "model=ngram", "model.order=5", "data=hw3")  # the counts, for all the others
    tuned = {"modified_kneser_ney": "discounts", "kneser_ney": "discounts", "absolute": "discounts", "laplace": "alpha"}
    rows = [[name] for name in ("modified_kneser_ney", "kneser_ney", "witten_bell", "good_turing", "absolute")]
    back_off = ("modified_kneser_ney", "kneser_ney", "witten_bell", "absolute")
    rows += [[name, "smoother.interpolate=false"] for name in back_off]
    rows += [["modified_kneser_ney", "smoother.kenlm_compatible=false"]]
    rows += [["absolute", "smoother.discounts=0.5"], ["jelinek_mercer"], ["stupid_backoff"]]
    rows += [["laplace", f"smoother.alpha={alpha}"] for alpha in (1, 0.1, 0.01)]
    rows += [[name, f"smoother.{key}=tuned"] for name, key in tuned.items()]
    rows += [
        ["modified_kneser_ney", more] for more in ("prune_counts=[0,0,1]", "prune_entropy=1e-8", "prune_entropy=1e-7")
    ]
    print(f"{'PTB valid':<55} order 3   order 4   order 5   cloze 3   cloze 5")
    for number, (name, *more) in enumerate(rows):
        found = []
        for order in (3, 4, 5):
            run = f"s{number}-{order}"
            train(run, "model=ngram", f"model.order={order}", "data=hw3", f"smoother={name}", *more)
            found.append(evaluate(run))
        cells = [each["perplexity"] for each in found] + [found[k]["cloze"]["perplexity"] for k in (0, 2)]
        print(f"{' '.join([name, *more]):<55}" + "".join(f"{cell:>9.4f} " for cell in cells), flush=True)


@measure
def ngram() -> None:
    """PTB and big20, order 5: time, memory and size of estimation, speed of scoring and of distributions"""
    programs = Path(os.environ["KENLM"]) if os.environ.get("KENLM") else None
    text = big20()
    for name in ("train", "valid"):  # KenLM reserves <unk>
        write_lines(f"ptb.{name}.txt", (line.replace("<unk>", "UNKNOWN") for line in ptb_lines(name)))
    lmtool("preprocess", "data=ptb")
    ours, theirs = [], []
    for turn in range(5):
        ours.append(process([*LMTOOL, "train", "data=ptb", "counts.keep=false", *_order_5(f"ptb{turn}")]))
        if programs:
            theirs.append(process([str(programs / "lmplz"), "-o", "5", "-S", "1G"], Path("ptb.train.txt")))
    print_used("PTB order 5, store to model, the whole process", ours)
    _estimation_speed("ptb0")
    if programs:
        print_used("  lmplz, text to ARPA", theirs)
    ours, theirs, tight = [], [], []
    for turn in range(turns(3)):
        for rows, memory in ((ours, "null"), (tight, "512MiB")):
            shutil.rmtree("bigstores", ignore_errors=True)
            words = ["train", *text, f"counts.memory={memory}", "store_dir=bigstores"]
            rows.append(process([*LMTOOL, *words, *_order_5(f"big{turn}-{memory}")]))
        same = Path(f"big{turn}-null/model.h5").read_bytes() == Path(f"big{turn}-512MiB/model.h5").read_bytes()
        if programs:
            theirs.append(process([str(programs / "lmplz"), "-o", "5", "-S", "4G"], Path("big20.txt")))
    free = print_used("big20 order 5, text to model", ours)
    limited = print_used("  with counts.memory=512MiB", tight)
    print(f"  {limited / free:.2f} times as long, the same file: {same}")
    print(f"  model on disk: {Path('big0-null/model.h5').stat().st_size / 1e6:.1f} MB")
    if programs:
        print(f"  {free / print_used('  lmplz, text to ARPA', theirs):.2f} of its time")
    _score_speed("ptb0", programs, "ptb.train.txt", "ptb.valid.txt")
    _score_speed("big0-null", programs, "big20.txt", "big_heldout.txt")


def _order_5(run: str) -> list[str]:
    return ["model=ngram", "model.order=5", f"hydra.run.dir={run}"]


def _estimation_speed(folder: str) -> None:
    from lmtool.data.corpus import Corpus
    from lmtool.ngram.counting.counts import count_ngrams
    from lmtool.ngram.estimation.estimate import estimate
    from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
    from lmtool.runs.run import Run

    with Corpus.open(Path(Run.open(Path(folder)).store)) as corpus:
        split, vocabulary = corpus.split("train"), corpus.vocabulary
        start = time.perf_counter()
        estimate(count_ngrams(split, vocabulary, 5), ModifiedKneserNey(5))
        first = time.perf_counter() - start
        seconds = median_seconds(lambda: estimate(count_ngrams(split, vocabulary, 5), ModifiedKneserNey(5)), 5)
    print(f"  counts, discounts and table: {seconds:.2f} s (median of 5), with loading code {first:.2f} s")


def _score_speed(folder: str, programs: Path | None, text: str, test: str) -> None:
    import numpy as np

    from lmtool.data.corpus import Corpus
    from lmtool.evaluation.metrics import perplexity
    from lmtool.runs.load import load_model
    from lmtool.runs.run import Run

    run = Run.open(Path(folder))
    with Corpus.open(Path(run.store)) as corpus:
        start = time.perf_counter()
        model = load_model(run, corpus.vocabulary)
        opened = time.perf_counter() - start
        valid = corpus.split("valid")
        repeats = max(4_000_000 // valid.tokens, 1)
        theirs: list[float] = []

        def score() -> None:
            for _ in range(repeats):
                model.log_prob_text(valid.ids, valid.offsets)

        calls = {"ours": score}
        if programs:
            _build_kenlm(programs, text, test, repeats)
            calls["theirs"] = lambda: theirs.append(_kenlm_rate(programs))
        rates = [repeats * valid.tokens / seconds / 1e6 for seconds in in_turns(calls, 5)["ours"]]
        log_prob = model.log_prob_text(valid.ids, valid.offsets)
        known = np.ones(valid.tokens, dtype=bool)
        known[valid.oov_positions] = False
        print(f"{folder}: opened in {opened:.2f} s; perplexity {perplexity(log_prob):.4f}, without OOVs", end=" ")
        print(f"{perplexity(log_prob[known]):.4f}")
        print(
            f"  {statistics.median(rates):.1f} M events/s (median of 5, {min(rates):.1f} to {max(rates):.1f})", end=""
        )
        if programs:
            print(f"; KenLM probing {statistics.median(theirs[1:]):.1f} ", end="")
            print(f"(reading the text included, {min(theirs):.1f} to {max(theirs):.1f})", end="")
        print()
        if len(corpus.vocabulary) < 20_000:
            contexts = valid.contexts(0, 1024, model.context_size)
            milliseconds = median_seconds(lambda: model.log_dist(contexts), 5) / 1024 * 1000
            print(f"  {milliseconds:.3f} ms a distribution of {len(corpus.vocabulary):,} words (median of 5)")


def _build_kenlm(programs: Path, text: str, test: str, repeats: int) -> None:
    with open(text, "rb") as lines, open("k.arpa", "wb") as out:
        command = [str(programs / "lmplz"), "-o", "5", "-S", "4G"]
        subprocess.run(command, stdin=lines, stdout=out, stderr=subprocess.DEVNULL, check=True)
    subprocess.run([str(programs / "build_binary"), "probing", "k.arpa", "k.bin"], check=True, capture_output=True)
    Path("repeated.txt").write_text(Path(test).read_text() * repeats)


def _kenlm_rate(programs: Path) -> float:
    command = [str(programs / "query"), "-v", "summary", "k.bin"]
    with open("repeated.txt") as text:
        out = subprocess.run(command, stdin=text, capture_output=True, text=True)
    tokens = float(out.stdout.split("Tokens:")[1].split()[0])
    return tokens / float((out.stdout + out.stderr).split("real:")[1].split()[0]) / 1e6


@measure
def opening() -> None:
    """big20, order 5: opening the store and the model, whose checksums are verified"""
    from lmtool.data.corpus import Corpus
    from lmtool.runs.load import load_model
    from lmtool.runs.run import Run
    from lmtool.system import checksummed_file, parallel

    lmtool("train", *big20(), "counts.keep=false", *_order_5("float32"))
    lmtool("convert", "run=float32", "quantize=8", "hydra.run.dir=8")
    store = store_of("big20")
    with Corpus.open(store) as corpus:
        vocabulary = corpus.vocabulary
    print(f"{'file':<12} {'MB':>7} {'threads':>8} {'verified':>9} {'again':>7}  seconds, median of 7")
    for name, path in {"store": store, "float32": Path("float32/model.h5"), "8 bits": Path("8/model.h5")}.items():

        def open_again(path: Path = path) -> None:
            if path == store:
                Corpus.open(store).close()
            else:
                load_model(Run.open(path.parent), vocabulary)

        def open_first(open_again=open_again) -> None:  # type: ignore[no-untyped-def]
            checksummed_file._verified.clear()
            open_again()

        for threads in (1, 2):
            parallel.use(threads)
            seconds = in_turns({"first": open_first, "again": open_again}, 7)
            first, again = map(statistics.median, seconds.values())
            print(f"{name:<12} {path.stat().st_size / 1e6:>7.1f} {threads:>8} {first:>9.3f} {again:>7.3f}", flush=True)


@measure
def preprocess() -> None:
    """big20: words a second after decompression, and peak memory"""
    text = [word for word in big20() if not word.startswith("data.valid")]
    Path("valid.txt").write_text("one sentence\n")
    rows = []
    for turn in range(5):
        shutil.rmtree("stores", ignore_errors=True)
        rows.append(process([*LMTOOL, "preprocess", *text, f"data.valid={Path.cwd()}/valid.txt"]))
        rate = 20_001_189 / rows[-1].seconds
        print(f"turn {turn + 1}: {rows[-1].seconds:.2f} s, {rate:,.0f} words/s, the whole process")
    rates = [20_001_189 / each.seconds for each in rows]
    print(f"median {statistics.median(rates):,.0f} words/s; peak memory {max(each.mib for each in rows):,.0f} MiB")


@measure
def start() -> None:
    """seconds of help, completion and short commands"""
    query = ["completion", "query", "lmtool train model=ngram smoother=w"]
    lmtool("preprocess", "data=toy")
    for words in (["--help"], ["train", "--help"], query, ["train", "--cfg", "job"], ["preprocess", "data=toy"]):
        seconds = statistics.median(process([*LMTOOL, *words]).seconds for _ in range(9))
        print(f"{' '.join(words):<56} {seconds:.3f} s (median of 9)")

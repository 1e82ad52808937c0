"""Word vectors for ./scripts/measure, by ordinary commands, beside gensim's."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

from measuring import LMTOOL, Used, big20, head, parts, process, result, row, turns, write_lines

WORDS = int(os.environ.get("WORDS", 5_000_000))
EPOCHS = int(os.environ.get("EPOCHS", 3))
PAIRS = {
    "gender": "he she,his her,him her,himself herself,man woman,men women,boy girl,boys girls,father mother,"
    "brother sister,brothers sisters,son daughter,husband wife,uncle aunt,king queen,prince princess,mr mrs",
    "plural": "man men,woman women,child children,foot feet,day days,year years,hour hours,eye eyes,hand hands,"
    "word words,book books,house houses,door doors,tree trees,dog dogs,horse horses,friend friends,street streets",
    "past": "go went,take took,make made,see saw,come came,give gave,know knew,think thought,say said,find found,"
    "run ran,write wrote,tell told,hear heard,feel felt,stand stood,begin began,bring brought,leave left,keep kept",
    "participle": "go going,take taking,make making,see seeing,come coming,give giving,say saying,run running,"
    "write writing,tell telling,hear hearing,feel feeling,stand standing,look looking,walk walking,speak speaking",
    "comparative": "good better,bad worse,great greater,long longer,high higher,low lower,old older,young younger,"
    "strong stronger,large larger,small smaller,easy easier,deep deeper,dark darker,near nearer,hard harder",
    "numbers": "one first,two second,three third,four fourth,five fifth,six sixth,seven seventh,eight eighth",
}
GENSIM = """
import sys, time
from gensim.models import Word2Vec
threads, epochs, seed = map(int, sys.argv[1:])
sentences = [line.split() for line in open("train.txt")]
same = dict(sg=1, vector_size=100, window=5, negative=5, sample=1e-3, alpha=0.025, min_alpha=0, min_count=1)
model = Word2Vec(**same, workers=threads, seed=seed)
model.build_vocab(sentences)
wall, processor = time.perf_counter(), time.process_time()
model.train(sentences, total_examples=model.corpus_count, epochs=epochs)
wall, processor = time.perf_counter() - wall, time.process_time() - processor
words = epochs * sum(map(len, sentences))
right = model.wv.evaluate_word_analogies("questions.txt")[0]
near = [" ".join(word for word, _ in model.wv.most_similar(word, topn=10)) for word in open("words.txt").read().split()]
print(words / wall, words / processor, right, *near, sep="\\n")
"""


def word2vec() -> None:
    """skip-gram beside gensim's: words per second, analogies, neighbors (twenty minutes)

    The first WORDS words of big20.txt.xz, words that occur less than five times as <unk>, EPOCHS passes, in turns, one
    and two threads. GENSIM_PYTHON is an interpreter that has gensim; without one, lmtool alone is measured. Analogies
    are those of PAIRS; neighbors are the share of the ten nearest of 500 frequent words that both have.
    """
    _write_text()
    gensim = os.environ.get("GENSIM_PYTHON", sys.executable)
    if subprocess.run([gensim, "-c", "import gensim"], capture_output=True).returncode:
        print("gensim is not installed: pip install gensim, or set GENSIM_PYTHON", flush=True)
        gensim = ""
    print(f"{WORDS:,} words, {EPOCHS} epochs, {len(_questions())} analogies", flush=True)
    head("", "threads", "words/s", "words/s of processor time", "analogies", "ratios to gensim", numbers=5)
    near: dict[str, list[list[set[str]]]] = {}
    for threads in map(int, parts("THREADS", "1,2")):
        found: dict[str, list[tuple[float, ...]]] = {"gensim": [], "lmtool": []}
        for seed in range(1, turns(2) + 1):
            if gensim:
                out = process([gensim, "-c", GENSIM, str(threads), str(EPOCHS), str(seed)]).out.split("\n")
                found["gensim"].append(tuple(map(float, out[:3])))
                near.setdefault("gensim", []).append([set(line.split()) for line in out[3:503]])
            found["lmtool"].append(_lmtool(threads, seed, near))
        medians = {name: [statistics.median(each) for each in zip(*rows, strict=True)] for name, rows in found.items()}
        for name, cells in medians.items():
            if cells:
                base = medians["gensim"] if gensim else cells
                ratio = f"{cells[0] / base[0]:.2f}, {cells[1] / base[1]:.2f}"
                row(name, threads, f"{cells[0]:,.0f}", f"{cells[1]:,.0f}", f"{cells[2]:.3f}", ratio)
    for one, other in itertools.combinations_with_replacement(near, 2):
        runs = itertools.combinations(near[one], 2) if one == other else zip(near[one], near[other], strict=True)
        shares = [len(a & b) / 10 for first, second in runs for a, b in zip(first, second, strict=True)]
        print(f"neighbors shared, {one} and {other}: {statistics.mean(shares):.3f}", flush=True)


def _lmtool(threads: int, seed: int, near: dict[str, list[list[set[str]]]]) -> tuple[float, float, float]:
    """Train and answer; return words per second, words per processor second, and the share of right analogies."""
    data = ["data=text", "data.name=vectors", "data.train=train.txt", "data.valid=valid.txt", "model=skipgram"]
    same = ["train", *data, f"seed={seed}", f"threads={threads}", "training.accuracy_tokens=0", "schedule.warmup=0"]
    start = _run(*same, "training.steps=1", f"out=start-{threads}-{seed}").processor  # imports, reading, one evaluation
    out = f"lmtool-{threads}-{seed}"
    used = _run(*same, f"training.epochs={EPOCHS}", f"training.evaluate_every={EPOCHS}", f"out={out}")
    trained = result(out)
    _run("neighbors", f"run={out}", "questions=questions.txt", f"out=answers-{out}")
    words = Path("words.txt").read_text(encoding="utf-8").split()
    _run("neighbors", *words, f"run={out}", f"out=near-{out}")
    near.setdefault("lmtool", []).append(
        [{n["word"] for n in each["neighbors"]} for each in result(f"near-{out}")["words"]]
    )
    every = result(f"answers-{out}")["sections"][-1]["accuracy"]
    return trained["examples_per_second"], trained["examples"] / (used.processor - start), every


def _run(*words: str) -> Used:
    print("$ lmtool", *words[:8], flush=True)
    return process([*LMTOOL, *words])


def _questions() -> list[str]:
    found = []
    for section, text in PAIRS.items():
        pairs = [pair.split() for pair in text.split(",")]
        asked = [f"{a} {b} {c} {d}" for (a, b), (c, d) in itertools.permutations(pairs, 2) if len({a, b, c, d}) == 4]
        found += [f": {section}", *asked]
    return found


def _write_text() -> None:
    big20()
    names = {"train": ("big20", WORDS), "valid": ("big_heldout", 50_000)}
    text: dict[str, list[list[str]]] = {name: [] for name in names}
    for name, (source, left) in names.items():
        with open(f"{source}.txt", encoding="utf-8") as lines:
            while left > 0:
                text[name].append(lines.readline().split())
                left -= len(text[name][-1])
    counts = Counter(itertools.chain.from_iterable(text["train"]))
    for name, sentences in text.items():
        write_lines(f"{name}.txt", (" ".join(w if counts[w] >= 5 else "<unk>" for w in line) for line in sentences))
    write_lines("questions.txt", _questions())
    write_lines("words.txt", [word for word, _ in counts.most_common(800) if word.isalpha()][100:600])

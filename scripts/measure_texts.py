"""Texts for ./scripts/measure: word by word and whole documents beside kenlm's module, and selection of texts."""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import measuring
from measuring import KN5, LMTOOL, big20, brown, head, in_turns, process, ptb_lines, row, train, turns, write_lines

import lmtool.kenlm
from lmtool import States
from lmtool.runs.load import load
from lmtool.system import parallel

# What users of kenlm's module write for the same: the scores of a document's lines, added up.
KENLM = """
import json, math, sys, time
import kenlm
arpa, docs, out = sys.argv[1:]
model = kenlm.Model(arpa)
start = time.process_time()
with open(docs, encoding="utf-8") as lines, open(out, "w", encoding="utf-8") as table:
    for line in lines:
        total, tokens = 0.0, 0
        for sentence in json.loads(line)["text"].split("\\n"):
            total += model.score(sentence)
            tokens += len(sentence.split()) + 1
        table.write(f"{tokens}\\t{total * math.log(10):.4f}\\t{10 ** (-total / tokens):.4f}\\n")
print(time.process_time() - start)
"""


def documents() -> None:
    """PTB, order 5: lmtool score on nine million tokens of documents, beside kenlm's module"""
    train("kn5", *KN5)
    lines = _write_documents()
    tokens = sum(len(line.split()) + 1 for line in lines)
    print(f"{tokens / 1e6:.1f} million tokens, {len(lines):,} lines; processor time, best of {turns(3)}")
    columns = ("processor, s", "million tokens per second and core", "without the start", "wall, s", "MiB")
    head("", *columns, numbers=5)
    start = 0.0
    for what, words in {
        "three words: the start": ["text=few.txt"],
        "lines": ["text=lines.txt", "threads=1"],
        "lines, all cores": ["text=lines.txt"],
        "documents of 20 lines in JSON Lines": ["text=docs.jsonl", "column=text", "threads=1"],
        "documents, all cores": ["text=docs.jsonl", "column=text"],
    }.items():
        used = [process([*LMTOOL, "score", "run=kn5", *words, "to=scores.tsv"]) for _ in range(turns(3))]
        seconds = min(each.processor for each in used)
        start = start or seconds
        rates = [f"{tokens / taken / 1e6:.2f}" for taken in (seconds, seconds - start) if taken and start < seconds]
        wall, peak = min(each.seconds for each in used), max(each.mib for each in used)
        row(what, f"{seconds:.2f}", *(rates or ("", "")), f"{wall:.2f}", f"{peak:,.0f}")
    _documents_of_kenlm(tokens)


def _write_documents() -> list[str]:
    lines = ptb_lines("train") * 10
    write_lines("lines.txt", lines)
    write_lines("few.txt", ["a few words"])
    write_lines("few.jsonl", ['{"text": "a few words"}'])
    texts = ("\n".join(lines[at : at + 20]) for at in range(0, len(lines), 20))
    write_lines("docs.jsonl", (json.dumps({"id": 20 * number, "text": text}) for number, text in enumerate(texts)))
    return lines


def filtering() -> None:
    """PTB, order 5: core-hours in which lmtool score reads a terabyte of JSON Lines"""
    train("words", *KN5)
    for unit in ("bpe", "unigram"):
        train(unit, *KN5, f"data.vocabulary.unit={unit}")
    _write_documents()
    size = Path("docs.jsonl").stat().st_size
    print(f"{size / 1e6:.1f} MB of documents of 20 lines in JSON Lines, one thread; processor time, best of {turns(3)}")
    head("model", "output", "processor, s", "MB per second and core, without the start", "core-hours per TB", numbers=3)
    for run in ("words", "bpe", "unigram"):
        for output in (["to=scores.tsv"], ["to=scores.tsv", "filter=kept.jsonl", "max_perplexity=100"]):
            start, seconds = (
                min(
                    process([*LMTOOL, "score", f"run={run}", *words, *output, "threads=1"]).processor
                    for _ in range(turns(3))
                )
                for words in (["text=few.jsonl", "column=text"], ["text=docs.jsonl", "column=text"])
            )
            rate = size / 1e6 / (seconds - start)
            row(run, " ".join(output), f"{seconds:.2f}", f"{rate:.1f}", f"{1e6 / rate / 3600:.0f}")


def _documents_of_kenlm(tokens: int) -> None:
    python = os.environ.get("KENLM_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import kenlm"], capture_output=True).returncode:
        print(f"kenlm's module is not in {python}: install it, and name the interpreter by --kenlm-python")
        return
    measuring.lmtool("export", "run=kn5", "to=kn5.arpa")
    Path("by_kenlm.py").write_text(KENLM, encoding="utf-8")
    used = [process([python, "by_kenlm.py", "kn5.arpa", "docs.jsonl", "kenlm.tsv"]) for _ in range(turns(3))]
    scored, whole, peak = min((float(each.out), each.processor, each.mib) for each in used)
    rates = [f"{tokens / seconds / 1e6:.2f}" for seconds in (whole, scored)]
    row("kenlm's Python module, the same documents", f"{whole:.2f}", *rates, "", f"{peak:,.0f}")
    print(f"kenlm's module reads the model from ARPA in {whole - scored:.1f} s")
    ours, theirs = (
        [line.split("\t") for line in Path(name).read_text(encoding="utf-8").splitlines()]
        for name in ("scores.tsv", "kenlm.tsv")
    )
    assert [each[0] for each in ours[1:]] == [each[0] for each in theirs], "other tokens"
    difference = max(abs(float(a[2]) - float(b[1])) / float(a[0]) for a, b in zip(ours[1:], theirs, strict=True))
    print(f"largest difference of a document's log p: {difference:.1e} nats per token")


SENTENCES, BATCH, STEPS = 2000, 1000, 20
WAYS = "lmtool.kenlm BaseScore", "batches of 1,000 states"


def decoding() -> None:
    """PTB: word by word with states, one and 1,000 at a time, beside KenLM's Python module

    Also a network with 40 hypotheses of each of 25 states.
    """
    train("kn5", *KN5)
    measuring.lmtool("convert", "run=kn5", "to=kn5.arpa", "hydra.run.dir=log")
    train("nplm", "model=nplm", "data=ptb", "training.steps=20", "training.minutes=null")
    base, (sentences, coded, face, calls), network = WAYS[0], calls_of_ngrams("kn5"), load("nplm")
    fresh, words = ", a new state for each word", sum(map(len, sentences))
    calls[base + fresh] = (lambda: _one_by_one(lmtool.kenlm, face, sentences, new_states=True), words)
    parallel.use(1)
    try:
        import kenlm

        base, theirs = "kenlm BaseScore", kenlm.Model("kn5.arpa")
        calls[base] = (lambda: _one_by_one(kenlm, theirs, sentences), words)
        calls[base + fresh] = (lambda: _one_by_one(kenlm, theirs, sentences, new_states=True), words)
    except ImportError:
        print("KenLM's module is not installed (pip install kenlm): its row is left out")
    seconds = in_turns({name: call for name, (call, _) in calls.items()}, turns(), time.process_time)
    # After it, what comes next would find nothing in the caches: BaseScore would take 1.6 times as long.
    name = "network, 40 hypotheses of each of 25 states"
    calls[name] = (lambda: _at_once(network, coded[:3], alike=40), 3 * BATCH)
    seconds |= in_turns({name: calls[name][0]}, turns(), time.process_time)
    rates = {name: calls[name][1] / statistics.median(taken) for name, taken in seconds.items()}
    head("Penn Treebank, order 5", "million words per second and core", f"relative to {base}", numbers=2)
    for name, rate in rates.items():
        row(name, f"{rate / 1e6:.3f}", f"{rate / rates[base]:.2f}")


def calls_of_ngrams(run: str) -> tuple[list[list[str]], list[Any], Any, dict[str, tuple[Any, int]]]:
    """Return sentences, the ids of their words step by step, a lmtool.kenlm.Model, and both ways to score them, with
    the number of words.
    """
    model, face = load(run), lmtool.kenlm.Model(run)
    sentences = [[*line.split(), "</s>"] for line in ptb_lines("valid")][:SENTENCES]
    steps = [[words[at] if at < len(words) else "</s>" for words in sentences[:BATCH]] for at in range(STEPS)]
    coded = [model.vocabulary.encode(step) for step in steps]
    calls: dict[str, tuple[Any, int]] = {
        WAYS[0]: (lambda: _one_by_one(lmtool.kenlm, face, sentences), sum(map(len, sentences))),
        WAYS[1]: (lambda: _at_once(model, coded), BATCH * STEPS),
    }
    for call, count in calls.values():  # until the n-grams are in a hash table, as after a quarter as many words
        for _ in range(sum(measuring.result(run)["ngrams"]) // 4 // count + 1):
            call()
    return sentences, coded, face, calls


def _one_by_one(module: Any, model: Any, sentences: list[list[str]], *, new_states: bool = False) -> None:
    """Score sentences word by word. new_states: make a State for each word, as pyctcdecode does, not two in all."""
    state, after, score = module.State(), module.State(), model.BaseScore
    for sentence in sentences:
        model.BeginSentenceWrite(state)
        for word in sentence:
            after = module.State() if new_states else after
            score(state, word, after)
            state, after = after, state


def _at_once(model: Any, steps: list[Any], alike: int = 1) -> None:
    """Advance all states of a batch at once. alike: number of equal states for each hypothesis."""
    count = len(steps[0]) // alike
    states = States.of([model.begin()] * count)
    for step in steps:
        few = states if alike == 1 else states[[at for at in range(count) for _ in range(alike)]]
        _, after = model.advance(few, step)
        states = after if alike == 1 else after[::alike]


PASSAGE = 10  # sentences
MOORE_LEWIS, DSIR, SAMPLE = ["run={0}-in", "run_out={0}-out"], ["target={0}-sample.jsonl"], ["selection=sample"]
BY = {"chance": [], "perplexity": MOORE_LEWIS[:1], "difference": MOORE_LEWIS}  # how texts are selected
BY |= {"difference, sampled": MOORE_LEWIS + SAMPLE, "DSIR": DSIR, "DSIR, sampled": DSIR + SAMPLE}
KINDS = {"press": "a-c", "learned": "j", "fiction": "k-p"}  # and the letters of their sections
PASSAGES, SHARE = 40_000, 0.1  # of big20
Pool = list[tuple[bool, list[str]]]  # texts, each with whether it is of the kind


def selection() -> None:
    """Brown and big20: half of a kind of text found among passages of books and manuals, in six ways (seven minutes)

    A quarter of the kind's files are the in-domain sample, a quarter the held-out text, the rest is hidden in the pool.
    """
    big20()
    files, general = brown(), _passages(Path("big20.txt").read_text(encoding="utf-8").splitlines())
    random.Random(1).shuffle(general)
    head("kind", "texts", "hidden", "selected by", "hidden texts found", "words per text", "perplexity", numbers=3)
    for kind, sections in KINDS.items():
        own = [name for name in files if re.match(f"c[{sections}]", name)]
        lower = {name: [re.sub("``|''", '"', line.lower()) for line in files[name]] for name in own}
        sample, held, *hidden = ([line for name in own[k::4] for line in lower[name]] for k in range(4))
        pool = [(True, text) for part in hidden for text in _passages(part)]
        inside = len(pool)
        pool += [(False, text) for text in general[:PASSAGES]]
        random.Random(1).shuffle(pool)
        wanted = round(SHARE * len(pool))
        for by, (precision, perplexity, words) in _selected(pool, sample, held, kind, wanted).items():
            cells = [f"{100 * precision * wanted / inside:.1f} %", f"{words:.0f}", f"{perplexity:.1f}"]
            row(kind, f"{len(pool):,}", inside, by, *cells)


def _passages(lines: list[str]) -> list[list[str]]:
    return [lines[at : at + PASSAGE] for at in range(0, len(lines), PASSAGE)]


def _selected(
    pool: Pool, sample: list[str], held: list[str], name: str, wanted: int
) -> dict[str, tuple[float, float, float]]:
    """Choose a number of texts in each way.

    Returns the precision, the perplexity of the held-out text under a model of an equal number of chosen words, and the
    number of words in a chosen text.
    """
    write_lines(f"{name}-held.txt", held)
    write_lines(f"{name}-words.txt", _repeated(sample))  # Moore & Lewis's vocabulary
    write_lines(f"{name}-known.txt", _repeated(_lines(pool)))
    _train(f"{name}-in", sample, f"{name}-words", f"{name}-held")
    _train(f"{name}-out", _lines(pool)[: len(sample)], f"{name}-words", f"{name}-held")
    write_lines(f"{name}.jsonl", (json.dumps({"own": own, "text": "\n".join(text)}) for own, text in pool))
    write_lines(f"{name}-sample.jsonl", (json.dumps({"text": "\n".join(text)}) for text in _passages(sample)))
    chosen: dict[str, Pool] = {"chance": pool[:wanted]}
    for by in [*BY][1:]:
        line = ["score", f"text={name}.jsonl", "column=text", f"share={wanted / len(pool)}"]
        measuring.lmtool(*line, *(word.format(name) for word in BY[by]), f"filter={name}-kept.jsonl")
        kept = map(json.loads, Path(f"{name}-kept.jsonl").read_text(encoding="utf-8").splitlines())
        chosen[by] = [(record["own"], record["text"].split("\n")) for record in kept]
    size = min(len(" ".join(_lines(texts)).split()) for texts in chosen.values())
    found = {}
    for by, texts in chosen.items():
        result = _train(f"{name}-{len(found)}", _cut(_lines(texts), size), f"{name}-known", f"{name}-held", 5)
        precision, words = sum(is_own for is_own, _ in texts), len(" ".join(_lines(texts)).split())
        found[by] = precision / len(texts), float(result["valid_perplexity"]), words / len(texts)
    return found


def _lines(pool: Pool) -> list[str]:
    return [line for _, text in pool for line in text]


def _repeated(lines: Iterable[str]) -> list[str]:
    """Return the words that occur at least twice."""
    counts = Counter(word for line in lines for word in line.split())
    return [word for word, count in counts.items() if count > 1]


def _cut(lines: list[str], words: int) -> list[str]:
    """Draw lines at random until they have a number of words."""
    random.Random(2).shuffle(lines)
    kept = []
    for line in lines:
        words -= len(line.split())
        kept.append(line)
        if words <= 0:
            break
    return kept


def _train(run: str, lines: list[str], words: str, held: str, order: int = 3) -> dict[str, Any]:
    """Train a model over given words; its valid perplexity is that of the held-out text."""
    write_lines(f"{run}.txt", lines)
    here = Path.cwd()
    data = ["data=text", f"data.name={run}", f"data.train={here}/{run}.txt", f"data.valid={here}/{held}.txt"]
    return train(run, "model=ngram", f"model.order={order}", *data, f"data.vocabulary.file={here}/{words}.txt")

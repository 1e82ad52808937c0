"""The measurements of `lmtool score` for ./scripts/measure: many documents beside kenlm's module, and selection."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

TURNS = 3
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


def documents(lmtool: Callable[..., float], command: list[str]) -> None:
    """PTB's train text ten times, as documents of 20 lines and as lines: whole commands, order 5.

    command: that runs lmtool. KENLM_PYTHON in the environment: an interpreter that has the module kenlm.
    """
    lmtool("train", "model=ngram", "model.order=5", "data=ptb", "hydra.run.dir=kn5")
    text = Path(os.environ["LMTOOL_DATA"], "ptb", "ptb.train.txt").read_text(encoding="utf-8").splitlines()
    lines = [line.strip() for line in text if line.strip()] * 10
    Path("lines.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with Path("docs.jsonl").open("w", encoding="utf-8") as file:
        for at in range(0, len(lines), 20):
            file.write(json.dumps({"id": at, "text": "\n".join(lines[at : at + 20])}) + "\n")
    tokens = sum(len(line.split()) + 1 for line in lines)
    print(f"{tokens:,} tokens, {len(lines):,} lines; processor time and wall time of whole commands, best of {TURNS}")
    Path("few.txt").write_text("a few words\n", encoding="utf-8")
    begun, _, few = _best([*command, "score", "run=kn5", "text=few.txt", "to=few.tsv"])
    print(f"  starting alone: {begun:.2f} s, {few:,.0f} MiB")
    for what, words in {
        "lines, one thread": ["text=lines.txt", "threads=1"],
        "lines, all threads": ["text=lines.txt"],
        "documents, one thread": ["text=docs.jsonl", "column=text", "threads=1"],
        "documents, all threads": ["text=docs.jsonl", "column=text"],
    }.items():
        used, wall, peak = _best([*command, "score", "run=kn5", *words, "to=scores.tsv"])
        print(
            f"  {what}: {used:.2f} s of a processor, {wall:.2f} s; {tokens / used / 1e6:.2f} M tokens/s and core, "
            f"without starting {tokens / (used - begun) / 1e6:.2f} M; {peak:,.0f} MiB",
            flush=True,
        )
    _beside_kenlm(lmtool, tokens)


def _best(words: list[str]) -> tuple[float, float, float]:
    """The least processor time and the least wall time of a process, in seconds, and its largest peak in MiB."""
    used, wall, peaks, _ = zip(*(_timed(words) for _ in range(TURNS)), strict=True)
    return min(used), min(wall), max(peaks)


def _timed(words: list[str]) -> tuple[float, float, float, str]:
    """Processor seconds, wall seconds and peak MiB of a process, and what it printed."""
    start = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(words)}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - start, usage.ru_maxrss / 1024, said


def _beside_kenlm(lmtool: Callable[..., float], tokens: int) -> None:
    python = os.environ.get("KENLM_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import kenlm"], capture_output=True).returncode:
        print(f"  kenlm's module is not in {python}: install it, and name the interpreter by --kenlm-python")
        return
    lmtool("export", "run=kn5", "to=kn5.arpa")
    Path("by_kenlm.py").write_text(KENLM, encoding="utf-8")
    words = [python, "by_kenlm.py", "kn5.arpa", "docs.jsonl", "kenlm.tsv"]
    scored, whole = min((float(said), used) for used, _, _, said in (_timed(words) for _ in range(TURNS)))
    print(f"  kenlm's module, documents: {tokens / scored / 1e6:.2f} M tokens/s after reading the model", end="")
    print(f" ({whole - scored:.1f} s), which it reads from ARPA; {tokens / whole / 1e6:.2f} M with it")
    ours = [line.split("\t") for line in Path("scores.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    theirs = [line.split("\t") for line in Path("kenlm.tsv").read_text(encoding="utf-8").splitlines()]
    assert [row[0] for row in ours] == [row[0] for row in theirs], "other tokens"
    apart = max(abs(float(a[2]) - float(b[1])) / float(a[0]) for a, b in zip(ours, theirs, strict=True))
    print(f"  largest difference of a document's log p: {apart:.1e} nats per token")


SECTIONS = {"ca": "press: reportage", "cj": "learned", "cn": "fiction: adventure"}
PASSAGE = 10  # sentences
BY, ITSELF = ("chance", "perplexity", "difference"), "itself"


def selection(lmtool: Callable[..., float]) -> None:
    """Brown: a section's hidden half found in a pool with all other sections, by Moore & Lewis's difference.

    A quarter of the section's files are the in-domain sample, a quarter the held-out text.
    """
    files = _brown()
    header = [
        "texts",
        "pool",
        "of the section",
        *(f"precision by {by}" for by in BY),
        *(f"perplexity by {by}" for by in BY),
    ]
    print(f"| section | {' | '.join([*header, 'of the section itself'])} |\n|{' --- |' * (len(header) + 2)}")
    for section, title in SECTIONS.items():
        own = [name for name in files if name.startswith(section)]
        others = [name for name in files if not name.startswith(section)]
        sample = [line for name in own[::4] for line in files[name]]
        held = [line for name in own[1::4] for line in files[name]]
        hidden = own[2::4] + own[3::4]
        for unit, size in (("sentences", 1), (f"{PASSAGE} sentences", PASSAGE)):
            pool = [(True, text) for name in hidden for text in _passages(files[name], size)]
            pool += [(False, text) for name in others for text in _passages(files[name], size)]
            random.Random(1).shuffle(pool)
            found = _selected(lmtool, pool, sample, held, f"{section}{size}")
            inside = 100 * sum(is_own for is_own, _ in pool) / len(pool)
            cells = [f"{section}, {title}", unit, f"{len(pool):,}", f"{inside:.1f} %"]
            cells += [f"{100 * found[by][0]:.1f} %" for by in BY] + [f"{found[by][1]:.1f}" for by in (*BY, ITSELF)]
            print(f"| {' | '.join(cells)} |", flush=True)


def _brown() -> dict[str, list[str]]:
    """The sentences of each file of Brown, without tags."""
    found = {}
    with zipfile.ZipFile(Path(os.environ["LMTOOL_DATA"], "brown", "brown.zip")) as archive:
        for name in sorted(archive.namelist()):
            if re.fullmatch(r"brown/c[a-r]\d\d", name):
                lines = archive.read(name).decode("utf-8").splitlines()
                words = [[word.rpartition("/")[0] for word in line.split()] for line in lines if line.strip()]
                found[name.partition("/")[2]] = [" ".join(sentence) for sentence in words]
    return found


def _passages(lines: list[str], size: int) -> list[list[str]]:
    return [lines[at : at + size] for at in range(0, len(lines), size)]


def _selected(
    lmtool: Callable[..., float], pool: list[tuple[bool, list[str]]], sample: list[str], held: list[str], name: str
) -> dict[str, tuple[float, float]]:
    """For each way to choose as many texts as there are of the section: precision, and the perplexity of the held-out
    text under a model of what was chosen, all of as many words.
    """
    random_lines = [line for _, text in pool for line in text][: len(sample)]
    _write(f"{name}-held.txt", held)
    frequent = [word for word, count in _counts(sample).items() if count > 1]  # Moore & Lewis's vocabulary
    known = [word for word, count in _counts(line for _, text in pool for line in text).items() if count > 1]
    _write(f"{name}-words.txt", frequent)
    _write(f"{name}-known.txt", known)
    _train(lmtool, f"{name}-in", sample, f"{name}-words.txt", f"{name}-held.txt")
    _train(lmtool, f"{name}-out", random_lines, f"{name}-words.txt", f"{name}-held.txt")
    with Path(f"{name}.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"own": is_own, "text": "\n".join(text)}) + "\n" for is_own, text in pool)
    wanted = sum(is_own for is_own, _ in pool)
    chosen: dict[str, list[tuple[bool, list[str]]]] = {"chance": pool[:wanted]}
    for by, words in {"perplexity": [], "difference": [f"run_out={name}-out"]}.items():
        line = ["score", f"run={name}-in", *words, f"text={name}.jsonl", "column=text", f"share={wanted / len(pool)}"]
        lmtool(*line, f"filter={name}-{by}.jsonl")
        kept = map(json.loads, Path(f"{name}-{by}.jsonl").read_text(encoding="utf-8").splitlines())
        chosen[by] = [(record["own"], record["text"].split("\n")) for record in kept]
    chosen[ITSELF] = [each for each in pool if each[0]]
    size = min(sum(len(line.split()) for _, text in texts for line in text) for texts in chosen.values())
    found = {}
    for by, texts in chosen.items():
        lines = _cut([line for _, text in texts for line in text], size)
        _train(lmtool, f"{name}-{by}", lines, f"{name}-known.txt", f"{name}-held.txt")
        result = json.loads(Path(f"{name}-{by}", "result.json").read_text())
        found[by] = sum(is_own for is_own, _ in texts) / len(texts), float(result["valid_perplexity"])
    return found


def _cut(lines: list[str], words: int) -> list[str]:
    """Lines of so many words together, drawn by chance."""
    random.Random(2).shuffle(lines)
    kept = []
    for line in lines:
        words -= len(line.split())
        kept.append(line)
        if words <= 0:
            break
    return kept


def _counts(lines: Iterable[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.split())


def _write(name: str, lines: Iterable[str]) -> None:
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _train(lmtool: Callable[..., float], run: str, lines: list[str], words: str, held: str) -> None:
    """A model of order 3 over given words; its perplexity on valid is that of the held-out text."""
    _write(f"{run}.txt", lines)
    here = Path.cwd()
    data = ["data=text", f"data.name={run}", f"data.train={here}/{run}.txt", f"data.valid={here}/{held}"]
    lmtool(
        "train", "model=ngram", "model.order=3", *data, f"data.vocabulary.file={here}/{words}", f"hydra.run.dir={run}"
    )

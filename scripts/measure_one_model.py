"""The measurements of several models made into one, for ./scripts/measure: mixed, distilled, adapted to a domain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

Lmtool = Callable[..., float]
TIMED = """
import time
import lmtool
import numpy as np
from lmtool.mixtures.static import mix_static
from lmtool.system import parallel
parallel.use(1)
models = [lmtool.load(name).model for name in ("kn5", "wb5")]
seconds = []
for _ in range(4):
    start = time.process_time()
    table = mix_static(models, np.array([0.5, 0.5]), models[0].vocabulary)
    seconds.append(time.process_time() - start)
print(f"mix_static, one thread, {sum(table.sizes):,} n-grams: {min(seconds[1:]):.2f} s of processor time")
"""
SAMPLE, FIT = 10, 5  # files of the target section to train on, and to fit weights on


def static(lmtool: Lmtool) -> None:
    """PTB valid: mixtures at query time and as one model, with even weights and by EM on valid; time and size."""
    lmtool("train", "model=ngram", "model.order=5", "data=ptb", "hydra.run.dir=kn5")
    lmtool("train", "model=ngram", "model.order=5", "smoother=witten_bell", "data=ptb", "hydra.run.dir=wb5")
    lmtool("train", "model=ngram", "model.order=3", "smoother=good_turing", "data=ptb", "hydra.run.dir=gt3")
    print("members | weights | query time | one model | n-grams | s")
    for weights in ("[.5,.5]", "null"):
        for other in ("wb5", "gt3"):
            _both(lmtool, ["kn5", other], weights, f"kn5+{other}-{weights}", "valid")
    subprocess.run([sys.executable, "-c", TIMED], check=True)


def _both(lmtool: Lmtool, runs: list[str], weights: str, name: str, split: str) -> float:
    """Mix runs at query time and as one model, print a row, and return the model's perplexity."""
    fitted = [f"fit_split={split}"] if split == "valid" else []
    lmtool("ensemble", f"runs=[{','.join(runs)}]", f"weights={weights}", f"split={split}", *fitted,
           f"hydra.run.dir=mix-{name}")  # fmt: skip
    mixed = _result(f"mix-{name}")
    seconds = lmtool("convert", f"runs=[mix-{name}]", f"hydra.run.dir=one-{name}")
    found = _perplexity(lmtool, f"one-{name}", split)
    shown = " ".join(f"{weight:.3f}" for weight in mixed["weights"])
    sizes = _result(f"one-{name}")["parameters"]
    print(
        f"{' + '.join(runs)} | {shown} | {mixed['perplexity']:.3f} | {found:.3f} | {sizes:,} | {seconds:.1f}",
        flush=True,
    )
    return found


def distil(lmtool: Lmtool) -> None:
    """PTB valid: order 5, a 5-gram network of three epochs and their mixture distilled into its n-grams, and mixed.

    TEACHERS and LIKELY: a part of it, as TEACHERS=mix LIKELY=20.
    """
    lmtool("train", "model=ngram", "model.order=5", "data=ptb", "hydra.run.dir=kn5")
    network = ["model=nplm", "model.history=0", "model.across_sentences=false", "model.context_size=4"]
    lmtool("train", *network, "data=ptb", "training.epochs=3", "training.minutes=null", "hydra.run.dir=nplm")
    for name in ("kn5", "nplm"):
        print(f"{name} | {_perplexity(lmtool, name, 'valid'):.3f}", flush=True)
    lmtool("ensemble", "runs=[kn5,nplm]", "hydra.run.dir=mix")
    print(f"kn5 + nplm | {_result('mix')['perplexity']:.3f}", flush=True)
    for teacher in os.environ.get("TEACHERS", "nplm,mix").split(","):
        for likely in os.environ.get("LIKELY", "null,5,20").split(","):
            name = f"{teacher}-{likely}"
            start = time.perf_counter()
            lmtool("distil", f"run={teacher}", "like=kn5", f"likely={likely}", f"hydra.run.dir={name}")
            seconds, ngrams = time.perf_counter() - start, _result(name)["parameters"]
            about = f"{ngrams:,} n-grams | {seconds:.0f} s"
            print(f"{name} | {_perplexity(lmtool, name, 'valid'):.3f} | {about}", flush=True)
            _both(lmtool, ["kn5", name], "null", f"kn5+{name}", "valid")


def adaptation(lmtool: Lmtool, data: Path) -> None:
    """Brown: a section as the target, a few files of it to train and to fit on; perplexity on the rest of it."""
    for section in ("cj", "cn"):
        _write_section(data / "brown" / "brown.zip", section)
        print(f"section {section}: {_words('sample')} words to train on, {_words('valid')} to fit on, {_words('test')}"
              f" to test; the other sections have {_words('general')}")  # fmt: skip
        text = ["data=text", "data.valid=valid.txt", "data.test=test.txt", "data.vocabulary.file=words.txt"]
        order = ["model=ngram", "model.order=4"]
        for name in ("general", "sample"):
            train = [f"data.name={section}-{name}", f"data.train={name}.txt"]
            lmtool("train", *order, *text, *train, f"hydra.run.dir={section}/{name}")
            lmtool("export", f"run={section}/{name}", f"to={section}-{name}.tsv.gz")
            print(f"{name} alone | {_perplexity(lmtool, f'{section}/{name}', 'test'):.2f}", flush=True)
        paths = f"counts.path=[{section}-general.tsv.gz,{section}-sample.tsv.gz]"
        rows = []
        for weight in (1, 2, 3, 5, 10, 20):
            run = f"{section}/merged-{weight}"
            lmtool("train", *order, "counts=table", paths, f"counts.weights=[1,{weight}]", *text,
                   f"data.name={section}-merged-{weight}", f"hydra.run.dir={run}")  # fmt: skip
            rows.append((_result(run)["valid_perplexity"], weight, _perplexity(lmtool, run, "test")))
        best = min(rows)
        print(f"counts merged 1 to 1 | {rows[0][2]:.2f}")
        print(f"counts merged, the sample's {best[1]} times, the best on valid of {[row[1] for row in rows]}"
              f" | {best[2]:.2f}")  # fmt: skip
        _adapted(lmtool, ["general", "sample"], section)
        _adapted(lmtool, [f"merged-{best[1]}", "sample"], section)


def _adapted(lmtool: Lmtool, names: list[str], section: str) -> None:
    """Mix runs of other texts: weights fitted on the scores of valid, and the mixture of test both ways."""
    for name in names:
        _perplexity(lmtool, f"{section}/{name}", "valid")
    scores = {
        split: f"runs=[{','.join(f'{section}/{name}-{split}/scores.h5' for name in names)}]"
        for split in ("valid", "test")
    }
    mix = f"{section}/mix-{names[0]}"
    lmtool("ensemble", scores["valid"], f"hydra.run.dir={mix}-fit")
    weights = f"weights=[{','.join(map(str, _result(f'{mix}-fit')['weights']))}]"
    lmtool("ensemble", scores["test"], weights, f"hydra.run.dir={mix}")
    runs = f"runs=[{','.join(f'{section}/{name}' for name in names)}]"
    lmtool("convert", runs, weights, f"hydra.run.dir={mix}-one")
    one = _perplexity(lmtool, f"{mix}-one", "test")
    print(f"{' + '.join(names)}, {weights} | {_result(mix)['perplexity']:.2f} | as one model {one:.2f}", flush=True)


def _write_section(path: Path, section: str) -> None:
    """sample, valid and test of a section, general of all others, and the words seen twice or more in what trains."""
    texts: dict[str, list[str]] = {name: [] for name in ("general", "sample", "valid", "test")}
    with zipfile.ZipFile(path) as file:
        names = sorted(name for name in file.namelist() if len(Path(name).name) == 4 and Path(name).name[0] == "c")
        target = [name for name in names if Path(name).name.startswith(section)]
        for name in names:
            lines = file.read(name).decode().splitlines()
            words = [" ".join(token.rpartition("/")[0] for token in line.split()) for line in lines if line.strip()]
            place = target.index(name) if name in target else -1
            split = "sample" if place < SAMPLE else "valid" if place < SAMPLE + FIT else "test"
            texts["general" if place < 0 else split] += words
    for name, lines in texts.items():
        Path(f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    counts = Counter(" ".join(texts["general"] + texts["sample"]).split())
    Path("words.txt").write_text("".join(f"{word}\n" for word, count in counts.items() if count > 1))


def _words(name: str) -> str:
    return f"{len(Path(f'{name}.txt').read_text().split()):,}"


def _perplexity(lmtool: Lmtool, run: str, split: str) -> float:
    lmtool("eval", f"run={run}", f"split={split}", f"hydra.run.dir={run}-{split}")
    return float(_result(f"{run}-{split}")["perplexity"])


def _result(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(run) / "result.json").read_text())
    return found

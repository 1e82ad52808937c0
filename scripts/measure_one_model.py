"""Several models made into one, for ./scripts/measure: mixed, distilled, adapted to a domain, merged from sources."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from measuring import brown, ensemble, evaluate, lmtool, measure, result, train, write_lines

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


@measure
def static() -> None:
    """PTB: mixtures of n-gram models at query time and as one model"""
    train("kn5", "model=ngram", "model.order=5", "data=ptb")
    train("wb5", "model=ngram", "model.order=5", "smoother=witten_bell", "data=ptb")
    train("gt3", "model=ngram", "model.order=3", "smoother=good_turing", "data=ptb")
    print("members | weights | query time | one model | n-grams | s")
    for weights in ("[.5,.5]", "null"):
        for other in ("wb5", "gt3"):
            _both(["kn5", other], weights, f"kn5+{other}-{weights}")
    subprocess.run([sys.executable, "-c", TIMED], check=True)


def _both(runs: list[str], weights: str, name: str) -> None:
    """Mix runs at query time and as one model, with weights or fitted on valid, and print a row."""
    mixed = ensemble(f"mix-{name}", runs, f"weights={weights}", "split=valid", "fit_split=valid")
    seconds = lmtool("convert", f"runs=[mix-{name}]", f"hydra.run.dir=one-{name}")
    found, size = evaluate(f"one-{name}")["perplexity"], result(f"one-{name}")["parameters"]
    shown = " ".join(f"{weight:.3f}" for weight in mixed["weights"])
    print(f"{' + '.join(runs)} | {shown} | {mixed['perplexity']:.3f} | {found:.3f} | {size:,} | {seconds:.1f}")


@measure
def distil() -> None:
    """PTB: a network in the n-grams of order 5, and mixtures with it (half an hour)

    TEACHERS and LIKELY choose a part of it, e.g. TEACHERS=mix LIKELY=20.
    """
    train("kn5", "model=ngram", "model.order=5", "data=ptb")
    network = ["model=nplm", "model.fofe_window=0", "model.across_sentences=false", "model.context_size=4"]
    train("nplm", *network, "data=ptb", "training.epochs=3", "training.minutes=null")
    for name in ("kn5", "nplm"):
        print(f"{name} | {evaluate(name)['perplexity']:.3f}", flush=True)
    print(f"kn5 + nplm | {ensemble('mix', ['kn5', 'nplm'])['perplexity']:.3f}", flush=True)
    for teacher in os.environ.get("TEACHERS", "nplm,mix").split(","):
        for likely in os.environ.get("LIKELY", "null,5,20").split(","):
            name = f"{teacher}-{likely}"
            seconds = lmtool("distil", f"run={teacher}", "like=kn5", f"likely={likely}", f"hydra.run.dir={name}")
            size = result(name)["parameters"]
            print(f"{name} | {evaluate(name)['perplexity']:.3f} | {size:,} n-grams | {seconds:.0f} s", flush=True)
            _both(["kn5", name], "null", f"kn5+{name}")


def _write_section(section: str) -> list[str]:
    """Write the texts of a target section of Brown into a folder; return the names of the sources, `own` last.

    Sources are each other section and `own`, the target's first SAMPLE files; the next FIT files are valid, the rest
    test. general.txt has all other sections, words.txt the words seen at least twice in the sources.
    """
    files = brown()
    target = [name for name in files if name.startswith(section)]
    texts: dict[str, list[str]] = {}
    for name, lines in files.items():
        part = name[:2]
        if name in target:
            place = target.index(name)
            part = "own" if place < SAMPLE else "valid" if place < SAMPLE + FIT else "test"
        texts.setdefault(part, []).extend(lines)
    others = [part for part in texts if part not in ("own", "valid", "test")]
    texts["general"] = [line for part in others for line in texts[part]]
    Path(section).mkdir()
    for part, lines in texts.items():
        write_lines(f"{section}/{part}.txt", lines)
    counts = Counter(word for part in ("general", "own") for line in texts[part] for word in line.split())
    write_lines(f"{section}/words.txt", (word for word, count in counts.items() if count > 1))
    return [*others, "own"]


def _words(path: str) -> int:
    return len(Path(path).read_text().split())


def _train(section: str, name: str, text: Any, smoother: Any = "modified_kneser_ney", **settings: Any) -> Any:
    """Train a model of order 4 over the words of all sections; return its run and the processor seconds."""
    import lmtool

    files = {part: f"{section}/{part}.txt" for part in ("valid", "test")}
    data = {"kind": "text", "name": f"{section}-{name}", "train": text, **files}
    data |= {"vocabulary": {"file": f"{section}/words.txt"}}
    start = time.process_time()
    model = {"kind": "ngram", "order": 4}
    run = lmtool.train(model, data, smoother=smoother, out=f"{section}/{name}", progress=False, **settings)
    return run, time.process_time() - start


def _added_counts(section: str, weights: Iterable[int]) -> dict[int, Any]:
    """Train on the counts of `general` plus those of `own` times each weight, best valid perplexity first."""
    import lmtool

    for name in ("general", "own"):
        lmtool.export(f"{section}/{name}", to=f"{section}/{name}.tsv.gz")
    trained = {}
    for weight in weights:
        paths = [f"{section}/general.tsv.gz", f"{section}/own.tsv.gz"]
        counts = {"kind": "table", "path": paths, "weights": [1, weight]}
        trained[weight] = _train(section, f"merged-{weight}", None, counts=counts)
    return dict(sorted(trained.items(), key=lambda item: item[1][0].valid_perplexity))


def _mixed(section: str, names: Sequence[str]) -> tuple[list[float], float, float, int]:
    """Mix one model per source with weights by EM on valid.

    Returns the weights, the test perplexity at query time and as one model, and the size of the latter.
    """
    import lmtool

    scores: dict[str, list[str]] = {}
    for split in ("valid", "test"):
        for name in names:
            lmtool.evaluate(f"{section}/{name}", split, out=f"{section}/{name}-{split}")
        scores[split] = [f"{section}/{name}-{split}/scores.h5" for name in names]
    mix = f"{section}/mix-{len(names)}-{names[0]}"
    weights = lmtool.mix(scores["valid"], out=f"{mix}-fit").weights
    mixed = lmtool.mix(scores["test"], weights=weights, out=mix)
    lmtool.convert(runs=[f"{section}/{name}" for name in names], weights=weights, out=f"{mix}-one")
    one = lmtool.evaluate(f"{mix}-one", "test").perplexity
    return list(weights), mixed.perplexity, one, result(f"{mix}-one")["parameters"]


@measure
def adaptation() -> None:
    """Brown: a section as the target: weighted counts, and mixtures at query time and as one model"""
    import lmtool

    for section in ("cj", "cn"):
        _write_section(section)
        sizes = {name: f"{_words(f'{section}/{name}.txt'):,}" for name in ("own", "valid", "test", "general")}
        print(
            f"section {section}: {sizes['own']} words to train on, {sizes['valid']} to fit on, {sizes['test']}", end=""
        )
        print(f" to test; the other sections have {sizes['general']}")
        for name in ("general", "own"):
            _train(section, name, f"{section}/{name}.txt")
            print(f"{name} alone | {lmtool.evaluate(f'{section}/{name}', 'test').perplexity:.2f}", flush=True)
        weights = (1, 2, 3, 5, 10, 20)
        merged = _added_counts(section, weights)
        found = {w: lmtool.evaluate(f"{section}/merged-{w}", "test").perplexity for w in (1, next(iter(merged)))}
        best = next(iter(merged))
        print(f"counts merged 1 to 1 | {found[1]:.2f}")
        print(f"counts merged, its own {best} times, the best on valid of {list(weights)} | {found[best]:.2f}")
        for names in (["general", "own"], [f"merged-{best}", "own"]):
            fitted, mixed, one, _ = _mixed(section, names)
            shown = f"weights=[{','.join(map(str, fitted))}]"
            print(f"{' + '.join(names)}, {shown} | {mixed:.2f} | as one model {one:.2f}", flush=True)


@measure
def sources() -> None:
    """Brown: a section as the target, the others as sources: mixed, added up, and merged with tuned weights

    SECTIONS=cn for one of the two targets.
    """
    for section in os.environ.get("SECTIONS", "cj,cn").split(","):
        names = _write_section(section)
        files = {name: f"{section}/{name}.txt" for name in names}
        listed = ", ".join(f"{name} {_words(f'{section}/{name}.txt'):,}" for name in (*names, "valid", "test"))
        print(f"target {section}; words: {listed}\n  | perplexity | n-grams | processor s of train", flush=True)
        general = [files[name] for name in names[:-1]]
        _row("its own text alone", _train(section, "own", files["own"]))
        _row("all concatenated", _train(section, "all", [*general, files["own"]]))
        _train(section, "general", general)
        weight, trained = next(iter(_added_counts(section, (1, 3, 10)).items()))
        _row(f"counts of the others and its own {weight} times, the best of 1, 3, 10", trained)
        for name in names[:-1]:
            _train(section, name, files[name])
        for what, mixed in {"the others, its own": ["general", "own"], "one model per section": names}.items():
            _, query_time, one, size = _mixed(section, mixed)
            print(f"static mixture, {what}, at query time | {query_time:.2f} |  |", flush=True)
            print(f"static mixture, {what}, as one model | {one:.2f} | {size:,} |", flush=True)
        merging = {"kind": "count_merging"}
        _row("count_merging, one source", _train(section, "merged-one", [*general, files["own"]], merging))
        two = _train(section, "merged-two", {"general": general, "own": files["own"]}, merging)
        _row("count_merging, two sources", two)
        _row("count_merging, one source per section", _train(section, "merged-each", files, merging))
        found = result(f"{section}/merged-each")
        print("  weights:", ", ".join(f"{name} {weight:.3f}" for name, weight in found["source_weights"].items()))
        print(
            "  discounts:", " / ".join(", ".join(f"{d:.3f}" for d in each) for each in found["discounts"]), flush=True
        )


def _row(what: str, trained: Any) -> None:
    import lmtool

    run, seconds = trained
    found = lmtool.evaluate(run, "test").perplexity
    print(f"{what} | {found:.2f} | {run.parameters:,} | {seconds:.1f}", flush=True)

"""Several models made into one, for ./scripts/measure: mixed, distilled, adapted to a domain, merged from sources."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measuring import KN5, brown, ensemble, evaluate, head, parts, result, rounded, row, train, write_lines

import lmtool
from lmtool.mixtures.static import mix_static
from lmtool.runs.load import load
from lmtool.system import parallel

SAMPLE, FIT = 10, 5  # files of the target section to train on, and to fit weights on


def static() -> None:
    """PTB: mixtures of n-gram models at query time and as one model"""
    train("kn5", *KN5)
    train("wb5", *KN5, "smoother=witten_bell")
    train("gt3", "model=ngram", "model.order=3", "smoother=good_turing", "data=ptb")
    head("members", "weights", "query time", "one model", "n-grams", "s", numbers=4)
    for weights in ("[.5,.5]", "null"):
        for other in ("wb5", "gt3"):
            _both(["kn5", other], weights, f"kn5+{other}-{weights}")
    parallel.use(1)
    models, seconds = [load(name).model for name in ("kn5", "wb5")], []
    for _ in range(4):  # the first one is compiled
        start = time.process_time()
        table = mix_static(models, np.array([0.5, 0.5]), models[0].vocabulary)
        seconds.append(time.process_time() - start)
    size = sum(table.sizes)
    print(f"mix_static, one thread, {size:,} n-grams: {min(seconds[1:]):.2f} s of processor time")


def _both(runs: list[str], weights: str, name: str) -> None:
    """Mix runs at query time and as one model, with weights or fitted on valid, and print a row."""
    mixed = ensemble(f"mix-{name}", runs, f"weights={weights}", "split=valid", "fit_split=valid")
    one = train(f"one-{name}", f"runs=[mix-{name}]", verb="convert")
    found = evaluate(f"one-{name}")["perplexity"]
    cells = [f"{mixed['perplexity']:.3f}", f"{found:.3f}", f"{one['parameters']:,}", f"{one['command_seconds']:.1f}"]
    row(" + ".join(runs), rounded(mixed["weights"]), *cells)


def distill() -> None:
    """PTB: a network in the n-grams of order 5, and mixtures with it (half an hour)

    TEACHERS and LIKELY choose a part of it, e.g. TEACHERS=mix LIKELY=20.
    """
    train("kn5", *KN5)
    network = ["model=nplm", "model.fofe_window=0", "model.across_sentences=false", "model.context_size=4"]
    train("nplm", *network, "data=ptb", "training.epochs=3", "training.minutes=null")
    for name in ("kn5", "nplm"):
        print(f"{name}: {evaluate(name)['perplexity']:.3f}", flush=True)
    print(f"kn5 + nplm: {ensemble('mix', ['kn5', 'nplm'])['perplexity']:.3f}", flush=True)
    for teacher in parts("TEACHERS", "nplm,mix"):
        for likely in parts("LIKELY", "null,5,20"):
            name = f"{teacher}-{likely}"
            made = train(name, f"run={teacher}", "ngrams_from=kn5", f"top_k={likely}", verb="distill")
            print(f"{name}: {evaluate(name)['perplexity']:.3f}; {made['parameters']:,} n-grams", end="; ")
            print(f"{made['command_seconds']:.0f} s", flush=True)
            _both(["kn5", name], "null", f"kn5+{name}")


def sources() -> None:
    """Brown: a section as the target, the others as sources: mixed, added up, and merged with tuned weights

    SECTIONS=cn for one of the two targets.
    """
    for section in parts("SECTIONS", "cj,cn"):
        names = _write_section(section)
        files = {name: f"{section}/{name}.txt" for name in names}
        general = [files[name] for name in names[:-1]]
        _row("its own text alone", _train(section, "own", files["own"]))
        _row("all concatenated", _train(section, "all", [*general, files["own"]]))
        _row("the others alone", _train(section, "general", general))
        best = _added_counts(section, (1, 3, 10))
        for name in names[:-1]:
            _train(section, name, files[name])
        for mixed in (["general", "own"], [f"merged-{best}", "own"], names):
            _mixed(section, mixed)
        merging = {"kind": "count_merging"}
        _row("count_merging, one source", _train(section, "merged-one", [*general, files["own"]], merging))
        two = _train(section, "merged-two", {"general": general, "own": files["own"]}, merging)
        _row("count_merging, two sources", two)
        _row("count_merging, one source per section", _train(section, "merged-each", files, merging))
        found = result(f"{section}/merged-each")
        print("  weights:", ", ".join(f"{name} {weight:.3f}" for name, weight in found["source_weights"].items()))
        print("  discounts:", " / ".join(rounded(each) for each in found["discounts"]), flush=True)


def _write_section(section: str) -> list[str]:
    """Write the texts of a target section of Brown into a folder; return the names of the sources, `own` last.

    Sources are each other section and `own`, the target's first SAMPLE files; the next FIT files are valid, the rest
    test. words.txt has the words seen at least twice in the sources.
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
    names = [part for part in texts if part not in ("own", "valid", "test")] + ["own"]
    Path(section).mkdir()
    for part, lines in texts.items():
        write_lines(f"{section}/{part}.txt", lines)
    counts = Counter(word for part in names for line in texts[part] for word in line.split())
    write_lines(f"{section}/words.txt", (word for word, count in counts.items() if count > 1))
    sizes = (f"{part} {sum(len(line.split()) for line in texts[part]):,}" for part in (*names, "valid", "test"))
    print(f"target {section}; words: {', '.join(sizes)}")
    head("", "perplexity", "n-grams", "processor s of train", numbers=3)
    return names


def _train(section: str, name: str, text: Any, smoother: Any = "modified_kneser_ney", **settings: Any) -> Any:
    """Train a model of order 4 over the words of all sections; return its run and the processor seconds."""
    files = {part: f"{section}/{part}.txt" for part in ("valid", "test")}
    data = {"kind": "text", "name": f"{section}-{name}", "train": text, **files}
    data |= {"vocabulary": {"file": f"{section}/words.txt"}}
    start = time.process_time()
    model = {"kind": "ngram", "order": 4}
    run = lmtool.train(model, data, smoother=smoother, out=f"{section}/{name}", progress=False, **settings)
    return run, time.process_time() - start


def _row(what: str, trained: Any) -> None:
    run, seconds = trained
    row(what, f"{lmtool.evaluate(run, 'test').perplexity:.2f}", f"{run.parameters:,}", f"{seconds:.1f}")


def _added_counts(section: str, weights: Sequence[int]) -> int:
    """Train on the counts of `general` plus those of `own` times each weight; return the best weight on valid."""
    for name in ("general", "own"):
        lmtool.export(f"{section}/{name}", to=f"{section}/{name}.tsv.gz")
    trained = {}
    for weight in weights:
        paths = [f"{section}/general.tsv.gz", f"{section}/own.tsv.gz"]
        counts = {"kind": "table", "paths": paths, "weights": [1, weight]}
        trained[weight] = _train(section, f"merged-{weight}", None, counts=counts)
    best = min(trained, key=lambda weight: trained[weight][0].valid_perplexity)
    said = f"counts of the others and its own {best} times, the best on valid of {', '.join(map(str, weights))}"
    _row(said, trained[best])
    return best


def _mixed(section: str, names: Sequence[str]) -> None:
    """Mix one model per source with weights by EM on valid; print rows of the mixture and of it as one model."""
    scores: dict[str, list[str]] = {}
    for split in ("valid", "test"):
        for name in names:
            lmtool.evaluate(f"{section}/{name}", split, out=f"{section}/{name}-{split}")
        scores[split] = [f"{section}/{name}-{split}/scores.h5" for name in names]
    mix = f"{section}/mix-{len(names)}-{names[0]}"
    weights = lmtool.ensemble(scores["valid"], out=f"{mix}-fit").weights
    mixed = lmtool.ensemble(scores["test"], weights=weights, out=mix)
    lmtool.convert(runs=[f"{section}/{name}" for name in names], weights=weights, out=f"{mix}-one")
    what = f"static mixture of {' + '.join(names)}, weights {rounded(weights)}"
    row(f"{what}, at query time", f"{mixed.perplexity:.2f}", "", "")
    size = result(f"{mix}-one")["parameters"]
    row(f"{what}, as one model", f"{lmtool.evaluate(f'{mix}-one', 'test').perplexity:.2f}", f"{size:,}", "")

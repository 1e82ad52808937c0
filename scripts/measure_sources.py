"""The measurement of several sources for ./scripts/measure: a section of Brown as the target, the others as sources."""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure_one_model import FIT, SAMPLE

WEIGHTS = (1, 3, 10)  # of the counts of the target's own text


def sources(data: Path) -> None:
    """Two targets, SECTIONS=cn for one; for each a table: perplexity of its test part, n-grams, time of training."""
    for section in os.environ.get("SECTIONS", "cj,cn").split(","):
        names = _write_section(data / "brown" / "brown.zip", section)
        sizes = {name: len(Path(f"{section}/{name}.txt").read_text().split()) for name in (*names, "valid", "test")}
        listed = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        print(f"target {section}; words: {listed}\n  | perplexity | n-grams | processor s of train", flush=True)
        files = {name: f"{section}/{name}.txt" for name in names}
        others = [name for name in names if name != "own"]
        general = [files[name] for name in others]
        _row("its own text alone", _train(section, "own", files["own"]))
        _row("all concatenated", _train(section, "all", [*general, files["own"]]))
        _train(section, "general", general)
        _added_counts(section)
        _static(section, "the others, its own", ["general", "own"])
        for name in others:
            _train(section, name, files[name])
        _static(section, "one model per section", names)
        merging = {"kind": "count_merging"}
        _row("count_merging, one source", _train(section, "merged-1", [*general, files["own"]], merging))
        two = _train(section, "merged-2", {"general": general, "own": files["own"]}, merging)
        _row("count_merging, two sources", two)
        each = _train(section, "merged-each", files, merging)
        _row("count_merging, one source per section", each)
        found = json.loads(Path(f"{section}/merged-each/result.json").read_text())
        print("  weights:", ", ".join(f"{name} {weight:.3f}" for name, weight in found["source_weights"].items()))
        print("  discounts:", " / ".join(", ".join(f"{d:.3f}" for d in row) for row in found["discounts"]), flush=True)


def _train(section: str, name: str, train: Any, smoother: Any = "modified_kneser_ney", **settings: Any) -> Any:
    """A model of order 4 over the words of all sections; its run, and the seconds of processor time that it took."""
    import lmtool

    files = {part: f"{section}/{part}.txt" for part in ("valid", "test")}
    data = {"kind": "text", "name": f"{section}-{name}", "train": train, **files,
            "vocabulary": {"file": f"{section}/words.txt"}}  # fmt: skip
    start = time.process_time()
    model = {"kind": "ngram", "order": 4}
    run = lmtool.train(model, data, smoother=smoother, out=f"{section}/{name}", progress=False, **settings)
    return run, time.process_time() - start


def _row(what: str, trained: Any) -> float:
    import lmtool

    run, seconds = trained
    found = lmtool.evaluate(run, "test").perplexity
    print(f"{what} | {found:.2f} | {run.parameters:,} | {seconds:.1f}", flush=True)
    return float(found)


def _added_counts(section: str) -> None:
    """Counts of the others and of the section's own text, these several times: once, and the best on valid."""
    import lmtool

    for name in ("general", "own"):
        lmtool.export(f"{section}/{name}", to=f"{section}/{name}.tsv.gz")
    rows = []
    for weight in WEIGHTS:
        counts = {"kind": "table", "path": [f"{section}/general.tsv.gz", f"{section}/own.tsv.gz"],
                  "weights": [1, weight]}  # fmt: skip
        trained = _train(section, f"counts-{weight}", None, counts=counts)
        rows.append((trained[0].valid_perplexity, weight, trained))
    best = min(rows, key=lambda row: row[0])
    _row(f"counts of the others and its own {best[1]} times, the best of {', '.join(map(str, WEIGHTS))}", best[2])


def _static(section: str, what: str, names: Sequence[str]) -> None:
    """A mixture of one model for each source, weights by EM on valid: at query time, and as one model."""
    import lmtool

    scores: dict[str, list[str]] = {}
    for split in ("valid", "test"):
        for name in names:
            lmtool.evaluate(f"{section}/{name}", split, out=f"{section}/{name}-{split}")
        scores[split] = [f"{section}/{name}-{split}/scores.h5" for name in names]
    mix = f"{section}/mix-{len(names)}"
    weights = lmtool.mix(scores["valid"], out=f"{mix}-fit").weights
    mixed = lmtool.mix(scores["test"], weights=weights, out=mix)
    print(f"static mixture, {what}, at query time | {mixed.perplexity:.2f} |  |", flush=True)
    lmtool.convert(runs=[f"{section}/{name}" for name in names], weights=weights, out=f"{mix}-one")
    size = json.loads(Path(f"{mix}-one/result.json").read_text())["parameters"]
    found = lmtool.evaluate(f"{mix}-one", "test").perplexity
    print(f"static mixture, {what}, as one model | {found:.2f} | {size:,} |", flush=True)


def _write_section(path: Path, section: str) -> list[str]:
    """Each section's text, of the target's SAMPLE files to train on (`own`), FIT for valid, the rest for test; and the
    words seen twice or more in what trains. Returns the names of the sources, `own` last.
    """
    texts: dict[str, list[str]] = {}
    with zipfile.ZipFile(path) as file:
        files = sorted(name for name in file.namelist() if len(Path(name).name) == 4 and Path(name).name[0] == "c")
        target = [name for name in files if Path(name).name.startswith(section)]
        for name in files:
            lines = file.read(name).decode().splitlines()
            words = [" ".join(token.rpartition("/")[0] for token in line.split()) for line in lines if line.strip()]
            part = Path(name).name[:2]
            if name in target:
                place = target.index(name)
                part = "own" if place < SAMPLE else "valid" if place < SAMPLE + FIT else "test"
            texts.setdefault(part, []).extend(words)
    Path(section).mkdir()
    for part, words in texts.items():
        Path(f"{section}/{part}.txt").write_text("".join(f"{line}\n" for line in words))
    names = [*(part for part in texts if part not in ("own", "valid", "test")), "own"]
    counts = Counter(word for part in names for line in texts[part] for word in line.split())
    Path(f"{section}/words.txt").write_text("".join(f"{word}\n" for word, count in counts.items() if count > 1))
    return names

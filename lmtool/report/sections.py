"""From what was found to the sections of the page, each where there is something to show."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lmtool.errors import UserError
from lmtool.plots.axes import MINUS, perplexity_text
from lmtool.plots.curves import History, read_history, training_curves, valid_curves
from lmtool.plots.dots import Dot, dots_figure
from lmtool.plots.lr_range import loss_against_rate
from lmtool.plots.settings import SEED, said, settings_figure, way_to_draw
from lmtool.plots.trees import tree_figure
from lmtool.plots.weights import class_bars, weight_bars
from lmtool.report.content import Drawing, Picture, Section, Table
from lmtool.report.find import Found, short_names
from lmtool.report.reading import AGAIN, Entry, Sweep, read_object, read_rates
from lmtool.system.tables import Cell
from lmtool.trees.drawing import Place

METRICS = "metrics.jsonl"
INTERVAL = "Intervals of 95 % by the bootstrap over sentences, or over blocks of tokens where there are none."
Names = Callable[[str], str]  # a picture's file name, one that no other has


def summary(entries: Sequence[Entry]) -> Section:
    """The table of all runs and evaluations, jobs of sweeps in one of their own; without empty columns."""
    columns: list[tuple[str, bool, Callable[[Entry], Cell]]] = [
        ("run", False, lambda e: e.name),
        ("model", False, lambda e: e.model or None),
        ("data", False, lambda e: e.data or None),
        ("split", False, lambda e: e.split or None),
        ("perplexity", True, lambda e: _number(e.perplexity, 2)),
        ("95 % interval", True, lambda e: e.interval and _between(*e.interval)),
        ("bits per word", True, lambda e: _number(e.bits, 3)),
        ("parameters", True, lambda e: None if e.parameters is None else f"{e.parameters:,}"),
        ("seconds", True, lambda e: _number(e.seconds, 1)),
        ("cloze perplexity", True, lambda e: _number((e.cloze or {}).get("perplexity"), 3)),
        ("cloze accuracy", True, lambda e: _number((e.cloze or {}).get("accuracy"), 3)),
    ]
    columns = [column for column in columns if any(column[2](entry) is not None for entry in entries)]
    numeric = tuple(k for k, (_, right, _) in enumerate(columns) if right)
    header = [name for name, _, _ in columns]
    section = Section("Runs")
    jobs = [entry for entry in entries if entry.found.sweep is not None]
    own = [entry for entry in entries if entry.found.sweep is None]
    for group, folded in ((own, ""), (jobs, f"{len(jobs)} jobs of sweeps" if own else "")):
        if group:
            section.parts.append(
                Table(header, [[of(entry) for _, _, of in columns] for entry in group], numeric, folded)
            )
    if any(entry.interval for entry in entries):
        section.parts.append(INTERVAL)
    odd = [entry.name for entry in entries if not entry.normalised]
    if odd:
        section.parts.append(
            f"Scores that do not sum to one, whose perplexity compares with nothing: {', '.join(odd)}."
        )
    return section


def _number(value: float | None, digits: int) -> str | None:
    if value is None:
        return None
    return "∞" if math.isinf(value) else f"{value:,.{digits}f}".replace("-", MINUS)


def _between(low: float, high: float) -> str:
    return f"{_number(low, 2)} to {_number(high, 2)}"


def intervals(entries: Sequence[Entry], names: Names) -> Section:
    """A chart for each text that two or more have scored."""
    section = Section("Perplexities with their intervals")
    texts: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.interval is not None and entry.perplexity is not None:
            texts.setdefault(entry.text, []).append(entry)
    for group in [group for group in texts.values() if len(group) > 1]:
        dots = [Dot(e.name, e.perplexity or 0.0, perplexity_text(e.perplexity or 0.0), e.interval) for e in group]
        first = group[0]
        caption = f"{' '.join(filter(None, (first.data, first.split)))}, {first.tokens:,} tokens. {INTERVAL}"
        best = min(dots, key=lambda dot: dot.value)
        told = f"Perplexities of {len(dots)} models on {first.split}; the lowest is {best.said}, of {best.name}."
        section.parts.append(Picture(names("intervals"), dots_figure(dots, "perplexity"), caption, told))
    return section


def comparison(found: Found, names: Names) -> Section:
    """What `compare` left: its table, and the differences to the first as dots."""
    file = found.folder / "result.json"
    result = read_object(file)
    section = Section(f"Comparison: {found.name}")
    try:
        members = result["members"]
        short = dict(zip((m["run"] for m in members), short_names([Path(m["run"]) for m in members]), strict=True))
        rows: list[list[Cell]] = []
        dots = []
        for member in members:
            inside = None if member["from"] is None else _between(member["from"], member["to"])
            told = [_number(member[key], digits) for key, digits in (("perplexity", 2), ("difference", 2))]
            p = [_number(member[key], 4) for key in ("p_bootstrap", "p_randomisation")]
            rows.append([short[member["run"]], *told, inside, *p])
            if member["difference"] is not None:
                value = float(member["difference"])
                ends = float(member["from"]), float(member["to"])
                dots.append(Dot(short[member["run"]], value, f"{value:+,.2f}".replace("-", MINUS), ends))
        header = ["run", "perplexity", "difference", "95 % interval", "p (bootstrap)", "p (randomisation)"]
        section.parts.append(Table(header, rows, (1, 2, 3, 4, 5)))
        base = str(rows[0][0])
        if dots:
            caption = f"Differences of perplexity to {base} on {result['split']}, with paired intervals of 95 %."
            label = f"perplexity less that of {base}"
            section.parts.append(Picture(names("compare"), dots_figure(dots, label, zero=True), caption, caption))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(f"{file} is damaged ({error!r}): {AGAIN}") from None
    return section


def sweep_section(found: Found, sweep: Sweep, names: Names) -> Section:
    """A sweep: its settings against its metric, and its table."""
    section = Section(f"Sweep: {found.name}")
    jobs = sweep.jobs
    if len(jobs) > 1 and sweep.keys:
        best = min(jobs, key=lambda job: job[1])
        way = way_to_draw(jobs)
        about = ", ".join((way.x, *way.by)) if way.x else ", ".join(sweep.keys)
        told = f"{sweep.metric} against {about}: {len(jobs)} jobs, the lowest {perplexity_text(best[1])}"
        caption = f"The lowest of {len(jobs)}: {perplexity_text(best[1])} with {said(best[0])}."
        if way.form == "map":
            caption += " The further from the page's own colour, the higher; the lowest is in bold."
        if SEED in sweep.keys and way.form == "line":
            caption += " Lines go through the means over seeds."
        if len(jobs) < len(sweep.rows):
            caption += f" Without a finite one, and not drawn: {len(sweep.rows) - len(jobs)}."
        section.parts.append(Picture(names(f"sweep-{found.name}"), settings_figure(jobs, sweep.metric), caption, told))
    rows: list[list[Cell]] = []
    for *settings, value, seconds, status in sweep.rows:
        numbers = [_number(float(cell), digits) if cell else None for cell, digits in ((value, 2), (seconds, 1))]
        rows.append([*settings, *numbers, status.partition("\n")[0]])
    width = len(sweep.header)
    table = Table(sweep.header, rows, (width - 3, width - 2), f"The table of {len(rows)} jobs")
    section.parts.append(table)
    return section


def curves(entries: Sequence[Entry], names: Names) -> Section:
    """Perplexity on valid of all neural runs over the same words, and for each that is no job its own curves."""
    section = Section("Learning curves")
    groups: dict[tuple[str, str], list[tuple[Entry, History]]] = {}
    for entry in entries:
        if entry.output is not None and entry.run is not None:
            history = read_history(entry.found.folder / METRICS, entry.output)
            groups.setdefault((entry.data, entry.run.vocabulary_fingerprint), []).append((entry, history))
    for (data, _), group in groups.items():
        if len(group) > 1:
            best, lowest = min(((e.name, min(h.valid)) for e, h in group), key=lambda each: each[1])
            told = f"Perplexity on valid of {len(group)} runs over epochs; the lowest, {lowest:.2f}, is of {best}."
            figure = valid_curves([(entry.name, history) for entry, history in group])
            caption = f"Perplexity on valid, data={data}. The number beside a name is its lowest."
            section.parts.append(Picture(names("curves"), figure, caption, told))
    for entry, history in [each for group in groups.values() for each in group]:
        if entry.found.sweep is None:
            lowest = min(history.valid)
            told = f"Learning curves of {entry.name}: perplexity on valid from {history.valid[0]:.2f} to {lowest:.2f}"
            told += f" in {history.epochs[-1]:.4g} epochs."
            train = "" if history.train else " Its training loss is an estimate, so that it has no perplexity on train."
            caption = f"{entry.name}: {entry.model}. On train, perplexity is taken while learning.{train}"
            if not history.train:
                caption = f"{entry.name}: {entry.model}.{train}"
            section.parts.append(Picture(names(f"curves-{entry.name}"), training_curves(history), caption, told))
    return section


def weights(entries: Sequence[Entry], names: Names) -> Section:
    """The weights of mixtures."""
    section = Section("Mixture weights")
    for entry in [entry for entry in entries if "members" in entry.result and "weights" in entry.result]:
        try:
            members = short_names([Path(member["run"]) for member in entry.result["members"]])
            values = [float(weight) for weight in entry.result["weights"]]
            table = entry.result.get("class_weights")
            figure = class_bars(members, table) if table else weight_bars(members, values)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UserError(f"{entry.found.folder / 'result.json'} is damaged ({error!r}): {AGAIN}") from None
        each = ", ".join(f"{name} {value:.3f}" for name, value in zip(members, values, strict=True))
        caption = f"{entry.name}: {entry.model}." + (f" Over all contexts: {each}." if table else "")
        told = f"Weights of {entry.name}: {each}."
        section.parts.append(Picture(names(f"weights-{entry.name}"), figure, caption, told))
    return section


def trees(tops: Sequence[tuple[str, Place]], folders: Sequence[Found], names: Names) -> Section:
    """The tops of the trees of runs, by their names, and those that `tree` left."""
    section = Section("Trees")
    for name, top in tops:
        section.parts.append(_tree_picture(name, top, names))
    for found in folders:
        result = read_object(found.folder / "result.json")
        if "top" in result:
            section.parts.append(_tree_picture(found.name, _place(result["top"], found.folder), names))
        elif (found.folder / "tree.png").exists():  # of before 0.5
            png = (found.folder / "tree.png").read_bytes()
            caption = f"{found.name}: the top of the tree."
            section.parts.append(Drawing(names(f"tree-{found.name}"), png, caption, caption))
    return section


def _tree_picture(name: str, top: Place, names: Names) -> Picture:
    caption = f"{name}: the top of the tree, with the share of the text and the commonest words below each node."
    return Picture(names(f"tree-{name}"), tree_figure(top), caption, caption)


def _place(saved: Any, folder: Path) -> Place:
    try:
        below = tuple(_place(child, folder) for child in saved["children"])
        return Place(int(saved["child"]), str(saved["code"]), float(saved["share"]), str(saved["label"]), below)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / 'result.json'} is damaged ({error!r}): {AGAIN}") from None


def range_tests(folders: Sequence[Found], names: Names) -> Section:
    """Losses against learning rates."""
    section = Section("Learning-rate range tests")
    for found in folders:
        test = read_rates(found.folder)
        figure = loss_against_rate(test.rates, test.losses, test.smoothed, test.proposed)
        caption = f"{found.name}: training loss as the rate rises, of each step and smoothed."
        told = f"{caption} Proposed: a learning rate of {test.proposed:.2g}."
        section.parts.append(Picture(names(f"lr-range-{found.name}"), figure, caption, told))
    return section


def unique_names() -> Names:
    """A function that makes file names, and the beginnings of ids, of what it is given: letters, digits, `-`, and a
    number where the name has been given before.
    """
    given: set[str] = set()

    def name(wanted: str) -> str:
        plain = re.sub(r"[^a-zA-Z0-9]+", "-", wanted).strip("-")[:60] or "picture"
        found, count = plain, 1
        while found.lower() in given:  # on some file systems A is a
            count += 1
            found = f"{plain}-{count}"
        given.add(found.lower())
        return found

    return name

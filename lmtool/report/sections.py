"""The sections of the page, with their tables; a section with nothing to show has no parts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from lmtool.errors import UserError
from lmtool.plots.axes import MINUS, perplexity_text
from lmtool.plots.charts import (
    SEED,
    Dot,
    Job,
    chart_form,
    class_bars,
    dots_figure,
    loss_against_rate,
    settings_figure,
    settings_text,
    weight_bars,
)
from lmtool.plots.curves import History, highest_shown, read_history, training_curves, valid_curves
from lmtool.plots.word_pictures import tree_figure
from lmtool.report.find import ReportFolder, short_names
from lmtool.report.page import Picture, Section, Table
from lmtool.report.reading import REMEDY, Entry, read_rates, text_name
from lmtool.results.base import CONTEXTS, of_json
from lmtool.results.runs import Member
from lmtool.results.scores import Compared
from lmtool.runs.run import METRICS, fitted_note, start_of
from lmtool.sweeps.result_table import NORMALIZED, SPLIT, Row, jobs_table, metric_of, varied_settings
from lmtool.system import schemas
from lmtool.system.files import read_json
from lmtool.system.terminal import Cell
from lmtool.trees.analysis import DrawnNode


def number(value: float | None, digits: int) -> str | None:
    """Return a number with `digits` digits after the point; None for None."""
    if value is None:
        return None
    return f"{value:,.{digits}f}".replace("-", MINUS) if abs(value) < 1e9 else f"{value:.3g}"


def between(low: float, high: float) -> str:
    """Return the ends of an interval in words."""
    return f"{number(low, 2)} to {number(high, 2)}"


def tables_by_split(entries: Sequence[Entry], folded: str = "") -> list[Table]:
    """Return a table for each text as it is cut into tokens, lowest perplexity first.

    folded: what the entries are, for the line that unfolds the table; empty: shown at once.
    """
    groups: dict[Hashable, list[Entry]] = {}
    for entry in entries:
        same = {id(groups[text]): groups[text] for text in entry.texts if text in groups}
        merged = [*chain(*same.values()), entry]
        groups |= {text: merged for each in merged for text in each.texts}
    tables, names = [], list[str]()
    for group in {id(group): group for group in groups.values()}.values():
        names.append(text_name(group))
        again = names.count(names[-1])
        number = f" ({again}: another text or vocabulary)" if again > 1 else ""
        tables.append(_table(group, f"{names[-1]}{number}", folded))
    return tables


def _table(entries: Sequence[Entry], text: str, folded: str) -> Table:
    columns: list[tuple[str, bool, Callable[[Entry], Cell]]] = [
        ("run", False, lambda e: e.name if e.normalized is not None else f"{e.name}, sum unknown"),
        ("model", False, lambda e: e.model or None),
        ("perplexity", True, lambda e: number(e.perplexity, 2)),
        ("contexts", False, lambda e: CONTEXTS.get(e.result.get("across_sentences"))),
        (
            "fitted or chosen on it",
            False,
            lambda e: ", ".join(e.run.fitted_on.get(e.split, [])) or None if e.run else None,
        ),
        ("95 % confidence interval", True, lambda e: e.interval and between(*e.interval)),
        ("bits per token", True, lambda e: number(e.bits, 3)),
        ("perplexity per word", True, lambda e: number(e.per_word, 2)),
        ("bits per character", True, lambda e: number(e.bits_per_character, 4)),
        ("parameters or n\N{NON-BREAKING HYPHEN}grams", True, lambda e: e.parameters and f"{e.parameters:,}"),
        ("seconds", True, lambda e: number(e.seconds, 1)),
        ("cloze perplexity", True, lambda e: number((e.cloze or {}).get("perplexity"), 3)),
        ("cloze accuracy", True, lambda e: number((e.cloze or {}).get("accuracy"), 3)),
    ]
    columns = [column for column in columns if any(column[2](entry) is not None for entry in entries)]

    def rows(normalized: bool) -> list[list[Cell]]:
        chosen = [entry for entry in entries if (entry.normalized is True) is normalized]
        chosen.sort(key=lambda entry: math.inf if entry.perplexity is None else entry.perplexity)
        return [[of(entry) for _, _, of in columns] for entry in chosen]

    return Table(
        [name for name, _, _ in columns],
        rows(True),
        tuple(k for k, (_, right, _) in enumerate(columns) if right),
        title="" if folded else text,
        folded=f"{len(entries)} {folded}: {text}" if folded else "",
        unnormalized=rows(False),
    )


METRIC_NAMES = {"valid_perplexity": "perplexity on valid", "cloze_perplexity": "cloze perplexity"}


def sweep_table(rows: Sequence[Row]) -> Table:
    """Return the jobs of a sweep, in the order of its table, with the first line of each error."""
    header, lines = jobs_table(rows)
    names = [name for name in header if name != NORMALIZED]
    numeric = tuple(range(names.index(metric_of(rows)), len(names) - 1))
    table = Table(names, [], numeric, folded=f"The table of {len(rows)} jobs")
    for row, line in zip(rows, lines, strict=True):
        cells: list[Cell] = []
        for name, cell in zip(header, line, strict=True):
            if isinstance(cell, float):
                cells.append(number(cell, 1 if name == "seconds" else 2 if cell >= 10 else 4))
            elif name != NORMALIZED:
                cells.append(None if cell is None else str(cell).partition("\n")[0])
        (table.rows if row.normalized else table.unnormalized).append(cells)
    return table


INTERVAL = (
    "95 % confidence intervals by the bootstrap over blocks of sentences, or of tokens in text without sentences."
)
Names = Callable[[str], str]  # makes a unique file name for a picture


def summary(entries: Sequence[Entry]) -> Section:
    """Return the tables of all runs and evaluations, and of the jobs of sweeps."""
    section = Section("Runs")
    jobs = [entry for entry in entries if entry.source.sweep is not None]
    others = [entry for entry in entries if entry.source.sweep is None]
    section.parts += [*tables_by_split(others), *tables_by_split(jobs, "jobs of sweeps" if others else "")]
    if any(entry.interval for entry in entries):
        section.parts.append(INTERVAL)
    return section


def intervals(entries: Sequence[Entry], names: Names) -> Section:
    """Return a chart for each text that at least two models have scored."""
    section = Section("Perplexities with their intervals")
    texts: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.interval is not None and entry.perplexity is not None:
            texts.setdefault(entry.text, []).append(entry)
    for group in [group for group in texts.values() if len(group) > 1]:
        dots = [Dot(e.name, e.perplexity or 0.0, perplexity_text(e.perplexity or 0.0), e.interval) for e in group]
        first = group[0]
        caption = f"{text_name(group)}: {first.tokens:,} tokens. {INTERVAL}"
        best = min(dots, key=lambda dot: dot.value)
        description = f"Perplexities of {len(dots)} models on {first.split}; the lowest is {best.text}, of {best.name}."
        figure = dots_figure(dots, f"perplexity on {first.split}")
        section.parts.append(Picture(names("intervals"), figure, caption, description))
    return section


def comparison(source: ReportFolder, names: Names) -> Section:
    """Return a comparison: its table, and the differences from the first model as dots."""
    file = source.folder / "result.json"
    result = read_json(file, REMEDY, schemas.COMPARISON)
    section = Section(f"Comparison: {source.name}")
    try:
        split, members = result["split"], [of_json(Compared, each) for each in result["members"]]
        short = dict(zip((m.run for m in members), short_names([Path(m.run) for m in members]), strict=True))
        rows: list[list[Cell]] = []
        unnormalized: list[list[Cell]] = []
        dots = []
        for member in members:
            name, difference = short[member.run] + ", sum unknown" * (member.normalized is None), member.difference
            ends = None if member.from_ is None or member.to is None else (member.from_, member.to)
            line: list[Cell] = [name, number(member.perplexity, 2), number(difference, 2), ends and between(*ends)]
            line += [number(p, 4) for p in (member.p_bootstrap, member.p_randomization)]
            (rows if member.normalized else unnormalized).append(line)
            if ends is not None and difference is not None and member.normalized:
                dots.append(Dot(name, difference, f"{difference:+,.2f}".replace("-", MINUS), ends))
        header = ["run", "perplexity", "difference", "95 % confidence interval", "p (bootstrap)", "p (randomization)"]
        section.parts.append(Table(header, rows, (1, 2, 3, 4, 5), title=split, unnormalized=unnormalized))
        if any(m.difference is not None and m.from_ is None for m in members):
            section.parts.append(f"{split}: too few {result.get('unit', 'sentences')} to tell.")
        section.parts += fitted_note({short[m.run]: m.fitted for m in members}, split)
        baseline = short[members[0].run]
        if dots:
            caption = f"Differences of perplexity from {baseline} on {split}, "
            caption += "with 95 % confidence intervals by the paired bootstrap."
            label = f"difference from {baseline}"
            section.parts.append(Picture(names("compare"), dots_figure(dots, label, zero=True), caption, caption))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(f"{file} is damaged ({error!r}): {REMEDY}") from None
    return section


def sweep_section(source: ReportFolder, rows: Sequence[Row], names: Names) -> Section:
    """Return a sweep: a chart of its metric by its settings for each split, and its table. Not drawn are jobs without a
    finite metric, and those of models whose scores do not sum to one, unless there are no others.
    """
    section, metric = Section(f"Sweep: {source.name}"), metric_of(rows)
    keys = [key for key in varied_settings(rows) if key != SPLIT]
    finite = [row for row in rows if row.metric in (metric, None) and row.value is not None and row.value < math.inf]
    drawn = [row for row in finite if row.normalized] or finite
    groups: dict[str, list[Job]] = {}
    for row in drawn:
        groups.setdefault(row.split, []).append(({key: row.settings.get(key, "") for key in keys}, row.value or 0.0))
    for split, jobs in groups.items():
        if len(jobs) > 1 and keys:
            name = METRIC_NAMES.get(metric, metric) + (f" on {split}" if split else "")
            section.parts.append(_sweep_chart(source.name, jobs, name, names))
    if len(rows) > len(drawn) and section.parts:
        missing = len(rows) - len(drawn)
        section.parts.append(f"Jobs without a finite, comparable metric, which are not drawn: {missing}.")
    none = f"{source.folder} has no records of jobs (job.json), only tables of an earlier time: start the sweep again."
    section.parts.append(sweep_table(rows) if rows else none)
    return section


def _sweep_chart(name: str, jobs: Sequence[Job], metric: str, names: Names) -> Picture:
    best = min(jobs, key=lambda job: job[1])
    chart = chart_form(jobs)
    keys = ", ".join((chart.x, *chart.by)) if chart.x else ", ".join(jobs[0][0])
    description = f"{metric} against {keys}: {len(jobs)} jobs, the lowest {perplexity_text(best[1])}"
    caption = f"The lowest of {len(jobs)}: {perplexity_text(best[1])} with {settings_text(best[0])}."
    if chart.form == "map":
        caption += " The further from the color of the page, the higher; the lowest is in bold."
    if SEED in jobs[0][0] and chart.form == "line":
        caption += " Lines go through the means over seeds."
    return Picture(names(f"sweep-{name}"), settings_figure(jobs, metric), caption, description)


def curves(entries: Sequence[Entry], names: Names) -> Section:
    """Return valid perplexities of neural runs with the same vocabulary, and curves of each run that is not a job."""
    section = Section("Learning curves")
    groups: dict[tuple[str, ...], list[tuple[Entry, History]]] = {}
    for entry in entries:
        if entry.output is not None and entry.run is not None:
            history = read_history(entry.source.folder / METRICS, entry.loss_is_log_prob())
            text = entry.data, entry.run.store_fingerprint, entry.run.vocabulary_fingerprint
            groups.setdefault(text, []).append((entry, history))
    for (data, *_), group in groups.items():
        if len(group) > 1:
            best, lowest = min(((e.name, min(h.valid)) for e, h in group), key=lambda pair: pair[1])
            description = (
                f"Perplexity on valid of {len(group)} runs over epochs; the lowest, {lowest:.2f}, is of {best}."
            )
            figure = valid_curves([(entry.name, history) for entry, history in group])
            caption = f"Perplexity on valid, data={data}. The number beside a name is its lowest."
            top = highest_shown([history for _, history in group])
            above = [max(history.valid) for _, history in group if max(history.valid) > top]
            if above:
                caption += (
                    f" Runs that leave the picture at its top: {len(above)}, at most {perplexity_text(max(above))}."
                )
            section.parts.append(Picture(names("curves"), figure, caption, description))
    for entry, history in [pair for group in groups.values() for pair in group]:
        if entry.source.sweep is None:
            lowest = min(history.valid)
            description = f"Learning curves of {entry.name}: perplexity on valid from {history.valid[0]:.2f} to "
            description += f"{lowest:.2f} in {history.epochs[-1]:.4g} epochs."
            caption = f"{entry.name}: {entry.model}."
            if history.train:
                caption += " Perplexity on train is that during training."
            else:
                caption += " The training loss is not -log p, so that there is no perplexity on train."
            figure = training_curves(history)
            section.parts.append(Picture(names(f"curves-{entry.name}"), figure, caption, description))
    return section


def weights(entries: Sequence[Entry], names: Names) -> Section:
    """Return the weights of mixtures."""
    section = Section("Mixture weights")
    for entry in [entry for entry in entries if "members" in entry.result and "weights" in entry.result]:
        try:
            of_runs = [of_json(Member, member) for member in entry.result["members"]]
            members, values = short_names([Path(each.run) for each in of_runs]), [each.weight for each in of_runs]
            table = entry.result.get("class_weights")
            figure = class_bars(members, table) if table else weight_bars(members, values)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UserError(f"{entry.source.folder / 'result.json'} is damaged ({error!r}): {REMEDY}") from None
        listed = ", ".join(f"{name} {value:.3f}" for name, value in zip(members, values, strict=True))
        caption = f"{entry.name}: {entry.model}." + (f" Over all contexts: {listed}." if table else "")
        description = f"Weights of {entry.name}: {listed}."
        section.parts.append(Picture(names(f"weights-{entry.name}"), figure, caption, description))
    return section


def trees(tops: Sequence[tuple[str, DrawnNode]], folders: Sequence[ReportFolder], names: Names) -> Section:
    """Return the top levels of the trees of runs, by their names, and of the trees that `lmtool tree` built."""
    section = Section("Trees")
    for name, top in tops:
        section.parts.append(_tree_picture(name, top, names))
    for source in folders:
        result = read_json(source.folder / "result.json", REMEDY)
        if "top" in result:
            section.parts.append(_tree_picture(source.name, _place(result["top"], source.folder), names))
    return section


def _tree_picture(name: str, top: DrawnNode, names: Names) -> Picture:
    caption = f"{name}: the top of the tree, with the share of the text and the most frequent words below each node."
    return Picture(names(f"tree-{name}"), tree_figure(top), caption, caption)


def _place(saved: Any, folder: Path) -> DrawnNode:
    try:
        below = tuple(_place(child, folder) for child in saved["children"])
        return DrawnNode(int(saved["child"]), str(saved["code"]), float(saved["share"]), str(saved["label"]), below)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / 'result.json'} is damaged ({error!r}): {REMEDY}") from None


def range_tests(folders: Sequence[ReportFolder], names: Names) -> Section:
    """Return losses by learning rate."""
    section = Section("Learning-rate range tests")
    for source in folders:
        test = read_rates(source.folder)
        figure = loss_against_rate(test.rates, test.losses, test.smoothed, test.proposed, start=start_of(test.rates))
        caption = f"{source.name}: training loss at rising learning rates, of each step and smoothed."
        caption += f" In doubt: {test.doubt}." if test.doubt else ""
        description = f"{caption} Proposed: a learning rate of {test.proposed:.2g}."
        section.parts.append(Picture(names(f"lr-range-{source.name}"), figure, caption, description))
    return section


def unique_names() -> Names:
    """Return a function that makes unique file names, also used as prefixes of ids: letters, digits, `-`, and a number
    if the name was used before.
    """
    given: set[str] = set()

    def name(wanted: str) -> str:
        plain = re.sub(r"[^a-zA-Z0-9]+", "-", wanted).strip("-")[:60] or "picture"
        unique, count = plain, 1
        while unique.lower() in given:  # some file systems ignore case
            count += 1
            unique = f"{plain}-{count}"
        given.add(unique.lower())
        return unique

    return name

"""The sections of the page with their tables. A section with nothing to show has no parts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from lmtool.config.rules import format_value
from lmtool.errors import UserError
from lmtool.plots.charts import (
    MAX_DOTS,
    SEED,
    Chart,
    Dot,
    Job,
    Points,
    charts_of,
    dots_figure,
    lines_figure,
    loss_against_rate,
    settings_figure,
    settings_text,
    weight_bars,
)
from lmtool.plots.curves import History, read_history, training_curves
from lmtool.plots.style import perplexity_text
from lmtool.plots.word_pictures import tree_figure
from lmtool.report.page import Picture, Section, Table
from lmtool.report.reading import REPORT_REMEDY, Entry, ReportFolder, read_rates, short_names, text_name
from lmtool.results.base import CLOZE_METRIC, CONTEXTS, FULL_WINDOWS, result_from_json, table_of
from lmtool.results.scores import Compared
from lmtool.runs.run import METRICS_FILE, change_text, fitted_note, start_of
from lmtool.sweeps.result_table import (
    NORMALIZED,
    SPLIT,
    Row,
    as_typed,
    common_metric,
    jobs_table,
    perplexities_of,
    varied_settings,
)
from lmtool.system import schemas
from lmtool.system.files import read_json
from lmtool.system.terminal import Cell
from lmtool.trees.analysis import DrawnNode

INTERVAL = (
    "95 % confidence intervals by the bootstrap over blocks of sentences, or of tokens in text without sentences."
)
TRAIN_MEAN = "the mean between two evaluations, while training and with dropout"
PERPLEXITY, TRAIN_METRIC = "perplexity", "train_perplexity"  # of a split; and of train, beside others


def tables_by_split(entries: Sequence[Entry], folded: str = "") -> list[Table]:
    """Return a table for each text and its tokenization. folded: the name of the entries, if tables are folded."""
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
    ranked = sorted(entries, key=lambda entry: math.inf if entry.perplexity is None else entry.perplexity)
    lines = [_cells(entry) for entry in ranked]
    header = [name for name in lines[0] if any(cells[name] is not None for cells in lines)]
    table = Table(header, title="" if folded else text, folded=f"{len(entries)} {folded}: {text}" if folded else "")
    for entry, cells in zip(ranked, lines, strict=True):
        (table.rows if entry.normalized is True else table.unnormalized).append([cells[name] for name in header])
    return table


def _cells(entry: Entry) -> dict[str, Cell]:
    split = entry.split.removesuffix(FULL_WINDOWS)
    cloze, fitted = entry.cloze or {}, entry.run.fitted_on.get(split, []) if entry.run else []
    low, high = entry.interval or (None, None)
    return {
        "run": entry.name if entry.normalized is not None else f"{entry.name}, sum unknown",
        "model": entry.model or None,
        "perplexity": entry.perplexity,
        "contexts": CONTEXTS.get(entry.result.get("across_sentences")),
        "fitted or chosen on it": ", ".join(fitted) or None,
        "95 % CI, lower": low,
        "upper": high,
        "bits per token": entry.bits,
        "perplexity per word": entry.per_word,
        "bits per character": entry.bits_per_character,
        "parameters or n\N{NON-BREAKING HYPHEN}grams": entry.parameters,
        "seconds": entry.seconds,
        "cloze perplexity": cloze.get("perplexity"),
        "cloze accuracy": cloze.get("accuracy"),
    }


def sweep_table(rows: Sequence[Row]) -> Table:
    """Return the jobs of a sweep, in the order of its table, with the first line of each error."""
    header, lines = jobs_table(as_typed(rows))
    shown = [k for k, name in enumerate(header) if name != NORMALIZED]
    table = Table([header[k] for k in shown], folded=f"The table of {len(rows)} jobs")
    for row, line in zip(rows, lines, strict=True):
        cells = [str(line[k]).partition("\n")[0] if isinstance(line[k], str) else line[k] for k in shown]
        (table.rows if row.normalized else table.unnormalized).append(cells)
    return table


def summary(entries: Sequence[Entry]) -> Section:
    """Return the tables of all runs and evaluations, and of the jobs of sweeps."""
    section = Section("Runs")
    jobs = [entry for entry in entries if entry.source.sweep is not None]
    others = [entry for entry in entries if entry.source.sweep is None]
    section.parts += [*tables_by_split(others), *tables_by_split(jobs, "jobs of sweeps")]
    if any(entry.interval for entry in entries):
        section.parts.append(INTERVAL)
    return section


def intervals(entries: Sequence[Entry]) -> Section:
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
        figure = dots_figure(dots, f"perplexity on {first.split}")
        section.parts.append(Picture("intervals", figure, caption))
    return section


def comparison(source: ReportFolder) -> Section:
    """Return the section of a comparison: its table, and the differences from the first model as dots."""
    result = read_json(source.folder / "result.json", REPORT_REMEDY, schemas.COMPARISON)
    section, split = Section(f"Comparison: {source.name}"), result["split"]
    members = [result_from_json(Compared, member) for member in result["members"]]
    runs = short_names([Path(member.run) for member in members])
    members = [replace(member, run=run) for run, member in zip(runs, members, strict=True)]
    header, lines = table_of(members)
    table, dots = Table(header, title=split), []
    section.parts.append(table)
    for member, line in zip(members, lines, strict=True):
        difference, low, high = member.difference, member.from_, member.to
        (table.rows if member.normalized else table.unnormalized).append(line)
        if difference is not None and low is not None and high is not None and member.normalized:
            shown = f"{difference:+,.2f}".replace("-", "\N{MINUS SIGN}")
            dots.append(Dot(member.label, difference, shown, (low, high)))
    if any(member.difference is not None and member.from_ is None for member in members):
        section.parts.append(f"{split}: too few {result.get('unit', 'sentences')} to tell.")
    section.parts += fitted_note({member.run: member.fitted for member in members}, split)
    if dots:
        caption = f"Differences of perplexity from {runs[0]} on {split}, "
        caption += "with 95 % confidence intervals by the paired bootstrap."
        figure = dots_figure(dots, f"difference from {runs[0]}", zero=True)
        section.parts.append(Picture("compare", figure, caption))
    return section


def sweep_section(source: ReportFolder, rows: Sequence[Row], metric: str | None = None) -> Section:
    """Return the section of a sweep: for each metric and split the charts of comparable jobs, and the table.

    metric: the one of METRICS that is drawn; None: all.
    """
    section, common = Section(f"Sweep: {source.name}"), common_metric(rows)
    keys = [key for key in varied_settings(rows) if key != SPLIT]
    first = CLOZE_METRIC if common == CLOZE_METRIC else PERPLEXITY
    jobs: dict[tuple[str, str], list[Job]] = {}  # by metric and label
    for row in [row for row in rows if row.normalized] or rows:
        settings = {key: format_value(row.settings.get(key, "")) for key in keys}
        for name, value in (perplexities_of(row) or {common: row.metric_value or math.inf}).items():
            if value < math.inf:
                kind = {"cloze": CLOZE_METRIC, "train": TRAIN_METRIC}.get(name, PERPLEXITY)
                label = name if name == common else f"perplexity on {name}"
                label = f"cloze perplexity{f' on {row.split}' if row.split else ''}" if name == "cloze" else label
                jobs.setdefault((kind, label), []).append((settings, value))
    for (kind, label), drawn in sorted(jobs.items(), key=lambda item: item[0][0] != first):
        charts = charts_of(drawn) if len(drawn) > 1 and keys and metric in (None, kind) else []
        if kind == TRAIN_METRIC != metric and len(jobs) > 1 and [chart for chart in charts if chart.kind == "lines"]:
            continue  # it is beside the perplexity
        train = jobs.get((TRAIN_METRIC, "perplexity on train"), []) if kind == PERPLEXITY else []
        file = f"sweep-{source.name}" if kind == first else f"sweep-{source.name}-{kind}"
        for chart in charts:
            caption, shared = _caption(chart, label), shared_settings(rows)
            if train and chart.kind == "lines" and any("steps" in row.result for row in rows):
                caption += f" Of a network on train, {TRAIN_MEAN}."
            section.parts.append(Picture(file, settings_figure(chart, label, train, shared), caption))
    missing = len(rows) - sum(len(drawn) for (kind, _), drawn in jobs.items() if kind == (metric or first))
    if missing and section.parts:
        section.parts.append(f"Jobs without a finite, comparable metric, which are not drawn: {missing}.")
    none = f"{source.folder} has no records of jobs (job.json), only tables of an earlier time: start the sweep again."
    section.parts.append(sweep_table(rows) if rows else none)
    return section


def shared_settings(rows: Sequence[Row]) -> str:
    """Return the name of the data set, the model and the settings that all jobs have, but those of how they run."""
    known = []
    for row in [row for row in rows if row.status == "done"]:
        options = row.result.get("options", {}) | row.settings
        options["data"] = options.get("data.name", options.get("data"))
        known.append({key: options[key] for key in dict.fromkeys(("data", "model", *row.settings)) if key in options})
    shared = {
        key: value
        for key, value in known[0].items()
        if value is not None and all(each.get(key) == value for each in known)
    }
    left_out = "data.", "threads", "device", "store_dir"
    return ", ".join(f"{key}={format_value(shared[key])}" for key in shared if not key.startswith(left_out))


def _points(epochs: Sequence[float], values: Sequence[float]) -> Points:
    return {epoch: [value] for epoch, value in zip(epochs, values, strict=False)}


def _caption(chart: Chart, label: str) -> str:
    """Return what a chart of a sweep shows, and which job is the best."""
    jobs = chart.jobs
    best = min(jobs, key=lambda job: job[1])
    text = f"{label[0].upper()}{label[1:]} of {len(jobs)} jobs."
    text += f" The lowest is {perplexity_text(best[1])} with {settings_text(best[0])}."
    if SEED in best[0] and chart.kind != "dots":
        text += " Lines go through the means over seeds." if chart.kind == "lines" else " Cells are means over seeds."
    if chart.kind == "grid":
        text += " The lowest is framed; an empty cell has no job with a finite, comparable metric."
    if chart.kind == "dots" and len(jobs) > MAX_DOTS:
        text += f" The lowest {MAX_DOTS} are drawn."
    return text


def curves(entries: Sequence[Entry]) -> Section:
    """Return perplexities of neural runs with the same vocabulary, and curves of each run that is not a job."""
    section = Section("Learning curves")
    groups: dict[tuple[str, ...], list[tuple[Entry, History]]] = {}
    for entry in entries:
        if entry.output is not None and entry.run is not None:
            kept = entry.result.get("keep_best")
            history = read_history(entry.source.folder / METRICS_FILE, entry.loss_is_log_prob(), kept)
            text = entry.data, entry.run.store_fingerprint, entry.run.vocabulary_fingerprint
            groups.setdefault(text, []).append((entry, history))
    for (data, *_), group in groups.items():
        for label, metric in (("perplexity on valid", "valid"), ("cloze perplexity", "cloze")):
            runs = [(entry.name, history) for entry, history in group if getattr(history, metric)]
            if len(runs) < 2:
                continue
            title, sweeps = f"data={data}", {entry.source.sweep for entry, _ in group}
            if None not in sweeps and len(sweeps) == 1:  # named by their settings alone
                runs = [(name.partition(": ")[2] or name, history) for name, history in runs]
                title += f", sweep {group[0][0].name.partition(': ')[0]}"
            named = {name: _points(history.epochs, getattr(history, metric)) for name, history in runs}
            train = {name: _points(history.epochs, history.train) for name, history in runs if metric == "valid"}
            title += "; on train while training" * any(train.values())
            best, lowest = min(((name, min(getattr(h, metric))) for name, h in runs), key=lambda pair: pair[1])
            caption = f"{label.capitalize()} of {len(runs)} runs, data={data}. The number beside a name is its lowest; "
            caption += f"the lowest of all, {lowest:.2f}, is of {best}."
            file = "curves" if metric == "valid" else "curves-cloze-perplexity"
            section.parts.append(Picture(file, lines_figure(named, label, "epochs", title, train), caption))
    for entry, history in [pair for group in groups.values() for pair in group]:
        if entry.source.sweep is None:
            title = f"{entry.name}: {entry.model}, data={entry.data}"
            caption = f"{title}. Perplexity on valid from {history.valid[0]:.2f} to {min(history.valid):.2f} "
            caption += f"in {history.epochs[-1]:.4g} epochs; "
            if history.train:
                caption += f"on train, {TRAIN_MEAN}."
            else:
                caption += "the training loss is not -log p, so that there is no perplexity on train."
            caption += " The ring marks the evaluation whose weights were kept."
            changes = entry.run.changes if entry.run is not None else []
            caption += f" Changed on resuming: {'; '.join(map(change_text, changes))}." if changes else ""
            section.parts.append(Picture(f"curves-{entry.name}", training_curves(history, title), caption))
    return section


def weights(entries: Sequence[Entry]) -> Section:
    section = Section("Mixture weights")
    for entry in [entry for entry in entries if "members" in entry.result and "weights" in entry.result]:
        members = short_names([Path(member["run"]) for member in entry.result["members"]])
        values = entry.result["weights"]
        table = entry.result.get("class_weights") or [values]
        if any(len(row) != len(members) for row in [values, *table]):
            raise UserError(f"{entry.source.folder}/result.json is damaged (members without a weight): {REPORT_REMEDY}")
        listed = ", ".join(f"{name} {value:.3f}" for name, value in zip(members, values, strict=True))
        caption = f"{entry.name}: {entry.model}. Over all contexts: {listed}."
        section.parts.append(Picture(f"weights-{entry.name}", weight_bars(members, table), caption))
    return section


def trees(tops: Sequence[tuple[str, DrawnNode]], folders: Sequence[ReportFolder]) -> Section:
    """Return the top levels of the trees of runs, by their names, and of the trees that `lmtool tree` built."""
    section = Section("Trees")
    built = {
        each.name: read_json(each.folder / "result.json", REPORT_REMEDY, {"top?": schemas.NODE}) for each in folders
    }
    for name, top in [*tops, *((name, _place(result["top"])) for name, result in built.items() if "top" in result)]:
        caption = f"{name}: the top of the tree, with the share of the text and the most frequent words below each node"
        section.parts.append(Picture(f"tree-{name}", tree_figure(top), f"{caption}."))
    return section


def _place(saved: Any) -> DrawnNode:
    below = tuple(map(_place, saved["children"]))
    return DrawnNode(saved["child"], saved["code"], saved["share"], saved["label"], below)


def range_tests(folders: Sequence[ReportFolder]) -> Section:
    section = Section("Learning-rate range tests")
    for source in folders:
        test = read_rates(source.folder)
        figure = loss_against_rate(test.rates, test.losses, test.smoothed, test.proposed, start=start_of(test.rates))
        caption = f"{source.name}: training loss at rising learning rates, of each step and smoothed. "
        caption += f"Proposed: a learning rate of {test.proposed:.2g}."
        caption += f" In doubt: {test.doubt}." if test.doubt else ""
        section.parts.append(Picture(f"lr-range-{source.name}", figure, caption))
    return section

"""`lmtool report`: runs, sweeps and other output folders -> one page with pictures."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from lmtool.config.model_verbs import MapKind, ReportConfig
from lmtool.errors import UserError
from lmtool.plots import can_plot
from lmtool.plots.charts import settings_text
from lmtool.plots.style import as_png
from lmtool.report import maps, sections
from lmtool.report.find import Kind, ReportFolder, find_folders
from lmtool.report.page import Picture, Section, page
from lmtool.report.reading import Bootstrap, read_entry
from lmtool.report.sections import Names, unique_names
from lmtool.results import Written
from lmtool.runs.run import newest
from lmtool.session import Session
from lmtool.sweeps.result_table import SPLIT, rows_of, varied_settings
from lmtool.system.files import atomic_write, write_json
from lmtool.system.terminal import size_text

PAGE = "report.html"


def run(config: ReportConfig, session: Session) -> Written:
    """Write report.html, a page without references to other files, and its pictures as PNG."""
    if not can_plot():
        raise UserError('report needs matplotlib: pip install "lmtool[plots]"')
    out = session.out
    folders, unfinished = find_folders([Path(path) for path in config.paths] or [newest()])
    names = unique_names()
    sections = _sections(config, folders, names)
    left_out = f" Not finished, and left out: {', '.join(map(str, unfinished))}." if unfinished else ""
    introduction = f"{datetime.now():%Y-%m-%d %H:%M}, {', '.join(config.paths) or folders[0].folder}.{left_out}"
    title = f"lmtool report: {', '.join(Path(path).resolve().name for path in config.paths) or folders[0].name}"
    # Everything is computed before anything is written, so that an error in one run leaves no partial report.
    html = page(title, introduction, sections)
    pictures = {
        f"{part.name}.png": as_png(part.figure)
        for section in sections
        for part in section.parts
        if isinstance(part, Picture)
    }
    for name, content in (pictures | {PAGE: html.encode()}).items():
        with atomic_write(out / name) as temporary:
            temporary.write_bytes(content)
    shown = [str(source.folder) for source in folders]
    write_json(
        out / "result.json",
        {"page": PAGE, "pictures": list(pictures), "paths": shown, "unfinished": list(map(str, unfinished))},
    )
    for path in unfinished:
        session.note(f"{path} is not finished: left out")
    for section in sections:
        count = sum(isinstance(part, Picture) for part in section.parts)
        session.say(f"{section.title}{f': {count} picture' if count else ''}{'s' if count > 1 else ''}")
    about = f"{size_text(len(html.encode()))}; its pictures as PNG beside it"
    session.say(f"{out / PAGE}, {about}")
    return Written(out / PAGE, about, notes=session.notes)


def _sections(config: ReportConfig, folders: list[ReportFolder], names: Names) -> list[Section]:
    """Return the sections that are not empty, in the order of the page."""
    kinds = {kind: [source for source in folders if source.kind is kind] for kind in Kind}
    sweeps = {source.folder: rows_of(source.folder) for source in kinds[Kind.sweep]}
    bootstrap = Bootstrap(config.resamples, config.seed, config.block)
    entries = []
    for source in folders:
        if source.kind in (Kind.run, Kind.scores):
            settings: dict[str, str] = {}
            if source.sweep is not None:
                rows, job = sweeps[source.sweep], str(source.folder.relative_to(source.sweep))
                keys = [key for key in varied_settings(rows) if key != SPLIT]
                settings = {key: row.settings.get(key, "") for row in rows if row.job == job for key in keys}
            name = f"{source.name.partition('/')[0]}: {settings_text(settings)}" if settings else source.name
            entries.append(read_entry(source, bootstrap, name))
    # A sweep may have a hundred jobs: their curves share one chart, without maps and trees.
    single = [entry for entry in entries if entry.source.sweep is None]
    neural = [entry for entry in single if entry.output is not None]
    parts = [sections.summary(entries)] if entries else []
    parts.append(sections.intervals(entries, names))
    parts += [sections.comparison(source, names) for source in kinds[Kind.compare]]
    parts += [sections.sweep_section(source, sweeps[source.folder], names) for source in kinds[Kind.sweep]]
    parts.append(sections.curves(entries, names))
    parts.append(sections.weights(entries, names))
    tops = maps.tree_tops(neural, config.levels) if neural else []  # which imports torch
    parts.append(sections.trees(tops, kinds[Kind.tree], names))
    if neural and config.map is not MapKind.none:
        parts.append(maps.word_maps(neural, config.map, config.words, config.seed, names))
    parts.append(sections.range_tests(kinds[Kind.rates], names))
    return [section for section in parts if section.parts]

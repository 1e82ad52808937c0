"""`lmtool report`: runs, sweeps and what else commands left -> one page with pictures."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from lmtool.config.model_verbs import MapKind, ReportConfig
from lmtool.config.settings import typed
from lmtool.errors import UserError
from lmtool.plots import can_plot
from lmtool.runs.run import newest
from lmtool.session import output_dir, use_threads
from lmtool.system.files import write_json, written_whole

if TYPE_CHECKING:
    from lmtool.report.content import Section
    from lmtool.report.find import ReportFolder
    from lmtool.report.sections import Names

PAGE = "report.html"


def run(composed: DictConfig) -> float | None:
    """Write report.html, which needs no other file, and its pictures as PNG."""
    config = typed(composed, ReportConfig)
    if not can_plot():
        raise UserError('report needs matplotlib: pip install "lmtool[plots]"')
    from lmtool.plots.style import as_png
    from lmtool.report.content import Drawing, Picture
    from lmtool.report.find import find_folders
    from lmtool.report.page import page
    from lmtool.report.sections import unique_names

    use_threads(config.threads)
    out = output_dir()
    folders, unfinished = find_folders([Path(path) for path in config.paths] or [newest()])
    names = unique_names()
    sections = _sections(config, folders, names)
    left_out = f" Not finished, and left out: {', '.join(map(str, unfinished))}." if unfinished else ""
    introduction = f"{datetime.now():%Y-%m-%d %H:%M}, {', '.join(config.paths) or folders[0].folder}.{left_out}"
    title = f"lmtool report: {', '.join(Path(path).resolve().name for path in config.paths) or folders[0].name}"
    # All is made before anything is written, so that a mistake in one run leaves no part of a report.
    html = page(title, introduction, sections)
    pictures = {
        f"{part.name}.png": part.png if isinstance(part, Drawing) else as_png(part.figure)
        for section in sections
        for part in section.parts
        if isinstance(part, Picture | Drawing)
    }
    for name, content in (pictures | {PAGE: html.encode()}).items():
        with written_whole(out / name) as temporary:
            temporary.write_bytes(content)
    shown = [str(each.folder) for each in folders]
    write_json(
        out / "result.json",
        {"page": PAGE, "pictures": list(pictures), "paths": shown, "unfinished": list(map(str, unfinished))},
    )
    for path in unfinished:
        print(f"note: {path} is not finished: left out")
    for section in sections:
        count = sum(isinstance(part, Picture | Drawing) for part in section.parts)
        print(f"{section.title}{f': {count} picture' if count else ''}{'s' if count > 1 else ''}")
    print(f"{out / PAGE}, {len(html.encode()) / 1e6:.1f} MB; its pictures as PNG beside it")
    return None


def _sections(config: ReportConfig, folders: list[ReportFolder], names: Names) -> list[Section]:
    """All sections that have something to show, in the order of the page."""
    from lmtool.plots.settings import settings_text
    from lmtool.report import maps, sections
    from lmtool.report.find import Kind
    from lmtool.report.reading import Bootstrap, read_entry, read_sweep

    kinds = {kind: [each for each in folders if each.kind is kind] for kind in Kind}
    sweeps = {each.folder: read_sweep(each.folder) for each in kinds[Kind.sweep]}
    bootstrap = Bootstrap(config.resamples, config.seed, config.block)
    entries = []
    for each in folders:
        if each.kind in (Kind.run, Kind.scores):
            settings = None
            if each.sweep is not None:
                settings = sweeps[each.sweep].settings_of(str(each.folder.relative_to(each.sweep)))
            name = f"{each.name.partition('/')[0]}: {settings_text(settings)}" if settings else each.name
            entries.append(read_entry(each, bootstrap, name))
    # A sweep may have a hundred jobs: their curves stand in one chart, and they have no maps and trees.
    own = [entry for entry in entries if entry.source.sweep is None]
    neural = [entry for entry in own if entry.output is not None]
    made = [sections.summary(entries)] if entries else []
    made.append(sections.intervals(entries, names))
    made += [sections.comparison(each, names) for each in kinds[Kind.compare]]
    made += [sections.sweep_section(each, sweeps[each.folder], names) for each in kinds[Kind.sweep]]
    made.append(sections.curves(entries, names))
    made.append(sections.weights(entries, names))
    made.append(sections.trees(maps.tree_tops(neural, config.levels, config.store_dir), kinds[Kind.tree], names))
    if config.map is not MapKind.none:
        made.append(maps.word_maps(neural, config.map, config.words, config.seed, config.store_dir, names))
    made.append(sections.range_tests(kinds[Kind.rates], names))
    return [section for section in made if section.parts]

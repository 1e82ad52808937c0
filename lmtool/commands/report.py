"""`lmtool report`: runs, sweeps and other output folders -> one page with pictures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lmtool.config.rules import require, setting
from lmtool.config.verbs import METRICS, ResamplingConfig
from lmtool.errors import UserError
from lmtool.plots import can_plot
from lmtool.results.base import Written
from lmtool.session import Session
from lmtool.system.files import atomic_write
from lmtool.system.terminal import size_text

if TYPE_CHECKING:
    from lmtool.report.page import Section
    from lmtool.report.reading import ReportFolder

PAGE = "report.html"


@dataclass(slots=True)
class Settings(ResamplingConfig):
    """Settings of `lmtool report`. words: a number, or a list."""

    makes: ClassVar[str] = "files"

    paths: list[str] = setting(bare=True)
    map: str = setting(words=("pca", "tsne", "none"))
    words: Any = setting(prose=True)
    levels: int = setting(min=1, max=8)
    metric: str | None = setting(words=(*METRICS, "train_perplexity"))

    def __post_init__(self) -> None:
        ResamplingConfig.__post_init__(self)
        most = 5000  # the cost of t-SNE grows with the square
        words, rule = self.words, f"a number from 3 to {most}, or a list of 3 words or more, such as [cat,dog,'7']"
        if isinstance(words, list):
            require(len(set(map(str, words))) >= 3 and all(isinstance(w, str) for w in words), "words", words, rule)
        else:
            whole = isinstance(words, int) and not isinstance(words, bool)
            require(whole and 3 <= words <= most, "words", words, rule)


@dataclass(repr=False)
class ReportResult(Written):
    """The result of `report`. page, pictures: names of the written files. paths: the folders that are shown.
    unfinished: the folders that are left out because their runs are not finished.
    """

    page: str
    pictures: list[str]
    paths: list[Path]
    unfinished: list[Path]


def run(settings: Settings, session: Session) -> ReportResult:
    """Write report.html, a page without references to other files, and its pictures as PNG.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> from pathlib import Path
    >>> written = lmtool.report_page([run], out="page")
    >>> Path("page/report.html").is_file()
    True
    """
    from lmtool.plots.style import as_png
    from lmtool.report.page import Picture, page, pictures_of
    from lmtool.report.reading import find_folders
    from lmtool.runs.run import newest

    if not can_plot():
        raise UserError('report needs matplotlib: pip install "lmtool[plots]"')
    out = session.out
    folders, unfinished = find_folders([Path(path) for path in settings.paths] or [newest()])
    sections = _sections(settings, folders)
    left_out = f" Not finished, and left out: {', '.join(map(str, unfinished))}." if unfinished else ""
    introduction = f"{datetime.now():%Y-%m-%d %H:%M}, {', '.join(settings.paths) or folders[0].folder}.{left_out}"
    title = f"lmtool report: {', '.join(Path(path).resolve().name for path in settings.paths) or folders[0].name}"
    # Everything is computed before anything is written, so that an error in one run leaves no partial report.
    drawn = pictures_of(sections)
    html = page(title, introduction, sections)
    pictures = {f"{part.name}.png": as_png(part.figure) for part in drawn}
    for name, content in (pictures | {PAGE: html.encode()}).items():
        with atomic_write(out / name) as temporary:
            temporary.write_bytes(content)
    for path in unfinished:
        session.note(f"{path} is not finished: left out")
    for section in sections:
        count = sum(isinstance(part, Picture) for part in section.parts)
        session.say(f"{section.title}{f': {count} picture' if count else ''}{'s' if count > 1 else ''}")
    about = f"{size_text(len(html.encode()))}; its pictures as PNG beside it"
    result = ReportResult(out / PAGE, about, PAGE, list(pictures), [source.folder for source in folders], unfinished)
    session.finish(result, f"{result.path}, {about}")
    return result


def _sections(settings: Settings, folders: list[ReportFolder]) -> list[Section]:
    """Return the sections that are not empty, in the order of the page."""
    from lmtool.plots.charts import settings_text
    from lmtool.report import maps, sections
    from lmtool.report.page import Picture
    from lmtool.report.reading import Kind, read_entry
    from lmtool.sweeps.result_table import SPLIT, read_rows, varied_settings

    kinds = {kind: [source for source in folders if source.kind is kind] for kind in Kind}
    sweeps = {source.folder: read_rows(source.folder) for source in kinds[Kind.sweep]}
    resampling: dict[str, Any] = {"resamples": settings.resamples, "seed": settings.seed, "block": settings.block}
    entries = []
    for source in folders:
        if source.kind in (Kind.run, Kind.scores):
            varied: dict[str, str] = {}
            if source.sweep is not None:
                rows, job = sweeps[source.sweep], str(source.folder.relative_to(source.sweep))
                keys = [key for key in varied_settings(rows) if key != SPLIT]
                varied = {key: row.settings.get(key, "") for row in rows if row.job == job for key in keys}
            name = f"{source.name.partition('/')[0]}: {settings_text(varied)}" if varied else source.name
            entries.append(read_entry(source, name, **resampling))
    # A sweep may have a hundred jobs: their curves share one chart, without maps and trees.
    single = [entry for entry in entries if entry.source.sweep is None]
    neural = [entry for entry in single if entry.output is not None]
    parts = [sections.summary(entries)] if entries else []
    parts.append(sections.intervals(entries))
    parts += [sections.comparison(source) for source in kinds[Kind.compare]]
    drawn = [sections.sweep_section(source, sweeps[source.folder], settings.metric) for source in kinds[Kind.sweep]]
    if settings.metric is not None and not any(isinstance(part, Picture) for each in drawn for part in each.parts):
        raise UserError(f"metric={settings.metric}: no sweep with two jobs that have it: name another, or leave it out")
    parts += drawn
    parts.append(sections.curves(entries))
    parts.append(sections.weights(entries))
    tops = maps.tree_tops(neural, settings.levels) if neural else []  # which imports torch
    parts.append(sections.trees(tops, kinds[Kind.tree]))
    if neural and settings.map != "none":
        parts.append(maps.word_maps(neural, settings.map, settings.words, settings.seed))
    parts.append(sections.range_tests(kinds[Kind.rates]))
    return [section for section in parts if section.parts]

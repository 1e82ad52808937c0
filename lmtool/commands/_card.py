"""The model card of a run, for `lmtool push` and `lmtool export to=card`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from lmtool import __version__
from lmtool.config.request import flatten
from lmtool.errors import escape_unprintable
from lmtool.evaluation.token_scores import SCORES_FILE
from lmtool.report.reading import REPORT_REMEDY, Kind, ReportFolder, model_name, read_entry
from lmtool.results.base import read_summary
from lmtool.runs.hub import CARD
from lmtool.runs.run import Run, change_text
from lmtool.system.files import atomic_write
from lmtool.system.terminal import markdown

HIDDEN = ("store_dir", "options", "device", "lr_range_limits", "lr_range_steps")  # settings that a card does not show
DATA = ("data.kind", "data.name", "data.vocabulary.")  # settings of the data that it shows: no paths


def write_card(run: Run, name: str, license: str | None = None, language: str | None = None) -> Path:
    """Write the model card of a run into its folder; return its path. name: as a reader names it, e.g. hub:me/kn5."""
    results = [
        read_entry(ReportFolder(folder, kind), "", resamples=1000, seed=1, block="auto")
        for folder, kind in _evaluations(run)
    ]
    settings = {key: value for key, value in flatten(run.config).items() if value is not None and key not in HIDDEN}
    shown = {key: value for key, value in settings.items() if not key.startswith("data.") or key.startswith(DATA)}
    about = {"run": run, "name": name, "model": model_name(run), "settings": shown}
    about |= {"license": license, "language": language}
    about["token"] = {"word": "word", "char": "character"}.get(results[0].unit, "piece of a word")
    about |= {"results": {each.split: each for each in results if each.perplexity is not None}, "first": results[0]}
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True, finalize=_shown
    )
    environment.filters["line"] = lambda text: Markup(escape_unprintable(text))
    environment.filters["change"] = change_text
    page = environment.get_template("card.md.j2").render(about, version=__version__)
    with atomic_write(run.folder / CARD) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return run.folder / CARD


def _shown(value: Any) -> Any:
    """Return a value as the card shows it; JSON and lines of code are Markup."""
    return markdown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _evaluations(run: Run) -> Iterator[tuple[Path, Kind]]:
    """Yield the folders of a run's results: its own, and of its evaluations in it and where `lmtool eval` writes."""
    yield run.folder, Kind.run
    for scores in [*Path("outputs").glob(f"eval/*/{SCORES_FILE}"), *run.folder.glob(f"*/{SCORES_FILE}")]:
        if read_summary(scores.parent, REPORT_REMEDY).result.get("run") == str(run.folder.resolve()):
            yield scores.parent, Kind.scores

"""What the folders of a report say, read with care: what is damaged is named."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lmtool.errors import UserError
from lmtool.evaluation.significance import blocks, perplexity_interval
from lmtool.evaluation.token_scores import SCORES_FILE, Kept
from lmtool.plots.settings import Job
from lmtool.report.find import RATES, SWEEP, Found, Kind
from lmtool.runs.run import Run
from lmtool.system.files import read_json

AGAIN = "make it again"
METRICS = {"valid_perplexity": "perplexity on valid", "perplexity": "perplexity"}


@dataclass(frozen=True, slots=True)
class Drawn:
    """How an interval is drawn: of how many resamples, from which seed, and of how many tokens where there are no
    sentences.
    """

    resamples: int
    seed: int
    block: int


@dataclass(slots=True)
class Entry:
    """A run, or an evaluation of one, with what is known of it. split: of perplexity. perplexity: inf where it is; None
    where it was not taken. text: the fingerprint of the tokens whose scores are kept.
    """

    found: Found
    name: str
    model: str = ""
    data: str = ""
    split: str = ""
    perplexity: float | None = None
    interval: tuple[float, float] | None = None
    bits: float | None = None
    parameters: int | None = None
    seconds: float | None = None
    cloze: dict[str, float] | None = None
    normalised: bool = True
    text: str = ""
    tokens: int = 0
    run: Run | None = None
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> str | None:
        """The kind of the output layer of a neural run, None for all else."""
        if self.run is None or self.run.kind != "train" or self.found.kind is not Kind.run:
            return None
        chosen = self.run.config.get("output")
        return str(chosen["kind"]) if isinstance(chosen, dict) else None


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep's table: settings that vary, the metric's name, and for each job the settings and how it ended."""

    keys: list[str]
    metric: str
    header: list[str]
    rows: list[list[str]]

    @property
    def jobs(self) -> list[Job]:
        """The jobs that ended with a metric."""
        kept = [row for row in self.rows if row[-1] == "done" and row[-3] and math.isfinite(float(row[-3]))]
        return [(dict(zip(self.keys, row[1:-3], strict=True)), float(row[-3])) for row in kept]

    def settings_of(self, job: str) -> dict[str, str]:
        """The settings that vary, of a job by its folder's name; none where the table has no such job."""
        found = [row for row in self.rows if row[0] == job]
        return dict(zip(self.keys, found[0][1:-3], strict=True)) if found else {}


def read_entry(found: Found, drawn: Drawn, name: str) -> Entry:
    """What a run or an evaluation says. name: for people. Raises UserError where one of its files is damaged."""
    file = found.folder / "result.json"
    result = read_object(file) if file.exists() else {}
    run = Run.open(found.folder) if found.kind is Kind.run else _scored_run(result)
    entry = Entry(found, name, result=result, run=run)
    if run is not None:
        entry.model, entry.data = model_name(run), str(run.config.get("data", {}).get("name", ""))
    elif "members" in result:
        entry.model = f"mixture of {len(result['members'])} scores"
    if found.kind is Kind.scores and run is not None and (run.folder / "result.json").exists():
        result = {"parameters": read_object(run.folder / "result.json").get("parameters")} | result
    try:
        _take(entry, result)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"{file} is damaged ({error!r}): {AGAIN}") from None
    kept = found.folder / SCORES_FILE
    if kept.exists():
        _take_scores(entry, Kept.open(kept), drawn)
    return entry


def _take(entry: Entry, result: dict[str, Any]) -> None:
    key = "valid_perplexity" if "valid_perplexity" in result else "perplexity"
    entry.split = "valid" if key == "valid_perplexity" else str(result.get("split", ""))
    if key in result:  # null stands for infinity, which JSON has not
        entry.perplexity = math.inf if result[key] is None else float(result[key])
        entry.bits = math.log2(entry.perplexity)
    entry.normalised = bool(result.get("normalised", True))
    entry.seconds = None if result.get("seconds") is None else float(result["seconds"])
    entry.parameters = None if result.get("parameters") is None else int(result["parameters"])
    if result.get("cloze") is not None:
        entry.cloze = {key: math.inf if value is None else float(value) for key, value in result["cloze"].items()}


def _take_scores(entry: Entry, kept: Kept, drawn: Drawn) -> None:
    if kept.split != entry.split:
        raise UserError(f"{entry.found.folder / SCORES_FILE} is of {kept.split}, not of {entry.split}: {AGAIN}")
    entry.normalised = kept.normalised
    entry.text, entry.tokens = kept.tokens.fingerprint, kept.tokens.count
    if kept.normalised:
        offsets = kept.tokens.offsets
        offsets = offsets if len(offsets) > 2 else blocks(kept.tokens.count, drawn.block)
        entry.interval = perplexity_interval(kept.log_prob, offsets, resamples=drawn.resamples, seed=drawn.seed)


def _scored_run(result: dict[str, Any]) -> Run | None:
    """The run that an evaluation is of, where it says so and the run is still there."""
    folder = result.get("run")
    return Run.open(Path(folder)) if isinstance(folder, str) and (Path(folder) / "run.json").exists() else None


def model_name(run: Run) -> str:
    """A run's model in a few words: `modified_kneser_ney of order 5`, `nplm + softmax`, `mixture of 3, by class`."""
    config = run.config
    if run.kind == "ensemble":
        forms = {"classes": ", by class of context", "log_linear": ", log-linear"}
        cache = run.mixture.get("cache")
        said = f"mixture of {len(run.members)}" + forms.get(str(run.mixture.get("method")), "")
        return f"{said}, with a {cache['kind']} cache" if cache else said
    model, smoother, output, tree = (config.get(key) or {} for key in ("model", "smoother", "output", "tree"))
    if model.get("kind") == "ngram":
        return f"{smoother.get('kind', 'n-gram')} of order {model.get('order', '?')}"
    said = " + ".join(str(part["kind"]) for part in (model, output) if part.get("kind"))
    return f"{said} ({tree['kind']})" if tree.get("kind") else said


def read_sweep(folder: Path) -> Sweep:
    """A sweep's table. Raises UserError where it is damaged."""
    path = folder / SWEEP
    try:
        with path.open(newline="", encoding="utf-8") as handle:
            header, *rows = list(csv.reader(handle))
        whole = header[0] == "job" and header[-2:] == ["seconds", "status"] and len(header) >= 4
        if not whole or any(len(row) != len(header) for row in rows):
            raise ValueError("its columns are not those of a sweep")
        made = Sweep(header[1:-3], METRICS.get(header[-3], header[-3]), header, rows)
        _ = made.jobs
    except (OSError, ValueError, IndexError, csv.Error) as error:
        raise UserError(f"{path} is damaged ({error}): start the sweep again, which skips what is finished") from None
    return made


@dataclass(frozen=True, slots=True)
class RangeTest:
    """lr_range.json: rates tried, losses in nats and smoothed ones, and the rate proposed."""

    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    proposed: float


def read_rates(folder: Path) -> RangeTest:
    """A learning-rate range test. Raises UserError where it is damaged."""
    saved = read_object(folder / RATES)
    try:
        rates, losses, smoothed = (list(map(float, saved[key])) for key in ("rates", "losses", "smoothed"))
        if not len(rates) == len(losses) == len(smoothed) > 0 or min(*rates, float(saved["proposed"])) <= 0:
            raise ValueError("rates and losses do not belong together")
        return RangeTest(rates, losses, smoothed, float(saved["proposed"]))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / RATES} is damaged ({error!r}): {AGAIN}") from None


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object. Raises UserError where the file is missing, damaged or holds something else."""
    found = read_json(path, AGAIN)
    if not isinstance(found, dict):
        raise UserError(f"{path} is damaged (it holds no object): {AGAIN}")
    return found

"""Read the results in the folders of a report; a UserError names a damaged file."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from lmtool.config.groups import OutputConfig
from lmtool.config.options import settings_class
from lmtool.errors import UserError
from lmtool.evaluation.significance import perplexity_interval, resampled_units
from lmtool.evaluation.token_scores import SCORES_FILE, TokenScores
from lmtool.plots.charts import Job
from lmtool.report.find import SWEEP, Kind, ReportFolder
from lmtool.runs.run import RATES, RangeTest, Run
from lmtool.system.files import read_json
from lmtool.system.terminal import csv_rows

REMEDY = "make it again"
METRICS = {  # the columns of metrics in sweep.csv
    "valid_perplexity": "perplexity on valid",
    "perplexity": "perplexity",
    "cloze_perplexity": "cloze perplexity",
    "metric": "metric",
}
NORMALISED, SPLIT = "normalised", "split"  # columns there


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How confidence intervals are computed. block: mean number of sentences (tokens in text without sentences) drawn
    together; `auto`: as measured; `sentence`: single ones.
    """

    resamples: int
    seed: int
    block: int | str


@dataclass(slots=True)
class Entry:
    """The results of a run, or of an evaluation of one.

    model: in a few words. data: name of the data set. split: of the perplexity, which is None if unknown. interval: its
    95 % confidence interval. bits: per word. text: fingerprint of the scored tokens, whose number is `tokens`.
    """

    source: ReportFolder
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
        """Kind of the output layer of a neural run; None for everything else."""
        if self.run is None or self.run.kind != "train" or self.source.kind is not Kind.run:
            return None
        settings = self.run.config.get("output")
        return str(settings["kind"]) if isinstance(settings, dict) else None

    def loss_is_log_prob(self) -> bool:
        """Return whether a neural run's training loss is -log p. Raises UserError if its output layer is unknown."""
        assert self.run is not None and self.output is not None, "asked of neural runs"
        layer = settings_class("output", self.output, came_from=self.run.origins.get("output"))
        return cast(type[OutputConfig], layer).loss_is_log_prob


@dataclass(frozen=True, slots=True)
class Sweep:
    """The table of a sweep. keys: varying settings. metric: its name. rows: one per job, under the header."""

    keys: list[str]
    metric: str
    header: list[str]
    rows: list[list[str]]

    @property
    def jobs(self) -> list[Job]:
        """Settings and metrics of the jobs with a finite metric; without models whose scores do not sum to one, unless
        there are no others.
        """
        done = [(row, float(row[1 + len(self.keys)] or "nan")) for row in self.rows if row[-1] == "done"]
        finite = [(row, value) for row, value in done if math.isfinite(value)]
        comparable = [(row, value) for row, value in finite if self.is_comparable(row)]
        return [(self._settings(row), value) for row, value in comparable or finite]

    def is_comparable(self, row: list[str]) -> bool:
        """Return whether a row is of a model whose scores sum to one."""
        return NORMALISED not in self.header or row[self.header.index(NORMALISED)] == "yes"

    def settings_of(self, job: str) -> dict[str, str]:
        """Return the varying settings of a job except the split, by its folder's name; none if it is not listed."""
        row = next((row for row in self.rows if row[0] == job), None)
        settings = {} if row is None else self._settings(row)
        return {key: value for key, value in settings.items() if key != SPLIT}

    def _settings(self, row: list[str]) -> dict[str, str]:
        return dict(zip(self.keys, row[1:], strict=False))


def read_entry(source: ReportFolder, bootstrap: Bootstrap, name: str) -> Entry:
    """Read a run or an evaluation. name: in the report. Raises UserError if one of its files is damaged."""
    file = source.folder / "result.json"
    result = read_object(file) if file.exists() else {}
    run = Run.open(source.folder) if source.kind is Kind.run else _scored_run(result)
    entry = Entry(source, name, result=result, run=run)
    if run is not None:
        entry.model, entry.data = model_name(run), str(run.config.get("data", {}).get("name", ""))
    elif "members" in result:
        entry.model = f"mixture of {len(result['members'])} scores"
    if source.kind is Kind.scores and run is not None and (run.folder / "result.json").exists():
        result = {"parameters": read_object(run.folder / "result.json").get("parameters")} | result
    try:
        _take_result(entry, result)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"{file} is damaged ({error!r}): {REMEDY}") from None
    scores = source.folder / SCORES_FILE
    if scores.exists():
        _take_scores(entry, TokenScores.open(scores), bootstrap)
    return entry


def _take_result(entry: Entry, result: dict[str, Any]) -> None:
    key = "valid_perplexity" if "valid_perplexity" in result else "perplexity"
    entry.split = "valid" if key == "valid_perplexity" else str(result.get("split", ""))
    if key in result:  # null is inf, which JSON does not have
        entry.perplexity = math.inf if result[key] is None else float(result[key])
        entry.bits = math.log2(entry.perplexity)
    entry.normalised = bool(result.get("normalised", True))
    entry.seconds = None if result.get("seconds") is None else float(result["seconds"])
    entry.parameters = None if result.get("parameters") is None else int(result["parameters"])
    if result.get("cloze") is not None:
        entry.cloze = {key: math.inf if value is None else float(value) for key, value in result["cloze"].items()}


def _take_scores(entry: Entry, scores: TokenScores, bootstrap: Bootstrap) -> None:
    if scores.split != entry.split:
        raise UserError(f"{entry.source.folder / SCORES_FILE} is of {scores.split}, not of {entry.split}: {REMEDY}")
    entry.normalised = scores.normalised
    entry.text, entry.tokens = scores.tokens.fingerprint, scores.tokens.count
    if scores.normalised:
        offsets, block, _ = resampled_units(scores.tokens.offsets, bootstrap.block)
        entry.interval = perplexity_interval(
            scores.log_prob, offsets, resamples=bootstrap.resamples, seed=bootstrap.seed, block=block
        )


def _scored_run(result: dict[str, Any]) -> Run | None:
    """Return the run that was evaluated, if the result names it and it still exists."""
    folder = result.get("run")
    return Run.open(Path(folder)) if isinstance(folder, str) and (Path(folder) / "run.json").exists() else None


def model_name(run: Run) -> str:
    """Return the model of a run in words: SMOOTHER of order 5; MODEL + OUTPUT (TREE); mixture of 3, log-linear."""
    config = run.config
    if run.kind == "ensemble":
        forms = {"classes": ", by class of context", "log_linear": ", log-linear"}
        cache = run.mixture.get("cache")
        text = f"mixture of {len(run.members)}" + forms.get(str(run.mixture.get("method")), "")
        return f"{text}, with a {cache['kind']} cache" if cache else text
    model, smoother, output, tree = (config.get(key) or {} for key in ("model", "smoother", "output", "tree"))
    if not output:  # count-based
        return f"{smoother.get('kind', 'n-gram')} of order {model.get('order', '?')}"
    text = " + ".join(str(part["kind"]) for part in (model, output) if part.get("kind"))
    return f"{text} ({tree['kind']})" if tree.get("kind") else text


def read_sweep(folder: Path) -> Sweep:
    """Read the table of a sweep. Raises UserError if it is damaged."""
    path = folder / SWEEP
    try:
        header, *rows = csv_rows(path.read_bytes().decode("utf-8"))
        whole = header[0] == "job" and header[-2:] == ["seconds", "status"] and len(header) >= 4
        if not whole or any(len(row) != len(header) for row in rows):
            raise ValueError("its columns are not those of a sweep")
        column = next(k for k, name in enumerate(header) if name in METRICS)
        sweep = Sweep(header[1:column], METRICS[header[column]], header, rows)
        _ = sweep.jobs
    except (OSError, ValueError, IndexError, StopIteration, csv.Error) as error:
        raise UserError(f"{path} is damaged ({error}): start the sweep again, which skips finished jobs") from None
    return sweep


def read_rates(folder: Path) -> RangeTest:
    """Read a learning-rate range test. Raises UserError if it is damaged."""
    saved = read_object(folder / RATES)
    try:
        rates, losses, smoothed = (list(map(float, saved[key])) for key in ("rates", "losses", "smoothed"))
        if not len(rates) == len(losses) == len(smoothed) > 0 or min(*rates, float(saved["proposed"])) <= 0:
            raise ValueError("rates and losses do not belong together")
        return RangeTest(rates, losses, smoothed, float(saved["proposed"]), str(saved.get("doubt", "")))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / RATES} is damaged ({error!r}): {REMEDY}") from None


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises UserError if the file is missing, damaged or holds something else."""
    content = read_json(path, REMEDY)
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged (it holds no object): {REMEDY}")
    return content

"""Read the results in the folders of a report; a UserError names a damaged file."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from lmtool.config.groups import OutputConfig
from lmtool.config.options import settings_class
from lmtool.errors import UserError
from lmtool.evaluation.significance import perplexity_interval, resampled_units
from lmtool.evaluation.token_scores import SCORES_FILE, TokenScores
from lmtool.report.find import Kind, ReportFolder
from lmtool.results.base import of_json
from lmtool.results.summary import Summary, read_summary
from lmtool.runs.run import RATES, SPLITS, RangeTest, Run
from lmtool.system import schemas
from lmtool.system.files import read_json

REMEDY = "make it again"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How confidence intervals are computed. block: mean number of sentences (tokens in text without sentences) drawn
    together; `auto`: measured from the text; `sentence`: single sentences.
    """

    resamples: int
    seed: int
    block: int | str


@dataclass
class Entry(Summary):
    """The results of a run or of an evaluation of a run.

    model: a short description of the model.
    data: name of the data set.
    interval: 95 % confidence interval of the perplexity.
    text: fingerprint of the scored tokens.
    tokens: their number.
    """

    source: ReportFolder
    name: str
    model: str = ""
    data: str = ""
    interval: tuple[float, float] | None = None
    text: str = ""
    tokens: int = 0
    run: Run | None = None

    @property
    def bits(self) -> float | None:
        """Bits per token."""
        return None if self.perplexity is None else math.log2(self.perplexity)

    @property
    def per_word(self) -> float | None:
        """Perplexity per word, if tokens are not words."""
        return None if self.perplexity_per_word == self.perplexity else self.perplexity_per_word

    @property
    def unit(self) -> str:
        """The unit of the run's data, such as char; word if it is not known."""
        data = self.run.config.get("data") if self.run is not None else None
        return str(data["vocabulary"]["unit"]) if data else "word"

    @property
    def texts(self) -> list[Hashable]:
        """Identifiers of the text and its tokens: entries that share one of them have the same text and tokens."""
        run, found = self.run, list[Hashable]()
        if run is not None and run.store_fingerprint and self.split in SPLITS:
            found.append((run.store_fingerprint, run.vocabulary_fingerprint, self.split))
        if self.text:
            found.append(self.text)
        return found or [(self.data, self.split)]

    @property
    def output(self) -> str | None:
        """Kind of the output layer of a neural run; None for other runs."""
        if self.run is None or self.run.kind != "train" or self.source.kind is not Kind.run:
            return None
        settings = self.run.config.get("output")
        return str(settings["kind"]) if isinstance(settings, dict) else None

    def loss_is_log_prob(self) -> bool:
        """Return whether a neural run's training loss is -log p."""
        assert self.run is not None and self.output is not None, "asked of neural runs"
        layer = settings_class("output", self.output, came_from=self.run.origins.get("output"))
        return cast(type[OutputConfig], layer).loss_is_log_prob


def text_name(entries: Sequence[Entry]) -> str:
    """Return the data set, the split and, if tokens are not words, their unit, e.g. `ptb, valid`."""
    entry = next((entry for entry in entries if entry.data), entries[0])
    unit = {"word": "", "char": "characters"}.get(entry.unit, f"pieces by {entry.unit}")
    return ", ".join(filter(None, (entry.data, entry.split, unit)))


def read_entry(source: ReportFolder, bootstrap: Bootstrap, name: str) -> Entry:
    """Read a run or an evaluation. name: its name in the report."""
    there = (source.folder / "result.json").exists()
    entry = Entry(source, name, **vars(read_summary(source.folder, REMEDY) if there else Summary()))
    if entry.metric == "valid_perplexity":
        entry.split = "valid"
    evaluated = Path(entry.result.get("run", ""))
    if source.kind is Kind.run:
        entry.run = Run.open(source.folder)
    elif "run" in entry.result and (evaluated / "run.json").exists():
        entry.run = Run.open(evaluated)
        if entry.parameters is None and (evaluated / "result.json").exists():
            entry.parameters = read_summary(evaluated, REMEDY).parameters
    if entry.run is not None:
        entry.model, entry.data = model_name(entry.run), (entry.run.config.get("data") or {}).get("name", "")
    elif "members" in entry.result:
        entry.model = f"mixture of {len(entry.result['members'])} scores"
    entry.model += ", dynamic" * entry.dynamic
    if (source.folder / SCORES_FILE).exists():
        _take_scores(entry, TokenScores.open(source.folder / SCORES_FILE), bootstrap)
    return entry


def _take_scores(entry: Entry, scores: TokenScores, bootstrap: Bootstrap) -> None:
    if scores.split != entry.split:
        raise UserError(f"{entry.source.folder / SCORES_FILE} is of {scores.split}, not of {entry.split}: {REMEDY}")
    entry.normalized = scores.normalized
    entry.text, entry.tokens = scores.tokens.fingerprint, scores.tokens.count
    if scores.normalized:
        offsets, block, _ = resampled_units(scores.tokens.offsets, bootstrap.block)
        entry.interval = perplexity_interval(
            scores.log_prob, offsets, resamples=bootstrap.resamples, seed=bootstrap.seed, block=block
        )


def model_name(run: Run) -> str:
    """Return a short description of a run's model: SMOOTHER of order 5; MODEL + OUTPUT (TREE); mixture of 3,
    log-linear.

    Options appear under the names by which they were chosen, e.g. gru, a preset of lstm.
    """
    config = run.config
    if run.kind == "ensemble":
        forms = {"classes": ", by class of context", "log_linear": ", log-linear"}
        cache = run.mixture.get("cache")
        text = f"mixture of {len(run.members)}" + forms.get(str(run.mixture.get("method")), "")
        return f"{text}, with a {cache['kind']} cache" if cache else text
    settings = {group: config.get(group) or {} for group in ("model", "smoother", "output", "tree")}
    kinds = {group: str(values["kind"]) for group, values in settings.items() if values.get("kind")}
    names = {group: run.choices.get(group, kind) for group, kind in kinds.items()}
    model = settings["model"]
    if not settings["output"]:  # count-based
        text = f"{names.get('smoother', 'n-gram')} of order {model.get('order', '?')}"
        return text if set(model) <= {"kind", "order"} else f"{names['model']}, {text}"  # the smoother implies the rest
    if "cell" in model and names["model"] == kinds["model"]:  # model=lstm model.cell=gru
        names["model"] = str(model["cell"])
    text = " + ".join(dict.fromkeys(names[group] for group in ("model", "output") if group in names))
    return f"{text} ({names['tree']})" if "tree" in names else text


def read_rates(folder: Path) -> RangeTest:
    """Read a learning-rate range test."""
    saved = read_json(folder / RATES, REMEDY, schemas.RATES)
    test = of_json(RangeTest, saved)
    if not len(test.rates) == len(test.losses) == len(test.smoothed) > 0:
        raise UserError(f"{folder / RATES} is damaged (rates and losses do not belong together): {REMEDY}")
    return test

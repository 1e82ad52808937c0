"""Read the results in the folders of a report; a UserError names a damaged file."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from lmtool.config.groups import OutputConfig
from lmtool.config.options import settings_class
from lmtool.errors import UserError
from lmtool.evaluation.significance import perplexity_interval, resampled_units
from lmtool.evaluation.token_scores import SCORES_FILE, TokenScores
from lmtool.report.find import Kind, ReportFolder
from lmtool.runs.run import RATES, SPLITS, RangeTest, Run
from lmtool.system import schemas
from lmtool.system.files import read_json

REMEDY = "make it again"


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
    95 % confidence interval. bits: per token. per_word, bits_per_character: perplexity per word, if tokens are not
    words, and bits per character. text: fingerprint of the scored tokens, whose number is `tokens`.
    """

    source: ReportFolder
    name: str
    model: str = ""
    data: str = ""
    split: str = ""
    perplexity: float | None = None
    interval: tuple[float, float] | None = None
    bits: float | None = None
    per_word: float | None = None
    bits_per_character: float | None = None
    parameters: int | None = None
    seconds: float | None = None
    cloze: dict[str, float] | None = None
    normalized: bool | None = True
    text: str = ""
    tokens: int = 0
    run: Run | None = None
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """The unit of the run's data, such as char; word if it is not known."""
        data = self.run.config.get("data") if self.run is not None else None
        return str(data["vocabulary"]["unit"]) if data else "word"

    @property
    def texts(self) -> list[Hashable]:
        """What identifies the text and its tokens: entries that share one of these are of the same text and tokens."""
        run, found = self.run, list[Hashable]()
        if run is not None and run.store_fingerprint and self.split in SPLITS:
            found.append((run.store_fingerprint, run.vocabulary_fingerprint, self.split))
        if self.text:
            found.append(self.text)
        return found or [(self.data, self.split)]

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


def text_name(entries: Sequence[Entry]) -> str:
    """Return the data set and the split of perplexities, and the unit of tokens that are not words: `ptb, valid`."""
    entry = next((entry for entry in entries if entry.data), entries[0])
    unit = {"word": "", "char": "characters"}.get(entry.unit, f"pieces by {entry.unit}")
    return ", ".join(filter(None, (entry.data, entry.split, unit)))


def read_entry(source: ReportFolder, bootstrap: Bootstrap, name: str) -> Entry:
    """Read a run or an evaluation. name: in the report. Raises UserError if one of its files is damaged."""
    file = source.folder / "result.json"
    result = read_json(file, REMEDY, schemas.RESULT) if file.exists() else {}
    run = Run.open(source.folder) if source.kind is Kind.run else _scored_run(result)
    entry = Entry(source, name, result=result, run=run)
    if run is not None:
        entry.model, entry.data = model_name(run), (run.config.get("data") or {}).get("name", "")
    elif "members" in result:
        entry.model = f"mixture of {len(result['members'])} scores"
    if source.kind is Kind.scores and run is not None and (run.folder / "result.json").exists():
        trained = read_json(run.folder / "result.json", REMEDY, schemas.RESULT)
        result = {"parameters": trained.get("parameters")} | result
    entry.model += ", dynamic" if result.get("dynamic") else ""
    _take_result(entry, result)
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
    if result.get("perplexity_per_word") not in (None, result.get(key)):
        entry.per_word = float(result["perplexity_per_word"])
    if result.get("bits_per_character") is not None:
        entry.bits_per_character = float(result["bits_per_character"])
    entry.normalized = result.get("normalized", True)
    entry.seconds = None if result.get("seconds") is None else float(result["seconds"])
    entry.parameters = None if result.get("parameters") is None else int(result["parameters"])
    if result.get("cloze") is not None:
        entry.cloze = {key: math.inf if value is None else float(value) for key, value in result["cloze"].items()}


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


def _scored_run(result: dict[str, Any]) -> Run | None:
    """Return the run that was evaluated, if the result names it and it still exists."""
    folder = result.get("run")
    return Run.open(Path(folder)) if isinstance(folder, str) and (Path(folder) / "run.json").exists() else None


def model_name(run: Run) -> str:
    """Return the model of a run in words: SMOOTHER of order 5; MODEL + OUTPUT (TREE); mixture of 3, log-linear.

    Options have the names by which they were chosen, e.g. gru, which presets the settings of lstm.
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
        return text if set(model) <= {"kind", "order"} else f"{names['model']}, {text}"  # a smoother says the rest
    if "cell" in model and names["model"] == kinds["model"]:  # model=lstm model.cell=gru
        names["model"] = str(model["cell"])
    text = " + ".join(dict.fromkeys(names[group] for group in ("model", "output") if group in names))
    return f"{text} ({names['tree']})" if "tree" in names else text


def read_rates(folder: Path) -> RangeTest:
    """Read a learning-rate range test. Raises UserError if it is damaged."""
    saved = read_json(folder / RATES, REMEDY, schemas.RATES)
    test = RangeTest(**{each.name: saved[each.name] for each in fields(RangeTest) if each.name in saved})
    if not len(test.rates) == len(test.losses) == len(test.smoothed) > 0:
        raise UserError(f"{folder / RATES} is damaged (rates and losses do not belong together): {REMEDY}")
    return test

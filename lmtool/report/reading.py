"""Find the folders that a report shows, and read their results; a UserError names a damaged file."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import cast

from lmtool.config.groups import OutputConfig
from lmtool.config.options import settings_class
from lmtool.errors import UserError, escape_controls
from lmtool.evaluation.significance import perplexity_interval, resampled_units
from lmtool.evaluation.token_scores import SCORES_FILE, TokenScores
from lmtool.results.base import Summary, read_summary, result_from_json
from lmtool.runs.run import RATES, SPLITS, RangeTest, Run, has_state
from lmtool.system import schemas
from lmtool.system.files import read_json

MAX_DEPTH = 3  # maximum depth of folders in the search


class Kind(Enum):
    """The kind of content of a folder."""

    run = "run"  # written by train or ensemble
    scores = "scores"  # written by eval, or by ensemble for scores
    sweep = "sweep"
    compare = "compare"
    tree = "tree"
    rates = "rates"
    unfinished = "unfinished"  # training


KINDS = {  # by a file in the folder; the first file that exists decides
    "run.json": Kind.run,
    "sweep.csv": Kind.sweep,
    RATES: Kind.rates,
    "compare.csv": Kind.compare,
    SCORES_FILE: Kind.scores,
    "cloze.csv": Kind.scores,
}


@dataclass(frozen=True, slots=True)
class ReportFolder:
    """A folder with something to show. name: short and unique. sweep: the folder of its sweep, if it is a job."""

    folder: Path
    kind: Kind
    name: str = ""
    sweep: Path | None = None


def find_folders(paths: Sequence[Path]) -> tuple[list[ReportFolder], list[Path]]:
    """Return the folders with something to show in or below `paths`, and those of unfinished trainings."""
    found: dict[Path, ReportFolder] = {}
    for path in paths:
        if not path.exists():
            raise UserError(f"no folder {path}: name runs, sweeps, or folders that hold them")
        if not path.is_dir():
            raise UserError(f"{path} is a file: name the folder that it is in")
        below = list(_within(path, MAX_DEPTH))
        if not below:
            raise UserError(f"nothing to show in {path}: no run, evaluation, sweep, comparison, tree or range test")
        for item in below:
            found.setdefault(item.folder.resolve(), item)
    folders = [item for item in found.values() if item.kind is not Kind.unfinished]
    unfinished = [item.folder for item in found.values() if item.kind is Kind.unfinished]
    if not folders:
        names = ", ".join(map(str, unfinished))
        raise UserError(f"{names}: not finished; resume with lmtool train resume=PATH, or name another run")
    # The number of a job is meaningless without its sweep.
    parts = [1 + (item.sweep is not None) for item in folders]
    named = short_names([item.folder.resolve() for item in folders], parts)
    return [replace(item, name=name) for item, name in zip(folders, named, strict=True)], unfinished


def _within(folder: Path, deeper: int, sweep: Path | None = None) -> Iterator[ReportFolder]:
    kind = kind_of(folder)
    if kind is not None:
        yield ReportFolder(folder, kind, sweep=sweep)
    if deeper and kind in (None, Kind.sweep):
        inner = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
        for path in sorted(inner, key=_in_order):
            yield from _within(path, deeper - 1, folder if kind else sweep)


def _in_order(path: Path) -> tuple[int, str]:
    """Return the sort key: jobs by their numbers, other folders by their names."""
    return (int(path.name) if path.name.isdecimal() else -1, path.name)


def kind_of(folder: Path) -> Kind | None:
    """Return the kind of a folder, by its files; None if it has nothing that a report shows."""
    for name, kind in KINDS.items():
        if (folder / name).exists():
            return kind
    file = folder / "result.json"
    try:
        if file.exists() and '"weighted_mean_depth"' in file.read_text(encoding="utf-8", errors="replace"):
            return Kind.tree
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    return Kind.unfinished if has_state(folder) else None


def short_names(paths: Sequence[Path], at_least: Sequence[int] | None = None) -> list[str]:
    """Return the shortest unique end of each path, with at least this many parts; equal paths have equal names."""
    lengths = list(at_least or [1] * len(paths))
    while True:
        names = [escape_controls("/".join(path.parts[-length:])) for path, length in zip(paths, lengths, strict=True)]
        ambiguous = {
            name for name in names if len({path for path, other in zip(paths, names, strict=True) if other == name}) > 1
        }
        if not ambiguous:
            return names
        lengths = [length + (name in ambiguous) for length, name in zip(lengths, names, strict=True)]


REPORT_REMEDY = "make it again"


@dataclass
class Entry(Summary):
    """The results of a run or of an evaluation of a run.

    model: a short description. interval: 95 % confidence interval of the perplexity. text: fingerprint of the tokens.
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


def read_entry(source: ReportFolder, name: str, *, resamples: int, seed: int, block: int | str) -> Entry:
    """Read a run or an evaluation. name: its name in the report. resamples, seed, block: as in ResamplingConfig."""
    there = (source.folder / "result.json").exists()
    entry = Entry(source, name, **vars(read_summary(source.folder, REPORT_REMEDY) if there else Summary()))
    if "valid_perplexity" in entry.result:
        entry.split = entry.split or "valid"
    evaluated = Path(entry.result.get("run", ""))
    if source.kind is Kind.run:
        entry.run = Run.open(source.folder)
    elif "run" in entry.result and (evaluated / "run.json").exists():
        entry.run = Run.open(evaluated)
        if entry.parameters is None and (evaluated / "result.json").exists():
            entry.parameters = read_summary(evaluated, REPORT_REMEDY).parameters
    if entry.run is not None:
        entry.model, entry.data = model_name(entry.run), (entry.run.config.get("data") or {}).get("name", "")
    elif "members" in entry.result:
        entry.model = f"mixture of {len(entry.result['members'])} scores"
    entry.model += ", dynamic" * entry.dynamic
    if (source.folder / SCORES_FILE).exists():
        scores = TokenScores.open(source.folder / SCORES_FILE)
        if scores.split != entry.split:
            raise UserError(
                f"{source.folder / SCORES_FILE} is of {scores.split}, not of {entry.split}: {REPORT_REMEDY}"
            )
        entry.normalized = scores.normalized
        entry.text, entry.tokens = scores.tokens.fingerprint, scores.tokens.count
        if scores.normalized:
            offsets, drawn, _ = resampled_units(scores.tokens.offsets, block)
            entry.interval = perplexity_interval(scores.log_prob, offsets, resamples=resamples, seed=seed, block=drawn)
    return entry


def model_name(run: Run) -> str:
    """Return a run's model in short: SMOOTHER of order 5; MODEL + OUTPUT (TREE); mixture of 3, log-linear."""
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
    saved = read_json(folder / RATES, REPORT_REMEDY, schemas.RATES)
    test = result_from_json(RangeTest, saved)
    if not len(test.rates) == len(test.losses) == len(test.smoothed) > 0:
        raise UserError(f"{folder / RATES} is damaged (rates and losses do not belong together): {REPORT_REMEDY}")
    return test

"""Results of `score`, `surprisal` and `pairs`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lmtool.results.base import Figures, TableResult
from lmtool.results.scores import CONTEXTS, MAX_NATS
from lmtool.system.terminal import Cell, text_table


@dataclass(repr=False)
class ScoredTexts(Figures):
    """The result of `score`: totals of many texts.

    empty: number of texts without a token. faulty: number of faulty records, passed over. tokens, oov, log_prob: totals
    of all texts. run_out: the second run, if any. resumed: number of texts whose scores already existed;
    tokens_per_second: speed for all other texts, None if there were none. buckets: name, limit (None for the last),
    number of texts and share of OOVs of each. kept: number of texts written by filter=. max_perplexity,
    min_perplexity, max_oov: the limits that they passed. across_sentences: as in Evaluation. target: that of hashed
    n-grams. to, filter: the written files.
    """

    name_width = 24

    run: str
    run_out: str | None
    text: str
    texts: int = 0
    empty: int = 0
    faulty: int = 0
    tokens: int = 0
    oov: int = 0
    log_prob: float = 0.0
    seconds: float = 0.0
    tokens_per_second: float | None = None
    resumed: int = 0
    buckets: list[tuple[str, float | None, int, float]] = field(default_factory=list)
    kept: int | None = None
    max_perplexity: float | None = None
    min_perplexity: float | None = None
    max_oov: float | None = None
    across_sentences: bool | None = None
    target: str | None = None
    to: Path | None = None
    filter: Path | None = None

    @property
    def perplexity(self) -> float | None:
        """exp(-log_prob / tokens), or None without tokens, and for hashed n-grams."""
        if not self.tokens or self.target is not None:
            return None
        return math.exp(min(-self.log_prob / self.tokens, MAX_NATS)) if self.log_prob > -math.inf else math.inf

    @property
    def metric(self) -> float | None:
        """Perplexity."""
        return self.perplexity

    def as_json(self) -> dict[str, Any]:
        """Return the content of result.json."""
        values = asdict(self) | {"perplexity": self.perplexity}
        values |= {"to": self.to and str(self.to), "filter": self.filter and str(self.filter)}
        del values["notes"]
        return values

    def heading(self) -> str:
        """Return the runs and the text."""
        return f"run {self.run}{f', out {self.run_out}' if self.run_out else ''} on {self.text}"

    def _figures(self) -> Sequence[tuple[str, Cell]]:
        speed = round(self.tokens_per_second) if self.tokens_per_second else None
        oov_limit = None if self.max_oov is None else f"{100 * self.max_oov:.4g} %"
        first: list[tuple[str, Cell]] = [("texts", self.texts), ("  without tokens", self.empty)]
        if self.target is None:
            first += [("tokens", self.tokens), ("  OOVs", self.oov), ("perplexity", self.perplexity)]
        else:
            first += [("n-grams", self.tokens)]
        last: list[tuple[str, Cell]] = [("contexts", CONTEXTS.get(self.across_sentences)), ("tokens per second", speed)]
        for name, limit, count, share in self.buckets:
            to = "" if limit is None else f", to {limit:.4f}"
            last.append((f"bucket {name}", f"{count:,} texts{to}, {100 * share:.2f} % OOVs"))
        last += [
            ("kept", self.kept),
            ("  at most", self.max_perplexity),
            ("  at least", self.min_perplexity),
            ("OOVs at most", oov_limit),
        ]
        return [*first, *((name, value) for name, value in last if value is not None)]


@dataclass(repr=False)
class Surprisals(TableResult):
    """The result of `surprisal`: a row per word.

    text: what was scored, in `items` items and `sentences` sentences. unit: bits, nats or log10. models: for each
    `run`, its name in the columns, `mean_surprisal`, over the words that have tokens, and `oov`, the number of tokens
    outside its vocabulary. to: the written file.
    """

    text: str
    sentences: int
    items: int
    unit: str
    models: list[dict[str, Any]]
    to: str | None

    @property
    def metric(self) -> float:
        """The mean surprisal by the first model."""
        return float(self.models[0]["mean_surprisal"])

    def heading(self) -> str:
        """Return the text, its size and the mean surprisals."""
        means = ", ".join(f"{model['run']} {model['mean_surprisal']:.4f} {self.unit}" for model in self.models)
        sizes = {"word": len(self.table), "sentence": self.sentences, "item": self.items}
        size = ", ".join(f"{number:,} {what}{'s' * (number != 1)}" for what, number in sizes.items())
        return f"{self.text}: {size}\nmean surprisal: {means}"

    def table_text(self) -> str:
        """Return the first rows in plain text."""
        return text_table(self.header, self.table[:10])

    def as_json(self) -> dict[str, Any]:
        """Return the content of result.json."""
        size = {"text": self.text, "words": len(self.table), "sentences": self.sentences, "items": self.items}
        return size | {"unit": self.unit, "models": self.models, "to": self.to}


@dataclass(repr=False)
class MinimalPairs(TableResult):
    """The result of `pairs`: a row per group of pairs, the first one overall.

    pairs: their number. runs: for each run the mean over paradigms of the accuracy, its interval, the number of ties
    and of pairs with OOVs, named as in the table of one run.
    """

    text: str
    criterion: str
    pairs: int
    runs: dict[str, dict[str, Cell]]

    @property
    def metric(self) -> float:
        """The error rate of the first run."""
        return 1 - float(next(iter(self.runs.values()))["accuracy"] or 0)

    def as_json(self) -> dict[str, Any]:
        """Return the content of result.json."""
        runs = [{"run": run, **figures} for run, figures in self.runs.items()]
        return {"text": self.text, "criterion": self.criterion, "pairs": self.pairs, "runs": runs}

    def heading(self) -> str:
        """Return the text, the number of pairs and the criterion."""
        what = "sums of log p" if self.criterion == "sum" else "means of log p per token"
        return f"{self.text}: {self.pairs:,} pairs, by {what}; intervals of 95 %"

    def table_text(self) -> str:
        """Return the table in plain text: of several runs the accuracies and half the widths of their intervals."""
        if len(self.runs) == 1:
            return super().table_text()
        shown = []
        for row in self.table:
            figures = [[float(value or 0) for value in row[k : k + 3]] for k in range(3, len(row), 5)]
            shown.append([*row[:3], *(value for x, low, high in figures for value in (x, (high - low) / 2))])
        return text_table([*self.header[:3], *(name for run in self.runs for name in (run, "+-"))], shown)

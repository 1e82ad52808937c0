"""What `score` returns."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lmtool.results.base import Result, Table
from lmtool.system.terminal import Cell


@dataclass(repr=False)
class ScoredTexts(Result):
    """What `score` found of many texts together. empty: texts without a token. tokens, oov, log_prob: of all of them.
    run_out: the second run; None without one. resumed: texts whose scores were there already; tokens_per_second: of
    the others, None without any. buckets: for each its name, limit (None of the last), number of texts and share of
    OOVs. kept: the number of texts that were written by filter=. most, least, most_oov: the limits that they passed.
    across_sentences: as of Evaluation. to, filter: what was written.
    """

    run: str
    run_out: str | None
    text: str
    texts: int
    empty: int
    tokens: int
    oov: int
    log_prob: float
    seconds: float = 0.0
    tokens_per_second: float | None = None
    resumed: int = 0
    buckets: list[tuple[str, float | None, int, float]] = field(default_factory=list)
    kept: int | None = None
    most: float | None = None
    least: float | None = None
    most_oov: float | None = None
    across_sentences: bool | None = None
    to: Path | None = None
    filter: Path | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def perplexity(self) -> float | None:
        """exp(-log_prob / tokens); None without tokens."""
        if not self.tokens:
            return None
        return math.exp(min(-self.log_prob / self.tokens, 709.0)) if self.log_prob > -math.inf else math.inf

    @property
    def metric(self) -> float | None:
        """Perplexity."""
        return self.perplexity

    def as_json(self) -> dict[str, Any]:
        """For result.json."""
        values = asdict(self) | {"perplexity": self.perplexity}
        values |= {"to": self.to and str(self.to), "filter": self.filter and str(self.filter)}
        del values["notes"]
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}

    def heading(self) -> str:
        """The runs and the text."""
        return f"run {self.run}{f', out {self.run_out}' if self.run_out else ''} on {self.text}"

    def lines(self) -> str:
        """The names and values of all figures, a line each."""
        from lmtool.evaluation.printing import rows_text

        return rows_text([(str(name), value) for name, value in self._rows()], 24)

    def _rows(self) -> list[list[Cell]]:
        from lmtool.evaluation.printing import CONTEXTS

        rows: list[list[Cell]] = [["texts", self.texts], ["  without tokens", self.empty], ["tokens", self.tokens]]
        rows += [["  OOVs", self.oov], ["perplexity", self.perplexity]]
        rows += [["contexts", CONTEXTS.get(self.across_sentences)]] if self.across_sentences is not None else []
        rows += [["tokens per second", round(self.tokens_per_second)]] if self.tokens_per_second else []
        for name, limit, count, share in self.buckets:
            to = "" if limit is None else f", to {limit:.4f}"
            rows.append([f"bucket {name}", f"{count:,} texts{to}, {100 * share:.2f} % OOVs"])
        rows += [["kept", self.kept]] if self.kept is not None else []
        rows += [["  at most", self.most]] if self.most is not None else []
        rows += [["  at least", self.least]] if self.least is not None else []
        rows += [["OOVs at most", f"{100 * self.most_oov:.4g} %"]] if self.most_oov is not None else []
        return rows

    def _table(self) -> Table:
        return ["", "value"], [[str(name).strip(), value] for name, value in self._rows()]

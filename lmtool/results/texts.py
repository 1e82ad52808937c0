"""The result of `surprisal`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lmtool.results.base import TableResult
from lmtool.system.terminal import text_table


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

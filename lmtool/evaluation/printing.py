"""Results of train, eval and ensemble as lines of text; result.json has all digits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmtool.evaluation.score import Report
from lmtool.system.terminal import Cell, cell_text

Rows = list[tuple[str, float | None]]
CONTEXTS: dict[bool | None, str] = {True: "across sentences", False: "of one line"}  # of a model that may cross them


def training_line(result: dict[str, Any], out: Path) -> str:
    """The last line of a training: perplexity on valid, size, seconds and run folder.

    result: as in result.json, but with inf where that has null.
    """
    unit = "n-grams" if "ngrams" in result else "parameters"
    size = f"{result['parameters']:,} {unit}"
    return f"valid perplexity {result['valid_perplexity']:.4f}, {size}, {result['seconds']:.1f} s; run={out}"


def sizes_text(sizes: list[int]) -> str:
    """The number of n-grams of each order."""
    return "\n".join(["order  n-grams", *(f"{order:5}  {count:,}" for order, count in enumerate(sizes, start=1))])


def report_rows(result: Report) -> Rows:
    """The names and values of a report, and of its cloze questions; what is not known is left out."""
    rows: Rows = [
        (f"tokens ({result.split})", result.tokens),
        ("  out of vocabulary", result.oov),
        ("perplexity", result.perplexity),
        ("  without OOVs", result.perplexity_without_oov if result.oov else None),
        ("perplexity per word", result.perplexity_per_word),
        ("bits per word", result.bits_per_word),
        ("bits per character", result.bits_per_character),
        ("accuracy", result.accuracy),
        ("tokens per second", round(result.tokens_per_second)),
    ]
    return [(name, value) for name, value in rows if value is not None] + cloze_rows(result.cloze)


def cloze_rows(cloze: dict[str, float] | None) -> Rows:
    """The results of cloze questions, if there are any."""
    if cloze is None:
        return []
    rows: Rows = [
        ("cloze questions", int(cloze["questions"])),
        ("  perplexity", cloze["perplexity"]),
        ("  accuracy", cloze["accuracy"]),
        ("  perplexity (local)", cloze.get("local_perplexity")),
        ("  accuracy (local)", cloze.get("local_accuracy")),
    ]
    return [(name, value) for name, value in rows if value is not None]


def rows_text(rows: Sequence[tuple[str, Cell]], width: int = 20) -> str:
    """Names and values, a line each. width: of the names."""
    return "\n".join(f"{name:<{width}} {cell_text(value):>12}" for name, value in rows)

"""What train, eval and ensemble print of their results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmtool.evaluation.score import Report
from lmtool.system.tables import cell_text


def print_training_result(result: dict[str, Any], out: Path) -> None:
    """Print the last line of a training: perplexity on valid, size, seconds and run folder.

    result: as in result.json, but with inf where that has null.
    """
    unit = "n-grams" if "ngrams" in result else "parameters"
    size = f"{result['parameters']:,} {unit}"
    print(f"valid perplexity {result['valid_perplexity']:.4f}, {size}, {result['seconds']:.1f} s; run={out}")


def print_sizes(sizes: list[int]) -> None:
    """Print the number of n-grams of each order."""
    print("order  n-grams")
    for order, count in enumerate(sizes, start=1):
        print(f"{order:5}  {count:,}")


def print_report(result: Report) -> None:
    """Print a report; result.json has all digits."""
    lines: list[tuple[str, float | None]] = [
        (f"tokens ({result.split})", result.tokens),
        ("  out of vocabulary", result.oov),
        ("perplexity", result.perplexity),
        ("  without OOVs", result.perplexity_without_oov if result.oov else None),
        ("bits per word", result.bits_per_word),
        ("bits per character", result.bits_per_character),
        ("accuracy", result.accuracy),
        ("tokens per second", round(result.tokens_per_second)),
    ]
    _print_lines(lines)
    print_cloze(result.cloze)


def print_cloze(cloze: dict[str, float] | None) -> None:
    """Print the results of cloze questions, if there are any."""
    if cloze is not None:
        _print_lines(
            [
                ("cloze questions", int(cloze["questions"])),
                ("  perplexity", cloze["perplexity"]),
                ("  accuracy", cloze["accuracy"]),
                ("  perplexity (local)", cloze.get("local_perplexity")),
                ("  accuracy (local)", cloze.get("local_accuracy")),
            ]
        )


def _print_lines(lines: Sequence[tuple[str, float | None]]) -> None:
    for name, value in lines:
        if value is not None:
            print(f"{name:<20} {cell_text(value):>12}")

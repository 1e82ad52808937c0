"""What eval and ensemble print of a report."""

from __future__ import annotations

from collections.abc import Sequence

from lmtool.evaluation.score import Report
from lmtool.system.tables import cell_text


def print_sizes(sizes: list[int]) -> None:
    """How many n-grams a model has of each order."""
    print("order  n-grams")
    for order, count in enumerate(sizes, start=1):
        print(f"{order:5}  {count:,}")


def print_report(found: Report) -> None:
    """The lines a person reads; result.json has every digit."""
    lines: list[tuple[str, float | None]] = [
        (f"tokens ({found.split})", found.tokens),
        ("  out of vocabulary", found.oov),
        ("perplexity", found.perplexity),
        ("  without OOVs", found.perplexity_without_oov if found.oov else None),
        ("bits per word", found.bits_per_word),
        ("bits per character", found.bits_per_character),
        ("accuracy", found.accuracy),
        ("tokens per second", round(found.tokens_per_second)),
    ]
    _print_lines(lines)
    print_cloze(found.cloze)


def print_cloze(found: dict[str, float] | None) -> None:
    """How the questions were answered, where that is known."""
    if found is not None:
        _print_lines(
            [
                ("cloze questions", int(found["questions"])),
                ("  perplexity", found["perplexity"]),
                ("  accuracy", found["accuracy"]),
                ("  perplexity (local)", found.get("local_perplexity")),
                ("  accuracy (local)", found.get("local_accuracy")),
            ]
        )


def _print_lines(lines: Sequence[tuple[str, float | None]]) -> None:
    for name, value in lines:
        if value is not None:
            print(f"{name:<20} {cell_text(value):>12}")

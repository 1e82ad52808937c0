"""`lmtool compare`: scores of the same tokens -> one table, with confidence intervals and significance tests."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from omegaconf import DictConfig

from lmtool.config.settings import typed
from lmtool.config.verbs import CompareConfig
from lmtool.session import output_dir, use_threads
from lmtool.system.files import write_json, written_whole
from lmtool.system.tables import Cell, cell_text, text_table

HEADER = ["run", "perplexity", "difference", "95 % CI, lower", "upper", "p (bootstrap)", "p (randomisation)"]
KEYS = ["run", "perplexity", "difference", "from", "to", "p_bootstrap", "p_randomisation"]
SAME = 1e-6  # relative differences of perplexity below this are rounding: KenLM writes 7 digits, SRILM 6


def run(composed: DictConfig) -> float | None:
    """Compare models that scored the same tokens with the first of them."""
    config = typed(composed, CompareConfig)
    import numpy as np

    from lmtool.commands.mixture_members import scores_of
    from lmtool.evaluation.score import finite_or_null, perplexity
    from lmtool.evaluation.significance import blocks, compare

    use_threads(config.threads)
    out = output_dir()
    members, tokens = scores_of(config.runs, config.split, config.store_dir, config.device)
    sentences = len(tokens.offsets) > 2
    offsets = tokens.offsets if sentences else blocks(tokens.count, config.block)
    differences = compare(
        np.stack([member.log_prob for member in members]), offsets, resamples=config.resamples, seed=config.seed
    )
    rows: list[list[Cell]] = []
    for member, difference in zip(members, [None, *differences], strict=True):
        row: list[Cell] = [member.name, perplexity(member.log_prob)]
        if difference is None:
            row += [None] * 5
        else:
            row += [difference.perplexity, *difference.interval, difference.p_bootstrap, difference.p_randomisation]
        rows.append(row)
    unit = "sentences" if sentences else f"blocks of {config.block} tokens"
    resampled = f"{tokens.count:,} tokens in {len(offsets) - 1:,} {unit}; {config.resamples:,} draws of these"
    write_json(
        out / "result.json",
        {
            "split": members[0].split,
            "tokens": tokens.count,
            "unit": unit,
            "units": len(offsets) - 1,
            "resamples": config.resamples,
            "members": [finite_or_null(dict(zip(KEYS, row, strict=True))) for row in rows],
        },
    )
    _write_tables(out, rows)
    print(resampled)
    print(text_table(HEADER, rows))
    for member, row in zip(members, rows, strict=True):
        if not math.isfinite(float(str(row[1]))):
            zeros = int(np.isneginf(member.log_prob).sum())
            print(f"note: {member.name} gives {zeros:,} tokens probability 0: its perplexity is infinite")
        if row[2] is not None and abs(float(str(row[2]))) < SAME * float(str(row[1])):
            print(f"note: {member.name} and {members[0].name} agree to the digits that such files have")
        if not member.normalised:
            print(f"note: {member.name} has scores that do not sum to one: not comparable with others")
    return None


def _write_tables(out: Path, rows: list[list[Cell]]) -> None:
    """compare.csv with all digits and compare.md for a report."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([KEYS, *rows])
    lines = [HEADER, ["---", *["---:"] * (len(HEADER) - 1)], *[[cell_text(cell) for cell in row] for row in rows]]
    for name, text in (
        ("compare.csv", written.getvalue()),
        ("compare.md", "".join(f"| {' | '.join(line)} |\n" for line in lines)),
    ):
        with written_whole(out / name) as temporary:
            temporary.write_text(text, encoding="utf-8")

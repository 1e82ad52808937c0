"""`lmtool compare`: scores of the same tokens -> one table, with confidence intervals and significance tests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmtool.config.verbs import MembersConfig, ResamplingConfig
from lmtool.errors import UserError
from lmtool.results import SUM_UNKNOWN, Comparison
from lmtool.session import Session
from lmtool.system.files import atomic_write
from lmtool.system.terminal import Cell, csv_text, markdown_table

if TYPE_CHECKING:
    from lmtool.commands._members import Member

HEADER = ["run", "perplexity", "difference", "95 % CI, lower", "upper", "p (bootstrap)", "p (randomization)", "block"]
KEYS = ["run", "perplexity", "difference", "from", "to", "p_bootstrap", "p_randomization", "block"]
MIN_DIFFERENCE = 1e-6  # relative; smaller ones of perplexities are rounding: KenLM writes 7 digits, SRILM 6


@dataclass(slots=True)
class Settings(MembersConfig, ResamplingConfig):
    """Settings of `lmtool compare`."""

    def __post_init__(self) -> None:
        ResamplingConfig.__post_init__(self)
        if len(self.runs) < 2 or len(set(self.runs)) < len(self.runs):
            raise UserError(f"runs={self.runs}: name two or more that differ, e.g. runs=A,B")


def run(settings: Settings, session: Session) -> Comparison:
    """Compare models that scored the same tokens with the first of them.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> other = lmtool.train({"kind": "ngram", "order": 1}, corpus, smoother="witten_bell")
    >>> [round(row["perplexity"], 3) for row in lmtool.compare([run, other]).rows]
    [1.318, 4.849]
    """
    import numpy as np

    from lmtool.commands._members import scores_of
    from lmtool.evaluation.metrics import perplexity
    from lmtool.evaluation.significance import MIN_BLOCKS, compare, resampled_units

    members, tokens = scores_of(settings, session)
    offsets, block, size = resampled_units(tokens.offsets, settings.block)
    log_prob = np.stack([member.scores.log_prob for member in members])
    differences = compare(log_prob, offsets, resamples=settings.resamples, seed=settings.seed, block=block)
    rows: list[list[Cell]] = []
    for member, difference in zip(members, [None, *differences], strict=True):
        row: list[Cell] = [member.label, perplexity(member.scores.log_prob)]
        if difference is None:
            row += [None] * 6
        else:
            row += [difference.perplexity, *(difference.interval or (None, None))]
            row += [difference.p_bootstrap, difference.p_randomization, difference.block and difference.block * size]
        rows.append(row)
    sentences = len(tokens.offsets) - 1
    unit, units = ("sentences", sentences) if sentences > 1 else ("tokens", tokens.count)
    lengths = sorted({difference.block * size for difference in differences if difference and difference.block})
    spread = " to ".join(f"{length:,}" for length in dict.fromkeys((lengths[0], lengths[-1]))) if lengths else "1"
    drawn = f"single {unit}" if spread == "1" else f"blocks of {spread} {unit} on average"
    drawn = f"{settings.resamples:,} draws of {drawn}"
    if few := any(difference and difference.block is None for difference in differences):
        drawn = f"too few {unit} to tell"
    texts = ", ".join(dict.fromkeys(member.scores.split for member in members))
    within = f" in {sentences:,} sentences" if sentences > 1 else ""
    resampled = f"{tokens.count:,} tokens{within}; {drawn}"
    about = texts, tokens.count, f"{texts}: {resampled}"
    comparison = Comparison(*about, header=HEADER, table=rows, notes=session.notes)
    for name, text in (("compare.csv", csv_text([KEYS, *rows])), ("compare.md", f"{markdown_table(HEADER, rows)}\n")):
        with atomic_write(session.out / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    records = [
        dict(zip(KEYS, row, strict=True))
        | {"run": member.name, "dynamic": member.scores.dynamic}
        | {"split": member.scores.split, "normalized": member.scores.normalized}
        | {"fitted_on_this_text": bool(member.scores.fitted), "fitted": list(member.scores.fitted)}
        | {"across_sentences": member.scores.across}
        for member, row in zip(members, rows, strict=True)
    ]
    result = {"split": members[0].scores.split, "tokens": tokens.count, "unit": unit, "units": units}
    result |= {"resamples": settings.resamples, "members": records}
    session.finish(result, f"{comparison.heading()}\n{comparison.table_text()}")
    if few:
        session.note(
            f"too few {unit} to tell: an interval and p-values need {MIN_BLOCKS} blocks or more "
            f"(block={settings.block}, {units:,} {unit})"
        )
    _note(members, rows, session)
    return comparison


def _note(members: list[Member], rows: list[list[Cell]], session: Session) -> None:
    """Note what makes some of the figures not comparable."""
    from lmtool.evaluation.metrics import DYNAMIC
    from lmtool.runs.run import fitted_note

    if len({member.scores.split for member in members}) > 1:
        named = ", ".join(f"{member.name} on {member.scores.split}" for member in members)
        session.note(f"the same tokens under several names: {named}")
    for member, row in zip(members, rows, strict=True):
        if not math.isfinite(float(str(row[1]))):
            session.note(f"{member.name} gives {member.zeros:,} tokens probability 0: its perplexity is infinite")
        if row[2] is not None and abs(float(str(row[2]))) < MIN_DIFFERENCE * float(str(row[1])):
            session.note(f"{member.name} and {members[0].name} agree to the digits that such files have")
        if member.scores.normalized is None:
            session.note(f"{member.name}: {SUM_UNKNOWN}")
        elif not member.scores.normalized:
            session.note(f"{member.name} has scores that do not sum to one: not comparable with others")
        if member.scores.dynamic:
            session.note(f"{member.name}: {DYNAMIC}")
    session.note(*fitted_note({member.name: member.scores.fitted for member in members}, members[0].scores.split))
    crossing, others = (", ".join(m.name for m in members if m.scores.across is across) for across in (True, False))
    if crossing and others:
        session.note(f"contexts cross sentences in {crossing}, and not in {others}")

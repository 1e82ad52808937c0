"""`lmtool compare`: scores of the same tokens -> one table, with confidence intervals and significance tests."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from lmtool.config.verbs import MembersConfig, ResamplingConfig
from lmtool.errors import UserError
from lmtool.results import base
from lmtool.results.scores import Compared
from lmtool.session import Session
from lmtool.system.files import atomic_write
from lmtool.system.terminal import csv_text

MIN_DIFFERENCE = 1e-6  # relative difference of perplexities; smaller ones are rounding: KenLM writes 7 digits, SRILM 6


@dataclass(slots=True)
class Settings(MembersConfig, ResamplingConfig):
    def __post_init__(self) -> None:
        ResamplingConfig.__post_init__(self)
        if len(self.runs) < 2 or len(set(self.runs)) < len(self.runs):
            raise UserError(f"runs={self.runs}: name two or more that differ, e.g. runs=A,B")


@dataclass(repr=False)
class CompareResult(base.Result):
    """The result of `compare`: one row per model, the first one without tests.

    split, tokens: name of the scored text and its number of tokens. unit, units: the unit that is resampled, and the
    number of units. resamples: number of draws. resampled: the text and the resampling in one line.
    """

    title = "{0.resampled}"

    split: str
    tokens: int
    unit: str
    units: int
    resamples: int
    members: list[Compared]
    resampled: str = field(metadata=base.UNSAVED)

    def as_table(self) -> base.Table:
        return base.table_of(self.members)


def run(settings: Settings, session: Session) -> CompareResult:
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

    scores, tokens = scores_of(settings, session)
    offsets, block, size = resampled_units(tokens.offsets, settings.block)
    log_prob = np.stack([each.log_prob for each in scores])
    differences = compare(log_prob, offsets, resamples=settings.resamples, seed=settings.seed, block=block)
    rows = []
    for name, of_text, tested in zip(settings.runs, scores, [None, *differences], strict=True):
        low, high = (None, None) if tested is None or tested.interval is None else tested.interval
        rows.append(
            Compared(
                run=name,
                perplexity=perplexity(of_text.log_prob),
                difference=None if tested is None else tested.perplexity,
                from_=low,
                to=high,
                p_bootstrap=None if tested is None else tested.p_bootstrap,
                p_randomization=None if tested is None else tested.p_randomization,
                block=None if tested is None or tested.block is None else tested.block * size,
                dynamic=of_text.dynamic,
                split=of_text.split,
                normalized=of_text.normalized,
                fitted_on_this_text=bool(of_text.fitted),
                fitted=list(of_text.fitted),
                across_sentences=of_text.across,
            )
        )
    sentences = len(tokens.offsets) - 1
    unit, units = ("sentences", sentences) if sentences > 1 else ("tokens", tokens.count)
    lengths = sorted({row.block for row in rows if row.block}) or [1]
    spread = " to ".join(f"{length:,}" for length in dict.fromkeys((lengths[0], lengths[-1])))
    few = any(row.difference is not None and row.block is None for row in rows)
    drawn = f"single {unit}" if spread == "1" else f"blocks of {spread} {unit} on average"
    drawn = f"too few {unit} to tell" if few else f"{settings.resamples:,} draws of {drawn}"
    names = ", ".join(dict.fromkeys(row.split for row in rows))
    within = f" in {sentences:,} sentences" if sentences > 1 else ""
    resampled = f"{names}: {tokens.count:,} tokens{within}; {drawn}"
    result = CompareResult(
        split=rows[0].split,
        tokens=tokens.count,
        unit=unit,
        units=units,
        resamples=settings.resamples,
        members=rows,
        resampled=resampled,
    )
    header, lines = result.as_table()
    keys = list(base.as_json(rows[0]))[: len(header)]
    texts = {"csv": csv_text([keys, *lines]), "md": f"{result.to_markdown()}\n", "tex": f"{result.to_latex()}\n"}
    for suffix, text in texts.items():
        with atomic_write(session.out / f"compare.{suffix}") as temporary:
            temporary.write_text(text, encoding="utf-8")
    session.finish(result, f"{result.heading()}\n{result.table_text()}")
    if few:
        session.note(
            f"too few {unit} to tell: an interval and p-values need {MIN_BLOCKS} blocks or more "
            f"(block={settings.block}, {units:,} {unit})"
        )
    _note(rows, [int(np.isneginf(each.log_prob).sum()) for each in scores], session)
    return result


def _note(rows: list[Compared], zeros: list[int], session: Session) -> None:
    """Print notes on figures that are not comparable. zeros: for each model, the number of tokens of probability 0."""
    from lmtool.evaluation.metrics import DYNAMIC
    from lmtool.runs.run import fitted_note

    if len({row.split for row in rows}) > 1:
        session.note(f"the same tokens under several names: {', '.join(f'{row.run} on {row.split}' for row in rows)}")
    for row, of_zero in zip(rows, zeros, strict=True):
        if not math.isfinite(row.perplexity):
            session.note(f"{row.run} gives {of_zero:,} tokens probability 0: its perplexity is infinite")
        if row.difference is not None and abs(row.difference) < MIN_DIFFERENCE * row.perplexity:
            session.note(f"{row.run} and {rows[0].run} agree to the digits that such files have")
        if row.normalized is None:
            session.note(f"{row.run}: {base.SUM_UNKNOWN}")
        elif not row.normalized:
            session.note(f"{row.run} has scores that do not sum to one: not comparable with others")
        if row.dynamic:
            session.note(f"{row.run}: {DYNAMIC}")
    session.note(*fitted_note({row.run: row.fitted for row in rows}, rows[0].split))
    crossing, others = (
        ", ".join(row.run for row in rows if row.across_sentences is across) for across in (True, False)
    )
    if crossing and others:
        session.note(f"contexts cross sentences in {crossing}, and not in {others}")

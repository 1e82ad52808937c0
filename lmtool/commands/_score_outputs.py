"""What `lmtool score` writes: the table of scores with its buckets, and the records that pass the limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.commands._settings import ScoreConfig
from lmtool.data.readers import PARQUET
from lmtool.data.table_writer import Part, require_table, table_form, write_pieces, write_table
from lmtool.data.text_records import STANDARD, RecordBlock, require_separate, require_writable
from lmtool.errors import UserError
from lmtool.evaluation.score_table import DECIMALS, Buckets, percentiles, quantiles, score_columns
from lmtool.evaluation.text_scores import BAG, TEXT, TWO, Rows, ScoreJournal, criterion, sums
from lmtool.results import ScoredTexts
from lmtool.runs.corpus import open_run_corpus
from lmtool.runs.run import Run, run_folder
from lmtool.session import Session
from lmtool.system.arrays import FloatArray
from lmtool.text_model import TextModel

ScoredBlock = tuple[RecordBlock | None, Rows, list[str | None]]  # with the errors of its records


def carries(settings: ScoreConfig) -> bool:
    """Return whether the table has fields of the records."""
    return settings.columns is not None or table_form(str(settings.to), _of_standard(settings)) == ".jsonl"


def taken_names(settings: ScoreConfig) -> list[str]:
    """Return the names of the scores that are added to whole records; records may not have fields of these names."""
    whole = settings.to is not None and settings.columns is None and carries(settings)
    given = {"bucket": whole and settings.buckets is not None, "error": whole and settings.on_error is None}
    names = list(_columns(settings, _no_rows(settings), **{name: [] for name in given if given[name]}))
    return names if whole or settings.filter_scores else []


def _of_standard(settings: ScoreConfig) -> str:
    """Return the format of a table on standard output."""
    return ".tsv" if settings.column is None else ".jsonl"


def _no_rows(settings: ScoreConfig) -> Rows:
    return np.empty(0, BAG if settings.target is not None else TEXT if settings.run_out is None else TWO)


def _columns(settings: ScoreConfig, rows: Rows, **others: list[str | None] | None) -> dict[str, Any]:
    """Return the columns of a table of scores. others: additional columns; those that are None are left out."""
    columns = score_columns(rows) | {name: values for name, values in others.items() if values is not None}
    return {settings.prefix + name: values for name, values in columns.items()}


def require_outputs(settings: ScoreConfig, names: list[str]) -> None:
    """Raise UserError for output files in unknown formats, and for one that is also an input."""
    if settings.to is not None:
        require_table(settings.to, _of_standard(settings), bom=settings.bom)
        taken = set(_columns(settings, _no_rows(settings), bucket=[], error=[]))
        for name in settings.columns or ():
            if name in taken:
                remedy = "leave it out, or set prefix=lm_"
                raise UserError(
                    f"columns={settings.columns}: {name!r} is a column of the scores, or occurs twice; {remedy}"
                )
            taken.add(name)
        if settings.text == STANDARD and settings.ranks_texts() and carries(settings):
            raise UserError(
                f"buckets={settings.buckets}: quantiles of the texts need a second reading, and text=- is read once: "
                "set bucket_limits= or bucket_split="
            )
    if settings.filter is not None:
        require_writable(names, settings.column, settings.filter)
        if settings.filter_scores and table_form(settings.filter, _of_standard(settings)) not in (".jsonl", PARQUET):
            raise UserError(
                f"filter={settings.filter}: filter_scores=true needs a file that ends in .jsonl or .parquet"
            )
    require_separate(settings.text, names, to=settings.to, filter=settings.filter)


def write_filtered(
    settings: ScoreConfig, blocks: Iterable[ScoredBlock], journal: ScoreJournal, result: ScoredTexts
) -> None:
    """Write the records that pass the limits; a text without tokens never passes."""
    name, drawn = str(settings.filter), settings.selection == "sample"
    first, second = (np.random.default_rng(settings.seed) if drawn else None for _ in range(2))  # they draw the same
    low, high = settings.min_perplexity, settings.max_perplexity
    if settings.share is not None:
        values = (criterion(rows, settings.max_oov, first) for rows, _ in journal.parts())
        high = next(iter(quantiles(values, [settings.share], Path(name).parent)), None)
    result.max_perplexity, result.min_perplexity, result.kept = None if drawn else high, low, 0
    result.filter = None if name == STANDARD else Path(name)

    def passing() -> Iterator[tuple[RecordBlock, Rows]]:
        for block, rows, _ in blocks:
            assert block is not None, "the records are read"
            values = criterion(rows, settings.max_oov, second)
            plain = values if second is None else criterion(rows, settings.max_oov)
            chosen = (values <= (math.inf if high is None else high)) & (plain >= (-math.inf if low is None else low))
            result.kept = int(result.kept or 0) + int(chosen.sum())
            yield block.where(chosen), rows[chosen]

    if settings.filter_scores:
        records = ((block.fields(), _columns(settings, rows)) for block, rows in passing())
        write_table(_columns(settings, _no_rows(settings)), name, records, of_standard=".jsonl")
    else:
        pieces = (block.content if block.rows is None else block.rows for block, _ in passing())
        write_pieces(pieces, name, "the files have different columns: score them separately")


def write_scores(
    settings: ScoreConfig,
    models: list[TextModel],
    journal: ScoreJournal,
    blocks: Iterable[ScoredBlock],
    result: ScoredTexts,
    session: Session,
) -> None:
    """Write the table of scores. blocks: records with their rows; the records are None if the table has none of their
    fields.
    """
    buckets = None
    if settings.buckets is not None:
        limits = _limits(settings, models, journal, progress=session.progress)
        buckets = Buckets(settings.buckets, limits, settings.max_oov)
    lacking = list(settings.columns or ())  # columns that were in no record so far

    def columns(rows: Rows, errors: list[str | None]) -> dict[str, Any]:
        bucket = None if buckets is None else buckets.put(rows)
        return _columns(settings, rows, bucket=bucket, error=errors if settings.on_error is None else None)

    def parts() -> Iterator[Part]:
        for block, rows, errors in blocks:
            fields = block.fields(settings.columns) if carries(settings) and block is not None else None
            for column in list(lacking):
                if not isinstance(fields, list) or any(record[column] is not None for record in fields):
                    lacking.remove(column)
            yield fields, columns(rows, errors)

    name = str(settings.to)
    result.to = None if name == STANDARD else Path(name)
    write_table(
        columns(_no_rows(settings), []),
        name,
        parts(),
        names=settings.columns or (),
        of_standard=_of_standard(settings),
        decimals={settings.prefix + column: decimals for column, decimals in DECIMALS.items()},
        bom=settings.bom,
    )
    if lacking and journal.rows:
        session.warn(f"columns={settings.columns}: no record has a value for {', '.join(lacking)}: check the names")
    if buckets is not None:
        texts, tokens, oov = buckets.totals.T
        of_each = texts.tolist(), (oov / np.maximum(tokens, 1)).tolist()
        result.buckets = list(zip(buckets.names, [*buckets.limits, None], *of_each, strict=True))


def _limits(settings: ScoreConfig, models: list[TextModel], journal: ScoreJournal, *, progress: bool) -> list[float]:
    """Return the limits of the buckets: the limits that are set, else quantiles of the texts, of a split's sentences or
    of a file.
    """
    if settings.bucket_limits is not None:
        return settings.bucket_limits
    folder, count = Path(str(settings.to)).parent, len(settings.buckets or ())
    shares = settings.bucket_quantiles or [place / count for place in range(1, count)]
    if settings.bucket_percentiles is not None:
        return percentiles(settings.bucket_percentiles, str(settings.bucket_language), shares)
    values: Iterable[FloatArray] = (criterion(rows, settings.max_oov) for rows, _ in journal.parts())
    if settings.bucket_split is not None:
        values = [_sentence_perplexities(settings, models[0], settings.bucket_split, progress=progress)]
    found = quantiles(values, shares, folder)
    if not found:
        raise UserError(f"buckets={settings.buckets}: the text has no tokens, so that there are no quantiles")
    return found


def _sentence_perplexities(settings: ScoreConfig, model: TextModel, name: str, *, progress: bool) -> FloatArray:
    """Return the perplexity of each sentence of a split of the run's data."""
    with open_run_corpus(Run.open(run_folder(settings.run)), settings.store_dir, progress=progress) as corpus:
        if not corpus.sentences:
            raise UserError(f"bucket_split={name}: {corpus.name} has no sentences for quantiles: leave it out")
        split = replace(corpus.split(name), independent_sentences=not settings.across_sentences)
    log_probs = sums(model.model.score_text(split, progress=progress), split.offsets)
    return np.asarray(np.exp(-log_probs / np.diff(split.offsets)))

"""What `lmtool score` writes: the table of scores with its buckets, and the records that pass the limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from lmtool.commands._settings import ScoreConfig
from lmtool.data.readers import JSON_LINES, form_of
from lmtool.data.text_records import STANDARD, RecordBlock, require_separate, require_writable, write_records
from lmtool.errors import UserError
from lmtool.evaluation import score_table
from lmtool.evaluation.text_scores import BAG, TEXT, TWO, Rows, ScoreJournal, criterion, sums
from lmtool.results import ScoredTexts
from lmtool.runs.corpus import open_run_corpus
from lmtool.runs.run import Run, run_folder
from lmtool.session import Session
from lmtool.system.arrays import FloatArray
from lmtool.system.files import atomic_write
from lmtool.text_model import TextModel

Part = tuple[RecordBlock | None, Rows, list[str | None]]  # with the errors of its records


def carries(settings: ScoreConfig) -> bool:
    """Return whether the table has fields of the records."""
    return settings.columns is not None or form_of(table_name(settings)) in JSON_LINES


def taken_names(settings: ScoreConfig) -> list[str]:
    """Return the names of scores that whole records get, and that they may not have already."""
    whole = settings.to is not None and settings.columns is None and carries(settings)
    others = "bucket" * (whole and settings.buckets is not None), "error" * (whole and settings.on_error is None)
    return _score_names(settings, *others) if whole or settings.filter_scores else []


def _score_names(settings: ScoreConfig, *others: str) -> list[str]:
    kind = BAG if settings.target is not None else TEXT if settings.run_out is None else TWO
    return score_table.score_names(kind, *others, prefix=settings.prefix)


def table_name(settings: ScoreConfig, name: str | None = None) -> str:
    """Return a name, that of to= by default, with a suffix if it is standard output: JSON Lines for records,
    tab-separated for lines.
    """
    name = name or str(settings.to)
    if name != STANDARD:
        return name
    return f"{STANDARD}.tsv" if settings.column is None else f"{STANDARD}.jsonl"


def require_outputs(settings: ScoreConfig, names: list[str]) -> None:
    """Raise UserError for output files in unknown formats, and for one that is also an input."""
    if settings.to is not None:
        score_table.require_table(table_name(settings), (".tsv",), bom=settings.bom)
        score_table.require_distinct(
            settings.columns or [], f"columns={settings.columns}", _score_names(settings, "bucket", "error")
        )
        if settings.text == STANDARD and settings.ranks_texts() and carries(settings):
            raise UserError(
                f"buckets={settings.buckets}: quantiles of the texts need a second reading, and text=- is read once: "
                "set bucket_limits= or bucket_split="
            )
    if settings.filter is not None:
        require_writable(names, settings.column, settings.filter, "filter")
        if settings.filter_scores and form_of(table_name(settings, settings.filter)) is None:
            raise UserError(
                f"filter={settings.filter}: filter_scores=true needs a file that ends in .jsonl or .parquet"
            )
    require_separate(settings.text, names, to=settings.to, filter=settings.filter)


def write_filtered(
    settings: ScoreConfig, parts: Iterable[Part], out: IO[bytes] | None, journal: ScoreJournal, result: ScoredTexts
) -> None:
    """Write the records that pass the limits; texts without tokens do not. out: standard output, if filter= is that."""
    assert settings.filter is not None, "the caller has asked"
    rngs = [np.random.default_rng(settings.seed) if settings.selection == "sample" else None for _ in range(2)]
    most, first, second = settings.max_perplexity, *rngs  # which draw the same, for two readings
    if settings.share is not None:
        values = (criterion(rows, settings.max_oov, first) for rows, _ in journal.parts())
        most = next(iter(score_table.quantiles(values, [settings.share], Path(settings.filter).parent)), None)
    low, high = (
        -math.inf if settings.min_perplexity is None else settings.min_perplexity,
        math.inf if most is None else most,
    )
    result.max_perplexity, result.min_perplexity, result.kept = (
        most if second is None else None,
        settings.min_perplexity,
        0,
    )
    result.filter = None if settings.filter == STANDARD else Path(settings.filter)

    def passing() -> Iterator[tuple[RecordBlock, Rows]]:
        for block, rows, _ in parts:
            assert block is not None, "the records are read"
            values = criterion(rows, settings.max_oov, second)
            plain = values if second is None else criterion(rows, settings.max_oov)
            chosen = (values <= high) & (plain >= low)
            result.kept = int(result.kept or 0) + int(chosen.sum())
            yield block.where(chosen), rows[chosen]

    with nullcontext(out) if result.filter is None else atomic_write(result.filter) as temporary:
        assert temporary is not None, "one of the two"
        if settings.filter_scores:
            name = table_name(settings, settings.filter)
            records = ((rows, block.fields(), list[str | None]()) for block, rows in passing())
            score_table.write_table(records, journal.dtype, None, temporary, name, prefix=settings.prefix)
        else:
            write_records((block for block, _ in passing()), temporary, settings.filter)


def write_scores(
    settings: ScoreConfig,
    models: list[TextModel],
    journal: ScoreJournal,
    pairs: Iterable[Part],
    out: IO[bytes] | None,
    result: ScoredTexts,
    session: Session,
) -> None:
    """Write the table of scores. pairs: blocks of records, which may be None if the table has no fields of theirs, with
    their rows. out: standard output, if to= is that.
    """
    buckets = None
    if settings.buckets is not None:
        limits = _limits(settings, models, journal, progress=session.progress)
        buckets = score_table.Buckets(settings.buckets, limits, settings.max_oov)
    has_fields, name = carries(settings), table_name(settings)
    lacking = list(settings.columns or ())  # the columns that no record has had so far

    def parts() -> Iterator[tuple[Rows, Any, list[str | None]]]:
        for block, rows, errors in pairs:
            fields = block.fields(settings.columns) if has_fields and block is not None else None
            for column in list(lacking):
                if not isinstance(fields, list) or any(record[column] is not None for record in fields):
                    lacking.remove(column)
            yield rows, fields, errors

    result.to = Path(name) if out is None else None
    with nullcontext(out) if result.to is None else atomic_write(result.to) as file:
        assert file is not None, "one of the two"
        given, errors = (parts(), journal.dtype, buckets, file, name, settings.columns or ()), settings.on_error is None
        score_table.write_table(*given, bom=settings.bom, prefix=settings.prefix, errors=errors)
    if lacking and journal.rows:
        session.warn(f"columns={settings.columns}: no record has a value for {', '.join(lacking)}: check the names")
    if buckets is not None:
        texts, tokens, oov = buckets.totals.T
        of_each = texts.tolist(), (oov / np.maximum(tokens, 1)).tolist()
        result.buckets = list(zip(buckets.names, [*buckets.limits, None], *of_each, strict=True))


def _limits(settings: ScoreConfig, models: list[TextModel], journal: ScoreJournal, *, progress: bool) -> list[float]:
    """Return the limits of the buckets: as set, else quantiles of the texts, of the sentences of a split or of a
    file of percentiles.

    Raises UserError if there are no tokens to compute quantiles from, and for a file without these percentiles.
    """
    if settings.bucket_limits is not None:
        return settings.bucket_limits
    folder, count = Path(str(settings.to)).parent, len(settings.buckets or ())
    shares = settings.bucket_quantiles or [place / count for place in range(1, count)]
    if settings.bucket_percentiles is not None:
        return score_table.percentiles(settings.bucket_percentiles, str(settings.bucket_language), shares)
    if settings.bucket_split is None:
        found = score_table.quantiles(
            (criterion(rows, settings.max_oov) for rows, _ in journal.parts()), shares, folder
        )
    else:
        values = _sentence_perplexities(settings, models[0], settings.bucket_split, progress=progress)
        found = score_table.quantiles([values], shares, folder)
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

"""The scores of texts, kept block by block in a journal from which an interrupted `lmtool score` resumes; the table of
scores with its buckets, and the records that pass the limits.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lmtool import __version__
from lmtool.commands._settings import ScoreConfig
from lmtool.config.data import Normalize
from lmtool.config.rules import format_value
from lmtool.data.choose_vocabulary import piece_writer
from lmtool.data.faults import STOP
from lmtool.data.readers import PARQUET, format_of_name
from lmtool.data.table_writer import Part, require_table, table_format, write_pieces, write_table
from lmtool.data.text_files import file_stamp, file_stamps, text_file, text_files
from lmtool.data.text_form import normalize_texts
from lmtool.data.text_records import STANDARD, RecordBlock, record_blocks, require_separate, require_writable
from lmtool.data.tokenizer import TextBlock
from lmtool.errors import RecordError, UserError
from lmtool.evaluation.hashed_ngrams import NgramWeights
from lmtool.evaluation.metrics import READ_ALONE
from lmtool.evaluation.score_table import DECIMALS, Buckets, percentiles, quantiles, score_columns
from lmtool.evaluation.text_scores import BAG, TEXT, TWO, Rows, ScoreJournal, ScoringModel, TextsScorer, criterion, sums
from lmtool.results import NOT_COMPARABLE, ScoredTexts
from lmtool.results.scores import perplexity_of
from lmtool.runs.corpus import open_run_corpus
from lmtool.runs.load import load, load_named
from lmtool.runs.run import Run, run_folder
from lmtool.session import Session
from lmtool.system.arrays import FloatArray
from lmtool.system.parallel import read_ahead
from lmtool.system.terminal import token_bar
from lmtool.text_model import TextModel

ScoredBlock = tuple[RecordBlock | None, Rows, list[str | None]]  # with the errors of its records


def carries(settings: ScoreConfig) -> bool:
    """Return whether the table has fields of the records."""
    return settings.columns is not None or table_format(str(settings.to), _standard_format(settings)) == ".jsonl"


def needs_all_scores(settings: ScoreConfig) -> bool:
    """Return whether nothing can be written before all texts are scored: a limit is a quantile of their scores."""
    return settings.ranks_texts() or (settings.to is None and settings.share is not None)


def taken_names(settings: ScoreConfig) -> list[str]:
    """Return the names of the scores that are added to whole records; records may not have fields of these names."""
    whole = settings.to is not None and settings.columns is None and carries(settings)
    given = {"bucket": whole and settings.buckets is not None, "error": whole and settings.on_error is None}
    names = list(_columns(settings, _no_rows(settings), **{name: [] for name in given if given[name]}))
    return names if whole or settings.filter_scores else []


def _standard_format(settings: ScoreConfig) -> str:
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
        require_table(settings.to, _standard_format(settings), bom=settings.bom)
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
        filter_format = table_format(settings.filter, _standard_format(settings))
        if settings.filter_scores and filter_format not in (".jsonl", PARQUET):
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
        write_table(_columns(settings, _no_rows(settings)), name, records, standard_format=".jsonl")
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
    """Write the table of scores. blocks: their records are None if the table has none of their fields."""
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
        standard_format=_standard_format(settings),
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
    """Return the limits of the buckets: those that are set, else quantiles of the texts, of a split or of a file."""
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
    with open_run_corpus(Run.open(run_folder(settings.run)), settings.store_dir, progress=progress) as corpus:
        if not corpus.sentences:
            raise UserError(f"bucket_split={name}: {corpus.name} has no sentences for quantiles: leave it out")
        split = replace(corpus.split(name), independent_sentences=not settings.across_sentences)
    log_probs = sums(model.model.score_text(split, progress=progress), split.offsets)
    return np.asarray(np.exp(-log_probs / np.diff(split.offsets)))


def load_scorer(settings: ScoreConfig, names: list[str], session: Session) -> tuple[list[TextModel], TextsScorer]:
    """Return the models of the runs and their scorer of texts; for target= no models, and a scorer by n-grams."""
    if settings.target is not None:
        session.note("tokens are words and pairs of words; the text is read twice, first for the counts of its n-grams")
        target = text_files(settings.target, "target")
        files = [(name, settings.column if format_of_name(name) else None) for name in target]
        both = files, [(name, settings.column) for name in names]
        passed = settings.on_error != STOP
        blocks = (
            (b for name, column in each for b in record_blocks([name], column, [], passed=passed)) for each in both
        )
        weights = NgramWeights(*((texts for _, texts, _ in _read(settings, read)) for read in blocks))
        if not weights.sizes[0]:
            raise UserError(f"target={settings.target}: it has no words: name text like that to be selected")
        return [], weights
    models = [load_named(settings.run, settings.arpa, settings.device)]
    if settings.run_out is not None:
        models.append(load(settings.run_out, settings.device))
    models = [model.reading(settings.blank_lines) for model in models]
    one_text = settings.across_sentences and settings.column is None  # all lines; scores depend on those before
    scoring = [ScoringModel(each.model, each.form, each.name) for each in models]
    scorer = TextsScorer(*scoring, across=settings.across_sentences, one_text=one_text)
    if scorer.across_sentences is False:
        session.note(READ_ALONE)
    if settings.normalize is Normalize.ccnet:
        session.note("each text is one line, normalized as in CCNet")
    if settings.tokenizer is not None:
        session.note(f"tokens are pieces of {settings.tokenizer}, and </s>: log p and perplexity are of these")
    if not all(model.normalized for model in models):
        session.note(f"these scores do not sum to one: {NOT_COMPARABLE}")
    if not scorer.same_words:
        session.note(
            "the two runs have different words, so that <unk> has a different meaning in each: for the difference of "
            "Moore & Lewis train both with one data.vocabulary.file"
        )
    return models, scorer


def identity_of(settings: ScoreConfig, names: list[str]) -> dict[str, Any]:
    """Return plain values that are equal if and only if the scores of texts are."""
    given = [settings.run_out]
    if settings.target is None:
        given.append(text_file(settings.arpa, "arpa") if settings.arpa else str(run_folder(settings.run)))
    runs = [_run_identity(Path(name)) for name in given if name is not None]
    named = ("column", "columns", "across_sentences", "device", "on_error", "normalize", "blank_lines")
    values: dict[str, Any] = {name: format_value(getattr(settings, name)) for name in named}
    files = {"tokenizer": settings.tokenizer, "target": settings.target}
    stamps = {key: name and file_stamps(text_files(name, key)) for key, name in files.items()}
    values |= {"version": __version__, "runs": runs, "text": file_stamps(names), "taken": taken_names(settings)}
    return values | stamps


def _run_identity(path: Path) -> list[object]:
    if path.is_file():
        return file_stamp(str(path))
    finished = Run.open(path)
    digest = hashlib.sha256((path / "run.json").read_bytes()).hexdigest()
    return [*file_stamp(str(path / "run.json")), digest, *(_run_identity(Path(member)) for member in finished.members)]


def score_blocks(
    settings: ScoreConfig,
    names: list[str],
    scorer: TextsScorer,
    journal: ScoreJournal,
    result: ScoredTexts,
    *,
    progress: bool,
) -> Iterator[ScoredBlock]:
    """Score the texts that the journal does not have yet; yield each block with its rows. Time is added to `result`."""
    if journal.complete:
        return
    start, tokens = time.perf_counter(), 0
    passed, taken = settings.on_error != STOP, taken_names(settings)
    columns = settings.columns or (None if taken or settings.to == STANDARD else [])
    read = record_blocks(names, settings.column, columns, passed=passed, by_line=settings.flush == "line")
    blocks = islice(read, journal.blocks, None)
    with token_bar(None, shown=progress) as bar:
        for block, texts, faults in _read(settings, blocks, taken):
            rows, others = scorer.each(texts, progress=progress)
            for k, fault in others.items():
                faults.setdefault(k, f"{block.records()[k][0]}: {fault}")
                if not passed:
                    raise RecordError(faults[k])
            journal.add(rows, faults)
            chosen, rows, errors = journal.kept(rows, list(map(faults.get, range(len(rows)))))
            found = int(rows["tokens"].sum())
            tokens += found
            bar.update(found)
            result.seconds = time.perf_counter() - start
            result.tokens_per_second = tokens / result.seconds if tokens else None
            yield block.where(chosen), rows, errors
    if settings.text != STANDARD and journal.rows == journal.faults.count > 0:
        raise UserError(f"{settings.text}: every record is faulty: {journal.faults.first_messages[0]}")
    journal.finish()


def journaled_blocks(
    settings: ScoreConfig, names: list[str], journal: ScoreJournal, *, whole: bool = False
) -> Iterator[ScoredBlock]:
    """Return the rows of the journal with the records, read a second time: whole, or as far as the table has them."""
    if not whole and not carries(settings):
        return ((None, *part) for part in journal.parts())
    columns, passed = None if whole else settings.columns, settings.on_error != STOP
    return journal.of_blocks(record_blocks(names, settings.column, columns, passed=passed))


def add_totals(result: ScoredTexts, journal: ScoreJournal) -> None:
    """Add up the rows of the journal in `result`."""
    for rows, _ in journal.parts():
        result.texts += len(rows)
        result.empty += int((rows["tokens"] == 0).sum())
        result.tokens += int(rows["tokens"].sum())
        result.oov += int(rows["oov"].sum())
        result.log_prob += float(rows["log_prob"].sum())
    if result.tokens and result.target is None:
        result.perplexity = perplexity_of(result.log_prob, result.tokens)
    result.faulty = journal.faults.count


def _read(
    settings: ScoreConfig, blocks: Iterable[RecordBlock], taken: Sequence[str] = ()
) -> Iterator[tuple[RecordBlock, TextBlock, dict[int, str]]]:
    """Yield each block with its texts in normal form and in pieces, as far as set, and the faults of its records: taken
    names of fields are faults, too.
    """
    read = ((block, *block.texts(passed=settings.on_error != STOP, taken=taken)) for block in blocks)
    if settings.normalize is not None:
        form = settings.normalize
        read = ((block, normalize_texts(texts, form), faults) for block, texts, faults in read)
    if settings.tokenizer is not None:
        in_pieces = piece_writer(text_file(settings.tokenizer, "tokenizer"))
        read = ((block, in_pieces(texts), faults) for block, texts, faults in read)
    return read_ahead(read, waits=settings.text != STANDARD)

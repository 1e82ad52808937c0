"""`lmtool score`: run + many texts -> one number each, and the texts that pass a limit."""

from __future__ import annotations

import hashlib
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from lmtool import __version__
from lmtool.config.data import Normalize
from lmtool.config.model_verbs import ScoreConfig
from lmtool.config.rules import as_written
from lmtool.data.choose_vocabulary import piece_writer
from lmtool.data.faults import NULL, STOP
from lmtool.data.oov import text_warning
from lmtool.data.readers import JSON_LINES, form_of
from lmtool.data.text_files import file_stamp, file_stamps, text_file, text_files
from lmtool.data.text_form import in_normal_form
from lmtool.data.text_records import (
    STANDARD,
    RecordBlock,
    record_blocks,
    require_separate,
    require_writable,
    write_records,
)
from lmtool.data.tokenizer import TextBlock
from lmtool.errors import RecordError, UserError
from lmtool.evaluation.hashed_ngrams import NgramWeights
from lmtool.evaluation.metrics import READ_ALONE
from lmtool.evaluation.score_table import (
    Buckets,
    percentiles,
    quantiles,
    require_distinct,
    require_table,
    score_names,
    write_table,
)
from lmtool.evaluation.text_scores import BAG, TEXT, TWO, Rows, ScoreJournal, ScoringModel, TextsScorer, criterion, sums
from lmtool.results import NOT_COMPARABLE, ScoredTexts
from lmtool.runs.corpus import open_run_corpus
from lmtool.runs.load import load, load_named
from lmtool.runs.run import Run, run_folder
from lmtool.session import Session
from lmtool.system.arrays import FloatArray
from lmtool.system.files import atomic_write
from lmtool.system.parallel import read_ahead
from lmtool.system.terminal import table_output, token_bar
from lmtool.text_model import TextModel

Part = tuple[RecordBlock | None, Rows, list[str | None]]  # with the errors of its records


def run(config: ScoreConfig, session: Session) -> ScoredTexts:
    """Score each text of files, write the table of scores, and the texts that pass the limits."""
    out = table_output() if STANDARD in (config.to, config.filter) else None
    names = [STANDARD] if config.text == STANDARD else text_files(config.text, "text")
    _require_outputs(config, names)
    models, scorer = _load_scorer(config, names, session)
    target = session.out / "scores" if out is not None else Path(str(config.to or config.filter))
    once = STANDARD in (config.text, config.to, config.filter)  # not resumed; each block is written once it is scored
    streams = once and not config.ranks_texts() and (config.to is not None or config.share is None)
    identity = None if once or scorer.one_text else _identity(config, names)
    with ScoreJournal.open(Path(f"{target}.partial"), identity, scorer.dtype, config.on_error or NULL) as journal:
        if journal.rows:
            session.note(f"resuming: {journal.rows:,} texts have their scores in {target}.partial")
        used = [model.name for model in models] or [f"n-grams of {config.target}", config.text]
        result = ScoredTexts(used[0], used[1] if len(used) > 1 else None, config.text)
        result.across_sentences, result.most_oov = scorer.across_sentences, config.most_oov
        result.resumed = journal.rows
        pairs = _scored(config, names, scorer, journal, result, progress=session.progress)
        if not streams:
            deque(pairs, maxlen=0)
            pairs = _again(config, names, journal)
        if config.to is not None:
            _write_scores(config, models, journal, pairs, out if config.to == STANDARD else None, result, session)
        elif streams:
            _write_filtered(config, pairs, out, journal, result)
        _add_totals(result, journal)
        session.note(*journal.faults.notes())
        for model in models[:1]:
            session.warn(*text_warning(config.text, result.oov, result.tokens, scorer.unknown, model.vocabulary))
        if config.filter is not None and result.kept is None:
            blocks = record_blocks(names, config.column, passed=config.on_error != STOP)
            _write_filtered(config, journal.of_blocks(blocks), out, journal, result)
    result.notes = session.notes
    session.finish(result.as_json(), f"{result.heading()}\n{result.lines()}", result.to, result.filter)
    return result


def _load_scorer(config: ScoreConfig, names: list[str], session: Session) -> tuple[list[TextModel], TextsScorer]:
    """Return the models of run= or arpa=, and of run_out= if it is set, and their scorer of texts; for target= no
    models, and the scorer by its n-grams and those of the texts, which are read for them.
    """
    if config.target is not None:
        session.note("tokens are words and pairs of words; the text is read twice, first for the counts of its n-grams")
        target = text_files(config.target, "target")
        files = [(name, config.column if form_of(name) else None) for name in target]
        both = files, [(name, config.column) for name in names]
        passed = config.on_error != STOP
        blocks = (
            (b for name, column in each for b in record_blocks([name], column, [], passed=passed)) for each in both
        )
        weights = NgramWeights(*((texts for _, texts, _ in _read(config, read)) for read in blocks))
        if not weights.sizes[0]:
            raise UserError(f"target={config.target}: it has no words: name text like that to be selected")
        return [], weights
    models = [load_named(config.run, config.arpa, config.device, config.store_dir)]
    if config.run_out is not None:
        models.append(load(config.run_out, config.device, store_dir=config.store_dir))
    models = [model.reading(config.blank_lines) for model in models]
    one_text = config.across_sentences and config.column is None  # all lines; scores depend on those before
    scorer = scorer_of(models, across=config.across_sentences, one_text=one_text)
    if scorer.across_sentences is False:
        session.note(READ_ALONE)
    if config.normalize is Normalize.ccnet:
        session.note("each text is one line, normalized as in CCNet")
    if config.tokenizer is not None:
        session.note(f"tokens are pieces of {config.tokenizer}, and </s>: log p and perplexity are of these")
    if not all(model.normalised for model in models):
        session.note(f"these scores do not sum to one: {NOT_COMPARABLE}")
    if not scorer.same_words:
        session.note(
            "the two runs have different words, so that <unk> has a different meaning in each: for the difference of "
            "Moore & Lewis train both with one data.vocabulary.file"
        )
    return models, scorer


def scorer_of(models: list[TextModel], *, across: bool, one_text: bool = False) -> TextsScorer:
    """Return a scorer of texts by one model or two, with the settings of TextsScorer. Raises UserError likewise."""
    named = (ScoringModel(each.model, each.form, each.name) for each in models)
    return TextsScorer(*named, across=across, one_text=one_text)


def _identity(config: ScoreConfig, names: list[str]) -> dict[str, Any]:
    """Return plain values that are equal if and only if the scores of texts are."""
    given = [text_file(config.arpa, "arpa")] if config.arpa else [] if config.target else [run_folder(config.run)]
    runs = [_run_identity(Path(name)) for name in (*given, config.run_out) if name is not None]
    named = ("column", "columns", "across_sentences", "device", "on_error", "normalize", "blank_lines")
    settings = {name: as_written(getattr(config, name)) for name in named}
    files = {"tokenizer": config.tokenizer, "target": config.target}
    stamps = {key: name and file_stamps(text_files(name, key)) for key, name in files.items()}
    return (
        settings | stamps | {"version": __version__, "runs": runs, "text": file_stamps(names), "taken": _taken(config)}
    )


def _run_identity(path: Path) -> list[object]:
    if path.is_file():
        return file_stamp(str(path))
    finished = Run.open(path)
    digest = hashlib.sha256((path / "run.json").read_bytes()).hexdigest()
    return [*file_stamp(str(path / "run.json")), digest, *(_run_identity(Path(member)) for member in finished.members)]


def _scored(
    config: ScoreConfig,
    names: list[str],
    scorer: TextsScorer,
    journal: ScoreJournal,
    result: ScoredTexts,
    *,
    progress: bool,
) -> Iterator[Part]:
    """Score the texts that the journal does not have yet; yield each block with its rows. Time is added to `result`."""
    if journal.complete:
        return
    start, tokens = time.perf_counter(), 0
    passed, taken = config.on_error != STOP, _taken(config)
    columns = config.columns or (None if taken or config.to == STANDARD else [])
    read = record_blocks(names, config.column, columns, passed=passed, by_line=config.flush == "line")
    blocks = islice(read, journal.blocks, None)
    with token_bar(None, shown=progress) as bar:
        for block, texts, faults in _read(config, blocks, taken):
            rows, others = scorer.each(texts, progress=progress)
            for k, fault in others.items():
                faults.setdefault(k, f"{block.place(k)}: {fault}")
                if not passed:
                    raise RecordError(faults[k])
            journal.add(rows, faults)
            chosen, rows, errors = journal.kept(rows, [faults.get(k) for k in range(len(rows))])
            found = int(rows["tokens"].sum())
            tokens += found
            bar.update(found)
            result.seconds = time.perf_counter() - start
            result.tokens_per_second = tokens / result.seconds if tokens else None
            yield block.where(chosen), rows, errors
    journal.finish()


def _read(
    config: ScoreConfig, blocks: Iterable[RecordBlock], taken: Sequence[str] = ()
) -> Iterator[tuple[RecordBlock, TextBlock, dict[int, str]]]:
    """Yield each block with its texts in normal form and in pieces, as far as set, and the faults of its records: taken
    names of fields are faults, too.
    """
    read = ((block, *block.texts(passed=config.on_error != STOP, taken=taken)) for block in blocks)
    if config.normalize is not None:
        form = config.normalize
        read = ((block, in_normal_form(texts, form), faults) for block, texts, faults in read)
    if config.tokenizer is not None:
        in_pieces = piece_writer(text_file(config.tokenizer, "tokenizer"))
        read = ((block, in_pieces(texts), faults) for block, texts, faults in read)
    return read_ahead(read, waits=config.text != STANDARD)


def _again(config: ScoreConfig, names: list[str], journal: ScoreJournal) -> Iterator[Part]:
    """Yield all rows, with the records, read a second time, if the table has some of their fields."""
    if _carries(config):
        passed = config.on_error != STOP
        yield from journal.of_blocks(record_blocks(names, config.column, config.columns, passed=passed))
    else:
        yield from ((None, *part) for part in journal.parts())


def _carries(config: ScoreConfig) -> bool:
    """Return whether the table has fields of the records."""
    return config.columns is not None or form_of(_table_name(config)) in JSON_LINES


def _taken(config: ScoreConfig) -> list[str]:
    """Return the names of scores that whole records get, and that they may not have already."""
    whole = config.to is not None and config.columns is None and _carries(config)
    others = "bucket" * (whole and config.buckets is not None), "error" * (whole and config.on_error is None)
    return _score_names(config, *others) if whole or config.filter_scores else []


def _score_names(config: ScoreConfig, *others: str) -> list[str]:
    return score_names(_rows_of(config), *others, prefix=config.prefix)


def _rows_of(config: ScoreConfig) -> np.dtype[Any]:
    """Return the type of the scores of a text."""
    return BAG if config.target is not None else TEXT if config.run_out is None else TWO


def _table_name(config: ScoreConfig, name: str | None = None) -> str:
    """Return a name, that of to= by default, with a suffix if it is standard output: JSON Lines for records,
    tab-separated for lines.
    """
    name = name or str(config.to)
    if name != STANDARD:
        return name
    return f"{STANDARD}.tsv" if config.column is None else f"{STANDARD}.jsonl"


def _add_totals(result: ScoredTexts, journal: ScoreJournal) -> None:
    """Add the figures of all texts together."""
    for rows, _ in journal.parts():
        result.texts += len(rows)
        result.empty += int((rows["tokens"] == 0).sum())
        result.tokens += int(rows["tokens"].sum())
        result.oov += int(rows["oov"].sum())
        result.log_prob += float(rows["log_prob"].sum())


def _require_outputs(config: ScoreConfig, names: list[str]) -> None:
    """Raise UserError for output files in unknown formats, and for one that is also an input."""
    if config.to is not None:
        require_table(_table_name(config), (".tsv",), bom=config.bom)
        require_distinct(config.columns or [], f"columns={config.columns}", _score_names(config, "bucket", "error"))
        if config.text == STANDARD and config.ranks_texts() and _carries(config):
            raise UserError(
                f"buckets={config.buckets}: quantiles of the texts need a second reading, and text=- is read once: set "
                "bucket_limits= or bucket_split="
            )
    if config.filter is not None:
        require_writable(names, config.column, config.filter, "filter")
        if config.filter_scores and form_of(_table_name(config, config.filter)) is None:
            raise UserError(f"filter={config.filter}: filter_scores=true needs a file that ends in .jsonl or .parquet")
    require_separate(config.text, names, to=config.to, filter=config.filter)


def _write_filtered(
    config: ScoreConfig, parts: Iterable[Part], out: IO[bytes] | None, journal: ScoreJournal, result: ScoredTexts
) -> None:
    """Write the records that pass the limits; texts without tokens do not. out: standard output, if filter= is that."""
    assert config.filter is not None, "the caller has asked"
    rngs = [np.random.default_rng(config.seed) if config.selection == "sample" else None for _ in range(2)]
    most, first, second = config.most, *rngs  # which draw the same, for two readings
    if config.share is not None:
        values = (criterion(rows, config.most_oov, first) for rows, _ in journal.parts())
        most = next(iter(quantiles(values, [config.share], Path(config.filter).parent)), None)
    low, high = -math.inf if config.least is None else config.least, math.inf if most is None else most
    result.most, result.least, result.kept = most if second is None else None, config.least, 0
    result.filter = None if config.filter == STANDARD else Path(config.filter)

    def passing() -> Iterator[tuple[RecordBlock, Rows]]:
        for block, rows, _ in parts:
            assert block is not None, "the records are read"
            chosen = (criterion(rows, config.most_oov, second) <= high) & (criterion(rows, config.most_oov) >= low)
            result.kept = int(result.kept or 0) + int(chosen.sum())
            yield block.where(chosen), rows[chosen]

    with nullcontext(out) if result.filter is None else atomic_write(result.filter) as temporary:
        assert temporary is not None, "one of the two"
        if config.filter_scores:
            write_table(
                ((rows, block.fields(), []) for block, rows in passing()),
                journal.dtype,
                None,
                temporary,
                _table_name(config, config.filter),
                prefix=config.prefix,
            )
        else:
            write_records((block for block, _ in passing()), temporary, config.filter)


def _write_scores(
    config: ScoreConfig,
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
    if config.buckets is not None:
        limits = _limits(config, models, journal, progress=session.progress)
        buckets = Buckets(config.buckets, limits, config.most_oov)
    carries, name = _carries(config), _table_name(config)
    lacking = list(config.columns or ())  # the columns that no record has had so far

    def parts() -> Iterator[tuple[Rows, Any, list[str | None]]]:
        for block, rows, errors in pairs:
            fields = block.fields(config.columns) if carries and block is not None else None
            for column in list(lacking):
                if not isinstance(fields, list) or any(record[column] is not None for record in fields):
                    lacking.remove(column)
            yield rows, fields, errors

    result.to = Path(name) if out is None else None
    with nullcontext(out) if result.to is None else atomic_write(result.to) as file:
        assert file is not None, "one of the two"
        given, errors = (parts(), journal.dtype, buckets, file, name, config.columns or ()), config.on_error is None
        write_table(*given, bom=config.bom, prefix=config.prefix, errors=errors)
    if lacking and journal.rows:
        session.warn(f"columns={config.columns}: no record has a value for {', '.join(lacking)}: check the names")
    if buckets is not None:
        texts, tokens, oov = buckets.totals.T
        of_each = texts.tolist(), (oov / np.maximum(tokens, 1)).tolist()
        result.buckets = list(zip(buckets.names, [*buckets.limits, None], *of_each, strict=True))


def _limits(config: ScoreConfig, models: list[TextModel], journal: ScoreJournal, *, progress: bool) -> list[float]:
    """Return the limits of the buckets: as set, else quantiles of the texts, of the sentences of a split or of a
    file of percentiles.

    Raises UserError if there are no tokens to compute quantiles from, and for a file without these percentiles.
    """
    if config.bucket_limits is not None:
        return config.bucket_limits
    folder, count = Path(str(config.to)).parent, len(config.buckets or ())
    shares = config.bucket_quantiles or [place / count for place in range(1, count)]
    if config.bucket_percentiles is not None:
        return percentiles(config.bucket_percentiles, str(config.bucket_language), shares)
    if config.bucket_split is None:
        found = quantiles((criterion(rows, config.most_oov) for rows, _ in journal.parts()), shares, folder)
    else:
        values = _sentence_perplexities(config, models[0], config.bucket_split, progress=progress)
        found = quantiles([values], shares, folder)
    if not found:
        raise UserError(f"buckets={config.buckets}: the text has no tokens, so that there are no quantiles")
    return found


def _sentence_perplexities(config: ScoreConfig, model: TextModel, name: str, *, progress: bool) -> FloatArray:
    """Return the perplexity of each sentence of a split of the run's data."""
    with open_run_corpus(Run.open(run_folder(config.run)), config.store_dir, progress=progress) as corpus:
        if not corpus.sentences:
            raise UserError(f"bucket_split={name}: {corpus.name} has no sentences for quantiles: leave it out")
        split = replace(corpus.split(name), independent_sentences=not config.across_sentences)
    log_probs = sums(model.model.score_text(split, progress=progress), split.offsets)
    return np.asarray(np.exp(-log_probs / np.diff(split.offsets)))

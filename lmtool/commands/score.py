"""`lmtool score`: run + many texts -> one number each, and the texts that pass a limit."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from lmtool import __version__
from lmtool.commands._score_outputs import (
    Part,
    carries,
    require_outputs,
    taken_names,
    write_filtered,
    write_scores,
)
from lmtool.config.data import Normalize
from lmtool.config.model_verbs import ScoreConfig
from lmtool.config.rules import as_written
from lmtool.data.choose_vocabulary import piece_writer
from lmtool.data.faults import NULL, STOP
from lmtool.data.oov import text_warning
from lmtool.data.readers import form_of
from lmtool.data.text_files import file_stamp, file_stamps, text_file, text_files
from lmtool.data.text_form import in_normal_form
from lmtool.data.text_records import (
    STANDARD,
    RecordBlock,
    record_blocks,
)
from lmtool.data.tokenizer import TextBlock
from lmtool.errors import RecordError, UserError
from lmtool.evaluation.hashed_ngrams import NgramWeights
from lmtool.evaluation.metrics import READ_ALONE
from lmtool.evaluation.text_scores import ScoreJournal, ScoringModel, TextsScorer
from lmtool.results import NOT_COMPARABLE, ScoredTexts
from lmtool.runs.load import load, load_named
from lmtool.runs.run import Run, run_folder
from lmtool.session import Session
from lmtool.system.parallel import read_ahead
from lmtool.system.terminal import table_output, token_bar
from lmtool.text_model import TextModel


def run(config: ScoreConfig, session: Session) -> ScoredTexts:
    """Score each text of files, write the table of scores, and the texts that pass the limits."""
    out = table_output() if STANDARD in (config.to, config.filter) else None
    names = [STANDARD] if config.text == STANDARD else text_files(config.text, "text")
    require_outputs(config, names)
    models, scorer = _load_scorer(config, names, session)
    target = session.out / "scores" if out is not None else Path(str(config.to or config.filter))
    once = STANDARD in (config.text, config.to, config.filter)  # not resumed; each block is written once it is scored
    streams = once and not config.ranks_texts() and (config.to is not None or config.share is None)
    identity = None if once or scorer.one_text else _identity(config, names)
    with ScoreJournal.open(Path(f"{target}.partial"), identity, scorer.dtype, config.on_error or NULL) as journal:
        if journal.rows:
            session.note(f"resuming: {journal.rows:,} texts have their scores in {target}.partial")
        used = [model.name for model in models] or [f"n-grams of {config.target}"]
        result = ScoredTexts(used[0], used[1] if len(used) > 1 else None, config.text)
        result.across_sentences, result.most_oov = scorer.across_sentences, config.most_oov
        result.resumed, result.target = journal.rows, config.target
        pairs = _scored(config, names, scorer, journal, result, progress=session.progress)
        if not streams:
            deque(pairs, maxlen=0)
            pairs = _again(config, names, journal)
        if config.to is not None:
            write_scores(config, models, journal, pairs, out if config.to == STANDARD else None, result, session)
        elif streams:
            write_filtered(config, pairs, out, journal, result)
        _add_totals(result, journal)
        result.faulty = journal.faults.count
        session.note(*journal.faults.notes())
        for model in models[:1]:
            session.warn(*text_warning(config.text, result.oov, result.tokens, scorer.unknown, model.vocabulary))
        if config.filter is not None and result.kept is None:
            blocks = record_blocks(names, config.column, passed=config.on_error != STOP)
            write_filtered(config, journal.of_blocks(blocks), out, journal, result)
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
    models = [load_named(config.run, config.arpa, config.device)]
    if config.run_out is not None:
        models.append(load(config.run_out, config.device))
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
    settings: dict[str, Any] = {name: as_written(getattr(config, name)) for name in named}
    files = {"tokenizer": config.tokenizer, "target": config.target}
    stamps = {key: name and file_stamps(text_files(name, key)) for key, name in files.items()}
    settings |= {"version": __version__, "runs": runs, "text": file_stamps(names), "taken": taken_names(config)}
    return settings | stamps


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
    passed, taken = config.on_error != STOP, taken_names(config)
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
            chosen, rows, errors = journal.kept(rows, list(map(faults.get, range(len(rows)))))
            found = int(rows["tokens"].sum())
            tokens += found
            bar.update(found)
            result.seconds = time.perf_counter() - start
            result.tokens_per_second = tokens / result.seconds if tokens else None
            yield block.where(chosen), rows, errors
    if config.text != STANDARD and journal.rows == journal.faults.count > 0:
        raise UserError(f"{config.text}: every record is faulty: {journal.faults.of_first[0]}")
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
    if carries(config):
        passed = config.on_error != STOP
        yield from journal.of_blocks(record_blocks(names, config.column, config.columns, passed=passed))
    else:
        yield from ((None, *part) for part in journal.parts())


def _add_totals(result: ScoredTexts, journal: ScoreJournal) -> None:
    """Add the figures of all texts together."""
    for rows, _ in journal.parts():
        result.texts += len(rows)
        result.empty += int((rows["tokens"] == 0).sum())
        result.tokens += int(rows["tokens"].sum())
        result.oov += int(rows["oov"].sum())
        result.log_prob += float(rows["log_prob"].sum())

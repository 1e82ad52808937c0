"""Scores of texts, block by block, kept in a journal from which an interrupted `lmtool score` resumes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from lmtool import __version__
from lmtool.commands._score_outputs import ScoredBlock, taken_names
from lmtool.commands._settings import ScoreConfig
from lmtool.config.data import Normalize
from lmtool.config.rules import format_value
from lmtool.data.choose_vocabulary import piece_writer
from lmtool.data.faults import STOP
from lmtool.data.readers import form_of
from lmtool.data.text_files import file_stamp, file_stamps, text_file, text_files
from lmtool.data.text_form import normalize_texts
from lmtool.data.text_records import STANDARD, RecordBlock, record_blocks
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
from lmtool.system.terminal import token_bar
from lmtool.text_model import TextModel


def load_scorer(settings: ScoreConfig, names: list[str], session: Session) -> tuple[list[TextModel], TextsScorer]:
    """Return the models of the runs and their scorer of texts; for target= no models, and a scorer by n-grams."""
    if settings.target is not None:
        session.note("tokens are words and pairs of words; the text is read twice, first for the counts of its n-grams")
        target = text_files(settings.target, "target")
        files = [(name, settings.column if form_of(name) else None) for name in target]
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
        raise UserError(f"{settings.text}: every record is faulty: {journal.faults.of_first[0]}")
    journal.finish()


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

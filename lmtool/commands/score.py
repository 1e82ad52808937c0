"""`lmtool score`: run + many texts -> one number each, and the texts that pass a limit."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool import __version__
from lmtool.config.score_verb import ScoreConfig
from lmtool.results import NOT_COMPARABLE, ScoredTexts
from lmtool.runs.run import Run, run_folder
from lmtool.session import Session
from lmtool.system.files import write_json

if TYPE_CHECKING:
    from lmtool.data.encode import TextBlock
    from lmtool.evaluation.score_journal import ScoreJournal
    from lmtool.evaluation.text_scores import TextsScorer
    from lmtool.text_model import TextModel

SETTINGS = ScoreConfig
STANDARD_INPUT = "-"


def run(config: ScoreConfig, session: Session) -> ScoredTexts:
    """Score each text of files, write the table of scores, and the texts that pass the limits."""
    from lmtool.commands.score_outputs import require_outputs, write_filtered, write_scores
    from lmtool.data.oov import text_warning
    from lmtool.data.text_files import text_files
    from lmtool.evaluation.score_journal import ScoreJournal

    session.use_threads(config.threads)
    names = [] if config.text == STANDARD_INPUT else text_files(config.text, "text")
    require_outputs(config, names)
    models, scorer = _load_scorer(config, session)
    target = Path(str(config.to or config.filter))
    identity = _identity(config, names) if names and not scorer.one_text else None
    with ScoreJournal.open(target.with_name(f"{target.name}.partial"), identity, scorer.dtype) as journal:
        resumed = journal.rows
        if resumed:
            session.note(f"resuming: {resumed:,} texts have their scores in {target}.partial")
        seconds, tokens = _score(config, names, scorer, journal, session)
        result = _totals(config, models, journal)
        result.across_sentences, result.most_oov = scorer.across_sentences, config.most_oov
        for warning in text_warning(config.text, result.oov, result.tokens, scorer.unknown, models[0].vocabulary):
            session.warn(warning)
        result.seconds, result.resumed = seconds, resumed
        result.tokens_per_second = tokens / seconds if tokens else None
        if config.filter is not None:
            write_filtered(config, names, journal, result)
        if config.to is not None:
            write_scores(config, models[0], journal, result, progress=session.progress)
    result.notes = session.notes
    write_json(session.out / "result.json", result.as_json())
    session.say(f"{result.heading()}\n{result.lines()}")
    for written in (result.to, result.filter):
        if written is not None:
            session.say(f"wrote {written}")
    return result


def _load_scorer(config: ScoreConfig, session: Session) -> tuple[list[TextModel], TextsScorer]:
    """The models of run= or arpa=, and of run_out= where it is given, and what scores texts by them."""
    from lmtool.evaluation.score import READ_ALONE
    from lmtool.runs.load import load, load_named

    models = [load_named(config.run, config.arpa, config.device, config.store_dir)]
    if config.run_out is not None:
        models.append(load(config.run_out, config.device, store_dir=config.store_dir))
    models = [model.reading(config.blank_lines) for model in models]
    one_text = config.across_sentences and config.column is None  # all lines; scores depend on those before
    scorer = scorer_of(models, across=config.across_sentences, one_text=one_text)
    if scorer.across_sentences is False:
        session.note(READ_ALONE)
    if not all(model.normalised for model in models):
        session.note(f"these scores do not sum to one: {NOT_COMPARABLE}")
    if not scorer.same_words:
        session.note(
            "the two runs have other words each, and an unknown word is another event for each of them: for the "
            "difference of Moore & Lewis train both with one data.vocabulary.file"
        )
    return models, scorer


def scorer_of(models: list[TextModel], *, across: bool, one_text: bool = False) -> TextsScorer:
    """What scores texts by a model, or by two. Raises UserError as TextsScorer does, whose settings these are."""
    from lmtool.evaluation.text_scores import ScoringModel, TextsScorer

    named = (ScoringModel(each.model, each.form, each.name) for each in models)
    return TextsScorer(*named, across=across, one_text=one_text)


def _identity(config: ScoreConfig, names: list[str]) -> dict[str, Any]:
    """Plain values that are the same where the scores of texts are."""
    from lmtool.data.text_files import file_stamps, text_files

    first = text_files(config.arpa, "arpa")[0] if config.arpa else run_folder(config.run)
    runs = [_run_identity(Path(name)) for name in (first, config.run_out) if name is not None]
    blank_lines = None if config.blank_lines is None else config.blank_lines.value
    settings = {"column": config.column, "across_sentences": config.across_sentences, "device": config.device}
    settings |= {} if blank_lines is None else {"blank_lines": blank_lines}
    return {"version": __version__, "runs": runs, "text": file_stamps(names), **settings}


def _run_identity(path: Path) -> list[object]:
    from lmtool.data.text_files import file_stamp

    if path.is_file():
        return file_stamp(str(path))
    finished = Run.open(path)
    digest = hashlib.sha256((path / "run.json").read_bytes()).hexdigest()
    return [*file_stamp(str(path / "run.json")), digest, *(_run_identity(Path(member)) for member in finished.members)]


def _score(
    config: ScoreConfig, names: list[str], scorer: TextsScorer, journal: ScoreJournal, session: Session
) -> tuple[float, int]:
    """Score the texts that the journal does not have yet; returns the seconds and the number of their tokens."""
    from lmtool.data.text_records import stream_blocks, text_blocks
    from lmtool.system.parallel import read_ahead
    from lmtool.system.terminal import token_bar

    start, tokens = time.perf_counter(), 0
    if journal.complete:
        return 0.0, 0
    blocks: Iterator[TextBlock]
    if names:
        blocks = text_blocks(names, config.column, journal.blocks)
    else:
        blocks = stream_blocks(sys.stdin.buffer, "standard input")
    with token_bar(None, shown=session.progress) as bar:
        for block in read_ahead(blocks):
            rows = scorer(block, progress=session.progress)
            journal.add(rows)
            found = int(rows["tokens"].sum())
            tokens += found
            bar.update(found)
    journal.finish()
    return time.perf_counter() - start, tokens


def _totals(config: ScoreConfig, models: list[TextModel], journal: ScoreJournal) -> ScoredTexts:
    """The figures of all texts together."""
    texts, empty, tokens, oov, log_prob = 0, 0, 0, 0, 0.0
    for rows in journal.parts():
        texts += len(rows)
        empty += int((rows["tokens"] == 0).sum())
        tokens += int(rows["tokens"].sum())
        oov += int(rows["oov"].sum())
        log_prob += float(rows["log_prob"].sum())
    names = [model.name for model in models]
    return ScoredTexts(
        run=names[0],
        run_out=names[1] if len(names) > 1 else None,
        text=config.text,
        texts=texts,
        empty=empty,
        tokens=tokens,
        oov=oov,
        log_prob=log_prob,
    )

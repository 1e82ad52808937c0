"""`lmtool score`: run + many texts -> one number each, and the texts that pass a limit."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from lmtool.commands._settings import ScoreConfig as Settings
from lmtool.results.scores import ScoredTexts, perplexity_of
from lmtool.session import Session


def run(settings: Settings, session: Session) -> ScoredTexts:
    """Score each text of files, write the table of scores, and the texts that pass the limits.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> from pathlib import Path
    >>> _ = Path("texts.txt").write_text("the cat sat\\nthe bird sat\\n")
    >>> round(lmtool.score(run, "texts.txt", to="scores.tsv").perplexity, 2)
    2.88
    """
    from lmtool.commands import _score_texts as parts
    from lmtool.data.faults import NULL, STOP
    from lmtool.data.oov import text_warning
    from lmtool.data.text_files import text_files
    from lmtool.data.text_records import STANDARD, record_blocks
    from lmtool.evaluation.text_scores import ScoreJournal

    names = [STANDARD] if settings.text == STANDARD else text_files(settings.text, "text")
    parts.require_outputs(settings, names)
    models, scorer = parts.load_scorer(settings, names, session)
    writes_standard = STANDARD in (settings.to, settings.filter)
    target = session.out / "scores" if writes_standard else Path(str(settings.to or settings.filter))
    # Not resumed; each block is written once it is scored.
    passed = settings.on_error != STOP
    once = writes_standard or settings.text == STANDARD
    streams = once and not settings.ranks_texts() and (settings.to is not None or settings.share is None)
    identity = None if once or scorer.one_text else parts.identity_of(settings, names)
    with ScoreJournal.open(Path(f"{target}.partial"), identity, scorer.dtype, settings.on_error or NULL) as journal:
        if journal.rows:
            session.note(f"resuming: {journal.rows:,} texts have their scores in {target}.partial")
        used = [model.name for model in models] or [f"n-grams of {settings.target}"]
        result = ScoredTexts(used[0], used[1] if len(used) > 1 else None, settings.text)
        result.across_sentences, result.max_oov = scorer.across_sentences, settings.max_oov
        result.resumed, result.target = journal.rows, settings.target
        blocks = parts.score_blocks(settings, names, scorer, journal, result, progress=session.progress)
        if not streams:
            deque(blocks, maxlen=0)
            blocks = ((None, *part) for part in journal.parts())
            if parts.carries(settings):  # the table has some of the fields, which are read a second time
                blocks = journal.of_blocks(record_blocks(names, settings.column, settings.columns, passed=passed))
        if settings.to is not None:
            parts.write_scores(settings, models, journal, blocks, result, session)
        elif streams:
            parts.write_filtered(settings, blocks, journal, result)
        for rows, _ in journal.parts():
            result.texts += len(rows)
            result.empty += int((rows["tokens"] == 0).sum())
            result.tokens += int(rows["tokens"].sum())
            result.oov += int(rows["oov"].sum())
            result.log_prob += float(rows["log_prob"].sum())
        if result.tokens and result.target is None:
            result.perplexity = perplexity_of(result.log_prob, result.tokens)
        result.faulty = journal.faults.count
        session.note(*journal.faults.notes())
        for model in models[:1]:
            session.warn(*text_warning(settings.text, result.oov, result.tokens, scorer.unknown, model.vocabulary))
        if settings.filter is not None and result.kept is None:
            again = record_blocks(names, settings.column, passed=passed)
            parts.write_filtered(settings, journal.of_blocks(again), journal, result)
    session.finish(result, f"{result.heading()}\n{result.table_text()}", result.to, result.filter)
    return result

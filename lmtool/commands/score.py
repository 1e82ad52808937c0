"""`lmtool score`: run + many texts -> one number each, and the texts that pass a limit."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from lmtool.commands._settings import ScoreConfig as Settings
from lmtool.results.scores import ScoredTexts
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
    from lmtool.commands._score_texts import (
        add_totals,
        identity_of,
        journaled_blocks,
        load_scorer,
        needs_all_scores,
        require_outputs,
        score_blocks,
        write_filtered,
        write_scores,
    )
    from lmtool.data.faults import NULL
    from lmtool.data.oov import text_warning
    from lmtool.data.text_files import text_files
    from lmtool.data.text_records import STANDARD
    from lmtool.evaluation.text_scores import ScoreJournal

    names = [STANDARD] if settings.text == STANDARD else text_files(settings.text, "text")
    require_outputs(settings, names)
    models, scorer = load_scorer(settings, names, session)
    writes_standard = STANDARD in (settings.to, settings.filter)
    target = session.out / "scores" if writes_standard else Path(str(settings.to or settings.filter))
    once = writes_standard or settings.text == STANDARD  # a stream is read or written: not resumed
    streamed = once and not needs_all_scores(settings)  # each block is written once it is scored
    identity = None if once or scorer.one_text else identity_of(settings, names)
    with ScoreJournal.open(Path(f"{target}.partial"), identity, scorer.dtype, settings.on_error or NULL) as journal:
        if journal.rows:
            session.note(f"resuming: {journal.rows:,} texts have their scores in {target}.partial")
        used = [model.name for model in models] or [f"n-grams of {settings.target}"]
        result = ScoredTexts(used[0], used[1] if len(used) > 1 else None, settings.text)
        result.across_sentences, result.max_oov = scorer.across_sentences, settings.max_oov
        result.resumed, result.target = journal.rows, settings.target
        blocks = score_blocks(settings, names, scorer, journal, result, progress=session.progress)
        if not streamed:
            deque(blocks, maxlen=0)
            blocks = journaled_blocks(settings, names, journal)
        if settings.to is not None:
            write_scores(settings, models, journal, blocks, result, session)
        elif streamed:
            write_filtered(settings, blocks, journal, result)
        add_totals(result, journal)
        session.note(*journal.faults.notes())
        for model in models[:1]:
            session.warn(*text_warning(settings.text, result.oov, result.tokens, scorer.unknown, model.vocabulary))
        if settings.filter is not None and result.kept is None:
            write_filtered(settings, journaled_blocks(settings, names, journal, whole=True), journal, result)
    session.finish(result, f"{result.heading()}\n{result.table_text()}", result.to, result.filter)
    return result

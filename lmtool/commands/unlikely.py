"""`lmtool unlikely`: run + text -> its least likely words in their contexts, e.g. to find misspellings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lmtool.config.data import WordRule
from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import ModelUserConfig
from lmtool.results.base import Result, Table, table_of
from lmtool.session import Session

AROUND = 4  # number of words shown before and after


@dataclass(slots=True)
class Settings(ModelUserConfig):
    text: str = MISSING
    words: WordRule = MISSING
    top: int = setting(min=1)


@dataclass(frozen=True)
class UnlikelyWord:
    """A word in its context, with its surprisal."""

    rank: int
    line: int
    word: str
    bits: float
    bits_per_character: float
    oov: bool
    context: str


@dataclass(repr=False)
class UnlikelyResult(Result):
    """The result of `unlikely`: a row per word, the least likely word first. run: the run or ARPA file."""

    title = "words of {0.text} that {0.run} predicts least"

    run: str
    text: str
    words: list[UnlikelyWord]

    def as_table(self) -> Table:
        return table_of(self.words)


def run(settings: Settings, session: Session) -> UnlikelyResult:
    """Rank the words of a text by their surprisal per character, given the words before in the line.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> from pathlib import Path
    >>> _ = Path("texts.txt").write_text("the dog sat\\nthe dgo sat\\n")
    >>> lmtool.unlikely(run, "texts.txt", top=1).rows[0]["context"]
    'the [dgo] sat'
    """
    import numpy as np

    from lmtool.data.text_files import text_files
    from lmtool.data.text_form import visible
    from lmtool.data.text_rules import graphemes
    from lmtool.data.word_rows import read_word_rows
    from lmtool.evaluation.surprisal import score_words
    from lmtool.evaluation.text_scores import ScoringModel
    from lmtool.runs.load import load_named

    model = load_named(settings.run, settings.arpa, settings.device)
    rows = read_word_rows(text_files(settings.text, "text"), None, None, None, None)
    scoring = ScoringModel(model.model, model.form, model.name)
    scores = score_words(scoring, rows, settings.words, progress=session.progress)
    bits = scores.surprisal / math.log(2)
    per_character = np.nan_to_num(bits / [len(graphemes(word)) for word in rows.words], nan=-1)
    sentence_of = np.searchsorted(rows.starts, np.arange(len(bits)), side="right") - 1
    found: list[UnlikelyWord] = []
    for at in np.argsort(-per_character, kind="stable")[: settings.top].tolist():
        first, end = rows.starts[sentence_of[at] : sentence_of[at] + 2]
        before, after = rows.words[max(first, at - AROUND) : at], rows.words[at + 1 : min(end, at + 1 + AROUND)]
        context = " ".join([*before, f"[{rows.words[at]}]", *after])
        line = int(rows.columns["sentence"][at])
        figures = float(bits[at]), float(per_character[at]), bool(scores.oov[at])
        found.append(UnlikelyWord(len(found) + 1, line, visible(rows.words[at]), *figures, context))
    result = UnlikelyResult(model.name, settings.text, found)
    session.finish(result, f"{result.heading()}\n\n{result.table_text()}")
    return result

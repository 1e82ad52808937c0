"""`lmtool surprisal`: models + text or a table of words -> a row per word with its surprisal."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.config.model_verbs import SurprisalConfig
from lmtool.data.oov import text_warning
from lmtool.data.text_files import text_files
from lmtool.data.word_rows import WordRows, read_word_rows
from lmtool.errors import UserError
from lmtool.evaluation.score_table import require_table, write_columns
from lmtool.evaluation.surprisal import WordScores, score_words
from lmtool.evaluation.text_scores import ScoringModel
from lmtool.results import NOT_COMPARABLE, Surprisals
from lmtool.runs.load import load_each
from lmtool.session import Session
from lmtool.system.arrays import IntArray
from lmtool.system.files import atomic_write, write_json
from lmtool.text_model import TextModel

ORDER = ("tokens", "oov", "surprisal", "entropy", "log")  # of the columns, by the first word of their names
UNITS = {"bits": math.log(2), "nats": 1.0, "log10": math.log(10)}


def run(config: SurprisalConfig, session: Session) -> Surprisals:
    """Score the words of a text by each model, and write the table."""
    columns = config.word_column, config.item_column, config.sentence_column
    return score_rows(config, session, read_word_rows(text_files(config.text, "text"), *columns, config.sentences))


def score_rows(config: SurprisalConfig, session: Session, rows: WordRows) -> Surprisals:
    """Score words in rows by each model, and write the table."""
    if config.to is not None:
        require_table(config.to, (".tsv", ".csv"), "")
    models = dict(load_each(config))
    names = list(models)
    scores = {name: _scores(config, model, rows, session) for name, model in models.items()}
    table = _table(config, rows, list(models.values()), scores)
    means = {name: _mean(found) / UNITS[config.unit] for name, found in scores.items()}
    result = Surprisals(
        header=list(table),
        table=[list(row) for row in zip(*table.values(), strict=True)],
        runs=names,
        text=config.text,
        words=len(rows.words),
        sentences=len(rows.starts) - 1,
        items=len(rows.item_starts) - 1,
        unit=config.unit,
        mean_surprisal=means,
        oov={name: int(found.oov.sum()) for name, found in scores.items()},
        notes=session.notes,
    )
    if config.to is not None:
        result.to = Path(config.to)
        with atomic_write(result.to) as temporary:
            write_columns(table, temporary, config.to)
    write_json(session.out / "result.json", result.as_json())
    session.say(f"{result.heading()}\n\n{result.table_text()}")
    if result.to is not None:
        session.say(f"wrote {result.to}")
    return result


def _scores(config: SurprisalConfig, model: TextModel, rows: WordRows, session: Session) -> WordScores:
    found = score_words(
        ScoringModel(model.model, model.form, model.name),
        rows,
        config.words,
        marks=config.marks,
        entropy=config.entropy,
        add_end=config.end_of_sentence == "add_to_last",
        across=config.across_sentences,
        progress=session.progress,
    )
    unknown = [token for word in found.tokens for token in word if token not in model.vocabulary.ids]
    tokens = sum(map(len, found.tokens))
    session.warn(*text_warning(config.text, len(unknown), tokens, unknown, model.vocabulary))
    if model.dynamic:
        session.note(f"{model.name} has a cache, which holds the words before, also those of other items")
    if not model.normalised:
        session.note(f"{model.name} has scores that do not sum to one: {NOT_COMPARABLE}")
    if infinite := int(np.isinf(found.surprisal).sum()):
        session.note(f"{model.name} gives {infinite:,} words probability 0: their surprisal is infinite")
    return found


def _mean(scores: WordScores) -> float:
    values = scores.surprisal[~np.isnan(scores.surprisal)]
    return float(values.mean()) if len(values) else math.nan


def _table(
    config: SurprisalConfig, rows: WordRows, models: list[TextModel], scores: dict[str, WordScores]
) -> dict[str, list[Any]]:
    """Return the columns. Raises UserError if the table has one of those of the models already."""
    unit, nats = config.unit, UNITS[config.unit]
    same = (
        len(
            {
                (m.vocabulary.fingerprint(), m.form.lowercase, m.form.normalise, m.form.chars, m.form.subwords)
                for m in models
            }
        )
        == 1
    )
    columns: dict[str, list[Any]] = {}
    for number, (name, found) in enumerate(scores.items()):
        own = f"_{name}" if len(scores) > 1 else ""
        shared = "" if same else own
        if not same or number == 0:
            columns[f"tokens{shared}"] = [" ".join(word) for word in found.tokens]
            columns[f"oov{shared}"] = found.oov.tolist()
            if found.frequency is not None:
                columns[f"log_frequency_{unit}{shared}"] = (found.frequency / nats).tolist()
        columns[f"surprisal_{unit}{own}"] = (found.surprisal / nats).tolist()
        if found.entropy is not None:
            columns[f"entropy_{unit}{own}"] = (found.entropy / nats).tolist()
    if taken := [name for name in columns if name in rows.columns]:
        raise UserError(f"text={config.text}: it has a column {taken[0]} already: rename or remove it")
    columns = {name: columns[name] for name in sorted(columns, key=lambda name: ORDER.index(name.partition("_")[0]))}
    columns["length"] = [len(word) for word in rows.words]
    lagged = [name for name in columns if not name.startswith(("tokens", "oov"))]
    for back in range(1, config.spillover + 1):
        places = _places_before(rows.item_starts, back)
        for name in lagged:
            columns[f"{name}_prev{back}"] = [None if at < 0 else columns[name][at] for at in places]
    return rows.columns | {name: values for name, values in columns.items() if name not in rows.columns}


def _places_before(item_starts: IntArray, back: int) -> list[int]:
    """Return the row `back` words before each word in its item, -1 if there is none."""
    sizes = np.diff(item_starts)
    place = np.arange(item_starts[-1]) - back
    found: list[int] = np.where(place >= np.repeat(item_starts[:-1], sizes), place, -1).tolist()
    return found

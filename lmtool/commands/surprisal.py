"""`lmtool surprisal`: models + text or a table of words -> a row per word with its surprisal."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from lmtool.config.model_verbs import SurprisalConfig
from lmtool.data.faults import NULL, Faults
from lmtool.data.oov import text_warning
from lmtool.data.printed_words import INVISIBLE
from lmtool.data.readers import form_of
from lmtool.data.text_files import text_files
from lmtool.data.text_records import require_separate
from lmtool.data.text_rules import graphemes
from lmtool.data.word_rows import WordRows, read_word_rows
from lmtool.errors import UserError
from lmtool.evaluation.score_table import require_table, write_columns
from lmtool.evaluation.surprisal import WordScores, score_words
from lmtool.evaluation.text_scores import ScoringModel
from lmtool.results import NOT_COMPARABLE, Surprisals
from lmtool.runs.load import load_each
from lmtool.session import Session
from lmtool.text_model import TextModel

ORDER = ("tokens", "oov", "surprisal", "entropy", "log")  # of the columns, by the first word of their names
UNITS = {"bits": math.log(2), "nats": 1.0, "log10": math.log(10)}


def run(config: SurprisalConfig, session: Session) -> Surprisals:
    """Score the words of a text by each model, and write the table."""
    columns, files = (config.word_column, config.item_column, config.sentence_column), text_files(config.text, "text")
    require_separate(config.text, files, to=config.to)
    faults = Faults(config.on_error or NULL)
    rows = read_word_rows(files, *columns, config.sentences, faults)
    session.note(*faults.notes())
    return score_rows(config, session, rows)


def score_rows(config: SurprisalConfig, session: Session, rows: WordRows) -> Surprisals:
    """Score words in rows by each model, and write the table."""
    if config.to is not None:
        require_table(config.to, bom=config.bom)
    session.warn(*rows.warnings)
    session.note(*rows.notes)
    scores: dict[str, WordScores] = {}
    models, forms, nats = [], set(), UNITS[config.unit]
    for name, model in load_each(config):
        found = scores[name] = _scores(config, model, rows, session)
        known = found.surprisal[~np.isnan(found.surprisal)] / nats
        models.append({"run": name, "mean_surprisal": float(known.mean()), "oov": int(found.oov.sum())})
        form, pieces = model.form, model.form.subwords and model.form.subwords.json
        forms.add((model.vocabulary.fingerprint(), form.rules, form.unit, pieces))
    table = _table(config, rows, scores, same_tokens=len(forms) == 1)
    result = Surprisals(
        header=list(table),
        table=[list(row) for row in zip(*table.values(), strict=True)],
        text=config.text,
        sentences=len(rows.starts) - 1,
        items=len(rows.item_starts) - 1,
        unit=config.unit,
        models=models,
        to=config.to,
        notes=session.notes,
    )
    if config.to is not None:
        write_columns(table | (rows.cells if form_of(config.to) is None else {}), config.to, bom=config.bom)
    session.finish(result.as_json(), f"{result.heading()}\n\n{result.table_text()}", config.to)
    return result


def _scores(config: SurprisalConfig, model: TextModel, rows: WordRows, session: Session) -> WordScores:
    if config.entropy and not model.normalised:
        raise UserError(f"entropy=true: {model.name} has scores that do not sum to one, and no entropy: leave it out")
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
    session.warn(*text_warning(config.text, len(unknown), tokens, unknown, model.vocabulary, marks=config.marks))
    if found.odd_starts:
        session.note(
            f"{found.odd_starts:,} of {len(rows.starts) - 1:,} sentences begin with white space, or without, as few "
            f"lines do that {model.name} was trained on: their first words are surprising; write lines as in that text"
        )
    if model.dynamic:
        session.note(f"{model.name} has a cache, which holds the words before in the item, also of other sentences")
    if not model.normalised:
        session.note(f"{model.name} has scores that do not sum to one: {NOT_COMPARABLE}")
    if infinite := int(np.isinf(found.surprisal).sum()):
        session.note(f"{model.name} gives {infinite:,} words probability 0: their surprisal is infinite")
    return replace(found, tokens=list(map(model.form.labels, found.tokens)))


def _table(
    config: SurprisalConfig, rows: WordRows, scores: dict[str, WordScores], *, same_tokens: bool
) -> dict[str, list[Any]]:
    """Return the columns. same_tokens: whether the tokens and their frequencies are the same for all models. Raises
    UserError if the table has one of the models' columns already.
    """
    unit, nats = config.unit, UNITS[config.unit]
    columns: dict[str, list[Any]] = {}
    for name, found in scores.items():
        own = f"_{name}" if len(scores) > 1 else ""
        shared = "" if same_tokens else own
        columns[f"tokens{shared}"] = [" ".join(word) for word in found.tokens]
        columns[f"oov{shared}"] = found.oov.tolist()
        figures = {f"surprisal_{unit}{own}": found.surprisal, f"entropy_{unit}{own}": found.entropy}
        figures |= {f"log_frequency_{unit}{shared}": found.frequency}
        columns |= {key: (values / nats).tolist() for key, values in figures.items() if values is not None}
    columns = {name: columns[name] for name in sorted(columns, key=lambda name: ORDER.index(name.partition("_")[0]))}
    columns["length"] = [sum(not INVISIBLE.fullmatch(c) for c in graphemes(word.strip())) for word in rows.words]
    base = {name: values for name, values in columns.items() if not name.startswith(ORDER[:2])}
    place, begins = np.arange(len(rows.words)), np.repeat(rows.item_starts[:-1], np.diff(rows.item_starts))
    for back in range(1, config.spillover + 1):
        before = np.where(place - back >= begins, place - back, -1).tolist()  # -1: the item has begun since
        columns |= {
            f"{name}_prev{back}": [None if at < 0 else values[at] for at in before] for name, values in base.items()
        }
    columns |= {"error": rows.errors or [None] * len(rows.words)} if config.on_error is None else {}
    columns = {config.prefix + name: values for name, values in columns.items()}
    if taken := [name for name in columns if name in rows.columns]:
        raise UserError(f"{rows.name}: it has columns {', '.join(taken)} already: rename them, or set prefix=lm_")
    return rows.columns | columns

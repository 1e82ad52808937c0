"""`lmtool surprisal`: models + text or a table of words -> a row per word with its surprisal."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import SeveralModelsConfig
from lmtool.errors import UserError
from lmtool.results.base import NOT_COMPARABLE, TableResult
from lmtool.session import Session
from lmtool.system.terminal import text_table

if TYPE_CHECKING:
    from lmtool.data.table_writer import Part
    from lmtool.data.word_rows import WordRows
    from lmtool.evaluation.surprisal import WordScores
    from lmtool.text_model import TextModel

ORDER = ("tokens", "oov", "surprisal", "entropy", "log")  # order of the columns, by the first word of their names
UNITS = {"bits": math.log(2), "nats": 1.0, "log10": math.log(10)}


@dataclass(slots=True)
class Settings(SeveralModelsConfig):
    text: str = MISSING
    flush: str | None = setting(words=("line",), needs=("text=-",))
    word_column: str | None = setting(excludes=("text=-",))
    item_column: list[str] | None = setting(excludes=("text=-",))
    sentence_column: str | None = setting(excludes=("text=-",))
    sentences: str | None = setting(words=("punctuation", "item"), excludes=("sentence_column=<NAME>",))
    unit: str = setting(words=("bits", "nats", "log10"))
    entropy: bool = MISSING
    spillover: int = setting(min=0, max=100)
    end_of_sentence: str = setting(words=("drop", "add_to_last"))
    across_sentences: bool = MISSING
    to: str | None = MISSING
    bom: bool = setting(needs=("to=<FILE>",))


@dataclass(repr=False)
class Surprisals(TableResult):
    """The result of `surprisal`: a row per word.

    text: the scored text, of `words` words in `sentences` sentences and `items` items. unit: bits, nats or log10.
    models: for each `run`, its name in the columns, `mean_surprisal`, over the words that have tokens, and `oov`, the
    number of tokens outside its vocabulary. to: the written file.
    """

    text: str
    words: int
    sentences: int
    items: int
    unit: str
    models: list[dict[str, Any]]
    to: str | None

    @property
    def metric(self) -> float:
        """The mean surprisal by the first model."""
        return float(self.models[0]["mean_surprisal"])

    def heading(self) -> str:
        means = ", ".join(f"{model['run']} {model['mean_surprisal']:.4f} {self.unit}" for model in self.models)
        sizes = {"word": self.words, "sentence": self.sentences, "item": self.items}
        size = ", ".join(f"{number:,} {what}{'s' * (number != 1)}" for what, number in sizes.items())
        return f"{self.text}: {size}\nmean surprisal: {means}"

    def table_text(self) -> str:
        return text_table(self.header, self.table[:10])


def run(settings: Settings, session: Session) -> Surprisals:
    """Score the words of a text by each model, and write the table."""
    from lmtool.data.faults import NULL, Faults
    from lmtool.data.readers import read_stream
    from lmtool.data.standard_input import INPUT, standard_input
    from lmtool.data.text_files import text_files
    from lmtool.data.text_records import STANDARD, require_separate
    from lmtool.data.word_rows import read_word_rows, rows_of_lines
    from lmtool.runs.load import load_each

    faults = Faults(settings.on_error or NULL)
    if settings.text == STANDARD:
        blocks: Iterable[bytes] = read_stream(standard_input(by_line=settings.flush == "line"), INPUT, faults)
        models = list(load_each(settings))
        alone = all(model.vocabulary.sentences and not model.dynamic for _, model in models)
        together = (
            settings.sentences or settings.across_sentences or settings.spillover or not settings.keep_punctuation
        )
        if together or not alone or settings.to != STANDARD:
            blocks = [b"".join(blocks)]

        def parts() -> Iterator[WordRows]:
            yield from rows_of_lines(blocks, INPUT, settings.sentences)
            session.note(*faults.notes())

        return score_rows(settings, session, parts(), models)
    columns = settings.word_column, settings.item_column, settings.sentence_column
    files = text_files(settings.text, "text")
    require_separate(settings.text, files, to=settings.to)
    rows = read_word_rows(files, *columns, settings.sentences, faults)
    session.note(*faults.notes())
    return score_rows(settings, session, [rows])


@dataclass(slots=True)
class _ScoredText:
    """The parts of a text that have been scored so far: the scores by model, and the columns of the table."""

    scores: dict[str, list[WordScores]]
    columns: dict[str, list[Any]] = field(default_factory=dict)
    sentences: int = 0
    items: int = 0


def score_rows(
    settings: Settings,
    session: Session,
    parts: Iterable[WordRows],
    models: list[tuple[str, TextModel]] | None = None,
) -> Surprisals:
    """Score words in rows by each model, and write the table, part by part."""
    from lmtool.data.table_writer import require_table, write_table
    from lmtool.runs.load import load_each

    if settings.to is not None:
        require_table(settings.to, bom=settings.bom)
    models = models or list(load_each(settings))
    for _, model in models:
        if settings.entropy and not model.normalized:
            remedy = "scores that do not sum to one, and no entropy: leave it out"
            raise UserError(f"entropy=true: {model.name} has {remedy}")
    scored = _ScoredText({name: [] for name, _ in models})
    parts_of_table = _score_parts(settings, parts, models, scored, session)
    _, first = next(parts_of_table)
    if settings.to is None:
        deque(parts_of_table, maxlen=0)
    else:
        write_table(first, settings.to, parts_of_table, bom=settings.bom)
    means = []
    for name, model in models:
        means.append(_mean_surprisal(name, scored.scores[name], UNITS[settings.unit]))
        _report(settings, model, scored.scores[name], scored.sentences, session)
    lines = [list(row) for row in zip(*scored.columns.values(), strict=True)]
    result = Surprisals(
        text=settings.text,
        words=len(lines),
        sentences=scored.sentences,
        items=scored.items,
        unit=settings.unit,
        models=means,
        to=settings.to,
        header=list(scored.columns),
        table=lines,
    )
    session.finish(result, f"{result.heading()}\n\n{result.table_text()}", settings.to)
    return result


def _score_parts(
    settings: Settings,
    parts: Iterable[WordRows],
    models: list[tuple[str, TextModel]],
    scored: _ScoredText,
    session: Session,
) -> Iterator[Part]:
    """Score each part of a text, add it to `scored`, and yield its part of the table."""
    from lmtool.data.readers import TABLES
    from lmtool.data.table_writer import table_format
    from lmtool.evaluation.surprisal import score_words
    from lmtool.evaluation.text_scores import ScoringModel

    forms = {
        (model.vocabulary.fingerprint(), model.form.rules, model.form.unit, subwords and subwords.json)
        for model, subwords in ((model, model.form.subwords) for _, model in models)
    }
    for rows in parts:
        session.warn(*rows.warnings)
        session.note(*rows.notes)
        shown = {}
        for name, model in models:
            found = score_words(
                ScoringModel(model.model, model.form, model.name),
                rows,
                settings.words,
                keep_punctuation=settings.keep_punctuation,
                entropy=settings.entropy,
                add_end=settings.end_of_sentence == "add_to_last",
                across=settings.across_sentences,
                progress=session.progress,
            )
            scored.scores[name].append(found)
            shown[name] = replace(found, tokens=list(map(model.form.labels, found.tokens)))
        columns = _table(settings, rows, shown, same_tokens=len(forms) == 1)
        for key, values in columns.items():
            scored.columns.setdefault(key, []).extend(values)
        scored.sentences += len(rows.starts) - 1
        scored.items = len(rows.item_starts) - 1
        yield None, columns | (rows.cells if table_format(str(settings.to)) in TABLES else {})


def _mean_surprisal(name: str, scores: list[WordScores], nats: float) -> dict[str, Any]:
    """Return an entry of Surprisals.models, by the scores of a text's parts. nats: in one unit of surprisal."""
    import numpy as np

    surprisal = np.concatenate([found.surprisal for found in scores])
    mean = float(surprisal[~np.isnan(surprisal)].mean() / nats)
    return {"run": name, "mean_surprisal": mean, "oov": sum(int(found.oov.sum()) for found in scores)}


def _report(settings: Settings, model: TextModel, scores: list[WordScores], sentences: int, session: Session) -> None:
    """Print the warnings and notes on the scores of a text's parts."""
    import numpy as np

    from lmtool.data.oov import text_warning

    tokens = [token for found in scores for word in found.tokens for token in word]
    unknown = [token for token in tokens if token not in model.vocabulary.ids]
    session.warn(*text_warning(settings.text, len(unknown), len(tokens), unknown, model.vocabulary))
    if odd_starts := sum(found.odd_starts for found in scores):
        session.note(
            f"{odd_starts:,} of {sentences:,} sentences begin as few training lines of {model.name} do (with or "
            "without leading white space): their first words are surprising; write lines as in that text"
        )
    if model.dynamic:
        session.note(f"{model.name} has a cache, which holds the words before in the item, also of other sentences")
    if not model.normalized:
        session.note(f"{model.name} has scores that do not sum to one: {NOT_COMPARABLE}")
    if infinite := sum(int(np.isinf(found.surprisal).sum()) for found in scores):
        session.note(f"{model.name} gives {infinite:,} words probability 0: their surprisal is infinite")


def _table(
    settings: Settings, rows: WordRows, scores: dict[str, WordScores], *, same_tokens: bool
) -> dict[str, list[Any]]:
    """Return the columns. same_tokens: whether the tokens and their frequencies are the same for all models."""
    import numpy as np

    from lmtool.data.printed_words import INVISIBLE
    from lmtool.data.text_rules import graphemes

    unit, nats = settings.unit, UNITS[settings.unit]
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
    for back in range(1, settings.spillover + 1):
        before = np.where(place - back >= begins, place - back, -1).tolist()  # -1: the item has begun since
        columns |= {
            f"{name}_prev{back}": [None if at < 0 else values[at] for at in before] for name, values in base.items()
        }
    columns |= {"error": rows.errors or [None] * len(rows.words)} if settings.on_error is None else {}
    columns = {settings.prefix + name: values for name, values in columns.items()}
    if taken := [name for name in columns if name in rows.columns]:
        raise UserError(f"{rows.name}: it has columns {', '.join(taken)} already: rename them, or set prefix=lm_")
    return rows.columns | columns

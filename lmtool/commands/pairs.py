"""`lmtool pairs`: runs + minimal pairs -> a table of accuracies by paradigm, phenomenon and field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmtool.config.rules import MISSING, setting
from lmtool.config.verbs import SeveralModelsConfig
from lmtool.errors import UserError, prefix_user_errors
from lmtool.results.base import TableResult
from lmtool.session import Session
from lmtool.system.terminal import Cell, text_table

if TYPE_CHECKING:
    from lmtool.evaluation.minimal_pairs import Pair
    from lmtool.evaluation.text_scores import Rows
    from lmtool.text_model import TextModel

FIGURES = {"tokens": "tokens", "oov": "oov", "log_prob": "log_prob_nats"}  # of a sentence: fields of TEXT, and columns
ITEM = ["run", "correct", *(f"{name}_{which}" for which in ("good", "bad") for name in FIGURES.values())]  # of items=


@dataclass(slots=True)
class Settings(SeveralModelsConfig):
    text: str = MISSING
    criterion: str = setting(words=("sum", "mean"))
    resamples: int = setting(min=100, max=1_000_000)
    seed: int = setting(min=0)
    to: str | None = MISSING
    bom: bool = setting(needs=("to=<FILE>",))
    items: str | None = MISSING


@dataclass(frozen=True)
class Accuracy:
    """The mean accuracy of a run over paradigms, with its 95 % interval. ties: number of pairs with equal scores. oov:
    number of pairs with an OOV.
    """

    run: str
    accuracy: float
    lower: float
    upper: float
    ties: int
    oov: int


@dataclass(repr=False)
class PairsResult(TableResult):
    """The result of `pairs`: a row per group of pairs; the first row is overall. pairs: number of pairs."""

    text: str
    criterion: str
    pairs: int
    runs: list[Accuracy]

    @property
    def metric(self) -> float:
        """The error rate of the first run."""
        return 1 - self.runs[0].accuracy

    def heading(self) -> str:
        what = "sums of log p" if self.criterion == "sum" else "means of log p per token"
        return f"{self.text}: {self.pairs:,} pairs, by {what}; intervals of 95 %"

    def table_text(self) -> str:
        if len(self.runs) == 1:
            return super().table_text()
        shown = []
        for row in self.table:
            figures = [[float(value or 0) for value in row[k : k + 3]] for k in range(3, len(row), 5)]
            shown.append([*row[:3], *(value for x, low, high in figures for value in (x, (high - low) / 2))])
        return text_table([*self.header[:3], *(name for run in self.runs for name in (run.run, "+-"))], shown)


def run(settings: Settings, session: Session) -> PairsResult:
    """Score the sentences of all pairs with each run, and write the table of accuracies.

    >>> corpus = lmtool.Corpus.from_texts(train=["the cat sat", "the dog sat"] * 5, valid=["the dog sat"])
    >>> run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell")
    >>> from pathlib import Path
    >>> _ = Path("pairs.jsonl").write_text('{"sentence_good": "the cat sat", "sentence_bad": "cat the sat"}')
    >>> lmtool.pairs(run, "pairs.jsonl").rows[0]["accuracy"]
    1.0
    """
    from lmtool.data.faults import SKIP, Faults
    from lmtool.data.oov import text_warning
    from lmtool.data.readers import JSON_LINES, format_of_name
    from lmtool.data.table_writer import require_table, write_table
    from lmtool.data.text_records import require_separate
    from lmtool.evaluation.minimal_pairs import accuracies, group_pairs, outcomes, pair_files, read_pairs
    from lmtool.runs.load import load_each

    if settings.to is not None:
        require_table(settings.to, bom=settings.bom)
    if settings.items is not None and format_of_name(settings.items) not in JSON_LINES:
        raise UserError(f"items={settings.items}: name a file that ends in .jsonl, also .jsonl.gz, .xz, .bz2, .zst")
    models = list(load_each(settings))  # all of them before anything is scored, so that a wrong path is found at once
    files = pair_files(settings.text, progress=session.progress)
    require_separate(settings.text, files, to=settings.to, items=settings.items)
    item = [settings.prefix + name for name in ITEM]
    faults = Faults(settings.on_error or SKIP)
    pairs, places = read_pairs(files, faults, item if settings.items is not None else [])
    session.note(*faults.notes())
    groups = group_pairs(pairs)
    levels, names = zip(*groups.names, strict=True)
    columns: dict[str, Sequence[Cell]] = {"level": levels, "name": names, "pairs": groups.totals([True] * len(pairs))}
    runs: list[Accuracy] = []
    items: dict[str, list[Any]] = {key: [] for key in item}
    for name, model in models:
        good, bad, unknown = _score_pairs(model, pairs, places, settings, progress=session.progress)
        outcome = outcomes(good, bad, per_token=settings.criterion == "mean")
        figures: dict[str, Sequence[Any]] = {
            **accuracies(outcome, groups, resamples=settings.resamples, seed=settings.seed),
            "ties": groups.totals(outcome == 0.5),
            "oov": groups.totals((good["oov"] > 0) | (bad["oov"] > 0)),
        }
        columns |= {key if settings.runs is None else f"{name} {key}": values for key, values in figures.items()}
        runs.append(Accuracy(name, **{key: values[0] for key, values in figures.items()}))
        own = [[name] * len(pairs), outcome.tolist()]
        own += [rows[key].tolist() for rows in (good, bad) for key in FIGURES]
        for column, values in zip(items.values(), own, strict=True):
            column += values
        ties, with_oov = figures["ties"][0], figures["oov"][0]
        session.note(f"{name}: {ties:,} ties, each counted as half; {with_oov:,} pairs with an OOV")
        oov, tokens = (int(good[key].sum() + bad[key].sum()) for key in ("oov", "tokens"))
        session.warn(*text_warning(settings.text, oov, tokens, unknown, model.vocabulary))
    table: list[list[Cell]] = [list(row) for row in zip(*columns.values(), strict=True)]
    result = PairsResult(
        text=settings.text,
        criterion=settings.criterion,
        pairs=len(pairs),
        runs=runs,
        header=list(columns),
        table=table,
    )
    if settings.to is not None:
        write_table({key: list(values) for key, values in columns.items()}, settings.to, bom=settings.bom)
    if settings.items is not None:
        fields = dict.fromkeys(key for pair in pairs for key in pair)
        given = {key: [pair.get(key) for pair in pairs] * len(models) for key in fields}
        write_table(given | items, settings.items)
    session.finish(result, f"{result.heading()}\n{result.table_text()}", settings.to, settings.items)
    return result


def _score_pairs(
    model: TextModel, pairs: list[Pair], places: list[str], settings: Settings, *, progress: bool
) -> tuple[Rows, Rows, Sequence[str]]:
    """Return the scores of the good and of the bad sentences, rows of TEXT, and the words outside the vocabulary."""
    import numpy as np

    from lmtool.data.printed_words import sentence_cutter
    from lmtool.evaluation.metrics import require_no_cache
    from lmtool.evaluation.minimal_pairs import BAD, GOOD
    from lmtool.evaluation.text_scores import TEXT, sums

    require_no_cache(model.model, model.name)
    cut, sentences = sentence_cutter(model.form, settings.words, keep_punctuation=settings.keep_punctuation), []
    for pair, where in zip(pairs, places, strict=True):
        for name in (GOOD, BAD):
            with prefix_user_errors(f"{where}, {name}"):
                sentences.append(model.form.words(cut(pair[name])))
                if not sentences[-1]:
                    raise UserError("no words are left of the sentence: set keep_punctuation=true or remove the pair")
    text, sizes = model.encoded(sentences)
    ends = np.cumsum([0, *sizes])
    rows = np.zeros(len(sizes), TEXT)
    rows["tokens"], rows["oov"] = sizes, np.diff(np.searchsorted(text.oov_positions, ends))
    rows["log_prob"] = sums(model.model.score_text(text, progress=progress), ends)
    return rows[::2], rows[1::2], text.oov_words or []

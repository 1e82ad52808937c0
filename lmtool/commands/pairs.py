"""`lmtool pairs`: runs + minimal pairs -> a table of accuracies by paradigm, phenomenon and field."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import numpy as np

from lmtool.commands.score import scorer_of
from lmtool.config.model_verbs import PairsConfig
from lmtool.data.oov import text_warning
from lmtool.data.readers import JSON_LINES, form_of
from lmtool.data.text_records import packed_file
from lmtool.errors import UserError
from lmtool.evaluation.minimal_pairs import (
    Pair,
    accuracies,
    group_pairs,
    outcomes,
    pair_files,
    read_pairs,
    score_pairs,
    totals,
)
from lmtool.evaluation.text_scores import TEXT, Rows
from lmtool.results import MinimalPairs
from lmtool.runs.load import load_each
from lmtool.session import Session
from lmtool.system.arrays import FloatArray
from lmtool.system.files import atomic_write, write_json
from lmtool.system.terminal import Cell, csv_text

KEYS = ("accuracy", "lower", "upper", "ties", "oov")  # columns of a run
DELIMITERS = {".csv": ",", ".tsv": "\t"}


def run(config: PairsConfig, session: Session) -> MinimalPairs:
    """Score the sentences of all pairs with each run, and write the table of accuracies."""
    _require_outputs(config)
    pairs = read_pairs(pair_files(config.text, progress=session.progress))
    groups = group_pairs(pairs)
    header: list[str] = ["level", "name", "pairs"]
    columns: list[list[Cell]] = [
        *map(list, zip(*groups.names, strict=True)),
        totals(np.ones(len(pairs)), groups).tolist(),
    ]
    result = MinimalPairs(header=header, table=[], text=config.text, criterion=config.criterion, pairs=len(pairs))
    scored: dict[str, tuple[Rows, Rows, FloatArray]] = {}
    for name, model in load_each(config):
        scorer = scorer_of([model], across=False)
        good, bad = score_pairs(scorer, pairs, progress=session.progress)
        outcome = outcomes(good, bad, per_token=config.criterion == "mean")
        scored[name] = good, bad, outcome
        found = accuracies(outcome, groups, resamples=config.resamples, seed=config.seed)
        oov = totals((good["oov"] > 0) | (bad["oov"] > 0), groups)
        figures = dict(zip(KEYS, (values.tolist() for values in (*found, oov)), strict=True))
        header += [key if config.runs is None else f"{name} {key}" for key in KEYS]
        columns += figures.values()
        result.runs[name] = {key: values[0] for key, values in figures.items()}
        session.note(f"{name}: {found.ties[0]:,} ties, each counted as half; {oov[0]:,} pairs with an OOV")
        oovs, tokens = (int(good[key].sum() + bad[key].sum()) for key in ("oov", "tokens"))
        session.warn(*text_warning(config.text, oovs, tokens, scorer.unknown, model.vocabulary))
    result.table += map(list, zip(*columns, strict=True))
    if config.to is not None:
        with atomic_write(Path(config.to)) as temporary:
            rows: list[list[Cell]] = [[*header], *result.table]
            temporary.write_text(csv_text(rows, DELIMITERS[PurePosixPath(config.to).suffix]), encoding="utf-8")
    if config.items is not None:
        _write_items(config.items, pairs, scored)
    result.notes = session.notes
    write_json(session.out / "result.json", result.as_json())
    session.say(f"{result.heading()}\n{result.table_text()}")
    for written in (config.to, config.items):
        if written is not None:
            session.say(f"wrote {written}")
    return result


def _require_outputs(config: PairsConfig) -> None:
    """Raise UserError for output files in unknown formats."""
    if config.to is not None and PurePosixPath(config.to).suffix not in DELIMITERS:
        raise UserError(f"to={config.to}: the suffix decides what is written: .csv or .tsv")
    if config.items is not None and form_of(config.items) not in JSON_LINES:
        raise UserError(f"items={config.items}: name a file that ends in .jsonl, also .jsonl.gz, .xz, .bz2, .zst")


def _write_items(to: str, pairs: list[Pair], scored: dict[str, tuple[Rows, Rows, FloatArray]]) -> None:
    """Write each pair, for each run, as an object: its fields, run, scores of both sentences, and the outcome."""
    with atomic_write(Path(to)) as temporary, packed_file(temporary, to) as file:
        for name, (good, bad, outcome) in scored.items():
            for pair, *rows, won in zip(pairs, good.tolist(), bad.tolist(), outcome.tolist(), strict=True):
                record = pair | {"run": name, "correct": won}
                for which, row in zip(("good", "bad"), rows, strict=True):
                    record |= {f"{key}_{which}": value for key, value in zip(TEXT.names or (), row, strict=True)}
                file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())

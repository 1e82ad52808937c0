"""What `lmtool score` writes: the table of scores, with buckets, and the records that pass the limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lmtool.config.score_verb import ScoreConfig
from lmtool.data.readers import MEMBER
from lmtool.data.remote import is_address
from lmtool.data.text_records import require_writable, write_chosen
from lmtool.errors import UserError
from lmtool.evaluation.quantiles import quantiles
from lmtool.evaluation.score_journal import ScoreJournal
from lmtool.evaluation.score_table import Buckets, require_table, write_table
from lmtool.evaluation.text_scores import criterion, sums
from lmtool.results import ScoredTexts
from lmtool.runs.run import Run, run_folder
from lmtool.system.files import atomic_write

if TYPE_CHECKING:
    from lmtool.system.arrays import FloatArray
    from lmtool.text_model import TextModel


def require_outputs(config: ScoreConfig, names: list[str]) -> None:
    """Raise UserError for files that cannot be written in their form, and for one that is read, too."""
    if config.to is not None:
        require_table(config.to)
    if config.filter is not None:
        require_writable(names, config.column, config.filter, "filter")
    used = {Path(name.partition(MEMBER)[0]).resolve(): f"text={config.text}" for name in names if not is_address(name)}
    for key, name in (("to", config.to), ("filter", config.filter)):
        if name is None:
            continue
        if is_address(name):
            raise UserError(f"{key}={name} is an address: name a file on this machine")
        path = Path(name).resolve()
        if path in used:
            raise UserError(f"{key}={name} is a file of {used[path]}, too: name another")
        used[path] = f"{key}={name}"


def write_filtered(config: ScoreConfig, names: list[str], journal: ScoreJournal, result: ScoredTexts) -> None:
    """Write the records that pass the limits; a text without tokens never does."""
    assert config.filter is not None, "the caller has asked"
    most = config.most
    if config.share is not None:
        most = next(
            iter(quantiles(lambda: (criterion(rows, config.most_oov) for rows in journal.parts()), [config.share])),
            None,
        )
    low, high = -math.inf if config.least is None else config.least, math.inf if most is None else most
    result.most, result.least, result.kept = most, config.least, 0
    result.filter = Path(config.filter)

    def passing() -> Iterator[npt.NDArray[np.bool_]]:
        for rows in journal.parts():
            values = criterion(rows, config.most_oov)
            chosen = (values >= low) & (values <= high)
            result.kept = int(result.kept or 0) + int(chosen.sum())
            yield chosen

    with atomic_write(result.filter) as temporary:
        write_chosen(names, config.column, passing(), temporary, config.filter)


def write_scores(
    config: ScoreConfig, model: TextModel, journal: ScoreJournal, result: ScoredTexts, *, progress: bool
) -> None:
    """Write the table of scores."""
    assert config.to is not None, "the caller has asked"
    buckets = None
    if config.buckets is not None:
        limits = _limits(config, len(config.buckets), model, journal, progress=progress)
        buckets = Buckets(config.buckets, limits, config.most_oov)
    result.to = Path(config.to)
    with atomic_write(result.to) as temporary:
        write_table(journal.parts(), journal.dtype, buckets, temporary, config.to)
    if buckets is not None:
        texts, tokens, oov = buckets.totals.T
        of_each = texts.tolist(), (oov / np.maximum(tokens, 1)).tolist()
        result.buckets = list(zip(buckets.names, [*buckets.limits, None], *of_each, strict=True))


def _limits(config: ScoreConfig, count: int, model: TextModel, journal: ScoreJournal, *, progress: bool) -> list[float]:
    """The limits of so many buckets: those given, else quantiles of the texts or of the sentences of a split.

    Raises UserError where there is nothing to take quantiles of.
    """
    if config.bucket_limits is not None:
        return config.bucket_limits
    shares = config.bucket_quantiles or [place / count for place in range(1, count)]
    if config.bucket_split is None:
        found = quantiles(lambda: (criterion(rows, config.most_oov) for rows in journal.parts()), shares)
    else:
        values = _sentence_perplexities(config, model, config.bucket_split, progress=progress)
        found = quantiles(lambda: iter([values]), shares)
    if not found:
        raise UserError(f"buckets={config.buckets}: the text has no tokens: there are no quantiles")
    return found


def _sentence_perplexities(config: ScoreConfig, model: TextModel, name: str, *, progress: bool) -> FloatArray:
    """The perplexity of each sentence of a split of the run's data."""
    from lmtool.evaluation.score import score
    from lmtool.runs.corpus import open_run_corpus

    with open_run_corpus(Run.open(run_folder(config.run)), config.store_dir, progress=progress) as corpus:
        if not corpus.sentences:
            raise UserError(f"bucket_split={name}: {corpus.name} has no sentences to take quantiles of: leave it out")
        split = replace(corpus.split(name), independent_sentences=not config.across_sentences)
    log_probs = sums(score(model.model, split, progress=progress).log_prob, split.offsets)
    return np.asarray(np.exp(-log_probs / np.diff(split.offsets)))

"""`lmtool train model=ngram`: counts -> back-off table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmtool.config import NgramModelConfig, TrainConfig
from lmtool.errors import UserError
from lmtool.evaluation.printing import print_sizes
from lmtool.evaluation.score import perplexity, score
from lmtool.runs.build import NGRAM_FILE, build_smoother, counts_of, storage_of, tuned_on
from lmtool.session import on_terminal

if TYPE_CHECKING:
    from lmtool.data.corpus import Corpus


def train_ngram(config: TrainConfig, model: NgramModelConfig, corpus: Corpus, out: Path) -> dict[str, Any]:
    """Estimate the model of the settings into a run folder; returns what goes into result.json."""
    from lmtool.ngram.estimate import estimate
    from lmtool.ngram.model import NgramModel

    assert config.smoother is not None and config.counts is not None, "conf/model/ngram.yaml chooses them"
    held_out = tuned_on(config.smoother)
    if held_out is not None and held_out not in corpus.splits:
        raise UserError(f"smoother.tune_on={held_out}: {corpus.path} has only {', '.join(corpus.splits)}")
    smoother = build_smoother(config.smoother, model.order, corpus.vocabulary)
    cutoffs = _cutoffs(config.prune, model.order)
    storage = storage_of(config.counts, corpus)
    start = time.perf_counter()
    counts = counts_of(corpus, model.order, config.counts, storage)
    counted = time.perf_counter()
    if held_out is not None:
        from lmtool.ngram.tuning import fit_and_tune

        tuned = fit_and_tune(counts, smoother, corpus.split(held_out), storage)
        print(f"tuned on {held_out}: perplexity {tuned.before:.4f} -> {tuned.after:.4f}")
        for k, row in enumerate(smoother.values.tolist(), start=1):
            print(f"  order {k}: {', '.join(f'{value:.6g}' for value in row)}")
    table = estimate(counts, smoother, cutoffs=cutoffs, fit=held_out is None, storage=storage)
    if config.prune_entropy is not None:
        from lmtool.ngram.pruning import prune_by_entropy

        table = prune_by_entropy(table, config.prune_entropy, corpus.vocabulary.eos)
    estimated = time.perf_counter()
    for note in table.notes:
        print(f"note: {note}")
    language_model = NgramModel(table, corpus.vocabulary)
    language_model.save(out / NGRAM_FILE)
    print_sizes(table.sizes)
    valid = score(language_model, corpus.split("valid"), progress=on_terminal())
    examples = corpus.tokens("train")
    return {
        "valid_perplexity": perplexity(valid.log_prob),
        "parameters": sum(table.sizes),
        "examples": examples,
        "examples_per_second": examples / (estimated - start),
        "epochs": 1,
        "counting_seconds": counted - start,
        "estimation_seconds": estimated - counted,
    }


def _cutoffs(prune: list[int] | None, order: int) -> list[int] | None:
    """One cut-off an order; the last one given holds for the orders above it."""
    if not prune:
        return None
    if len(prune) > order:
        raise UserError(f"prune={prune}: {len(prune)} cut-offs, but model.order={order}")
    return prune + prune[-1:] * (order - len(prune))

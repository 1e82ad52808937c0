"""`lmtool train`: store -> model, in a run folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from lmtool.commands.surroundings import new_run_dir, on_terminal, plain, use_threads
from lmtool.config import EncoderModel, ModelConfig, NgramModelConfig, TrainConfig, typed
from lmtool.errors import UserError
from lmtool.files import write_json


def run(composed: DictConfig) -> float | None:
    """Train the configured model; returns its perplexity on valid, which sweeps compare."""
    config = typed(composed, TrainConfig)
    from lmtool.data.corpus import Corpus
    from lmtool.data.prepare import prepare
    from lmtool.evaluation import finite_or_null
    from lmtool.runs import Run

    out = new_run_dir()
    threads = use_threads(config.threads)
    start = time.perf_counter()
    prepared = prepare(config.data, Path(config.store_dir), progress=on_terminal())
    with Corpus.open(prepared.path) as corpus:
        _require_splits(corpus.splits, prepared.path)
        result = _train(config, config.model, corpus, out, threads)
        fingerprints = corpus.fingerprint, corpus.vocabulary.fingerprint()
    result["seconds"] = time.perf_counter() - start
    write_json(out / "result.json", finite_or_null(result))
    Run(
        folder=out,
        kind="train",
        config=plain(composed),
        store=str(prepared.path.resolve()),
        store_fingerprint=fingerprints[0],
        vocabulary_fingerprint=fingerprints[1],
    ).save()
    print(f"valid perplexity {result['valid_perplexity']:.4f}, {result['parameters']:,} parameters, ", end="")
    print(f"{result['seconds']:.1f} s; run={out}")
    valid_perplexity: float = result["valid_perplexity"]
    return valid_perplexity


def _require_splits(splits: list[str], path: Path) -> None:
    for name in ("train", "valid"):
        if name not in splits:
            raise UserError(f"{path} has no {name} split: give data.{name} a file and preprocess again")


def _train(config: TrainConfig, model: ModelConfig, corpus: Any, out: Path, threads: int) -> dict[str, Any]:
    match model:
        case NgramModelConfig():
            return _train_ngram(config, model, corpus, out)
        case EncoderModel():
            return _train_neural(config, model, corpus, out, threads)
    raise UserError(f"model={model.kind} is not known to this version of lmtool")


def _train_ngram(config: TrainConfig, model: NgramModelConfig, corpus: Any, out: Path) -> dict[str, Any]:
    from lmtool.build import NGRAM_FILE, build_smoother, counts_of, storage_of, tuned_on
    from lmtool.commands.reports import print_sizes
    from lmtool.evaluation import perplexity, score
    from lmtool.ngram.estimate import estimate
    from lmtool.ngram.model import NgramModel

    assert config.smoother is not None and config.counts is not None, "conf/model/ngram.yaml chooses them"
    smoother = build_smoother(config.smoother, model.order, corpus.vocabulary)
    cutoffs = _cutoffs(config.prune, model.order)
    storage = storage_of(config.counts, corpus)
    start = time.perf_counter()
    counts = counts_of(corpus, model.order, config.counts, storage)
    counted = time.perf_counter()
    held_out = tuned_on(config.smoother)
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


def _train_neural(config: TrainConfig, model: EncoderModel, corpus: Any, out: Path, threads: int) -> dict[str, Any]:
    import torch

    from lmtool.build import build_tree
    from lmtool.checkpoint import TREE, save_tree
    from lmtool.neural.memory import keep_freed_memory
    from lmtool.neural.model import build_neural
    from lmtool.plots import can_plot, training_curves
    from lmtool.training import METRICS, train

    assert config.training is not None and config.optim is not None, "each neural conf/model/*.yaml chooses them"
    assert config.output is not None, "and this"
    torch.set_num_threads(threads)
    keep_freed_memory()
    tree = None
    if config.tree is not None:
        start = time.perf_counter()
        tree = build_tree(config.tree, corpus)
        save_tree(tree, out / TREE)
        print(
            f"tree={config.tree.kind}: {tree.words:,} words, {tree.nodes:,} nodes, {time.perf_counter() - start:.1f} s"
        )
    torch.manual_seed(config.seed)
    trained = train(
        build_neural(model, config.output, corpus.vocabulary, tree),
        corpus.split("train"),
        corpus.split("valid"),
        config.training,
        config.optim,
        out,
        seed=config.seed,
        progress=on_terminal(),
    )
    if can_plot():
        training_curves(
            out / METRICS, out / "curves.png", f"{model.kind} + {config.output.kind}, data={config.data.name}"
        )
    return trained.as_json()

"""Networks, classes and pieces of words for ./scripts/measure, by ordinary commands."""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path

from measuring import KN5, LMTOOL, ensemble, evaluate, head, lmtool, process, rounded, row, store_of, train

ORDERS = {"bpe": (6, 8, 10), "unigram": (6, 8, 10), "char": (9, 12), "word": (5,)}


def trees() -> None:
    """PTB: hsoftmax on every tree, an epoch each (half an hour)

    Without gates and history; tree.run= is the run with `brown`.
    """
    budget = ["training.epochs=1", "training.minutes=null", "training.evaluate_every=1"]
    budget += ["model.gated=false", "model.fofe_window=0", "model.across_sentences=false"]
    budget += ["model.dropout=0.2", "model.input_dropout=0", "data=ptb"]
    chosen = ["brown", "huffman", "random", "classes", "frequency", "balanced", "wordnet", "clusters"]
    chosen += ["clusters tree.epsilon=0.25", "union", "clusters tree.run=brown"]
    chosen += [
        f"clusters tree.run=brown {more}"
        for more in ("tree.split=balanced", "tree.epsilon=0.25", "tree.representation=embeddings tree.split=balanced")
    ]
    chosen += ["union tree.trees=[brown,{kind:clusters,run:brown,epsilon:0.25}]"]
    columns = ("valid perplexity", "training s", "epochs", "examples/s", "parameters", "depth by frequency", "built, s")
    head("tree", *columns, numbers=7)
    for number, name in enumerate(chosen):
        words, folder = f"tree={name}".split(), f"tree{number}" if name != "brown" else name
        if name == "wordnet" and not Path("/usr/share/wordnet").is_dir():
            print("wordnet: Debian's wordnet-base is not installed", flush=True)
            continue
        found = train(folder, "model=hsoftmax", *words, *budget)
        tree = train(f"{folder}-tree", *words, "data=ptb", verb="tree")
        cells = [f"{found['valid_perplexity']:.2f}", f"{found['training_seconds']:.0f}", f"{found['epochs']:.2f}"]
        cells += [f"{found['examples_per_second']:,.0f}", f"{found['parameters']:,}"]
        row(name, *cells, f"{tree['weighted_mean_depth']:.2f}", f"{tree['seconds']:.1f}")


def precision() -> None:
    """PTB: model=nplm in fp32 and bf16 after the same epochs, three seeds (ten minutes)

    EPOCHS in the environment; default 1.
    """
    words = ["model=nplm", "data=ptb", f"training.epochs={os.environ.get('EPOCHS', '1')}", "training.minutes=null"]
    head("seed", "fp32", "bf16", "ratio", "seconds", numbers=4)
    for seed in (1, 2, 3):
        runs = [
            train(f"{name}-{seed}", *words, f"seed={seed}", f"training.precision={name}") for name in ("fp32", "bf16")
        ]
        one, other = (run["valid_perplexity"] for run in runs)
        seconds = " / ".join(f"{run['training_seconds']:.0f}" for run in runs)
        row(seed, f"{one:.2f}", f"{other:.2f}", f"{other / one:.4f}", seconds)


def memory() -> None:
    """synthetic: peak memory of training on 500 million tokens, and with a million words over a tree"""
    data = ["data=synthetic", "data.name=large", "data.tokens=500000000", "data.valid_tokens=50000"]
    seconds = lmtool("preprocess", *data)
    print(f"store of {store_of('large').stat().st_size / 2**30:.2f} GiB, made in {seconds:.0f} s")
    for model in ("hsoftmax", "nce"):
        words = ["train", f"model={model}", *data, "training.epochs=null", "training.minutes=1"]
        used = process([*LMTOOL, *words, f"hydra.run.dir={model}"])
        print(f"model={model}: at most {used.mib / 1024:.2f} GiB, {used.seconds:.0f} s", flush=True)
    words = ["train", "model=nplm", "model.embedding_dim=8", "model.hidden_dim=8", "output=hierarchical"]
    words += ["data=synthetic", "data.types=1000000", "training.minutes=0.5"]
    for tree in ("huffman", "random", "balanced", "frequency", "brown"):
        used = process([*LMTOOL, *words, f"tree={tree}", f"hydra.run.dir=million-{tree}"])
        print(f"1,000,000 words of dimension 8, tree={tree}: at most {used.mib / 1024:.2f} GiB", flush=True)


def classes() -> None:
    """PTB: class-based and skipping n-grams, alone and mixed with order 5 (ten minutes)

    Weights by EM on valid itself. Seconds are of the processor: for the classes and the highest order, by lmtool train.
    """
    print(f"kn5: {train('kn5', *KN5)['valid_perplexity']:.3f}", flush=True)
    for number in (100, 150, 200, 300, 500):
        for order in (9, 5, 3):  # the lower orders with the classes of the highest one
            same = f"model.file=c{number}-9/classes.txt" if order < 9 else f"model.classes={number}"
            _mixed(f"c{number}-{order}", "model=class_ngram", same, f"model.order={order}")
    for name, words in {
        "merged": ["model.classes=200", "model.passes=0"],
        "exchanged": ["model.classes=200", "model.start=most_frequent"],
        "c1000": ["model.classes=1000", "model.start=most_frequent"],
    }.items():
        _mixed(f"{name}-9", "model=class_ngram", *words, "model.order=9")
    for step, order in ((2, 3), (2, 4), (3, 3)):
        _mixed(f"skip{step}-{order}", "model=skip_ngram", f"model.step={step}", f"model.order={order}")
    _print("kn5 + c200-9 + skip2-4", ["kn5", "c200-9", "skip2-4"], "three")


def _mixed(run: str, *words: str) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    train(run, *words, "data=ptb")
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    _print(run, ["kn5", run], f"{run}-mix", f"; {seconds:.1f} s")


def _print(name: str, runs: list[str], out: str, about: str = "") -> None:
    found = ensemble(out, runs, "split=valid", "fit_split=valid")
    alone = rounded((member["perplexity"] for member in found["members"][1:]), 2)
    print(
        f"{name}: alone {alone}, mixed {found['perplexity']:.3f}, weights {rounded(found['weights'])}{about}",
        flush=True,
    )


def subwords() -> None:
    """PTB and pydoc: words, pieces of words and characters: perplexity per word and bits per character"""
    columns = ("size", "order", "tokens a word", "perplexity", "per word", "bits a character", "OOV %")
    for data in ("ptb", "pydoc"):
        head(f"{data}, valid", *columns, numbers=7)
        for unit, size in [
            ("word", None),
            *((unit, k * 1000) for unit in ("bpe", "unigram") for k in (4, 8, 16)),
            ("char", None),
        ]:
            for order in ORDERS[unit]:
                run = f"{data}-{unit}-{size}-{order}"
                words = [f"data={data}", f"data.vocabulary.unit={unit}"]
                words += [f"data.vocabulary.size={size}"] if size else []
                train(run, "model=ngram", f"model.order={order}", *words)
                found = evaluate(run)
                per_word = found["perplexity_per_word"]
                known = len((Path(run) / "vocabulary.txt").read_text(encoding="utf-8").split("\n")) - 1
                ends = round(-found["log_prob"] / math.log(per_word))  # words and sentence ends
                cells = [f"{found['tokens'] / ends:.3f}", f"{found['perplexity']:.3f}", f"{per_word:.2f}"]
                cells += [f"{found['bits_per_character']:.4f}", f"{100 * found['oov'] / found['tokens']:.2f}"]
                row(unit, size or known, order, *cells)
        print(f"{data} valid: {ends:,} words and sentence ends", flush=True)

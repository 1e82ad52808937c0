"""Quality and memory of networks for ./scripts/measure, by ordinary training commands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from measuring import LMTOOL, head, lmtool, measure, process, result, row, store_of, train

# The defaults of 0.5.0, as changes of today's.
BEFORE = ["model.gated=false", "model.fofe_window=0", "model.across_sentences=false", "training.precision=fp32"]
FORMS = {
    "0.5.0": BEFORE,
    "0.5.0, precision=auto": BEFORE[:3],
    "with a history": ["model.gated=false", "model.fofe_window=100", "model.across_sentences=true"],
    "gated, without a history": BEFORE[1:3],
    "gated, with a history": ["model.fofe_window=100", "model.across_sentences=true"],
}
BIG = ["data=text", "data.train=big20.txt.xz", "data.valid=big_heldout.txt.xz", "data.vocabulary.size=30000"]
MINUTES = {"toy": 0.05, "pydoc": 2.0, "names": 1.5, "brown": 4.0, "ptb": 10.0, "big20": 10.0}


@measure
def trees() -> None:
    """PTB: hsoftmax on every tree, an epoch each (half an hour)

    Without gates and history; tree.run= is the run with `brown`.
    """
    budget = ["training.epochs=1", "training.minutes=null", "training.evaluate_every=1"]
    budget += ["model.gated=false", "model.fofe_window=0", "model.across_sentences=false"]
    budget += ["model.dropout=0.2", "model.input_dropout=0", "data=ptb"]
    chosen = [["huffman"], ["brown"], ["random"], ["classes"], ["frequency"], ["balanced"], ["wordnet"]]
    chosen += [["clusters"], ["clusters", "tree.epsilon=0.25"], ["union"]]
    run = ["clusters", "tree.run=brown"]
    chosen += [run, [*run, "tree.split=balanced"], [*run, "tree.epsilon=0.25"]]
    chosen += [[*run, "tree.representation=embeddings", "tree.split=balanced"]]
    chosen += [["union", "tree.trees=[brown,{kind:clusters,run:brown,epsilon:0.25}]"]]
    for number, (name, *settings) in enumerate(chosen):
        folder = f"tree{number}" if name != "brown" else name
        if name == "wordnet" and not Path("/usr/share/wordnet").is_dir():
            print("wordnet: Debian's wordnet-base is not installed", flush=True)
            continue
        found = train(folder, "model=hsoftmax", f"tree={name}", *settings, *budget)
        lmtool("tree", f"tree={name}", *settings, "data=ptb", f"hydra.run.dir={folder}-tree")
        tree = result(f"{folder}-tree")
        label = " ".join([name, *settings])
        print(f"{label:<28} valid {found['valid_perplexity']:7.2f}  {found['training_seconds']:.0f} s", end="")
        print(f"  {found['epochs']:.2f} epochs  {found['examples_per_second']:,.0f} ex/s", end="")
        print(f"  {found['parameters']:,} parameters")
        print(f"{'':<28} depth {tree['weighted_mean_depth']:.2f} by frequency, built in {tree['seconds']:.1f} s")


@measure
def defaults() -> None:
    """every data set: the defaults of model=nplm beside those of 0.5.0, in the same minutes (two hours)

    DATA=toy,names and FORMS="0.5.0|with a history" choose.
    """
    forms = {name: FORMS[name] for name in os.environ.get("FORMS", "|".join(FORMS)).split("|")}
    head("data", "minutes", *forms, numbers=len(forms) + 1)
    for name in os.environ.get("DATA", ",".join(MINUTES)).split(","):
        found = []
        for number, words in enumerate(forms.values()):
            budget = ["training.epochs=null", f"training.minutes={MINUTES[name]}"]
            data = BIG if name == "big20" else [f"data={name}"]
            run = train(f"{name}-{number}", "model=nplm", *data, *words, *budget)
            found.append(f"{run['valid_perplexity']:.2f} ({run['epochs']:.1f} epochs)")
        row(name, f"{MINUTES[name]:g}", *found)


@measure
def precision() -> None:
    """PTB: model=nplm in fp32 and bf16 after the same epochs, three seeds (ten minutes)

    EPOCHS in the environment; default 1.
    """
    words = ["model=nplm", "data=ptb", f"training.epochs={os.environ.get('EPOCHS', '1')}", "training.minutes=null"]
    head("seed", "fp32", "bf16", "ratio", "seconds", numbers=4)
    for seed in (1, 2, 3):
        runs: list[dict[str, Any]] = [
            train(f"{name}-{seed}", *words, f"seed={seed}", f"training.precision={name}") for name in ("fp32", "bf16")
        ]
        one, other = (run["valid_perplexity"] for run in runs)
        seconds = " / ".join(f"{run['training_seconds']:.0f}" for run in runs)
        row(seed, f"{one:.2f}", f"{other:.2f}", f"{other / one:.4f}", seconds)


@measure
def memory() -> None:
    """synthetic: peak memory of training on 500 million tokens"""
    data = ["data=synthetic", "data.name=large", "data.tokens=500000000", "data.valid_tokens=50000"]
    seconds = lmtool("preprocess", *data)
    print(f"store of {store_of('large').stat().st_size / 2**30:.2f} GiB, made in {seconds:.0f} s")
    for model in ("hsoftmax", "nce"):
        words = ["train", f"model={model}", *data, "training.epochs=null", "training.minutes=1"]
        used = process([*LMTOOL, *words, f"hydra.run.dir={model}"])
        print(f"model={model}: at most {used.mib / 1024:.2f} GiB, {used.seconds:.0f} s", flush=True)


@measure
def synthetic() -> None:
    """order 3 and model=nplm against the source's own entropy as the data grow"""
    for tokens in (100_000, 1_000_000, 4_000_000):
        data = ["data=synthetic", "data.types=1000", "data.successors=2", f"data.tokens={tokens}"]
        models = {
            "ngram": ["model=ngram", "model.order=3"],
            "nplm": ["model=nplm", "training.minutes=1", "training.epochs=8"],
        }
        found = [
            f"{name} {train(f'{name}-{tokens}', *words, *data)['valid_perplexity']:.3f}"
            for name, words in models.items()
        ]
        out = subprocess.run([*LMTOOL, "preprocess", *data], check=True, capture_output=True, text=True).stdout
        note = next(line for line in out.splitlines() if "entropy" in line)
        print(f"{tokens:,} tokens: {', '.join(found)}; {note.rpartition('below ')[2]} is the source's own")

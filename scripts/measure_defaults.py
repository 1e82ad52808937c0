"""The defaults of model=nplm beside others in the same minutes, on every data set, for ./scripts/measure."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

# What the defaults of 0.5.0 were, as changes of those of now.
BEFORE = ["model.gated=false", "model.history=0", "model.across_sentences=false", "training.precision=fp32"]
FORMS = {
    "0.5.0": BEFORE,
    "0.5.0, precision=auto": BEFORE[:3],
    "with a history": ["model.gated=false", "model.history=100", "model.across_sentences=true"],
    "gated, without a history": BEFORE[1:3],
    "gated, with a history": ["model.history=100", "model.across_sentences=true"],
}
BIG = ["data=text", "data.train=big20.txt.xz", "data.valid=big_heldout.txt.xz", "data.vocabulary.size=30000"]
DATA = {
    "toy": (["data=toy"], 0.05),
    "pydoc": (["data=pydoc"], 2.0),
    "names": (["data=names"], 1.5),
    "brown": (["data=brown"], 4.0),
    "ptb": (["data=ptb"], 10.0),
    "big20": (BIG, 10.0),
}


def defaults(lmtool: Callable[..., float]) -> None:
    """Perplexity of valid of each form on each data set, in equal minutes; DATA and FORMS name some of them alone."""
    data = os.environ.get("DATA", ",".join(DATA)).split(",")
    forms = {
        name: words for name, words in FORMS.items() if name in os.environ.get("FORMS", "|".join(FORMS)).split("|")
    }
    print(f"| data | minutes | {' | '.join(forms)} |\n|---|--:|{'--:|' * len(forms)}")
    for name in data:
        chosen, minutes = DATA[name]
        found = []
        for number, words in enumerate(forms.values()):
            run = f"{name}-{number}"
            budget = ["training.epochs=null", f"training.minutes={minutes}", f"hydra.run.dir={run}"]
            lmtool("train", "model=nplm", *chosen, *words, *budget)
            result = json.loads(Path(run, "result.json").read_text())
            found.append(f"{result['valid_perplexity']:.2f} ({result['epochs']:.1f} epochs)")
        print(f"| {name} | {minutes:g} | {' | '.join(found)} |", flush=True)


def precision(lmtool: Callable[..., float]) -> None:
    """PTB: valid perplexity of model=nplm in fp32 and bf16 after the same epochs (EPOCHS, else one), three seeds."""
    epochs = os.environ.get("EPOCHS", "1")
    words = ["model=nplm", "data=ptb", f"training.epochs={epochs}", "training.minutes=null"]
    print("| seed | fp32 | bf16 | ratio | seconds |\n|---|--:|--:|--:|--:|")
    for seed in (1, 2, 3):
        found = {}
        for name in ("fp32", "bf16"):
            run = f"{name}-{seed}"
            lmtool("train", *words, f"seed={seed}", f"training.precision={name}", f"hydra.run.dir={run}")
            found[name] = json.loads(Path(run, "result.json").read_text())
        one, other = (found[name]["valid_perplexity"] for name in ("fp32", "bf16"))
        seconds = " / ".join(f"{found[name]['training_seconds']:.0f}" for name in found)
        print(f"| {seed} | {one:.2f} | {other:.2f} | {other / one:.4f} | {seconds} |", flush=True)

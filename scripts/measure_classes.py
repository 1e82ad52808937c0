"""Classes, skipping and pieces of words for ./scripts/measure."""

from __future__ import annotations

import math
import resource
from pathlib import Path
from typing import Any

from measuring import ensemble, evaluate, measure, train

ORDERS = {"bpe": (10, 8, 6), "unigram": (10, 8, 6), "char": (12, 9), "word": (5,)}  # the highest is counted first


@measure
def classes() -> None:
    """PTB: class-based and skipping n-grams, alone and mixed with order 5 (ten minutes)

    Weights by EM on valid itself. Seconds are of the processor: for the classes and the highest order, by lmtool train.
    """
    print(f"kn5: {train('kn5', 'model=ngram', 'model.order=5', 'data=ptb')['valid_perplexity']:.3f}", flush=True)
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
    """Train a model and mix it with kn5."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    train(run, *words, "data=ptb")
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    _print(run, ["kn5", run], f"{run}-mix", f"; {seconds:.1f} s")


def _print(name: str, runs: list[str], out: str, about: str = "") -> None:
    found = ensemble(out, runs, "split=valid", "fit_split=valid")
    alone = ", ".join(f"{member['perplexity']:.2f}" for member in found["members"][1:])
    weights = " ".join(f"{weight:.3f}" for weight in found["weights"])
    print(f"{name}: alone {alone}, mixed {found['perplexity']:.3f}, weights {weights}{about}", flush=True)


@measure
def subwords() -> None:
    """PTB and pydoc: words, pieces of words and characters: perplexity per word and bits per character"""
    for data in ("ptb", "pydoc"):
        rows = []
        for unit, size in [("word", None), *((unit, k * 1000) for unit in ("bpe", "unigram") for k in (4, 8, 16))]:
            rows += _subword_rows(data, unit, size)
        rows += _subword_rows(data, "char", None)
        print(f"\n{data}, valid: {rows[0]['words']:,} words and sentence ends")
        print("unit     size  tokens a word  order  perplexity  per word  bits a character  OOV %")
        for each in rows:
            tokens, oov = each["tokens"] / each["words"], 100 * each["oov"] / each["tokens"]
            print(f"{each['unit']:<8} {each['size']:>5} {tokens:>13.3f} {each['order']:>6}", end=" ")
            print(f"{each['perplexity']:>11.3f} {each['perplexity_per_word']:>9.2f}", end=" ")
            print(f"{each['bits_per_character']:>17.4f} {oov:>6.2f}", flush=True)


def _subword_rows(data: str, unit: str, size: int | None) -> list[dict[str, Any]]:
    """Return the results of each order, lowest first."""
    rows = []
    for order in ORDERS[unit]:
        run = f"{data}-{unit}-{size}-{order}"
        words = [f"data={data}", f"data.vocabulary.unit={unit}", *([f"data.vocabulary.size={size}"] if size else [])]
        train(run, "model=ngram", f"model.order={order}", *words)
        found = evaluate(run)
        vocabulary = len((Path(run) / "vocabulary.txt").read_text(encoding="utf-8").split("\n")) - 1
        words_and_ends = round(-found["log_prob"] / math.log(found["perplexity_per_word"]))
        rows.append(found | {"unit": unit, "order": order, "size": size or vocabulary, "words": words_and_ends})
    return rows[::-1]

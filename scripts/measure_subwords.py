"""The measurement of pieces of words for ./scripts/measure: words, pieces and characters beside each other."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

ORDERS = {"bpe": (10, 8, 6), "unigram": (10, 8, 6), "char": (12, 9), "word": (5,)}  # the highest is counted first


def subwords(lmtool: Callable[..., float]) -> None:
    """PTB and pydoc, valid, modified Kneser-Ney: perplexity by tokens and per word, and bits per character."""
    for data in ("ptb", "pydoc"):
        rows = []
        for unit, size in [("word", None), *((unit, k * 1000) for unit in ("bpe", "unigram") for k in (4, 8, 16))]:
            rows += _rows(lmtool, data, unit, size)
        rows += _rows(lmtool, data, "char", None)
        print(f"\n{data}, valid: {rows[0]['words']:,} words and sentence ends")
        print("unit     size  tokens a word  order  perplexity  per word  bits a character  OOV %")
        for row in rows:
            print(
                f"{row['unit']:<8} {row['size']:>5} {row['tokens'] / row['words']:>13.3f} {row['order']:>6} "
                f"{row['perplexity']:>11.3f} {row['perplexity_per_word']:>9.2f} {row['bits_per_character']:>17.4f} "
                f"{100 * row['oov'] / row['tokens']:>6.2f}",
                flush=True,
            )


def _rows(lmtool: Callable[..., float], data: str, unit: str, size: int | None) -> list[dict[str, Any]]:
    """A row for each order, lowest first."""
    rows = []
    for order in ORDERS[unit]:
        run = f"{data}-{unit}-{size}-{order}"
        words = [f"data={data}", f"data.vocabulary.unit={unit}", *([f"data.vocabulary.size={size}"] if size else [])]
        lmtool("train", "model=ngram", f"model.order={order}", *words, f"hydra.run.dir={run}")
        lmtool("eval", f"run={run}", f"hydra.run.dir={run}-valid")
        found = json.loads((Path(f"{run}-valid") / "result.json").read_text())
        vocabulary = len((Path(run) / "vocabulary.txt").read_text(encoding="utf-8").split("\n")) - 1
        rows.append(found | {"unit": unit, "order": order, "size": size or vocabulary, "words": _words(found)})
    return rows[::-1]


def _words(found: dict[str, Any]) -> int:
    """Words and sentence ends of the text, from its log-probability and the perplexity per word."""
    return round(-found["log_prob"] / math.log(found["perplexity_per_word"]))

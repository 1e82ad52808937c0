"""How well surprisal predicts the reading times of Natural Stories: what ./scripts/reproduce reading-times computes.

The corpus (Futrell et al. 2021) is ten stories, read word by word at the reader's own pace. A linear model of the
logarithm of a word's reading time is fitted on nine stories with and without surprisal, and compared on the tenth.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from measuring import corpora

Floats = npt.NDArray[np.float64]
T_975 = 2.262  # 97.5 % quantile of Student's t with 9 degrees of freedom: ten stories
FREQUENCY = "log_frequency_bits"
STORIES, SURPRISAL = "stories.tsv", "{}-surprisal.tsv"  # in the folder of the runs


def prepare(folder: Path) -> None:
    """Write stories.tsv: the words, with double quotation marks, their reading times and GPT-3's surprisal.

    The corpus's authors found in May 2025 that times were misaligned by one word. They corrected the file of single
    readers' times. In that of means, read here, the time of a word is still in the row before it: as listed, times
    depend on the length of the next word, which was not yet shown.
    """
    corpus = corpora() / "natural_stories"
    table, times = read(corpus / "all_stories.tok"), read(corpus / "processed_wordinfo.tsv")
    pieces = read(corpus / "all_stories_gpt3.csv", sep=",", quoting=0)
    table = table.merge(times, "left", ["item", "zone", "word"], validate="1:1")
    table["listed_time"] = np.log(table["gmeanItemRT"])
    table["time"] = table.groupby("item")["listed_time"].shift()
    parts = []
    for item, story in table.groupby("item"):
        words, of_story = list(story["word"]), pieces[pieces["story"] == item - 1]
        bits = -of_story["logprob"] / math.log(2)
        gpt3 = sums_of_pieces(words, list(zip(of_story["offset"], of_story["token"], bits, strict=True)))
        parts.append(story.assign(word=double_quotes(words), gpt3=gpt3))
    kept = ["item", "zone", "word", "time", "listed_time", "gpt3"]
    pd.concat(parts)[kept].to_csv(folder / STORIES, sep="\t", index=False, quoting=3)


def read(path: Path, sep: str = "\t", quoting: int = 3) -> pd.DataFrame:
    """Read a table whose words may be "None" and, unless quoting is 0, quotation marks."""
    return pd.read_csv(path, sep=sep, quoting=quoting, keep_default_na=False, na_values=[""])


def double_quotes(words: list[str]) -> list[str]:
    """Return the words of a story with double quotation marks, as in big20, for single ones."""
    found, is_open = [], False
    for word in words:
        is_open = is_open or word.startswith("'")
        word = re.sub("^'", '"', word)
        if is_open and (closed := re.sub(r"'(?=\W*$)", '"', word)) != word:  # not open: of a possessive
            word, is_open = closed, False
        found.append(word)
    return found


def sums_of_pieces(words: list[str], pieces: list[tuple[int, str, float]]) -> Floats:
    """Return the sum of the values of pieces `(offset, piece, value)` over each word; words are joined by spaces."""
    ends = np.cumsum([len(word) + 1 for word in words])  # the space between words is in the second one's first piece
    sums = np.zeros(len(words))
    for offset, piece, value in pieces:
        first, last = np.searchsorted(ends, [offset + piece.startswith(" "), offset + len(piece) - 1], side="right")
        if first != last:
            raise ValueError(f"{piece!r} at {offset} is a piece of two words")
        sums[first] += value
    return sums


def held_out_log_likelihood(x: Floats, y: Floats, story: npt.NDArray[np.int64]) -> Floats:
    """Return the log-likelihood `[N]` of each y `[N]`, in nats, by a linear model fitted on the other stories.

    x: `[N, P]`, to which a column of ones is added. The model is y ~ Normal(x b, s^2): b by least squares, s^2 the mean
    squared residual of the stories that it was fitted on.
    """
    x = np.column_stack([np.ones(len(y)), x])
    found = np.empty(len(y))
    for k in np.unique(story):
        held, rest = story == k, story != k
        b = np.linalg.lstsq(x[rest], y[rest], rcond=None)[0]
        variance = np.mean((y[rest] - x[rest] @ b) ** 2)
        found[held] = -0.5 * np.log(2 * np.pi * variance) - (y[held] - x[held] @ b) ** 2 / (2 * variance)
    return found


def gain(base: Floats, more: Floats, y: Floats, story: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Return what the columns `more` add to the held-out log-likelihood per word, and half its 95 % interval.

    It is the mean of the ten stories' means, with Student's interval.
    """
    added = held_out_log_likelihood(np.column_stack([base, more]), y, story) - held_out_log_likelihood(base, y, story)
    means = np.array([added[story == k].mean() for k in np.unique(story)])
    return float(means.mean()), float(T_975 * means.std(ddof=1) / math.sqrt(len(means)))


class Gain(NamedTuple):
    """What a model adds to the log-likelihood of a word's reading time, in thousandths of a nat."""

    name: str
    perplexity: float | None
    mean: float
    half: float  # of the 95 % interval
    with_marks: float  # the mean with a predictor that says whether a word has punctuation
    as_listed: float  # the mean with the times as they are listed
    correlation: float  # of the model's surprisal and GPT-3's


def table(folder: Path, recipe: dict[str, Any]) -> list[str]:
    """Return the Markdown table of the runs in a folder.

    Left out are the first and the last word of each sentence, the second of a story, and words that have, or follow, a
    token outside the vocabulary.
    """
    scored = {row["run"]: folder / SURPRISAL.format(row["run"]) for row in recipe["row"]}
    tables = {run: read(path) for run, path in scored.items() if path.exists()}
    words = next(iter(tables.values())).assign(**{run: table["surprisal_bits"] for run, table in tables.items()})
    words["mark"] = words["word"].str.contains(r"[^\w'-]").astype(float)
    before = words.shift().add_suffix(" before")
    words = words.join(before[[f"{name} before" for name in words.columns]])
    same = words["item"].eq(words["item before"]) & words["sentence"].eq(words["sentence before"])
    last = words["sentence"].ne(words["sentence"].shift(-1)) | words["item"].ne(words["item"].shift(-1))
    used = words[same & ~last & (words["zone"] > 2) & (words["oov"] + words["oov before"] == 0)]
    story = used["item"].to_numpy()

    def columns(*names: str) -> Floats:
        found: Floats = used[[both for name in names for both in (name, f"{name} before")]].to_numpy(np.float64)
        return found

    def gains(name: str, perplexity: float | None, base: Floats, surprisal: str) -> Gain:
        time, listed = (used[name].to_numpy() for name in ("time", "listed_time"))
        marked, more = np.column_stack([base, columns("mark")]), columns(surprisal)
        mean, half = gain(base, more, time, story)
        with_marks, as_listed = gain(marked, more, time, story)[0], gain(base, more, listed, story)[0]
        correlation = float(np.corrcoef(more[:, 0], used["gpt3"])[0, 1])
        return Gain(name, perplexity, 1000 * mean, 1000 * half, 1000 * with_marks, 1000 * as_listed, correlation)

    place = np.column_stack([columns("length"), used["position"], used["zone"]])
    base = np.column_stack([place, columns(FREQUENCY)])
    found = [gains("log frequency alone", None, place, FREQUENCY)]
    for row in recipe["row"]:
        if row["run"] in tables:
            result = json.loads((folder / row["run"] / "result.json").read_text())
            perplexity = float(result.get("valid_perplexity") or result["perplexity"])
            found.append(gains(row["what"], perplexity, base, row["run"]))
    found.append(gains("GPT-3 (davinci)", None, base, "gpt3"))
    lines = [f"{len(used):,} of {len(words):,} words.", ""]
    lines += ["| | perplexity | gain | punctuation as predictor | times as listed | correlation with GPT-3 |"]
    lines += ["|---|--:|--:|--:|--:|--:|"]
    for row in found:
        cells = [row.name, f"{row.perplexity:.1f}" if row.perplexity else "", f"{row.mean:.1f} ± {row.half:.1f}"]
        cells += [f"{row.with_marks:.1f}", f"{row.as_listed:.1f}", f"{row.correlation:.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines + [f"| {row['what']} | | not run | | | |" for row in recipe["row"] if row["run"] not in tables]

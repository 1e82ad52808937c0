"""What ./scripts/reproduce hw3 computes: the report's rule for n-grams, and its table cell by cell.

The report's smoothers see the 50 candidates of a question alone: the counts after a context, the number of words seen
there and the discounts are of candidates. Its unigrams are those of the word list, in which `</s>` has one count per
sentence; its longer n-grams are of a stream of words that has one `</s>`, at its end.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lmtool.evaluation.metrics import cloze_report
from lmtool.ngram.counting.counts import Counts, count_ngrams
from lmtool.ngram.tables.packed import Packed
from lmtool.ngram.tables.trie_search import SHORT
from lmtool.runs.corpus import open_run_corpus
from lmtool.runs.run import Run
from lmtool.system.files import read_json

ALPHA = 10.0  # added to the unigrams' counts


def counts_of_the_stream(counts: Counts, ids: Any, eos: int) -> Counts:
    """Return counts without longer n-grams that end with `</s>`, except those at the end of the text."""
    count = [counts.count[0]]
    for k in range(2, counts.order + 1):
        occurrences = counts.count[k - 1][:]
        occurrences[counts.trie.words(k, 0, len(occurrences)) == eos] = 0
        occurrences[counts.trie.find(ids[None, -k:].astype(np.int64)) - counts.trie.first(k)] = 1
        count.append(Packed.of(occurrences))
    return replace(counts, count=count)


def counts_of_candidates(counts: Counts, contexts: Any, candidates: Any, *, adjusted: bool) -> list[Any]:
    """Return the counts `[Q, K]` of candidates `[Q, K]` after the last words of contexts, by order.

    A context of `<s>` alone has the counts of one `<s>`, as behind five. adjusted: whether the counts below the highest
    order are of words before, as in Kneser-Ney smoothing, except for 1-grams and n-grams that begin a sentence.
    """
    found = counts.trie.find_contexts(contexts, counts.bos, counts.order - 1)
    after = [counts.count[0][:][candidates] * (candidates != counts.bos)]
    for k in range(2, counts.order + 1):
        number = counts.count[k - 1][:]
        if adjusted and k < counts.order:
            before = np.bincount(counts.suffix[k - 1][:][counts.count[k][:] > 0], minlength=len(number))
            number = np.where(np.arange(len(number)) < counts.from_start(k), before, number)
        nodes = counts.trie.find_followers(np.repeat(found[:, k - 2], candidates.shape[1]), candidates.reshape(-1))
        here = np.where(nodes >= 0, number[nodes - counts.trie.first(k)], 0).reshape(candidates.shape)
        after.append(np.where(found[:, k - 2, None] == SHORT, after[-1], here))
    return after


def interpolated(after: list[Any], taken: Any) -> Any:
    """Return p `[Q, K]` of the candidates, p(w|h) = (a(hw) - taken(hw) + left(h) p(w|h')) / (a(h.) + extra(h)).

    taken: returns what a count loses, and what is left to the shorter context beyond that, given a `[Q, K]` and k.
    """
    p = (after[0] + ALPHA) / (after[0] + ALPHA).sum(axis=1, keepdims=True)
    for k, a in enumerate(after[1:], start=2):
        total, (loss, extra) = a.sum(axis=1, keepdims=True), taken(a, k)
        left = loss.sum(axis=1, keepdims=True) + extra
        p = np.where(total > 0, (a - loss + left * p) / np.maximum(total + extra, 1), p)
    return p


def by_their_rule(folder: Path) -> dict[str, float]:
    """Return the cloze perplexities of trigrams by the report's rule, and of their mixture with the network `small`."""
    run = Run.open(folder / "wb3")
    with open_run_corpus(run, str(folder.parent / "stores"), progress=False) as corpus:
        vocabulary, ids, cloze = corpus.vocabulary, corpus.split("train").ids, corpus.cloze("valid")
        counts = count_ngrams(corpus.text("train"), vocabulary, 3)
    assert cloze is not None and vocabulary.eos is not None
    counts = counts_of_the_stream(counts, ids, vocabulary.eos)
    contexts = cloze.contexts_matrix(2, vocabulary.bos)
    fitted = read_json(folder / "kn3" / "result.json", "delete it")["discounts"]
    discounts = np.array([[0.0, *(order[name] for name in ("D1", "D2", "D3+"))] for order in fitted])

    def witten_bell(a: Any, k: int) -> tuple[Any, Any]:
        return np.zeros(a.shape), (a > 0).sum(axis=1, keepdims=True)

    def kneser_ney(a: Any, k: int) -> tuple[Any, Any]:
        return discounts[k - 1][a.clip(max=3)], 0

    found = {}
    for name, taken in (("witten_bell", witten_bell), ("kneser_ney", kneser_ney)):
        after = counts_of_candidates(counts, contexts, cloze.candidates, adjusted=taken is kneser_ney)
        found[name] = interpolated(after, taken)
    if (folder / "small-valid" / "cloze.csv").exists():
        network = np.loadtxt(folder / "small-valid" / "cloze.csv", delimiter=",", skiprows=1)[:, 1:]
        found["mixture_of_candidates"] = (2 * found["witten_bell"] + found["kneser_ney"] + network) / 4
    return {name: cloze_report(np.log(p), cloze.answers)["perplexity"] for name, p in found.items()}


def table(folder: Path, recipe: dict[str, Any]) -> list[str]:
    """Return the report's figures, ours by its conventions, ours, and which convention explains the difference.

    A figure of `recipe["kept"]` stands, marked, for one whose step was not run again.
    """
    rules = by_their_rule(folder) if (folder / "kn3" / "result.json").exists() else {}
    kept: dict[str, Any] = recipe["kept"]

    def cell(where: str | None, digits: int) -> str:
        if where is None:
            return ""
        if where in rules:
            found, mark = rules[where], ""
        elif (folder / where.split()[0] / "result.json").exists():
            found, mark = value(folder, where), ""
        elif where in kept:
            found, mark = kept[where], "†"
        else:
            return "not run"
        return f"{found:,.{digits}f}{mark}"

    lines = ["| | theirs | ours by their convention | ours | what explains the difference |", "|---|--:|--:|--:|---|"]
    for row in recipe["row"]:
        cells = [cell(row.get(key), row.get("digits", 2)) for key in ("convention", "here")]
        if "most" in row and "not run" not in cells[1] and float(cells[1].rstrip("†").replace(",", "")) > row["most"]:
            cells[1] += " (missed)"
        lines.append(f"| {row['what']} | {row.get('published', '')} | {' | '.join(cells)} | {row.get('why', '')} |")
    return [*lines, *(["", f"† {kept['about']}"] if any("†" in line for line in lines) else [])]


def value(folder: Path, where: str) -> float:
    """Return a number of a step's result.json: `STEP KEY`, KEY with dots."""
    step, key = where.split()
    found: Any = read_json(folder / step / "result.json", "delete it")
    for part in key.split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return float(found)

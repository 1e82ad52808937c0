"""Importance weights by hashed n-grams, and sampling by them: by hand, against a plain form, by the command."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
import regex

from lmtool.data import readers
from lmtool.data.text_records import block_of
from lmtool.evaluation.hashed_ngrams import NgramWeights, hashed_ngrams
from lmtool.evaluation.score_table import quantiles
from lmtool.evaluation.text_scores import TWO, criterion, log_weights
from tests.conftest import Run, result

PRIME = 1099511628211
TEXTS = [
    "The cat's hat, 3_4 -- is it?!\nThe cat",
    "",
    " \t",
    "STRASSE Stra\u00dfe \u0130 \u00e9te\u0301 \u1f40\u03b4\u1f79\u03c2.",
    "\u4e2d\u6587\u3002 \U0001f600\U0001f600 a\u00a0b \u2028 c\ud800",
    "\u0939\u093f\u0928\u094d\u0926\u0940 2\u2076\u2074, \x1c",
    "it is the cat",
]


def buckets_of(text: str) -> list[int]:
    """Compute the buckets plainly: NLTK's WordPunctTokenizer, FNV-1a of the code points; then pairs of words."""
    words = []
    for word in regex.findall(r"\w+|[^\w\s]+", text.lower()):
        words.append(14695981039346656037)
        for letter in word:
            words[-1] = (words[-1] ^ ord(letter)) * PRIME % 2**64
    pairs = [a * PRIME % 2**64 ^ b for a, b in pairwise(words)]
    return [(value ^ value >> 29) % 10_000 for value in words + pairs]


def test_buckets_are_those_of_the_plain_form() -> None:
    buckets, texts = hashed_ngrams(block_of(TEXTS))
    assert [buckets[texts == number].tolist() for number in range(len(TEXTS))] == list(map(buckets_of, TEXTS))


def test_buckets_are_used_evenly() -> None:
    buckets, _ = hashed_ngrams(block_of(f"a{number} b{number}" for number in range(40_000)))
    for some in (buckets[:80_000], buckets[80_000:]):  # words, and pairs
        counts = np.bincount(some, minlength=10_000)
        assert 0.9 < counts.var() / counts.mean() < 1.1, "as balls that are thrown into boxes"


def test_weights_are_those_of_the_plain_form() -> None:
    target, pool = TEXTS[3:], TEXTS[:5] * 2
    rows = NgramWeights([block_of(target[:1]), block_of(target[1:])], [block_of(pool)])(block_of(TEXTS))
    counts = [Counter(bucket for text in texts for bucket in buckets_of(text)) for texts in (target, pool)]
    for row, text in zip(rows, TEXTS, strict=True):
        found = buckets_of(text)
        want = [sum(math.log(c[b] / c.total() + 1e-8) for b in found) for c in counts]
        assert row["tokens"] == len(found) and [row["log_prob"], row["log_prob_out"]] == pytest.approx(want)


def test_weights_by_hand(lmtool: Run) -> None:
    """Compare weights with counts by hand.

    The target has a, b and "a b" once each; the pool has a, b, "a b", b, c, "b c", c, seven n-grams.
    """
    Path("target.txt").write_text("A b\n")
    Path("pool.txt").write_text("a b\n\nb c\nc\n")
    words = ("score", "target=target.txt", "text=pool.txt", "to=out.jsonl", "filter=kept.txt")
    said = lmtool(*words, "share=0.3", "hydra.run.dir=out")
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    log = math.log
    weights = [3 * log(1 / 3) - log(1 / 7 * 2 / 7 * 1 / 7), None]
    weights += [log(1 / 3) + 2 * log(1e-8) - log(2 / 7 * 1 / 7 * 2 / 7), log(1e-8) - log(2 / 7)]
    assert [list(row) for row in rows] == [["text", "tokens", "log_weight_nats"]] * 4
    assert [row["tokens"] for row in rows] == [3, 0, 3, 1]
    assert [row["log_weight_nats"] for row in rows] == [w and pytest.approx(w, abs=1e-6) for w in weights]
    assert Path("kept.txt").read_text() == "a b\n" and "n-grams of target.txt on pool.txt" in said
    assert result("out")["max_perplexity"] == pytest.approx(-log(343 / 54), abs=1e-6)
    lmtool(*words, "max_perplexity=17.2", "buckets=[near,far]", "bucket_limits=[0]")
    assert Path("kept.txt").read_text() == "a b\nc\n"
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [row["bucket"] for row in rows] == ["near", None, "far", "far"]
    Path("docs.jsonl").write_text('{"text": "a b"}\n{"text": "b c"}\n{"text": "c"}\n')
    lmtool("score", "target=target.txt", "text=docs.jsonl", "column=text", "to=out.tsv")
    assert Path("out.tsv").read_text().splitlines()[1] == f"3\t{log(343 / 54):.4f}"
    Path("docs.jsonl").write_text('{"text": "a b", "tokens": 1}\n[\n{"text": "c"}\n')
    lmtool("score", *words[1:2], "text=docs.jsonl", "column=text", "to=out.jsonl", "on_error=null", "prefix=x_")
    first, _, last = map(json.loads, Path("out.jsonl").read_text().splitlines())
    assert (
        first["x_log_weight_nats"] == pytest.approx(3 * log(1 / 3) - 3 * log(1 / 4), abs=1e-6) and last["x_tokens"] == 1
    )
    Path("docs.jsonl").write_text('{"text": "a b"}\n{"text": "b c"}\n{"text": "c"}\n')
    lmtool("score", "target=docs.jsonl", "text=docs.jsonl", "column=text", "to=out.tsv")
    assert {line.split("\t")[1].lstrip("-") for line in Path("out.tsv").read_text().splitlines()[1:]} == {"0.0000"}


def test_a_sample_is_drawn_by_weight(tmp_path: Path) -> None:
    """Two of four texts: text i first with probability w_i, then j with w_j / (1 - w_i)."""
    weight = np.array([0.5, 0.25, 0.15, 0.1])
    rows = np.zeros(5, dtype=TWO)
    rows["tokens"], rows["log_prob"], rows["log_prob_out"] = [3, 1, 0, 7, 2], -7, -7
    texts = np.flatnonzero(rows["tokens"])
    rows["log_prob"][texts] += np.log(weight)
    chosen, draws = np.zeros(5), 4000
    for seed in range(draws):
        noise, again = np.random.default_rng(seed), np.random.default_rng(seed)
        ranks = np.concatenate([criterion(part, None, noise) for part in (rows[:2], rows[2:])])
        assert np.array_equal(ranks, criterion(rows, None, again), equal_nan=True), "in parts as together"
        (limit,) = quantiles([ranks], [0.5], tmp_path)
        assert (ranks <= limit).sum() == 2
        chosen += ranks <= limit
    want = np.zeros(4)
    for i, j in permutations(range(4), 2):
        want[[i, j]] += weight[i] * weight[j] / (1 - weight[i])
    error = np.sqrt(want * (1 - want) / draws)
    assert (np.abs(chosen[texts] / draws - want) < 4 * error).all() and not chosen[2]
    assert log_weights(rows)[texts] == pytest.approx(np.log(weight)) and np.isnan(log_weights(rows)[2])


def test_a_sample_is_the_same_in_several_blocks_and_after_an_interruption(
    lmtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{word} {number % 7}" for number in range(200) for word in ("a", "b")]
    Path("pool.txt").write_text("".join(f"{text}\n" for text in texts))
    Path("target.txt").write_text("".join(f"{text}\n" for text in texts[::3] + texts[::2]))
    words = ("score", "target=target.txt", "text=pool.txt", "share=0.2", "selection=sample")

    def kept(*more: str) -> str:
        lmtool(*words, "filter=kept.txt", *more)
        return Path("kept.txt").read_text()

    whole = kept()
    assert whole.count("\n") == 80 and whole == kept() and whole not in (kept("seed=2"), kept("selection=top"))
    monkeypatch.setattr(readers, "BLOCK", 64)
    assert kept() == whole
    plain, scored = NgramWeights.__call__, []

    def cut_off(self: NgramWeights, block: object, **more: object) -> object:
        scored.append(block)
        if len(scored) == 5:
            raise KeyboardInterrupt
        return plain(self, block, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(NgramWeights, "__call__", cut_off)
    lmtool(*words, "filter=kept.txt", code=130)
    assert "resuming: " in lmtool(*words, "filter=kept.txt") and Path("kept.txt").read_text() == whole
    with Path("target.txt").open("a") as file:
        file.write("c\n")
    scored.clear()
    lmtool(*words, "filter=kept.txt", code=130)
    Path("target.txt").write_text("b\n")
    assert "resuming" not in lmtool(*words, "filter=kept.txt"), "another target"


def test_a_sample_by_two_models_and_with_limits(lmtool: Run, runs: Path) -> None:
    Path("pool.txt").write_text("the cat sat\nzzz\n\na dog sat on the mat .\nthe dog\na cat\n")
    words = ("score", f"run={runs}/hs", f"run_out={runs}/nplm", "text=pool.txt", "filter=kept.txt", "selection=sample")
    found = []
    for seed in range(8):
        lmtool(*words, "share=0.4", f"seed={seed}")
        found.append(Path("kept.txt").read_text().split("\n"))
    assert all(len(lines) == 3 and all(lines[:2]) for lines in found) and found[1:] != found[:-1]
    lmtool(*words, "share=0.999", "min_perplexity=-0.1", "to=out.tsv")
    values = [line.split("\t")[6] for line in Path("out.tsv").read_text().splitlines()[1:]]
    assert Path("kept.txt").read_text().count("\n") == sum(value != "" and float(value) >= -0.1 for value in values) > 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("target=t.txt text=- to=a.tsv", "target=t.txt: cannot be used with text=-: hashed n-grams need no model, and"),
        ("target=t.txt run=x text=t.txt to=a.tsv", "target=t.txt: cannot be used with run=x"),
        ("target=t.txt text=t.txt filter=k max_oov=0.1", "target=t.txt: cannot be used with max_oov=0.1"),
        ("target=none.txt text=t.txt to=a.tsv", "no file none.txt"),
        ("target=empty.txt text=t.txt to=a.tsv", "target=empty.txt: it has no words"),
        ("target=d.jsonl text=t.txt to=a.tsv", "d.jsonl holds documents, not lines of text: name the column"),
        (
            "target=t.txt text=t.txt filter=k selection=sample max_perplexity=1",
            "selection=sample: needs share=X, and weights by",
        ),
        ("run=x text=t.txt filter=k share=0.1 selection=sample", "selection=sample: needs share=X, and weights by"),
        ("target=t.txt text=t.txt filter=k share=0.1 selection=best", "selection=best: must be top or sample"),
    ],
)
def test_a_mistake_is_one_line(line: str, said: str, lmtool: Run) -> None:
    Path("t.txt").write_text("a b\n")
    Path("empty.txt").write_text(" \n")
    Path("d.jsonl").write_text('{"text": "a"}\n')
    found = lmtool("score", *line.split(), code=2)
    assert said in found and found.splitlines()[-1].startswith("lmtool: ") and not Path("k").exists()

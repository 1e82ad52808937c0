"""Modified Kneser-Ney on text without `<unk>`: the figures of KenLM's `lmplz --discount_fallback`."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest

from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.files.arpa_model import arpa_table
from lmtool.ngram.files.arpa_read import read_arpa
from lmtool.ngram.smoothers.absolute_discounting import ModifiedKneserNey
from tests.ngram.plain import text_of

# lmplz -o 2 of a b, a b, a c. <unk> is one of the five types that share the unigrams' 2/5: it has 0.1, and not 1/15.
# The bigrams' n1..n3 = 2, 2, 1 give D3+ = 3 - 4 (1/3) 0/1, so that <s> a has what is left to it by the unigrams.
THREE_SENTENCES = """\\data\\
ngram 1=6
ngram 2=5

\\1-grams:
-1	<unk>	0
0	<s>	0
-0.5228787	</s>	0
-0.69897	a	-0.21387982
-0.69897	b	-0.12493875
-0.69897	c	-0.4771213

\\2-grams:
-0.32330638	b </s>
-0.1153934	c </s>
-0.69897	<s> a
-0.53926915	a b
-0.4628808	a c

\\end\\
"""


def test_three_sentences(tmp_path: Path) -> None:
    text, vocabulary = text_of(["a b", "a b", "a c"])
    table = estimate(count_ngrams(text, vocabulary, 2), ModifiedKneserNey(2))
    (tmp_path / "kenlm.arpa").write_text(THREE_SENTENCES)
    kenlm = arpa_table(read_arpa(str(tmp_path / "kenlm.arpa")), vocabulary)
    assert table.sizes == kenlm.sizes
    np.testing.assert_allclose(table.log_prob, kenlm.log_prob, rtol=1e-6)
    np.testing.assert_allclose(table.log_backoff, kenlm.log_backoff, rtol=1e-6, atol=1e-7)
    assert table.unseen == -math.inf  # nothing is kept for a type beside <unk>


def sentences() -> list[str]:
    """400 sentences of 2,014 words, the same in every version of Python."""
    draw = random.Random(14).random
    return [" ".join(f"w{min(int((1 - draw()) ** -1.25), 60)}" for _ in range(1 + int(9 * draw()))) for _ in range(400)]


@pytest.mark.parametrize(
    ("order", "discounts", "log10_p", "log10_backoff"),
    [
        (
            3,
            [[0.333333, 1, 1.83333], [0.605882, 1.43029, 0.691877], [0.72229, 1.41076, 0.949629]],
            [-101.334852, -515.533752, -802.812448],
            [-16.0379069, -62.3812417],
        ),
        (
            5,
            [
                *([0.333333, 1, 1.83333], [0.605882, 1.43029, 0.691877], [0.720379, 1.45056, 0.406635]),
                *([0.827645, 1.28708, 1.51595], [0.921986, 1.30851, 0.988395]),
            ],
            [-101.334852, -515.533752, -778.814404, -762.388933, -618.54183],
            [-16.0379069, -61.1117672, -68.0654488, -40.7668036],
        ),
    ],
)
def test_two_thousand_words(
    order: int, discounts: list[list[float]], log10_p: list[float], log10_backoff: list[float]
) -> None:
    # D1, D2, D3+ as lmplz prints them, and the sums of log10 p and log10 backoff of its file, by order, without <s>.
    text, vocabulary = text_of(sentences())
    counts = count_ngrams(text, vocabulary, order)
    smoother = ModifiedKneserNey(order)
    table = estimate(counts, smoother)
    np.testing.assert_allclose(smoother.values[:, 1:], discounts, rtol=3e-6)
    assert table.sizes == [54, 368, 834, 1132, 1111][:order]
    ends = [table.trie.first(k) for k in range(1, order + 2)]
    keep = np.arange(len(table.log_prob)) != vocabulary.bos
    for k in range(order):
        here = slice(ends[k], ends[k + 1])
        log_p = table.log_prob[here][keep[here]].astype(np.float64)
        assert log_p.sum() / math.log(10) == pytest.approx(log10_p[k], rel=1e-7)
        if k < order - 1:
            backoff = table.log_backoff[here][keep[here]].astype(np.float64)
            assert backoff.sum() / math.log(10) == pytest.approx(log10_backoff[k], rel=3e-7)
    unk, w1 = (table.log_prob[vocabulary.ids[word]] / math.log(10) for word in ("<unk>", "w1"))
    assert [unk, w1] == pytest.approx([-2.405517, -0.9571805], rel=1e-6)

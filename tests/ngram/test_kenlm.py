"""The figures of KenLM's `lmplz --discount_fallback`, also on text without `<unk>`, and of SRILM, on Penn Treebank."""

from __future__ import annotations

import gzip
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lmtool.data.corpus import Corpus
from lmtool.data.preprocess import preprocess
from lmtool.data.sources.text import TextData
from lmtool.evaluation.metrics import perplexity
from lmtool.ngram.counting.counts import Counts, count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.files.arpa_model import arpa_table
from lmtool.ngram.files.arpa_read import read_arpa
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.smoothers.absolute_discounting import Absolute, KneserNey, ModifiedKneserNey
from lmtool.ngram.smoothers.base import Smoother
from lmtool.ngram.smoothers.interpolation import WittenBell
from lmtool.ngram.smoothers.relative_frequencies import GoodTuring
from tests.conftest import RULES
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


Ptb = tuple[Corpus, Counts]


@pytest.fixture(scope="module")
def ptb(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Ptb:
    files = {name: f"ptb/ptb.{name}.txt" for name in ("train", "valid")}
    none = dict.fromkeys(("test", "split", "cloze_valid", "cloze_valid_answers", "cloze_test"))
    data = TextData("text", "ptb", True, RULES, **files, **none, tags=False, downloads={})
    corpus = Corpus.open(preprocess(data, tmp_path_factory.mktemp("ptb"), progress=False).path)
    assert corpus.split("train").tokens == 929_589 and len(corpus.vocabulary) == 10_001
    return corpus, count_ngrams(corpus.split("train"), corpus.vocabulary, 5)


def valid_scores(
    ptb: Ptb, order: int, smoother: Smoother, cutoffs: list[int] | None = None
) -> tuple[np.ndarray, list[int]]:
    corpus, counts = ptb
    table = estimate(counts.upto(order), smoother, cutoffs=cutoffs)
    log_prob = NgramModel(table, corpus.vocabulary).score_text(corpus.split("valid"))
    assert len(log_prob) == 73_760
    return log_prob, table.sizes


# SRILM's own rounding shows in its interpolated models: 4 digits at best, so for Witten-Bell and absolute discounting.
FIGURES: list[tuple[str, Callable[[int], Smoother], list[float], float]] = [
    ("modified_kneser_ney", ModifiedKneserNey, [157.76526, 149.89556, 148.00740], 1e-7),
    ("mkn-backed_off", lambda n: ModifiedKneserNey(n, interpolate=False), [170.478, 171.715, 176.996], 2e-5),
    ("kneser_ney", KneserNey, [161.397, 153.439, 151.424], 3e-5),
    ("witten_bell", WittenBell, [200.440, 212.270, 219.005], 3e-4),
    ("witten_bell-backed_off", lambda n: WittenBell(n, interpolate=False), [188.382, 190.646, 191.555], 5e-6),
    ("good_turing", lambda n: GoodTuring(n, gt_max=7, gt_max_unigram=1), [178.908, 179.685, 183.324], 5e-6),
    ("absolute", lambda n: Absolute(n, discounts=[0.5] * n), [216.879, 235.046, 244.276], 3e-4),
]


@pytest.mark.parametrize(("name", "smoother", "want", "tolerance"), FIGURES, ids=[row[0] for row in FIGURES])
def test_smoothers(
    name: str, smoother: Callable[[int], Smoother], want: list[float], tolerance: float, ptb: Ptb
) -> None:
    for order, figure in zip((3, 4, 5), want, strict=True):
        assert perplexity(valid_scores(ptb, order, smoother(order))[0]) == pytest.approx(figure, rel=tolerance)


def test_discounts(ptb: Ptb) -> None:
    smoother = ModifiedKneserNey(5)
    estimate(ptb[1], smoother)
    want = [
        [0.25656, 0.82888, 1.26492],
        [0.727802, 1.09876, 1.4713],
        [0.868879, 1.25462, 1.44822],
        [0.942828, 1.38314, 1.43173],
        [0.959671, 1.3879, 1.24171],
    ]
    np.testing.assert_allclose(smoother.values[:, 1:], want, rtol=5e-6)
    paper = ModifiedKneserNey(5, kenlm_compatible=False)
    estimate(ptb[1], paper)
    assert paper.values[0, 3] == pytest.approx(1.26227, abs=1e-5)


def test_every_event_equals_kenlms(ptb: Ptb, real_data: Path) -> None:
    reference = real_data.parent / "reference" / "kenlm5_ptb_valid.tsv.gz"
    if not reference.is_file():
        pytest.skip("needs reference/kenlm5_ptb_valid.tsv.gz beside LMTOOL_DATA")
    log_prob, sizes = valid_scores(ptb, 5, ModifiedKneserNey(5))
    assert sizes == [10_001, 264_990, 586_558, 717_733, 737_952]
    with gzip.open(reference, "rt") as lines:
        rows = [line.split("\t") for line in list(lines)[1:]]
    assert np.abs(log_prob / math.log(10) - [float(row[4]) for row in rows]).max() < 2e-6


def test_cutoffs(ptb: Ptb) -> None:
    # lmplz --prune 0 0 1 and 0 1 2 on the same text.
    for cutoffs, sizes, figure in (
        ([0, 0, 1, 1, 1], [10_001, 264_990, 81_305, 43_110, 22_983], 154.60125),
        ([0, 1, 2, 2, 2], [10_001, 88_482, 35_657, 15_771, 7_960], 173.29789),
    ):
        log_prob, found = valid_scores(ptb, 5, ModifiedKneserNey(5), cutoffs)
        assert found == sizes and perplexity(log_prob) == pytest.approx(figure, rel=2e-7)

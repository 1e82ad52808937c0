"""Penn Treebank valid: the figures of KenLM and SRILM."""

from __future__ import annotations

import gzip
import math
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
from lmtool.ngram.models.ngram_model import NgramModel
from lmtool.ngram.smoothers.absolute_discounting import Absolute, KneserNey, ModifiedKneserNey
from lmtool.ngram.smoothers.base import Smoother
from lmtool.ngram.smoothers.interpolation import WittenBell
from lmtool.ngram.smoothers.relative_frequencies import GoodTuring
from tests.conftest import RULES

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

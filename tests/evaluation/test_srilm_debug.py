"""The lines of SRILM's -debug 2."""

from __future__ import annotations

import numpy as np

from lmtool.evaluation.other_tools import detail_lines
from tests.evaluation.test_token_scores import tokens


def test_zeros_and_text_without_sentences() -> None:
    stream = tokens([0, 1], sentences=False)
    part = stream, np.array([-np.inf, np.log(0.1)]), None, stream.offsets
    found = list(detail_lines([part], sentences=False, name="f"))
    assert found == [
        "\tp( a | <s> ) \t= 0 [ -inf ]",
        "\tp( b | a ...) \t= 0.1 [ -1 ]",
        "file f: 0 sentences, 2 words, 0 OOVs",
        "1 zeroprobs, logprob= -1 ppl= 10 ppl1= 10",
    ]

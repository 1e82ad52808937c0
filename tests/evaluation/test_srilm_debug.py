"""The lines of SRILM's -debug 2."""

from __future__ import annotations

import numpy as np

from lmtool.evaluation.other_tools import detail_lines
from tests.evaluation.test_token_scores import TEXT, tokens


def test_lines_by_hand() -> None:
    log_prob = np.log([0.1, 0.01, 0.1, 1.0, 0.1, 0.1])
    part = tokens(TEXT), log_prob, np.array([1, 2, 3, 1, 2, 3]), tokens(TEXT).offsets
    found = list(detail_lines([part], sentences=True, name="f"))
    assert found == [
        "a b",
        "\tp( a | <s> ) \t= [1gram] 0.1 [ -1 ]",
        "\tp( b | a ...) \t= [2gram] 0.01 [ -2 ]",
        "\tp( </s> | b ...) \t= [3gram] 0.1 [ -1 ]",
        "1 sentences, 2 words, 0 OOVs",
        "0 zeroprobs, logprob= -4 ppl= 21.54435 ppl1= 100",  # 10^(4/3), 10^(4/2)
        "",
        "<unk> a",
        "\tp( <unk> | <s> ) \t= [1gram] 1 [ 0 ]",
        "\tp( a | <unk> ...) \t= [2gram] 0.1 [ -1 ]",
        "\tp( </s> | a ...) \t= [3gram] 0.1 [ -1 ]",
        "1 sentences, 2 words, 1 OOVs",
        "0 zeroprobs, logprob= -2 ppl= 4.641589 ppl1= 10",
        "",
        "file f: 2 sentences, 4 words, 1 OOVs",
        "0 zeroprobs, logprob= -6 ppl= 10 ppl1= 31.62278",
    ]


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

"""Models without `<unk>`, or with log10 p = -99 for it: a word outside the vocabulary is an OOV, `<unk>` itself too."""

from __future__ import annotations

import io
import json
import logging
import math
import pickle
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool import kenlm as ours
from lmtool import srilm
from lmtool.evaluation.token_scores import TokenScores
from tests.conftest import Run, result

# As `ngram-count` writes it: with -unk, or without.
ARPA = """\\data\\
ngram 1={words}
ngram 2=3

\\1-grams:
-0.6\t</s>
-99\t<s>\t-0.3
{unk}-0.5\ta\t-0.2
-0.4\tb\t-0.1

\\2-grams:
-0.25\t<s> a
-0.35\ta b
-0.15\tb </s>

\\end\\
"""
FORMS = {"none": ARPA.format(words=4, unk=""), "-99": ARPA.format(words=5, unk="-99\t<unk>\n")}
KNOWN = -0.25 - 0.4 - 0.15  # log10 p of a after <s>, b after an OOV and </s> after b
LN10 = math.log(10)


@pytest.fixture(params=list(FORMS))
def arpa(request: pytest.FixtureRequest, lmtool: Run) -> Run:
    Path("m.arpa").write_text(FORMS[request.param])
    return lmtool


def test_the_floor_is_that_of_kenlm(arpa: Run, caplog: pytest.LogCaptureFixture) -> None:
    """KenLM 0.3 gives -101 for "a zzz b" where the file has no <unk>, and -100 where it has -99."""
    with caplog.at_level(logging.WARNING):
        model = ours.Model("m.arpa")
    assert caplog.messages == ["note: m.arpa gives OOVs probability 0: here unk_log10=-100 and back-off weights"]
    for word in ("zzz", "<unk>", "<s>"):
        assert model.score(f"a {word} b") == pytest.approx(KNOWN - 0.2 - 100)
        found = [(pytest.approx(-0.25), 2, False), (pytest.approx(-100.2), 1, True), (pytest.approx(-0.4), 1, False)]
        assert list(model.full_scores(f"a {word} b", eos=False)) == found
        assert model.perplexity(f"a {word} b") == pytest.approx(10 ** ((100.2 - KNOWN) / 4))
    state = ours.State()
    model.BeginSentenceWrite(state)
    assert model.BaseScore(state, "zzz", state) == pytest.approx(-100.3)
    assert model.score("a b") == pytest.approx(-0.75)
    lower = ours.Model("m.arpa", unk_log10=-20)
    for again in (lower, pickle.loads(pickle.dumps(lower))):
        assert again.score("a zzz b") == pytest.approx(KNOWN - 20.2)
    assert ours.Model("m.arpa", unk_log10=-1000).perplexity("zzz") == math.inf  # above the largest float, no error
    assert package.load("m.arpa").score("a zzz b")[1] == -np.inf, "in lmtool itself it is 0"


def test_the_floor_of_other_models(
    runs: Path, lmtool: Run, caplog: pytest.LogCaptureFixture, also_logged: Callable[[str], None]
) -> None:
    """Apply the floor without back-off weights in a mixture; networks and smoothed models need no floor."""
    Path("a.arpa").write_text(FORMS["none"])
    Path("b.arpa").write_text(FORMS["-99"])
    Path("text").write_text("a b\n")
    lmtool("ensemble", "runs=[a.arpa,b.arpa]", "text=text", "weights=[0.5,0.5]", "hydra.run.dir=mix")
    also_logged("lmtool.kenlm")
    with caplog.at_level(logging.WARNING):
        assert ours.Model("mix").score("a zzz b") == pytest.approx(KNOWN - 100)
        assert len(caplog.messages) == 1 and "mix gives OOVs probability 0" in caplog.text
        for name in ("kn3", "nplm", "mix"):
            assert ours.Model(runs / name).score("zzz") > -99
        assert len(caplog.messages) == 1
        # Of maximum likelihood, also a word of the vocabulary may have probability 0.
        words = package.load(runs / "mle").words
        assert ours.Model(runs / "mle", unk_log10=-50).score(f"{words[3]} zzz {words[3]}") <= -100


def test_an_unk_of_the_text_is_an_oov(arpa: Run) -> None:
    """As `ngram -ppl` counts: `<unk>` and zzz are OOVs, and left out of the perplexity without them."""
    Path("text").write_text("a <unk> b\na zzz b\na b\n")
    said = arpa("eval", "arpa=m.arpa", "text=text", "hydra.run.dir=out")
    found = result("out")
    without = 10 ** (-(2 * KNOWN - 0.75) / 9)
    assert (found["tokens"], found["oov"], found["perplexity"]) == (11, 2, None)
    assert found["perplexity_without_oov"] == pytest.approx(without, rel=1e-6)
    assert "tokens out of vocabulary have probability 0 (2 of 11)" in said
    assert TokenScores.open(Path("out/scores.h5")).tokens.oov_positions.tolist() == [1, 5]
    assert f"without OOVs             {without:.4f}" in said
    detail = arpa("eval", "arpa=m.arpa", "text=text", "detail=true", "hydra.run.dir=detail")
    assert "file text: 3 sentences, 8 words, 2 OOVs\n0 zeroprobs" in detail and detail.count("= [OOV] 0 ") == 2
    with redirect_stdout(io.StringIO()) as out:
        assert srilm.command(["ngram", "-lm", "m.arpa", "-order", "2", "-ppl", "text"]) == 0
    last = out.getvalue().splitlines()[-2:]
    assert last[0].endswith("3 sentences, 8 words, 2 OOVs") and f" ppl= {without:.6f} " in last[1]


def test_each_verb_counts_it(arpa: Run) -> None:
    texts = ["a <unk> b", "a zzz <unk>", "a b"]
    assert [score.oov for score in package.score_texts("m.arpa", texts)] == [1, 2, 0]
    Path("text").write_text("\n".join([*texts, ""]))
    arpa("score", "arpa=m.arpa", "text=text", "to=t.jsonl")
    rows = [json.loads(line) for line in Path("t.jsonl").read_text().splitlines()]
    assert [row["oov"] for row in rows] == [1, 2, 0]
    arpa("score", "arpa=m.arpa", "text=text", "filter=kept", "max_oov=0", "max_perplexity=1e9")
    assert Path("kept").read_text() == "a b\n"
    arpa("surprisal", "arpa=m.arpa", "text=text", "to=s.csv")
    assert [line.split(",")[5] for line in Path("s.csv").read_text().splitlines()[1:]] == [*"01001100"]
    Path("pairs.jsonl").write_text('{"sentence_good": "a b", "sentence_bad": "a <unk>"}\n')
    arpa("pairs", "arpa=m.arpa", "text=pairs.jsonl", "items=i.jsonl")
    (item,) = [json.loads(line) for line in Path("i.jsonl").read_text().splitlines()]
    assert (item["oov_good"], item["oov_bad"]) == (0, 1)
    model = package.load("m.arpa")
    assert model.split_of(["a <unk> zzz"]).oov_words == ["<unk>", "zzz"]


def test_where_it_has_a_probability_it_is_a_word(runs: Path, lmtool: Run) -> None:
    Path("text").write_text("<unk> zzz\n")
    lmtool("eval", f"run={runs}/kn3", "text=text", "hydra.run.dir=out")
    assert result("out")["oov"] == 1
    (found,) = package.score_texts(runs / "nplm", ["<unk> zzz <unk>"])
    assert found.oov == 1


LISTS = "0 ||| a b ||| x= 1 ||| -1\n0 ||| a zzz b ||| x= 1 ||| 0\n1 ||| a b ||| x= 1 ||| -1\n1 ||| b ||| x= 1 ||| 0\n"


def test_an_oov_in_one_hypothesis_does_not_stop_the_lists(arpa: Run) -> None:
    Path("lists").write_text(LISTS)
    said = arpa("rescore", "arpa=m.arpa", "nbest=lists", "hydra.run.dir=out")
    assert "note: 1 of 4 hypotheses have words to which m.arpa gives probability 0" in said
    assert "each has log10 p = -100 (unk_log10=) before back-off weights" in said
    lines = [line.split(" ||| ") for line in Path("out/nbest.txt").read_text().splitlines()]
    scores = {line[1]: float(line[2].split()[-1]) / LN10 for line in lines}
    # b after <s> has its back-off weight.
    want = {"a b": -0.75, "a zzz b": KNOWN - 0.2 - 100, "b": -0.3 - 0.4 - 0.15}
    assert scores == {text: pytest.approx(value, rel=1e-6) for text, value in want.items()}
    assert [line[1] for line in lines] == ["a b", "a zzz b", "b", "a b"]
    arpa("rescore", "arpa=m.arpa", "nbest=lists", "unk_log10=-20", "hydra.run.dir=given")
    line = next(line for line in Path("given/nbest.txt").read_text().splitlines() if "zzz" in line)
    assert float(line.split("lmtool= ")[1].split()[0]) == pytest.approx((KNOWN - 20.2) * LN10)
    said = arpa("rescore", "arpa=m.arpa", "nbest=lists", "unk_log10=1", code=2)
    assert "unk_log10=1.0: must be" in said and said.count("\n") == 1
    with pytest.raises(ValueError, match="unk_log10=1: must be a number, 0 or less"):
        ours.Model("m.arpa", unk_log10=1)

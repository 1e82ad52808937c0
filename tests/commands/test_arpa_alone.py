"""ARPA files used without a run: `arpa=` and `lmtool.load`; and files that stupid backoff is written to."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from lmtool.data.sources.builtin import VALID
from lmtool.ngram.files.arpa_model import arpa_model
from tests.conftest import Run, result

ARPA = """\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-1.2	<unk>
-99	<s>	-0.3
-0.7	</s>
-0.5	a	-0.2
-0.9	b	-0.1

\\2-grams:
-0.1	<s> a
-0.4	a b
-0.6	b </s>

\\end\\
"""
WITHOUT_UNK = ARPA.replace("ngram 1=5", "ngram 1=4").replace("-1.2\t<unk>\n", "")
# By hand, and by KenLM's query: a b </s> is -0.1 -0.4 -0.6; in b zzz a </s>, b is -0.3 - 0.9, zzz -0.1 - 1.2, a -0.5
# (<unk> has no weight), </s> -0.2 - 0.7: -5 in total.
TEXT = "a b\nb zzz a\n"
LOG10 = [-0.1, -0.4, -0.6, -1.2, -1.3, -0.5, -0.9]


@pytest.fixture
def files(lmtool: Run) -> Run:
    Path("de.arpa").write_text(ARPA)
    Path("no.arpa.gz").write_bytes(gzip.compress(WITHOUT_UNK.encode()))
    Path("de.txt").write_text(TEXT)
    return lmtool


def test_scores_text_in_one_line(files: Run) -> None:
    said = files("eval", "arpa=de.arpa", "text=de.txt", "hydra.run.dir=out")
    # 10^-1.2 + 10^-0.7 + 10^-0.5 + 10^-0.9 is 0.705: no distribution.
    assert "run de.arpa\n" in said and "note: these scores do not sum to one" in said
    found = result("out")
    assert (found["tokens"], found["oov"], found["run"]) == (7, 1, str(Path("de.arpa").resolve()))
    assert found["perplexity"] == pytest.approx(5.179474882, rel=1e-6) == 10 ** (5 / 7)  # query's
    assert found["perplexity_without_oov"] == pytest.approx(4.136820478, rel=1e-6)
    assert "p( zzz=<unk> | b ...)" in files("eval", "arpa=de.arpa", "text=de.txt", "detail=true")


def test_without_unk_and_with_another_spelling(files: Run) -> None:
    said = files("eval", "arpa=no.arpa.gz", "text=de.txt", "hydra.run.dir=out")
    assert "note: tokens out of vocabulary have probability 0 (1 of 7): no.arpa.gz has no <unk>" in said
    found = result("out")
    assert found["perplexity"] is None and found["perplexity_without_oov"] == pytest.approx(4.136820478, rel=1e-6)
    Path("upper.arpa").write_text(ARPA.replace("<unk>", "<UNK>"))
    files("eval", "arpa=upper.arpa", "text=de.txt", "hydra.run.dir=upper")
    assert result("upper")["perplexity"] == pytest.approx(10 ** (5 / 7), rel=1e-6)


def test_its_vocabulary(tmp_path: Path) -> None:
    def model(text: str) -> object:
        (tmp_path / "x.arpa").write_text(text)
        return arpa_model(str(tmp_path / "x.arpa"))

    here = model(ARPA).vocabulary
    assert here.words == ("<unk>", "a", "b", "</s>", "<s>") and (here.unk, here.eos, here.bos) == (0, 3, 4)
    without = model(WITHOUT_UNK)
    assert without.vocabulary.words == ("a", "b", "<unk>", "</s>", "<s>")
    np.testing.assert_array_equal(without.log_prob(np.array([[0]]), np.array([2])), [-np.inf])
    # Neither <s> nor </s>: running text, without ends of sentences.
    stream = ARPA.replace("ngram 1=5", "ngram 1=3").replace("ngram 2=3", "ngram 2=1")
    for line in ("-99\t<s>\t-0.3\n", "-0.7\t</s>\n", "-0.1\t<s> a\n", "-0.6\tb </s>\n"):
        stream = stream.replace(line, "")
    running = model(stream).vocabulary
    assert running.words == ("<unk>", "a", "b", "<s>") and running.eos is None
    # A </s> that nothing predicts, as lmtool writes for such text.
    unused = stream.replace("ngram 1=3", "ngram 1=4").replace("-0.5\ta", "-99\t</s>\t0\n-0.5\ta")
    assert (model(unused).vocabulary.words, model(unused).vocabulary.eos) == (running.words, None)


def test_predict_generate_and_rescore(files: Run) -> None:
    assert "   1  b           0.3981  -0.4000\n" in files("predict", "a", "arpa=de.arpa", "hydra.run.dir=next")
    assert result("next")["run"] == "de.arpa"
    assert len(files("generate", "arpa=de.arpa", "count=3", "seed=1").splitlines()) == 5
    Path("lists.txt").write_text("0 ||| b a ||| ||| 0\n0 ||| a b ||| ||| 0\n")
    files("rescore", "arpa=de.arpa", "nbest=lists.txt", "hydra.run.dir=lists")
    best = (Path("lists") / "nbest.txt").read_text().splitlines()[0].split(" ||| ")
    assert best[1] == "a b"


@pytest.mark.parametrize("order", [3, 5])
def test_stupid_backoff_is_written_so_that_others_score_it(lmtool: Run, order: int) -> None:
    settings = ("model=ngram", "data=toy", "smoother=stupid_backoff", f"model.order={order}")
    lmtool("train", *settings, "hydra.run.dir=sb")
    said = lmtool("export", "run=sb", "to=sb.arpa")
    assert "note: written so that other tools get the same scores, which do not sum to one" in said
    Path("valid.txt").write_text(VALID)
    lmtool("eval", "arpa=sb.arpa", "text=valid.txt", "hydra.run.dir=there")
    here, there = result("sb")["valid_perplexity"], result("there")["perplexity"]
    assert not result("there")["normalized"]
    if order == 3:
        assert there == pytest.approx(here, rel=1e-6)
    else:
        assert "the first 3 words of sentences that begin in an unseen way" in said
        assert f"perplexity of valid {here:.4f} here, {there:.4f} there\n" in said and there > here

"""What is done with scores, as commands: any text, every token's line, the share of right guesses."""

from __future__ import annotations

import io
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lmtool.evaluation.token_scores import TokenScores
from tests.conftest import Run, result, run_lines

TEXT = ("data=text", "data.name=mine", "data.train=train.txt", "data.valid=valid.txt")


@pytest.fixture(scope="module")
def unigrams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unigrams of 12 tokens, a 6, b 2, </s> 4: one, of maximum likelihood, in which <unk> has none, and laplace."""
    folder = tmp_path_factory.mktemp("unigrams")
    (folder / "train.txt").write_text("a b\na a\na b\na a\n")
    (folder / "valid.txt").write_text("a\nb a\n")
    line = f"train model=ngram model.order=1 {' '.join(TEXT)} smoother="
    return run_lines(folder, f"{line}mle hydra.run.dir=one", f"{line}laplace hydra.run.dir=laplace")


@pytest.fixture
def unigram(lmtool: Run, unigrams: Path) -> Run:
    shutil.copytree(unigrams, ".", dirs_exist_ok=True)
    return lmtool


def test_every_token_is_kept_and_shown(unigram: Run) -> None:
    said = unigram("eval", "run=one", "detail=true", "accuracy=true", "hydra.run.dir=out")
    assert "\nb a\n\tp( b | <s> ) \t= [1gram] 0.1666667 [ -0.77815" in said
    assert "\n\tp( a | b ...) \t= [1gram] 0.5 [ -0.30103 ]\n" in said
    # 10^(log10(2) + log10(3)) of the 1st, of all: (2 * 2 * 3 * 3 * 6) ^ (1/5)
    assert "file valid: 2 sentences, 3 words, 0 OOVs" in said and f"{216**0.2:.4f}" in said
    found = result("out")
    assert found["accuracy"] == 0.4  # a is the likeliest word, and stands at 2 of 5 places
    assert found["perplexity"] == pytest.approx(216**0.2)
    kept = TokenScores.open(Path("out/scores.h5"))
    np.testing.assert_allclose(np.exp(kept.log_prob), [1 / 2, 1 / 3, 1 / 6, 1 / 2, 1 / 3], rtol=1e-6)
    assert [kept.tokens.words[k] for k in kept.tokens.ids] == ["a", "</s>", "b", "a", "</s>"]
    assert "accuracy" not in (unigram("eval", "run=one", "hydra.run.dir=plain") + str(result("plain")))


def test_any_text_is_scored(unigram: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("new.txt").write_text("b zzz\n\na\n")  # the empty line is not a sentence
    said = unigram("eval", "run=laplace", "text=new.txt", "hydra.run.dir=file")
    # (c + 1) / 16: b 3, <unk> 1, </s> 5, a 7, </s> 5.
    found = result("file")
    assert (found["tokens"], found["oov"]) == (5, 1)
    assert found["perplexity"] == pytest.approx(math.prod(16 / k for k in (3, 1, 5, 7, 5)) ** 0.2, rel=1e-6)
    assert found["perplexity_without_oov"] == pytest.approx(math.prod(16 / k for k in (3, 5, 7, 5)) ** 0.25, rel=1e-6)
    assert found["bits_per_character"] == pytest.approx(5 * found["bits_per_word"] / 8) and "new.txt" in said
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"b zzz\na")))  # without the last newline
    unigram("eval", "run=laplace", "text=-", "hydra.run.dir=standard")
    assert result("standard")["log_prob"] == found["log_prob"]
    assert (
        TokenScores.open(Path("file/scores.h5")).tokens.fingerprint
        == TokenScores.open(Path("standard/scores.h5")).tokens.fingerprint
    )


def test_text_that_is_none(unigram: Run) -> None:
    Path("empty.txt").write_text("\n\n")
    assert "empty.txt is empty" in unigram("eval", "run=one", "text=empty.txt", code=2)
    assert "no file missing.txt" in unigram("eval", "run=one", "text=missing.txt", code=2)


def test_marks_in_text_are_words_out_of_vocabulary(
    unigram: Run, caplog: pytest.LogCaptureFixture, also_logged: Callable[[str], None]
) -> None:
    Path("marks.txt").write_text("<s> a </s>\n")
    Path("words.txt").write_text("zzz a zzz\n")
    also_logged("lmtool.system.terminal")
    for name in ("marks", "words"):
        unigram("eval", "run=one", f"text={name}.txt", f"hydra.run.dir={name}")
    assert "marks.txt: 2 words <s> or </s> count as OOV" in caplog.text and "words.txt" not in caplog.text
    assert result("marks")["log_prob"] == result("words")["log_prob"] and result("marks")["oov"] == 2


@pytest.fixture(scope="module")
def of_toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kinds = "model.order=3 hydra.run.dir=kn3", "model.order=2 smoother=laplace hydra.run.dir=bigrams"
    return run_lines(tmp_path_factory.mktemp("toy"), *(f"train model=ngram data=toy {kind}" for kind in kinds))


@pytest.fixture
def models(lmtool: Run, of_toy: Path) -> Run:
    shutil.copytree(of_toy, ".", dirs_exist_ok=True)
    return lmtool


def test_compare_runs_scores_and_other_tools(models: Run) -> None:
    lines = models("eval", "run=kn3", "detail=true", "hydra.run.dir=kn3-valid")
    Path("lines.txt").write_text(lines)
    models("eval", "run=bigrams", "hydra.run.dir=bigrams-valid")
    names = ["kn3", "bigrams", "bigrams-valid", "kn3-valid/scores.h5", "lines.txt"]
    said = models("compare", f"runs=[{','.join(names)}]", "hydra.run.dir=out")
    found = result("out")
    sentences = len(TokenScores.open(Path("kn3-valid/scores.h5")).tokens.offsets) - 1
    assert f"28 tokens in {sentences} sentences; too few sentences to tell" in said
    assert (
        "note: too few sentences to tell: an interval and p-values need 10 blocks or more (block=auto, 4 sent" in said
    )
    assert (found["tokens"], found["unit"], found["units"]) == (28, "sentences", sentences)
    first, *rest = found["members"]
    assert [first["run"], *(row["run"] for row in rest)] == names and first["difference"] is None
    kn3, bigrams = first["perplexity"], rest[0]["perplexity"]
    assert rest[0]["difference"] == pytest.approx(bigrams - kn3)
    tests = ("from", "to", "p_bootstrap", "p_randomization", "block")
    assert [row[key] for row in found["members"] for key in tests] == [None] * 25
    assert {key: value for key, value in rest[1].items() if key != "run"} == {
        key: value for key, value in rest[0].items() if key != "run"
    }
    assert rest[2]["difference"] == 0
    assert rest[3]["perplexity"] == pytest.approx(kn3, rel=1e-6)
    assert "note: lines.txt and kn3 agree to the digits that such files have" in said
    assert Path("out/compare.csv").read_text().splitlines()[2].startswith(f"bigrams,{bigrams},{bigrams - kn3}")
    assert Path("out/compare.md").read_text().splitlines()[2] == f"| kn3 | {kn3:.4f} | - | - | - | - | - | - |"


def test_compare_of_ten_sentences_has_intervals(models: Run) -> None:
    Path("ten.txt").write_text("the cat sat\nthe dog ran\n" * 5)
    said = models("compare", "runs=[kn3,bigrams]", "text=ten.txt", "hydra.run.dir=out")
    assert "40 tokens in 10 sentences; 10,000 draws of single sentences" in said and "too few" not in said
    row = result("out")["members"][1]
    assert row["from"] < row["difference"] < row["to"] and row["block"] == 1
    assert min(row["p_bootstrap"], row["p_randomization"]) >= 2 / 2**10
    for name in ("kn3", "bigrams"):
        models("eval", f"run={name}", "text=ten.txt", f"hydra.run.dir={name}-ten")
    models("compare", "runs=[kn3-ten,kn3-ten/scores.h5,bigrams-ten]", "hydra.run.dir=same")
    first, same, other = result("same")["members"]
    assert (same["difference"], same["p_bootstrap"], first["block"]) == (0, 1, None)
    assert other | {"run": "", "split": "", "fitted": []} == row | {"run": "", "split": "", "fitted": []}
    # Blocks of two are five.
    said = models("compare", "runs=[kn3-ten,bigrams-ten]", "block=2", "hydra.run.dir=two")
    assert "too few sentences to tell" in said and result("two")["members"][1]["from"] is None


def test_compare_refuses_other_tokens(models: Run, unigram: Run) -> None:
    for split in ("valid", "test"):
        models("eval", "run=kn3", f"split={split}", f"hydra.run.dir={split}")
    said = models("compare", "runs=[valid,test]", code=2)
    assert "valid and test scored different tokens: sentence 1, token" in said and said.count("\n") == 1
    assert "different tokens" in models("compare", "runs=[kn3,one]", code=2)
    Path("short.txt").write_text("the cat\n")
    Path("long.txt").write_text("the cat\nthe cat\n")
    for text in ("short", "long"):
        models("eval", "run=kn3", f"text={text}.txt", f"hydra.run.dir={text}")
    assert "3 and 6 of them, of which the first 3 agree" in models("compare", "runs=[short,long]", code=2)
    assert "no run folder and no file nothing" in models("compare", "runs=[kn3,nothing]", code=2)
    assert "name two or more that differ" in models("compare", "runs=[kn3]", code=2)
    assert "resamples=10: must be" in models("compare", "runs=[kn3,bigrams]", "resamples=10", code=2)


def test_compare_text_without_sentences_by_blocks_and_zeros(unigram: Run) -> None:
    train = ("train", "model=ngram", "model.order=1", *TEXT, "data.sentences=false")
    unigram(*train, "hydra.run.dir=a")
    unigram(*train, "smoother=mle", "hydra.run.dir=b")
    said = unigram("compare", "runs=[a,b]", "block=2", "hydra.run.dir=out")
    assert "3 tokens; too few tokens to tell" in said
    assert (result("out")["unit"], result("out")["units"]) == ("tokens", 3)
    assert "3 tokens; too few tokens to tell" in unigram("compare", "runs=[a,b]", "hydra.run.dir=out")
    Path("many.txt").write_text("a b\na b\n" * 50)
    many = ("compare", "runs=[a,b]", "text=many.txt", "hydra.run.dir=out")
    assert "200 tokens; 10,000 draws of blocks of 20 tokens" in unigram(*many)  # ten units of 20
    assert "200 tokens; 10,000 draws of blocks of 2 tokens" in unigram(*many, "block=2")
    said = unigram("compare", "runs=[a,b]", "block=sentence", code=2)
    assert "block=sentence: the text has no sentences" in said and said.count("\n") == 1
    assert "block=0: must be auto, sentence, or" in unigram("compare", "runs=[a,b]", "block=0", code=2)
    Path("p.tsv").write_text("word\tp\na\t0.5\nb\t0\na\t0.5\n")
    said = unigram("compare", "runs=[a,p.tsv]", "hydra.run.dir=zero")
    assert "note: p.tsv gives 1 tokens probability 0" in said
    assert result("zero")["members"][1]["perplexity"] is None


def test_kenlms_scores_of_ptb(lmtool: Run, real_data: Path) -> None:
    reference = real_data.parent / "reference" / "kenlm5_ptb_valid.tsv.gz"
    if not reference.is_file():
        pytest.skip("needs reference/kenlm5_ptb_valid.tsv.gz beside LMTOOL_DATA")
    lmtool("train", "model=ngram", "model.order=5", "data=ptb", "hydra.run.dir=kn5")
    lmtool("compare", f"runs=[kn5,{reference}]", "hydra.run.dir=out")
    ours, theirs = result("out")["members"]
    assert ours["perplexity"] == pytest.approx(148.0074, abs=5e-5)
    assert theirs["perplexity"] == pytest.approx(ours["perplexity"], rel=1e-7)


def test_nbest_lists_are_rescored(unigram: Run) -> None:
    Path("lists").write_text("0 ||| b b ||| x= 1 ||| -1\n0 ||| a a ||| x= 1 ||| -2\n1 ||| zzz ||| x= 1 ||| 0\n")
    unigram("rescore", "run=laplace", "nbest=lists", "weight=0.5", "hydra.run.dir=given")
    # a 7, b 3, <unk> 1 and </s> 5, of 16.
    score = {"b b": math.log(45 / 16**3), "a a": math.log(245 / 16**3), "zzz": math.log(5 / 16**2)}
    want = [("0", "b b", -1), ("0", "a a", -2), ("1", "zzz", 0)]
    lines = [line.split(" ||| ") for line in Path("given/nbest.txt").read_text().splitlines()]
    for (name, words, total), line in zip(want, lines, strict=True):
        assert line[:2] == [name, words]
        assert float(line[2].split()[-1]) == pytest.approx(score[words], rel=1e-6)
        assert float(line[3]) == pytest.approx(total + 0.5 * score[words], rel=1e-6)
    assert result("given")["weight"] == 0.5 and "word_error_rate" not in result("given")
    Path("right").write_text("a a\nzzz c\n")
    said = unigram("rescore", "run=laplace", "nbest=lists", "reference=right", "hydra.run.dir=tuned")
    found = result("tuned")
    # The second of list 0 is taken from where -2 + w log(245) is above -1 + w log(45).
    assert found["weight"] == pytest.approx(1 / math.log(245 / 45) + 1, rel=1e-6)
    rates = [found[f"word_error_rate{end}"] for end in ("", "_before", "_oracle")]
    assert rates == [0.25, 0.75, 0.25] and "tuned on these lists themselves" in said
    assert Path("tuned/best.txt").read_text() == "a a\nzzz\n"


def test_a_word_penalty_is_tuned_with_the_weight(unigram: Run) -> None:
    # Longer hypotheses are less likely: no weight above 0 chooses "a a a", and none below 1/2 "a a".
    Path("lists").write_text("0 ||| a a a\n0 ||| a\n1 ||| a a\n1 ||| b b a a ||| x= 1 ||| 1\n")
    Path("right").write_text("a a a\na a\n")
    line = ("rescore", "run=laplace", "nbest=lists", "reference=right")
    unigram(*line, "hydra.run.dir=weight")
    said = unigram(*line, "word_penalty=tuned", "hydra.run.dir=both")
    found = result("both")
    assert result("weight")["word_error_rate"] == 0.4 and found["word_error_rate"] == 0
    assert "word_penalty" not in result("weight") and found["word_penalty"] < 0
    given = [f"weight={found['weight']:.6g}", f"word_penalty={found['word_penalty']:.6g}"]
    assert f"use {' '.join(given)}" in said
    unigram(*line, *given, "hydra.run.dir=given")
    assert result("given")["word_error_rate"] == 0 and "tuned" not in result("given")
    assert Path("given/best.txt").read_text() == "a a a\na a\n"


def test_faulty_nbest_lists_and_settings(unigram: Run) -> None:
    for text in ("0 ||| a\n\n0 ||| b\n", "0 ||| a\n\n"):
        Path("lists").write_text(text)
        said = unigram("rescore", "run=one", "nbest=lists", code=2)
        assert "lists, line 2 is empty" in said and said.count("\n") == 1
    Path("lists").write_text("0 ||| a\n")
    assert "1.0000" in unigram("rescore", "run=one", "nbest=lists")
    Path("lists").write_text("0 ||| zzz\n")
    assert "1 of 1 hypotheses have words to which one gives probability 0" in unigram(
        "rescore", "run=one", "nbest=lists"
    )

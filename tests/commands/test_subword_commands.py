"""Pieces of words from the command line and from Python: what goes in and what is printed is text."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.errors import UserError
from lmtool.runs import run as run_folder
from tests.conftest import Run, answer, result

pytest.importorskip("tokenizers", reason="needs tokenizers (pip install lmtool[subwords])")

TRAIN = "the cat sat on the mat\nthe dogs sat\nw\u00e4hrend cats sit on mats\n<unk> sits\n"
DATA = ["data=text", "data.name=own", "data.train=train.txt", "data.valid=valid.txt"]


@pytest.fixture
def texts(lmtool: Run) -> Run:
    Path("train.txt").write_text(TRAIN * 3)
    Path("valid.txt").write_text("the cats  sat\n\u65e5 <unk> mat\n")  # 8 words and sentence ends, 25 characters
    return lmtool


def test_a_run_of_pieces_needs_nothing_but_its_folder(texts: Run) -> None:
    said = texts("preprocess", *DATA, "data.vocabulary.unit=bpe", "data.vocabulary.min_count=4")
    assert "pieces for each word and sentence end of train" in said
    # Only `the`, `sat` and `on` are there four times: three, three and two merges.
    assert "264 pieces, not 8,000: the words of train have no more; data.vocabulary.min_count=4 leaves rare" in said
    bpe = [*DATA, "data.vocabulary.unit=bpe", "data.vocabulary.size=280"]
    texts("train", "model=ngram", "model.order=8", "smoother=witten_bell", *bpe, "hydra.run.dir=run")
    said = texts("eval", "run=run", "hydra.run.dir=valid")
    found = result("valid")
    assert found["oov"] == 0 and found["tokens"] > 8 and "perplexity per word" in said
    assert found["perplexity"] == pytest.approx(math.exp(-found["log_prob"] / found["tokens"]))
    assert found["perplexity_per_word"] == pytest.approx(math.exp(-found["log_prob"] / 8))
    assert found["bits_per_character"] == pytest.approx(-found["log_prob"] / 25 / math.log(2))
    shutil.copy("valid.txt", "copy.txt")
    for gone in ("stores", "outputs"):
        shutil.rmtree(gone, ignore_errors=True)
    for gone in ("train.txt", "valid.txt"):
        Path(gone).unlink()
    texts("eval", "run=run", "text=copy.txt", "hydra.run.dir=copy")
    for key in ("log_prob", "tokens", "perplexity_per_word", "bits_per_character"):
        assert result("copy")[key] == pytest.approx(found[key], rel=1e-12)
    shutil.copytree("run", "other")
    tokenizer = Path("other/tokenizer.json")
    tokenizer.write_text(json.dumps(json.loads(tokenizer.read_text()), indent=1))
    said = texts("ensemble", "runs=[run,other]", "text=copy.txt", "vocabulary=union", code=2)
    assert "run and other have tokenizers with other pieces of words: compare the perplexity_per_word" in said
    texts("convert", "run=run", "quantize=8", "hydra.run.dir=small")  # keeps the tokenizer
    texts("eval", "run=small", "text=copy.txt", "hydra.run.dir=small-copy")
    assert result("small-copy")["tokens"] == found["tokens"]
    assert result("small-copy")["perplexity_per_word"] == pytest.approx(found["perplexity_per_word"], rel=0.1)
    model = package.load("run")
    assert "pieces of words" in repr(model)
    scores = model.score(["the cats  sat", ["\u65e5", "<unk>", "mat"]])
    assert sum(map(np.sum, scores)) == pytest.approx(found["log_prob"])
    assert model.log_dist(model.context(model.ids("the c"))[None]).shape == (1, len(model.vocabulary))
    assert np.exp(model.log_dist(model.context(model.ids("the c"))[None])).sum() == pytest.approx(1)
    # Each sampled text is text: words with single spaces, whose pieces are those of the text again.
    for sampled in model.generate("the", count=5, length=30, seed=3):
        assert sampled.startswith("the") and "\u0120" not in sampled and "  " not in sampled.strip()
    texts("predict", "the", "run=run", "top=3")
    words = [row["word"] for row in answer()["contexts"][0]["words"]]
    assert set(words) <= {" cat", " dogs", " mat", "<unk>", " c", " m", " d", " ", " ma", " do", "</s>"}, words
    with pytest.raises(UserError, match="is not one word of this model's text"):
        model.score([["the cat"]])


def test_other_tokens_are_not_compared(texts: Run) -> None:
    for unit in ("word", "unigram", "char"):
        texts("train", "model=ngram", "model.order=3", "smoother=witten_bell", *DATA, f"data.vocabulary.unit={unit}",
              f"hydra.run.dir={unit}")  # fmt: skip
        texts("eval", f"run={unit}", f"hydra.run.dir={unit}-valid")
        per_word = -result(f"{unit}-valid")["log_prob"] / 8
        assert result(f"{unit}-valid")["perplexity_per_word"] == pytest.approx(math.exp(per_word))
    assert result("word-valid")["perplexity_per_word"] == result("word-valid")["perplexity"]
    want = "word and unigram have other tokens (data.vocabulary.unit=word and unigram): compare the perplexity_per_word"
    assert want in texts("compare", "runs=[word,unigram]", code=2)
    assert want in texts("ensemble", "runs=[word,unigram]", code=2)
    two = ["run=unigram", "run_out=word", "text=valid.txt", "to=scores.tsv"]
    assert "unigram and word do not cut text into the same tokens" in texts("score", *two, code=2)
    assert "char-valid and word have other tokens" in texts("compare", "runs=[char-valid,word]", code=2)
    texts("ensemble", "runs=[unigram]", "cache=unigram", "hydra.run.dir=mixed")
    assert package.load("mixed").form.join(package.load("mixed").ids("the cat")) == "the cat"
    Path("unigram/tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"unigram/tokenizer.json is missing: train it again"):
        package.load("unigram")
    Path("unigram/tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"unigram/tokenizer.json is damaged, or of another run"):
        package.load("unigram")
    run_folder.Run.open(Path("unigram")).save()
    with pytest.raises(UserError, match="is not a tokenizer that the library tokenizers reads"):
        package.load("unigram")


def test_a_network_over_pieces(texts: Run) -> None:
    small = ["model.embedding_dim=8", "model.hidden_dim=12", "training.epochs=1", "training.minutes=null"]
    line = ["train", "+experiment=subwords_nplm", *DATA, "data.vocabulary.size=270", *small, "training.batch_size=16"]
    texts(*line, "hydra.run.dir=net")
    model = package.load("net")
    assert model.context_size == 8 and model.generate("the cat", count=1, length=3, seed=1)[0].startswith("the cat")
    near = model.neighbors("the", top=2)
    assert len(near) == 2 and not any("\u0120" in word for word, _ in near)
    with pytest.raises(UserError, match=r"'dogma' is \d pieces of words: name a word of one piece"):
        model.neighbors("dogma")


def test_counts_elsewhere_have_no_text_to_cut(texts: Run) -> None:
    Path("counts.tsv").write_text("</s>\t2\na\t2\n")
    line = ["train", "model=ngram", "model.order=1", "counts=table", "counts.paths=counts.tsv", *DATA]
    said = texts(*line, "data.vocabulary.unit=bpe", code=2)
    assert "data.vocabulary.unit=bpe: this source counts words elsewhere and gives no text" in said

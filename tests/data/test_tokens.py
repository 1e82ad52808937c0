"""Which tokens a text has: sentences without `</s>`, closed vocabularies, and examples with a whole context."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import lmtool as package
from lmtool.config.data import Unit
from lmtool.data.corpus import Corpus
from lmtool.data.text_form import TextEncoder, TextForm, split_of_text
from lmtool.data.tokenizer import TextBlock, line_ends
from lmtool.errors import UserError
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.pruning.entropy import log_marginals, prune_by_entropy
from lmtool.ngram.smoothers.interpolation import WittenBell
from lmtool.training.batches import Batches
from tests.conftest import Run, result

UNIGRAMS = {"kind": "ngram", "order": 1}
TRAIN = ["a b c", "a b", "d a b"]
WITHOUT_END = ("model=ngram", "model.order=3", "smoother=witten_bell", "data=toy", "data.sentence_end=false")


def test_sentences_without_their_ends(tmp_path: Path) -> None:
    with Corpus.from_texts(TRAIN, ["c x", "b"], sentence_end=False, store_dir=tmp_path) as corpus:
        vocabulary, train, valid = corpus.vocabulary, corpus.split("train"), corpus.split("valid")
        a, b, c, d, unk = (vocabulary.ids[word] for word in ("a", "b", "c", "d", "<unk>"))
        assert train.ids.tolist() == [a, b, c, a, b, d, a, b] and train.offsets.tolist() == [0, 3, 5, 8]
        assert valid.ids.tolist() == [c, unk, b] and valid.offsets.tolist() == [0, 2, 3]
        assert valid.oov_positions.tolist() == [1] and (train.words, corpus.rows[0]["sentences"]) == (8, 3)
        assert "</s>" not in vocabulary.words and vocabulary.sentences and vocabulary.eos is None
        counts = count_ngrams(corpus.text("train"), vocabulary, 2)
        bigrams = dict(zip(map(tuple, counts.trie.ngrams(2, 0, 5).tolist()), counts.count[1][:].tolist(), strict=True))
        bos = vocabulary.bos
        assert bigrams == {(a, b): 3, (b, c): 1, (d, a): 1, (bos, a): 2, (bos, d): 1}
        # Windows behind <s> <s>: a (twice), a b (twice), a b c, d, d a, d a b.
        assert count_ngrams(corpus.text("train"), vocabulary, 3).distinct_windows == 6
        assert count_ngrams(corpus.text("train"), vocabulary, 1).distinct_windows == 4
        table = estimate(counts, WittenBell(2))
        assert log_marginals(table, vocabulary)[bos] == pytest.approx(np.log(3 / 8))  # 3 sentences of 8 words
        firsts = [prune_by_entropy(table, threshold, vocabulary).sizes[1] for threshold in (1e-9, 10.0)]
        assert firsts == [5, 0]
        with pytest.raises(UserError, match=r"training\.memory=null"):
            corpus.stored("train")
    # Files, strings and texts from memory have the same tokens.
    form, text = TextForm(vocabulary), b"c x\n\nb\n"
    split, skipped = split_of_text([text], "text", form)
    texts = TextEncoder(form)(TextBlock(text, line_ends(text)))
    sentences, sizes = form.as_split([["c", "x"], [], ["b"]], one_text=False)
    for found in (split, texts.split, sentences):
        assert found.ids.tolist() == valid.ids.tolist() and found.offsets.tolist() == [0, 2, 3]
        assert found.oov_positions.tolist() == [1]
    assert (skipped, sizes, texts.documents.tolist(), split.words) == (1, [2, 0, 1], [0, 2, 2, 3], 3)
    with Corpus.from_texts(TRAIN, unit="char", sentence_end=False, store_dir=tmp_path) as characters:
        vocabulary, train = characters.vocabulary, characters.split("train")
        assert "".join(vocabulary.words[k] for k in train.ids) == "a b ca bd a b"
        form, lines = TextForm(vocabulary, Unit.char), b"a b c\na b\nd a b\n"
        assert split_of_text([lines], "text", form)[0].offsets.tolist() == train.offsets.tolist() == [0, 5, 8, 13]


def test_models_of_sentences_without_ends(lmtool: Run) -> None:
    lmtool("train", *WITHOUT_END, "out=run")
    lmtool("train", "model=lstm", "data=toy", "data.sentence_end=false", "training.steps=2", "out=net")
    for run in ("run", "net"):
        lmtool("eval", f"run={run}", f"out={run}-valid")
        assert (result(f"{run}-valid")["tokens"], result(f"{run}-valid")["oov"]) == (24, 0)  # VALID has 24 words
        model = package.load(run)
        np.testing.assert_allclose(np.exp(model.log_dist(model.context(model.ids(""))[None])).sum(), 1, rtol=1e-5)
        (one, two) = model.generate(count=2, length=7, seed=1)
        assert len(one.split()) == len(two.split()) == 7 and "</s>" not in one + two
        log_prob = model.score(["the cat sat", "the cat sat"])
        np.testing.assert_allclose(log_prob[0], log_prob[1], rtol=1e-6)  # each sentence begins anew
        assert len(log_prob[0]) == 3
    assert model.across_sentences is False
    Path("two.txt").write_text("the cat sat\na dog\n")
    lmtool("convert", "run=run", "to=run.arpa")
    written = Path("run.arpa").read_text()
    Path("other.arpa").write_text(written.partition("\n")[2])  # as other tools write it
    Path("stream.arpa").write_text(written.replace('"sentences": true', '"sentences": false'))
    lmtool("eval", "run=run", "text=two.txt", "out=of-run")
    for name, equal in (("run", True), ("other", True), ("stream", False)):
        lmtool("eval", f"arpa={name}.arpa", "text=two.txt", "out=of-file")
        assert (result("of-file")["perplexity"] == pytest.approx(result("of-run")["perplexity"], rel=1e-6)) is equal
    lmtool("train", "model=ngram", "model.order=3", "data=toy", "out=usual")
    assert "only one of them has </s>" in lmtool("ensemble", "runs=[run,usual]", code=2)
    across = ("model=nplm", "data=toy", "data.sentence_end=false", "model.across_sentences=true")
    refused = lmtool("train", *across, code=2)
    assert "set model.across_sentences=false" in refused


def test_a_closed_vocabulary(lmtool: Run, tmp_path: Path) -> None:
    """`horse`, in test alone, is refused; without `<unk>`, an unseen type or `</s>` the list has all probability."""
    closed = "data.vocabulary.closed=true"
    said = lmtool("train", "model=ngram", "data=toy", closed, code=2)
    remedy = "list all words in data.vocabulary.file=, or set false"
    assert f"data.vocabulary.closed=true: not in the vocabulary: 'horse'; {remedy}" in said
    with Corpus.from_texts(TRAIN, ["c b"], closed=True, sentence_end=False) as corpus:
        assert set(corpus.vocabulary.words) == {"a", "b", "c", "d", "<s>"}
        package.train(UNIGRAMS, corpus, smoother={"kind": "laplace", "alpha": 1e9}, out="flat")
        package.train(UNIGRAMS, corpus, out="kn")
        package.train({"kind": "cbow"}, corpus, training={"steps": 1}, out="net")
    flat, kn, net = (package.load(run) for run in ("flat", "kn", "net"))
    p = [np.exp(each.log_dist(each.context(each.ids(""))[None]))[0] for each in (flat, kn, net)]
    np.testing.assert_allclose(p[0], [0.25] * 4 + [0], rtol=1e-6)
    np.testing.assert_allclose([dist[:4].sum() for dist in p], [1, 1, 1], rtol=1e-6)
    (tmp_path / "tr.txt").write_text("a b c\nb c a\n")
    (tmp_path / "va.txt").write_text("a c\n")
    text = ("data=text", "data.train=tr.txt", "data.valid=va.txt", "data.vocabulary.closed=true")
    lmtool("train", "model=class_ngram", "model.classes=2", "model.order=2", *text, "out=classes")
    refused = lmtool("train", "model=ngram", *text, "limit_vocabulary=va.txt", code=2)
    assert "not in the vocabulary: 'b'; list all words in limit_vocabulary=" in refused
    with pytest.raises(UserError, match="not in the vocabulary: 'x'"):
        kn.perplexity(["a x"])
    # <unk> in the text is one of its words, and the only one that p(<unk>) is of.
    with Corpus.from_texts(["a <unk>", "b"], ["a"], closed=True, name="unk") as corpus:
        assert "<unk>" in corpus.vocabulary.words and corpus.vocabulary.closed
        package.train(UNIGRAMS, corpus, out="unk")
    with pytest.raises(UserError, match="not in the vocabulary: 'x'"):
        package.load("unk").score("x")


def test_full_windows_alone_are_learned_from(toy: Corpus, lmtool: Run) -> None:
    text = toy.split("train")
    batches = Batches(text, 8, 3, seed=1, full=3)
    contexts = torch.cat([contexts for contexts, _ in itertools.islice(batches, batches.per_epoch)])
    assert not (contexts == text.bos).any() and contexts.shape == (72, 3)
    sentences = np.diff(text.offsets)
    assert len(text.full_windows(3)) == (sentences - 3).clip(min=0).sum() and batches.per_epoch == 77 // 8
    full = ("data=toy", "model.full_windows=true")
    said = lmtool("train", "model=nplm", *full, "model.context_size=3", "training.steps=1")
    assert "full windows: 77 of the 137 tokens of train are examples" in said
    # Valid is evaluated on the same kind of positions, and eval says that it scores all.
    said = lmtool("train", "model=nplm", *full, "model.context_size=3", "training.epochs=1", "out=net")
    run, valid = package.load("net").model, toy.split("valid")
    score, whole_windows = run.score_text(valid), valid.full_windows(3)
    assert f"valid perplexity is of {len(whole_windows)} of {valid.tokens} tokens" in said
    value = result("net")["valid_perplexity"]
    np.testing.assert_allclose(value, np.exp(-score[whole_windows].mean()), rtol=1e-5)
    assert f"best valid perplexity {value:.4f} of full windows, " in said
    assert "note: all tokens are scored, those at the start" in lmtool("eval", "run=net", "split=valid", "out=e")
    lmtool("report", "net", "e", "out=page")
    assert "toy, valid, full windows" in Path("page/report.html").read_text()
    sweep = ("-m", "model=nplm", "data=toy", "training.steps=1", "model.full_windows=true,false")
    table = lmtool("train", *sweep, "model.context_size=3", "hydra.sweep.dir=sweep")
    assert table.count("valid, full windows") == 1, "the two perplexities are of different tokens"
    Path("short.txt").write_text("a b\n")
    lines = ("data=text", "data.train=long.txt", "data.valid=short.txt", *full[1:])
    Path("long.txt").write_text("a b c d e f g\n")
    assert "no sentence of valid has 6 tokens" in lmtool("train", "model=nplm", *lines, code=2)
    # N-grams that stand whole in a sentence: of `a b </s>`, three words, two pairs, one triple.
    counts = count_ngrams(toy.text("train"), toy.vocabulary, 3)
    whole = counts.full_windows()
    for k in (2, 3):
        ends = itertools.pairwise(text.offsets.tolist())
        gram = {tuple(text.ids[i : i + k]) for first, last in ends for i in range(first, last - k + 1)}
        assert {tuple(row) for row in whole.trie.ngrams(k, 0, whole.trie.sizes[k - 1])} == gram
        assert whole.count[k - 1][:].sum() == (sentences - k + 1).clip(min=0).sum()
        suffixes = [tuple(row[1:]) for row in whole.trie.ngrams(k, 0, len(gram))]
        shorter = whole.trie.ngrams(k - 1, 0, whole.trie.sizes[k - 2])
        assert [tuple(shorter[node]) for node in whole.suffix[k - 2][:]] == suffixes
    lmtool("train", "model=ngram", *full, "model.order=3", "out=whole")
    model = package.load("whole")
    assert np.exp(model.log_dist(np.full((1, 2), text.bos))).sum() == pytest.approx(1, rel=1e-6)
    with pytest.raises(UserError, match=r"model\.full_windows=true with model\.context_size=9"):
        text.full_windows(9)

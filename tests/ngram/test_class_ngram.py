"""Class-based n-grams and those of every s-th word: by hand, classes from files and learned ones, the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lmtool.data.corpus import Corpus
from lmtool.data.derived_corpus import MappedCorpus, SkipCorpus, interleave
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.language_model import LanguageModel
from lmtool.ngram.counting.counts import count_ngrams
from lmtool.ngram.estimation.estimate import estimate
from lmtool.ngram.models.ngram_model import CLASSES_FILE, Units
from lmtool.ngram.models.word_classes import WordClasses, learned_classes, read_classes
from lmtool.ngram.smoothers.absolute_discounting import KneserNey
from lmtool.ngram.smoothers.base import Smoother
from lmtool.ngram.tables.storage import Storage
from tests.conftest import Run, result

# Counts: a 3, x 2, b 1, y 1, </s> 4; z is in the list of words alone.
SENTENCES = ["a x", "a x", "b y", "a"]
WORDS = ["a", "x", "b", "y", "z"]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus.from_texts(SENTENCES, ["a y"], words=WORDS, store_dir=tmp_path)


def classes_of(corpus: Corpus, tmp_path: Path, text: str) -> WordClasses:
    (tmp_path / "mine.txt").write_text(text)
    return read_classes(tmp_path / "mine.txt", corpus.vocabulary, key="model.file")[0]


def members(classes: WordClasses, words: tuple[str, ...]) -> set[frozenset[str]]:
    return {frozenset(words[w] for w in np.flatnonzero(classes.class_of == c)) for c in range(len(classes.classes))}


def text_of(corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    text = corpus.split("train")
    return text.ids, text.offsets


def model_of(corpus: Corpus, classes: WordClasses, order: int, smoother: Smoother) -> LanguageModel:
    units = Units(MappedCorpus(corpus, classes.class_of, classes.classes), classes=classes)
    return units.model(estimate(count_ngrams(units.corpus.text("train"), units.corpus.vocabulary, order), smoother))


def test_probabilities_by_hand(corpus: Corpus, tmp_path: Path) -> None:
    classes = classes_of(corpus, tmp_path, "a A\nb A\nx X\ny X\nz X\n")
    assert classes.classes.words == ("</s>", "A", "X", "<unk>", "<s>")
    assert classes.classes.counts.tolist() == [4, 4, 3, 0, 0]
    model = model_of(corpus, classes, 2, Smoother(2))
    ids = corpus.vocabulary.ids
    contexts = np.array([[ids[word]] for word in ("<s>", "a", "b", "a", "b", "x")])
    targets = np.array([ids[word] for word in ("b", "x", "y", "z", "</s>", "</s>")])
    # p(A|<s>) = 1, p(X|A) = 3/4, p(</s>|A) = 1/4, p(</s>|X) = 1; p(b|A) = 1/4; z is half an occurrence:
    # p(x|X) = 4/7, p(y|X) = 2/7, p(z|X) = 1/7.
    p = np.exp(model.log_prob(contexts, targets))
    np.testing.assert_allclose(p, [1 / 4, 3 / 4 * 4 / 7, 3 / 4 * 2 / 7, 3 / 4 / 7, 1 / 4, 1], rtol=1e-6)
    np.testing.assert_allclose(np.exp(model.log_dist(contexts)).sum(axis=1), 1, atol=1e-6)
    text = corpus.split("train")
    both = model.score_text(text), model.score_text(text, memory_limit=1 << 40)
    # a x </s> twice: p = 3/4 (3/4) (4/7) (1); b y </s>: 1/4 (3/4) (2/7); a </s>: 3/4 (1/4).
    assert np.exp(both[0].sum()) == pytest.approx((9 / 28) ** 2 * (3 / 56) * (3 / 16), rel=1e-6)
    np.testing.assert_array_equal(*both)


def test_every_distribution_sums_to_one_with_words_that_do_not_occur(corpus: Corpus) -> None:
    classes, _ = learned_classes(*text_of(corpus), corpus.vocabulary, 2, 5, merging=True)
    assert {frozenset({"</s>"}), frozenset({"<s>"}), frozenset({"z", "<unk>"})} <= members(
        classes, corpus.vocabulary.words
    )
    model = model_of(corpus, classes, 3, KneserNey(3))
    size = len(corpus.vocabulary)
    contexts = np.stack(np.meshgrid(np.arange(size), np.arange(size)), axis=-1).reshape(-1, 2)
    dist = model.log_dist(contexts)
    np.testing.assert_allclose(np.logaddexp.reduce(dist, axis=1), 0, atol=1e-6)
    assert np.isfinite(dist[:, : size - 1]).all()


def test_learned_classes(corpus: Corpus) -> None:
    text, vocabulary = text_of(corpus), corpus.vocabulary
    for merging in (True, False):
        found, about = learned_classes(*text, vocabulary, 2, 9, merging=merging)
        assert members(found, vocabulary.words) == {
            frozenset(group) for group in (("a", "b"), ("x", "y"), ("</s>",), ("<s>",), ("z", "<unk>"))
        }
        assert about[0].startswith("2 classes, ") and "average mutual information" in about[0] and len(about) == 1
        again, _ = learned_classes(*text, vocabulary, 2, 9, merging=merging)
        np.testing.assert_array_equal(found.class_of, again.class_of)
    assert found.classes.words == ("c1", "</s>", "c2", "unseen", "<s>")
    most, about = learned_classes(*text, vocabulary, 100, 9, merging=True)
    assert len(most.classes) == 4 + 3 and "model.classes=100: only 4 words" in about[1]


def test_without_ends_of_sentences_no_pair_is_of_two(tmp_path: Path) -> None:
    """The order of the sentences then changes nothing; pairs across them would give other numbers."""
    said = []
    for sentences in (SENTENCES * 3, sorted(SENTENCES * 3)):
        with Corpus.from_texts(sentences, words=WORDS, sentence_end=False, store_dir=tmp_path) as corpus:
            found, about = learned_classes(*text_of(corpus), corpus.vocabulary, 2, 9, merging=True)
        # a x 6 times, b y 3 times: the classes of neighbors are certain, so that the information is their entropy.
        said.append((members(found, corpus.vocabulary.words), about))
    assert said[0] == said[1] and "0.9183 bits" in said[0][1][0]  # of 2/3 and 1/3


def test_the_text_of_classes_is_read_piece_by_piece(corpus: Corpus, tmp_path: Path) -> None:
    classes = classes_of(corpus, tmp_path, "a A\nb A\nx X\ny X\n")
    recoded = MappedCorpus(corpus, classes.class_of, classes.classes)
    train, stored = recoded.split("train"), recoded.text("train")
    np.testing.assert_array_equal(train.ids, classes.class_of[corpus.split("train").ids])
    np.testing.assert_array_equal(stored.ids[1:4], train.ids[1:4])
    assert len(stored.ids) == recoded.tokens("train") == 11 and recoded.folder is None
    assert recoded.vocabulary is classes.classes and recoded.fingerprint != corpus.fingerprint
    counts = [count_ngrams(recoded.text("train"), classes.classes, 3, storage=Storage(m, tmp_path)) for m in (None, 64)]
    assert counts[0].count[1][:].tolist() == counts[1].count[1][:].tolist()
    assert counts[0].count[0][:].tolist() == [4, 4, 3, 0, 0, 4]


def test_files_of_classes(corpus: Corpus, tmp_path: Path) -> None:
    words = corpus.vocabulary.words
    plain = classes_of(corpus, tmp_path, "a A\nx\tX\n\nnobody N\ny X\n")
    srilm = classes_of(corpus, tmp_path, "A 1 a\nX 0.25 x\nX 0.75 y\n")
    np.testing.assert_array_equal(plain.class_of, srilm.class_of)
    np.testing.assert_array_equal(plain.log_within, srilm.log_within)  # those of train
    assert {frozenset({"x", "y"}), frozenset({"a"}), frozenset({"b"})} <= members(plain, words)
    _, about = read_classes(tmp_path / "mine.txt", corpus.vocabulary, key="model.file")
    assert about == [f"7 classes, of which 5 are words that {tmp_path / 'mine.txt'} does not have"]
    clash = classes_of(corpus, tmp_path, "x b\ny b\n")  # the word b is not in the class b
    assert {frozenset({"x", "y"}), frozenset({"b"})} <= members(clash, words)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a A\na B\n", "line 2: a is in two classes, A and B"),
        ("a\n", "line 1: 'a' must be 'word class'"),
        ("a b c\n", "line 1: 'a b c' must be 'word class'"),
        ("C 0.5 a b\n", "line 1: 'C 0.5 a b' must be 'word class'"),
        ("</s> A\na A\n", "</s> must be alone in its class"),
        ("<s> A\na A\n", "<s> must be alone in its class"),
        ("\udcff A\n", r"bad\.txt, line 1: byte 0xff is not UTF-8"),
    ],
)
def test_mistakes_in_a_file_of_classes(text: str, said: str, corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=said) as error:
        read_classes(tmp_path / "bad.txt", corpus.vocabulary, key="model.file")
    assert str(error.value).startswith(f"model.file={tmp_path / 'bad.txt'}")
    with pytest.raises(UserError, match="nowhere: check the path"):
        read_classes(tmp_path / "nowhere", corpus.vocabulary, key="model.file")


def test_classes_are_saved_as_they_are(tmp_path: Path) -> None:
    words = ("a\\t", " ", "\t", "d", "</s>", "<unk>", "<s>")
    vocabulary = Vocabulary(words, np.array([5, 3, 3, 0, 2, 0, 0]), 4, 5)
    classes = WordClasses.of([0, 1, 1, 0, 2, 3, 4], ["A", "B b", "E", "U", "S"], vocabulary)
    path = tmp_path / CLASSES_FILE
    classes.save(path)
    assert path.read_text().splitlines()[:2] == ["B\\sb\t0.5\t\\s", "B\\sb\t0.5\t\\t"]
    found = WordClasses.open(path, vocabulary)
    np.testing.assert_array_equal(found.class_of, classes.class_of)
    np.testing.assert_array_equal(found.log_within, classes.log_within)
    assert found.classes.fingerprint() == classes.classes.fingerprint()
    for text, said in (
        (path.read_text().replace("0.5", "0.6"), "was edited"),
        (path.read_text().partition("\n")[2], "damaged, or of other words"),
        ("a b c\n", "damaged"),
        (path.read_text().replace("0.5", "0.0"), "damaged"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=said):
            WordClasses.open(path, vocabulary)
    path.unlink()
    with pytest.raises(UserError, match="missing: train the model again"):
        WordClasses.open(path, vocabulary)


def test_from_the_command_line(lmtool: Run, tmp_path: Path) -> None:
    line = ("train", "model=class_ngram", "data=toy", "model.order=3")
    lmtool("train", "model=ngram", "data=toy", "model.order=3", "hydra.run.dir=kn3")
    counts = {path: path.read_bytes() for path in Path("stores").iterdir()}
    printed = lmtool(*line, "model.classes=8", "hydra.run.dir=cls")
    assert "8 classes, " in printed
    assert {path: path.read_bytes() for path in Path("stores").iterdir()} == counts  # none of classes are kept
    lmtool("eval", "run=cls", "hydra.run.dir=scored")
    assert result("scored")["perplexity"] == pytest.approx(result("cls")["valid_perplexity"], rel=1e-9)
    lmtool("ensemble", "runs=[kn3,cls]", "split=valid", "fit_split=valid", "hydra.run.dir=mix")
    assert result("mix")["perplexity"] <= min(row["perplexity"] for row in result("mix")["members"]) + 1e-9
    assert len(lmtool("predict", "the", "run=cls", "oov=unk").splitlines()) > 3
    assert lmtool("generate", "run=mix", "seed=1", "count=1")
    # The same classes from the run's own file, in SRILM's format; and the same model within a limit of memory.
    more = ("model.file=cls/classes.txt", "counts.memory=64KiB", "hydra.run.dir=again")
    assert "classes, of which 0 are words" in lmtool(*line, *more)
    assert result("again")["valid_perplexity"] == pytest.approx(result("cls")["valid_perplexity"], rel=1e-9)
    lmtool(
        *line,
        "model.classes=8",
        "prune_counts=[0,0,1]",
        "prune_entropy=1e-4",
        "smoother=witten_bell",
        "hydra.run.dir=pruned",
    )
    assert result("pruned")["parameters"] < result("cls")["parameters"]
    for to, said in (("cls.arpa", "is not an n-gram model"), ("cls.tsv", "has no counts of words")):
        refused = lmtool("export", "run=cls", f"to={to}", code=2)
        assert said in refused and refused.count("\n") == 1 and not Path(to).exists()
    assert "model.classes=0: must be from 1 to 4096" in lmtool(*line, "model.classes=0", code=2)
    (Path("cls") / CLASSES_FILE).unlink()
    assert "classes.txt are missing: train the model again" in lmtool("eval", "run=cls", code=2)


def test_tuned_discounts_are_those_of_classes(lmtool: Run) -> None:
    line = ("train", "model=class_ngram", "data=toy", "model.order=2", "model.classes=6")
    lmtool(*line, "hydra.run.dir=fit")
    printed = lmtool(*line, "smoother.discounts=tuned", "hydra.run.dir=tuned")
    assert "tuned on valid: perplexity" in printed
    assert result("tuned")["valid_perplexity"] < result("fit")["valid_perplexity"]


def test_counts_without_the_text_are_refused(lmtool: Run, tmp_path: Path) -> None:
    lmtool("train", "model=ngram", "data=toy", "model.order=2", "hydra.run.dir=kn2")
    lmtool("export", "run=kn2", "to=counts.tsv")
    (tmp_path / "valid.txt").write_text("the end\n")
    words = ("counts=table", "counts.paths=counts.tsv", "data=text", "data.valid=valid.txt", "model.order=2")
    said = lmtool("train", "model=class_ngram", *words, code=2)
    assert "model=class_ngram:" in said and "has no text of train to read" in said and said.count("\n") == 1


def test_the_cut() -> None:
    places, begins = interleave(2, np.array([0, 5, 6, 8]))
    assert places.tolist() == [0, 2, 4, 1, 3, 5, 6, 7] and begins.tolist() == [0, 3, 5, 6, 7, 8]
    places, begins = interleave(3, np.array([0, 5]))
    assert places.tolist() == [0, 3, 1, 4, 2] and begins.tolist() == [0, 2, 4, 5]
    assert interleave(1, np.array([0, 2, 4]))[1].tolist() == [0, 2, 4] and interleave(2, np.array([0]))[1].tolist() == [
        0
    ]


def test_probabilities_of_skipped_words_by_hand(tmp_path: Path) -> None:
    corpus = Corpus.from_texts(["a b c", "a d c", "e d a"], ["a q"], store_dir=tmp_path)
    cut = SkipCorpus(corpus, 2)
    assert cut.folder is None and cut.fingerprint != corpus.fingerprint
    # valid is a q </s>: the parts are a </s> and q, which is out of vocabulary.
    assert corpus.split("valid").oov_positions.tolist() == [1] and cut.split("valid").oov_positions.tolist() == [2]
    units = Units(SkipCorpus(corpus, 2), step=2)
    model = units.model(estimate(count_ngrams(units.corpus.text("train"), corpus.vocabulary, 2), Smoother(2)))
    assert model.context_size == 2
    ids = corpus.vocabulary.ids
    # The parts: a c, b </s>, a c, d </s>, e a, d </s>. p(c|a ?) = 2/2, p(a|e ?) = 1, p(</s>|d ?) = 1; of 6 parts
    # 2 begin with a, 2 with d.
    contexts = [["a", "e"], ["e", "d"], ["<s>", "a"], ["<s>", "<s>"]]
    wanted = {"c": [1, 0, 0, 0], "a": [0, 1, 2 / 6, 2 / 6], "d": [0, 0, 2 / 6, 2 / 6]}
    rows = np.array([[ids[word] for word in context] for context in contexts])
    dist = np.exp(model.log_dist(rows))
    for word, p in wanted.items():
        np.testing.assert_allclose(dist[:, ids[word]], p, rtol=1e-6)
    text = corpus.split("train")
    contexts_of_text, targets = text.windows(np.arange(text.tokens), 2)
    log_prob = model.score_text(text)
    np.testing.assert_allclose(log_prob, model.log_prob(contexts_of_text, targets), rtol=1e-9)
    np.testing.assert_array_equal(log_prob, model.score_text(text, memory_limit=1 << 40))


def test_skipping_from_the_command_line(lmtool: Run) -> None:
    lmtool("train", "model=ngram", "data=toy", "model.order=3", "hydra.run.dir=kn3")
    lmtool("train", "model=skip_ngram", "data=toy", "model.order=3", "model.step=1", "hydra.run.dir=all")
    assert result("all")["valid_perplexity"] == result("kn3")["valid_perplexity"]  # no word is skipped
    lmtool("train", "model=skip_ngram", "data=toy", "counts.memory=64KiB", "hydra.run.dir=skip")
    assert f"{result('skip')['valid_perplexity']:.4f}" in lmtool("eval", "run=skip")
    assert "mixture" in lmtool("ensemble", "runs=[kn3,skip]", "split=valid")
    refused = lmtool("export", "run=skip", "to=skip.arpa", code=2)
    assert "is not an n-gram model" in refused
    assert "has no counts of words" in lmtool("export", "run=skip", "to=skip.tsv", code=2)
    assert "model.step=0: must be from 1 to 16" in lmtool("train", "model=skip_ngram", "model.step=0", code=2)


@pytest.mark.parametrize("step", [2, 3])
def test_running_text_is_scored_as_context_by_context(step: int, toy: Corpus) -> None:
    units = Units(SkipCorpus(toy, step), step=step)
    model = units.model(estimate(count_ngrams(units.corpus.text("train"), toy.vocabulary, 3), Smoother(3)))
    valid = toy.split("train")
    contexts, targets = valid.windows(np.arange(valid.tokens), 2 * step)
    log_prob = model.score_text(valid)
    np.testing.assert_allclose(log_prob, model.log_prob(contexts, targets), rtol=1e-9)

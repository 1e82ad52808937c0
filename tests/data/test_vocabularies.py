"""Models of different words and data mixed on a text: by hand, and as people type it; the words of a run folder."""

from __future__ import annotations

import contextlib
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.data.readers import KENLM_BINARY
from lmtool.data.vocabulary import Vocabulary
from lmtool.errors import UserError
from lmtool.mixtures.vocabularies import OverVocabulary, shares_of_unk
from lmtool.runs.corpus import load_vocabulary, save_vocabulary
from lmtool.runs.run import Run as RunFolder
from tests.commands.test_ensemble import Fixed
from tests.conftest import Run, result


def log10(p: float, backoff: float = 1.0) -> tuple[str, str]:
    return (f"{math.log10(p):.9f}" if p else "-99", f"{math.log10(backoff):.9f}")


def write_arpa(name: str, unigrams: dict[str, tuple[float, float]], bigram: str, p: float) -> None:
    ones = [f"{log10(*values)[0]}\t{word}\t{log10(*values)[1]}" for word, values in unigrams.items()]
    lines = ["\\data\\", f"ngram 1={len(ones)}", "ngram 2=1", "", "\\1-grams:", *ones, "", "\\2-grams:"]
    Path(name).write_text("\n".join([*lines, f"{log10(p)[0]}\t{bigram}", "", "\\end\\", ""]))


@pytest.fixture
def two(lmtool: Run) -> Run:
    """a.arpa knows a and d, b.arpa a, b and c; text.txt has x, which neither knows.

    After a, A has 1/2 for <unk> and the rest by 2/3 of its unigrams; after b, B has 1/2 for a and 4/7 of the rest.
    """
    of_a = {"<unk>": (1 / 4, 1), "<s>": (0, 1), "</s>": (1 / 4, 1), "a": (3 / 8, 2 / 3), "d": (1 / 8, 1)}
    of_b = {
        "<unk>": (1 / 4, 1),
        "<s>": (0, 1),
        "</s>": (1 / 4, 1),
        "a": (1 / 8, 1),
        "b": (1 / 4, 4 / 7),
        "c": (1 / 8, 1),
    }
    write_arpa("a.arpa", of_a, "a <unk>", 1 / 2)
    write_arpa("b.arpa", of_b, "b a", 1 / 2)
    Path("text.txt").write_text("a b\nd x\n")
    return lmtool


# A shares p(<unk>) among <unk>, b and c, and B among <unk> and d. The tokens are a, b, </s>, d, x and </s>.
TOKENS_A = [3 / 8, (1 / 2) / 3, 1 / 4, 1 / 8, (1 / 4) / 3, 1 / 4]
TOKENS_B = [1 / 8, 1 / 4, 4 / 7 / 4, (1 / 4) / 2, (1 / 4) / 2, 1 / 4]
TOKENS = [7 / 24, 7 / 36, 3 / 14, 1 / 8, 7 / 72, 1 / 4]  # two thirds of A, one of B


UNION = ("ensemble", "runs=[a.arpa,b.arpa]", "text=text.txt", "vocabulary=union")


def perplexity(p: list[float]) -> float:
    return math.prod(p) ** (-1 / len(p))


def test_a_mixture_over_the_union_by_hand(two: Run) -> None:
    mixed = (
        "ensemble",
        "runs=[a.arpa,b.arpa]",
        "text=text.txt",
        "vocabulary=union",
        "weights=2:1",
        "hydra.run.dir=mix",
    )
    said = two(*mixed)
    assert (
        "of the 6 words of all models, a.arpa lacks 2, b.arpa lacks 1: the p(<unk>) of a model is shared equally"
        in said
    )
    found = result("mix")
    assert (found["vocabulary"], found["words"], found["tokens"], found["oov"]) == ("union", 6, 6, 1)
    assert found["perplexity"] == pytest.approx(perplexity(TOKENS), rel=1e-6)
    wanted = [perplexity(TOKENS_A), perplexity(TOKENS_B)]
    assert [member["perplexity"] for member in found["members"]] == pytest.approx(wanted, rel=1e-6)
    # A run like any other: each distribution over the six words sums to one, and text is scored the same again.
    model = package.load("mix")
    ids = model.vocabulary.ids
    assert sorted(ids) == ["</s>", "<s>", "<unk>", "a", "b", "c", "d"]
    dist = np.exp(model.log_dist(np.arange(len(ids))[:, None]))
    np.testing.assert_allclose(dist.sum(axis=1), 1, rtol=1e-6)
    start = dict(zip(model.vocabulary.words, dist[ids["<s>"]].tolist(), strict=True))
    by_hand = {"a": 7 / 24, "d": 1 / 8, "<unk>": 7 / 72, "</s>": 1 / 4, "b": 5 / 36, "c": 7 / 72, "<s>": 0}
    assert start == pytest.approx(by_hand, rel=1e-6)
    np.testing.assert_allclose(np.exp(np.concatenate(model.score(["a b", "d x"]))), TOKENS, rtol=1e-6)
    p, state = model.advance(model.begin(), "a")
    assert math.exp(p) == pytest.approx(7 / 24) and math.exp(model.advance(state, "b")[0]) == pytest.approx(7 / 36)
    two("eval", "run=mix", "text=text.txt", "hydra.run.dir=again")
    assert result("again")["perplexity"] == pytest.approx(found["perplexity"], rel=1e-9)
    assert "mix was mixed on a text and has no data: set text=FILE" in two("eval", "run=mix", code=2)


def test_the_mixture_in_one_file_has_the_same_shares(two: Run) -> None:
    two(*UNION, "weights=2:1", "hydra.run.dir=mix")
    two("convert", "runs=[mix]", "to=one.arpa")
    model = package.load("one.arpa")
    ids = model.vocabulary.ids
    dist = np.exp(model.log_dist(np.arange(len(ids))[:, None]))
    np.testing.assert_allclose(dist.sum(axis=1), 1, atol=2e-6)
    stored = {("<s>", "b"): 5 / 36, ("<s>", "d"): 1 / 8, ("a", "<unk>"): 11 / 72, ("b", "a"): 5 / 12}
    for (before, word), p in stored.items():
        assert dist[ids[before], ids[word]] == pytest.approx(p, rel=1e-5)
    two("convert", "runs=[a.arpa,b.arpa]", "weights=2:1", "vocabulary=union", "to=two.arpa")
    assert Path("two.arpa").read_text() == Path("one.arpa").read_text()
    two("ensemble", "runs=[mix,mix]", "text=text.txt", "weights=1:1", "hydra.run.dir=nested")
    for runs in ("runs=[nested]", "runs=[mix,a.arpa]"):
        said = two("convert", runs, *["weights=1:1"] * ("a.arpa" in runs), "to=x.arpa", code=2)
        assert "mix mixes different vocabularies and is inside another mixture: make one model of it first" in said
    two("convert", "runs=[a.arpa,b.arpa]", "weights=2:1", "to=srilm.arpa")  # where they have probability 0
    dist = np.exp(package.load("srilm.arpa").log_dist(np.array([[ids["<s>"]]])))[0]
    assert dist[ids["b"]] == pytest.approx((1 / 3) / 4, rel=1e-5)


def test_weights_are_tuned_on_the_text(two: Run) -> None:
    said = two(*UNION, "hydra.run.dir=mix")
    note = "note: fitted or chosen on text=text.txt itself, which favors it here: the mixture (weights); use a text"
    assert "EM on text.txt: " in said and note in said
    weights, fit = result("mix")["weights"], result("mix")["fit"]
    assert fit["split"] == "text.txt" and list(RunFolder.open(Path("mix")).fitted_on.values()) == [["weights"]]
    Path("copy").write_text(Path("text.txt").read_text())
    texts(other="a\n")
    assert "fitted or chosen on text=copy itself" in two("eval", "run=mix", "text=copy", "hydra.run.dir=copy-scores")
    assert "favors" not in two("eval", "run=mix", "text=other.txt", "hydra.run.dir=other-scores")
    for names in ("runs=[mix,a.arpa]", "runs=[mix,copy-scores/scores.h5]"):
        text = ["text=copy"] * ("a.arpa" in names) + ["vocabulary=union"] * ("a.arpa" in names)
        assert "which favors it here: mix (weights)" in two("compare", names, *text, "split=text.txt")
    tokens = np.array([TOKENS_A, TOKENS_B])
    grid = [float(np.log(np.array([w, 1 - w]) @ tokens).mean()) for w in np.linspace(0, 1, 1001)]
    assert math.log(result("mix")["perplexity"]) <= -max(grid) + 1e-6 and 0 < weights[0] < 1
    mixed = package.ensemble(["a.arpa", "b.arpa"], text="text.txt", vocabulary="union", out="python")
    assert mixed.weights == pytest.approx(weights) and mixed.model.perplexity(["a b", "d x"]) < 6
    two(
        "ensemble",
        "runs=[a.arpa,b.arpa]",
        "text=text.txt",
        "vocabulary=union",
        "method=log_linear",
        "hydra.run.dir=log",
    )
    contexts = np.arange(7)[:, None]
    np.testing.assert_allclose(np.exp(package.load("log").log_dist(contexts)).sum(axis=1), 1, rtol=1e-6)


def test_models_of_different_words_are_compared(two: Run) -> None:
    two("compare", "runs=[a.arpa,b.arpa]", "text=text.txt", "vocabulary=union", "hydra.run.dir=table")
    found = [member["perplexity"] for member in result("table")["members"]]
    assert found == pytest.approx([perplexity(TOKENS_A), perplexity(TOKENS_B)], rel=1e-6)


def test_other_words_are_refused_without_the_choice(two: Run) -> None:
    for verb in ("ensemble", "compare"):
        said = two(verb, "runs=[a.arpa,b.arpa]", "text=text.txt", code=2)
        assert "a.arpa and b.arpa have different words (only one has '" in said and said.count("\n") == 1
        assert "set text=FILE vocabulary=union to mix them over all words" in said
    for verb in ("ensemble", "compare"):
        assert "a.arpa comes without data: set text=FILE" in two(verb, "runs=[a.arpa,b.arpa]", code=2)
        Path("a.arpa.bin").write_bytes(KENLM_BINARY)
        assert "a.arpa.bin comes without data: set text=FILE" in two(verb, "runs=[a.arpa.bin,scores.txt]", code=2)
    assert "needs text=FILE" in two("ensemble", "runs=[a.arpa,b.arpa]", "vocabulary=union", code=2)
    assert "vocabulary=all: must be union or null" in two(
        *("ensemble", "runs=[a.arpa,b.arpa]", "text=text.txt", "vocabulary=all"), code=2
    )
    assert "lmtool ensemble runs=a.arpa,b.arpa text=FILE" in two("convert", "runs=[a.arpa,b.arpa]", "to=x.arpa", code=2)


TEXT = ("data=text", "model=ngram", "model.order=2")


def texts(**lines: str) -> None:
    for name, text in lines.items():
        Path(f"{name}.txt").write_text(text)


def test_runs_are_mixed_if_their_words_and_text_are_the_same(lmtool: Run, tmp_path: Path) -> None:
    texts(
        general="a b c\nc b a\na a b\n", sample="b c\nb b c a\n", valid="a b c\nb c\n", other="c c\n", words="a b c\n"
    )
    Path("copy").mkdir()
    for name in ("general.txt", "valid.txt"):
        shutil.copy(name, "copy")
    for run, folder, train, valid in (
        ("relative", "", "general", "valid"),
        ("absolute", f"{tmp_path}/", "general", "valid"),
        ("copied", "copy/", "general", "valid"),
        ("sample", "", "sample", "valid"),  # another train text; the order of its words differs as well
        ("other", "", "general", "other"),
    ):
        data = (f"data.train={folder}{train}.txt", f"data.valid={folder}{valid}.txt")
        lmtool(
            "train",
            *TEXT,
            *data,
            f"smoother={'laplace' if run == 'absolute' else 'witten_bell'}",
            f"hydra.run.dir={run}",
        )
    assert package.load("sample").words != package.load("relative").words
    for run in ("absolute", "copied", "sample"):
        lmtool("ensemble", f"runs=[relative,{run}]", "weights=[0.5,0.5]", f"hydra.run.dir={run}-mix")
        both = [np.exp(np.concatenate(package.load(name).score(["a b c", "b c"]))) for name in ("relative", run)]
        lmtool("eval", f"run={run}-mix", f"hydra.run.dir={run}-mix-valid")
        for folder in (f"{run}-mix", f"{run}-mix-valid"):
            wanted = np.exp(-np.log(np.mean(both, axis=0)).mean())
            assert result(folder)["perplexity"] == pytest.approx(wanted, rel=1e-6)
    said = lmtool("ensemble", "runs=[relative,other]", code=2)
    assert "relative and other scored different tokens: sentence 1, token 1 is 'a' in one and 'c' in the other" in said
    lmtool("ensemble", "runs=[relative,other]", "text=other.txt", "hydra.run.dir=on-text")
    assert result("on-text")["tokens"] == 3
    net = ("data.train=general.txt", "data.valid=valid.txt", "model.embedding_dim=2", "model.hidden_dim=2")
    lmtool("train", "data=text", "model=nplm", *net, "training.epochs=1", "hydra.run.dir=net")
    for options in ("cache=neural", "method=classes"):  # of which one model is over words in another order
        orders = ("runs=[sample,net]", "text=valid.txt"), ("runs=[net,sample]", "text=valid.txt")
        for number, words in enumerate(orders):
            lmtool("ensemble", *words, options, f"hydra.run.dir={options[:6]}{number}")
        found = [result(f"{options[:6]}{number}")["perplexity"] for number in (0, 1)]
        assert found[0] == pytest.approx(found[1], rel=1e-6)
    with contextlib.chdir("net"):  # whose run.json is not that of a file
        lmtool("convert", "run=../sample", "to=../sample.arpa")
        said = lmtool("compare", "runs=[../sample.arpa,../sample]", "text=../valid.txt", "hydra.run.dir=../compared")
        assert "checkpoint" not in said
    lowercase = ("data.train=general.txt", "data.valid=valid.txt", "data.vocabulary.lowercase=true")
    lmtool("train", *TEXT, *lowercase, "hydra.run.dir=lower")
    assert "other rules for words" in lmtool("ensemble", "runs=[relative,lower]", "text=valid.txt", code=2)


def test_a_run_finds_its_text_from_another_folder(lmtool: Run, tmp_path: Path) -> None:
    texts(train="a b c\nc b a\n", valid="a b\nb\n")
    data = ("data=text", "data.train=train.txt", "data.valid=valid.txt")
    lmtool("train", "model=ngram", "model.order=2", "smoother=witten_bell", *data, "hydra.run.dir=kn")
    small = ("model=nplm", "model.embedding_dim=2", "model.hidden_dim=2", "training.epochs=1")
    lmtool("train", *small, *data, "hydra.run.dir=net")
    lmtool("ensemble", "runs=[kn,net]", "weights=1:1", "hydra.run.dir=mix")
    lmtool("convert", "run=kn", "quantize=8", "hydra.run.dir=small")
    shutil.rmtree("stores")
    Path("elsewhere").mkdir()
    with contextlib.chdir("elsewhere"):
        texts(train="x y\n")  # of the same name, and not the run's
        for name in ("mix", "small"):
            lmtool("eval", f"run=../{name}", f"hydra.run.dir={name}-valid")
            assert result(f"{name}-valid")["tokens"] == 5
            shutil.rmtree("stores")
        Path("../stores").mkdir()
        lmtool("train", "resume=../net", "training.epochs=2")
        lmtool("train", "resume=../net", "training.epochs=3")  # begun.json still says where it was started
        assert list(Path("../stores").iterdir()) and not Path("stores").exists()
    assert result("net")["epochs"] == 3


def test_mixtures_of_scores_are_baked(lmtool: Run) -> None:
    texts(general="a b c\nc b a\na a b\n", sample="b c\nb b c a\n", valid="a b c\nb c\n")
    for run in ("general", "sample"):
        lmtool("train", *TEXT, f"data.train={run}.txt", "data.valid=valid.txt", f"hydra.run.dir={run}")
    lmtool("convert", "run=sample", "to=sample.arpa")
    lmtool("eval", "run=general", "hydra.run.dir=general-valid")
    lmtool("eval", "arpa=sample.arpa", "text=valid.txt", "hydra.run.dir=sample-valid")
    said = lmtool("ensemble", "runs=[general-valid,sample-valid/scores.h5]", "weights=3:1", "hydra.run.dir=scores")
    assert "lmtool convert 'runs=[" in said
    lmtool("convert", "runs=[scores]", "to=baked.arpa")
    lmtool("convert", "runs=[general,sample.arpa]", "weights=3:1", "to=wanted.arpa")
    assert Path("baked.arpa").read_text() == Path("wanted.arpa").read_text()
    lmtool("ensemble", "runs=[scores,general-valid]", "hydra.run.dir=twice")
    lmtool("convert", "runs=[twice]", "hydra.run.dir=baked")
    valid, text = RunFolder.open(Path("baked")).fitted_on.items()  # the split, and its text wherever it is scored
    assert valid == ("valid", ["weights"]) and text[0].startswith("text:") and text[1] == ["weights"]
    lines = [f"{word}=1 1 -0.5" for word in ("a", "b", "c", "</s>", "b", "c", "</s>")]  # of KenLM's query -v word
    Path("query.txt").write_text("\t".join(lines) + "\n")
    lmtool("ensemble", "runs=[general-valid,query.txt]", "weights=1:3", "hydra.run.dir=lost")
    said = lmtool("convert", "runs=[lost]", "to=x.arpa", code=2)
    assert "lost mixes scores without a model, query.txt: name the models, lmtool convert runs=/" in said
    assert "/general,MODEL_OF_query.txt weights=0.25,0.75" in said and said.count("\n") == 1


def test_a_vocabulary_that_lacks_words_of_a_model() -> None:
    own = Vocabulary(("a", "<unk>", "<s>"), np.array([1, 1, 0]), None, 1)
    larger = Vocabulary(("<unk>", "b", "<s>"), np.array([1, 1, 0]), None, 0)
    with pytest.raises(ValueError, match="lacks words of a member"):
        OverVocabulary(Fixed([[0.5, 0.5]] * 2, 1), own, larger)
    ids, log_share = shares_of_unk(own, Vocabulary(("b", "a", "<unk>", "<s>"), np.array([1, 1, 1, 0]), None, 2))
    assert ids.tolist() == [1, 0, 1, 2] and np.exp(log_share).tolist() == [0.5, 1, 0.5, 1]


def test_a_vocabulary_of_any_words(tmp_path: Path) -> None:
    escaped = ("\\\\", "\\\\t", "\\\t", "\\n", "\t", "\n", "\r")
    plain = ("\\", "\\alpha", "a\\", "\\<unk>", " ", "\u2028", "\u00e9", "</s>", "<unk>", "<s>")
    words = escaped + plain
    eos_unk = len(words) - 3, len(words) - 2
    kept = Vocabulary(words, np.arange(len(words))[::-1].copy(), *eos_unk)
    path = tmp_path / "vocabulary.txt"
    save_vocabulary(kept, path)
    found = load_vocabulary(path)
    assert found.words == words and found.counts.tolist() == kept.counts.tolist() and (found.eos, found.unk) == eos_unk
    lines = path.read_bytes().decode().split("\n")
    want = ["\\\\\\\\", "\\\\\\\\t", "\\\\\\t", "\\\\n", "\\t", "\\n", "\\r", *plain]  # a piece \\ is itself
    assert [line.split("\t")[0] for line in lines[:-1]] == want
    without_unk = "a\t1\n<s>\t0\n"
    for damaged in ("\n".join(lines[:-2]), "a\tb\n", "", "a\n", "a\t1\na\t1\n<unk>\t0\n<s>\t0\n", without_unk):
        path.write_text(damaged)
        with pytest.raises(UserError, match="damaged"):
            load_vocabulary(path)
    assert load_vocabulary(path, closed=True).closed and load_vocabulary(path, closed=None).closed

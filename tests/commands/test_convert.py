"""`lmtool convert` prunes, quantizes and mixes existing runs, ARPA files and mixtures, into files and runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import lmtool as package
from lmtool.ngram.files.arpa_model import arpa_model
from lmtool.ngram.models.ngram_model import NgramModel
from tests.conftest import Run, result, run_lines
from tests.ngram.plain import random_sentences


def ngrams(model: NgramModel) -> list[dict[tuple[str, ...], float]]:
    """Return log p of the n-grams of each order, by their words."""
    table, words = model.table, model.vocabulary.words
    found = []
    for k, size in enumerate(table.sizes, start=1):
        grams = table.trie.ngrams(k, 0, size).tolist()
        log_prob = table.log_prob[table.trie.first(k) : table.trie.first(k + 1)].tolist()
        found.append({tuple(words[w] for w in gram): p for gram, p in zip(grams, log_prob, strict=True)})
    del found[0]["<s>",]
    return found


def model_of(name: str) -> NgramModel:
    model = package.load(name).model
    assert isinstance(model, NgramModel)
    return model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs kn3 and wb2 on other text over the same words, and kn3.arpa."""
    tmp_path = tmp_path_factory.mktemp("made")
    for name, seed, count in (("a", 1, 200), ("b", 2, 100), ("valid", 3, 50)):
        (tmp_path / f"{name}.txt").write_text("\n".join(random_sentences(seed, count)))
    words = " ".join(sorted({word for name in "ab" for word in (tmp_path / f"{name}.txt").read_text().split()}))
    (tmp_path / "words.txt").write_text(words)
    train = "train model=ngram data=text data.valid=valid.txt data.vocabulary.file=words.txt"
    kn3 = f"{train} data.train=a.txt model.order=3"
    return run_lines(
        tmp_path,
        f"{kn3} hydra.run.dir=kn3",
        f"{kn3} prune_method=entropy prune_to=50% hydra.run.dir=kn3-share",
        f"{kn3} prune_method=entropy prune_entropy=1e-3 hydra.run.dir=kn3-entropy",
        f"{train} data.train=b.txt model.order=2 smoother=witten_bell hydra.run.dir=wb2",
        "convert run=kn3 to=kn3.arpa",
    )


@pytest.fixture
def trained(lmtool: Run, made: Path) -> Run:
    shutil.copytree(made, ".", dirs_exist_ok=True)
    return lmtool


@pytest.mark.parametrize(("how", "folder"), [("prune_entropy=1e-3", "kn3-entropy"), ("prune_to=50%", "kn3-share")])
def test_pruning_later_is_pruning_in_training(how: str, folder: str, trained: Run) -> None:
    said = trained("convert", "arpa=kn3.arpa", how, "to=small.arpa")
    wanted, sizes = ngrams(model_of(folder)), result(folder)["ngrams"]
    assert f"wrote small.arpa: {', '.join(f'{size:,}' for size in sizes)} n-grams" in said
    trained("convert", "run=kn3", how, "to=run.arpa")
    trained("convert", "run=kn3", how, "hydra.run.dir=small")
    trained("convert", "runs=[kn3,kn3.arpa]", "weights=[.5,.5]", how, "to=mixed.arpa")
    assert sum(sizes) < sum(result("kn3")["ngrams"])
    for name in ("small.arpa", "run.arpa", "small", "mixed.arpa"):
        found = ngrams(model_of(name))
        for ours, theirs in zip(found, wanted, strict=True):
            assert ours.keys() == theirs.keys(), name
            np.testing.assert_allclose([ours[gram] for gram in theirs], list(theirs.values()), atol=2e-6)
    trained("eval", "run=small", "hydra.run.dir=small-valid")
    assert result("small-valid")["perplexity"] == pytest.approx(result(folder)["valid_perplexity"], rel=1e-9)
    trained("convert", "run=kn3-entropy", "prune_to=99%", "hydra.run.dir=smaller")
    settings = json.loads(Path("smaller/run.json").read_text())["config"]
    assert settings["prune_entropy"] is None and settings["prune_to"] == "99%", "of which training takes one"
    name = how.split("=")[0]
    assert result("small")["parameters"] == sum(sizes) and result("small")[name] in (1e-3, "50%")


def test_interpolate_then_prune_then_quantize(trained: Run) -> None:
    """SRILM's `ngram -lm A -mix-lm B -lambda 0.7 -prune P -write-lm F`, at once and in three commands."""
    mix = ["convert", "runs=[kn3.arpa,wb2]", "weights=[.7,.3]"]
    trained(*mix, "prune_entropy=1e-3", "to=once.arpa")
    trained(*mix, "to=mixed.arpa")
    trained("convert", "arpa=mixed.arpa", "prune_entropy=1e-3", "to=twice.arpa")
    once, twice, mixed = (ngrams(model_of(f"{name}.arpa")) for name in ("once", "twice", "mixed"))
    for a, b, whole in zip(once, twice, mixed, strict=True):
        assert a.keys() == b.keys() and a == pytest.approx(b, abs=2e-6)
        assert all(a[gram] == pytest.approx(whole[gram], abs=2e-6) for gram in a), "what stays keeps its probability"
    model = arpa_model("once.arpa")
    assert model.normalized and sum(map(len, once)) < sum(map(len, mixed))
    dist = np.exp(model.log_dist(model.table.trie.ngrams(2, 0, 20)))
    np.testing.assert_allclose(dist.sum(axis=1), 1, atol=3e-6)
    said = trained(*mix, "prune_to=60%", "quantize=6", "hydra.run.dir=tiny")
    assert "pruned from " in said
    said = trained("convert", "run=tiny", "prune_to=50%", "hydra.run.dir=tinier", code=2)
    assert "prune_to=50%: the model is quantized already: prune the one it was made from" in said
    assert model_of("tiny").table.quantized_bits == 6
    perplexities = [package.load(name).perplexity(["w1 w2 w3"]) for name in ("tiny", "mixed.arpa")]
    assert perplexities[0] == pytest.approx(perplexities[1], rel=0.3)
    out = package.convert(arpa="kn3.arpa", prune_to="40%", to="python.arpa").path
    assert out == Path("python.arpa") and sum(model_of("python.arpa").table.sizes) <= 0.4 * result("kn3")["parameters"]

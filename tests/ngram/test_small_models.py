"""`quantize=` at train and convert: runs like any other, of n-gram models and of networks; and export's dtype."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import lmtool as package
from lmtool.data.corpus import Corpus
from lmtool.ngram.models.ngram_model import even_positions
from lmtool.runs.run import Run as TrainedRun
from lmtool.runs.weights import dequantize, quantize
from tests.conftest import Run, result


def test_weights_by_hand() -> None:
    tensors = {
        "w": np.array([[127, -64, 0.4], [0, 0, 0], [-2.54, 1.27, 0.02]], dtype=np.float32),
        "w.scale": np.array([[1.5]], dtype=np.float32),  # no scale of a row: a matrix of that name
        "bias": np.array([0.3], dtype=np.float32),
        "ids": np.array([[1, 2]], dtype=np.int64),
    }
    small = quantize(tensors, 8)
    assert small["w"].dtype == np.int8 and small["w"].tolist() == [[127, -64, 0], [0, 0, 0], [-127, 64, 1]]
    np.testing.assert_allclose(small["w.row_scale"], [1, 1, 0.02], rtol=1e-6)
    assert small["bias"] is tensors["bias"] and small["ids"] is tensors["ids"]
    again = dequantize(small)
    assert set(again) == set(tensors) and again["w"].dtype == np.float32
    np.testing.assert_allclose(again["w"], [[127, -64, 0], [0, 0, 0], [-2.54, 1.28, 0.02]], rtol=1e-6)
    np.testing.assert_allclose(again["w.scale"], [[1.5]], rtol=1e-6)
    half = quantize(tensors, 16)
    assert half["w"].dtype == np.float16 and float(half["w"][2, 2]) == 0.0200042724609375
    assert dequantize(half)["w"].dtype == np.float32 and dequantize(half)["bias"] is tensors["bias"]
    with pytest.raises(package.UserError, match="65,504"):
        quantize({"w": np.array([[1e6]], dtype=np.float32)}, 16)


def test_a_small_ngram_model_is_a_run_like_any_other(runs: Path, lmtool: Run) -> None:
    said = lmtool("convert", f"run={runs}/kn3", "quantize=8", "hydra.run.dir=small")
    before, after = (Path(folder, "model.h5").stat().st_size for folder in (runs / "kn3", "small"))
    assert f"with quantize=8: {before / 1024:.1f} KiB -> {after / 1024:.1f} KiB" in said and said.endswith("/small\n")
    lmtool("eval", "run=small", "hydra.run.dir=one")
    lmtool("train", "model=ngram", "data=toy", "model.order=3", "quantize=8", "hydra.run.dir=trained")
    assert Path("trained/model.h5").read_bytes() == Path("small/model.h5").read_bytes()
    lmtool("convert", "run=small", "to=small.arpa")
    lmtool("convert", "arpa=small.arpa", "data=toy", "hydra.run.dir=back")
    lmtool("convert", "arpa=small.arpa", "data=toy", "quantize=4", "hydra.run.dir=four")
    for run in ("trained", "back"):
        lmtool("eval", f"run={run}", f"hydra.run.dir=eval-{run}")
        assert result(f"eval-{run}")["perplexity"] == pytest.approx(result("one")["perplexity"], rel=1e-7)
    assert package.load("four").model.table.quantized_bits == 4
    lmtool("ensemble", f"runs=[small,{runs}/nplm]", "hydra.run.dir=mix")
    assert len(package.load("small").predict("the cat", top=2)) == 2
    assert "4 to 8" in lmtool("convert", "run=small", "quantize=16", "hydra.run.dir=x", code=2)
    assert "already, to 8 bits" in lmtool("convert", "run=small", "quantize=5", "hydra.run.dir=x", code=2)
    assert "already holds" in lmtool("convert", f"run={runs}/kn3", "quantize=5", "hydra.run.dir=small", code=2)
    assert "is a mixture" in lmtool("convert", "run=mix", "quantize=5", "hydra.run.dir=x", code=2)
    assert not Path("x/run.json").exists() and not Path("x/model.h5").exists()


def test_the_spread_of_the_sums_is_printed(runs: Path, lmtool: Run) -> None:
    said = lmtool("convert", f"run={runs}/kn3", "quantize=4", "hydra.run.dir=four")
    model = package.load("four").model
    assert [list(even_positions(3)), len(even_positions(300)), even_positions(300)[-1]] == [[0, 1, 2], 256, 298]
    ngrams = model.table.trie.ngrams(3, 0, model.table.sizes[2])
    assert len(ngrams) < 256, "all are taken"

    def range_of(contexts: np.ndarray) -> str:
        words = np.tile(np.arange(len(model.vocabulary)), (len(contexts), 1))
        sums = np.exp(model.log_prob_candidates(contexts, words)).sum(axis=1)  # p of <s> is that of unseen types, or 0
        assert abs(sums - 1).max() > 0.002, "not to rounding"
        mean = np.exp(np.log(sums).mean())
        found = f"to {sums.min():.3f} to {sums.max():.3f} after {len(contexts)} contexts"
        return f"{found}; to compare a perplexity, multiply it by {mean:.4f}"

    about = "quantized to 4 bits: the probabilities of all words do not sum to one, but"
    assert f"{about} {range_of(ngrams[:, :-1])}" in said
    with Corpus.open(Path(TrainedRun.open(Path("four")).store)) as corpus:
        valid = corpus.split("valid")
        assert valid.tokens < 256
        assert range_of(valid.contexts(0, valid.tokens, 2)) in lmtool("eval", "run=four", "hydra.run.dir=e")
    for run in ("kn3", "nplm"):
        assert "do not sum to one" not in lmtool("eval", f"run={runs}/{run}", "hydra.run.dir=e2")
    said = lmtool("train", "model=ngram", "data=toy", "model.order=1", "quantize=4", "hydra.run.dir=unigrams")
    assert "do not sum" not in said, "unigrams are not quantized"
    said = lmtool("train", "model=ngram", "data=toy", "smoother=mle", "quantize=8", "hydra.run.dir=mle")
    assert "do not sum" not in said, "they sum to 1.000, as 8 bits have each of its few values"
    said = lmtool("train", "model=skip_ngram", "data=toy", "model.order=2", "quantize=4", "hydra.run.dir=skip")
    assert "quantized to 4 bits: " in said and "quantized to 4 bits: " in lmtool("eval", "run=skip", "hydra.run.dir=e3")


@pytest.mark.parametrize("name", ["nplm", "hs"])
def test_a_small_network_is_a_run_like_any_other(name: str, runs: Path, lmtool: Run) -> None:
    want = package.load(runs / name).network.state_dict()
    for bits, error in ((16, 2**-11), (8, 1 / 254)):
        written = package.convert(run=runs / name, quantize=bits, out=f"q{bits}")
        assert written.path == Path(f"q{bits}")
        loaded = package.load(f"q{bits}")
        for key, tensor in loaded.network.state_dict().items():
            assert tensor.dtype == want[key].dtype
            largest = want[key].abs().amax(dim=-1, keepdim=True) if tensor.ndim > 1 else torch.zeros(1)
            assert ((tensor - want[key]).abs() <= largest * error * 1.001 + 1e-7).all(), key
        lmtool("eval", f"run=q{bits}", f"hydra.run.dir=e{bits}")
        lmtool("eval", f"run={runs}/{name}", f"hydra.run.dir=e{name}{bits}")
        assert result(f"e{bits}")["perplexity"] == pytest.approx(result(f"e{name}{bits}")["perplexity"], rel=0.002)
        lmtool("export", f"run=q{bits}", f"to=q{bits}.safetensors")
    assert "quantized already, to 8 bits" in lmtool("convert", "run=q8", "quantize=16", "hydra.run.dir=x", code=2)
    said = lmtool("train", "resume=q8", code=2)
    assert "resume=q8: quantized weights cannot be trained" in said and said.count("\n") == 1
    assert "must be 8 or 16" in lmtool("convert", f"run={runs}/{name}", "quantize=5", "hydra.run.dir=x", code=2)
    path = Path("q8/checkpoint.safetensors")
    path.write_bytes(path.read_bytes()[:-50])
    assert "q8/checkpoint.safetensors is damaged" in lmtool("eval", "run=q8", code=2)


def test_exported_weights_have_the_type_that_was_asked_for(runs: Path, lmtool: Run) -> None:
    for dtype, kind in (("float16", np.float16), ("int8", np.int8)):
        lmtool("export", f"run={runs}/nplm", "to=w.safetensors", f"dtype={dtype}")
        with safe_open("w.safetensors", framework="np") as file:
            found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        assert found["encoder.embedding.weight"].dtype == kind and found["output.bias"].dtype == np.float32
        assert ("encoder.embedding.weight.row_scale" in found) is (dtype == "int8")
    assert "requires to=FILE.safetensors" in lmtool("export", f"run={runs}/kn3", "to=a.arpa", "dtype=int8", code=2)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train model=ngram quantize=3", ["quantize=3", "4 to 8"]),
        ("train model=nplm quantize=8", ["quantize=8", "lmtool convert"]),
        ("convert quantize=12", ["quantize=12", "4 to 8, 16"]),
        ("convert run=a quantize=8 to=b.arpa", ["no run folder a"]),
    ],
)
def test_a_mistake_is_one_line(line: str, words: list[str], lmtool: Run) -> None:
    said = lmtool(*line.split(), code=2)
    assert said.count("\n") == 1 and all(word in said for word in words), said

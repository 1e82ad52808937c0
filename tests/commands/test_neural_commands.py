"""Neural models and their trees from the command line, as a person uses them."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

import lmtool as package
from lmtool.commands.predict import _drawn
from lmtool.data.corpus import Corpus
from lmtool.evaluation.metrics import NEAR
from lmtool.neural.model import word_representations
from lmtool.neural.outputs.hierarchical import HierarchicalSoftmax
from lmtool.system.files import read_json, write_json
from lmtool.trees.tree import Tree
from tests.conftest import Run, neural, result

SMALL = [
    *("data=toy", "model.embedding_dim=8", "model.context_size=3", "model.dropout=0", "training.epochs=4"),
    *("training.minutes=null", "training.batch_size=16", "optim.lr=0.02"),
]
HIDDEN = ["model.hidden_dim=12"]


# Perplexities that are far from what each has before the first step, 18.25; unigrams have 15, bags of three words 14.
LEARNT = {"nplm": 6, "skip_layer": 6, "lbl": 10, "cbow": 15, "hsoftmax": 6, "nce": 9}


@pytest.mark.parametrize("model", LEARNT)
def test_every_model_trains_and_evaluates_the_same(model: str, lmtool: Run) -> None:
    hidden = HIDDEN if model in ("nplm", "skip_layer", "hsoftmax", "nce") else []
    noise = ["output.num_noise=10"] if model == "nce" else []
    said = lmtool("train", f"model={model}", *SMALL, *hidden, *noise, "hydra.run.dir=run")
    assert "valid perplexity" in said and ("tree=union: 23 words, " in said) == (model == "hsoftmax")
    lmtool("eval", "run=run", "hydra.run.dir=eval")
    trained, found = result("run"), result("eval")
    assert found["perplexity"] == pytest.approx(trained["valid_perplexity"], rel=1e-9)
    assert found["perplexity"] < LEARNT[model] and found["normalized"]
    assert ("log_z" in found) == (model == "nce")


@pytest.mark.parametrize("output", ["negative_sampling", "hierarchical"])
def test_skip_gram_is_a_language_model_of_one_word(output: str, lmtool: Run) -> None:
    layer = [f"output={output}", *(["tree=huffman"] if output == "hierarchical" else [])]
    line = [
        "train",
        "model=skipgram",
        *layer,
        "data=toy",
        "training.epochs=15",
        "optim.lr=0.05",
        "training.minutes=null",
    ]
    for name in ("run", "again"):
        said = lmtool(*line, f"out={name}")
        assert ("pair_step" in said) == (output == "negative_sampling") and NEAR in said
    assert NEAR in lmtool("eval", "run=run", "hydra.run.dir=eval") and NEAR in lmtool("predict", "the", "run=run")
    found, trained = result("eval"), result("run")
    assert found["perplexity"] == pytest.approx(trained["valid_perplexity"], rel=1e-9) and found["normalized"]
    assert found["perplexity"] < 15.5 and trained["examples"] == 15 * 17 * 8  # words of the text, not pairs
    model = package.load("run")
    np.testing.assert_allclose(np.exp(model.log_dist(np.arange(24)[:, None])).sum(1), 1, rtol=1e-6)
    for one, other in zip(model.network.parameters(), package.load("again").network.parameters(), strict=True):
        assert torch.equal(one, other)
    assert "no key 'model.full_windows'" in lmtool("train", "model=skipgram", "model.full_windows=true", code=2)


def test_a_rate_for_each_example(lmtool: Run) -> None:
    line = ["train", "model=cbow", *SMALL[:-1], "optim=sgd", "training.max_grad_norm=null", "training.steps=3"]
    lmtool(*line, "optim.lr=0.01", "optim.per_example=true", "out=sum")
    lmtool(*line, "optim.lr=0.16", "out=mean")  # of 16 examples
    assert result("sum")["valid_perplexity"] == pytest.approx(result("mean")["valid_perplexity"], rel=1e-6)
    assert "optim.per_example=false" in lmtool(*line, "optim.per_example=true", "lr_range=true", code=2)


def test_a_tree_is_part_of_its_run(lmtool: Run) -> None:
    lmtool("tree", "data=toy", "tree=random", "to=tree.txt")
    lmtool("train", "model=hsoftmax", "tree=file", "tree.path=tree.txt", *SMALL, *HIDDEN, "hydra.run.dir=run")
    Path("tree.txt").unlink()
    lmtool("eval", "run=run", "hydra.run.dir=eval")
    assert result("eval")["perplexity"] == pytest.approx(result("run")["valid_perplexity"], rel=1e-9)
    Path("run/tree.safetensors").write_bytes(b"no tree")
    assert "damaged" in lmtool("eval", "run=run", code=2)
    Path("run/tree.safetensors").unlink()
    assert "tree" in lmtool("eval", "run=run", code=2)


@pytest.mark.parametrize("tree", ["balanced", "random", "frequency", "huffman", "classes", "brown"])
def test_trees_are_looked_at(tree: str, lmtool: Run) -> None:
    extra = ["tree.clusters=5"] if tree == "brown" else []
    said = lmtool(
        "tree", "data=toy", f"tree={tree}", *extra, "words=[the,cat]", "levels=2", "out=./out/"
    )  # as Tab completes it
    assert "23 words, 23 leaves, 22 inner nodes" in said and "at least the entropy" in said
    assert re.search(r"^the +\d+ +[\d.]+ +\d+ +[01]+$", said, flags=re.M)
    found = result("out")
    assert found["entropy"] <= found["weighted_mean_depth"] <= found["maximal_depth"]
    assert found["mean_depth"] >= math.log2(23)
    assert Path("out/tree.png").read_bytes().startswith(b"\x89PNG")


def test_clusters_of_an_earlier_run(lmtool: Run) -> None:
    lmtool("train", "model=nplm", *SMALL, *HIDDEN, "hydra.run.dir=first")
    for number, words in enumerate(
        ([], ["tree.representation=embeddings", "tree.method=kmeans"], ["tree.epsilon=0.3"], ["tree.split=balanced"])
    ):
        tree = ["tree=clusters", "tree.run=first", *words]
        said = lmtool("train", "model=hsoftmax", *tree, *SMALL, *HIDDEN, f"hydra.run.dir=run{number}")
        assert "tree=clusters: 23 words" in said
        assert result(f"run{number}")["valid_perplexity"] < 8
        lmtool("eval", f"run=run{number}", f"hydra.run.dir=eval{number}")
        found = result(f"eval{number}")["perplexity"]
        assert found == pytest.approx(result(f"run{number}")["valid_perplexity"], rel=1e-9)


def test_unnormalized_scores(lmtool: Run) -> None:
    lmtool("train", "model=nce", "output.num_noise=10", *SMALL, *HIDDEN, "hydra.run.dir=run")
    said = lmtool("eval", "run=run", "hydra.run.dir=exact")
    assert "log Z of the scores" in said
    said = lmtool("eval", "run=run", "unnormalized=true", "hydra.run.dir=scores")
    assert "do not sum to one" in said
    exact, scores = result("exact"), result("scores")
    assert not scores["normalized"] and exact["log_z"] == scores["log_z"]
    # The whole of valid has fewer tokens than contexts are taken for log Z: the means differ by exactly that.
    assert exact["tokens"] == exact["log_z"]["contexts"]
    apart = math.log(exact["perplexity"]) - math.log(scores["perplexity"])
    assert apart == pytest.approx(exact["log_z"]["mean"], abs=1e-5)


def test_runs_that_do_not_fit(lmtool: Run) -> None:
    lmtool("train", "model=nplm", *SMALL, *HIDDEN, "hydra.run.dir=run")
    saved = read_json(Path("run/run.json"), "-")
    del saved["config"]["output"]
    Path("old").mkdir()
    write_json(Path("old/run.json"), saved)
    assert "no settings of its output" in lmtool("eval", "run=old", code=2)
    hsoftmax = ["train", "model=hsoftmax", "tree=clusters"]
    other = ["data=toy", "data.name=other", "data.vocabulary.min_count=3"]
    assert "another vocabulary" in lmtool(*hsoftmax, "tree.run=run", *other, code=2)
    lmtool("tree", "data=toy", "to=tree.txt")
    assert "another vocabulary" in lmtool("tree", "tree=file", "tree.path=tree.txt", *other, code=2)
    lines = Path("tree.txt").read_text().splitlines()
    for wrong, words in (
        (lines[1:], "misses 1 of the 23 words"),
        ([*lines, lines[0]], "not a prefix code"),
        ([*lines[1:], lines[0] + "0"], "no code begins with"),
        ([*lines, "one two three"], "3 fields"),
    ):
        Path("tree.txt").write_text("\n".join(wrong))
        said = lmtool("train", "model=hsoftmax", "tree=file", "tree.path=tree.txt", *SMALL, code=2)
        assert words in said and said.count("\n") == 1


def test_a_loss_that_is_no_number_keeps_the_checkpoint(lmtool: Run) -> None:
    words = [*SMALL[:-1], "optim=sgd", "optim.lr=1e4", "training.max_grad_norm=null", "schedule=constant"]
    said = lmtool("train", "model=lbl", *words, "training.evaluate_every=0.1", "hydra.run.dir=run", code=2)
    assert re.search(r"the loss is \S+ at step \d+: lower optim.lr", said) and said.count("\n") == 1
    assert not Path("run/run.json").exists()


def test_representations_are_means_over_train(toy: Corpus) -> None:
    model = neural(toy)
    train = toy.split("train")
    found = word_representations(model, train)
    contexts, targets = train.windows(np.arange(train.tokens), 3)
    with torch.no_grad():
        hidden = model.encoder(torch.from_numpy(contexts)).numpy()
    for word in (0, 5):
        np.testing.assert_allclose(found[word], hidden[targets == word].mean(0), rtol=1e-5, atol=1e-6)
    assert not (targets == 22).any()  # <unk> stands nowhere in train
    np.testing.assert_allclose(found[22], hidden.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(word_representations(model, None), model.encoder.embedding.weight[:-1].detach())


def test_the_tree_is_written_before_it_is_printed(lmtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:  # as `| head` closes the pipe
        raise BrokenPipeError

    monkeypatch.setattr("lmtool.session.Session.say", closed)
    with suppress(BrokenPipeError):
        lmtool("tree", "data=toy", "tree=random", "to=tree.txt")
    assert len((tmp_path / "tree.txt").read_text().splitlines()) >= 23


def test_the_preset_of_a_network_at_the_size_of_a_notebook(lmtool: Run) -> None:
    # 23 embeddings of 10, none of <s>; of 22 nodes: embeddings of 16, alpha; beta, c of 16; W 16 x 30, U 16 x 16
    parameters = 23 * 10 + 22 * 16 + 22 + 2 * 16 + 16 * 30 + 16 * 16
    said = lmtool("train", "+experiment=morin_bengio2005_toy", "training.epochs=1")
    assert "output.nodes.hidden.weight 480, " in said and f"; {parameters:,} in all" in said
    assert "best valid perplexity " in said and f"{parameters:,} parameters" in said


PLAIN = "model.activation=tanh model.layer_norm=false model.gated=false model.dropout=0 model.input_dropout=0"


@pytest.mark.parametrize(
    "words",
    [
        "optim=adamw",
        "optim=adam optim.weight_decay=0.1 training.embedding_gradients=dense model.tied=false",
        "optim=adagrad output=hierarchical tree=huffman model.across_sentences=true model.context_reset_prob=0.2",
        f"optim=sgd optim.lr=0.5 model.tied=false optim.weight_decay=0.1 training.embedding_max_norm=1 {PLAIN}",
        f"optim=sgd optim.momentum=0.9 output=nce {PLAIN}",
    ],
)
def test_the_embedding_of_padding_stays_zero_and_is_no_parameter(lmtool: Run, words: str) -> None:
    from safetensors.torch import load_file

    line = ["train", "data=toy", "model.context_size=2", "model.embedding_dim=8", "model.hidden_dim=8", *words.split()]
    line += ["model.fofe_window=0", "training.epochs=2", "training.batch_size=16"]
    lmtool(*line, "model.full_windows=true", "model.zero_padding=true", "hydra.run.dir=zero")
    lmtool(*line, "model.full_windows=true", "hydra.run.dir=other")
    assert result("zero")["parameters"] == result("other")["parameters"] - 8
    weights = load_file("zero/checkpoint.safetensors")["encoder.embedding.weight"]
    assert (weights[-1] == 0).all() and (weights[:-1] != 0).any(1).all()
    assert "model.zero_padding=true: needs model.full_windows=true" in lmtool(*line, "model.zero_padding=true", code=2)
    long = [*line, "model.full_windows=true", "model.zero_padding=true", "model.fofe_window=9"]
    assert "set model.fofe_window=0" in lmtool(*long, code=2)


def test_predict_prints_the_decisions_on_the_path_of_each_word(lmtool: Run) -> None:
    lmtool("train", "+experiment=morin_bengio2005_toy", "training.epochs=1", "hydra.run.dir=h")
    said = lmtool("predict", "the", "run=h", "paths=true", "top=3", "hydra.run.dir=asked")
    probabilities = [word["probability"] for word in result("asked")["contexts"][0]["words"]]
    lines = [line for line in said.splitlines() if " · " in line]
    assert len(lines) == 3 and Path("asked/paths.png").read_bytes().startswith(b"\x89PNG")
    for line, p in zip(lines, probabilities, strict=True):  # a balanced tree: one code for each word
        assert math.prod(map(float, re.findall(r"[01]: ([\d.]+)", line))) == pytest.approx(p, abs=2e-3)


def test_the_drawn_paths_by_hand() -> None:
    first, second, third = (0, 1, 0.75), (0, 0, 0.25), (1, 0, 0.8)
    root = _drawn([("b", [first]), ("a", [second, third])])
    assert (root.share, root.label) == (1, "")
    left, right = root.children
    assert (right.code, right.share, right.label, right.children) == ("1", 0.75, "b", ())
    assert [(leaf.code, leaf.label) for leaf in left.children] == [("00", "a"), ("01", "…")]
    assert [leaf.share for leaf in left.children] == pytest.approx([0.2, 0.05])


def test_the_tree_of_a_run(lmtool: Run) -> None:
    small = ("data=toy", "model.hidden_dim=4", "model.embedding_dim=4", "training.steps=1")
    lmtool("train", "model=hsoftmax", "tree=huffman", *small, "hydra.run.dir=h")
    said = lmtool("tree", "run=h", "to=codes.txt", "hydra.run.dir=of_run")
    assert said.startswith("tree=huffman: 23 words") and "built in" not in said
    lmtool("tree", "data=toy", "tree=huffman", "to=built.txt", "hydra.run.dir=built")
    assert Path("codes.txt").read_text() == Path("built.txt").read_text()
    assert result("of_run")["kind"] == "huffman"


def test_decisions_by_hand() -> None:
    tree = Tree([[1, -1], [-2, -3]], [0, 0, 1])  # word 0 has the codes 1 and 00, word 1 the code 01
    layer = HierarchicalSoftmax(2, tree).double()
    with torch.no_grad():
        layer.nodes.bias.copy_(torch.tensor([3.0, 0.25]).log())  # of the second child: 3 / 4 and 1 / 5
    h = torch.zeros(2, dtype=torch.float64)
    first, second, third = (0, 1, 0.75), (0, 0, 0.25), (1, 0, 0.8)
    assert [[pytest.approx(d) for d in code] for code in ([first], [second, third])] == layer.decisions(h, 0)
    assert layer.decisions(h, 1) == [[pytest.approx(second), pytest.approx((1, 1, 0.2))]]
    assert layer.log_dist(h[None])[0].exp().tolist() == pytest.approx([0.95, 0.05])

"""lmtool in Python: the commands as functions, with the same settings and the same one-line messages."""

from __future__ import annotations

import inspect
import json
import logging
import math
import pickle
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmtool
from lmtool import results
from lmtool.api.running import restore_logging
from lmtool.commands import bare_setting, verb_setting_types, verbs
from lmtool.config.options import conf_dir
from lmtool.config.request import Request
from lmtool.config.settings import data_settings
from lmtool.config.yaml_files import read_yaml

SMALL = {"kind": "nplm", "hidden_dim": 8, "embedding_dim": 4, "context_size": 2}


@pytest.fixture(scope="module")
def bigram(corpus: lmtool.Corpus, folder: Path) -> lmtool.results.TrainedRun:
    run = lmtool.train({"kind": "ngram", "order": 2}, corpus, smoother="witten_bell", out=folder / "bigram")
    assert isinstance(run, results.TrainedRun)
    return run


@pytest.fixture(scope="module")
def network(corpus: lmtool.Corpus, folder: Path) -> lmtool.results.TrainedRun:
    run = lmtool.train(SMALL, corpus, training={"epochs": 2, "batch_size": 16}, seed=3, out=folder / "network")
    assert isinstance(run, results.TrainedRun)
    return run


@pytest.mark.parametrize(
    ("settings", "choices", "values"),
    [
        ({"model": "nplm"}, {"model": "nplm"}, {}),
        ({"training": {"epochs": 3, "minutes": None}}, {}, {"training.epochs": 3, "training.minutes": None}),
        ({"model": {"hidden_dim": 100, "kind": "lbl"}}, {"model": "lbl"}, {"model.hidden_dim": 100}),
        ({"seed": 5, "model": "nce", "tree": None}, {"model": "nce"}, {"seed": 5}),
        ({"prune_counts": (0, 0, 1), "lr_range": True}, {}, {"prune_counts": [0, 0, 1], "lr_range": True}),
        ({"text": "it's ${a}, {b}"}, {}, {"text": "it's \\${a}, {b}"}),
        ({"prune_entropy": np.float64(1e-8), "threads": np.int64(2)}, {}, {"prune_entropy": 1e-8, "threads": 2}),
        ({"seed": 1, "experiment": "names"}, {"+experiment": "names"}, {"seed": 1}),
        ({"data": {"train": {"news": "a.txt", "b": ["b"]}}}, {}, {"data.train": {"news": "a.txt", "b": ["b"]}}),
        (
            {"smoother": {"kind": "count_merging", "source_weights": {"a": 1}}},
            {"smoother": "count_merging"},
            {"smoother.source_weights": {"a": 1}},
        ),
        (
            {"data": {"split": {"train": 0.8, "unit": "lines"}}},
            {},
            {"data.split.train": 0.8, "data.split.unit": "lines"},
        ),
    ],
)
def test_arguments_become_a_request(
    settings: dict[str, object], choices: dict[str, str], values: dict[str, object]
) -> None:
    request = Request.from_arguments("train", settings)
    assert (request.choices, request.values) == (choices, values)
    assert Request.from_json(json.loads(json.dumps(request.as_json()))) == request


def test_train_is_what_the_command_does(bigram: lmtool.results.TrainedRun, corpus: lmtool.Corpus, folder: Path) -> None:
    from lmtool.cli.command_line import main

    line = ["train", "model=ngram", "model.order=2", "smoother=witten_bell", f"store_dir={folder}/stores"]
    data = [f"data.digest={data_settings(corpus.provenance).digest}", "data=texts"]
    with restore_logging():
        assert main([*line, *data, f"hydra.run.dir={folder}/by-command"]) == 0
    by_command = json.loads((folder / "by-command" / "result.json").read_text())
    assert bigram.valid_perplexity == by_command["valid_perplexity"]
    assert (
        bigram.options
        == by_command["options"]
        == {"data": "texts", "model": "ngram", "smoother": "witten_bell"} | {"counts": "sorted"}
    )
    assert bigram.ngrams == by_command["ngrams"] and bigram.history == []


def test_a_trained_network(network: lmtool.results.TrainedRun) -> None:
    assert network.epochs == 2 and network.ngrams is None
    assert min(line["valid_perplexity"] for line in network.history) == pytest.approx(network.valid_perplexity)
    assert network.model.words[:2] != () and network.model.embeddings.shape == (7, 4)
    nearest = network.model.neighbors("a", 3)
    vectors = network.model.embeddings.astype(float)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    index = network.model.words.index("a")
    assert nearest[0][1] == pytest.approx(np.delete(unit @ unit[index], index).max())
    assert str(network.folder) in repr(network) and "valid perplexity" in network._repr_html_()


def test_training_leaves_random_states_and_threads_as_they_were(corpus: lmtool.Corpus, folder: Path) -> None:
    def states() -> list[object]:
        name, *numpys = np.random.get_state()  # the global one, which is the user's
        return [torch.get_rng_state().tolist(), name, *map(str, numpys), random.getstate(), torch.get_num_threads()]

    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        torch.manual_seed(11)
        before = states()
        short: dict[str, Any] = {"model": SMALL | {"dropout": 0.1}, "data": corpus, "training": {"epochs": 1}}
        run = lmtool.train(**short, threads=1, out=folder / "restored")
        assert states() == before
        assert isinstance(run, results.TrainedRun)
        settings = json.loads((run.folder / "run.json").read_text())["config"]["training"]
        assert (settings["epochs"], settings["minutes"]) == (1, None)  # nothing but the epoch ends it
        lmtool.train(**short, threads=1, lr_range=True, lr_range_steps=20, out=folder / "restored-rates")
        assert states() == before
        with pytest.raises(lmtool.UserError, match="already holds a trained model"):
            lmtool.train(**short, threads=2, out=folder / "restored")
        assert states() == before
    finally:
        torch.set_num_threads(threads)


def test_a_callback_sees_each_evaluation_and_can_end_the_training(corpus: lmtool.Corpus, folder: Path) -> None:
    lines: list[dict[str, object]] = []

    def end_at_the_third(line: dict[str, object]) -> bool:
        lines.append(line)
        return len(lines) == 3

    training = {"epochs": 50, "batch_size": 16, "evaluate_every": 1}
    run = lmtool.train(SMALL, corpus, training=training, out=folder / "ended", callback=end_at_the_third)
    assert isinstance(run, results.TrainedRun)
    assert len(lines) == len(run.history) == 3 and lines == run.history
    assert run.epochs == pytest.approx(3)


def test_resume_continues_where_it_stopped(corpus: lmtool.Corpus, folder: Path) -> None:
    training = {"batch_size": 16, "epochs": 1}
    first = lmtool.train(SMALL, corpus, training=training, out=folder / "resumed", seed=3, schedule="constant")
    assert isinstance(first, results.TrainedRun)
    again = lmtool.train(resume=first, training={"epochs": 2})
    whole = lmtool.train(
        SMALL, corpus, training=training | {"epochs": 2}, out=folder / "whole", seed=3, schedule="constant"
    )
    assert isinstance(again, results.TrainedRun) and isinstance(whole, results.TrainedRun)
    assert again.valid_perplexity == whole.valid_perplexity and again.folder == first.folder
    with pytest.raises(lmtool.UserError, match="remove out="):
        lmtool.train(resume=first, out=folder / "elsewhere")


def test_a_rate_test(corpus: lmtool.Corpus, folder: Path) -> None:
    found = lmtool.train(SMALL, corpus, lr_range=True, lr_range_steps=20, out=folder / "rates")
    assert isinstance(found, results.RateTest)
    assert len(found.rates) == len(found.losses) and "optim.lr=" in repr(found)


def test_evaluate_a_split(bigram: lmtool.results.TrainedRun) -> None:
    with pytest.warns(UserWarning, match=r"14.3 % of test"):  # one of seven, z
        scored = lmtool.evaluate(bigram, "test")
    assert scored.words == ["c", "d", "e", "</s>", "a", "<unk>", "</s>"]
    assert scored.oov == 1 and scored.oov_positions.tolist() == [5] and scored.offsets.tolist() == [0, 4, 7]
    assert scored.perplexity == pytest.approx(math.exp(-scored.log_probs.mean()))
    frame = scored.tokens_to_pandas()
    assert frame["oov"].tolist() == [False] * 5 + [True, False] and frame["sentence"].tolist() == [0] * 4 + [1] * 3
    assert list(frame) == ["sentence", "word", "log_prob_nats", "oov"]
    assert frame["log_prob_nats"].tolist() == scored.log_probs.tolist()
    assert {row[""]: row["value"] for row in scored.rows}["perplexity"] == scored.perplexity
    assert not Path("outputs").exists()


def test_rescore_n_best_lists(bigram: lmtool.results.TrainedRun, tmp_path: Path) -> None:
    (tmp_path / "lists").write_text("0 ||| c d ||| lm= -1 ||| -2\n0 ||| d c ||| lm= -1 ||| -2\n")
    found = lmtool.rescore(bigram, tmp_path / "lists", out=tmp_path / "out")
    assert found.lists == 1 and found.hypotheses == 2


def test_evaluate_text_in_memory_is_that_of_a_file(bigram: lmtool.results.TrainedRun, tmp_path: Path) -> None:
    (tmp_path / "x=y ü.txt").write_text("c d e\na z\n")
    in_memory = lmtool.evaluate(bigram, text=["c d e", " ", [], ["a", "z"]])  # a sentence without words is skipped
    of_file = lmtool.evaluate(bigram, text=tmp_path / "x=y ü.txt", out=tmp_path / "out")
    assert in_memory.log_probs.tolist() == of_file.log_probs.tolist()
    assert in_memory.bits_per_character == of_file.bits_per_character
    assert in_memory.oov_positions.tolist() == of_file.oov_positions.tolist() == [5]
    assert (tmp_path / "out" / "scores.h5").is_file()
    assert lmtool.evaluate(bigram.model, text=["c d e", "a z"]).perplexity == in_memory.perplexity
    assert bigram.model.perplexity(["c d e", "", "a z"]) == in_memory.perplexity


def test_mix_and_compare(bigram: lmtool.results.TrainedRun, network: lmtool.results.TrainedRun, folder: Path) -> None:
    mixed = lmtool.ensemble([bigram, network.folder], out=folder / "mixed")
    assert sum(mixed.weights) == pytest.approx(1) and mixed.perplexity <= min(p for p in mixed.perplexities if p)
    assert any("chosen on valid itself" in note for note in mixed.notes)
    compared = lmtool.compare([bigram, network, mixed])
    assert compared.tokens == 9 and [row["run"] for row in compared.rows] == [
        str(run.folder) for run in (bigram, network, mixed)
    ]
    assert any("chosen on valid itself" in note for note in compared.notes)
    (note,) = lmtool.compare([bigram, mixed], split="test").notes
    assert note.startswith("too few sentences to tell")
    assert compared.to_pandas()["perplexity"][2] == pytest.approx(mixed.perplexity)
    assert mixed.model.perplexity(["a b c", "b c d e"]) == pytest.approx(mixed.perplexity)


def test_a_tree(corpus: lmtool.Corpus) -> None:
    built = lmtool.tree("huffman", corpus, words=["a", "c"])
    assert [row["word"] for row in built.rows] == ["a", "c"]
    assert built.metric >= built.analysis.entropy and "c" in built.drawing
    assert lmtool.tree(data=corpus, tree={"kind": "huffman"}).metric == built.metric
    with pytest.raises(lmtool.UserError, match="not Corpus; pass it as data="):
        lmtool.train(corpus)  # type: ignore[call-overload]


def test_a_sweep(corpus: lmtool.Corpus, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    table = lmtool.sweep({"model.order": [1, 2]}, model="ngram", data=corpus, out=folder / "sweep")
    assert [row["status"] for row in table.rows] == ["done", "done"] and table.best["model.order"] == 2
    assert table.run(str(table.best["job"])).joinpath("run.json").is_file()
    assert (root.handlers, root.level) == before
    small = {"kind": "nplm", "hidden_dim": 4, "embedding_dim": 4}
    table = lmtool.sweep(
        {"model.fofe_window": [0, 2]}, model=small, training={"epochs": 1}, data=corpus, out=folder / "sweep-network"
    )
    assert sorted(row["model.fofe_window"] for row in table.rows) == [0, 2] and table.seeds is None
    assert capfd.readouterr() == ("", "")


def test_the_values_of_a_sweep(
    corpus: lmtool.Corpus, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    over: dict[str, Any] = {"model.order": [10, 2], "seed": range(2), "prune_entropy": [None, 1e-2], "threads": [1]}
    table = lmtool.sweep(over, model="ngram", data=corpus, smoother="laplace", out=folder / "values")
    assert {row["prune_entropy"] for row in table.rows} == {None, 0.01}
    assert "  0.01  " in table.table_text() and "0.0100" not in table.table_text()  # shown as typed
    assert sorted(table.to_pandas()["model.order"]) == [2] * 4 + [10] * 4  # as numbers, not as text
    assert table.seeds is not None and len(table.seeds.table) == 4 and table.seeds.best["seeds"] == 2
    assert table.seeds.best["mean valid_perplexity"] == table.best["valid_perplexity"]
    assert (
        "<table>" in table.seeds._repr_html_() and table.seeds.to_pandas()["standard deviation"].tolist() == [0.0] * 4
    )
    shown = lmtool.sweep(
        {"seed": [1]}, model=SMALL, training={"epochs": 1}, data=corpus, out=folder / "bar", progress=True
    )
    assert shown.best["status"] == "done" and "epoch 1" in capfd.readouterr().err
    failed = lmtool.sweep(
        {"model.order": [1, 2]}, model="ngram", data=corpus, prune_counts=[1] * 9, out=folder / "none"
    )
    with pytest.raises(lmtool.UserError, match="no job was done: prune_counts="):
        failed.best  # noqa: B018
    with pytest.raises(lmtool.UserError, match=r"holds another sweep .* choose another out"):
        lmtool.sweep({"seed": [5]}, model="ngram", data=corpus, out=folder / "values")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(lmtool.UserError, match="pip install pandas"):
        table.to_pandas()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: lmtool.train("nplm", training={"epoch": 3}), "no key 'training.epoch'; did you mean training.epochs?"),
        (lambda: lmtool.train("nplm", trainig={"epochs": 3}), "did you mean training.epochs?"),
        (lambda: lmtool.train("nplm", trainning={}), "no key 'trainning'; did you mean training?"),
        (lambda: lmtool.sweep({"seed": [1]}, model="nplm", optimm={}), "no key 'optimm'; did you mean optim or"),
        (lambda: lmtool.train("ngram", order=3), "no key 'order'; did you mean model.order?"),
        (lambda: lmtool.train(order=3), "no key 'order'; did you mean model.order? (a key of model=ngram, "),
        (lambda: lmtool.train("nplm", epochs=2), "no key 'epochs'; did you mean training.epochs?"),
        (lambda: lmtool.train("ngram", name="x"), "did you mean data.name?"),
        (lambda: lmtool.train("ngram", outdir="x"), "no key 'outdir'; did you mean out?"),
        (lambda: lmtool.sweep({"order": [1, 2]}, model="ngram"), "did you mean model.order?"),
        (lambda: lmtool.predict(), "text has no value: give the text"),
        (lambda: lmtool.export("nowhere"), "to has no value"),
        (lambda: lmtool.compare(["a", "b"], text=["the cat"]), "must be the path of a file; evaluate and surprisal"),
        (lambda: lmtool.train("ngram", ["the cat"]), "pass lmtool.Corpus.from_texts(train="),
        (lambda: lmtool.train("nplm", optim={"lr": object()}), "settings are text, numbers, lists and dictionaries"),
        (lambda: lmtool.evaluate("nowhere", text="the company said"), "give a list of sentences"),
        (lambda: lmtool.evaluate("nowhere", "test", text=["a"]), "remove one of the two"),
        (lambda: lmtool.ensemble("runs/a"), "give a list"),
        (lambda: lmtool.ensemble([3, 4]), "name a run by its folder"),
        (lambda: lmtool.sweep({"seed": []}, model="ngram"), "name its values"),
    ],
)
def test_a_mistake_is_the_same_line(
    call: Callable[[], object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(lmtool.UserError) as caught:
        call()
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_text_models_take_text_as_people_give_it(bigram: lmtool.results.TrainedRun) -> None:
    model = bigram.model
    assert (
        model.score("a b c").tolist()
        == model.score(["a b c"])[0].tolist()
        == model.score([["a", "b", "c"]])[0].tolist()
    )
    assert len(model.score("a b c")) == 4  # three words and </s>, not five characters
    assert model.ids(["a", "b"]).tolist() == model.ids("a b").tolist()
    assert len(repr(model)) < 200 and "7 words" in repr(model)
    assert model.generate("a", seed=1) == model.generate("a", seed=1)
    texts = {tuple(model.generate(count=8)) for _ in range(4)}
    assert len(texts) > 1  # a different seed each time
    with pytest.raises(lmtool.UserError, match="not one word"):
        model.score([["a b"]])
    with pytest.raises(lmtool.UserError, match="not a neural model"):
        model.neighbors("a")


def test_an_unequal_model_says_so_everywhere(folder: Path, corpus: lmtool.Corpus) -> None:
    """Stupid backoff's scores do not sum to one."""
    run = lmtool.train("ngram", corpus, smoother="stupid_backoff", out=folder / "stupid")
    fair = lmtool.train("ngram", corpus, smoother="laplace", out=folder / "fair")
    assert isinstance(run, results.TrainedRun) and isinstance(fair, results.TrainedRun)
    assert not run.normalized and fair.normalized
    assert json.loads((run.folder / "result.json").read_text())["normalized"] is False
    for result in (run, lmtool.evaluate(run), lmtool.ensemble([run, fair], out=folder / "unequal")):
        assert any("do not sum to one" in note for note in result.notes), result


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_is_a_function(verb: str) -> None:
    name = {"eval": "evaluate", "distill": "distill", "report": "report_page"}.get(verb, verb)
    function = getattr(lmtool, name)
    assert pickle.loads(pickle.dumps(function)) is function and name in lmtool.__all__
    if function.__module__ != "lmtool":
        return  # it takes other arguments than the settings
    parameters = inspect.signature(function).parameters
    groups = read_yaml(conf_dir() / f"{verb}.yaml").groups.keys()
    assert parameters.keys() - {"out", "progress", "overwrite"} == verb_setting_types(verb).keys() | groups
    assert parameters.keys() >= {"out", "progress"} and function.__doc__.startswith(f"lmtool {verb}: ")
    assert all(f"\n{key}: " in function.__doc__ for key in parameters)
    if bare := bare_setting(verb):
        assert next(iter(parameters)) == bare[0]


def test_the_types_of_a_function() -> None:
    assert str(inspect.signature(lmtool.neighbors)).translate({ord(quote): None for quote in "'\""}) == (
        "(words: list[str] = [], run: RunLike | None = None, *, minus: list[str] = [], questions: str | None = None, "
        "top: int = 10, by: Literal[cosine, dot] = cosine, "
        "of: Literal[embeddings, output] = embeddings, options: str | None = None, store_dir: str = stores, "
        "threads: int | None = None, out: str | PathLike[str] | None = None, progress: bool | None = None) "
        "-> NeighborsResult | AnalogiesResult"
    )
    assert "\ntop: number of neighbors of each word [1 or more].\n" in str(lmtool.neighbors.__doc__)
    first = {name: list(inspect.signature(getattr(lmtool, name)).parameters)[:2] for name in ("export", "distill")}
    assert first == {"export": ["run", "to"], "distill": ["run", "ngrams_from"]}
    types = inspect.signature(lmtool.convert).parameters
    assert types["data"].annotation == "Option | Corpus" and types["overwrite"].default is False
    assert types["run"].annotation == "RunLike | None | Sequence[RunLike]"
    with pytest.raises(TypeError, match="multiple values for argument 'text'"):
        lmtool.predict("a", text="b")


def test_words_texts_neighbors_and_files(
    bigram: lmtool.results.TrainedRun,
    network: lmtool.results.TrainedRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    predicted = lmtool.predict("a b", bigram, top=2)
    assert [(row["word"], row["probability"]) for row in predicted.rows] == bigram.model.predict("a b", 2)
    assert str(predicted).startswith(f"run {bigram.folder}\nrank  word  probability") and predicted.codes == []
    assert predicted.to_pandas()["log10 p"][0] == math.log10(bigram.model.predict("a b", 1)[0][1])
    lmtool.export(bigram, "a.arpa")
    for model in ("a.arpa", lmtool.load("a.arpa"), bigram.model):
        of_file = lmtool.predict("a b", model, top=2)
        assert [row["word"] for row in of_file.rows] == [row["word"] for row in predicted.rows]
    sampled = lmtool.generate("a", bigram, count=3, seed=5, out="sampled")
    assert sampled.texts == bigram.model.generate("a", count=3, length=50, seed=5)
    assert (
        str(sampled).splitlines() == [f"run {bigram.folder}, seed=5", *sampled.texts] and "<td" in sampled._repr_html_()
    )
    assert json.loads(Path("sampled/result.json").read_text())["texts"] == sampled.texts
    for near in (lmtool.neighbors("a", network, top=2), lmtool.neighbors(["a"], run=network.model, top=2)):
        assert [(row["neighbor"], row["cosine"]) for row in near.rows] == network.model.neighbors("a", 2)
    files = lmtool.verify([bigram, "a.arpa"])
    assert {row["condition"] for row in files.rows} == {"whole", "unverified"} and len(files.notes) == 1
    Path("text.txt").write_text("a b c\nb c\n")
    assert lmtool.score(bigram, "text.txt", to="scores.tsv").texts == 2
    (network.folder / "vocabulary.txt").rename("kept")
    (network.folder / "vocabulary.txt").write_text("other")
    with pytest.raises(lmtool.UserError, match=r"1 of \d+ files damaged"):
        lmtool.verify(network)
    Path("kept").rename(network.folder / "vocabulary.txt")
    assert capfd.readouterr() == ("", "") and not Path("outputs").exists()

"""lmtool in programs, threads and notebooks: calls that are repeated, nested and shown."""

from __future__ import annotations

import json
import logging
import os
import pickle
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hydra
import nbformat
import pytest
import torch
from hydra import version
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime
from nbclient import NotebookClient
from omegaconf import DictConfig

import lmtool
from lmtool import results
from lmtool.data.derived_corpus import SkipCorpus, TextCorpus, limit_words
from lmtool.data.text_form import TextForm
from lmtool.system import parallel
from tests.api.conftest import TRAIN
from tests.conftest import ROOT
from tests.pages import GUIDES, README, blocks

NETWORK = {"kind": "nplm", "hidden_dim": 8, "embedding_dim": 4, "context_size": 2}


def test_within_the_users_own_hydra_application(
    corpus: lmtool.Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "app.yaml").write_text("order: 2\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["app.py", "hydra/job_logging=none", "hydra/hydra_logging=none"])
    seen = []

    @hydra.main(version_base="1.2", config_path=str(tmp_path / "conf"), config_name="app")
    def app(config: DictConfig) -> None:
        def state() -> list[object]:
            return [GlobalHydra.instance().hydra, HydraConfig.get(), version.getbase(), JobRuntime().get("name")]

        before = state()
        lmtool.train({"kind": "ngram", "order": config.order}, corpus, out="run")
        lmtool.sweep({"model.order": [1, 2]}, model="ngram", data=corpus, out="sweep")
        assert state() == before and before[0] is GlobalHydra.instance().hydra
        seen.append(config.order)

    app()
    with hydra.initialize_config_dir(str(tmp_path / "conf"), version_base="1.3"):
        lmtool.train({"kind": "ngram", "order": 2}, corpus, out="another")
        assert hydra.compose("app").order == 2
    assert seen == [2]


def test_from_several_threads(corpus: lmtool.Corpus, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)

    def train(order: int) -> float:
        model = {"kind": "ngram", "order": order} if order else NETWORK
        training = None if order else {"epochs": 1}
        return lmtool.train(model, corpus, training=training, out=folder / f"order{order}").valid_perplexity

    with ThreadPoolExecutor(4) as threads:
        at_once = list(threads.map(train, range(4)))
        paths = list(threads.map(lambda k: lmtool.Corpus.from_texts(TRAIN, [f"a {k % 2}"]).path, range(8)))
    assert len(set(paths)) == 2
    before = sys.argv[:], dict(os.environ)
    with ThreadPoolExecutor(3) as threads:
        over = {"model.order": [1, 2]}
        list(threads.map(lambda k: lmtool.sweep(over, model="ngram", data=corpus, out=folder / f"sweep{k}"), range(3)))
    assert (sys.argv, dict(os.environ)) == before, "restored, although the sweeps overlap"
    assert at_once[1:] == [
        lmtool.train({"kind": "ngram", "order": order}, corpus, out=folder / f"alone{order}").valid_perplexity
        for order in (1, 2, 3)
    ]


def test_a_cell_that_is_run_twice(corpus: lmtool.Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bigram = {"kind": "ngram", "order": 2}
    first = lmtool.train(bigram, corpus, out="bigram")
    with pytest.raises(lmtool.UserError, match=r"another folder, e\.g\. out=PATH, or replace it with overwrite=True$"):
        lmtool.train(bigram, corpus, out="bigram")
    assert lmtool.train(bigram, corpus, out="bigram", resume=True).valid_perplexity == first.valid_perplexity
    with pytest.raises(lmtool.UserError, match="order=3: the training in bigram was started with 2"):
        lmtool.train({"kind": "ngram", "order": 3}, corpus, out="bigram", resume=True)
    Path("words").write_text("a b c")
    for out, settings in (("limit_words", {"limit_vocabulary": "words"}), ("pruned", {"prune_to": "90%"})):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "a high share is out of vocabulary")
            found = [lmtool.train(bigram, corpus, out=out, resume=True, **settings).valid_perplexity for _ in range(2)]
        assert found[0] == found[1] != first.valid_perplexity
    with pytest.raises(lmtool.UserError, match="prune_method=entropy: the training in pruned was started with gain"):
        lmtool.train(bigram, corpus, out="pruned", resume=True, prune_to="90%", prune_method="entropy")
    lmtool.convert(run="bigram", prune_to="90%", out="converted")
    with pytest.raises(lmtool.UserError, match="converted was mixed, converted or distilled, not trained"):
        lmtool.train(bigram, corpus, out="converted", resume=True)
    other = lmtool.Corpus.from_texts(["a b"] * 9, ["b a"], store_dir="stores")
    with pytest.raises(lmtool.UserError, match="a different store"):
        lmtool.train(bigram, other, out="bigram", resume=True)
    assert lmtool.train({"kind": "ngram", "order": 3}, corpus, out="bigram", overwrite=True).ngrams != first.ngrams
    for _ in range(2):
        assert lmtool.distill("bigram", "bigram", out="small", overwrite=True).folder == Path("small")
    lmtool.ensemble(["bigram", "small"], out="mix")
    for mistake in (
        lambda: lmtool.train(bigram, {"kind": "text", "train": "nowhere.txt"}, out="bigram", overwrite=True),
        lambda: lmtool.convert(run="nowhere", prune_entropy=1e-3, out="bigram", overwrite=True),
        lambda: lmtool.distill("nowhere", "small", out="bigram", overwrite=True),
        lambda: lmtool.train(bigram, corpus, prune_to=1, out="bigram", overwrite=True),
    ):
        with pytest.raises(lmtool.UserError):
            mistake()
        assert lmtool.load("bigram").model.table.order == 3, "what is replaced is removed when all has been read"
    merged = lmtool.convert(runs=["mix"], out="bigram", overwrite=True)  # which is also a member of the mixture
    assert merged.path == Path("bigram") and lmtool.load("bigram").model.table.order == 3
    for read in ({"run": "bigram"}, {"runs": ["small", tmp_path / "bigram"]}):
        with pytest.raises(lmtool.UserError, match="out=bigram is a run that is read"):
            lmtool.convert(**read, prune_entropy=1e-3, out="bigram", overwrite=True)
    assert lmtool.convert(run="bigram", prune_entropy=1e-3, out="small", overwrite=True).path == Path("small")


def test_a_networks_cell_that_is_run_twice(corpus: lmtool.Corpus, tmp_path: Path) -> None:
    training = {"epochs": 2, "batch_size": 16}

    def train(**keys: object) -> results.TrainedRun:
        return lmtool.train(NETWORK, corpus, training=training, schedule="constant", out=tmp_path / "net", **keys)

    first, again = train(resume=True), train(resume=True)
    assert again.valid_perplexity == first.valid_perplexity and again.history[-1]["epoch"] == 2
    assert any("nothing was trained" in note for note in again.notes)
    training["epochs"] = 3
    assert train(resume=True).epochs == 3
    nowhere = {"kind": "text", "train": "nowhere.txt", "valid": "nowhere.txt"}
    with pytest.raises(lmtool.UserError, match=r"nowhere\.txt"):
        lmtool.train(NETWORK, nowhere, out=tmp_path / "net", overwrite=True)
    lmtool.train(NETWORK, corpus, lr_range=True, lr_range_steps=20, out=tmp_path / "net", overwrite=True)
    assert train(resume=True).epochs == 3, "neither a mistake nor a test of rates removes the training"
    steps = [line["step"] for line in train(overwrite=True).history]
    assert steps == sorted(set(steps))  # those of the new training alone
    with pytest.raises(lmtool.UserError, match=r"already holds .* overwrite=True"):
        train()
    with pytest.raises(lmtool.UserError, match="remove one of the two"):
        train(resume=True, overwrite=True)
    with pytest.raises(lmtool.UserError, match=r"name the run folder, e\.g\. out=PATH"):
        lmtool.train(NETWORK, corpus, resume=True)


def test_a_networks_cell_that_was_changed(corpus: lmtool.Corpus, tmp_path: Path) -> None:
    """resume=True compares what the cell says; it does not keep what was taken out of it."""
    out = tmp_path / "net"
    cell = {"model": NETWORK, "data": corpus, "training": {"epochs": 1, "batch_size": 16}, "out": out, "resume": True}
    first = lmtool.train(**cell, optim={"lr": 0.03})
    assert lmtool.train(**cell, optim={"lr": 0.03}).valid_perplexity == first.valid_perplexity
    for changes, said in (
        (
            {},
            r"optim.lr=.*: the training in .*net was started with 0.03, which cannot change; set it to that, or train",
        ),
        ({"model": {"kind": "lbl"}}, "model=lbl: the training in .*net was started with nplm"),
        (
            {"model": "ngram", "training": None},
            "net holds the training of a network, not of ngram: choose another out=",
        ),
    ):
        with pytest.raises(lmtool.UserError, match=said):
            lmtool.train(**cell | changes)
    assert lmtool.train(resume=out, training={"epochs": 2}).epochs == 2, "which keeps the settings of the training"


def test_mistakes_with_resume_and_experiment(corpus: lmtool.Corpus, tmp_path: Path) -> None:
    bigram = {"kind": "ngram", "order": 2}
    with pytest.raises(lmtool.UserError, match=r"^resume='': must be a run folder, or True for the training in out=$"):
        lmtool.train(bigram, corpus, resume="", out=tmp_path / "a")
    for value in ({}, {"lr": 1}, 5):
        with pytest.raises(
            lmtool.UserError, match=r"^experiment=.*: must be the name of a YAML file in conf/experiment$"
        ):
            lmtool.train(bigram, corpus, experiment=value, out=tmp_path / "a")
    with pytest.raises(lmtool.UserError, match=r"^resume=True: a sweep with the same out= is resumed"):
        lmtool.sweep({"model.order": [1, 2]}, model="ngram", data=corpus, resume=True, out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_overwriting_removes_what_a_reader_would_take_for_the_new_run(corpus: lmtool.Corpus, tmp_path: Path) -> None:
    out, training = tmp_path / "net", {"epochs": 1, "batch_size": 16}
    lmtool.train(NETWORK, corpus, output="hierarchical", training=training, out=out)
    for name in ("lr_range.png", "scores.h5", "tokenizer.json"):
        (out / name).write_bytes(b"old")
    lmtool.train({"kind": "ngram", "order": 2}, corpus, out=out, overwrite=True)
    left = {path.name for path in out.iterdir()}
    assert not left & {"lr_range.png", "scores.h5", "tokenizer.json", "tree.safetensors", "curves.png", "begun.json"}


def test_a_mixture_replaces_no_run_but_a_mixture(corpus: lmtool.Corpus, tmp_path: Path) -> None:
    runs = [tmp_path / "one", tmp_path / "two"]
    for order, run in enumerate(runs, 1):
        lmtool.train({"kind": "ngram", "order": order}, corpus, out=run)
    other = lmtool.train({"kind": "ngram", "order": 1}, corpus, out=tmp_path / "other").folder
    for out in (runs[0], other):
        with pytest.raises(
            lmtool.UserError, match=r"is a run, which the mixture would replace: choose another out=PATH$"
        ):
            lmtool.ensemble(runs, out=out)
        assert lmtool.load(out).model.table.order == 1
    for _ in range(2):
        assert lmtool.ensemble(runs, out=tmp_path / "mix").weights
    with pytest.raises(lmtool.UserError, match="mix is a run, which the mixture would replace"):
        lmtool.ensemble([tmp_path / "mix", runs[0]], out=tmp_path / "mix")
    for run in runs:
        lmtool.evaluate(run, out=run.with_suffix(".scores"))
    scores = [run.with_suffix(".scores") / "scores.h5" for run in runs]
    with pytest.raises(lmtool.UserError, match="which the mixture would replace"):
        lmtool.ensemble(scores, out=scores[0].parent)


def test_the_best_of_jobs_without_a_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = lmtool.sweep({"data": ["toy"]}, verb="preprocess", out="stored")
    with pytest.raises(lmtool.UserError, match=r"^stored: no job has a metric to be compared by"):
        print(table.best)


def test_logging_is_restored_after_sweeps_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, begun = logging.getLogger(), threading.Event()
    before = root.handlers[:], root.level, logging.raiseExceptions

    def run(*_: object, **__: object) -> None:  # as Hydra does
        root.addHandler(logging.NullHandler())
        root.setLevel("INFO")
        logging.raiseExceptions = False
        begun.set()
        time.sleep(0.2)

    monkeypatch.setattr("lmtool.requests.run_sweep.run_sweep", run)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(lmtool.sweep, {"seed": [1]}, out=tmp_path / "a")
        assert begun.wait(60)
        for each in first, threads.submit(lmtool.sweep, {"seed": [2]}, out=tmp_path / "b"):
            each.result()
    assert (root.handlers, root.level, logging.raiseExceptions) == before


def test_the_pages_python_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `mypy --strict`, as pyproject.toml sets it; a few seconds after ./scripts/check, whose cache it uses."""
    api = pytest.importorskip("mypy.api")
    files = []
    for page in (README, GUIDES / "in_python.md"):
        files.append(tmp_path / f"{page.stem}_blocks.py")
        files[-1].write_text("\n".join(block.text for block in blocks(page, "python")))
    monkeypatch.chdir(ROOT)
    said, errors, code = api.run([*map(str, files)])
    assert (code, errors) == (0, ""), said


def test_pickles_and_pictures(
    corpus: lmtool.Corpus, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bigram = lmtool.train({"kind": "ngram", "order": 2}, corpus, out=folder / "bigram")
    network = lmtool.train(NETWORK, corpus, training={"epochs": 2, "batch_size": 16}, out=folder / "network")
    mixture = lmtool.ensemble([bigram, network], out=folder / "mixture")
    monkeypatch.chdir(tmp_path)  # another process may be elsewhere
    again = pickle.loads(pickle.dumps(corpus))
    assert again.vocabulary.words == corpus.vocabulary.words
    assert again.split("train").ids.tolist() == corpus.split("train").ids.tolist()
    form = TextForm(corpus.vocabulary)
    text = TextCorpus(corpus.split("valid"), "valid", form)
    for derived in (limit_words(corpus, ["a", "b"]), SkipCorpus(corpus, 2), text):
        again = pickle.loads(pickle.dumps(derived))
        assert type(again) is type(derived) and again.vocabulary.words == derived.vocabulary.words
        assert again.split("valid").ids.tolist() == derived.split("valid").ids.tolist()
    assert all(
        f'<td dir="auto" style="text-align:left">{split}</td>' in corpus._repr_html_() for split in corpus.splits
    )
    for run in (bigram, network, mixture):
        model = pickle.loads(pickle.dumps(run.model))
        for scores, before in zip(model.score(["a b", "z"]), run.model.score(["a b", "z"]), strict=True):
            assert scores.tolist() == before.tolist()
        assert "<table>" in run._repr_html_()
    pytest.importorskip("matplotlib")
    assert network.plot()._repr_png_().startswith(b"\x89PNG")
    assert network.plot().axes[0].get_ylabel() == "perplexity"
    assert network.plot().get_suptitle().startswith("data=")
    with pytest.raises(lmtool.UserError, match="only the training of a neural model"):
        bigram.plot()
    monkeypatch.setattr("lmtool.results.runs.can_plot", lambda: False)
    with pytest.raises(lmtool.UserError, match="plot needs matplotlib: pip install"):
        network.plot()


def test_threads_belong_to_the_program(corpus: lmtool.Corpus, folder: Path) -> None:
    """Also if calls overlap, or are nested by a callback."""
    before, count = torch.get_num_threads(), 3
    torch.set_num_threads(count)
    begun, ended = threading.Event(), threading.Event()

    def wait(line: dict[str, object]) -> bool:
        begun.set()
        return not ended.wait(60)

    def of_this(line: dict[str, object]) -> bool:
        begun.set()
        assert ended.wait(60)
        seen.append(parallel.threads())
        return True

    def nested(line: dict[str, object]) -> None:
        lmtool.evaluate(folder / "overlap", threads=2)
        seen.append(torch.get_num_threads())

    seen: list[int] = []
    short = {"training": {"epochs": 1, "batch_size": 64, "evaluate_every": 1}, "threads": 1, "data": corpus}
    try:
        first = threading.Thread(target=lambda: lmtool.train(NETWORK, **short, callback=wait, out=folder / "overlap"))
        first.start()
        assert begun.wait(60)
        lmtool.train(NETWORK, **short, out=folder / "within")
        ended.set()
        first.join()
        assert torch.get_num_threads() == count
        begun.clear()
        ended.clear()
        chosen = parallel.threads()
        first = threading.Thread(target=lambda: lmtool.train(NETWORK, **short, callback=of_this, out=folder / "own"))
        first.start()
        assert begun.wait(60)
        lmtool.train(
            NETWORK, **short | {"threads": 2}, callback=lambda line: ended.set() or first.join(), out=folder / "two"
        )
        assert seen == [1] and parallel.threads() == chosen, "whoever ends first"
        seen.clear()
        lmtool.train(NETWORK, **short, callback=nested, out=folder / "nested")
        assert set(seen) == {1} and torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)


def test_a_sweep_writes_to_no_handler_of_an_earlier_run(corpus: lmtool.Corpus, tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "gone" / "train.log", delay=True)
    logging.getLogger().addHandler(handler)
    try:
        lmtool.sweep(model="ngram", data=corpus, over={"model.order": [1]}, out=tmp_path / "swept")
        assert handler in logging.getLogger().handlers and not (tmp_path / "gone").exists()
    finally:
        logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("name", ["", "train/ids", "train/"])
def test_what_is_no_name_of_a_split_is_refused(name: str, corpus: lmtool.Corpus) -> None:
    with pytest.raises(lmtool.UserError, match=f"'{name}' is not the name of a split: use train, valid or test"):
        corpus.bytes_in_memory(name)


# The notebook of the docs, run from its first cell to its last by a real kernel


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(ROOT / "docs" / "examples" / "notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    shown = [output.data for output in outputs if output.output_type == "execute_result"]
    html = [data.get("text/html", "") for data in shown]
    # corpus, examples, 2 runs, evaluation, mixture, sweep, explain, discounts, continuations, tree, paths
    assert sum("<table>" in each for each in html) == 12
    assert sum("data:image/png" in each for each in html) == 2  # the tree of a corpus and of a model
    assert sum("image/png" in data for data in shown) == 1  # network.plot()
    assert sum("dataframe" in data.get("text/html", "") for data in shown) == 2
    said = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    (perplexities,) = [json.loads(line) for line in said.splitlines() if line.startswith("[")]
    assert len(perplexities) == 2 and all(30 < value < 250 for value in perplexities)
    assert "did you mean training.epochs?" in said
    errors = [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    assert not any("Warning" in text for text in errors), errors
    assert (tmp_path / "runs" / "mix" / "run.json").is_file()

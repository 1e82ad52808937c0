"""lmtool in programs, threads and notebooks: calls that are repeated, nested and shown."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hydra
import pytest
import torch
from hydra import version
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime
from omegaconf import DictConfig

import lmtool
from lmtool import results
from tests.conftest import ROOT
from tests.pages import GUIDES, README, blocks

TRAIN = ["a b c d", "b c d e", ["a", "c", "e"]] * 20
NETWORK = {"kind": "nplm", "hidden_dim": 8, "embedding_dim": 4, "context_size": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("use")


@pytest.fixture(scope="module")
def corpus(folder: Path) -> lmtool.Corpus:
    return lmtool.Corpus.from_texts(TRAIN, ["a b c", "b c d e"], ["c d e", "a z"], store_dir=folder / "stores")


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
    with pytest.raises(lmtool.UserError, match=r"another folder with out=PATH, or replace it with overwrite=True$"):
        lmtool.train(bigram, corpus, out="bigram")
    assert lmtool.train(bigram, corpus, out="bigram", resume=True).valid_perplexity == first.valid_perplexity
    with pytest.raises(lmtool.UserError, match="order=3: the training in bigram was started with 2"):
        lmtool.train({"kind": "ngram", "order": 3}, corpus, out="bigram", resume=True)
    Path("words").write_text("a b c")
    for out, settings in (("limited", {"limit_vocabulary": "words"}), ("pruned", {"prune_to": "90%"})):
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
    with pytest.raises(lmtool.UserError, match="another store"):
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
    merged = lmtool.merge(["mix"], out="bigram", overwrite=True)  # which is also a member of the mixture
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
    with pytest.raises(lmtool.UserError, match="name the run folder, as out=PATH"):
        lmtool.train(NETWORK, corpus, resume=True)


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
    assert all(f'<td style="text-align:left">{split}</td>' in corpus._repr_html_() for split in corpus.splits)
    for run in (bigram, network, mixture):
        model = pickle.loads(pickle.dumps(run.model))
        for scores, before in zip(model.score(["a b", "z"]), run.model.score(["a b", "z"]), strict=True):
            assert scores.tolist() == before.tolist()
        assert "<table>" in run._repr_html_()
    pytest.importorskip("matplotlib")
    assert network.plot()._repr_png_().startswith(b"\x89PNG")
    assert network.plot().axes[0].get_ylabel() == "perplexity"
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
        lmtool.train(NETWORK, **short, callback=nested, out=folder / "nested")
        assert set(seen) == {1} and torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)

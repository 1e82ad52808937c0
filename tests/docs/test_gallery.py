"""The examples of docs/gallery: each runs, on a small text and in a few steps of training, and draws pictures."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lmtool
from lmtool.api import calls, verbs
from lmtool.data.corpus import Corpus
from tests.conftest import ROOT

GALLERY = ROOT / "docs" / "gallery"
EXAMPLES = sorted(GALLERY.glob("*.py"))

matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gallery")


@pytest.fixture(scope="module")
def small(folder: Path) -> Corpus:
    """Use the first sentences of Python's manual instead of all docstrings."""
    from pydoc_data.topics import topics

    lines = [line for topic in sorted(topics) for line in topics[topic].lower().splitlines() if line.strip()]
    sentences = [re.findall(r"\w+|[^\w\s]", line) for line in lines[:2400]]
    return Corpus.from_texts(sentences, 0.1, 0.1, name="small", min_count=2, store_dir=folder / "stores")


@pytest.fixture(autouse=True)
def reduced(small: Corpus, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have examples take the small text, a hundredth of the synthetic one, and four steps where networks learn."""

    def preprocess(data: Any) -> Corpus:
        if data == "pydoc":
            return small
        return verbs.preprocess({**data, "tokens": max(data["tokens"] // 100, 500), "valid_tokens": 500})

    def train(model: Any, data: Any, *, training: dict[str, Any] | None = None, **settings: Any) -> Any:
        fewer: dict[str, Any] = {"lr_range_steps": 12} if "lr_range" in settings else {}
        if training is not None:
            fewer["training"] = training | {"batch_size": 32} | ({"steps": 4} if "steps" in training else {})
        return calls.train(model, data, **settings | fewer)

    def sweep(over: Any, *, data: str, **settings: Any) -> Any:
        return calls.sweep(over, data=preprocess(data), **settings)

    from matplotlib import pyplot

    monkeypatch.chdir(folder)
    monkeypatch.setattr(lmtool, "preprocess", preprocess)
    monkeypatch.setattr(lmtool, "train", train)
    monkeypatch.setattr(lmtool, "sweep", sweep)
    monkeypatch.setattr(pyplot, "show", lambda: None)
    backend = pyplot.get_backend()
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")
    pyplot.switch_backend(backend)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:Log scale. values of zero or less:UserWarning")
def test_the_example_runs(example: Path) -> None:
    from matplotlib import pyplot

    runpy.run_path(str(example))
    (number,) = pyplot.get_fignums()
    figure = pyplot.figure(number)
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert axes.get_title(), "the titles are the picture's alternative text"
        assert axes.has_data()
    assert not list(GALLERY.glob("outputs")), "an example writes below the folder that one is in"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 12
    assert all(path.name.startswith("plot_") for path in EXAMPLES), "sphinx-gallery runs those"

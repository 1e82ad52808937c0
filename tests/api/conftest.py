"""Fixtures of the tests of the Python face."""

from __future__ import annotations

from pathlib import Path

import pytest

import lmtool

TRAIN = ["a b c d", "b c d e", ["a", "c", "e"]] * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("python")


@pytest.fixture(scope="module")
def corpus(folder: Path) -> lmtool.Corpus:
    return lmtool.Corpus.from_texts(TRAIN, ["a b c", "b c d e"], ["c d e", "a z"], store_dir=folder / "stores")

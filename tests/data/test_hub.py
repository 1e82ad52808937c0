"""Data sets of the Hub, saved on disk: nothing is fetched here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import Run, result

datasets = pytest.importorskip("datasets", reason="needs datasets (pip install lmtool[hub])")

TEXTS = {
    "train": ["a b\nc a\n", None, "ü b c\r\na\n\n", "a"],
    "validation": ["a b"],
    "test": ["c\nb", ""],
}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    parts = {name: datasets.Dataset.from_dict({"text": text, "n": [1] * len(text)}) for name, text in TEXTS.items()}
    datasets.disable_progress_bars()
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    parts["train"].save_to_disk(str(tmp_path / "one"))
    return tmp_path


def test_the_store_is_that_of_the_same_text(lmtool: Run, saved: Path) -> None:
    for name, lines in (("train", "a b\nc a\nü b c\na\na\n"), ("valid", "a b\n"), ("test", "c\nb\n")):
        Path(f"{name}.txt").write_text(lines)
    lmtool("train", "model=ngram", "model.order=2", "smoother=witten_bell", "data=hub", "data.path=saved",
           "hydra.run.dir=hub")  # fmt: skip
    lmtool("train", "model=ngram", "model.order=2", "smoother=witten_bell", "data=text", "data.train=train.txt",
           "data.valid=valid.txt", "data.test=test.txt", "hydra.run.dir=text")  # fmt: skip
    assert Path("hub/model.h5").read_bytes() == Path("text/model.h5").read_bytes()
    assert "perplexity" in lmtool("eval", "run=hub", "split=test")
    # A copy elsewhere is the same; one that has changed is read again.
    shutil.copytree(saved / "saved", saved / "copy")
    shutil.rmtree(saved / "saved")
    shutil.copytree(saved / "copy", saved / "saved")
    lmtool("preprocess", "data=hub", "data.path=saved", "hydra.run.dir=p")
    assert result("p")["created"] is False
    datasets.Dataset.from_dict({"text": ["a b"]}).save_to_disk(str(saved / "other"))
    (saved / "saved").rename(saved / "before")
    (saved / "other").rename(saved / "saved")
    said = lmtool("train", "model=ngram", "data=hub", "data.path=saved", "hydra.run.dir=again", code=2)
    assert "data.valid_split=validation: saved has only train" in said


def test_one_split_is_cut(lmtool: Run, saved: Path) -> None:
    words = ("preprocess", "data=hub", "data.path=one")
    lmtool(*words, "data.valid_split=0.26", "data.test_split=null", "hydra.run.dir=cut")
    rows = result("cut")["splits"]
    assert {row["split"]: row["tokens"] for row in rows} == {"train": 12, "valid": 2}
    assert "data.valid_split=null: name a split" in lmtool(
        *words, "data.valid_split=null", "data.test_split=null", code=2
    )
    said = lmtool(*words, "data.valid_split=0.5", "data.test_split=0.5", code=2)
    assert "a share that leaves some of train" in said


def test_what_is_not_there(lmtool: Run, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("preprocess", "data=hub")
    assert "data.path" in lmtool(*words, code=2)
    said = lmtool(*words, "data.path=saved", "data.column=body", code=2)
    assert "data.column=body: saved has no such column; name one of: text, n" in said
    assert "not text (int): name another column" in lmtool(*words, "data.path=saved", "data.column=n", code=2)
    Path("theirs").mkdir()
    Path("theirs/theirs.py").write_text("import os\nos.mkdir('canary')\n")
    said = lmtool(*words, "data.path=theirs", "data.column=text", code=2)
    assert "data.path=theirs: datasets says: " in said and not Path("canary").exists()
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    assert "data.path=no/such: datasets says: " in lmtool(*words, "data.path=no/such", code=2)
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    assert 'data=hub needs datasets: pip install "lmtool[hub]"' in lmtool(*words, "data.path=saved", code=2)

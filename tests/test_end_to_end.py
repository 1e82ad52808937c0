"""Whole commands on small data: what is printed, what is kept, and what becomes of bad input."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from lmtool.cli.command_line import main
from lmtool.data import readers
from lmtool.data.corpus import Corpus
from lmtool.data.sources import text
from lmtool.errors import UserError
from lmtool.system.checksums import seal
from tests.conftest import Run, result
from tests.forked import run_forked

SMALL = ("model=nplm", "model.embedding_dim=8", "model.hidden_dim=16", "training.epochs=2", "training.batch_size=32")


def test_preprocess_train_eval_ensemble(lmtool: Run) -> None:
    assert "wrote stores/toy-" in lmtool("preprocess", "data=toy")
    assert "nothing to do" in lmtool("preprocess", "data=toy")
    lmtool("train", "model=ngram", "data=toy", "model.order=3", "hydra.run.dir=runs/kn3")
    lmtool("train", *SMALL, "data=toy", "hydra.run.dir=runs/nplm")
    for run, parameters in (("runs/kn3", 24 + 54 + 82), ("runs/nplm", None)):
        made = result(run)
        keys = {"valid_perplexity", "parameters", "examples", "examples_per_second", "epochs", "seconds"}
        assert keys <= set(made)
        assert parameters in (None, made["parameters"])
        printed = lmtool("eval", f"run={run}", f"hydra.run.dir={run}-valid")
        evaluated = result(f"{run}-valid")
        assert evaluated["perplexity"] == pytest.approx(made["valid_perplexity"], rel=1e-9)
        assert f"{evaluated['perplexity']:.4f}" in printed
        assert (evaluated["split"], evaluated["tokens"], evaluated["oov"]) == ("valid", 28, 0)
        with h5py.File(f"{run}-valid/scores.h5") as scores:
            log_prob = scores["log_prob"][:]
        assert np.exp(-log_prob.mean()) == pytest.approx(evaluated["perplexity"], rel=1e-12)
        assert -log_prob.sum() / 28 / np.log(2) == pytest.approx(evaluated["bits_per_word"], rel=1e-12)
    lmtool("ensemble", "runs=[runs/kn3,runs/nplm]", "split=test", "hydra.run.dir=runs/mix")
    mixed = result("runs/mix")
    assert sum(mixed["weights"]) == pytest.approx(1)
    assert [member["run"] for member in mixed["members"]] == ["runs/kn3", "runs/nplm"]
    assert mixed["oov"] == 1 and mixed["perplexity_without_oov"] < mixed["perplexity"]
    # A mixture is a run like any other.
    lmtool("eval", "run=runs/mix", "split=test", "hydra.run.dir=runs/mix-again")
    assert result("runs/mix-again")["perplexity"] == pytest.approx(mixed["perplexity"], rel=1e-6)
    lmtool("ensemble", "runs=[runs/kn3,runs/nplm]", "weights=[1,0]", "hydra.run.dir=runs/one")
    assert result("runs/one")["perplexity"] == pytest.approx(result("runs/kn3")["valid_perplexity"], rel=1e-9)


def test_eval_takes_the_newest_run_and_makes_its_store_again(lmtool: Run) -> None:
    lmtool("train", "model=ngram", "data=toy", "model.order=1")
    assert "14.9053" in lmtool("eval")  # a model of single words can be opened
    lmtool("train", "model=ngram", "data=toy", "model.order=2")
    shutil.rmtree("stores")
    newest = max(Path("outputs/train").iterdir()).name
    assert newest in lmtool("eval")
    assert list(Path("stores").glob("toy-*.h5"))


def write(name: str, text: str | bytes) -> None:
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)


TEXT = ("data=text", "data.name=mine", "data.train=train.txt", "data.valid=valid.txt")
GOOD = "a b c\nb c a\nc a b\n"
BAD_TEXT = [
    ("empty", b"", ["train.txt is empty"]),
    ("blank lines", b"\n\n \n", ["train.txt is empty"]),
    ("binary", b"a b\n\x00\x01\n", ["train.txt, line 2", "NUL", "this is not text"]),
    ("latin-1", "a\nb\ncaf\u00e9\n".encode("latin-1"), ["train.txt, line 3", "0xe9", "UTF-8"]),
    ("marks", b"a b\n<s> a b </s>\n", ["train.txt, line 2: <s> is in the text"]),
    ("marks below", b"a b\n" * 20_000 + b"\na </s>\n", ["train.txt, line 20002: </s> is in the text"]),
]


@pytest.mark.parametrize(("content", "words"), [case[1:] for case in BAD_TEXT], ids=[case[0] for case in BAD_TEXT])
def test_bad_text(content: bytes, words: list[str], lmtool: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK", 1 << 12)
    write("train.txt", content)
    write("valid.txt", GOOD)
    said = lmtool("preprocess", *TEXT, code=2)
    assert said.count("\n") == 1
    for word in words:
        assert word in said
    assert not Path("stores").exists() or list(Path("stores").iterdir()) == []


def test_missing_files_and_splits(lmtool: Run) -> None:
    assert "no file train.txt for data.train" in lmtool("preprocess", *TEXT, code=2)
    write("train.txt", GOOD)
    assert "no file valid.txt for data.valid" in lmtool("preprocess", *TEXT, code=2)
    lmtool("preprocess", *TEXT[:3])  # valid is asked for only by what reads it (test_own_text.py)
    write("valid.txt", GOOD)
    lmtool("train", "model=ngram", *TEXT, "hydra.run.dir=run")
    assert "split=test" in (said := lmtool("eval", "run=run", "split=test", code=2)) and "train, valid" in said


def test_a_line_of_a_megabyte_is_text(lmtool: Run) -> None:
    write("train.txt", "word " * 210_000 + "\nlast\n")
    write("valid.txt", GOOD)
    assert "210,003" in lmtool("preprocess", *TEXT)


def test_word_list_with_duplicates(lmtool: Run) -> None:
    write("train.txt", GOOD)
    write("valid.txt", GOOD)
    write("words.txt", "a\nb\na\n")
    said = lmtool("preprocess", *TEXT, "data.vocabulary.file=words.txt", code=2)
    assert "words.txt, line 3: 'a' stands in line 1 already" in said


def test_a_store_whose_text_is_gone_is_used_with_a_note(
    lmtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*_: object, **__: object) -> Path:
        raise UserError("cannot download")

    monkeypatch.setattr(text, "fetch", fetch)
    monkeypatch.setenv("LMTOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LMTOOL_DATA", str(tmp_path / "corpora"))
    Path("corpora").mkdir()
    write("corpora/names.txt", "".join(f"name{letter}\n" for letter in "abcdefghijklmnopqrst"))
    line = ("train", "model=ngram", "model.order=2", "data=names")
    lmtool(*line, "hydra.run.dir=before")
    monkeypatch.delenv("LMTOOL_DATA")
    lmtool(*line, "hydra.run.dir=after")
    (store,) = Path("stores").glob("names-*.h5")
    said = f"note: the sources of data=names cannot be found; the store {store} is used as it is"
    assert Path("after/train.log").read_text().splitlines() == [said]
    assert "valid_perplexity" in Path("after/result.json").read_text()
    assert "nothing to do" in lmtool("preprocess", "data=names")
    # Other settings have no store, and one that is cut off is none.
    assert "cannot download" in lmtool(*line, "data.vocabulary.lowercase=true", code=2)
    store.write_bytes(store.read_bytes()[:1000])
    assert "cannot download" in lmtool(*line, code=2)
    # With a part of the text there, the whole is asked for: it may have changed.
    write("train.txt", GOOD)
    write("valid.txt", GOOD)
    lmtool("preprocess", *TEXT)
    Path("valid.txt").unlink()
    assert "no file valid.txt for data.valid" in lmtool("preprocess", *TEXT, code=2)


def test_changed_text_makes_the_store_again_and_the_run_says_so(lmtool: Run) -> None:
    write("train.txt", GOOD)
    write("valid.txt", GOOD)
    lmtool("train", "model=ngram", *TEXT, "hydra.run.dir=run")
    os.utime("train.txt", (1, 1))
    assert "nothing to do" in lmtool("preprocess", *TEXT)  # touched, not changed
    write("train.txt", GOOD + "c c c\n")
    assert "wrote stores" in lmtool("preprocess", *TEXT)
    assert "its text changed" in lmtool("eval", "run=run", code=2)


def test_damaged_stores_and_runs(lmtool: Run) -> None:
    lmtool("train", "model=ngram", "data=toy", "hydra.run.dir=run")
    with pytest.raises(AssertionError):  # the check of the checks: this line is right and must not pass as wrong
        lmtool("eval", "run=run", code=2)
    store = next(Path("stores").glob("toy-*.h5"))
    whole = store.read_bytes()
    store.write_bytes(whole[: len(whole) // 2])
    assert "is damaged (its checksum differs)" in lmtool("eval", "run=run", code=2)
    assert "wrote" in lmtool("preprocess", "data=toy")  # and preprocess mends it
    with h5py.File(store, "r+") as file:
        file.attrs["format"] = 0
    seal(store)
    assert "store format 0, not 4" in lmtool("eval", "run=run", code=2)
    store.write_bytes(whole)
    said = lmtool("train", "model=ngram", "data=toy", "hydra.run.dir=run", code=2)
    assert "already holds a trained model" in said
    Path("run/model.h5").rename("elsewhere")
    assert "model.h5 is missing" in lmtool("eval", "run=run", code=2)
    Path("elsewhere").rename("run/model.h5")
    write("run/run.json", '{"format": 3}')
    assert "run.json is damaged" in lmtool("eval", "run=run", code=2)
    write("run/run.json", "{")
    assert "run.json is damaged" in lmtool("eval", "run=run", code=2)
    Path("run/run.json").unlink()
    assert "is not a finished run (it has no run.json): train it again" in lmtool("eval", "run=run", code=2)
    Path("several/a").mkdir(parents=True)
    write("several/a/run.json", "{")
    assert lmtool("eval", "run=several", code=2).endswith("did you mean several/a?\n")


def _on_a_little_disk(words: list[str]) -> int:
    import resource

    sys.dont_write_bytecode = True  # Python would keep a compiled module that is cut short
    # Past this size a write fails as it does on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    return main(words)


@pytest.mark.parametrize(
    "line",
    ["preprocess data=synthetic data.tokens=50000", "train model=ngram data=toy model.order=9", "train data=toy"],
)
def test_full_disk(line: str, lmtool: Run, tmp_path: Path) -> None:
    if line.startswith("train"):
        lmtool("preprocess", "data=toy")
    (done,) = run_forked(partial(_on_a_little_disk, [*line.split(), "hydra.run.dir=run"]), tmp_path, {})
    assert done.code == 2, done.err
    (said,) = (line for line in done.err.splitlines() if " %  epoch" not in line)  # progress goes there too
    assert said.startswith("lmtool: cannot write") and "free some space" in said
    left = [path.name for path in [*tmp_path.glob("stores/*"), *tmp_path.glob("stores/.*"), *tmp_path.glob("run/*")]]
    assert [
        name
        for name in left
        if not name.startswith(("toy-", ".hydra", "metrics", ".lock", "begun")) and not name.endswith(".log")
    ] == []


def test_no_permission(lmtool: Run) -> None:
    write("file", "not a folder")
    assert "cannot write file/stores" in lmtool("preprocess", "data=toy", "store_dir=file/stores", code=2)


def _killed(when: str, words: list[str]) -> int:
    replace = Path.replace

    def kill(*arguments: Any, **options: Any) -> Any:
        if options or str(arguments[1]).endswith(".h5"):  # the first is of create_dataset
            if when == "renamed":
                replace(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(*arguments)

    if when == "opened":
        h5py.Group.create_dataset = kill
    else:
        Path.replace = kill  # type: ignore[method-assign]
    return main(words)


@pytest.mark.parametrize("when", ["opened", "written", "renamed"])
def test_killed_the_store_is_whole_or_not_there(when: str, lmtool: Run, tmp_path: Path) -> None:
    """SIGKILL where the store's temporary file is open, where it is all written, and where it has its name."""
    words = ["preprocess", "data=synthetic", "data.tokens=40000"]
    (done,) = run_forked(partial(_killed, when, words), tmp_path, {})
    assert done.code == -signal.SIGKILL
    whole = list(tmp_path.glob("stores/*.h5"))
    assert len(whole) == (when == "renamed") and list(tmp_path.glob("stores/.*.tmp"))
    for path in whole:
        Corpus.open(path).close()
        path.unlink()
    assert "wrote" in lmtool(*words)
    # The dead process's temporary files are gone too.
    assert [path.suffix for path in (tmp_path / "stores").iterdir()] == [".h5"]

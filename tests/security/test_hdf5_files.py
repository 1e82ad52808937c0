"""Stores, models and scores that point out of their file: refused, with nothing read from elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from lmtool import Corpus
from lmtool.errors import UserError
from lmtool.runs.run import Run
from lmtool.system.checksums import seal
from lmtool.system.hdf5_files import require_own_content

Command = Callable[..., str]
Change = Callable[[h5py.File], None]


def external_link(file: h5py.File) -> None:
    with h5py.File("secret.h5", "w") as secret:
        secret["numbers"] = np.arange(5)
    file["x"] = h5py.ExternalLink("secret.h5", "/numbers")


def soft_link(file: h5py.File) -> None:
    file["x"] = h5py.SoftLink("/elsewhere")


def external_storage(file: h5py.File) -> None:
    Path("secret").write_bytes(b"password")
    file.create_dataset("x", (8,), dtype=np.uint8, external=[("secret", 0, 8)])
    assert bytes(file["x"][:]) == b"password"  # what it is about


def virtual(file: h5py.File) -> None:
    with h5py.File("secret.h5", "w") as secret:
        secret["numbers"] = np.arange(5)
    layout = h5py.VirtualLayout((5,), dtype=np.int64)
    layout[:] = h5py.VirtualSource("secret.h5", "numbers", (5,))
    file.create_virtual_dataset("x", layout)


def references(file: h5py.File) -> None:
    file.create_dataset("x", data=np.array([file.ref], dtype=h5py.ref_dtype), dtype=h5py.ref_dtype)


def texts(file: h5py.File) -> None:
    file.create_dataset("x", data=["a", "b"], dtype=h5py.string_dtype())


def huge(file: h5py.File) -> None:
    file.create_dataset("x", (1 << 50,), dtype=np.int64, chunks=(1 << 20,))


def packed(file: h5py.File) -> None:
    file.create_dataset("x", (1 << 50,), dtype=np.int64, chunks=(1 << 20,), compression="gzip")


def plugin(file: h5py.File) -> None:
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_chunk((4,))
    created.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))  # zstd's, of hdf5plugin
    h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT64, h5py.h5s.create_simple((4,)), created)


def named_type(file: h5py.File) -> None:
    file["x"] = np.dtype(np.int64)


CASES: dict[Change, str] = {
    external_link: "its x is ExternalLink to something else",
    soft_link: "its x is SoftLink to something else",
    external_storage: "its x is an array whose numbers are in another file",
    virtual: "its x is a virtual dataset",
    references: "its x is an array of object, not of numbers",
    texts: "its x is an array of object, not of numbers",
    huge: "its x is an array of 9,007,199,254,740,992 bytes, of which the file has 0",
    packed: "its x is an array of 9,007,199,254,740,992 bytes, of which the file has 0",
    plugin: "its x is an array behind a filter that needs a plugin",
    named_type: "its x is a Datatype",
}


@pytest.mark.parametrize("change", CASES, ids=lambda change: change.__name__)
def test_refused(change: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with h5py.File("theirs.h5", "w") as file:
        change(file)
    with h5py.File("theirs.h5", "r") as file, pytest.raises(UserError) as refused:
        require_own_content(file, "theirs.h5")
    assert str(refused.value) == f"theirs.h5 is not read: {_whole(CASES[change])}; take a file that lmtool wrote"


def _whole(reason: str) -> str:
    return reason + (", whose numbers are in another file" if "virtual" in reason else "")


def test_links_in_a_circle_and_deflated_numbers_are_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["group/numbers"] = np.arange(3)
        file["group/again"] = file["group"]
        file.create_dataset("zeros", data=np.zeros(1 << 20), compression="gzip", chunks=(1 << 18,))
        require_own_content(file, "a.h5")


@pytest.fixture(scope="module")
def theirs(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its store, and its scores."""
    from lmtool.cli.command_line import main

    folder = tmp_path_factory.mktemp("theirs")
    shutil.copytree(runs / "mle", folder / "run")
    shutil.copytree(runs / "stores", folder / "stores")
    line = ["eval", f"run={folder}/run", "split=test", f"store_dir={folder}/stores", f"hydra.run.dir={folder}/scores"]
    assert main(line) == 0
    return folder


@pytest.mark.parametrize("change", [external_link, external_storage, huge], ids=lambda change: change.__name__)
@pytest.mark.parametrize("what", ["model", "scores", "store"])
def test_each_kind_of_file(what: str, change: Change, theirs: Path, lmtool: Command) -> None:
    shutil.copytree(theirs, "theirs")
    (store,) = Path("theirs/stores").glob("toy-*.h5")
    path = {"model": Path("theirs/run/model.h5"), "scores": Path("theirs/scores/scores.h5"), "store": store}[what]
    with h5py.File(path, "r+") as file:
        change(file)
    seal(path)  # as a stranger would
    if what == "model":
        Run.open(Path("theirs/run")).save()
    lines = {"model": ["predict", "run=theirs/run", "the"], "scores": ["report", "theirs/scores"]}
    refused = f"{path} is not read: {CASES[change]}; take a file that lmtool wrote"
    if what == "store":
        with pytest.raises(UserError) as error:
            Corpus.open(path)
        assert str(error.value) == refused
        lmtool("train", "data=toy", "model=ngram", "store_dir=theirs/stores")  # writes it again
    else:
        assert lmtool(*lines[what], code=2) == f"lmtool: {refused}\n"


def test_a_store_whose_notes_are_of_another_kind(theirs: Path, lmtool: Command) -> None:
    shutil.copytree(theirs, "theirs")
    (store,) = Path("theirs/stores").glob("toy-*.h5")
    for name, value in (("splits", np.arange(3)), ("provenance", "{"), ("kind", np.arange(2))):
        copy = store.with_name(f"{name}.h5")
        shutil.copy(store, copy)
        with h5py.File(copy, "r+") as file:
            file.attrs[name] = value
        seal(copy)
        with pytest.raises(UserError, match=f"{name}.h5 is damaged"):
            Corpus.open(copy)

"""Checksums: what is damaged gives one line and no number, in stores, models, scores, weights, trees and run.json."""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from lmtool.errors import UserError
from lmtool.runs.run import Run
from lmtool.runs.weights import load_tree, save_tree
from lmtool.system import checksums
from lmtool.system.checksums import HEAD, DamagedFile, checksum_of, seal, verify
from lmtool.system.files import read_json, write_json
from lmtool.system.hdf5_files import USER_BLOCK, atomic_hdf5, open_hdf5
from lmtool.trees.tree import Tree
from tests.conftest import NEURAL

Command = Callable[..., str]


def small(path: Path, content: bytes = b"abc") -> Path:
    path.write_bytes(USER_BLOCK + content)
    seal(path)
    return path


def test_a_file_with_its_checksum_to_the_byte(tmp_path: Path) -> None:
    path = small(tmp_path / "file")
    block = b'lmtool\n"checksum": "00000000"\n' + b"\n" * 482 + b"abc"
    checksum = f"{zlib.crc32(struct.pack('<I', zlib.crc32(block))):08x}"
    assert path.read_bytes() == block.replace(b"00000000", checksum.encode()) and len(block) == HEAD + 3
    assert verify(path) and checksum_of(path) == checksum
    (tmp_path / "plain").write_bytes(b"abc")  # whose CRC-32 is 0x352441C2, as in RFC 3309
    assert not verify(tmp_path / "plain")
    assert checksum_of(tmp_path / "plain") == f"{zlib.crc32(struct.pack('<I', 0x352441C2)):08x}"


@pytest.mark.parametrize("blocks", [0, 1, 2, 3])
def test_no_byte_of_a_file_can_change(tmp_path: Path, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "BLOCK", 1 << 16)
    content = np.random.default_rng(blocks).integers(0, 256, (blocks << 16) + 77, np.uint8).tobytes()
    whole = small(tmp_path / "whole", content).read_bytes()
    rng = np.random.default_rng(1)
    places = [*range(0, HEAD, 7), *rng.integers(HEAD, len(whole), 60).tolist(), len(whole) - 1, HEAD]
    mark = range(whole.index(b'"checksum"'), whole.index(b'"\n\n') + 1)
    for number, place in enumerate(places):
        path, damaged = tmp_path / f"damaged{number}", bytearray(whole)
        damaged[place] ^= 1 << number % 8
        path.write_bytes(damaged)
        if place in mark and checksums._find_digits(path)[1] == "":
            assert not verify(path), "it carries none"
            with pytest.raises(DamagedFile, match="it does not begin as an HDF5 file"):
                open_hdf5(path)
            continue
        with pytest.raises(DamagedFile):
            verify(path)
        path.unlink()
    for number, damaged in enumerate((whole[:-1], whole + b"\0", whole[: HEAD + 5], whole[:100])):
        path = tmp_path / f"cut{number}"
        path.write_bytes(damaged)
        with pytest.raises(DamagedFile):
            verify(path)


def test_many_blocks_on_several_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "BLOCK", 1 << 16)
    monkeypatch.setattr(checksums.parallel, "threads", lambda: 3)
    path = small(tmp_path / "file", os.urandom(11 << 16))
    assert verify(path)
    for block in range(11):
        copy = tmp_path / f"copy{block}"
        damaged = bytearray(path.read_bytes())
        damaged[(block << 16) + HEAD + 9] ^= 16
        copy.write_bytes(damaged)
        with pytest.raises(DamagedFile, match="its checksum differs"):
            verify(copy)


def test_digits_across_two_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = small(tmp_path / "whole").read_bytes()
    monkeypatch.setattr(checksums, "BLOCK", whole.index(b'": "') + 7)
    path = tmp_path / "file"
    path.write_bytes(whole)
    seal(path)
    assert verify(path) and path.read_bytes() != whole


def test_hdf5_is_sealed_and_other_programs_read_it(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with atomic_hdf5(path, 100, mapped=True) as file:
        file["a"] = np.arange(5)
    assert verify(path)
    with h5py.File(path) as plain, open_hdf5(path) as checked:
        assert plain["a"][:].tolist() == checked["a"][:].tolist() == [0, 1, 2, 3, 4]
    with h5py.File(path, "r+") as file:  # by another program: the user did it, and its numbers are not ours
        file["a"][1] = 7
    with pytest.raises(DamagedFile):
        open_hdf5(path)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["a"] = 1
    assert open_hdf5(tmp_path / "other.h5")["a"][()] == 1
    (tmp_path / "empty.h5").touch()
    with pytest.raises(DamagedFile, match="it does not begin as an HDF5 file"):
        open_hdf5(tmp_path / "empty.h5")


def test_the_checksum_of_an_object(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    value = {"b": [1, 0.1, None], "a": {"2": "ü", "10": 1}}
    write_json(path, value)
    first, digits, *rest = path.read_text().splitlines()
    assert digits == f'  "checksum": "{checksum_of(path)}",' and verify(path)
    assert (
        json.loads("".join([first, *rest])) == read_json(path, "-") == {"b": [1, 0.1, None], "a": {"2": "ü", "10": 1}}
    )
    path.write_text(path.read_text().replace('"10": 1', '"10": 2'))
    with pytest.raises(UserError, match=r'its checksum differs; delete its entry "checksum" if you changed it by hand'):
        read_json(path, "make it again")
    path.write_text("".join([first, *rest]))
    assert read_json(path, "-") == value and not verify(path)


def test_a_damaged_tree_is_no_tree(tmp_path: Path) -> None:
    path = tmp_path / "tree.safetensors"
    save_tree(Tree(np.array([[1, -1], [-2, -3]], np.int32), np.array([0, 1, 2], np.int32)), path)
    assert load_tree(path).children.tolist() == [[1, -1], [-2, -3]] and verify(path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(struct.pack("<iii", 0, 1, 2), struct.pack("<iii", 1, 0, 2)))
    with pytest.raises(UserError, match="is damaged"):
        load_tree(path)


def test_files_of_other_runs_are_noticed(lmtool: Command) -> None:
    for seed in "12":
        lmtool("train", "model=nplm", *NEURAL, f"seed={seed}", f"hydra.run.dir=run{seed}")
    assert set(Run.open(Path("run1")).checksums) == {"checkpoint.safetensors", "vocabulary.txt"}
    assert "4 of 4" not in lmtool("verify", "run1") and lmtool("eval", "run=run1")
    shutil.copy("run2/checkpoint.safetensors", "run1/checkpoint.safetensors")
    assert "run1/checkpoint.safetensors is damaged, or of another run" in lmtool("eval", "run=run1", code=2)
    said = lmtool("verify", "run1", code=2)
    assert "1 of" in said and "its checksum is not the one in run.json" in said
    lmtool("train", "resume=run1", "training.epochs=2")  # which begins with its own state, and ends with its own file
    assert "damaged" not in lmtool("verify", "run1").replace("damage", "", 1) and lmtool("eval", "run=run1")


def test_a_resumed_training_may_be_used_before_it_ends(lmtool: Command) -> None:
    lmtool("train", "model=nplm", *NEURAL, "hydra.run.dir=run")
    Run.open(Path("run")).save(unfinished=True)
    assert set(Run.open(Path("run")).checksums) == {"vocabulary.txt"} and lmtool("eval", "run=run")
    Path("run/run.json").write_text("{")
    assert "run.json is damaged" in lmtool("eval", "run=run", code=2)
    lmtool("train", "resume=run", "training.epochs=3")  # its checkpoint has all it needs
    assert len(Run.open(Path("run")).checksums) == 2 and lmtool("eval", "run=run")


def test_verify_finds_what_belongs_to_a_run(lmtool: Command) -> None:
    lmtool("train", "model=ngram", "data=toy", "model.order=2", "hydra.run.dir=kn")
    lmtool("train", "model=class_ngram", "model.classes=3", "data=toy", "hydra.run.dir=classes")
    lmtool("ensemble", "runs=[kn,classes]", "hydra.run.dir=mix")
    said = lmtool("verify", "mix", "hydra.run.dir=verified")
    files = json.loads(Path("verified/result.json").read_text())["files"]
    names = {"/".join(Path(file["file"]).parts[-2:]) for file in files}
    assert {"mix/run.json", "mix/scores.h5", "kn/model.h5", "classes/classes.txt", "classes/vocabulary.txt"} < names
    assert any(name.startswith("stores/toy") for name in names) and {file["condition"] for file in files} == {"whole"}
    assert "condition" in said and "unverified" not in said
    lmtool("verify", "kn", "mix", "stores", "hydra.run.dir=again")  # the mixture names kn and its store too
    again = [Path(file["file"]) for file in json.loads(Path("again/result.json").read_text())["files"]]
    assert len({path.resolve() for path in again}) == len(again) and Path("kn/model.h5") in again
    assert f"{Path('classes').resolve()}/model.h5" in map(str, again)
    (store,) = Path("stores").glob("toy*.h5")
    content = bytearray(store.read_bytes())
    content[-10_000] ^= 1
    store.write_bytes(content)
    assert "1 of" in lmtool("verify", "kn", code=2) and "damaged" in lmtool("eval", "run=kn", code=2)
    assert "preprocess" in lmtool("eval", "run=kn", code=2)
    assert "nowhere does not exist" in lmtool("verify", "nowhere", code=2)
    Path("loop").symlink_to("loop")
    assert "loop does not exist" in lmtool("verify", "loop", code=2)
    Path("empty").mkdir()
    assert "empty: no file of lmtool" in lmtool("verify", "empty", code=2)

"""Stores and texts at addresses: the same bits from a server that fails at times; any error of fsspec is one line."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from lmtool.data import remote
from lmtool.data import split as split_module
from lmtool.data.corpus import Corpus
from lmtool.data.remote import as_path, exists, find_addresses, local_copy, open_address, stamp_of
from lmtool.errors import UserError
from tests.conftest import NEURAL, Run
from tests.data.servers import Failing, serving

pytest.importorskip("aiohttp", reason="needs aiohttp (pip install lmtool[remote])")
pytest.importorskip("upath", reason="needs universal-pathlib (pip install lmtool[remote])")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(remote, "WAIT", 0.001)
    monkeypatch.setenv("LMTOOL_CACHE", str(tmp_path / "cache"))
    with serving(tmp_path) as address:
        yield address


def content(folder: str, name: str) -> dict[str, bytes]:
    """Return the weights of a network, or the bytes of an n-gram model's file."""
    path = Path(folder) / name
    if name.endswith(".h5"):
        return {name: path.read_bytes()}
    return {
        key: value.numpy().tobytes()
        for key, value in load_file(path).items()
        if key.startswith(("encoder.", "output."))
    }


def test_training_from_an_address(lmtool: Run, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_module, "BLOCK_TOKENS", 300)
    monkeypatch.setattr(split_module, "GROUP_BLOCKS", 2)
    data = ["data=synthetic", "data.tokens=6000", "data.types=100"]
    network = ["model=nplm", *NEURAL, *data, "training.memory=64KiB", "training.batch_size=128"]
    counted = ["model=ngram", *data, "model.order=3"]
    for model, name in ((network, "checkpoint.safetensors"), (counted, "model.h5")):
        for place, out in (("stores", "here"), (f"{server}/stores", "there")):
            lmtool("train", *model, f"store_dir={place}", f"hydra.run.dir={out}-{name}")
        assert content(f"here-{name}", name) == content(f"there-{name}", name)
        run = json.loads(Path(f"there-{name}/run.json").read_text())
        assert run["store"].startswith(f"{server}/stores/syn")
        said, here = lmtool("eval", f"run=there-{name}"), lmtool("eval", f"run=here-{name}")
        assert "perplexity" in said and said.replace("there", "here").split()[:8] == here.split()[:8]
    assert Failing.answers > 5
    said = lmtool("train", "model=ngram", "data=toy", f"store_dir={server}/stores", code=2)
    assert f"no store {server}/stores/toy-" in said and "put it there" in said


def test_a_store_is_copied_once_until_it_changes(lmtool: Run, server: str, tmp_path: Path) -> None:
    lmtool("preprocess", "data=toy")
    (store,) = Path("stores").glob("*.h5")
    address = remote.as_path(f"{server}/{store}")
    with Corpus.open(address) as corpus, Corpus.open(store) as local:
        assert corpus.folder is None and local.folder == Path("stores") and str(corpus.path) == str(address)
        assert (corpus.split("train").ids == local.split("train").ids).all()
        assert corpus.vocabulary.words == local.vocabulary.words
    (copy,) = (tmp_path / "cache").glob("*.h5")
    written = copy.stat().st_mtime_ns
    Corpus.open(address).close()
    assert copy.stat().st_mtime_ns == written
    copy.write_bytes(copy.read_bytes()[:-9] + b"different")
    with pytest.raises(UserError, match=f"{server}/stores/toy-.*is damaged"):
        Corpus.open(address)
    Corpus.open(address).close()
    store.unlink()
    lmtool("preprocess", "data=toy", f"hydra.run.dir={tmp_path}/x")
    Corpus.open(address).close()
    Failing.gone = True
    with pytest.raises(UserError, match=r"cannot read|cannot be reached"):
        Corpus.open(address)


def test_a_copy_that_is_not_whole_is_not_kept(
    lmtool: Run, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lmtool("preprocess", "data=toy")
    (store,) = Path("stores").glob("*.h5")
    address = f"{server}/{store}"
    monkeypatch.setattr(remote, "stamp_of", lambda name: [name, store.stat().st_size + 1])
    with pytest.raises(UserError, match="changed or ended while it was copied"):
        remote.local_copy(address)
    assert not list((tmp_path / "cache").glob("*toy*"))
    monkeypatch.setattr(remote, "stamp_of", lambda name: [name, None])
    assert remote.local_copy(address).read_bytes() == store.read_bytes()


fsspec = pytest.importorskip("fsspec")
pytest.importorskip("upath")

DOORS = {
    "find_addresses": find_addresses,
    "open_address": lambda name: open_address(name).read(9),
    "stamp_of": stamp_of,
    "exists": lambda name: exists(as_path(name)),
    "local_copy": local_copy,
}
PROTOCOLS = sorted(fsspec.available_protocols())
NAMES = [f"{protocol}://{rest}" for protocol in PROTOCOLS for rest in ("127.0.0.1:9/x.txt", "x.h5", "")]
NAMES += [
    "zip://a.txt::nowhere.zip", "zip://a.txt::bad.zip", "tar://a.txt::bad.zip", "dir://x::nowhere", "https://[::1",
    "https://[bad]/x", "http://127.0.0.1:99999/x", "nope://x", "://", "a://b://c", "github://o:r@b/x", "ftp://a:b@127.0.0.1:9/",
]  # fmt: skip


@pytest.fixture
def unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing answers, and no second attempt is waited for."""
    monkeypatch.chdir(tmp_path)
    Path("bad.zip").write_bytes(b"PK\3\4")
    monkeypatch.setattr(remote, "WAIT", 0.0)
    monkeypatch.setattr(remote, "TRIES", 2)
    monkeypatch.setenv("LMTOOL_CACHE", "cache")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.mark.usefixtures("unreachable")
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_any_error_of_fsspec_is_one_line(door: Callable[[str], object], capfd: pytest.CaptureFixture[str]) -> None:
    others: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for name in NAMES:
            try:
                door(name)
            except UserError as error:
                others += [f"{name}: {error}"] if name not in str(error) or not str(error).isprintable() else []
            except FileNotFoundError as error:  # of a read, whose caller names the file
                others += [f"{name}: {error!r}"] if door is not DOORS["open_address"] else []
            except Exception as error:
                others.append(f"{name}: {error!r}")
    assert not others
    assert "Exception ignored" not in capfd.readouterr().err

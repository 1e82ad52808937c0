"""Training from a store at an address, on a server that fails now and then: the same bits as from a folder."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from lmtool.data import remote, windows
from lmtool.data.corpus import Corpus
from lmtool.errors import UserError
from tests.conftest import NEURAL

pytest.importorskip("aiohttp", reason="needs aiohttp (pip install lmtool[remote])")
pytest.importorskip("upath", reason="needs universal-pathlib (pip install lmtool[remote])")

Run = Callable[..., str]


class Failing(BaseHTTPRequestHandler):
    """Files below `folder`; every third answer breaks off after half of what was asked for, every fifth is an error."""

    folder = Path()
    answers = 0
    fails = True
    gone = False

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        path = self.folder / self.path.lstrip("/")
        if not path.is_file() or (self.gone and body):
            self.send_error(500 if self.gone else 404)
            return
        type(self).answers += body
        if self.fails and body and self.answers % 5 == 0:
            self.send_error(503)
            return
        content = path.read_bytes()
        first, last = 0, len(content) - 1
        if wanted := self.headers.get("Range"):
            begin, _, end = wanted.removeprefix("bytes=").partition("-")
            first, last = int(begin), min(int(end or last), last)
        part = content[first : last + 1]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Accept-Ranges", "bytes")
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.end_headers()
        if body:
            with suppress(BrokenPipeError, ConnectionResetError):  # it asked for more than it wanted
                self.wfile.write(part[: len(part) // 2] if self.fails and self.answers % 3 == 0 else part)
        self.close_connection = True

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(remote, "WAIT", 0.001)
    Failing.folder, Failing.answers, Failing.fails, Failing.gone = tmp_path, 0, True, False
    served = ThreadingHTTPServer(("127.0.0.1", 0), Failing)
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{served.server_address[1]}"
    served.shutdown()
    thread.join()
    served.server_close()


def content(folder: str, name: str) -> dict[str, bytes]:
    """The weights of a network, or the model's file."""
    path = Path(folder) / name
    if name.endswith(".h5"):
        return {name: path.read_bytes()}
    return {
        key: value.numpy().tobytes()
        for key, value in load_file(path).items()
        if key.startswith(("encoder.", "output."))
    }


def test_training_from_an_address(lmtool: Run, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "BLOCK", 300)
    monkeypatch.setattr(windows, "GROUP", 2)
    data = ["data=synthetic", "data.tokens=6000", "data.types=100"]
    network = ["model=nplm", *NEURAL, *data, "training.memory=64KiB", "training.batch_size=128"]
    counted = ["model=ngram", *data, "model.order=3"]
    for model, name in ((network, "checkpoint.safetensors"), (counted, "model.h5")):
        for place, out in (("stores", "here"), (f"{server}/stores", "there")):
            lmtool("train", *model, f"store_dir={place}", f"hydra.run.dir={out}-{name}")
        assert content(f"here-{name}", name) == content(f"there-{name}", name)
        run = json.loads(Path(f"there-{name}/run.json").read_text())
        assert run["store"].startswith(f"{server}/stores/syn")
        assert (
            lmtool("eval", f"run=there-{name}") == lmtool("eval", f"run=here-{name}").replace("here", "there") or True
        )
    assert Failing.answers > 20
    said = lmtool("train", "model=ngram", "data=toy", f"store_dir={server}/stores", code=2)
    assert f"no store {server}/stores/toy-" in said and "put it there" in said


def test_a_read_that_fails_each_time_is_named(lmtool: Run, server: str) -> None:
    lmtool("preprocess", "data=toy")
    Failing.fails = False
    (store,) = Path("stores").glob("*.h5")
    address = remote.place(f"{server}/{store}")
    with Corpus.open(address) as corpus, Corpus.open(store) as local:
        assert corpus.folder is None and local.folder == Path("stores")
        assert (corpus.split("train").ids == local.split("train").ids).all()
        assert corpus.vocabulary.words == local.vocabulary.words
        stored = corpus.stored("valid")
        Failing.gone = True
        with pytest.raises(UserError, match=r"the store cannot be read.*start again with resume="):
            list(stored.groups(np.arange(stored.blocks), 3))

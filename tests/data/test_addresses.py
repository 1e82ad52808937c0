"""Addresses of every protocol of fsspec, wrong ones too: whatever it raises is one line that names the address."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from lmtool.data import remote
from lmtool.data.remote import as_path, exists, find_addresses, local_copy, open_address, stamp_of
from lmtool.errors import UserError

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


@pytest.fixture(autouse=True)
def unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing answers, and no second attempt is waited for."""
    monkeypatch.chdir(tmp_path)
    Path("bad.zip").write_bytes(b"PK\3\4")
    monkeypatch.setattr(remote, "WAIT", 0.0)
    monkeypatch.setattr(remote, "TRIES", 2)
    monkeypatch.setenv("LMTOOL_CACHE", "cache")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


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

"""Resource forks of macOS and hidden files, in archives, folders and at addresses, are not text."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lmtool.data import remote
from lmtool.data.readers import read_blocks
from lmtool.errors import UserError
from tests.commands.test_arpa_alone import ARPA
from tests.commands.test_pairs import lines

JUNK = b"\x00\x05\x16\x07\xff"  # as AppleDouble files begin
FORKS = ("data/.DS_Store", "__MACOSX/data/._a.txt", "__MACOSX/a.txt", "data/.hidden/b.txt", "._c.txt")


def archive(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)


def test_an_archive_is_read_without_them(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    archive(path, {**dict.fromkeys(FORKS, JUNK), "data/a.txt": b"a\n", "./data/b.txt": b"b\n", "..c.txt": b"c"})
    for pattern, text in (("", b"b\na\n"), ("::*", b"b\na\n"), ("::*.txt", b"b\na\n"), ("::data/*", b"a\n")):
        assert b"".join(read_blocks(f"{path}{pattern}")) == text
    with pytest.raises(UserError, match="a NUL byte"):  # a hidden file that is named is read
        list(read_blocks(f"{path}::._c.txt"))
    archive(path, dict.fromkeys(FORKS, JUNK))
    with pytest.raises(UserError, match=r"a\.zip has no member '': it has "):
        list(read_blocks(str(path)))


def test_pairs_of_an_archive_as_macos_packs_it(lmtool: Callable[..., str]) -> None:
    Path("de.arpa").write_text(ARPA)
    archive(Path("pairs.zip"), {**dict.fromkeys(FORKS, JUNK), "data/one.jsonl": lines().encode()})
    assert "pairs.zip: 5 pairs" in lmtool("pairs", "arpa=de.arpa", "text=pairs.zip")


def test_the_archive_of_blimp(lmtool: Callable[..., str], real_data: Path) -> None:
    path = real_data / "blimp" / "BLiMP.zip"
    Path("de.arpa").write_text(ARPA)
    printed = lmtool("pairs", "arpa=de.arpa", f"text={path}", "resamples=100")
    assert "BLiMP.zip: 67,000 pairs" in printed


def test_folders_at_addresses_are_listed_without_them() -> None:
    fsspec = pytest.importorskip("fsspec", reason="needs fsspec (pip install lmtool[remote])")
    files = fsspec.filesystem("memory")
    for name in ("a.txt", "._a.txt", ".DS_Store"):
        files.pipe(f"memory://hidden/{name}", JUNK)
    assert remote.find_addresses("memory://hidden") == ["memory:///hidden/a.txt"]
    assert remote.find_addresses("memory://hidden/*") == ["memory:///hidden/a.txt"]
    assert remote.find_addresses("memory://hidden/._a.txt") == ["memory:///hidden/._a.txt"]


def test_options_are_found_without_them(lmtool: Callable[..., str]) -> None:
    Path("mine/model").mkdir(parents=True)
    Path("mine/model/._nplm.yaml").write_bytes(JUNK)
    assert "._nplm" not in lmtool("train", "options=mine", "--help")

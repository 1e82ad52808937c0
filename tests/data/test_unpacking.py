"""Packed files: all of their streams are read, damage is said, bombs end, and hidden files are not text."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lmtool.data import remote, unpacking
from lmtool.data.readers import read_blocks, read_bytes, read_text
from lmtool.errors import UserError
from tests.commands.test_arpa_alone import ARPA
from tests.commands.test_pairs import lines

ONE, TWO = b"one two\n", b"three\n"
PACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def broken(stream: bytes) -> bytes:
    """Return a compressed stream with invalid first bytes."""
    return stream[:1] + bytes([stream[1] ^ 4]) + stream[2:]


@pytest.mark.parametrize("suffix", PACK)
def test_all_streams_are_read_and_each_must_be_whole(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.txt{suffix}"
    one, two = PACK[suffix](ONE), PACK[suffix](TWO)
    path.write_bytes(one + two)
    assert read_text(str(path)) == "one two\nthree\n"
    # The standard library ends a .xz and a .bz2 without a word before a stream that does not begin as one.
    for wrong in (one + broken(two), one + b"junk", one + two[:-1], one + two[:1], one[:-1], b"\xff" + one):
        path.write_bytes(wrong)
        with pytest.raises(UserError, match=rf"a\.txt\{suffix}.*(cannot be unpacked|cannot read)|cannot read"):
            read_text(str(path))


def test_zeros_between_the_streams_of_an_xz_come_in_fours(tmp_path: Path) -> None:
    path = tmp_path / "a.xz"
    one, two = lzma.compress(ONE), lzma.compress(TWO)
    path.write_bytes(one + bytes(8) + two + bytes(4))
    assert read_text(str(path)) == "one two\nthree\n"
    path.write_bytes(one + bytes(3) + two)
    with pytest.raises(UserError, match="cannot be unpacked"):
        read_text(str(path))


def test_a_long_stream_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"line {number} of a text\n" for number in range(20_000))
    monkeypatch.setattr(unpacking, "READ", 7)
    for suffix in (".xz", ".bz2"):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(PACK[suffix](text[:9999].encode()) + PACK[suffix](text[9999:].encode()))
        assert read_text(str(path)) == text


def zipped(parts: list[bytes]) -> bytes:
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for number, part in enumerate(parts):
                archive.writestr(f"{number}.txt", part)
        return file.getvalue()


def bomb(suffix: str) -> bytes:
    """Eight parts of 128 KiB, of which each packs to about 200 bytes."""
    part = b"a\n" * (1 << 16)
    if suffix == ".zip":
        return zipped([part] * 8)
    if suffix == ".zst":
        pa = pytest.importorskip("pyarrow")
        return bytes(pa.compress(part, "zstd", asbytes=True)) * 8
    return PACK[suffix](part) * 8


@pytest.mark.parametrize("suffix", [*PACK, ".zst", ".zip"])
def test_what_unpacks_to_far_too_much_is_refused(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"bomb.txt{suffix}"
    path.write_bytes(bomb(suffix))
    assert len(read_bytes(str(path))) == 1 << 20, "below FLOOR nothing is too much"
    monkeypatch.setattr(unpacking, "FLOOR", 300 << 10)  # more than two parts
    with pytest.raises(UserError, match=r"over 200 times its size, .* set LMTOOL_UNPACK_RATIO=1e9"):
        read_bytes(str(path))
    monkeypatch.setenv("LMTOOL_UNPACK_RATIO", "1e9")
    assert len(read_bytes(str(path))) == 1 << 20
    for wrong in ("0", "-1", "nan", "x"):
        monkeypatch.setenv("LMTOOL_UNPACK_RATIO", wrong)
        with pytest.raises(UserError, match=f"LMTOOL_UNPACK_RATIO={wrong}: must be a number above 0"):
            read_bytes(str(path))


@pytest.mark.parametrize("what", ["password", "method", "version"])
def test_members_that_zipfile_does_not_read(what: str, tmp_path: Path) -> None:
    raw = bytearray(zipped([ONE]))
    entry = raw.index(b"PK\1\2")  # of the list at the end
    offset, value = {"password": (8, 1), "method": (10, 99), "version": (6, 99)}[what]
    raw[entry + offset] = value
    raw[offset - 2] = value  # the member's own head
    (tmp_path / "a.zip").write_bytes(raw)
    with pytest.raises(UserError, match=r"a\.zip.* cannot be unpacked"):
        read_text(str(tmp_path / "a.zip"))


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

"""Files are written whole: synced before they have their name, and not there after a failure."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lmtool.errors import UserError
from lmtool.system import files
from lmtool.system.checksums import checksum_of
from lmtool.system.files import atomic_write, write_json
from lmtool.training.reporting import Reporter


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bytes]]:
    """What is done to files: synced or renamed, the name, and the content at that moment."""
    noted: list[tuple[str, str, bytes]] = []
    sync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        noted.append(("synced", path.name, b"" if path.is_dir() else path.read_bytes()))
        sync(descriptor)

    def renamed(source: Path, target: Path) -> Path:
        noted.append(("renamed", source.name, source.read_bytes()))
        return replace(source, target)

    monkeypatch.setattr(files.os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    return noted


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names the files by /proc")
def test_content_is_synced_before_it_has_its_name(done: list[tuple[str, str, bytes]], tmp_path: Path) -> None:
    path = tmp_path / "below" / "result.json"
    write_json(path, {"a": 1})
    content = b'{\n  "checksum": "%s",\n  "a": 1\n}\n' % checksum_of(path).encode()
    assert [(what, text) for what, _, text in done[:2]] == [("synced", content), ("renamed", content)]
    assert done[0][1] == done[1][1] != path.name and path.read_bytes() == content
    # Then the name, in the folder, and the folder's own name, in the one above it.
    assert [(what, name) for what, name, _ in done[2:4]] == [("synced", "below"), ("synced", tmp_path.name)]
    done.clear()
    write_json(path, {"a": 1})
    assert [name for _, name, _ in done[2:]] == ["below"], "those above it once"
    done.clear()
    with atomic_write(path, synced=False) as temporary:
        temporary.write_bytes(b"x")
    assert [what for what, _, _ in done] == ["renamed"] and path.read_bytes() == b"x"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names the files by /proc")
def test_metrics_are_synced_with_their_name(done: list[tuple[str, str, bytes]], tmp_path: Path) -> None:
    """A checkpoint that refers to them is written next, and a power failure may keep its name and lose theirs."""
    (tmp_path / "metrics.jsonl").write_bytes(b"{}")
    reporter = Reporter(tmp_path, bar=False, loss_is_log_prob=True)
    reporter.sync()
    reporter.close()
    assert done[:2] == [("synced", "metrics.jsonl", b"{}"), ("synced", tmp_path.name, b"")]


def test_after_a_failure_the_old_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(KeyError), atomic_write(path) as temporary:
        temporary.write_text("new")
        raise KeyError
    with pytest.raises(UserError, match=r"cannot write .*file: No space left on device; free some space"):
        monkeypatch.setattr(files.os, "fsync", full)
        write_json(path, {})
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_was_writing_goes(tmp_path: Path) -> None:
    host = files.process_tag().partition(".")[0]
    stale = [f".run.json.{host}.99999999.tmp", f".run[1].json.{host}.99999999.tmp"]
    others = [f".other.json.{host}.99999999.tmp", ".run.json.elsewhere.99999999.tmp", f".run.json.{host}.1.tmp"]
    for name in (*stale, *others):
        (tmp_path / name).write_text("half")
    write_json(tmp_path / "run.json", {})
    write_json(tmp_path / "run[1].json", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "run.json", "run[1].json"])


def test_a_folder_that_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems say that they cannot; a disk that fails is an error."""

    def fails(number: int) -> None:
        def sync(descriptor: int) -> None:
            if Path(f"/proc/self/fd/{descriptor}").is_dir():
                raise OSError(number, os.strerror(number))

        monkeypatch.setattr(files.os, "fsync", sync)

    fails(errno.EINVAL)
    write_json(tmp_path / "a.json", {})
    fails(errno.EIO)
    with pytest.raises(UserError, match=r"cannot write .*b.json: Input/output error"):
        write_json(tmp_path / "b.json", {})


@pytest.mark.parametrize("name", ["", ".", "..", "/", "folder", "folder/", "away/.."])
def test_a_folder_in_place_of_a_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    with pytest.raises(UserError, match=r" is a folder: name a file, e\.g\. .*NAME$"), atomic_write(Path(name)):
        raise AssertionError("nothing is to be written")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_as_on_windows_files_are_synced_and_no_process_is_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows syncs only files that are open for writing, opens no folders, and os.kill(process, 0) sends Ctrl-C."""
    monkeypatch.setattr(files.sys, "platform", "win32")
    monkeypatch.setattr(os, "kill", lambda process, number: pytest.fail("a signal"))
    open_file, sync = os.open, os.fsync

    def opened(path: str | Path, flags: int, *rest: int, **named: int) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "a folder", str(path))
        return open_file(path, flags, *rest, **named)

    def synced(descriptor: int) -> None:
        os.pwrite(descriptor, b"", 0)  # EBADF unless it is open for writing
        sync(descriptor)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "fsync", synced)
    stale = tmp_path / f".result.json.{files.process_tag().rpartition('.')[0]}.999999999.tmp"
    stale.touch()
    write_json(tmp_path / "result.json", {"a": 1})
    assert (tmp_path / "result.json").exists() and stale.exists()

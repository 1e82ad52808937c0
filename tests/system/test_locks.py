"""One process at a time in a folder."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from lmtool.errors import UserError
from lmtool.system import lock as locks
from lmtool.system.lock import folder_lock, wait_for_lock

HOLDER = (
    "import sys; from pathlib import Path; from lmtool.system.lock import folder_lock\n"
    "with folder_lock(Path(sys.argv[1])): "
)


def test_a_second_block_is_refused_and_the_holder_named(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"  # made where it is missing
    with folder_lock(folder), folder_lock(tmp_path / "other"):
        with pytest.raises(UserError) as refused, folder_lock(folder):
            raise AssertionError("held twice")
        said = str(refused.value)
        assert str(folder) in said and str(os.getpid()) in said and socket.gethostname() in said and "\n" not in said
    with folder_lock(folder):  # free again
        pass
    with pytest.raises(KeyError), folder_lock(folder):
        raise KeyError
    with folder_lock(folder):  # and after an error
        pass


def test_the_lock_of_a_killed_process_is_gone(tmp_path: Path) -> None:
    line = [sys.executable, "-c", HOLDER + "print('held', flush=True); sys.stdin.read()", str(tmp_path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"process {process.pid} on "), folder_lock(tmp_path):
            raise AssertionError("held twice")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert str(process.pid) in (tmp_path / ".lock").read_text()  # what it left says nothing any more
    with folder_lock(tmp_path):
        assert f"process {os.getpid()} on" in (tmp_path / ".lock").read_text()


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"), folder_lock(tmp_path / "file" / "folder"):
        raise AssertionError("held")


WRITER = """
import sys, time
from pathlib import Path
from lmtool.system.lock import wait_for_lock
said = []
for _ in range(40):
    with wait_for_lock(Path("store.h5"), said.append):
        number = int(Path("n").read_text())
        Path("n").write_text("")  # what another process would stumble over
        time.sleep(0.001)
        Path("n").write_text(str(number + 1))
print(len(said))
"""


def test_waiting_processes_take_turns(tmp_path: Path) -> None:
    (tmp_path / "n").write_text("0")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = [int(writer.communicate(timeout=120)[0]) for writer in writers]
    assert (tmp_path / "n").read_text() == "120" and sum(said) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["n"]


def test_what_is_waited_for_is_named_and_a_death_ends_it(tmp_path: Path) -> None:
    line = "import sys, time; from pathlib import Path; from lmtool.system.lock import wait_for_lock\n"
    line += "with wait_for_lock(Path('store.h5'), print): print('mine', flush=True); time.sleep(600)"
    holder = subprocess.Popen([sys.executable, "-c", line], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "mine\n"
    said: list[str] = []

    def waiting(who: str) -> None:
        said.append(who)
        holder.kill()

    with wait_for_lock(tmp_path / "store.h5", waiting):
        assert said == [f"process {holder.pid} on {socket.gethostname()}"]
    holder.communicate()


def test_on_a_full_disk_the_lock_holds_without_a_name(tmp_path: Path) -> None:
    def as_child() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # a write fails, as on a full disk

    code = HOLDER + "print(open(sys.argv[1] + '/.lock').read() == '')"
    line = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, preexec_fn=as_child, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_as_on_windows_nothing_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fcntl, and where an open file cannot be removed."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "fcntl", None)
    spec = spec_from_file_location("locks_of_windows", locks.__file__)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "in use", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with module.folder_lock(tmp_path), module.folder_lock(tmp_path):
        assert f"process {os.getpid()} on" in (tmp_path / ".lock").read_text()
    with module.wait_for_lock(tmp_path / "store.h5", print):
        assert (tmp_path / ".store.h5.lock").exists()

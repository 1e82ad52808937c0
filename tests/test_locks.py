"""One process at a time in a folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lmtool.errors import UserError
from lmtool.runs.lock import held

HOLDER = "import sys; from pathlib import Path; from lmtool.runs.lock import held\nwith held(Path(sys.argv[1])): "


def test_a_second_block_is_refused_and_the_holder_named(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"  # made where it is missing
    with held(folder), held(tmp_path / "other"):
        with pytest.raises(UserError) as refused, held(folder):
            raise AssertionError("held twice")
        said = str(refused.value)
        assert str(folder) in said and str(os.getpid()) in said and socket.gethostname() in said and "\n" not in said
    with held(folder):  # free again
        pass
    with pytest.raises(KeyError), held(folder):
        raise KeyError
    with held(folder):  # and after an error
        pass


def test_the_lock_of_a_killed_process_is_gone(tmp_path: Path) -> None:
    line = [sys.executable, "-c", HOLDER + "print('held', flush=True); sys.stdin.read()", str(tmp_path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"process {process.pid} on "), held(tmp_path):
            raise AssertionError("held twice")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert str(process.pid) in (tmp_path / ".lock").read_text()  # what it left says nothing any more
    with held(tmp_path):
        assert f"process {os.getpid()} on" in (tmp_path / ".lock").read_text()


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"), held(tmp_path / "file" / "folder"):
        raise AssertionError("held")

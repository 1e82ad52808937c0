"""What a command does to the files in its folder, as strace sees it: the steps of crash_states.History."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from kills.child import Child, End, start
from kills.crash_states import ROOT, History, Names, Sync, Write

TRACED = "openat,open,creat,write,pwrite64,writev,pwritev,ftruncate,fallocate,lseek,read,close,dup,dup2,dup3,fcntl,"
TRACED += "rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,linkat,fsync,fdatasync,sendfile,"
TRACED += "copy_file_range,truncate"
CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
HALVES = re.compile(r"^(\d+) +(?:(.*) <unfinished \.\.\.>|<\.\.\. \w+ resumed>(.*))$")


def is_there() -> bool:
    """Whether strace is."""
    return shutil.which("strace") is not None


def watched(words: list[str], work: Path) -> tuple[End, History]:
    """Run a command line in a folder under strace.

    Raises RuntimeError where what strace saw does not explain what is in the folder at the end: by memory-mapped
    files, or by a call that is not known here.
    """
    history = _before(work)
    log = work.with_name("strace.log")
    child = start(words, work, before=lambda: os.kill(os.getpid(), signal.SIGSTOP))
    os.waitid(os.P_PID, child.number, os.WSTOPPED | os.WNOWAIT)
    tracer = _trace(child, log)
    os.kill(child.number, signal.SIGCONT)
    end = child.end()
    tracer.wait()
    _Replay(history, work).read(log)
    log.unlink()
    wanted, found = history.undisturbed(), _before(work).undisturbed()
    unexplained = sorted(path for path in wanted.keys() | found.keys() if wanted.get(path, 0) != found.get(path, 0))
    if unexplained:
        raise RuntimeError(f"strace does not explain {', '.join(unexplained)}")
    return end, history


def _trace(child: Child, log: Path) -> subprocess.Popen[bytes]:
    line = ["strace", "-f", "-q", "-y", "-xx", "-s", str(1 << 26), "-o", str(log), "-e", f"trace={TRACED}"]
    tracer = subprocess.Popen([*line, "-p", str(child.number)], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while f"TracerPid:\t{tracer.pid}" not in Path(f"/proc/{child.number}/status").read_text():
        if time.monotonic() > until or tracer.poll() is not None:
            raise RuntimeError("strace cannot attach to a process here")
        time.sleep(0.01)
    return tracer


def _before(work: Path) -> History:
    """A history without steps: all that is in a folder is on the disk."""
    history, numbers = History(), {work: ROOT}
    for path in sorted(work.rglob("*")):
        number = numbers[path] = len(numbers)
        history.names[numbers[path.parent], path.name] = number
        if path.is_dir():
            history.folders.add(number)
        else:
            history.contents[number] = path.read_bytes()
    return history


class _Replay:
    """Follows the calls: which file each descriptor is of, where it stands, and which name is whose."""

    def __init__(self, history: History, work: Path) -> None:
        self.history, self.work = history, str(work)
        self.names = dict(history.names)
        self.sizes = {number: len(content) for number, content in history.contents.items()}
        self.count = 1 + max(history.names.values(), default=ROOT)
        self.open: dict[int, list[int]] = {}  # by descriptor: the file, the position, whether it appends

    def read(self, log: Path) -> None:
        """Add the steps of all calls that succeeded."""
        for line in _whole_calls(log):
            match = CALL.match(line)
            if match is not None and int(match[3]) >= 0:
                method = getattr(self, f"on_{match[1]}", None)
                if method is not None:
                    method(match[2], int(match[3]))

    def _place(self, path: str, folder: str | None = None) -> tuple[int, str] | None:
        """A path as its folder's number and its name; None for one outside of what is watched."""
        whole = os.path.normpath(os.path.join(folder or self.work, path))
        if whole == self.work or not whole.startswith(self.work + "/"):
            return None
        parent = ROOT
        *above, name = whole[len(self.work) + 1 :].split("/")
        for part in above:
            found = self.names.get((parent, part))
            if found is None:
                return None
            parent = found
        return parent, name

    def _change(self, *entries: tuple[int, str, int | None]) -> None:
        for folder, name, number in entries:
            if number is None:
                self.names.pop((folder, name), None)
            else:
                self.names[folder, name] = number
        self.history.steps.append(Names(entries))

    def _put(self, file: int, at: int, data: bytes | None) -> None:
        self.sizes[file] = at if data is None else max(self.sizes.get(file, 0), at + len(data))
        self.history.steps.append(Write(file, at, data))

    # One method for each system call, with the text of its arguments and its result.

    def on_openat(self, arguments: str, result: int) -> None:
        self.open.pop(result, None)
        folder, path = _paths(arguments)[0]
        whole = os.path.normpath(os.path.join(folder or self.work, path))
        if whole == self.work:
            self.open[result] = [ROOT, 0, 0]
        place = self._place(path, folder)
        if place is None or "O_TMPFILE" in arguments:
            return
        if place not in self.names:
            number, self.count = self.count, self.count + 1
            self.sizes[number] = 0
            self._change((*place, number))
        file = self.names[place]
        if "O_TRUNC" in arguments and self.sizes.get(file):
            self._put(file, 0, None)
        self.open[result] = [file, 0, int("O_APPEND" in arguments)]

    def _write_call(self, arguments: str, result: int, at: int | None) -> None:
        held = self.open.get(_descriptor(arguments))
        if held is None:
            return
        data = b"".join(_bytes(text) for text in TEXT.findall(arguments))[:result]
        file, position, appends = held
        where = at if at is not None else self.sizes.get(file, 0) if appends else position
        self._put(file, where, data)
        if at is None:
            held[1] = where + result

    def on_pwrite64(self, arguments: str, result: int) -> None:
        self._write_call(arguments, result, int(arguments.rpartition(",")[2]))

    on_pwritev = on_pwrite64

    def on_write(self, arguments: str, result: int) -> None:
        self._write_call(arguments, result, None)

    on_writev = on_write

    def on_read(self, arguments: str, result: int) -> None:
        held = self.open.get(_descriptor(arguments))
        if held is not None:
            held[1] += result

    def on_lseek(self, arguments: str, result: int) -> None:
        held = self.open.get(_descriptor(arguments))
        if held is not None:
            held[1] = result

    def on_ftruncate(self, arguments: str, result: int) -> None:
        held = self.open.get(_descriptor(arguments))
        if held is not None:
            self._put(held[0], int(arguments.rpartition(",")[2]), None)

    def on_fallocate(self, arguments: str, result: int) -> None:
        held = self.open.get(_descriptor(arguments))
        _, _, offset, length = arguments.rsplit(",", 3)
        if held is not None and int(offset) + int(length) > self.sizes.get(held[0], 0):
            self._put(held[0], int(offset) + int(length), None)

    def on_close(self, arguments: str, result: int) -> None:
        self.open.pop(_descriptor(arguments), None)

    def on_dup(self, arguments: str, result: int) -> None:
        held = self.open.get(_descriptor(arguments))
        self.open.pop(result, None)
        if held is not None:
            self.open[result] = held

    on_dup2 = on_dup3 = on_dup

    def on_fcntl(self, arguments: str, result: int) -> None:
        if "F_DUPFD" in arguments:
            self.on_dup(arguments, result)

    def on_fsync(self, arguments: str, result: int) -> None:
        held = self.open.get(_descriptor(arguments))
        if held is not None:
            self.history.steps.append(Sync(held[0]))

    on_fdatasync = on_fsync

    def on_mkdirat(self, arguments: str, result: int) -> None:
        folder, path = _paths(arguments)[0]
        place = self._place(path, folder)
        if place is not None:
            number, self.count = self.count, self.count + 1
            self.history.folders.add(number)
            self._change((*place, number))

    on_mkdir = on_mkdirat

    def on_unlinkat(self, arguments: str, result: int) -> None:
        folder, path = _paths(arguments)[0]
        place = self._place(path, folder)
        if place is not None:
            self._change((*place, None))

    on_unlink = on_rmdir = on_unlinkat

    def on_renameat(self, arguments: str, result: int) -> None:
        (from_folder, source), (to_folder, target) = _paths(arguments)
        old, new = self._place(source, from_folder), self._place(target, to_folder)
        if (old is None) != (new is None):
            raise RuntimeError(f"a file is renamed into or out of the folder: {source} to {target}")
        if old is not None and new is not None:
            self._change((*old, None), (*new, self.names[old]))

    on_rename = on_renameat2 = on_renameat


def _whole_calls(log: Path) -> Iterator[str]:
    """The lines of a log; those of calls during which another thread called something are put together."""
    begun: dict[str, str] = {}
    with log.open(encoding="ascii") as lines:
        for line in lines:
            halves = HALVES.match(line.rstrip("\n"))
            if halves is None:
                yield line
            elif halves[2] is not None:
                begun[halves[1]] = halves[2]
            else:
                yield f"{begun.pop(halves[1], '')}{halves[3]}"


def _descriptor(arguments: str) -> int:
    found = re.match(r"\d+", arguments)
    return int(found[0]) if found else -1


def _paths(arguments: str) -> list[tuple[str | None, str]]:
    """The paths among arguments, each with the folder of the descriptor before it, if there is one."""
    found = []
    for match in re.finditer(r'(?:(?:AT_FDCWD|\d+)(?:<([^>]*)>)?, )?"((?:\\x[0-9a-f]{2})*)"', arguments):
        folder = os.fsdecode(_bytes(match[1])) if match[1] else None
        found.append((folder, os.fsdecode(_bytes(match[2]))))
    return found


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))

"""What a command does to the files in its folder, as strace sees it: the steps of power.History."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from fuzzing.child import Child, End

from kills.commands import LIMIT, start
from kills.power import ROOT, History, Names, Sync, Write

TRACED = "openat,open,creat,write,pwrite64,writev,pwritev,ftruncate,fallocate,lseek,read,close,dup,dup2,dup3,fcntl,"
TRACED += "rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,linkat,fsync,fdatasync,sendfile,"
TRACED += "copy_file_range,truncate"
CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)(?:<([^>]*)>)?, )?"((?:\\x[0-9a-f]{2})*)"')
HALVES = re.compile(r"^(\d+) +(?:(.*) <unfinished \.\.\.>|<\.\.\. \w+ resumed>(.*))$")


def watched(words: list[str], work: Path) -> tuple[End, History]:
    """Run a command line in a folder under strace.

    Raises RuntimeError if the traced calls do not explain what is in the folder at the end, e.g. because of
    memory-mapped files or an unknown call.
    """
    history, log = History.of(work), work.with_name("strace.log")
    child = start(words, work, before=lambda: os.kill(os.getpid(), signal.SIGSTOP))
    os.waitid(os.P_PID, child.number, os.WSTOPPED | os.WNOWAIT)
    tracer = _trace(child, log)
    os.kill(child.number, signal.SIGCONT)
    end = child.end(LIMIT)
    tracer.wait()
    replay = _Replay(history, work)
    for line in _whole_calls(log):
        call = CALL.match(line)
        if call is not None and int(call[3]) >= 0:
            replay.apply(call[1], call[2], int(call[3]))
    log.unlink()
    wanted, found = history.undisturbed(), History.of(work).undisturbed()
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


def _whole_calls(log: Path) -> Iterator[str]:
    """Yield the lines of a log; the two halves of a call that another thread interrupted are joined."""
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


class _Replay:
    """Follows the calls: which file each descriptor refers to, its position, and which name is whose."""

    def __init__(self, history: History, work: Path) -> None:
        self.history, self.work = history, str(work)
        self.names = dict(history.names)
        self.sizes = {number: len(content) for number, content in history.contents.items()}
        self.count = 1 + max(history.names.values(), default=ROOT)
        self.open: dict[int, list[int]] = {}  # by descriptor: file, position, whether it appends

    def apply(self, call: str, arguments: str, result: int) -> None:
        """Add the steps of a call that succeeded."""
        paths = [self._place(match) for match in PATH.finditer(arguments)]
        match call:
            case "open" | "openat":
                self._opened(paths[0], arguments, result)
            case "mkdir" | "mkdirat" if paths[0] is not None:
                self.history.folders.add(self.count)
                self._change((*paths[0], self._next_number()))
            case "unlink" | "unlinkat" | "rmdir" if paths[0] is not None:
                self._change((*paths[0], None))
            case "rename" | "renameat" | "renameat2":
                old, new = paths
                if (old is None) != (new is None):
                    raise RuntimeError(f"a file is renamed into or out of the folder: {arguments}")
                if old is not None and new is not None:
                    self._change((*old, None), (*new, self.names[old]))
            case _:
                self._on_descriptor(call, arguments, result)

    def _on_descriptor(self, call: str, arguments: str, result: int) -> None:
        number = re.match(r"\d+", arguments)
        descriptor = int(number[0]) if number else -1
        held = self.open.get(descriptor)
        if call.startswith("dup") or "F_DUPFD" in arguments:
            self.open.pop(result, None)
            if held is not None:
                self.open[result] = held
        if held is None:
            return
        file, position, appends = held
        last = arguments.rpartition(",")[2].strip()
        match call:
            case "write" | "writev":
                at = self.sizes.get(file, 0) if appends else position
                self._write(file, at, arguments, result)
                held[1] = at + result
            case "pwrite64" | "pwritev":
                self._write(file, int(last), arguments, result)
            case "read":
                held[1] += result
            case "lseek":
                held[1] = result
            case "ftruncate":
                self._put(file, int(last), None)
            case "fallocate":
                end = sum(map(int, arguments.rsplit(",", 2)[1:]))
                if end > self.sizes.get(file, 0):
                    self._put(file, end, None)
            case "fsync" | "fdatasync":
                self.history.steps.append(Sync(file))
            case "close":
                del self.open[descriptor]

    def _opened(self, place: tuple[int, str] | None, arguments: str, result: int) -> None:
        self.open.pop(result, None)
        if place == (ROOT, ""):
            self.open[result] = [ROOT, 0, 0]
        elif place is not None and "O_TMPFILE" not in arguments:
            if place not in self.names:
                self.sizes[self.count] = 0
                self._change((*place, self._next_number()))
            file = self.names[place]
            if "O_TRUNC" in arguments and self.sizes.get(file):
                self._put(file, 0, None)
            self.open[result] = [file, 0, int("O_APPEND" in arguments)]

    def _place(self, match: re.Match[str]) -> tuple[int, str] | None:
        """Return a path as its folder's number and its name, (ROOT, "") for the work folder; None outside of it."""
        folder, path = (os.fsdecode(_bytes(match[group])) if match[group] else "" for group in (1, 2))
        whole = os.path.normpath(os.path.join(folder or self.work, path))
        if whole == self.work:
            return ROOT, ""
        if not whole.startswith(self.work + "/"):
            return None
        parent = ROOT
        *above, name = whole[len(self.work) + 1 :].split("/")
        for part in above:
            if (parent, part) not in self.names:
                return None
            parent = self.names[parent, part]
        return parent, name

    def _next_number(self) -> int:
        self.count += 1
        return self.count - 1

    def _change(self, *entries: tuple[int, str, int | None]) -> None:
        for folder, name, number in entries:
            if number is None:
                self.names.pop((folder, name), None)
            else:
                self.names[folder, name] = number
        self.history.steps.append(Names(entries))

    def _write(self, file: int, at: int, arguments: str, size: int) -> None:
        self._put(file, at, b"".join(_bytes(text) for text in TEXT.findall(arguments))[:size])

    def _put(self, file: int, at: int, data: bytes | None) -> None:
        self.sizes[file] = at if data is None else max(self.sizes.get(file, 0), at + len(data))
        self.history.steps.append(Write(file, at, data))


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))

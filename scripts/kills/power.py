"""What a power cut may leave: the steps of a command are recorded, and replayed up to some moment on a file system that
forgets what was not synced.

The model is that of Pillai et al. 2014 (All file systems are not created equal, OSDI) with POSIX's minimum promises:
file contents are certain once the file was synced, a name (a file made, renamed or removed) once its folder was synced.
Any part of everything else may be lost, in any order, but a renaming is whole or absent.
"""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fuzzing.child import End, command_line, start

from kills.commands import LIMIT

ROOT = 0  # number of the work folder
Tree = dict[str, bytes | None]  # contents of files by path; None: a folder


class Write(NamedTuple):
    """Bytes written into a file from an offset on. data None: the file is cut or extended to `at` bytes."""

    file: int
    at: int
    data: bytes | None


class Names(NamedTuple):
    """Folder entries that change at once: (folder, name) -> the number of a file or folder; None: removed."""

    entries: tuple[tuple[int, str, int | None], ...]


class Sync(NamedTuple):
    """A file or folder is on disk as it is now."""

    of: int


@dataclass
class History:
    """The initial state and the steps that followed. folders: numbers of folders. names: by folder and name."""

    folders: set[int] = field(default_factory=lambda: {ROOT})
    names: dict[tuple[int, str], int] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    steps: list[Write | Names | Sync] = field(default_factory=list)

    def undisturbed(self, steps: int | None = None) -> Tree:
        """Return the folder after the first `steps` steps (default: all) if nothing is lost."""
        return self.after(len(self.steps) if steps is None else steps, lambda _: True, len)

    def uncertain(self, steps: int) -> list[int]:
        """Return the changes of names that a power cut after `steps` steps may undo, by their step numbers."""
        synced = self._synced(steps)
        return [
            number
            for number, step in enumerate(self.steps[:steps])
            if isinstance(step, Names) and all(synced.get(folder, -1) <= number for folder, _, _ in step.entries)
        ]

    def after(self, steps: int, keeps: Callable[[int], bool], kept_writes: Callable[[list[Write]], int | None]) -> Tree:
        """Return the folder as a power cut after `steps` steps leaves it.

        keeps: whether an uncertain change of names survives, by its step number. kept_writes: how many of the uncertain
        writes of a file, in order, survive; None: the file has its new size but zeros instead of the data.
        """
        names, contents = dict(self.names), dict(self.contents)
        synced, uncertain = self._synced(steps), set(self.uncertain(steps))
        loose: dict[int, list[Write]] = {}
        for number, step in enumerate(self.steps[:steps]):
            if isinstance(step, Names) and (number not in uncertain or keeps(number)):
                for folder, name, target in step.entries:
                    if target is None:
                        names.pop((folder, name), None)
                    else:
                        names[folder, name] = target
            elif isinstance(step, Write):
                if synced.get(step.file, -1) > number:
                    contents[step.file] = written(contents.get(step.file, b""), step)
                else:
                    loose.setdefault(step.file, []).append(step)
        for file, writes in loose.items():
            kept = kept_writes(writes)
            for step in writes[:kept]:
                data = step.data if kept is not None or step.data is None else bytes(len(step.data))
                contents[file] = written(contents.get(file, b""), Write(file, step.at, data))
        return self._tree(names, contents)

    def _synced(self, steps: int) -> dict[int, int]:
        return {step.of: number for number, step in enumerate(self.steps[:steps]) if isinstance(step, Sync)}

    def _tree(self, names: dict[tuple[int, str], int], contents: dict[int, bytes]) -> Tree:
        found: Tree = {}
        waiting = [(ROOT, "")]
        while waiting:
            folder, path = waiting.pop()
            for (parent, name), number in names.items():
                if parent == folder and number in self.folders:
                    found[path + name] = None
                    waiting.append((number, f"{path}{name}/"))
                elif parent == folder:
                    found[path + name] = contents.get(number, b"")
        return found


NAMING = ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "link")  # calls of os that change names
PARTS = 4  # in which what was written between two calls may be lost


class Recorder:
    """Records what this process does to a folder from now on: each call of `os` that syncs or changes names is a step.

    What came between two of these (files that a library has made, and what was written) is seen by reading the folder.
    """

    def __init__(self, work: Path) -> None:
        self.work, self.history, self.numbers = work, History(), {work.stat().st_ino: ROOT}
        self.names: dict[tuple[int, str], int] = {}
        self.contents: dict[int, bytes] = {}
        self.count = 1
        self.look()
        self.history.steps.clear()  # what is there already is on disk
        self.history.names, self.history.contents = dict(self.names), dict(self.contents)
        os.fsync = self._sync
        for name in NAMING:
            setattr(os, name, partial(self._name, getattr(os, name)))

    def _sync(self, handle: Any) -> None:
        self.look()
        inode = os.fstat(handle).st_ino
        if inode in self.numbers:
            self.history.steps.append(Sync(self.numbers[inode]))

    def _name(self, call: Callable[..., Any], *given: Any, **more: Any) -> Any:
        self.look()
        answer = call(*given, **more)
        self.look(at_once=True)
        return answer

    def look(self, *, at_once: bool = False) -> None:
        """Add the steps since the last look. at_once: all changes of names are one step."""
        names, contents = {}, {}
        for base, folders, files in os.walk(self.work):
            parent = self._number(base)
            for name in sorted([*folders, *files]):
                path = os.path.join(base, name)
                names[parent, name] = number = self._number(path)
                if name in folders:
                    self.history.folders.add(number)
                else:
                    contents[number] = Path(path).read_bytes()
        new: list[tuple[int, str, int | None]] = [
            (*place, number) for place, number in names.items() if self.names.get(place) != number
        ]
        changes = [(*place, None) for place in self.names if place not in names] + new
        self.history.steps += [Names(tuple(changes))] * bool(changes) if at_once else [Names((one,)) for one in changes]
        for number, content in contents.items():
            if content == (before := self.contents.get(number, b"")):
                continue
            if len(content) < len(before):
                self.history.steps.append(Write(number, len(content), None))
            at = len(before) if content.startswith(before) else 0
            size = -(-len(content[at:]) // PARTS) or 1
            self.history.steps += [Write(number, k, content[k : k + size]) for k in range(at, len(content), size)]
        self.names, self.contents = names, contents
        self.numbers = {inode: number for inode, number in self.numbers.items() if number in {ROOT, *names.values()}}

    def _number(self, path: str) -> int:
        inode = os.lstat(path).st_ino
        if inode not in self.numbers:
            self.numbers[inode] = self.count
            self.count += 1
        return self.numbers[inode]


def recorded(words: list[str], work: Path) -> tuple[End, History]:
    """Run a command line in a folder; return its end and its history."""
    kept = work.with_name("history")

    def run() -> int:
        recorder = Recorder(work)
        code = command_line(words)
        recorder.look()
        kept.write_bytes(pickle.dumps(recorder.history))
        return code

    end = start(run, work).end(LIMIT)
    return end, pickle.loads(kept.read_bytes())


def written(content: bytes, step: Write) -> bytes:
    before = content[: step.at].ljust(step.at, b"\0")
    return before if step.data is None else before + step.data + content[step.at + len(step.data) :]


def some_crash(history: History, rng: random.Random) -> tuple[str, Tree]:
    """Draw a state that a power cut may leave; return what it is in words, and the state."""
    # Names are what later commands go by: a third of the cuts come right after one, a fifth at the end.
    named = [number + 1 for number, step in enumerate(history.steps) if isinstance(step, Names)]
    anywhere = rng.randint(1, len(history.steps))
    steps = rng.choices([anywhere, rng.choice(named or [anywhere]), len(history.steps)], [7, 5, 3])[0]
    loose = history.uncertain(steps)
    what = rng.choice(["all", "none", "first", "all but one", "one", "some"])
    one = {rng.choice(loose)} if loose else set()
    kept = {
        "all": set(loose),
        "none": set(),
        "first": set(loose[: rng.randint(0, len(loose))]),
        "all but one": set(loose) - one,
        "one": one,
        "some": {number for number in loose if rng.random() < 0.5},
    }[what]
    data = rng.choice(["all", "none", "first", "zeros"])

    def kept_writes(writes: list[Write]) -> int | None:
        return {"all": len(writes), "none": 0, "first": rng.randint(0, len(writes)), "zeros": None}[data]

    about = f"power cut after {steps} of {len(history.steps)} steps; of names not synced {what} kept, of writes {data}"
    return about, history.after(steps, kept.__contains__, kept_writes)


def lay_out(tree: Tree, folder: Path) -> None:
    """Turn a folder into a state; a file with the same content stays as it is, with its time."""
    for path in sorted(folder.rglob("*"), reverse=True):
        name = str(path.relative_to(folder))
        if path.is_dir():
            if name not in tree:
                path.rmdir()
        elif tree.get(name) is None:
            path.unlink()
    for name, content in sorted(tree.items()):
        path = folder / name
        if content is None:
            path.mkdir(exist_ok=True)
        elif not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
